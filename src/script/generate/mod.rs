//! Scripts from their specs.

mod blocks;
mod dice;
mod exhaustive;
mod listed;
pub mod names;
mod package;
mod random;

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
        ScriptSpec::Random { names, file_bytes, sync_every } => {
            Box::new(random::Random::new(*names, *file_bytes, *sync_every, (seed, stream)))
        }
        ScriptSpec::Exhaustive { operations } => Box::new(exhaustive::Exhaustive::new(*operations)),
        ScriptSpec::Listed { operations, fill } => Box::new(listed::Listed::new(operations, *fill)),
        ScriptSpec::PackageInstall { files, unsafe_io } => {
            Box::new(package::Package::new(*files, *unsafe_io, (seed, stream)))
        }
    }
}

/// Operations that belong to a spec's set-up, without making them.
pub fn fill(spec: &ScriptSpec) -> u64 {
    match spec {
        ScriptSpec::Append { .. } => blocks::APPEND_FILL,
        ScriptSpec::Overwrite { slots, .. } => blocks::overwrite_fill(*slots),
        ScriptSpec::Random { .. } => random::FILL,
        ScriptSpec::Exhaustive { .. } => 0,
        ScriptSpec::Listed { fill, .. } => *fill,
        ScriptSpec::PackageInstall { files, .. } => package::fill(*files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::spec::Forced;

    #[test]
    fn the_closed_form_of_a_set_up_is_what_its_generator_says() {
        let specs = [
            ScriptSpec::Append { block_bytes: 512, forced: Forced::Fsync },
            ScriptSpec::Overwrite { slots: 9, block_bytes: 512, forced: Forced::Msync },
            ScriptSpec::Random { names: 3, file_bytes: 4096, sync_every: 2 },
            ScriptSpec::Exhaustive { operations: 2 },
            ScriptSpec::Listed { operations: vec!["create a".to_owned()], fill: 1 },
            ScriptSpec::PackageInstall { files: 1, unsafe_io: false },
            ScriptSpec::PackageInstall { files: 99, unsafe_io: true },
            ScriptSpec::PackageInstall { files: 6_699, unsafe_io: false },
        ];
        for spec in specs {
            let script = spec.script(7, StreamId(1), 1 << 20 >> 5);
            assert_eq!(spec.fill(), script.fill, "{spec:?}");
            assert!(spec.fill() <= script.ops.len() as u64);
        }
    }
}
