//! Requests and replies of the transmission phase.

use super::{PAYLOAD_MAX, ProtocolError};
use crate::trace::Command;
use crate::units::SECTOR_BYTES;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Bytes of a request before a write's payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a reply before a read's data.
pub const REPLY_BYTES: usize = 16;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;
const CMD_FLUSH: u16 = 3;
const CMD_TRIM: u16 = 4;
const CMD_WRITE_ZEROES: u16 = 6;

const FLAG_FUA: u16 = 1;
/// Zeroes must not become a hole. Nothing is ever a hole here that would later run out of space.
const FLAG_NO_HOLE: u16 = 2;

/// An error of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdError {
    /// The data could not be read.
    Io = 5,
    /// The request makes no sense: unaligned, empty, too long, an unknown command or flag.
    Invalid = 22,
    /// A write beyond the end of the disk.
    NoSpace = 28,
}

/// A request as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead {
    flags: u16,
    kind: u16,
    /// Names the request in its reply.
    pub cookie: [u8; 8],
    offset: u64,
    length: u32,
}

/// What a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Something that this disk does.
    Disk(DiskAsk),
    /// Something that it does not do.
    Refused(NbdError),
    /// The client is done.
    Disconnect,
}

/// A request within the disk, of whole sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskAsk {
    /// What to do.
    pub command: Command,
    /// Its own data must be durable before it is answered.
    pub fua: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u32,
}

impl RequestHead {
    /// Reads it.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<RequestHead, ProtocolError> {
        let [m0, m1, m2, m3, f0, f1, k0, k1, rest @ ..] = *bytes;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != REQUEST_MAGIC {
            return Err(ProtocolError::RequestMagic(magic));
        }
        let [c0, c1, c2, c3, c4, c5, c6, c7, o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = rest;
        Ok(RequestHead {
            flags: u16::from_be_bytes([f0, f1]),
            kind: u16::from_be_bytes([k0, k1]),
            cookie: [c0, c1, c2, c3, c4, c5, c6, c7],
            offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }

    /// Bytes of payload that follow it, whatever becomes of it.
    pub fn payload_bytes(&self) -> u32 {
        if self.kind == CMD_WRITE { self.length } else { 0 }
    }

    /// What it asks of a disk of this size.
    pub fn ask(&self, disk_bytes: u64) -> Ask {
        let (command, flags_known) = match self.kind {
            CMD_READ => (Command::Read, FLAG_FUA),
            CMD_WRITE => (Command::Write, FLAG_FUA),
            CMD_FLUSH => (Command::Flush, FLAG_FUA),
            CMD_TRIM => (Command::Trim, FLAG_FUA),
            CMD_WRITE_ZEROES => (Command::WriteZeroes, FLAG_FUA | FLAG_NO_HOLE),
            CMD_DISC => return Ask::Disconnect,
            _ => return Ask::Refused(NbdError::Invalid),
        };
        // FAST_ZERO and DF were not offered.
        if self.flags & !flags_known != 0 {
            return Ask::Refused(NbdError::Invalid);
        }
        let fua = self.flags & FLAG_FUA != 0 && command.changes_data();
        match self.range_error(command, disk_bytes) {
            Some(error) => Ask::Refused(error),
            None => Ask::Disk(DiskAsk { command, fua, offset: self.offset, length: self.length }),
        }
    }

    fn range_error(&self, command: Command, disk_bytes: u64) -> Option<NbdError> {
        if command == Command::Flush {
            let reserved = self.offset != 0 || self.length != 0;
            return reserved.then_some(NbdError::Invalid);
        }
        let sector = SECTOR_BYTES as u64;
        let length = u64::from(self.length);
        let has_payload = matches!(command, Command::Read | Command::Write);
        if length == 0
            || !self.offset.is_multiple_of(sector)
            || !length.is_multiple_of(sector)
            || has_payload && self.length > PAYLOAD_MAX
        {
            return Some(NbdError::Invalid);
        }
        let inside = self.offset.checked_add(length).is_some_and(|end| end <= disk_bytes);
        match command {
            _ if inside => None,
            Command::Write | Command::WriteZeroes => Some(NbdError::NoSpace),
            Command::Read | Command::Trim | Command::Flush => Some(NbdError::Invalid),
        }
    }
}

/// A simple reply; a read's data follows it if `error` is `None`.
pub fn reply(cookie: [u8; 8], error: Option<NbdError>) -> [u8; REPLY_BYTES] {
    let mut out = [0; REPLY_BYTES];
    out[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
    out[4..8].copy_from_slice(&error.map_or(0, |error| error as u32).to_be_bytes());
    out[8..].copy_from_slice(&cookie);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DISK: u64 = 1 << 30;

    fn head(kind: u16, flags: u16, offset: u64, length: u32) -> RequestHead {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        bytes[8..16].copy_from_slice(b"a cookie");
        bytes[16..24].copy_from_slice(&offset.to_be_bytes());
        bytes[24..].copy_from_slice(&length.to_be_bytes());
        RequestHead::decode(&bytes).expect("the right magic")
    }

    fn ask(kind: u16, flags: u16, offset: u64, length: u32) -> Ask {
        head(kind, flags, offset, length).ask(DISK)
    }

    #[test]
    fn every_command_of_this_disk_is_understood() {
        let disk =
            |command, fua, offset, length| Ask::Disk(DiskAsk { command, fua, offset, length });
        assert_eq!(ask(CMD_READ, 0, 512, 512), disk(Command::Read, false, 512, 512));
        assert_eq!(ask(CMD_READ, 1, 0, 512), disk(Command::Read, false, 0, 512));
        assert_eq!(ask(CMD_WRITE, 1, 0, 4096), disk(Command::Write, true, 0, 4096));
        assert_eq!(ask(CMD_FLUSH, 0, 0, 0), disk(Command::Flush, false, 0, 0));
        assert_eq!(ask(CMD_TRIM, 0, 0, 1 << 29), disk(Command::Trim, false, 0, 1 << 29));
        assert_eq!(ask(CMD_WRITE_ZEROES, 3, 0, 512), disk(Command::WriteZeroes, true, 0, 512));
        assert_eq!(ask(CMD_DISC, 0, 0, 0), Ask::Disconnect);
    }

    #[test]
    fn what_the_disk_does_not_do_gets_the_error_that_the_protocol_names() {
        let invalid = Ask::Refused(NbdError::Invalid);
        let no_space = Ask::Refused(NbdError::NoSpace);
        assert_eq!(ask(CMD_READ, 0, 1, 512), invalid, "unaligned offset");
        assert_eq!(ask(CMD_WRITE, 0, 0, 100), invalid, "unaligned length");
        assert_eq!(ask(CMD_WRITE, 0, 0, 0), invalid, "empty");
        assert_eq!(ask(CMD_READ, 0, DISK - 512, 1024), invalid, "read beyond the end");
        assert_eq!(ask(CMD_TRIM, 0, DISK, 512), invalid, "trim beyond the end");
        assert_eq!(ask(CMD_WRITE, 0, DISK - 512, 1024), no_space, "write beyond the end");
        assert_eq!(ask(CMD_WRITE_ZEROES, 0, u64::MAX - 511, 512), no_space, "overflow");
        assert_eq!(ask(CMD_WRITE, 0, 0, PAYLOAD_MAX + 512), invalid, "too long");
        assert_eq!(ask(CMD_WRITE_ZEROES, 16, 0, 512), invalid, "FAST_ZERO was not offered");
        assert_eq!(ask(CMD_READ, 4, 0, 512), invalid, "DF was not offered");
        assert_eq!(ask(CMD_FLUSH, 0, 0, 512), invalid, "reserved fields of a flush");
        assert_eq!(ask(7, 0, 0, 512), invalid, "unknown command");
    }

    #[test]
    fn a_write_that_is_refused_still_has_its_payload() {
        assert_eq!(head(CMD_WRITE, 0, 1, 700).payload_bytes(), 700);
        assert_eq!(head(CMD_READ, 0, 1, 700).payload_bytes(), 0);
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_lies_within_the_disk(
            kind in 0u16..9, flags in 0u16..32, offset: u64, sectors in 0u64..(1 << 22),
            near_end: bool, length: u32, length_sectors in 0u32..200_000,
        ) {
            let offset = if near_end { sectors * 512 } else { offset };
            let length = if near_end { length_sectors * 512 } else { length };
            if let Ask::Disk(ask) = ask(kind, flags, offset, length) {
                prop_assert!(ask.offset + u64::from(ask.length) <= DISK);
                prop_assert_eq!((ask.offset % 512, ask.length % 512), (0, 0));
            }
        }

        #[test]
        fn any_bytes_are_a_request_or_an_error(bytes in prop::collection::vec(any::<u8>(), 28)) {
            let bytes = bytes.first_chunk::<REQUEST_BYTES>().expect("28 bytes");
            if let Ok(head) = RequestHead::decode(bytes) {
                let _ = head.ask(DISK);
            }
        }
    }
}
