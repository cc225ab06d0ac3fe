//! An exploration from its options to its report, in the order in which things happen.
//!
//! One thread keeps the list and prepares states; workers look at them, each with a kernel of its own.

use super::cuts::{PlannedCut, Which, plan_cuts};
use super::options::{ExploreOptions, In};
use super::order::{Losses, Order, losses};
use super::render;
use super::report::{Cost, ExploreReport};
use super::site::Site;
use super::source::Source;
use super::state::{Place, StateOutcome};
use super::store::{PlanFile, Store, StoreError};
use super::sum::{Known, has_curve, sum};
use super::worker::{Looked, Task, Worker};
use crate::disk::{CrashModel, Image, StateCursor, StateId};
use crate::guest::cache::{digest_of_file, hex};
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use crate::trial::evidence::{self, Recording};
use crate::trial::facts::RunFacts;
use crate::trial::inspect::Observation;
use crate::verify::verdict::Verdict;
use anyhow::{Context, Result, anyhow};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
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
    let source = Source::open(options, watch)?;
    let run = source.folder.path().display();
    watch.note(format!("the run is {run}; explore that folder to go on should this be stopped"));
    let mut facts = source.facts.clone();
    let model = options.model.unwrap_or(facts.scenario.cut.crash_model);
    facts.scenario.cut.crash_model = model;
    let place = source.folder.path();
    let recording = evidence::of_run(&source.folder, &facts, model)
        .with_context(|| format!("the recording in {} cannot be explored", place.display()))?;
    let which = options.which.unwrap_or_else(|| suiting(model));
    let planned = plan_cuts(&recording.log, recording.acks(), model, which, facts.seed)?;
    let (store, before) = open_store(&source, options, which, model, &facts, &planned)?;
    let console = store.path().join("console.log");
    let mut work = Work {
        facts: &facts,
        recording: &recording,
        which,
        planned: &planned,
        store,
        outcomes: BTreeMap::new(),
        recoveries: Vec::new(),
        seen: VecDeque::new(),
        watch,
    };
    work.take_up(before)?;
    let site = |watch: &Watch| source.site(&facts, &console, watch);
    let (ended, starts) =
        with_workers(options, &facts, &recording, watch, site, |tasks, answers| {
            work.look_at_all(options.budget, tasks, answers)
        });
    let (report, folder) = work.finish(starts, started)?;
    ended?;
    Ok(Explored { report, folder })
}

fn open_store(
    source: &Source,
    options: &ExploreOptions,
    which: Which,
    model: CrashModel,
    facts: &RunFacts,
    planned: &[PlannedCut],
) -> Result<(Store, Vec<StateOutcome>)> {
    let mut name = format!("explore-{model}-{}", which.to_string().replace(':', "-"));
    if options.recovery_cuts > 0 {
        name = format!("{name}-recovery-{}", options.recovery_cuts);
    }
    let judged = serde_json::to_vec(&(&facts.scenario, &facts.plan, places(planned)))?;
    let plan = PlanFile {
        format: super::store::FORMAT,
        model: model.to_string(),
        which: which.to_string(),
        states: planned.len() as u32,
        recovery_cuts: options.recovery_cuts,
        trace_sha256: digest_of_file(&source.folder.trace())?,
        judged_sha256: hex(&Sha256::digest(judged)),
        plugpull: env!("CARGO_PKG_VERSION").to_owned(),
        place: match options.place {
            In::Guest => "guest".to_owned(),
            In::Host => "host".to_owned(),
        },
    };
    Ok(Store::open(&source.folder.path().join(name), &plan)?)
}

fn places(planned: &[PlannedCut]) -> Vec<Place> {
    planned.iter().map(Place::from).collect()
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

/// Runs `work` beside so many workers as are asked for. Returns its result, and how many kernels
/// were started.
fn with_workers<S: Site>(
    options: &ExploreOptions,
    facts: &RunFacts,
    recording: &Recording,
    watch: &Watch,
    site: impl Fn(&Watch) -> Result<S> + Sync,
    work: impl FnOnce(&[SyncSender<Task>], &Receiver<(usize, Answer)>) -> Result<()>,
) -> (Result<()>, u32) {
    let (to_us, answers) = channel();
    std::thread::scope(|scope| {
        let mut tasks = Vec::new();
        let mut threads = Vec::new();
        for number in 0..options.workers.get() {
            let (task, to_do) = sync_channel::<Task>(1);
            let (to_us, site) = (to_us.clone(), &site);
            tasks.push(task);
            threads.push(scope.spawn(move || -> u32 {
                let made = make_worker(options, facts, recording, watch, site);
                serve(number, made, &to_do, &to_us)
            }));
        }
        drop(to_us);
        let ended = work(&tasks, &answers);
        drop(tasks);
        let starts = threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum();
        (ended, starts)
    })
}

fn make_worker<'a, S: Site>(
    options: &ExploreOptions,
    facts: &'a RunFacts,
    recording: &'a Recording,
    watch: &'a Watch,
    site: impl Fn(&Watch) -> Result<S>,
) -> Result<(Worker<'a, S>, RunFolder)> {
    let scratch = RunFolder::new()?;
    let worker = Worker {
        facts,
        recording,
        site: site(watch)?,
        scratch: scratch.path().to_owned(),
        recovery_cuts: options.recovery_cuts,
        watch,
        failed: 0,
    };
    Ok((worker, scratch))
}

/// A worker's life: tasks until there are no more. Returns how many kernels it started.
fn serve<S: Site>(
    number: usize,
    made: Result<(Worker<S>, RunFolder)>,
    tasks: &Receiver<Task>,
    answers: &Sender<(usize, Answer)>,
) -> u32 {
    let (mut worker, _scratch) = match made {
        Ok(made) => made,
        Err(error) => {
            // Told as the answer to the first task, whatever that is.
            if let Ok(task) = tasks.recv() {
                let _ = answers.send((number, (task.state.id, Err(error))));
            }
            return 0;
        }
    };
    for task in tasks {
        // A panic must be an answer, or it would be waited for in vain.
        let looked = catch_unwind(AssertUnwindSafe(|| worker.look(&task)))
            .unwrap_or_else(|_| Err(anyhow!("the worker of state {} panicked", task.index)));
        if answers.send((number, (task.state.id, looked))).is_err() {
            break;
        }
    }
    worker.site.starts()
}

/// The list, and what is known of its states.
struct Work<'a> {
    facts: &'a RunFacts,
    recording: &'a Recording,
    which: Which,
    planned: &'a [PlannedCut],
    store: Store,
    outcomes: BTreeMap<u32, StateOutcome>,
    recoveries: Vec<StateOutcome>,
    /// The latest states looked at.
    seen: VecDeque<(StateId, u32, Observation)>,
    watch: &'a Watch,
}

/// A worker's answer.
type Answer = (StateId, Result<Looked>);

impl Work<'_> {
    /// Takes the outcomes of an earlier call.
    fn take_up(&mut self, before: Vec<StateOutcome>) -> Result<(), StoreError> {
        let claims = self.facts.scenario.claim.len();
        for outcome in before {
            let index = outcome.index;
            let planned = self.planned.get(index as usize).map(Place::from);
            if planned.as_ref() != Some(&outcome.place) || outcome.claims.len() != claims {
                let path = self.store.path().join("states.jsonl");
                return Err(StoreError::Foreign { path, index });
            }
            match outcome.recovery_cut {
                Some(_) => self.recoveries.push(outcome),
                None => drop(self.outcomes.insert(outcome.index, outcome)),
            }
        }
        // A state's own line comes last: without it the state is looked at again, with its recovery.
        let Work { outcomes, recoveries, .. } = self;
        let mut seen = BTreeSet::new();
        recoveries.retain(|again| {
            let cut = again.recovery_cut.as_ref().map(|place| place.cut);
            outcomes.contains_key(&again.index) && seen.insert((again.index, cut))
        });
        if !self.outcomes.is_empty() {
            let (known, all) = (self.outcomes.len(), self.planned.len());
            self.watch.note(format!("{known} of {all} states were looked at before"));
        }
        Ok(())
    }

    /// Gives states to the workers, each its next when it is done with one, until all are known, the
    /// budget is used up, or the user stops.
    fn look_at_all(
        &mut self,
        budget: Option<Duration>,
        workers: &[SyncSender<Task>],
        answers: &Receiver<(usize, Answer)>,
    ) -> Result<()> {
        let started = Instant::now();
        let model = self.facts.scenario.cut.crash_model;
        let blank = Image::blank(self.recording.log.header.disk_bytes)?;
        let mut cursor = StateCursor::new(&self.recording.log, &blank, model)?;
        let one = workers.len() == 1 && has_curve(model, self.which);
        let order = if one { Order::Bisect } else { Order::Ascending };
        let mut taken: BTreeMap<u32, Losses> =
            self.outcomes.iter().map(|(index, outcome)| (*index, losses(outcome))).collect();
        let before = taken.len();
        let mut idle: Vec<usize> = (0..workers.len()).collect();
        loop {
            self.watch.check()?;
            let in_time = budget.is_none_or(|budget| started.elapsed() < budget);
            let next = order.next(self.planned.len() as u32, &taken).filter(|_| in_time);
            if let (Some(index), Some(worker)) = (next, idle.last().copied()) {
                let planned = self.planned[index as usize];
                let state = cursor.at(planned.cut, planned.seed)?;
                taken.insert(index, Losses::new());
                if self.is_equal(index, &planned, state.id)? {
                    continue;
                }
                idle.pop();
                let task = Task { index, planned, state };
                workers[worker].send(task).context("a worker ended")?;
                continue;
            }
            if idle.len() == workers.len() {
                let left = self.planned.len() - self.outcomes.len();
                if left > 0 {
                    self.watch.note(format!("the budget is used up; {left} states are left"));
                }
                return Ok(());
            }
            let (worker, (id, looked)) = answers.recv().context("every worker ended")?;
            idle.push(worker);
            let index = self.keep(id, looked?)?;
            taken.insert(index, losses(&self.outcomes[&index]));
            self.tell(self.outcomes.len() - before, started, budget);
        }
    }

    fn tell(&self, done_now: usize, started: Instant, budget: Option<Duration>) {
        let (known, all) = (self.outcomes.len() as u64, self.planned.len() as u64);
        let scenario = &self.facts.scenario;
        let violated = self.outcomes.values();
        let violated = violated.filter(|o| o.verdict(scenario) == Verdict::Violated).count();
        let each = started.elapsed().as_secs_f64() / done_now.max(1) as f64;
        let left = each * (all - known) as f64;
        let left = budget.map_or(left, |budget| {
            left.min(budget.saturating_sub(started.elapsed()).as_secs_f64())
        });
        let text = format!("{violated} violated, {each:.3} s each, about {left:.0} s left");
        let stage = "looking at states".to_owned();
        self.watch.tell(Progress::Part { stage, done: known, total: all, text });
    }

    /// A state with the bytes of one that was looked at lately is judged from what was found there.
    fn is_equal(&mut self, index: u32, planned: &PlannedCut, id: StateId) -> Result<bool> {
        let Some((_, same, observed)) = self.seen.iter().find(|(seen, ..)| *seen == id) else {
            return Ok(false);
        };
        let evidence = self.recording.at(planned.cut, planned.until)?;
        let outcome = StateOutcome::judge((index, planned, id), self.facts, &evidence, observed);
        let outcome = StateOutcome { same_as: Some(*same), ..outcome };
        self.store.keep(&outcome)?;
        self.outcomes.insert(index, outcome);
        Ok(true)
    }

    /// Keeps what a worker found. Returns the state's place.
    fn keep(&mut self, id: StateId, looked: Looked) -> Result<u32> {
        let Looked { outcome, observed, recoveries } = looked;
        let index = outcome.index;
        for (nth, (again, observed)) in recoveries.into_iter().enumerate() {
            self.keep_one(&again, &format!("state-{index:05}-again-{nth}"), &observed)?;
            self.recoveries.push(again);
        }
        // The state itself comes last: with it the line of all that belongs to it is whole.
        self.keep_one(&outcome, &format!("state-{index:05}"), &observed)?;
        self.outcomes.insert(index, outcome);
        if self.outcomes[&index].was_looked_at() {
            self.seen.push_back((id, index, observed));
        }
        if self.seen.len() > REMEMBERED {
            self.seen.pop_front();
        }
        Ok(index)
    }

    fn keep_one(
        &mut self,
        outcome: &StateOutcome,
        name: &str,
        observed: &Observation,
    ) -> Result<()> {
        let against = match outcome.verdict(&self.facts.scenario) {
            Verdict::Held => false,
            Verdict::NotMeasured => !outcome.is_before_load(None),
            Verdict::Violated | Verdict::HarnessBroken => true,
        };
        if against {
            self.store.keep_evidence(name, observed)?;
        }
        // One that could not be looked at is looked at again when the exploration goes on.
        match outcome.was_looked_at() {
            true => Ok(self.store.keep(outcome)?),
            false => Ok(()),
        }
    }

    fn finish(self, starts: u32, started: Instant) -> Result<(ExploreReport, PathBuf)> {
        let looked = self.outcomes.values().filter(|outcome| outcome.same_as.is_none());
        let mut took: Vec<u64> = looked.map(|outcome| outcome.took_ms).collect();
        took.sort_unstable();
        let cost = Cost {
            took_s: started.elapsed().as_secs_f64(),
            starts,
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
