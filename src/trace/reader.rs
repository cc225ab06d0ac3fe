//! Reads a trace from its first entry to its last whole one.
//!
//! What always holds: reading ends, never panics, and allocates at most one entry's bound. Where it
//! ends is told, with the byte and the reason if that is not the end of the file.

use super::entry::{Damage, ENTRY_HEAD_BYTES, Entry, EntryNo, Head};
use super::header::{HEADER_BYTES, TraceHeader};
use super::recorder::TraceError;
use crate::units::LabNs;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// How the reading of a trace ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEnd {
    /// With the file, behind a whole entry.
    Clean {
        /// Bytes of the file.
        bytes: u64,
    },
    /// Earlier: what follows is not an entry. Normal if the tool was killed while it wrote.
    CutShort {
        /// Byte of the file at which the bad entry starts.
        at: u64,
        /// What is wrong with it.
        why: Damage,
    },
}

impl std::fmt::Display for TraceEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TraceEnd::Clean { bytes } => write!(f, "whole, {bytes} bytes"),
            TraceEnd::CutShort { at, why } => write!(f, "cut short at byte {at}: {why}"),
        }
    }
}

/// Where and when an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryAt {
    /// Its place in the order of truth.
    pub no: EntryNo,
    /// When it was appended.
    pub time: LabNs,
    /// Byte of the file at which its payload starts.
    pub payload_at: u64,
}

/// Streams the entries of a trace.
#[derive(Debug)]
pub struct TraceReader {
    path: PathBuf,
    header: TraceHeader,
    input: BufReader<File>,
    /// Bytes before the next entry.
    at: u64,
    /// Bytes of the file when it was opened: no entry is believed to be longer.
    file_bytes: u64,
    next_no: u32,
    head: [u8; ENTRY_HEAD_BYTES],
    payload: Vec<u8>,
    end: Option<TraceEnd>,
}

impl TraceReader {
    /// Opens a trace and checks its header.
    pub fn open(path: &Path) -> Result<TraceReader, TraceError> {
        let io = |source| TraceError::Io { what: "open", path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        let mut first = Vec::with_capacity(HEADER_BYTES);
        file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut first).map_err(io)?;
        let header = TraceHeader::decode(&first)
            .map_err(|source| TraceError::Header { path: path.to_owned(), source })?;
        Ok(TraceReader {
            path: path.to_owned(),
            header,
            input: BufReader::with_capacity(256 << 10, file),
            at: HEADER_BYTES as u64,
            file_bytes,
            next_no: 0,
            head: [0; ENTRY_HEAD_BYTES],
            payload: Vec::new(),
            end: None,
        })
    }

    /// What the trace says about itself.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How reading ended; `None` while there may be more.
    pub fn end(&self) -> Option<TraceEnd> {
        self.end
    }

    /// The next entry, or `None` at the end, which [`TraceReader::end`] then tells.
    ///
    /// # Errors
    /// Only if the file cannot be read; damage is an end.
    pub fn next_entry(&mut self) -> Result<Option<(EntryAt, Entry<'_>)>, TraceError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let loaded = self.load().map_err(|source| TraceError::Io {
            what: "read",
            path: self.path.clone(),
            source,
        })?;
        let start = self.at;
        let head = match loaded {
            Loaded::Whole(head) => head,
            Loaded::FileEnd => {
                self.end = Some(TraceEnd::Clean { bytes: start });
                return Ok(None);
            }
            Loaded::Bad(why) => {
                self.end = Some(TraceEnd::CutShort { at: start, why });
                return Ok(None);
            }
        };
        match head.entry(&self.head, &self.payload) {
            Ok(entry) => {
                let payload_at = start + ENTRY_HEAD_BYTES as u64;
                let no = EntryNo(self.next_no);
                self.at = payload_at + u64::from(head.payload_bytes);
                self.next_no = self.next_no.saturating_add(1);
                Ok(Some((EntryAt { no, time: head.at, payload_at }, entry)))
            }
            Err(why) => {
                self.end = Some(TraceEnd::CutShort { at: start, why });
                Ok(None)
            }
        }
    }

    /// Reads head and payload of the entry at `self.at`; their checksum is not checked yet.
    fn load(&mut self) -> io::Result<Loaded> {
        let left = self.file_bytes.saturating_sub(self.at);
        if left == 0 || self.next_no == u32::MAX {
            return Ok(Loaded::FileEnd);
        }
        let truncated = |needed: u64| Loaded::Bad(Damage::Truncated { missing: needed - left });
        if left < ENTRY_HEAD_BYTES as u64 {
            return Ok(truncated(ENTRY_HEAD_BYTES as u64));
        }
        self.input.read_exact(&mut self.head)?;
        let head = match Head::decode(&self.head) {
            Ok(head) => head,
            Err(why) => return Ok(Loaded::Bad(why)),
        };
        let needed = ENTRY_HEAD_BYTES as u64 + u64::from(head.payload_bytes);
        if left < needed {
            return Ok(truncated(needed));
        }
        self.payload.resize(head.payload_bytes as usize, 0);
        self.input.read_exact(&mut self.payload)?;
        Ok(Loaded::Whole(head))
    }
}

enum Loaded {
    Whole(Head),
    FileEnd,
    Bad(Damage),
}
