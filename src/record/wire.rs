//! An observation's bytes on the control port.
//!
//! A file goes over in parts of about 1 MiB, each with a 32-byte head (magic, stream, flags, part,
//! first block, size) and runs of like blocks: kind, count, then 40 bytes a record, nothing for
//! zeros, an errno once, or length and bytes of each odd block. Little-endian, fixed widths. What
//! always holds: whatever the bytes are, decoding allocates no more than a file of
//! [`FILE_BYTES_MAX`] has blocks, and a file is handed out only when it has exactly its blocks.

use crate::record::layout::RECORD_BYTES;
use crate::record::observed::{ObservedBlock, ObservedFile, Summary};
use crate::units::{EventNo, GuestNs, Seq, StreamId};
use std::io;

/// A part is sent when it has grown to this many bytes.
pub const PART_BYTES: usize = 1 << 20;
/// No part is longer: its last run may have passed the mark by one odd block.
pub const PART_BYTES_MAX: usize = PART_BYTES + RECORD_BYTES + 64;
/// No file is larger: 4 Mi blocks, far more than a load writes.
pub const FILE_BYTES_MAX: u64 = 16 << 30;

/// First bytes of a part ("PO" and the version of the format).
const MAGIC: u32 = 0x0001_4f50;
const HEAD_BYTES: usize = 32;
const SUMMARY_BYTES: usize = 40;

const LAST: u16 = 1;
const EXISTS: u16 = 2;

const ZEROS: u8 = 0;
const RECORDS: u8 = 1;
const ODD: u8 = 2;
const UNREADABLE: u8 = 3;

/// Why bytes are not a part of an observation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not the start of a part.
    #[error("part {part} of an observation does not start like one (is the agent this tool's?)")]
    Magic {
        /// Parts before it.
        part: u32,
    },
    /// It ends within a field.
    #[error("part {part} of stream {stream}'s observation ends within a {what}")]
    Short {
        /// Which part.
        part: u32,
        /// Of which stream.
        stream: StreamId,
        /// What was being read.
        what: &'static str,
    },
    /// It is not the part that had to come.
    #[error(
        "stream {stream}'s observation: part {found} at block {first} came, part {part} at block \
         {blocks} was due"
    )]
    Order {
        /// Of which stream.
        stream: StreamId,
        /// The part that was due.
        part: u32,
        /// The block that was due.
        blocks: u64,
        /// The part that came.
        found: u32,
        /// Its first block.
        first: u64,
    },
    /// A field has a value that it cannot have.
    #[error("part {part} of stream {stream}'s observation: {what} cannot be {value}")]
    Value {
        /// Which part.
        part: u32,
        /// Of which stream.
        stream: StreamId,
        /// The field.
        what: &'static str,
        /// What it says.
        value: u64,
    },
    /// The last part came, but blocks are missing.
    #[error(
        "stream {stream}'s observation has {found} blocks, its size of {size} bytes needs {due}"
    )]
    Incomplete {
        /// Of which stream.
        stream: StreamId,
        /// Blocks that came.
        found: u64,
        /// Bytes of the file.
        size: u64,
        /// Blocks that the size needs.
        due: u64,
    },
}

/// Where parts go.
pub type Sink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Sends one file block by block, without holding more than a part.
#[derive(Debug)]
pub struct Encoder {
    stream: StreamId,
    size: Option<u64>,
    part: u32,
    first: u64,
    blocks: u64,
    bytes: Vec<u8>,
    /// Kind, errno and place of the count of the run that is still growing.
    run: Option<(u8, i32, usize)>,
}

impl Encoder {
    /// Starts the file of a stream; `None` when it is not there.
    pub fn new(stream: StreamId, size: Option<u64>) -> Encoder {
        let bytes = vec![0; HEAD_BYTES];
        Encoder { stream, size, part: 0, first: 0, blocks: 0, bytes, run: None }
    }

    /// Adds the next block, and sends a part when it is full.
    pub fn push(&mut self, block: &ObservedBlock, sink: &mut Sink) -> io::Result<()> {
        match block {
            ObservedBlock::Zeros => self.count(ZEROS, 0),
            ObservedBlock::Unreadable(errno) => self.count(UNREADABLE, *errno),
            ObservedBlock::Record(summary) => {
                self.count(RECORDS, 0);
                put_summary(&mut self.bytes, summary);
            }
            ObservedBlock::Odd(odd) => {
                self.count(ODD, 0);
                self.bytes.extend_from_slice(&(odd.len() as u16).to_le_bytes());
                self.bytes.extend_from_slice(odd);
            }
        }
        self.blocks += 1;
        if self.bytes.len() >= PART_BYTES { self.send(false, sink) } else { Ok(()) }
    }

    /// Sends the last part.
    pub fn finish(mut self, sink: &mut Sink) -> io::Result<()> {
        self.send(true, sink)
    }

    /// Lengthens the run of this kind by one, or starts it.
    fn count(&mut self, kind: u8, errno: i32) {
        if let Some((running, its_errno, at)) = self.run
            && (running, its_errno) == (kind, errno)
        {
            let mut count = [0; 4];
            count.copy_from_slice(&self.bytes[at..at + 4]);
            let count = u32::from_le_bytes(count) + 1;
            self.bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
            return;
        }
        self.bytes.push(kind);
        self.run = Some((kind, errno, self.bytes.len()));
        self.bytes.extend_from_slice(&1u32.to_le_bytes());
        if kind == UNREADABLE {
            self.bytes.extend_from_slice(&errno.to_le_bytes());
        }
    }

    fn send(&mut self, last: bool, sink: &mut Sink) -> io::Result<()> {
        let flags = if last { LAST } else { 0 } | if self.size.is_some() { EXISTS } else { 0 };
        let head = &mut self.bytes[..HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC.to_le_bytes());
        head[4..6].copy_from_slice(&self.stream.0.to_le_bytes());
        head[6..8].copy_from_slice(&flags.to_le_bytes());
        head[8..12].copy_from_slice(&self.part.to_le_bytes());
        head[16..24].copy_from_slice(&self.first.to_le_bytes());
        head[24..32].copy_from_slice(&self.size.unwrap_or(0).to_le_bytes());
        sink(&self.bytes)?;
        self.bytes.truncate(HEAD_BYTES);
        self.run = None;
        self.part += 1;
        self.first = self.blocks;
        Ok(())
    }
}

/// Sends a whole observation.
pub fn encode(file: &ObservedFile, sink: &mut Sink) -> io::Result<()> {
    let mut encoder = Encoder::new(file.stream, file.size);
    for block in &file.blocks {
        encoder.push(block, sink)?;
    }
    encoder.finish(sink)
}

/// Puts parts together again, one file after another.
#[derive(Debug, Default)]
pub struct Decoder {
    file: Option<ObservedFile>,
    part: u32,
}

impl Decoder {
    /// Takes the next part; hands the file out with its last. After an error the observation is
    /// lost: start with a new decoder.
    pub fn part(&mut self, bytes: &[u8]) -> Result<Option<ObservedFile>, WireError> {
        let head = Head::read(bytes, self.part)?;
        let mut file = match self.file.take() {
            Some(file) => file,
            None => ObservedFile { stream: head.stream, size: head.size, blocks: Vec::new() },
        };
        self.check_order(&head, &file)?;
        let blocks_due = file.size.unwrap_or(0).div_ceil(RECORD_BYTES as u64);
        let mut runs = Runs { part: self.part, stream: head.stream, rest: &bytes[HEAD_BYTES..] };
        while !runs.rest.is_empty() {
            runs.take(&mut file, blocks_due)?;
        }
        if !head.last {
            self.part += 1;
            self.file = Some(file);
            return Ok(None);
        }
        self.part = 0;
        let (found, size) = (file.blocks.len() as u64, file.size.unwrap_or(0));
        if found != blocks_due {
            return Err(WireError::Incomplete {
                stream: head.stream,
                found,
                size,
                due: blocks_due,
            });
        }
        Ok(Some(file))
    }

    /// Whether a file has begun whose last part is still to come.
    pub fn is_within_a_file(&self) -> bool {
        self.file.is_some()
    }

    fn check_order(&self, head: &Head, file: &ObservedFile) -> Result<(), WireError> {
        let blocks = file.blocks.len() as u64;
        let is_next = head.part == self.part && head.first == blocks;
        if !is_next || head.stream != file.stream || head.size != file.size {
            return Err(WireError::Order {
                stream: file.stream,
                part: self.part,
                blocks,
                found: head.part,
                first: head.first,
            });
        }
        Ok(())
    }
}

struct Head {
    stream: StreamId,
    last: bool,
    part: u32,
    first: u64,
    size: Option<u64>,
}

impl Head {
    fn read(bytes: &[u8], part: u32) -> Result<Head, WireError> {
        let bad = WireError::Magic { part };
        let Some((head, _)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Err(bad) };
        let mut fields = Runs { part, stream: StreamId(0), rest: head };
        let magic = fields.u32("magic")?;
        let stream = StreamId(u16::from_le_bytes(fields.array("stream")?));
        let flags = u16::from_le_bytes(fields.array("flags")?);
        let (own_part, reserved) = (fields.u32("part")?, fields.u32("reserved field")?);
        let (first, size) = (fields.u64("first block")?, fields.u64("size")?);
        if magic != MAGIC {
            return Err(bad);
        }
        let value = |what, value| WireError::Value { part, stream, what, value };
        if flags & !(LAST | EXISTS) != 0 {
            return Err(value("flags", flags.into()));
        }
        if reserved != 0 {
            return Err(value("reserved field", reserved.into()));
        }
        let exists = flags & EXISTS != 0;
        if size > FILE_BYTES_MAX || (!exists && size != 0) {
            return Err(value("size", size));
        }
        let size = exists.then_some(size);
        Ok(Head { stream, last: flags & LAST != 0, part: own_part, first, size })
    }
}

/// Reads runs off the front of a part.
struct Runs<'a> {
    part: u32,
    stream: StreamId,
    rest: &'a [u8],
}

impl Runs<'_> {
    fn take(&mut self, file: &mut ObservedFile, blocks_due: u64) -> Result<(), WireError> {
        let [kind] = self.array("run")?;
        let count = self.u32("run")?;
        let room = blocks_due - file.blocks.len() as u64;
        if count == 0 || u64::from(count) > room {
            return Err(self.value("number of blocks in a run", count.into()));
        }
        let run_errno = match kind {
            UNREADABLE => i32::from_le_bytes(self.array("errno")?),
            _ => 0,
        };
        for _ in 0..count {
            let block = match kind {
                ZEROS => ObservedBlock::Zeros,
                RECORDS => ObservedBlock::Record(self.summary(file)?),
                ODD => ObservedBlock::Odd(self.odd(file)?),
                UNREADABLE => ObservedBlock::Unreadable(run_errno),
                _ => return Err(self.value("kind of a run", kind.into())),
            };
            file.blocks.push(block);
        }
        Ok(())
    }

    fn summary(&mut self, file: &ObservedFile) -> Result<Summary, WireError> {
        let place = bytes_in_block(file);
        if place != RECORD_BYTES as u64 {
            return Err(self.value("room for a record", place));
        }
        let what = "record";
        Ok(Summary {
            seq: Seq(self.u64(what)?),
            start: EventNo(self.u64(what)?),
            stamp: GuestNs(self.u64(what)?),
            digest: self.array(what)?,
            previous: self.array(what)?,
        })
    }

    fn odd(&mut self, file: &ObservedFile) -> Result<Box<[u8]>, WireError> {
        let len = u16::from_le_bytes(self.array("length")?);
        if u64::from(len) != bytes_in_block(file) {
            return Err(self.value("length of an odd block", len.into()));
        }
        let Some((bytes, rest)) = self.rest.split_at_checked(usize::from(len)) else {
            return Err(self.short("odd block"));
        };
        self.rest = rest;
        Ok(bytes.into())
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.short(what));
        };
        self.rest = rest;
        Ok(*head)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn short(&self, what: &'static str) -> WireError {
        WireError::Short { part: self.part, stream: self.stream, what }
    }

    fn value(&self, what: &'static str, value: u64) -> WireError {
        WireError::Value { part: self.part, stream: self.stream, what, value }
    }
}

/// Bytes that the file has in its next block.
fn bytes_in_block(file: &ObservedFile) -> u64 {
    let before = file.blocks.len() as u64 * RECORD_BYTES as u64;
    (file.size.unwrap_or(0) - before).min(RECORD_BYTES as u64)
}

fn put_summary(out: &mut Vec<u8>, summary: &Summary) {
    let before = out.len();
    for value in [summary.seq.0, summary.start.0, summary.stamp.0] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    out.extend_from_slice(&summary.digest);
    out.extend_from_slice(&summary.previous);
    debug_assert_eq!(out.len() - before, SUMMARY_BYTES);
}

#[cfg(test)]
mod tests;
