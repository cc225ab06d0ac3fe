//! The instants of a load at which the state that a cut leaves can change.

use super::{PlanError, PlannedCut, Why};
use crate::disk::{CrashModel, DiskLog, DurableAt, LOAD_BEGINS};
use crate::trace::EntryNo;
use crate::units::LabNs;

/// An entry that can change the state: from it on, a cut leaves another.
#[derive(Debug, Clone, Copy)]
struct Change {
    entry: EntryNo,
    at: LabNs,
    why: Why,
}

/// The load of a trace under a model.
#[derive(Debug)]
pub(super) struct Timeline<'a> {
    log: &'a DiskLog,
    pub durable_at: DurableAt,
    /// `load-begins`, and then all changes between it and the end, ascending.
    changes: Vec<Change>,
    end: EntryNo,
    end_at: LabNs,
}

impl<'a> Timeline<'a> {
    pub fn new(log: &'a DiskLog, model: CrashModel) -> Result<Timeline<'a>, PlanError> {
        let path = || log.path.clone();
        let begins =
            log.mark(LOAD_BEGINS).ok_or_else(|| PlanError::NoLoadBegins { path: path() })?;
        let end = log.cut_entry();
        if end <= begins.entry {
            return Err(PlanError::NoLoad { path: path(), cut: end, begins: begins.entry });
        }
        let end_at = log.cut.as_ref().map_or(log.last, |cut| cut.at);
        let first = Change { entry: begins.entry, at: begins.at, why: Why::LoadBegins };
        let mut timeline =
            Timeline { log, durable_at: DurableAt::new(log), changes: vec![first], end, end_at };
        let mut changes = match model {
            CrashModel::DropUnflushed => timeline.durable(),
            CrashModel::KeepAll | CrashModel::Unsafe { .. } => timeline.arrivals(),
            CrashModel::Subset | CrashModel::Torn { .. } => {
                let mut both = timeline.arrivals();
                both.append(&mut timeline.durable());
                both.sort_by_key(|change| change.entry);
                both
            }
        };
        timeline.changes.append(&mut changes);
        Ok(timeline)
    }

    /// Where the load begins: every cut lies behind it.
    pub fn begins(&self) -> EntryNo {
        self.changes[0].entry
    }

    /// The last cut.
    pub fn end(&self) -> EntryNo {
        self.end
    }

    fn arrivals(&self) -> Vec<Change> {
        let changing = self.log.requests.iter().filter(|request| request.command().changes_data());
        changing
            .map(|r| Change { entry: r.arrival, at: r.arrived, why: Why::Arrived })
            .filter(|change| self.begins() < change.entry && change.entry < self.end)
            .collect()
    }

    /// The replies that made something durable.
    fn durable(&self) -> Vec<Change> {
        let changing = self.log.requests.iter().filter(|request| request.command().changes_data());
        let mut changes: Vec<Change> = changing
            .filter_map(|request| self.durable_at.of(request))
            .map(|d| Change { entry: d.by, at: d.at, why: Why::Durable })
            .filter(|change| self.begins() < change.entry && change.entry < self.end)
            .collect();
        changes.sort_by_key(|change| change.entry);
        changes.dedup_by_key(|change| change.entry);
        changes
    }

    /// How many states there are between changes.
    pub fn tiles(&self) -> usize {
        self.changes.len()
    }

    /// One of them, at the last entry that it stands for.
    pub fn tile(&self, n: usize, seed: u64) -> PlannedCut {
        let cut = self.changes.get(n + 1).map_or(self.end, |next| next.entry);
        self.planned(cut, seed, self.changes[n].why)
    }

    /// A cut anywhere behind the load's begin, with the time that its state stands for.
    pub fn planned(&self, cut: EntryNo, seed: u64, why: Why) -> PlannedCut {
        let next = self.changes.partition_point(|change| change.entry < cut);
        let from = self.changes[next.saturating_sub(1)].at;
        let until = self.changes.get(next).map_or(self.end_at, |change| change.at);
        PlannedCut { cut, seed, from, until, why }
    }

    /// The stretches between two replies that made something durable: cuts behind the first entry,
    /// at the second or before.
    pub fn epochs(&self) -> Vec<(EntryNo, EntryNo)> {
        let durable = self.durable();
        let inner = || durable.iter().map(|change| change.entry);
        let starts = [self.begins()].into_iter().chain(inner());
        starts.zip(inner().chain([self.end])).collect()
    }
}
