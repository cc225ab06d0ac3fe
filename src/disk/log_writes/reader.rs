//! Reads a log entry by entry.
//!
//! What always holds: reading ends, never panics, holds one sector at a time, and an error names the
//! byte of the file at which the bad entry starts.

use super::import::ImportError;
use super::layout::{Head, LayoutError, SUPER_BYTES, Super};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An entry and where it stands.
#[derive(Debug)]
pub(super) struct LogEntry<'a> {
    /// Byte of the file at which its head starts.
    pub at: u64,
    pub head: Head,
    /// A mark's text.
    pub mark: Option<&'a [u8]>,
    /// Byte of the file at which its data start.
    pub data_at: u64,
}

/// Streams the entries of a log.
#[derive(Debug)]
pub(super) struct LogReader {
    path: PathBuf,
    file: File,
    file_bytes: u64,
    left: u64,
    at: u64,
    sector: Vec<u8>,
}

impl LogReader {
    /// Opens a log, a file or a block device, and checks its super block.
    pub fn open(path: &Path) -> Result<LogReader, ImportError> {
        let io = |source| ImportError::Io { what: "open", path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        // A block device's metadata know no length.
        let file_bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
        let mut reader = LogReader {
            path: path.to_owned(),
            file,
            file_bytes,
            left: 0,
            at: 0,
            sector: vec![0; SUPER_BYTES],
        };
        reader.load("the super block")?;
        let mut bytes = [0; SUPER_BYTES];
        bytes.copy_from_slice(&reader.sector);
        let head = Super::decode(&bytes).map_err(|(at, what)| reader.bad(at, what))?;
        reader.left = head.entries;
        reader.at = u64::from(head.sector_bytes);
        reader.sector = vec![0; head.sector_bytes as usize];
        Ok(reader)
    }

    /// Bytes of the log's sectors.
    pub fn sector_bytes(&self) -> u64 {
        self.sector.len() as u64
    }

    /// Entries that are still to come.
    pub fn entries_left(&self) -> u64 {
        self.left
    }

    /// The next of the entries that the super block counts; its data are all there.
    pub fn next_entry(&mut self) -> Result<Option<LogEntry<'_>>, ImportError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.load("an entry's head")?;
        let (at, sector_bytes) = (self.at, self.sector_bytes());
        let (head, _) = Head::decode(&self.sector).map_err(|what| self.bad(at, what))?;
        let data_at = at + sector_bytes;
        let data = if head.has_data() { head.sectors.checked_mul(sector_bytes) } else { Some(0) };
        let end = data.and_then(|bytes| data_at.checked_add(bytes)).unwrap_or(u64::MAX);
        if end > self.file_bytes {
            let missing = end - self.file_bytes;
            return Err(self.bad(at, LayoutError::Truncated { missing, what: "an entry's data" }));
        }
        self.left -= 1;
        self.at = end;
        let mark = Head::decode(&self.sector).map_or(None, |(_, mark)| mark);
        Ok(Some(LogEntry { at, head, mark, data_at }))
    }

    /// Reads the data of an entry.
    pub fn data(&self, at: u64, out: &mut [u8]) -> Result<(), ImportError> {
        self.file.read_exact_at(out, at).map_err(|source| self.unread(source))
    }

    /// Reads what lies at `at` into `sector`, all of it.
    fn load(&mut self, what: &'static str) -> Result<(), ImportError> {
        let left = self.file_bytes.saturating_sub(self.at);
        let missing = (self.sector.len() as u64).saturating_sub(left);
        if missing > 0 {
            return Err(self.bad(self.at, LayoutError::Truncated { missing, what }));
        }
        let read = self.file.read_exact_at(&mut self.sector, self.at);
        read.map_err(|source| self.unread(source))
    }

    /// An error of the entry at `at`.
    pub fn bad(&self, at: u64, what: LayoutError) -> ImportError {
        ImportError::Layout { path: self.path.clone(), at, what }
    }

    fn unread(&self, source: io::Error) -> ImportError {
        ImportError::Io { what: "read", path: self.path.clone(), source }
    }
}
