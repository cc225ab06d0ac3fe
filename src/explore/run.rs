//! An exploration from its options to its report, in the order in which things happen.

use super::cuts::{PlannedCut, Which, plan_cuts};
use super::guest_site::GuestSite;
use super::options::{ExploreOptions, Source};
use super::order::{Losses, Order, losses};
use super::render;
use super::report::{Cost, ExploreReport};
use super::site::Site;
use super::state::{Place, StateOutcome};
use super::store::{PlanFile, Store};
use super::sum::{Known, has_curve, sum};
use crate::disk::{CrashModel, CrashState, DiskLog, Image, StateCursor, StateId};
use crate::guest::Lab;
use crate::guest::cache::digest_of_file;
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use crate::trace::{Command, EntryNo};
use crate::trial::evidence::{self, Recording};
use crate::trial::facts::RunFacts;
use crate::trial::folder::RunDir;
use crate::trial::inspect::Observation;
use crate::trial::run::{guest_config_of, record};
use crate::units::LabNs;
use crate::verify::verdict::Verdict;
use crate::workload::plan::splitmix64;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// States of which the same bytes are not given to a kernel again: the latest so many.
const REMEMBERED: usize = 8;

/// A finished or interrupted exploration.
#[derive(Debug)]
pub struct Explored {
    /// What it found.
    pub report: ExploreReport,
    /// Its folder.
    pub folder: PathBuf,
}

/// Explores: record or open, list the states, look at each, sum up.
pub fn run(options: &ExploreOptions, watch: &Watch) -> Result<Explored> {
    let started = Instant::now();
    let (folder, mut facts, lab) = source(&options.source, watch)?;
    let model = options.model.unwrap_or(facts.scenario.cut.crash_model);
    facts.scenario.cut.crash_model = model;
    let recording = evidence::of_run(&folder, &facts, model).with_context(|| {
        format!("the recording in {} cannot be explored", folder.path().display())
    })?;
    let which = options.which.unwrap_or_else(|| suiting(model));
    let planned = plan_cuts(&recording.log, &recording.acks(), model, which, facts.seed)?;
    let name = format!("explore-{model}-{}", which.to_string().replace(':', "-"));
    let plan = PlanFile {
        format: super::store::FORMAT,
        model: model.to_string(),
        which: which.to_string(),
        states: planned.len() as u32,
        recovery_cuts: options.recovery_cuts,
        trace_sha256: digest_of_file(&folder.trace())?,
    };
    let (store, before) = Store::open(&folder.path().join(name), &plan)?;
    let console = store.path().join("console.log");
    let scratch = RunFolder::new()?;
    let site = GuestSite::new(&lab, &facts.scenario, &facts.plan, console, watch);
    let mut work = Work {
        facts: &facts,
        recording: &recording,
        which,
        planned: &planned,
        base: Image::blank(recording.log.header.disk_bytes)?,
        site,
        store,
        scratch: &scratch,
        outcomes: BTreeMap::new(),
        recoveries: Vec::new(),
        seen: VecDeque::new(),
        watch,
    };
    work.take_up(before);
    let ended = work.look_at_all(options);
    let (report, folder) = work.finish(started)?;
    ended?;
    Ok(Explored { report, folder })
}

/// What a model is explored by unless something else is asked for: every state where there is a
/// countable list of them, some chances in each epoch elsewhere.
fn suiting(model: CrashModel) -> Which {
    match model {
        CrashModel::DropUnflushed | CrashModel::KeepAll => Which::Every,
        CrashModel::Subset | CrashModel::Torn { .. } | CrashModel::Unsafe { .. } => {
            Which::Seeds { per_epoch: NonZeroU32::MIN }
        }
    }
}

fn source(source: &Source, watch: &Watch) -> Result<(RunDir, RunFacts, Lab)> {
    match source {
        Source::Record(options) => {
            let (setting, facts) = record(options, watch)?;
            Ok((setting.folder, facts, setting.lab))
        }
        Source::Run(path) => {
            let folder = RunDir::open(path);
            let facts = RunFacts::load(&folder)?;
            let lab = Lab::prepare(guest_config_of(&facts), watch)?;
            Ok((folder, facts, lab))
        }
    }
}

struct Work<'a> {
    facts: &'a RunFacts,
    recording: &'a Recording,
    which: Which,
    planned: &'a [PlannedCut],
    base: Image,
    site: GuestSite<'a>,
    store: Store,
    scratch: &'a RunFolder,
    outcomes: BTreeMap<u32, StateOutcome>,
    recoveries: Vec<StateOutcome>,
    /// The latest states looked at.
    seen: VecDeque<(StateId, u32, Observation)>,
    watch: &'a Watch,
}

impl Work<'_> {
    /// Takes the outcomes of an earlier call.
    fn take_up(&mut self, before: Vec<StateOutcome>) {
        for outcome in before {
            match outcome.recovery_cut {
                Some(_) => self.recoveries.push(outcome),
                None => drop(self.outcomes.insert(outcome.index, outcome)),
            }
        }
        if !self.outcomes.is_empty() {
            let (known, all) = (self.outcomes.len(), self.planned.len());
            self.watch.note(format!("{known} of {all} states were looked at before"));
        }
    }

    fn look_at_all(&mut self, options: &ExploreOptions) -> Result<()> {
        let started = Instant::now();
        let model = self.facts.scenario.cut.crash_model;
        let mut cursor = StateCursor::new(&self.recording.log, &self.base, model)?;
        let order = if has_curve(model, self.which) { Order::Bisect } else { Order::Ascending };
        let mut done: BTreeMap<u32, Losses> =
            self.outcomes.iter().map(|(index, outcome)| (*index, losses(outcome))).collect();
        let before = done.len();
        while let Some(index) = order.next(self.planned.len() as u32, &done) {
            self.watch.check()?;
            if options.budget.is_some_and(|budget| started.elapsed() >= budget) {
                let left = self.planned.len() - done.len();
                self.watch.note(format!("the budget is used up; {left} states are left"));
                break;
            }
            self.tell(done.len() - before, started, options.budget);
            let planned = self.planned[index as usize];
            let state = cursor.at(planned.cut, planned.seed)?;
            let outcome = self.look_at(index, planned, state, options.recovery_cuts)?;
            done.insert(index, losses(&outcome));
            self.outcomes.insert(index, outcome);
        }
        Ok(())
    }

    fn tell(&self, done_now: usize, started: Instant, budget: Option<Duration>) {
        let (known, all) = (self.outcomes.len() as u64, self.planned.len() as u64);
        let scenario = &self.facts.scenario;
        let violated = self.outcomes.values();
        let violated = violated.filter(|o| o.verdict(scenario) == Verdict::Violated).count();
        let mut text = format!("{violated} violated");
        if done_now > 0 {
            let each = started.elapsed().as_secs_f64() / done_now as f64;
            let left = each * (all - known) as f64;
            let left = budget.map_or(left, |budget| {
                left.min(budget.saturating_sub(started.elapsed()).as_secs_f64())
            });
            text = format!("{text}, {each:.2} s each, about {left:.0} s left");
        }
        let stage = "looking at states".to_owned();
        self.watch.tell(Progress::Part { stage, done: known, total: all, text });
    }

    fn look_at(
        &mut self,
        index: u32,
        planned: PlannedCut,
        state: CrashState,
        recovery_cuts: u32,
    ) -> Result<StateOutcome> {
        let evidence = self.recording.at(planned.cut, planned.until)?;
        let this = (index, &planned, state.id);
        if let Some((_, same, observed)) = self.seen.iter().find(|(id, ..)| *id == state.id) {
            let mut outcome = StateOutcome::judge(this, self.facts, &evidence, observed);
            outcome.same_as = Some(*same);
            self.store.keep(&outcome)?;
            return Ok(outcome);
        }
        let overlay = self.scratch.path().join("overlay");
        let looked = Instant::now();
        let observed = self.site.look(state.image.clone(), &overlay)?;
        let mut outcome = StateOutcome::judge(this, self.facts, &evidence, &observed);
        outcome.took_ms = looked.elapsed().as_millis() as u64;
        self.keep(&outcome, &format!("state-{index:05}"), &observed)?;
        let cuts = self.cut_recovery((index, &planned), &state.image, &overlay, recovery_cuts);
        std::fs::remove_file(&overlay).context("cannot remove the trace of a recovery")?;
        cuts?;
        self.seen.push_back((state.id, index, observed));
        if self.seen.len() > REMEMBERED {
            self.seen.pop_front();
        }
        Ok(outcome)
    }

    fn keep(&mut self, outcome: &StateOutcome, name: &str, observed: &Observation) -> Result<()> {
        if outcome.verdict(&self.facts.scenario) != Verdict::Held && !outcome.is_before_load(None) {
            self.store.keep_evidence(name, observed)?;
        }
        Ok(self.store.keep(outcome)?)
    }

    /// Cuts the power again while the state was being recovered, at some of the flushes of that.
    fn cut_recovery(
        &mut self,
        (index, planned): (u32, &PlannedCut),
        state: &Image,
        overlay: &Path,
        count: u32,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let log = DiskLog::read(overlay, |_, _| {})?;
        let model = self.facts.scenario.cut.crash_model;
        let again = self.scratch.path().join("overlay-again");
        let mut cursor = StateCursor::new(&log, state, model)?;
        for (nth, cut) in recovery_cuts(&log, count, planned.seed).into_iter().enumerate() {
            self.watch.check()?;
            let (entry, at) = cut;
            let left = cursor.at(entry, planned.seed)?;
            let evidence = self.recording.at(planned.cut, planned.until)?;
            let evidence = evidence.recovered(&log, entry, at, model);
            let looked = Instant::now();
            let observed = self.site.look(left.image, &again)?;
            std::fs::remove_file(&again).context("cannot remove the trace of a recovery")?;
            let this = (index, planned, left.id);
            let mut outcome = StateOutcome::judge(this, self.facts, &evidence, &observed);
            let why = "in-recovery".to_owned();
            let cut = Place { cut: entry.0, seed: planned.seed, from: at, until: at, why };
            outcome.recovery_cut = Some(cut);
            outcome.took_ms = looked.elapsed().as_millis() as u64;
            self.keep(&outcome, &format!("state-{index:05}-again-{nth}"), &observed)?;
            self.recoveries.push(outcome);
        }
        Ok(())
    }

    fn finish(self, started: Instant) -> Result<(ExploreReport, PathBuf)> {
        let mut took: Vec<u64> = self
            .outcomes
            .values()
            .filter(|outcome| outcome.same_as.is_none())
            .map(|outcome| outcome.took_ms)
            .collect();
        took.sort_unstable();
        let cost = Cost {
            took_s: started.elapsed().as_secs_f64(),
            starts: self.site.starts(),
            state_ms_median: took.get(took.len() / 2).copied(),
        };
        let summed = sum(&Known {
            facts: self.facts,
            which: self.which,
            planned: self.planned,
            outcomes: &self.outcomes,
            recoveries: &self.recoveries,
            begin: self.recording.begin,
            cut: self.recording.cut,
            cost,
        })?;
        let chart = render::chart(&summed, &self.recording.commits_of_load(), self.recording.begin);
        self.store.write_report(&summed.report, &render::markdown(&summed.report), &chart)?;
        Ok((summed.report, self.store.path().to_owned()))
    }
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
