//! One entry of a trace: a fixed 40-byte head, then its payload. Little-endian, fixed widths.
//!
//! Bytes that are not an entry are a [`Damage`], never a panic, and no length is believed before it
//! was held against the bound of its kind.

use super::header::{u32_at, u64_at};
use crate::units::{GuestNs, LabNs};

/// Bytes before an entry's payload.
pub const ENTRY_HEAD_BYTES: usize = 40;
/// No entry has a longer payload: the largest write that the disk takes.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

// CRC-32C of all after it 4, kind 1, command 1, flags 2, payload bytes 4, value 4, time 8, request 8,
// offset 8.
const _: () = assert!(4 + 1 + 1 + 2 + 4 + 4 + 8 + 8 + 8 == ENTRY_HEAD_BYTES);

/// The place of an entry in its trace, from 0. Order in a trace is the order of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryNo(pub u32);

/// Names a disk request within its trace, in the order of arrival from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestNo(pub u64);

/// What a request asks of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// Return data.
    Read,
    /// Keep the payload.
    Write,
    /// Make durable all writes that were answered before.
    Flush,
    /// The range's content is not needed any more; it reads as zeros here.
    Trim,
    /// The range must read as zeros.
    WriteZeroes,
}

impl Command {
    fn code(self) -> u8 {
        match self {
            Command::Read => 0,
            Command::Write => 1,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::WriteZeroes => 6,
        }
    }

    fn from_code(code: u8) -> Option<Command> {
        [Command::Read, Command::Write, Command::Flush, Command::Trim, Command::WriteZeroes]
            .into_iter()
            .find(|command| command.code() == code)
    }

    /// Whether it changes what the disk holds.
    pub fn changes_data(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}

/// One disk request, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Its name in the trace.
    pub no: RequestNo,
    /// What it asks.
    pub command: Command,
    /// Forced unit access: its own data are durable when it is answered.
    pub fua: bool,
    /// First byte on the disk, a multiple of the sector.
    pub offset: u64,
    /// Bytes, a multiple of the sector; 0 for a flush.
    pub length: u32,
}

/// What ties the guest's clock to the lab's: the guest's stamp was taken between two of the lab's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// The lab's clock before it asked.
    pub before: LabNs,
    /// The lab's clock when the answer was there.
    pub after: LabNs,
    /// The guest's clock in between.
    pub guest: GuestNs,
}

/// One entry, its payload borrowed from the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A disk request that arrived whole. Only a write has a payload, as long as its length.
    Request(Request, &'a [u8]),
    /// The answer that the disk is about to send: an NBD error number, 0 for success.
    Reply(RequestNo, u32),
    /// One frame of the guest, as it came.
    Message(&'a [u8]),
    /// One sample of the clocks.
    ClockSample(ClockSample),
    /// A named instant, such as `load-begins`.
    Mark(&'a str),
    /// The power is gone; how it was cut.
    Cut(&'a str),
    /// JSON text of the trial, such as its plan.
    Note(&'a str),
}

/// Why bytes are not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file ends inside the entry.
    #[error("the file ends inside an entry ({missing} bytes are missing)")]
    Truncated {
        /// Bytes that the entry still needs.
        missing: u64,
    },
    /// The bytes are not those that were written.
    #[error("CRC-32C differs")]
    Checksum,
    /// A kind that this version does not know.
    #[error("kind {0} is not one of this version's")]
    Kind(u8),
    /// A length that no entry of this kind has.
    #[error("an entry of kind {kind} claims {length} bytes, more than {max}")]
    TooLong {
        /// The entry's kind.
        kind: u8,
        /// The length it claims.
        length: u32,
        /// The most it may have.
        max: u32,
    },
    /// Fields that contradict each other, though the checksum fits.
    #[error("an entry of kind {0} has fields that no writer of this version sets")]
    Fields(u8),
}

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const MESSAGE: u8 = 3;
const CLOCK_SAMPLE: u8 = 4;
const MARK: u8 = 5;
const CUT: u8 = 6;
const NOTE: u8 = 7;
const FLAG_FUA: u16 = 1;

/// The fields of a head that lie between its checksum and its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    sum: u32,
    kind: u8,
    command: u8,
    flags: u16,
    /// Bytes of payload behind the head.
    pub payload_bytes: u32,
    /// A request's length, a reply's error.
    value: u32,
    /// The trace's clock when it was appended (a clock sample: before it was asked).
    pub at: LabNs,
    /// The request's number; of a clock sample, the lab's clock after it.
    no: u64,
    /// A request's offset; of a clock sample, the guest's clock.
    offset: u64,
}

/// The longest payload that an entry of this kind may have.
fn payload_bytes_max(kind: u8) -> Result<u32, Damage> {
    Ok(match kind {
        REQUEST => PAYLOAD_BYTES_MAX,
        REPLY | CLOCK_SAMPLE => 0,
        MESSAGE => 64 << 10,
        MARK | CUT => 4 << 10,
        NOTE => 16 << 20,
        other => return Err(Damage::Kind(other)),
    })
}

impl Head {
    /// Reads a head; its payload is not looked at yet, but its length is sane.
    pub fn decode(bytes: &[u8; ENTRY_HEAD_BYTES]) -> Result<Head, Damage> {
        let head = Head {
            sum: u32_at(bytes, 0),
            kind: bytes[4],
            command: bytes[5],
            flags: u16::from_le_bytes([bytes[6], bytes[7]]),
            payload_bytes: u32_at(bytes, 8),
            value: u32_at(bytes, 12),
            at: LabNs(u64_at(bytes, 16)),
            no: u64_at(bytes, 24),
            offset: u64_at(bytes, 32),
        };
        let max = payload_bytes_max(head.kind)?;
        if head.payload_bytes > max {
            return Err(Damage::TooLong { kind: head.kind, length: head.payload_bytes, max });
        }
        Ok(head)
    }

    fn put(&self) -> [u8; ENTRY_HEAD_BYTES] {
        let mut out = [0; ENTRY_HEAD_BYTES];
        out[4] = self.kind;
        out[5] = self.command;
        out[6..8].copy_from_slice(&self.flags.to_le_bytes());
        out[8..12].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.value.to_le_bytes());
        out[16..24].copy_from_slice(&self.at.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.no.to_le_bytes());
        out[32..40].copy_from_slice(&self.offset.to_le_bytes());
        out
    }

    /// Checks `bytes` (this head) and `payload` against the checksum and tells what they say.
    pub fn entry<'a>(
        &self,
        bytes: &[u8; ENTRY_HEAD_BYTES],
        payload: &'a [u8],
    ) -> Result<Entry<'a>, Damage> {
        if crc32c::crc32c_append(crc32c::crc32c(&bytes[4..]), payload) != self.sum {
            return Err(Damage::Checksum);
        }
        self.meaning(payload).ok_or(Damage::Fields(self.kind))
    }

    fn meaning<'a>(&self, payload: &'a [u8]) -> Option<Entry<'a>> {
        let text = || std::str::from_utf8(payload).ok();
        Some(match self.kind {
            REQUEST => {
                let request = Request {
                    no: RequestNo(self.no),
                    command: Command::from_code(self.command)?,
                    fua: self.flags & FLAG_FUA != 0,
                    offset: self.offset,
                    length: self.value,
                };
                let expected = if request.command == Command::Write { self.value } else { 0 };
                if payload.len() != expected as usize {
                    return None;
                }
                Entry::Request(request, payload)
            }
            REPLY => Entry::Reply(RequestNo(self.no), self.value),
            MESSAGE => Entry::Message(payload),
            CLOCK_SAMPLE => Entry::ClockSample(ClockSample {
                before: self.at,
                after: LabNs(self.no),
                guest: GuestNs(self.offset),
            }),
            MARK => Entry::Mark(text()?),
            CUT => Entry::Cut(text()?),
            NOTE => Entry::Note(text()?),
            _ => return None,
        })
    }
}

impl Entry<'_> {
    /// Bytes of its payload.
    pub(super) fn payload_bytes(&self) -> usize {
        match self {
            Entry::Request(_, bytes) | Entry::Message(bytes) => bytes.len(),
            Entry::Mark(text) | Entry::Cut(text) | Entry::Note(text) => text.len(),
            Entry::Reply(..) | Entry::ClockSample(_) => 0,
        }
    }

    /// Its head and its payload. `None` if the payload is longer than a reader would take.
    pub(crate) fn encode(&self, at: LabNs) -> Option<([u8; ENTRY_HEAD_BYTES], &[u8])> {
        let mut head = Head {
            sum: 0,
            kind: 0,
            command: 0,
            flags: 0,
            payload_bytes: 0,
            value: 0,
            at,
            no: 0,
            offset: 0,
        };
        let (kind, payload): (u8, &[u8]) = match self {
            Entry::Request(request, payload) => {
                head.command = request.command.code();
                head.flags = if request.fua { FLAG_FUA } else { 0 };
                head.value = request.length;
                head.no = request.no.0;
                head.offset = request.offset;
                (REQUEST, payload)
            }
            Entry::Reply(no, error) => {
                head.no = no.0;
                head.value = *error;
                (REPLY, &[])
            }
            Entry::Message(bytes) => (MESSAGE, bytes),
            Entry::ClockSample(sample) => {
                head.at = sample.before;
                head.no = sample.after.0;
                head.offset = sample.guest.0;
                (CLOCK_SAMPLE, &[])
            }
            Entry::Mark(text) => (MARK, text.as_bytes()),
            Entry::Cut(text) => (CUT, text.as_bytes()),
            Entry::Note(text) => (NOTE, text.as_bytes()),
        };
        head.kind = kind;
        head.payload_bytes = u32::try_from(payload.len()).ok()?;
        if head.payload_bytes > payload_bytes_max(kind).ok()? {
            return None;
        }
        Some((seal(head.put(), payload), payload))
    }
}

fn seal(mut head: [u8; ENTRY_HEAD_BYTES], payload: &[u8]) -> [u8; ENTRY_HEAD_BYTES] {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[4..]), payload);
    head[..4].copy_from_slice(&sum.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_command() -> impl Strategy<Value = Command> {
        prop_oneof![
            Just(Command::Read),
            Just(Command::Write),
            Just(Command::Flush),
            Just(Command::Trim),
            Just(Command::WriteZeroes),
        ]
    }

    fn round_trip(entry: Entry) {
        let (bytes, payload) = entry.encode(LabNs(77)).expect("a payload within bounds");
        let head = Head::decode(&bytes).expect("a head that was just written");
        assert_eq!(head.payload_bytes as usize, payload.len());
        assert_eq!(head.entry(&bytes, payload), Ok(entry));
    }

    proptest! {
        #[test]
        fn every_entry_survives_its_bytes(
            command in any_command(), fua: bool, no: u64, offset: u64, length: u32, error: u32,
            text in "\\PC{0,40}", bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let write = command == Command::Write;
            let length = if write { bytes.len() as u32 } else { length };
            let payload: &[u8] = if write { &bytes } else { &[] };
            let request = Request { no: RequestNo(no), command, fua, offset, length };
            round_trip(Entry::Request(request, payload));
            round_trip(Entry::Reply(RequestNo(no), error));
            round_trip(Entry::Message(&bytes));
            round_trip(Entry::ClockSample(ClockSample {
                before: LabNs(no), after: LabNs(offset), guest: GuestNs(offset ^ no),
            }));
            round_trip(Entry::Mark(&text));
            round_trip(Entry::Cut(&text));
            round_trip(Entry::Note(&text));
        }

        #[test]
        fn a_flipped_bit_is_damage(
            bytes in prop::collection::vec(any::<u8>(), 0..64), bit in 0usize..(104 * 8),
        ) {
            let (head, _) = Entry::Message(&bytes).encode(LabNs(1)).expect("within bounds");
            let mut whole = [&head[..], &bytes[..]].concat();
            let bit = bit % (whole.len() * 8);
            whole[bit / 8] ^= 1 << (bit % 8);
            let head = whole.first_chunk::<ENTRY_HEAD_BYTES>().expect("a head");
            let read = Head::decode(head).and_then(|h| h.entry(head, &whole[ENTRY_HEAD_BYTES..]));
            prop_assert!(read.is_err());
        }

        #[test]
        fn any_bytes_are_an_entry_or_damage(head in prop::array::uniform32(any::<u8>()),
            rest in prop::array::uniform8(any::<u8>())) {
            let mut bytes = [0; ENTRY_HEAD_BYTES];
            bytes[..32].copy_from_slice(&head);
            bytes[32..].copy_from_slice(&rest);
            if let Ok(head) = Head::decode(&bytes) {
                let _ = head.entry(&bytes, &[]);
            }
        }
    }

    #[test]
    fn a_payload_longer_than_its_kind_may_have_is_not_written() {
        assert!(Entry::Message(&vec![0; (64 << 10) + 1]).encode(LabNs(1)).is_none());
    }
}
