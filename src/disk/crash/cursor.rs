//! Builds crash states one after another: each costs what became different since the last.
//!
//! What is there for good at a cut is there at every later one too. So a cursor keeps a medium on
//! which it lays down what the time between two cuts adds, and a state is a copy of that medium,
//! which shares all that did not change. What chance keeps of the rest is laid over the copy.

use super::chance::Chance;
use super::fault::DiskFault;
use super::medium::{Cleared, Medium};
use super::model::CrashModel;
use super::planted::{FaultError, Planted};
use super::state_id::StateId;
use crate::disk::image::{Image, ImageError};
use crate::disk::log::{DiskLog, LOAD_BEGINS};
use crate::trace::{Command, EntryNo};
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
    /// The fault does not fit the trace.
    #[error(transparent)]
    Fault(#[from] FaultError),
}

/// What the disk holds when the power went at the entry `cut` of a trace that ran on `base`.
pub fn crash_state(
    log: &DiskLog,
    base: &Image,
    cut: EntryNo,
    model: CrashModel,
    seed: u64,
) -> Result<Image, CrashError> {
    crash_state_with(log, base, cut, model, seed, None)
}

/// The same of a disk with a fault.
pub fn crash_state_with(
    log: &DiskLog,
    base: &Image,
    cut: EntryNo,
    model: CrashModel,
    seed: u64,
    fault: Option<DiskFault>,
) -> Result<Image, CrashError> {
    Ok(StateCursor::with_fault(log, base, model, fault)?.at(cut, seed)?.image)
}

/// What the disk holds after a cut, and its name.
#[derive(Debug, Clone)]
pub struct CrashState {
    /// What it holds.
    pub image: Image,
    /// States of one trace and base with the same id show the same.
    pub id: StateId,
}

/// Makes the crash states of one trace under one model, one cut after another.
#[derive(Debug)]
pub struct StateCursor<'a> {
    planted: Planted<'a>,
    model: CrashModel,
    /// What lay below the trace, with the trace opened behind it.
    base: Image,
    /// Requests by the entry that made them durable; only what changes data and became so.
    by_durable: Vec<u32>,
    laid_before: u64,
    at: Progress,
}

/// How far a cursor has come.
#[derive(Debug)]
struct Progress {
    cut: EntryNo,
    /// What is there for good.
    medium: Medium,
    cleared: Cleared,
    /// Requests of the log that arrived before the cut.
    arrived: usize,
    /// How many of `by_durable` are on the medium.
    durable: usize,
    /// Where chance has a say: what arrived and is not on the medium, in the order of arrival.
    pending: Vec<u32>,
    /// An `unsafe` disk's cache holds all from this request on that is not safe.
    cache_from: usize,
    /// Bytes of the writes in that cache.
    cache_bytes: u64,
}

impl<'a> StateCursor<'a> {
    /// States of an honest disk that held `base` when the trace began.
    pub fn new(log: &'a DiskLog, base: &Image, model: CrashModel) -> Result<Self, CrashError> {
        StateCursor::with_fault(log, base, model, None)
    }

    /// States of a disk with a fault, or with none.
    pub fn with_fault(
        log: &'a DiskLog,
        base: &Image,
        model: CrashModel,
        fault: Option<DiskFault>,
    ) -> Result<Self, CrashError> {
        let (trace, below) = (log.header.disk_bytes, base.disk_bytes());
        if trace != below {
            return Err(CrashError::Size { path: log.path.clone(), trace, base: below });
        }
        let planted = Planted::new(log, fault, base.next_start())?;
        let mut base = base.continued(&log.path)?;
        if let Some((position, mask)) = planted.flip() {
            base = base.flipped(position, mask);
        }
        let by_durable = match model {
            CrashModel::KeepAll => Vec::new(),
            _ => by_durable(&planted),
        };
        let at = Progress::start(&base, &planted);
        Ok(StateCursor { planted, model, base, by_durable, laid_before: 0, at })
    }

    /// The state when the power goes at the entry `cut`: arrivals and replies before it count.
    ///
    /// Costs what was added since the last cut, and what chance decides on. An earlier cut than the
    /// last one costs all from the start again.
    pub fn at(&mut self, cut: EntryNo, seed: u64) -> Result<CrashState, CrashError> {
        if cut < self.at.cut {
            self.laid_before += self.at.medium.laid();
            self.at = Progress::start(&self.base, &self.planted);
        }
        self.advance(cut)?;
        let at = &self.at;
        match self.model {
            CrashModel::KeepAll | CrashModel::DropUnflushed | CrashModel::Unsafe { .. } => {
                let image = self.base.showing(at.medium.extents().clone());
                Ok(CrashState { image, id: at.medium.id() })
            }
            CrashModel::Subset => Ok(self.with_chance(seed, None)),
            CrashModel::Torn { unit_sectors } => Ok(self.with_chance(seed, Some(unit_sectors))),
        }
    }

    /// Sectors that were laid down for all states so far, written over or not.
    pub fn laid_sectors(&self) -> u64 {
        self.laid_before + self.at.medium.laid()
    }

    /// Bytes of memory that it holds beside the log.
    pub fn heap_bytes(&self) -> usize {
        self.at.medium.extents().heap_bytes()
            + self.at.cleared.heap_bytes()
            + (self.by_durable.capacity() + self.at.pending.capacity()) * size_of::<u32>()
    }

    /// Lays down for good what the entries up to `cut` add.
    fn advance(&mut self, cut: EntryNo) -> Result<(), CrashError> {
        match self.model {
            CrashModel::KeepAll => {
                for index in self.at.arrivals(self.planted.log(), cut) {
                    self.at.settle(&self.planted, index);
                }
            }
            CrashModel::DropUnflushed => self.settle_durable(cut),
            CrashModel::Subset | CrashModel::Torn { .. } => {
                self.settle_durable(cut);
                let arrivals = self.at.arrivals(self.planted.log(), cut);
                self.at.pending.extend(arrivals);
                let planted = &self.planted;
                let open = |index: u32| planted.durable(index).is_none_or(|d| d.by >= cut);
                self.at.pending.retain(|index| open(*index));
            }
            CrashModel::Unsafe { mib } => {
                let begins = self.planted.log().mark(LOAD_BEGINS).map(|mark| mark.entry);
                let Some(begins) = begins.filter(|begins| *begins < cut) else {
                    return Err(CrashError::NoLoadBegins { path: self.planted.log().path.clone() });
                };
                self.settle_durable(begins);
                self.push_out(begins, cut, u64::from(mib) << 20);
            }
        }
        self.at.cut = cut;
        Ok(())
    }

    /// Lays down what became durable before an entry.
    fn settle_durable(&mut self, before: EntryNo) {
        while let Some(index) = self.by_durable.get(self.at.durable).copied() {
            if self.planted.durable(index).is_none_or(|durable| durable.by >= before) {
                break;
            }
            self.at.settle(&self.planted, index);
            self.at.durable += 1;
        }
    }

    /// Lays down what an `unsafe` disk's cache cannot hold any more: it holds the longest run of
    /// youngest requests that fits. A trim takes no room, and a write that does not fit as a whole
    /// is pushed out. What was durable before the disk began to lie is not in the cache.
    fn push_out(&mut self, begins: EntryNo, cut: EntryNo, cache_bytes: u64) {
        let log = self.planted.log();
        let in_cache = |planted: &Planted<'_>, index: u32| {
            log.requests[index as usize].command().changes_data()
                && planted.durable(index).is_none_or(|durable| durable.by >= begins)
        };
        let room = |index: u32| match log.requests[index as usize].command() {
            Command::Write => log.requests[index as usize].bytes(),
            _ => 0,
        };
        for index in self.at.arrivals(log, cut) {
            if in_cache(&self.planted, index) {
                self.at.cache_bytes += room(index);
            }
        }
        while self.at.cache_bytes > cache_bytes {
            let oldest = self.at.cache_from as u32;
            if in_cache(&self.planted, oldest) {
                self.at.cache_bytes -= room(oldest);
                self.at.settle(&self.planted, oldest);
            }
            self.at.cache_from += 1;
        }
    }

    /// The medium, and over it what the seed keeps of the rest: whole requests, or units of them.
    fn with_chance(&mut self, seed: u64, unit_sectors: Option<u32>) -> CrashState {
        let mut chance = Chance::new(seed);
        let mut medium = self.at.medium.clone();
        for index in self.at.pending.iter().copied() {
            let request = &self.planted.log().requests[index as usize];
            let (first, sectors) = (u64::from(request.sector), u64::from(request.sectors()));
            let runs = match unit_sectors {
                None if chance.keeps() => vec![(0, sectors)],
                None => Vec::new(),
                Some(unit) => chance.kept_runs(first, sectors, unit),
            };
            for (from, to) in runs {
                for part in self.planted.parts(index, from, to) {
                    medium.lay(&part, &self.at.cleared);
                }
            }
        }
        self.laid_before += medium.laid() - self.at.medium.laid();
        let id = medium.id();
        CrashState { image: self.base.showing(medium.into_extents()), id }
    }
}

/// The requests that change data and became durable, by when.
fn by_durable(planted: &Planted<'_>) -> Vec<u32> {
    let requests = planted.log().requests.iter().enumerate();
    let changing = requests.filter(|(_, request)| request.command().changes_data());
    let mut order: Vec<(EntryNo, u32)> = changing
        .filter_map(|(index, _)| Some((planted.durable(index as u32)?.by, index as u32)))
        .collect();
    order.sort_unstable();
    // Not collected in place: that would keep the room of the entries for ever.
    let mut indices = Vec::with_capacity(order.len());
    indices.extend(order.iter().map(|(_, index)| *index));
    indices
}

impl Progress {
    fn start(base: &Image, planted: &Planted<'_>) -> Progress {
        Progress {
            cut: EntryNo(0),
            medium: Medium::new(base.extents().clone(), planted.altered_sector()),
            cleared: Cleared::default(),
            arrived: 0,
            durable: 0,
            pending: Vec::new(),
            cache_from: 0,
            cache_bytes: 0,
        }
    }

    /// The requests that change data and arrived since the last call, before the entry `cut`.
    fn arrivals(&mut self, log: &DiskLog, cut: EntryNo) -> impl Iterator<Item = u32> + use<> {
        let from = self.arrived;
        let added = log.requests[from..].partition_point(|request| request.arrival < cut);
        self.arrived += added;
        let changes: Vec<u32> = (from..self.arrived)
            .filter(|index| log.requests[*index].command().changes_data())
            .map(|index| index as u32)
            .collect();
        changes.into_iter()
    }

    fn settle(&mut self, planted: &Planted<'_>, index: u32) {
        for part in planted.whole(index) {
            self.medium.settle(&part, &mut self.cleared);
        }
    }
}

#[cfg(test)]
mod tests;
