//! Makes a trace from a log.
//!
//! What always holds: all of a log's entries are checked before the trace is made, so that a bad log
//! leaves nothing behind; memory holds one request's data. Each entry becomes a request and its
//! answer, in the log's order, so that entries that overlap on the disk lie over one another as
//! replay-log lays them.

use super::layout::{DISCARD, FLUSH, FUA, LayoutError};
use super::marks::{MarkError, Marks, Said};
use super::reader::{LogEntry, LogReader};
use crate::disk::{DISK_BYTES_MAX, Image, ImageError};
use crate::record::place::is_zero;
use crate::trace::{
    Command, PAYLOAD_BYTES_MAX, Recorder, Request, RequestNo, TraceError, TraceHeader,
};
use crate::units::{RunId, SECTOR_BYTES};
use std::io;
use std::path::{Path, PathBuf};

/// Longest trim that becomes one request.
const TRIM_BYTES_MAX: u64 = 128 << 20;

/// What an import read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Size of the trace's disk.
    pub disk_bytes: u64,
    /// Entries of the log.
    pub entries: u64,
    /// Entries with data.
    pub writes: u64,
    /// Discards.
    pub discards: u64,
    /// Flushes, those that came with a write among them.
    pub flushes: u64,
    /// Marks that stayed marks.
    pub marks: u64,
    /// Marks that were messages of a guest.
    pub messages: u64,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The log cannot be read.
    #[error("cannot {what} the log {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The log.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that are no entry.
    #[error("byte {at} of the log {}: {what}", path.display())]
    Layout {
        /// The log.
        path: PathBuf,
        /// Byte of the file.
        at: u64,
        /// What is wrong there.
        what: LayoutError,
    },
    /// A mark that is named like one of ours.
    #[error("byte {at} of the log {}: {what}", path.display())]
    Mark {
        /// The log.
        path: PathBuf,
        /// Byte of the file.
        at: u64,
        /// What is wrong there.
        what: MarkError,
    },
    /// The log says another size than the caller.
    #[error(
        "the log {} is of a disk of {log} bytes, not of the {asked} asked for: leave the size out",
        path.display()
    )]
    DiskSize {
        /// The log.
        path: PathBuf,
        /// What it says.
        log: u64,
        /// What was asked for.
        asked: u64,
    },
    /// The disk has a size that none can have; a log without a write tells none.
    #[error("the log {} makes no disk: {source}", path.display())]
    Disk {
        /// The log.
        path: PathBuf,
        /// Why.
        source: ImageError,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Imports the log at `log` as a new trace at `to`.
///
/// A log of the kernel does not say how large its disk was. Without `disk_bytes` it is taken to end
/// where the furthest entry ends; give the true size if a file system's end matters.
pub fn import(log: &Path, to: &Path, disk_bytes: Option<u64>) -> Result<Imported, ImportError> {
    let disk = survey(log, disk_bytes)?;
    let recorder = Recorder::create(to, &TraceHeader::now(disk.run, disk.bytes))?;
    let mut replay = Replay { recorder, durable: true, buffer: Vec::new(), read: disk.read() };
    let done = walk(log, |reader, event| match event {
        Event::Said(_, said) => replay.say(said),
        Event::Entry(entry) => replay.entry(reader, &entry),
    });
    let done = done.and_then(|()| Ok(replay.recorder.sync()?));
    if done.is_err() {
        // The error that stopped the import says more than one of removing its rest would.
        let _ = std::fs::remove_file(to);
    }
    done.map(|()| replay.read)
}

enum Event<'a> {
    /// What marks said, and the byte at which the last of them starts.
    Said(u64, Said),
    Entry(LogEntry<'a>),
}

/// Shows all entries of a log in order, marks put together.
fn walk(
    path: &Path,
    mut visit: impl FnMut(&LogReader, Event<'_>) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let mark_error = |at| move |what| ImportError::Mark { path: path.to_owned(), at, what };
    // The entries are read through one handle and their data through another.
    let (mut reader, data) = (LogReader::open(path)?, LogReader::open(path)?);
    let (mut marks, mut last) = (Marks::default(), 0);
    while let Some(entry) = reader.next_entry()? {
        last = entry.at;
        match entry.mark {
            Some(text) => {
                if let Some(said) = marks.take(text).map_err(mark_error(last))? {
                    visit(&data, Event::Said(last, said))?;
                }
            }
            None => {
                marks.finish().map_err(mark_error(last))?;
                visit(&data, Event::Entry(entry))?;
            }
        }
    }
    marks.finish().map_err(mark_error(last))
}

/// What a log tells before it is replayed.
struct Disk {
    bytes: u64,
    run: RunId,
    entries: u64,
}

impl Disk {
    fn read(&self) -> Imported {
        Imported { disk_bytes: self.bytes, entries: self.entries, ..Imported::default() }
    }
}

/// Checks every entry, and finds the size of the disk.
fn survey(path: &Path, asked: Option<u64>) -> Result<Disk, ImportError> {
    let mut told: Option<(u64, RunId)> = None;
    let (mut entries, mut first, mut furthest, mut cut) = (0, true, 0, false);
    walk(path, |reader, event| {
        // The handle for data does not move.
        entries = reader.entries_left();
        let first = std::mem::replace(&mut first, false);
        match event {
            Event::Said(_, Said::Disk { bytes, run }) if first => {
                told = Some((bytes, run));
                match asked {
                    Some(asked) if asked != bytes => {
                        Err(ImportError::DiskSize { path: path.to_owned(), log: bytes, asked })
                    }
                    _ => Ok(()),
                }
            }
            Event::Said(at, Said::Disk { .. }) => {
                Err(ImportError::Mark { path: path.to_owned(), at, what: MarkError::LateDisk })
            }
            Event::Said(at, Said::Cut(_)) => {
                let second = std::mem::replace(&mut cut, true);
                if second { Err(reader.bad(at, LayoutError::BehindCut)) } else { Ok(()) }
            }
            Event::Said(..) => Ok(()),
            Event::Entry(entry) if cut => Err(reader.bad(entry.at, LayoutError::BehindCut)),
            Event::Entry(entry) => {
                let limit = told.map(|(bytes, _)| bytes).or(asked).unwrap_or(DISK_BYTES_MAX);
                furthest = furthest.max(end_of(reader, &entry, limit)?);
                Ok(())
            }
        }
    })?;
    let (bytes, run) = told.unwrap_or((asked.unwrap_or(furthest), RunId([0; 16])));
    Image::blank(bytes).map_err(|source| ImportError::Disk { path: path.to_owned(), source })?;
    Ok(Disk { bytes, run, entries })
}

/// The byte of the disk behind an entry.
fn end_of(reader: &LogReader, entry: &LogEntry, disk_bytes: u64) -> Result<u64, ImportError> {
    let (sector, sectors) = (entry.head.sector, entry.head.sectors);
    let end = sector.checked_add(sectors).and_then(|end| end.checked_mul(reader.sector_bytes()));
    match end.filter(|end| *end <= disk_bytes || sectors == 0) {
        Some(_) if sectors == 0 => Ok(0),
        Some(end) => Ok(end),
        None => Err(reader.bad(entry.at, LayoutError::Range { sector, sectors, disk_bytes })),
    }
}

/// Records the entries of a log that was checked.
struct Replay {
    recorder: Recorder,
    /// Whether requests are answered.
    durable: bool,
    buffer: Vec<u8>,
    read: Imported,
}

impl Replay {
    fn say(&mut self, said: Said) -> Result<(), ImportError> {
        match said {
            Said::Disk { .. } => {}
            Said::Unflushed => self.durable = false,
            Said::Message(frame) => {
                self.read.messages += 1;
                self.recorder.message(&frame)?;
            }
            Said::Note(text) => self.recorder.note(&text)?,
            Said::Mark(name) => {
                self.read.marks += 1;
                self.recorder.mark(&name)?;
            }
            Said::Cut(how) => {
                self.recorder.cut(&how)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, reader: &LogReader, entry: &LogEntry) -> Result<(), ImportError> {
        let head = &entry.head;
        if head.flags & FLUSH != 0 {
            // A flush that came with data went before them.
            self.read.flushes += 1;
            self.request(Command::Flush, false, 0, 0, &[])?;
        }
        let fua = head.flags & FUA != 0;
        let (offset, bytes) =
            (head.sector * reader.sector_bytes(), head.sectors * reader.sector_bytes());
        if bytes == 0 {
            return Ok(());
        }
        if head.flags & DISCARD != 0 {
            self.read.discards += 1;
            return chunks(bytes, TRIM_BYTES_MAX).try_for_each(|(from, length)| {
                self.request(Command::Trim, fua, offset + from, length, &[])
            });
        }
        self.read.writes += 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        let done = chunks(bytes, PAYLOAD_BYTES_MAX.into()).try_for_each(|(from, length)| {
            buffer.resize(length as usize, 0);
            reader.data(entry.data_at + from, &mut buffer)?;
            if is_zero(&buffer) {
                return self.request(Command::WriteZeroes, fua, offset + from, length, &[]);
            }
            self.request(Command::Write, fua, offset + from, length, &buffer)
        });
        self.buffer = buffer;
        done
    }

    fn request(
        &self,
        command: Command,
        fua: bool,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> Result<(), ImportError> {
        // The recorder numbers it.
        let request = Request { no: RequestNo(0), command, fua, offset, length };
        let arrived = self.recorder.request(request, payload)?;
        if self.durable || command == Command::Flush {
            self.recorder.reply(arrived.no, 0)?;
        }
        Ok(())
    }
}

/// Cuts a length into (start, length) of at most `longest`, which fits 32 bits.
fn chunks(bytes: u64, longest: u64) -> impl Iterator<Item = (u64, u32)> {
    (0..bytes).step_by(longest as usize).map(move |from| (from, longest.min(bytes - from) as u32))
}

const _: () = assert!(TRIM_BYTES_MAX.is_multiple_of(SECTOR_BYTES as u64));
