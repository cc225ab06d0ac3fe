//! What is done with one state: a kernel looks at it, the oracles judge it, and where that is asked
//! for the power is cut again while it is being recovered.

use super::cuts::PlannedCut;
use super::site::Site;
use super::state::{Place, StateOutcome};
use crate::disk::{CrashState, DiskLog, StateCursor};
use crate::guest::progress::Watch;
use crate::record::found::Found;
use crate::trace::{Command, EntryNo};
use crate::trial::evidence::Recording;
use crate::trial::facts::RunFacts;
use crate::trial::inspect::Observation;
use crate::units::LabNs;
use crate::verify::consistent::Recovery;
use crate::workload::plan::splitmix64;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// So many states in a row that cannot be looked at end the exploration.
const FAILED_MAX: u32 = 3;

/// Looks at states, one after the other.
pub struct Worker<'a, S> {
    /// The recorded run, with the crash model that is explored.
    pub facts: &'a RunFacts,
    /// Its trace.
    pub recording: &'a Recording,
    /// Where states are looked at.
    pub site: S,
    /// Where a recovery's trace lies for a while.
    pub scratch: PathBuf,
    /// Second cuts for each state.
    pub recovery_cuts: u32,
    /// Asked whether to stop.
    pub watch: &'a Watch,
    /// States in a row that could not be looked at.
    pub failed: u32,
}

/// A state that is to be looked at.
pub struct Task {
    /// Its place in the list.
    pub index: u32,
    /// What it stands for.
    pub planned: PlannedCut,
    /// What the disk holds.
    pub state: CrashState,
}

/// What was found in a state.
pub struct Looked {
    /// The judged outcome.
    pub outcome: StateOutcome,
    /// What it rests on.
    pub observed: Observation,
    /// The same after each cut during its recovery.
    pub recoveries: Vec<(StateOutcome, Observation)>,
}

impl<S: Site> Worker<'_, S> {
    /// Looks at one state.
    pub fn look(&mut self, task: &Task) -> Result<Looked> {
        let Task { index, planned, state } = task;
        let overlay = self.scratch.join("overlay");
        let looked = Instant::now();
        let observed = match self.site.look(state.image.clone(), &overlay) {
            Ok(observed) => observed,
            Err(error) => return self.not_looked_at(task, error),
        };
        self.failed = 0;
        let took_ms = looked.elapsed().as_millis() as u64;
        let evidence = self.recording.at(planned.cut, planned.until)?;
        let this = (*index, planned, state.id);
        let outcome = StateOutcome::judge(this, self.facts, &evidence, &observed);
        let recoveries = match self.recovery_cuts {
            0 => Ok(Vec::new()),
            _ => self.cut_recovery(task, &overlay),
        };
        remove(&overlay)?;
        let outcome = StateOutcome { took_ms, ..outcome };
        Ok(Looked { outcome, observed, recoveries: recoveries? })
    }

    /// One odd state must not cost the others; where several in a row cannot be looked at it is the
    /// lab that has to be looked at.
    fn not_looked_at(&mut self, task: &Task, error: anyhow::Error) -> Result<Looked> {
        self.failed += 1;
        if self.failed >= FAILED_MAX || self.watch.is_cancelled() {
            return Err(error);
        }
        let _ = std::fs::remove_file(self.scratch.join("overlay"));
        let this = (task.index, &task.planned, task.state.id);
        let outcome = StateOutcome::not_looked_at(this, self.facts, &format!("{error:#}"));
        let recovery = Recovery::of_dead_guest(&self.facts.scenario.stack, None);
        let observed = Observation { recovery, found: Found::default() };
        Ok(Looked { outcome, observed, recoveries: Vec::new() })
    }

    /// Cuts the power again while the state was being recovered, at some of the flushes of that.
    fn cut_recovery(
        &mut self,
        task: &Task,
        overlay: &Path,
    ) -> Result<Vec<(StateOutcome, Observation)>> {
        let Task { index, planned, state } = task;
        let log = DiskLog::read(overlay, |_, _| {})?;
        let model = self.facts.scenario.cut.crash_model;
        let again = self.scratch.join("overlay-again");
        let mut cursor = StateCursor::new(&log, &state.image, model)?;
        let mut found = Vec::new();
        let seed = planned.seed ^ u64::from(planned.cut.0);
        for (cut, at) in recovery_cuts(&log, self.recovery_cuts, seed) {
            self.watch.check()?;
            let left = cursor.at(cut, planned.seed)?;
            let looked = Instant::now();
            let observed = self.site.look(left.image, &again)?;
            let took_ms = looked.elapsed().as_millis() as u64;
            remove(&again)?;
            let evidence = self.recording.at(planned.cut, planned.until)?;
            let evidence = evidence.recovered(&log, cut, at, model);
            let this = (*index, planned, left.id);
            let outcome = StateOutcome::judge(this, self.facts, &evidence, &observed);
            let why = "in-recovery".to_owned();
            let place = Place { cut: cut.0, seed: planned.seed, from: at, until: at, why };
            let outcome = StateOutcome { took_ms, recovery_cut: Some(place), ..outcome };
            found.push((outcome, observed));
        }
        Ok(found)
    }
}

fn remove(overlay: &Path) -> Result<()> {
    std::fs::remove_file(overlay).context("cannot remove the trace of a recovery")
}

/// Some of the flushes that the recovery waited for, by the seed: the power goes before their answer.
fn recovery_cuts(log: &DiskLog, count: u32, seed: u64) -> Vec<(EntryNo, LabNs)> {
    let flushes = log.requests.iter().filter(|request| request.command() == Command::Flush);
    let answers: Vec<(EntryNo, LabNs)> = flushes
        .filter_map(|request| request.reply().map(|reply| (reply.entry, reply.at)))
        .collect();
    let draw = |nth| splitmix64(splitmix64(seed) ^ nth) % (answers.len() as u64).max(1);
    let picked: BTreeSet<u64> = (0..u64::from(count)).map(draw).collect();
    picked.into_iter().filter_map(|at| answers.get(at as usize).copied()).collect()
}
