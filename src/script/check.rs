//! Whether a script can be carried out, before anything is made.

use super::content::FILE_BYTES_MAX;
use super::op::{Paths, WORD_BYTES};
use super::spec::ScriptSpec;
use super::text::{self, TextError};

/// Why a script cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadScript {
    /// A listed operation.
    #[error("operations: {0}")]
    Text(#[from] TextError),
    /// More operations in the set-up than there are.
    #[error(
        "{fill} operations belong to the set-up, of {operations}; it can be all of them at most"
    )]
    Fill {
        /// What it asks for.
        fill: u64,
        /// How many there are.
        operations: usize,
    },
    /// A number that it cannot have.
    #[error("{what} of a script is {value}; {right}")]
    Number {
        /// Which.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What would be right.
        right: &'static str,
    },
}

impl ScriptSpec {
    /// Checks all that the types allow and no stream can do.
    pub fn check(&self) -> Result<(), BadScript> {
        match self {
            ScriptSpec::Random { names, file_bytes, sync_every } => {
                number("names", u64::from(*names), *names > 0, "it is at least 1")?;
                let right = "it is a multiple of 8 from 4096 to 128 MiB";
                let fits = (4096..=FILE_BYTES_MAX).contains(file_bytes);
                number("file_bytes", *file_bytes, fits && is_words(*file_bytes), right)?;
                number("sync_every", u64::from(*sync_every), *sync_every > 0, "it is at least 1")
            }
            ScriptSpec::Exhaustive { operations } => {
                let fits = (1..=2).contains(operations);
                number("length", u64::from(*operations), fits, "it is 1 or 2")
            }
            ScriptSpec::Listed { operations, fill } => {
                let count = text::parse(operations, &mut Paths::default())?.len();
                match *fill <= count as u64 {
                    true => Ok(()),
                    false => Err(BadScript::Fill { fill: *fill, operations: count }),
                }
            }
            ScriptSpec::PackageInstall { files, .. } => {
                let fits = (1..=100_000).contains(files);
                number("files", u64::from(*files), fits, "it is within 1 to 100000")
            }
            ScriptSpec::Append { block_bytes, .. } => check_block(*block_bytes),
            ScriptSpec::Overwrite { slots, block_bytes, .. } => {
                check_block(*block_bytes)?;
                let bytes = u64::from(*slots).saturating_mul(*block_bytes);
                let right = "the file must have 1 block to 128 MiB";
                number("slots", u64::from(*slots), (1..=FILE_BYTES_MAX).contains(&bytes), right)
            }
        }
    }
}

fn check_block(bytes: u64) -> Result<(), BadScript> {
    let fits = (1..=FILE_BYTES_MAX).contains(&bytes) && is_words(bytes);
    number("block_bytes", bytes, fits, "it is a multiple of 8 up to 128 MiB")
}

fn is_words(bytes: u64) -> bool {
    bytes.is_multiple_of(WORD_BYTES)
}

fn number(
    what: &'static str,
    value: u64,
    fits: bool,
    right: &'static str,
) -> Result<(), BadScript> {
    if fits { Ok(()) } else { Err(BadScript::Number { what, value, right }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::spec::Forced;

    #[test]
    fn a_script_that_cannot_be_carried_out_is_refused_and_one_that_can_passes() {
        let forced = Forced::Fsync;
        let listed = |fill| ScriptSpec::Listed { operations: vec!["create a".to_owned()], fill };
        for (right, wrong) in [
            (listed(1), listed(2)),
            (
                ScriptSpec::Append { block_bytes: 512, forced },
                ScriptSpec::Append { block_bytes: 0, forced },
            ),
            (
                ScriptSpec::Overwrite { slots: 4, block_bytes: 512, forced },
                ScriptSpec::Overwrite { slots: 0, block_bytes: 512, forced },
            ),
            (
                ScriptSpec::Random { names: 1, file_bytes: 4096, sync_every: 1 },
                ScriptSpec::Random { names: 1, file_bytes: 4097, sync_every: 1 },
            ),
            (ScriptSpec::Exhaustive { operations: 2 }, ScriptSpec::Exhaustive { operations: 3 }),
            (
                ScriptSpec::PackageInstall { files: 1, unsafe_io: true },
                ScriptSpec::PackageInstall { files: 0, unsafe_io: true },
            ),
        ] {
            assert_eq!(right.check(), Ok(()));
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
