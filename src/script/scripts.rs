//! The scripts of one run, generated once however often its states are judged.
//!
//! What always holds: all scripts here are of one plan, so a stream has one script. A script only
//! grows; who was given its beginning keeps that.

use super::spec::{Generator, Script, ScriptSpec};
use crate::units::StreamId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Operations that are generated at least when a script must grow.
const GROW: u64 = 1 << 14;

/// Scripts by stream, as far as they were asked for.
#[derive(Debug, Default)]
pub struct Scripts {
    known: Mutex<BTreeMap<StreamId, Growing>>,
}

#[derive(Debug)]
struct Growing {
    generator: Box<dyn Generator>,
    script: Arc<Script>,
    ended: bool,
}

impl Scripts {
    /// The script of a stream: its first `count` operations at least, or all if there are fewer.
    pub fn script(
        &self,
        spec: &ScriptSpec,
        seed: u64,
        stream: StreamId,
        count: u64,
    ) -> Arc<Script> {
        // A judge that panicked has left whole operations behind.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let growing = known.entry(stream).or_insert_with(|| {
            let generator = spec.generator(seed, stream);
            let script = Script { fill: generator.fill(), ..Script::default() };
            Growing { generator, script: Arc::new(script), ended: false }
        });
        growing.grow(count);
        growing.script.clone()
    }
}

impl Growing {
    fn grow(&mut self, count: u64) {
        let have = self.script.ops.len() as u64;
        if self.ended || have >= count {
            return;
        }
        let wanted = count.max(have + GROW) - have;
        let script = Arc::make_mut(&mut self.script);
        script.ops.extend((0..wanted).map_while(|_| self.generator.next_op()));
        script.paths = self.generator.paths().clone();
        self.ended = (script.ops.len() as u64) < have + wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::spec::Forced;

    #[test]
    fn a_script_that_grew_is_the_one_that_is_made_at_once() {
        let spec = ScriptSpec::Overwrite { slots: 8, block_bytes: 512, forced: Forced::Fsync };
        let scripts = Scripts::default();
        let few = scripts.script(&spec, 7, StreamId(2), 10);
        let many = scripts.script(&spec, 7, StreamId(2), 20_000);
        let whole = spec.script(7, StreamId(2), 20_000);
        assert!(few.ops.len() >= 10 && few.fill == whole.fill);
        assert_eq!(few.ops[..], whole.ops[..few.ops.len()]);
        assert_eq!(many.ops[..20_000], whole.ops[..]);
        assert_eq!(many.paths.len(), whole.paths.len());
    }
}
