//! The first bytes of a trace: what it is, of which run, of how large a disk, and on which clock.

use crate::units::{LabNs, RunId};

/// First bytes of every trace.
const MAGIC: [u8; 8] = *b"pptrace\n";
/// Version of the format. A reader takes no other.
const VERSION: u32 = 1;
/// Bytes of the header on disk.
pub const HEADER_BYTES: usize = 64;

/// What a trace says about itself before its first entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceHeader {
    /// The run it belongs to.
    pub run: RunId,
    /// Size of the disk whose requests it holds, in bytes.
    pub disk_bytes: u64,
    /// CLOCK_REALTIME at the start, in ns since 1970: for people; nothing is computed from it.
    pub realtime_ns: u64,
    /// The trace's clock at the same instant.
    pub monotonic: LabNs,
}

/// Why bytes are not the header of a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("it ends inside its header (a header has {HEADER_BYTES} bytes, the file {have})")]
    Short {
        /// Bytes there are.
        have: usize,
    },
    /// Some other file.
    #[error("it is not a trace (it does not start with \"pptrace\")")]
    Magic,
    /// Written by another version of the tool.
    #[error(
        "its format is version {found}, this tool reads version {VERSION}: use the tool that wrote it"
    )]
    Version {
        /// The version it names.
        found: u32,
    },
    /// The bytes are not those that were written.
    #[error("its header is damaged (CRC-32C differs)")]
    Checksum,
}

// The header's fields, each little-endian: magic 8, version 4, header bytes 4, run 16, disk bytes 8,
// realtime 8, monotonic 8, zero 4, CRC-32C of all before it 4.
const _: () = assert!(8 + 4 + 4 + 16 + 8 + 8 + 8 + 4 + 4 == HEADER_BYTES);
const SUM_AT: usize = HEADER_BYTES - 4;

impl TraceHeader {
    /// The header as it stands in the file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        out[16..32].copy_from_slice(&self.run.0);
        out[32..40].copy_from_slice(&self.disk_bytes.to_le_bytes());
        out[40..48].copy_from_slice(&self.realtime_ns.to_le_bytes());
        out[48..56].copy_from_slice(&self.monotonic.0.to_le_bytes());
        let sum = crc32c::crc32c(&out[..SUM_AT]);
        out[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads a header off the first bytes of a file.
    pub fn decode(bytes: &[u8]) -> Result<TraceHeader, HeaderError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(if MAGIC.starts_with(&bytes[..bytes.len().min(8)]) {
                HeaderError::Short { have: bytes.len() }
            } else {
                HeaderError::Magic
            });
        };
        if head[..8] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let version = u32_at(head, 8);
        if version != VERSION {
            return Err(HeaderError::Version { found: version });
        }
        if crc32c::crc32c(&head[..SUM_AT]) != u32_at(head, SUM_AT) {
            return Err(HeaderError::Checksum);
        }
        let mut run = [0; 16];
        run.copy_from_slice(&head[16..32]);
        Ok(TraceHeader {
            run: RunId(run),
            disk_bytes: u64_at(head, 32),
            realtime_ns: u64_at(head, 40),
            monotonic: LabNs(u64_at(head, 48)),
        })
    }
}

/// The little-endian u32 at `at` of a fixed-size head.
pub(super) fn u32_at<const N: usize>(head: &[u8; N], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&head[at..at + 4]);
    u32::from_le_bytes(bytes)
}

/// The little-endian u64 at `at` of a fixed-size head.
pub(super) fn u64_at<const N: usize>(head: &[u8; N], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TraceHeader {
        TraceHeader {
            run: RunId([7; 16]),
            disk_bytes: 1 << 30,
            realtime_ns: 1_700_000_000_000_000_000,
            monotonic: LabNs(12_345),
        }
    }

    #[test]
    fn a_header_survives_its_bytes() {
        assert_eq!(TraceHeader::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_refused() {
        let good = sample().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(TraceHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_short_header_and_another_file_are_told_apart() {
        assert_eq!(TraceHeader::decode(b"pptr"), Err(HeaderError::Short { have: 4 }));
        assert_eq!(TraceHeader::decode(b"#!/bin/sh"), Err(HeaderError::Magic));
    }
}
