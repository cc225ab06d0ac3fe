//! Scripts from their specs.

mod blocks;

use super::spec::{Generator, ScriptSpec};
use crate::units::StreamId;

/// The generator of a spec.
pub fn generator(spec: &ScriptSpec, seed: u64, stream: StreamId) -> Box<dyn Generator> {
    match spec {
        ScriptSpec::Append { block_bytes, forced } => {
            Box::new(blocks::Blocks::append(*block_bytes, *forced))
        }
        ScriptSpec::Overwrite { slots, block_bytes, forced } => {
            Box::new(blocks::Blocks::overwrite(*slots, *block_bytes, *forced, (seed, stream)))
        }
        ScriptSpec::Random { .. }
        | ScriptSpec::Exhaustive { .. }
        | ScriptSpec::Listed { .. }
        | ScriptSpec::PackageInstall { .. } => {
            Box::new(blocks::Blocks::append(4096, Default::default()))
        }
    }
}
