//! Writes a trace as a log.
//!
//! What always holds: memory grows with the requests that are not durable at one time, not with the
//! trace; a file that exists is never written over, and one that could not be finished is removed.

use super::arrivals::{Arrivals, Piece};
use super::layout::{DISCARD, FLUSH, FUA, Head, LOG_SECTOR, MARK, Super};
use super::marks::Said;
use crate::trace::{Command, Entry, EntryAt, PAYLOAD_BYTES_MAX, TraceEnd, TraceError, TraceReader};
use crate::units::SECTOR_BYTES;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Longest discard of an entry: replay-log skips longer ones where it must write zeros instead.
const DISCARD_SECTORS_MAX: u64 = (128 << 20) / SECTOR_BYTES as u64;
/// Longest data of an entry: the importer takes them as one request.
const DATA_SECTORS_MAX: u64 = PAYLOAD_BYTES_MAX as u64 / SECTOR_BYTES as u64;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// What an export wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// Entries of the log.
    pub entries: u64,
    /// Entries with data, zeroing among them.
    pub writes: u64,
    /// Trims.
    pub discards: u64,
    /// Flushes.
    pub flushes: u64,
    /// Marks; a long text takes several.
    pub marks: u64,
    /// Writes and trims among these that were never durable, behind `plugpull:unflushed:`.
    pub unflushed: u64,
    /// Bytes of the log, holes among them.
    pub bytes: u64,
    /// How reading the trace ended: of a damaged one, what lies before the damage is exported.
    pub end: TraceEnd,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Its entries contradict each other.
    #[error("entry {entry} of the trace {} is not possible: {what}", path.display())]
    Impossible {
        /// The trace.
        path: PathBuf,
        /// Which entry.
        entry: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The log cannot be written, or the trace's data not be copied.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Exports the trace at `trace` to a new log at `to`.
pub fn export(trace: &Path, to: &Path) -> Result<Exported, ExportError> {
    let reader = TraceReader::open(trace)?;
    let io = |what, path: &Path| {
        let path = path.to_owned();
        move |source| ExportError::Io { what, path, source }
    };
    let payloads = File::open(trace).map_err(io("open", trace))?;
    let file = File::create_new(to).map_err(io("create the log", to))?;
    let log = LogWriter::new(file, payloads);
    let exported = Export { trace, to, log, arrivals: Arrivals::new(reader.header().disk_bytes) };
    let done = exported.run(reader);
    if done.is_err() {
        // The error that stopped the export says more than one of removing its rest would.
        let _ = std::fs::remove_file(to);
    }
    done
}

struct Export<'a> {
    trace: &'a Path,
    to: &'a Path,
    log: LogWriter,
    arrivals: Arrivals,
}

impl Export<'_> {
    fn run(mut self, mut reader: TraceReader) -> Result<Exported, ExportError> {
        let header = *reader.header();
        self.log.begin().map_err(|e| self.failed(e))?;
        self.say(&Said::Disk { bytes: header.disk_bytes, run: header.run })?;
        let mut cut = false;
        while let Some((at, entry)) = reader.next_entry()? {
            if matches!(entry, Entry::Cut(_)) && !std::mem::replace(&mut cut, true) {
                self.rest()?;
            } else if cut && matches!(entry, Entry::Request(..) | Entry::Reply(..) | Entry::Cut(_))
            {
                return Err(self.impossible(&at, "it is the disk's and stands behind the cut"));
            }
            self.entry(&at, &entry)?;
        }
        if !cut {
            self.rest()?;
        }
        let end = reader.end().unwrap_or(TraceEnd::Clean { bytes: 0 });
        let wrote = self.log.finish().map_err(|e| self.failed(e))?;
        Ok(Exported { end, ..wrote })
    }

    fn entry(&mut self, at: &EntryAt, entry: &Entry) -> Result<(), ExportError> {
        let mut pieces = Vec::new();
        match entry {
            Entry::Request(request, _) => {
                self.arrivals.arrive(at, request).map_err(|what| self.impossible(at, what))
            }
            Entry::Reply(no, error) => {
                let answered = self.arrivals.answer(at.no, *no, *error, &mut pieces);
                let flush = answered.map_err(|what| self.impossible(at, what))?;
                self.pieces(&pieces)?;
                if flush { self.log.flush().map_err(|e| self.failed(e)) } else { Ok(()) }
            }
            Entry::Message(frame) => self.say(&Said::Message(frame.to_vec())),
            Entry::Mark(name) => self.say(&Said::Mark((*name).to_owned())),
            Entry::Note(text) => self.say(&Said::Note((*text).to_owned())),
            Entry::Cut(how) => self.say(&Said::Cut((*how).to_owned())),
            Entry::ClockSample(_) => Ok(()),
        }
    }

    /// Writes what was never durable.
    fn rest(&mut self) -> Result<(), ExportError> {
        self.say(&Said::Unflushed)?;
        let mut pieces = Vec::new();
        self.arrivals.rest(&mut pieces);
        let before = self.log.wrote.entries;
        self.pieces(&pieces)?;
        self.log.wrote.unflushed = self.log.wrote.entries - before;
        Ok(())
    }

    fn pieces(&mut self, pieces: &[Piece]) -> Result<(), ExportError> {
        pieces.iter().try_for_each(|piece| self.log.piece(piece)).map_err(|e| self.failed(e))
    }

    fn say(&mut self, said: &Said) -> Result<(), ExportError> {
        let texts = said.texts();
        texts.iter().try_for_each(|text| self.log.mark(text)).map_err(|e| self.failed(e))
    }

    fn impossible(&self, at: &EntryAt, what: &'static str) -> ExportError {
        ExportError::Impossible { path: self.trace.to_owned(), entry: at.no.0, what }
    }

    fn failed(&self, source: io::Error) -> ExportError {
        ExportError::Io { what: "write the log", path: self.to.to_owned(), source }
    }
}

/// Appends entries to a log.
struct LogWriter {
    out: BufWriter<File>,
    payloads: File,
    copied: Vec<u8>,
    wrote: Exported,
}

impl LogWriter {
    fn new(log: File, payloads: File) -> LogWriter {
        let wrote = Exported {
            entries: 0,
            writes: 0,
            discards: 0,
            flushes: 0,
            marks: 0,
            unflushed: 0,
            bytes: 0,
            end: TraceEnd::Clean { bytes: 0 },
        };
        let out = BufWriter::with_capacity(COPY_BYTES, log);
        LogWriter { out, payloads, copied: Vec::new(), wrote }
    }

    /// Leaves room for the super block, which counts the entries and so is written last.
    fn begin(&mut self) -> io::Result<()> {
        self.put(&[0; LOG_SECTOR])
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wrote.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn head(&mut self, head: Head, mark: &str) -> io::Result<()> {
        self.wrote.entries += 1;
        self.put(&head.encode(mark.as_bytes()))
    }

    fn mark(&mut self, text: &str) -> io::Result<()> {
        self.wrote.marks += 1;
        self.head(Head { flags: MARK, data_len: text.len() as u64, ..Head::default() }, text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wrote.flushes += 1;
        self.head(Head { flags: FLUSH, ..Head::default() }, "")
    }

    /// Writes a piece as one entry or, if it is long, as several.
    fn piece(&mut self, piece: &Piece) -> io::Result<()> {
        let discard = piece.command == Command::Trim;
        let longest = if discard { DISCARD_SECTORS_MAX } else { DATA_SECTORS_MAX };
        let kind = if discard { DISCARD } else { 0 };
        let flags = kind | if piece.fua { FUA } else { 0 };
        let mut sector = piece.range.from;
        while sector < piece.range.until {
            let sectors = longest.min(piece.range.until - sector);
            self.head(Head { sector, sectors, flags, data_len: 0 }, "")?;
            let bytes = sectors * SECTOR_BYTES as u64;
            match piece.command {
                Command::Trim => self.wrote.discards += 1,
                Command::Write => {
                    self.wrote.writes += 1;
                    let skipped = (sector - piece.range.from) * SECTOR_BYTES as u64;
                    self.copy(piece.payload_at + skipped, bytes)?;
                }
                Command::WriteZeroes | Command::Read | Command::Flush => {
                    self.wrote.writes += 1;
                    self.hole(bytes)?;
                }
            }
            sector += sectors;
        }
        Ok(())
    }

    fn copy(&mut self, mut from: u64, mut bytes: u64) -> io::Result<()> {
        while bytes > 0 {
            let now = bytes.min(COPY_BYTES as u64) as usize;
            self.copied.resize(now, 0);
            self.payloads.read_exact_at(&mut self.copied, from)?;
            self.out.write_all(&self.copied)?;
            self.wrote.bytes += now as u64;
            (from, bytes) = (from + now as u64, bytes - now as u64);
        }
        Ok(())
    }

    /// Leaves out bytes that read as zeros.
    fn hole(&mut self, bytes: u64) -> io::Result<()> {
        self.wrote.bytes += bytes;
        self.out.seek(SeekFrom::Start(self.wrote.bytes)).map(|_| ())
    }

    fn finish(&mut self) -> io::Result<Exported> {
        self.out.flush()?;
        // The last entry may be a hole.
        self.out.get_ref().set_len(self.wrote.bytes)?;
        let head = Super { entries: self.wrote.entries, sector_bytes: LOG_SECTOR as u32 };
        self.out.get_ref().write_all_at(&head.encode(), 0)?;
        Ok(self.wrote)
    }
}
