//! Builds a crash state: chooses what reached the medium, and lays it down in the order of arrival.
//!
//! The order of arrival is right also for writes whose order no flush fixed. Two versions of one
//! sector in a cache are one place: the later replaces the earlier, so a medium never shows an
//! earlier one over a later one that reached it. What `subset` may show is therefore: some of the
//! un-flushed writes, each whole, in order, over and under what is durable; a sector then shows its
//! last flushed version or any later un-flushed one, and where two chosen writes overlap, the later.

use super::durable::{Durable, durable_requests};
use super::model::CrashModel;
use crate::disk::extents::ExtentMap;
use crate::disk::image::{Image, ImageError};
use crate::disk::log::{DiskLog, DiskRequest, LOAD_BEGINS};
use crate::trace::{Command, EntryNo};
use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;

/// Why there is no crash state.
#[derive(Debug, thiserror::Error)]
pub enum CrashError {
    /// The `unsafe` model without the instant from which it lies.
    #[error(
        "the trace {} has no mark \"load-begins\" before the cut: the unsafe model does not know \
         from where on flushes were ignored",
        path.display()
    )]
    NoLoadBegins {
        /// The trace.
        path: PathBuf,
    },
    /// The trace ran on a disk of another size than the image below it.
    #[error(
        "the trace {} is of a disk of {trace} bytes, the state below it of {base}",
        path.display()
    )]
    Size {
        /// The trace.
        path: PathBuf,
        /// Bytes of its disk.
        trace: u64,
        /// Bytes of the image below it.
        base: u64,
    },
    /// The trace cannot be opened again for its payloads.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// What the disk holds when the power went at the entry `cut` of a trace that ran on `base`.
pub fn crash_state(
    log: &DiskLog,
    base: &Image,
    cut: EntryNo,
    model: CrashModel,
    seed: u64,
) -> Result<Image, CrashError> {
    let (trace, below) = (log.header.disk_bytes, base.disk_bytes());
    if trace != below {
        return Err(CrashError::Size { path: log.path.clone(), trace, base: below });
    }
    let mut medium = Medium { extents: base.extents().clone(), start: base.next_start() };
    let arrived = || {
        let before = move |request: &&DiskRequest| request.arrival < cut;
        log.requests.iter().filter(before).filter(|request| request.command().changes_data())
    };
    match model {
        CrashModel::KeepAll => arrived().for_each(|request| medium.show(request)),
        CrashModel::DropUnflushed => {
            let durable = durable_requests(log, cut);
            arrived().filter(|r| durable.holds(r)).for_each(|request| medium.show(request));
        }
        CrashModel::Subset => {
            let (durable, mut chance) = (durable_requests(log, cut), Chance::new(seed));
            arrived()
                .filter(|request| durable.holds(request) || chance.next())
                .for_each(|request| medium.show(request));
        }
        CrashModel::Torn { unit_sectors } => {
            let (durable, mut chance) = (durable_requests(log, cut), Chance::new(seed));
            for request in arrived() {
                if durable.holds(request) {
                    medium.show(request);
                } else {
                    medium.show_units(request, unit_sectors, &mut chance);
                }
            }
        }
        CrashModel::Unsafe { mib } => {
            let lost = Lost::find(log, cut, u64::from(mib) << 20)?;
            arrived().filter(|r| lost.keeps(r)).for_each(|request| medium.show(request));
        }
    }
    Ok(base.continued(&log.path, medium.extents)?)
}

/// The extents of a disk while requests are laid down on it.
struct Medium {
    extents: ExtentMap,
    /// Position of the trace's first byte.
    start: u64,
}

impl Medium {
    fn show(&mut self, request: &DiskRequest) {
        self.show_part(request, 0, u64::from(request.sectors()));
    }

    /// Lays down the sectors `from..to` of a request.
    fn show_part(&mut self, request: &DiskRequest, from: u64, to: u64) {
        let sector = u64::from(request.sector) + from;
        if request.command() == Command::Write {
            let skipped = from * crate::units::SECTOR_BYTES as u64;
            let position = self.start + request.payload_at() + skipped;
            self.extents.set(sector, to - from, position);
        } else {
            self.extents.clear(sector, to - from);
        }
    }

    /// Lays down each unit of a request or not. Units lie on multiples of their size of the disk.
    fn show_units(&mut self, request: &DiskRequest, unit_sectors: u32, chance: &mut Chance) {
        let unit = u64::from(unit_sectors.max(1));
        let (first, sectors) = (u64::from(request.sector), u64::from(request.sectors()));
        let (mut from, mut run_start) = (0, None);
        while from < sectors {
            if chance.next() {
                run_start.get_or_insert(from);
            } else if let Some(start) = run_start.take() {
                self.show_part(request, start, from);
            }
            from += unit - (first + from) % unit;
        }
        if let Some(start) = run_start {
            self.show_part(request, start, sectors);
        }
    }
}

/// Draws from the seed which un-flushed writes are there: ChaCha8, four bits a draw.
///
/// The seed first draws how likely one is kept, from 1/16 to 15/16: with a fixed half, a cache of a
/// hundred writes would never be seen nearly empty or nearly full.
struct Chance {
    generator: ChaCha8Rng,
    kept_of_16: u64,
    bits: u64,
    bits_left: u32,
}

impl Chance {
    fn new(seed: u64) -> Chance {
        // Not seed_from_u64: how that spreads a number is the crate's choice, and may change.
        let mut key = *b"plugpull crash model\0\0\0\0\0\0\0\0\0\0\0\0";
        key[24..].copy_from_slice(&seed.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        let kept_of_16 = 1 + generator.next_u64() % 15;
        Chance { generator, kept_of_16, bits: 0, bits_left: 0 }
    }

    fn next(&mut self) -> bool {
        if self.bits_left == 0 {
            (self.bits, self.bits_left) = (self.generator.next_u64(), 64);
        }
        let draw = self.bits & 15;
        self.bits >>= 4;
        self.bits_left -= 4;
        draw < self.kept_of_16
    }
}

/// What an `unsafe` disk's cache still held: the longest run of youngest requests that fits in it.
/// A trim takes no room, and a write that does not fit as a whole had been pushed out.
struct Lost {
    /// What was durable before the disk began to lie.
    safe: Durable,
    /// Requests that arrived at or behind this entry were still in the cache.
    from: EntryNo,
}

impl Lost {
    fn find(log: &DiskLog, cut: EntryNo, cache_bytes: u64) -> Result<Lost, CrashError> {
        let begins = log.mark(LOAD_BEGINS).filter(|mark| mark.entry < cut);
        let Some(begins) = begins else {
            return Err(CrashError::NoLoadBegins { path: log.path.clone() });
        };
        let safe = durable_requests(log, begins.entry);
        let (mut held, mut from) = (0, cut);
        for request in log.requests.iter().rev() {
            if request.arrival >= cut || safe.holds(request) {
                continue;
            }
            if request.command() == Command::Write {
                held += request.bytes();
            }
            if held > cache_bytes {
                break;
            }
            from = request.arrival;
        }
        Ok(Lost { safe, from })
    }

    fn keeps(&self, request: &DiskRequest) -> bool {
        self.safe.holds(request) || request.arrival < self.from
    }
}
