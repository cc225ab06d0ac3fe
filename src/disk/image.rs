//! What a disk holds, as places in traces: nothing is copied to make a crash state.
//!
//! What always holds: the traces that an image refers to are closed and laid end to end, the first
//! at position 0; a trace that continues the image starts at [`Image::next_start`]. So one number
//! names a byte of any of them, and a crash during the recovery from a crash needs nothing more. A
//! planted fault flips a bit as it is read; the trace itself is never altered.

use super::extents::ExtentMap;
use crate::units::SECTOR_BYTES;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A larger disk needs sector numbers of more than 32 bits.
pub const DISK_BYTES_MAX: u64 = 2 << 40;

/// A trace starts no later: behind this there is room for one of the largest size, in positions of
/// 47 bits.
const START_MAX: u64 = 1 << 46;

/// Why a disk cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Not a size that a disk can have.
    #[error(
        "a disk of {bytes} bytes is not possible: give a multiple of {SECTOR_BYTES} up to 2 TiB"
    )]
    Size {
        /// The size asked for.
        bytes: u64,
    },
    /// A range outside the disk, or not of whole sectors.
    #[error(
        "bytes {offset} to {offset} + {length} are not whole sectors of a disk of {disk_bytes} bytes"
    )]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Size of the disk.
        disk_bytes: u64,
    },
    /// The traces below are too large for one more behind them.
    #[error("the traces below this state have {bytes} bytes, too many to continue it")]
    TooDeep {
        /// Bytes of all of them.
        bytes: u64,
    },
    /// A trace that holds the data cannot be read.
    #[error("cannot read byte {position} of the trace {}: {source}", path.display())]
    Source {
        /// The trace.
        path: PathBuf,
        /// Byte of it.
        position: u64,
        /// What the system said.
        source: io::Error,
    },
}

/// A closed trace whose payloads an image shows.
#[derive(Debug, Clone)]
struct Source {
    path: PathBuf,
    file: Arc<File>,
    start: u64,
}

/// A bit that reads as its opposite, wherever the disk shows its byte.
#[derive(Debug, Clone, Copy)]
struct Flip {
    position: u64,
    mask: u8,
}

/// What a disk holds.
#[derive(Debug, Clone)]
pub struct Image {
    disk_bytes: u64,
    sources: Arc<[Source]>,
    next_start: u64,
    flips: Arc<[Flip]>,
    extents: ExtentMap,
}

impl Image {
    /// A disk that reads as zeros.
    pub fn blank(disk_bytes: u64) -> Result<Image, ImageError> {
        if disk_bytes == 0
            || !disk_bytes.is_multiple_of(SECTOR_BYTES as u64)
            || disk_bytes > DISK_BYTES_MAX
        {
            return Err(ImageError::Size { bytes: disk_bytes });
        }
        Ok(Image {
            disk_bytes,
            sources: Arc::default(),
            next_start: 0,
            flips: Arc::default(),
            extents: ExtentMap::new(),
        })
    }

    /// What this image shows, with the closed trace at `path` behind its own: the trace is opened
    /// once for all states that [`Image::showing`] then makes.
    pub(super) fn continued(&self, path: &Path) -> Result<Image, ImageError> {
        let source = |source| ImageError::Source { path: path.to_owned(), position: 0, source };
        let file = File::open(path).map_err(source)?;
        let bytes = file.metadata().map_err(source)?.len();
        let next_start = self.next_start.saturating_add(bytes);
        if next_start > START_MAX {
            return Err(ImageError::TooDeep { bytes: next_start });
        }
        let last = Source { path: path.to_owned(), file: Arc::new(file), start: self.next_start };
        let sources = self.sources.iter().cloned().chain([last]).collect();
        Ok(Image { sources, next_start, ..self.clone() })
    }

    /// The same traces, of which other sectors show.
    pub(super) fn showing(&self, extents: ExtentMap) -> Image {
        Image {
            disk_bytes: self.disk_bytes,
            sources: self.sources.clone(),
            next_start: self.next_start,
            flips: self.flips.clone(),
            extents,
        }
    }

    /// The same, in which the bits of `mask` in the byte at a position of the traces are flipped.
    pub(super) fn flipped(&self, position: u64, mask: u8) -> Image {
        let flips = self.flips.iter().copied().chain([Flip { position, mask }]).collect();
        Image { flips, ..self.clone() }
    }

    /// The position of the first byte of the trace at `path`, if this image refers to it.
    pub(super) fn start_of(&self, path: &Path) -> Option<u64> {
        self.sources.iter().find(|source| source.path == path).map(|source| source.start)
    }

    /// Size of the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Which bytes each sector shows.
    pub fn extents(&self) -> &ExtentMap {
        &self.extents
    }

    /// The position at which a trace starts that continues this image.
    pub fn next_start(&self) -> u64 {
        self.next_start
    }

    /// Reads whole sectors.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ImageError> {
        let sector_bytes = SECTOR_BYTES as u64;
        let length = out.len() as u64;
        let end = offset.checked_add(length).filter(|end| *end <= self.disk_bytes);
        if end.is_none()
            || !offset.is_multiple_of(sector_bytes)
            || !length.is_multiple_of(sector_bytes)
        {
            return Err(ImageError::Range { offset, length, disk_bytes: self.disk_bytes });
        }
        let mut rest = out;
        for piece in self.extents.pieces(offset / sector_bytes, length / sector_bytes) {
            let (now, later) = rest.split_at_mut(piece.sectors as usize * SECTOR_BYTES);
            match piece.position {
                Some(position) => self.read_position(position, now)?,
                None => now.fill(0),
            }
            rest = later;
        }
        Ok(())
    }

    /// Reads the bytes at a position of the closed traces.
    pub(super) fn read_position(&self, position: u64, out: &mut [u8]) -> Result<(), ImageError> {
        let after = self.sources.partition_point(|source| source.start <= position);
        let Some(source) = after.checked_sub(1).and_then(|at| self.sources.get(at)) else {
            return Err(ImageError::Range {
                offset: position,
                length: out.len() as u64,
                disk_bytes: self.disk_bytes,
            });
        };
        let in_trace = position - source.start;
        source.file.read_exact_at(out, in_trace).map_err(|error| ImageError::Source {
            path: source.path.clone(),
            position: in_trace,
            source: error,
        })?;
        for flip in self.flips.iter() {
            let at = flip.position.checked_sub(position).and_then(|at| usize::try_from(at).ok());
            if let Some(byte) = at.and_then(|at| out.get_mut(at)) {
                *byte ^= flip.mask;
            }
        }
        Ok(())
    }

    /// Its extents, for a disk that continues it; the image itself keeps none.
    pub(super) fn take_extents(&mut self) -> ExtentMap {
        std::mem::take(&mut self.extents)
    }
}
