//! Faults of a medium and its controller, and their names.
//!
//! What always holds: a fault alters what a crash state shows, never the log, and nothing but what
//! its definition says. A fault that could alter nothing is refused, not ignored.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a disk does wrong. A `request` is an index in [`crate::disk::DiskLog::requests`].
///
/// As text: its name, then its numbers, each behind a colon, such as `misdirected:42:-8`.
///
/// The faults of flushes hold for what arrives from `load-begins` on; in a trace without that mark,
/// from its beginning. They alter no state of `keep-all` or `unsafe`, which count no flush then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DiskFault {
    /// A flush is answered before its work is done; that is done with the next flush's answer.
    FlushAnsweredEarly,
    /// Flushes and FUA are answered and ignored.
    FlushIgnored,
    /// FUA is answered and ignored; flushes count.
    FuaDropped,
    /// A write never reaches the medium.
    WriteLost {
        /// Which.
        request: u32,
    },
    /// One sector of a write never reaches the medium.
    StaleSector {
        /// Which.
        request: u32,
        /// Its sector, from 0.
        sector: u32,
    },
    /// A write lands elsewhere; its own place keeps what it had.
    Misdirected {
        /// Which.
        request: u32,
        /// How much further behind it lands.
        by_sectors: i64,
    },
    /// A write lands in its place, and elsewhere too.
    DuplicatedTo {
        /// Which.
        request: u32,
        /// How much further behind the copy lands, without touching the write's own place.
        by_sectors: i64,
    },
    /// One bit of a write reads as its opposite.
    BitFlipped {
        /// Which.
        request: u32,
        /// Its bit: bit `bit % 8` of byte `bit / 8`.
        bit: u32,
    },
    /// Only the first sectors of a write reach the medium.
    TornAt512 {
        /// Which.
        request: u32,
        /// How many.
        sectors_kept: u32,
    },
    /// Only the first 4-KiB blocks of a write reach the medium, counted from its first byte.
    TornAt4096 {
        /// Which.
        request: u32,
        /// How many.
        blocks_kept: u32,
    },
    /// Two writes reach the medium in each other's place: the first becomes durable when the second
    /// should, and the second, once it arrived, when the first should. Where both are there, the
    /// one that arrived later is on top.
    SwappedAcrossFlush {
        /// The write that should be durable earlier.
        first: u32,
        /// The later one.
        second: u32,
    },
    /// The place of a write reads as zeros instead.
    Zeroed {
        /// Which.
        request: u32,
    },
    /// A trim clears sectors behind its end too.
    TrimTooLong {
        /// Which.
        request: u32,
        /// How many.
        extra_sectors: u32,
    },
}

/// Text that names no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "disk fault {0:?} is not one of flush-answered-early, flush-ignored, fua-dropped, \
     write-lost:REQUEST, stale-sector:REQUEST:SECTOR, misdirected:REQUEST:BY, \
     duplicated-to:REQUEST:BY, bit-flipped:REQUEST:BIT, torn-at-512:REQUEST:SECTORS, \
     torn-at-4096:REQUEST:BLOCKS, swapped-across-flush:FIRST:SECOND, zeroed:REQUEST, \
     trim-too-long:REQUEST:SECTORS"
)]
pub struct FaultTextError(String);

impl DiskFault {
    /// Its name, without its numbers.
    pub fn name(&self) -> &'static str {
        match self {
            DiskFault::FlushAnsweredEarly => "flush-answered-early",
            DiskFault::FlushIgnored => "flush-ignored",
            DiskFault::FuaDropped => "fua-dropped",
            DiskFault::WriteLost { .. } => "write-lost",
            DiskFault::StaleSector { .. } => "stale-sector",
            DiskFault::Misdirected { .. } => "misdirected",
            DiskFault::DuplicatedTo { .. } => "duplicated-to",
            DiskFault::BitFlipped { .. } => "bit-flipped",
            DiskFault::TornAt512 { .. } => "torn-at-512",
            DiskFault::TornAt4096 { .. } => "torn-at-4096",
            DiskFault::SwappedAcrossFlush { .. } => "swapped-across-flush",
            DiskFault::Zeroed { .. } => "zeroed",
            DiskFault::TrimTooLong { .. } => "trim-too-long",
        }
    }

    /// The request whose data it alters, if it is about one.
    pub fn request(&self) -> Option<u32> {
        match *self {
            DiskFault::FlushAnsweredEarly | DiskFault::FlushIgnored | DiskFault::FuaDropped => None,
            DiskFault::WriteLost { request }
            | DiskFault::StaleSector { request, .. }
            | DiskFault::Misdirected { request, .. }
            | DiskFault::DuplicatedTo { request, .. }
            | DiskFault::BitFlipped { request, .. }
            | DiskFault::TornAt512 { request, .. }
            | DiskFault::TornAt4096 { request, .. }
            | DiskFault::SwappedAcrossFlush { first: request, .. }
            | DiskFault::Zeroed { request }
            | DiskFault::TrimTooLong { request, .. } => Some(request),
        }
    }

    /// The number behind the request's, if it has one.
    fn detail(&self) -> Option<i64> {
        match *self {
            DiskFault::FlushAnsweredEarly
            | DiskFault::FlushIgnored
            | DiskFault::FuaDropped
            | DiskFault::WriteLost { .. }
            | DiskFault::Zeroed { .. } => None,
            DiskFault::Misdirected { by_sectors, .. }
            | DiskFault::DuplicatedTo { by_sectors, .. } => Some(by_sectors),
            DiskFault::StaleSector { sector: detail, .. }
            | DiskFault::BitFlipped { bit: detail, .. }
            | DiskFault::TornAt512 { sectors_kept: detail, .. }
            | DiskFault::TornAt4096 { blocks_kept: detail, .. }
            | DiskFault::SwappedAcrossFlush { second: detail, .. }
            | DiskFault::TrimTooLong { extra_sectors: detail, .. } => Some(i64::from(detail)),
        }
    }

    fn from_parts(name: &str, numbers: &[&str]) -> Option<DiskFault> {
        if numbers.is_empty() {
            return match name {
                "flush-answered-early" => Some(DiskFault::FlushAnsweredEarly),
                "flush-ignored" => Some(DiskFault::FlushIgnored),
                "fua-dropped" => Some(DiskFault::FuaDropped),
                _ => None,
            };
        }
        let request = numbers.first()?.parse().ok()?;
        let by_sectors = || numbers.get(1)?.parse::<i64>().ok();
        let detail = || numbers.get(1)?.parse::<u32>().ok();
        let fault = match name {
            "write-lost" => DiskFault::WriteLost { request },
            "stale-sector" => DiskFault::StaleSector { request, sector: detail()? },
            "misdirected" => DiskFault::Misdirected { request, by_sectors: by_sectors()? },
            "duplicated-to" => DiskFault::DuplicatedTo { request, by_sectors: by_sectors()? },
            "bit-flipped" => DiskFault::BitFlipped { request, bit: detail()? },
            "torn-at-512" => DiskFault::TornAt512 { request, sectors_kept: detail()? },
            "torn-at-4096" => DiskFault::TornAt4096 { request, blocks_kept: detail()? },
            "swapped-across-flush" => {
                DiskFault::SwappedAcrossFlush { first: request, second: detail()? }
            }
            "zeroed" => DiskFault::Zeroed { request },
            "trim-too-long" => DiskFault::TrimTooLong { request, extra_sectors: detail()? },
            _ => return None,
        };
        let expected = 1 + usize::from(fault.detail().is_some());
        (numbers.len() == expected).then_some(fault)
    }
}

impl fmt::Display for DiskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [self.request().map(i64::from), self.detail()];
        let numbers = numbers.iter().flatten().map(|number| format!(":{number}"));
        f.pad(&format!("{}{}", self.name(), numbers.collect::<String>()))
    }
}

impl FromStr for DiskFault {
    type Err = FaultTextError;

    fn from_str(text: &str) -> Result<DiskFault, FaultTextError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let numbers: Vec<&str> = parts.collect();
        DiskFault::from_parts(name, &numbers).ok_or_else(|| FaultTextError(text.to_owned()))
    }
}

impl From<DiskFault> for String {
    fn from(fault: DiskFault) -> String {
        fault.to_string()
    }
}

impl TryFrom<String> for DiskFault {
    type Error = FaultTextError;

    fn try_from(text: String) -> Result<DiskFault, FaultTextError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_survives_its_text_and_other_text_is_refused() {
        for text in [
            "flush-answered-early",
            "flush-ignored",
            "fua-dropped",
            "write-lost:7",
            "stale-sector:7:3",
            "misdirected:7:-8",
            "duplicated-to:7:8",
            "bit-flipped:7:4095",
            "torn-at-512:7:1",
            "torn-at-4096:7:1",
            "swapped-across-flush:7:9",
            "zeroed:7",
            "trim-too-long:7:8",
        ] {
            let fault: DiskFault = text.parse().expect(text);
            assert_eq!(fault.to_string(), text);
            let json = serde_json::to_string(&fault).expect("JSON");
            assert_eq!(serde_json::from_str::<DiskFault>(&json).expect("JSON"), fault);
        }
        for bad in ["", "write-lost", "write-lost:x", "zeroed:1:2", "fua-dropped:1", "torn:1:1"] {
            let error = bad.parse::<DiskFault>().expect_err(bad);
            assert!(error.to_string().contains("write-lost:REQUEST"), "{error}");
        }
    }
}
