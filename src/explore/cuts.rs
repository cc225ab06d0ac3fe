//! Which cuts of a recorded trace to try.
//!
//! What always holds: the same trace, acks, choice and seed give the same list, ascending in cut.
//! Every cut lies behind `load-begins` and at or before the recorded cut, or the end of the trace.
//! A planned cut stands for the time from `from` (inclusive) to `until` (exclusive): whenever the
//! power goes within it, this seed gives this state. The states of [`Which::Every`] stand for all
//! of the load, without gap and without overlap.

mod places;
mod timeline;

use crate::disk::{CrashModel, DiskLog};
use crate::trace::EntryNo;
use crate::units::LabNs;
use crate::workload::plan::splitmix64;
pub use places::{Place, PlaceError};
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use timeline::Timeline;

/// One state to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedCut {
    /// The power goes at this entry: arrivals and replies before it count, and it does not.
    pub cut: EntryNo,
    /// The crash model's seed.
    pub seed: u64,
    /// From this instant on a cut gives this state.
    pub from: LabNs,
    /// From this instant on it gives another.
    pub until: LabNs,
    /// Why it is looked at.
    pub why: Why,
}

/// Why a state is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It is what the load began with.
    LoadBegins,
    /// Its first instant is that of a reply that made something durable.
    Durable,
    /// Its first instant is that of an arrival.
    Arrived,
    /// The last cut before something became durable: the most that chance can decide on.
    EpochEnd,
    /// An instant that the seed drew between two such.
    Drawn,
    /// A chosen place.
    At(Place),
}

/// Which cuts to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All states that there are.
    Every,
    /// So many of them, evenly spread over their number; all if there are fewer.
    Sample {
        /// How many.
        states: NonZeroU32,
    },
    /// For models that a seed or a cache decides: some in every epoch, which is the time between
    /// two replies that made something durable on an honest disk. Half of them are cut at its last
    /// entry, the others where the run's seed says.
    Seeds {
        /// How many in each.
        per_epoch: NonZeroU32,
    },
    /// In places of one kind.
    At {
        /// Which kind.
        place: Place,
        /// How many, evenly spread over all that there are; all if there are fewer.
        states: NonZeroU32,
    },
}

/// Why there is no list of cuts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing says from where on the states belong to a claim.
    #[error(
        "the trace {} has no mark \"load-begins\": record a run whose set-up came to its end",
        path.display()
    )]
    NoLoadBegins {
        /// The trace.
        path: PathBuf,
    },
    /// The power went before the load.
    #[error(
        "the trace {} was cut at entry {}, and its load begins only at entry {}: record another \
         run",
        path.display(), cut.0, begins.0
    )]
    NoLoad {
        /// The trace.
        path: PathBuf,
        /// Where it was cut.
        cut: EntryNo,
        /// The mark.
        begins: EntryNo,
    },
    /// More states than can be listed.
    #[error("not every state of crash model {model} can be listed: give a number of seeds")]
    TooMany {
        /// The model.
        model: CrashModel,
    },
    /// One state an epoch.
    #[error("no seed decides what crash model {model} leaves: take every state, or a sample")]
    NoChance {
        /// The model.
        model: CrashModel,
    },
    /// There is no such place.
    #[error("the load of the trace {} has no instant that is {place}", path.display())]
    NoPlace {
        /// The trace.
        path: PathBuf,
        /// What was looked for.
        place: Place,
    },
}

/// Lists the cuts of a trace. `acks` are the entries of the messages that acknowledged something;
/// only [`Place::AfterAck`] looks at them.
pub fn plan_cuts(
    log: &DiskLog,
    acks: &[EntryNo],
    model: CrashModel,
    which: Which,
    run_seed: u64,
) -> Result<Vec<PlannedCut>, PlanError> {
    let timeline = Timeline::new(log, model)?;
    let draws = &mut Draws { seed: splitmix64(run_seed), drawn: 0 };
    let by_seed = matches!(model, CrashModel::Subset | CrashModel::Torn { .. });
    let mut planned = match which {
        Which::Every if by_seed => return Err(PlanError::TooMany { model }),
        Which::Every => tiles(&timeline, None, draws),
        Which::Sample { states } => tiles(&timeline, Some(states), draws),
        Which::Seeds { per_epoch } => match model {
            CrashModel::KeepAll | CrashModel::DropUnflushed => {
                return Err(PlanError::NoChance { model });
            }
            CrashModel::Subset | CrashModel::Torn { .. } => {
                let at_end = per_epoch.get().div_ceil(2);
                epochs(&timeline, at_end, per_epoch.get() - at_end, draws)
            }
            // No seed decides: a second cut at the same entry would be the same state.
            CrashModel::Unsafe { .. } => epochs(&timeline, 1, per_epoch.get() - 1, draws),
        },
        Which::At { place, states } => {
            let windows = places::windows(log, acks, place, &timeline);
            let count = windows.len();
            let drawn = evenly(count, Some(states), draws).into_iter();
            let drawn = drawn.map(|n| windows[n]).collect::<Vec<_>>().into_iter();
            drawn.map(|w| timeline.planned(draws.within(w), draws.next(), Why::At(place))).collect()
        }
    };
    if let (Which::At { place, .. }, true) = (which, planned.is_empty()) {
        return Err(PlanError::NoPlace { path: log.path.clone(), place });
    }
    planned.sort_by_key(|planned| planned.cut);
    if !by_seed {
        planned.dedup_by_key(|planned| planned.cut);
    }
    Ok(planned)
}

/// The states between two changes, each at the last entry that it stands for.
fn tiles(
    timeline: &Timeline<'_>,
    states: Option<NonZeroU32>,
    draws: &mut Draws,
) -> Vec<PlannedCut> {
    let chosen = evenly(timeline.tiles(), states, draws);
    chosen.into_iter().map(|tile| timeline.tile(tile, draws.next())).collect()
}

/// In each epoch some cuts at its end, and some drawn within.
fn epochs(timeline: &Timeline<'_>, at_end: u32, drawn: u32, draws: &mut Draws) -> Vec<PlannedCut> {
    let mut planned = Vec::new();
    for (lo, hi) in timeline.epochs() {
        for _ in 0..at_end {
            planned.push(timeline.planned(hi, draws.next(), Why::EpochEnd));
        }
        for _ in 0..drawn {
            let cut = draws.within((lo, hi));
            planned.push(timeline.planned(cut, draws.next(), Why::Drawn));
        }
    }
    planned
}

/// `wanted` of `count` things, evenly spread with a phase that the seed draws; or all of them.
fn evenly(count: usize, wanted: Option<NonZeroU32>, draws: &mut Draws) -> Vec<usize> {
    let wanted = wanted.map_or(count, |wanted| wanted.get() as usize);
    if wanted >= count {
        return (0..count).collect();
    }
    let phase = (draws.next() % count as u64) as usize;
    (0..wanted).map(|n| (n * count + phase) / wanted).collect()
}

/// Numbers from the run's seed.
struct Draws {
    seed: u64,
    drawn: u64,
}

impl Draws {
    fn next(&mut self) -> u64 {
        self.drawn += 1;
        splitmix64(self.seed.wrapping_add(self.drawn))
    }

    /// A cut behind `lo` and at `hi` or before.
    fn within(&mut self, (lo, hi): (EntryNo, EntryNo)) -> EntryNo {
        let cuts = u64::from(hi.0 - lo.0).max(1);
        EntryNo(lo.0 + 1 + (self.next() % cuts) as u32)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::LoadBegins => f.pad("load-begins"),
            Why::Durable => f.pad("durable"),
            Why::Arrived => f.pad("arrived"),
            Why::EpochEnd => f.pad("epoch-end"),
            Why::Drawn => f.pad("drawn"),
            Why::At(place) => place.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
