//! What one pass over a trace tells about its disk, in 40 bytes a request.
//!
//! What always holds: `requests` are those that change data or make it durable, in the order of
//! arrival; a time and an entry number are those of the trace. Payloads stay in the file.

use super::jbd2::{self, JournalBlock};
use super::uberblock;
use crate::trace::{
    Command, Entry, EntryAt, EntryNo, Request, RequestNo, TraceEnd, TraceError, TraceHeader,
    TraceReader,
};
use crate::units::{LabNs, SECTOR_BYTES, Txg};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The mark from which on the load runs; states before it belong to no claim.
pub const LOAD_BEGINS: &str = "load-begins";

/// A write, trim, zeroing or flush of a trace.
#[derive(Debug, Clone, Copy)]
pub struct DiskRequest {
    /// When it had arrived whole.
    pub arrived: LabNs,
    /// When it was answered; zero while it was not.
    replied: LabNs,
    /// Byte of the trace at which its payload starts, in 48 bits; above it the reply's error, capped.
    payload_at_and_error: u64,
    /// The entry in which it arrived.
    pub arrival: EntryNo,
    /// The entry of its reply; meaningless while `replied` is zero.
    reply: EntryNo,
    /// First sector.
    pub sector: u32,
    /// Sectors in 24 bits, then command and FUA.
    what: u32,
}

const _: () = assert!(size_of::<DiskRequest>() == 40);

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskReply {
    /// When it was about to be sent.
    pub at: LabNs,
    /// Its entry.
    pub entry: EntryNo,
    /// 0, or an NBD error.
    pub error: u32,
}

const SECTOR_BITS: u32 = 24;
const PAYLOAD_BITS: u32 = 48;
const FUA: u32 = 1 << 31;

impl DiskRequest {
    fn new(at: &EntryAt, request: &Request) -> DiskRequest {
        let code: u32 = match request.command {
            Command::Read => 0,
            Command::Write => 1,
            Command::Flush => 2,
            Command::Trim => 3,
            Command::WriteZeroes => 4,
        };
        let sectors = request.length / SECTOR_BYTES as u32;
        DiskRequest {
            arrived: at.time,
            replied: LabNs(0),
            payload_at_and_error: at.payload_at,
            arrival: at.no,
            reply: EntryNo(0),
            sector: (request.offset / SECTOR_BYTES as u64) as u32,
            what: sectors | code << SECTOR_BITS | if request.fua { FUA } else { 0 },
        }
    }

    /// What it asked.
    pub fn command(&self) -> Command {
        match (self.what & !FUA) >> SECTOR_BITS {
            1 => Command::Write,
            2 => Command::Flush,
            3 => Command::Trim,
            4 => Command::WriteZeroes,
            _ => Command::Read,
        }
    }

    /// Whether its own data had to be durable when it was answered.
    pub fn fua(&self) -> bool {
        self.what & FUA != 0
    }

    /// First byte on the disk.
    pub fn offset(&self) -> u64 {
        u64::from(self.sector) * SECTOR_BYTES as u64
    }

    /// How many sectors; 0 for a flush.
    pub fn sectors(&self) -> u32 {
        self.what & ((1 << SECTOR_BITS) - 1)
    }

    /// How many bytes; 0 for a flush.
    pub fn bytes(&self) -> u64 {
        u64::from(self.sectors()) * SECTOR_BYTES as u64
    }

    /// Byte of the trace at which a write's payload starts.
    pub fn payload_at(&self) -> u64 {
        self.payload_at_and_error & ((1 << PAYLOAD_BITS) - 1)
    }

    /// Its answer, if one was about to be sent before the trace ended.
    pub fn reply(&self) -> Option<DiskReply> {
        let error = (self.payload_at_and_error >> PAYLOAD_BITS) as u32;
        (self.replied.0 != 0).then_some(DiskReply { at: self.replied, entry: self.reply, error })
    }

    /// Whether it was answered without error before the entry `cut`.
    pub fn succeeded_before(&self, cut: EntryNo) -> bool {
        self.reply().is_some_and(|reply| reply.entry < cut && reply.error == 0)
    }

    fn set_reply(&mut self, at: &EntryAt, error: u32) {
        self.replied = LabNs(at.time.0.max(1));
        self.reply = at.no;
        self.payload_at_and_error |= u64::from(error.min(u32::from(u16::MAX))) << PAYLOAD_BITS;
    }
}

/// A named instant of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// Its entry.
    pub entry: EntryNo,
    /// When.
    pub at: LabNs,
}

/// A write that carried an uberblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UberblockSighting {
    /// Its index in [`DiskLog::requests`].
    pub request: u32,
    /// The highest txg in it.
    pub txg: Txg,
}

/// A write that carried a block of ext4's journal that begins or ends a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalSighting {
    /// Its index in [`DiskLog::requests`].
    pub request: u32,
    /// The transaction.
    pub sequence: u32,
    /// Which of its blocks.
    pub block: JournalBlock,
}

/// The disk's side of a trace.
#[derive(Debug, Clone)]
pub struct DiskLog {
    /// The trace.
    pub path: PathBuf,
    /// What it says about itself.
    pub header: TraceHeader,
    /// How its reading ended.
    pub end: TraceEnd,
    /// Writes, trims, zeroings and flushes.
    pub requests: Vec<DiskRequest>,
    /// Reads, which change nothing and are only counted.
    pub reads: u64,
    /// Writes that carried an uberblock, in the order of arrival.
    pub uberblocks: Vec<UberblockSighting>,
    /// Writes that carried a descriptor or commit block of a journal, in the order of arrival.
    pub journal: Vec<JournalSighting>,
    /// Named instants.
    pub marks: Vec<Mark>,
    /// The cut, with how it was made as its name.
    pub cut: Option<Mark>,
    /// Entries of the trace: the position behind its last.
    pub entries: EntryNo,
    /// When its last entry was appended.
    pub last: LabNs,
}

/// Why a trace's disk cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Whole entries that contradict each other.
    #[error("entry {} of the trace {} is not possible: {what}", entry.0, path.display())]
    Impossible {
        /// The trace.
        path: PathBuf,
        /// Which entry.
        entry: EntryNo,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl DiskLog {
    /// Reads the trace at `path` once. Entries that are not the disk's (messages, clock samples,
    /// notes), and marks and the cut too, are shown to `other` in order.
    pub fn read(
        path: &Path,
        mut other: impl FnMut(&EntryAt, &Entry<'_>),
    ) -> Result<DiskLog, LogError> {
        let mut reader = TraceReader::open(path)?;
        let header = *reader.header();
        let mut building = Building::new(path, header);
        while let Some((at, entry)) = reader.next_entry()? {
            building.log.entries = EntryNo(at.no.0.saturating_add(1));
            building.log.last = at.time;
            building.add(&at, &entry).map_err(|what| LogError::Impossible {
                path: path.to_owned(),
                entry: at.no,
                what,
            })?;
            if !matches!(entry, Entry::Request(..) | Entry::Reply(..)) {
                other(&at, &entry);
            }
        }
        building.log.end = reader.end().unwrap_or(building.log.end);
        building.log.requests.shrink_to_fit();
        Ok(building.log)
    }

    /// The first mark of this name.
    pub fn mark(&self, name: &str) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.name == name)
    }

    /// The entry at which the power went; without a cut, the position behind the last entry.
    pub fn cut_entry(&self) -> EntryNo {
        self.cut.as_ref().map_or(self.entries, |cut| cut.entry)
    }

    /// Bytes of memory that the requests hold.
    pub fn heap_bytes(&self) -> usize {
        self.requests.capacity() * size_of::<DiskRequest>()
    }
}

struct Building {
    log: DiskLog,
    /// Requests without a reply, and where they are; reads are not kept.
    open: HashMap<RequestNo, Option<u32>>,
    next: u64,
}

impl Building {
    fn new(path: &Path, header: TraceHeader) -> Building {
        let log = DiskLog {
            path: path.to_owned(),
            header,
            end: TraceEnd::Clean { bytes: 0 },
            requests: Vec::new(),
            reads: 0,
            uberblocks: Vec::new(),
            journal: Vec::new(),
            marks: Vec::new(),
            cut: None,
            entries: EntryNo(0),
            last: header.monotonic,
        };
        Building { log, open: HashMap::new(), next: 0 }
    }

    fn add(&mut self, at: &EntryAt, entry: &Entry<'_>) -> Result<(), &'static str> {
        match entry {
            Entry::Request(request, payload) => self.request(at, request, payload),
            Entry::Reply(no, error) => self.reply(at, *no, *error),
            Entry::Mark(name) => {
                self.log.marks.push(mark(name, at));
                Ok(())
            }
            Entry::Cut(_) if self.log.cut.is_some() => Err("a second cut"),
            Entry::Cut(how) => {
                self.log.cut = Some(mark(how, at));
                Ok(())
            }
            Entry::Message(_) | Entry::ClockSample(_) | Entry::Note(_) => Ok(()),
        }
    }

    fn request(
        &mut self,
        at: &EntryAt,
        request: &Request,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        if self.log.cut.is_some() {
            return Err("a disk request behind the cut");
        }
        if request.no.0 != self.next {
            return Err("its request number does not follow the last one");
        }
        self.next += 1;
        let end = request.offset.checked_add(u64::from(request.length));
        let sector = SECTOR_BYTES as u64;
        if end.is_none_or(|end| end > self.log.header.disk_bytes)
            || !request.offset.is_multiple_of(sector)
            || !u64::from(request.length).is_multiple_of(sector)
        {
            return Err("its range is not one of whole sectors of the disk");
        }
        if request.command == Command::Read {
            self.log.reads += 1;
            self.open.insert(request.no, None);
            return Ok(());
        }
        let index = self.log.requests.len() as u32;
        self.log.requests.push(DiskRequest::new(at, request));
        self.open.insert(request.no, Some(index));
        if let Some(txg) = uberblock::highest_txg(request.offset, payload) {
            self.log.uberblocks.push(UberblockSighting { request: index, txg });
        }
        if let Some((block, sequence)) = jbd2::last_block(request.offset, payload) {
            self.log.journal.push(JournalSighting { request: index, sequence, block });
        }
        Ok(())
    }

    fn reply(&mut self, at: &EntryAt, no: RequestNo, error: u32) -> Result<(), &'static str> {
        if self.log.cut.is_some() {
            return Err("a disk reply behind the cut");
        }
        match self.open.remove(&no) {
            Some(Some(index)) => self.log.requests[index as usize].set_reply(at, error),
            Some(None) => {}
            None => return Err("it answers no open request"),
        }
        Ok(())
    }
}

fn mark(name: &str, at: &EntryAt) -> Mark {
    Mark { name: name.to_owned(), entry: at.no, at: at.time }
}
