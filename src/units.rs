//! Numbers that must not be swapped for one another.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit! {
    /// A value of the guest's one atomic counter. Order between operations comes from these alone.
    EventNo(u64)
}
unit! {
    /// The place of an operation in its stream, from 1.
    Seq(u64)
}
unit! {
    /// A stream of a workload: one thread that does one operation after another.
    StreamId(u16)
}
unit! {
    /// Nanoseconds on the guest's CLOCK_MONOTONIC_RAW, the clock of ZFS's own births
    /// (spl's gethrtime).
    GuestNs(u64)
}
unit! {
    /// Nanoseconds on the lab's CLOCK_MONOTONIC: the one clock of a trace.
    LabNs(u64)
}
unit! {
    /// A ZFS transaction group.
    Txg(u64)
}

/// Bytes in a sector, the unit in which a disk is whole or torn.
pub const SECTOR_BYTES: usize = 512;

/// Identifies one run of the tool. Never derived from the seed: two runs of one seed write the same
/// bodies, and only this tells their records apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RunId(pub [u8; 16]);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for RunId {
    type Error = String;

    fn try_from(text: String) -> Result<RunId, String> {
        let bad = || format!("run id {text:?} is not 32 hexadecimal digits");
        if text.len() != 32 || !text.is_ascii() {
            return Err(bad());
        }
        let mut id = [0u8; 16];
        for (at, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| bad())?;
        }
        Ok(RunId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_survives_its_text_form_and_bad_text_is_refused() {
        let id = RunId([0xab; 16]);
        assert_eq!(RunId::try_from(id.to_string()), Ok(id));
        assert!(RunId::try_from("xyz".to_owned()).is_err());
        assert!(RunId::try_from("é".repeat(16)).is_err());
    }
}
