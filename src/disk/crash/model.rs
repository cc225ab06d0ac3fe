//! The names of the crash models.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// MiB that an `unsafe` disk's cache holds unless told otherwise.
const UNSAFE_MIB: u32 = 16;

/// What happens to the disk's volatile cache at the cut.
///
/// As text: `keep-all`, `drop-unflushed`, `subset`, `torn`, `torn-4k`, `unsafe`, `unsafe:MIB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum CrashModel {
    /// Every write that arrived whole is there, answered or not: what killing a VM shows.
    KeepAll,
    /// Only what a flush that was answered, or FUA, made durable is there.
    #[default]
    DropUnflushed,
    /// Beside that, each other write is there as a whole or not, by the seed.
    Subset,
    /// Beside that, each unit of each other write is there or not, by the seed.
    Torn {
        /// Sectors of a unit: 1, or 8 for a medium that writes 4 KiB at once.
        unit_sectors: u32,
    },
    /// From `load-begins` on, flushes and FUA were answered and ignored; writes reach the medium in
    /// order, and the youngest are gone.
    Unsafe {
        /// MiB that the cache holds.
        mib: u32,
    },
}

/// Text that names no crash model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "crash model {0:?} is not one of keep-all, drop-unflushed, subset, torn, torn-4k, unsafe, \
     unsafe:MIB (such as unsafe:16)"
)]
pub struct ModelError(String);

impl fmt::Display for CrashModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrashModel::KeepAll => f.pad("keep-all"),
            CrashModel::DropUnflushed => f.pad("drop-unflushed"),
            CrashModel::Subset => f.pad("subset"),
            CrashModel::Torn { unit_sectors: 1 } => f.pad("torn"),
            CrashModel::Torn { unit_sectors } => f.pad(&format!("torn-{}k", unit_sectors / 2)),
            CrashModel::Unsafe { mib: UNSAFE_MIB } => f.pad("unsafe"),
            CrashModel::Unsafe { mib } => f.pad(&format!("unsafe:{mib}")),
        }
    }
}

impl FromStr for CrashModel {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<CrashModel, ModelError> {
        Ok(match text {
            "keep-all" => CrashModel::KeepAll,
            "drop-unflushed" => CrashModel::DropUnflushed,
            "subset" => CrashModel::Subset,
            "torn" => CrashModel::Torn { unit_sectors: 1 },
            "torn-4k" => CrashModel::Torn { unit_sectors: 8 },
            "unsafe" => CrashModel::Unsafe { mib: UNSAFE_MIB },
            other => {
                let mib = other.strip_prefix("unsafe:").and_then(|mib| mib.parse().ok());
                CrashModel::Unsafe { mib: mib.ok_or_else(|| ModelError(text.to_owned()))? }
            }
        })
    }
}

impl From<CrashModel> for String {
    fn from(model: CrashModel) -> String {
        model.to_string()
    }
}

impl TryFrom<String> for CrashModel {
    type Error = ModelError;

    fn try_from(text: String) -> Result<CrashModel, ModelError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_and_other_text_is_refused() {
        for name in
            ["keep-all", "drop-unflushed", "subset", "torn", "torn-4k", "unsafe", "unsafe:32"]
        {
            assert_eq!(name.parse::<CrashModel>().expect(name).to_string(), name);
        }
        assert_eq!("unsafe:16".parse::<CrashModel>(), "unsafe".parse());
        for bad in ["", "keep", "unsafe:", "unsafe:-1", "torn-8k"] {
            let error = bad.parse::<CrashModel>().expect_err(bad);
            assert!(error.to_string().contains("drop-unflushed"), "{error}");
        }
    }
}
