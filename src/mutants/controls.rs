//! Controls: states of honest stacks, in which nothing may raise an alarm.
//!
//! What always holds: an alarm is told and its state kept, never filtered; a state in which there
//! was nothing to judge is not counted among those that held.

use super::mutant::Base;
use super::options::MutantsOptions;
use super::recorded::Recorded;
use super::report::ControlRow;
use super::table::ZFS;
use crate::disk::{CrashModel, Image, StateCursor};
use crate::explore::cuts::{Which, plan_cuts};
use crate::explore::state::StateOutcome;
use crate::guest::progress::{Progress, Watch};
use crate::stack::scenario::{ClaimKind, Scenario};
use crate::trial::folder::RunDir;
use crate::trial::inspect::Observation;
use crate::verify::verdict::Verdict;
use anyhow::{Context, Result, anyhow};
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// An honest stack, and its part of all states.
struct Honest {
    base: Base,
    /// Of a hundred.
    share: u32,
    /// States of one recording under each model.
    sample: u32,
    models: &'static [CrashModel],
    /// When no further state is begun.
    budget: Duration,
}

const MODELS: &[CrashModel] = &[
    CrashModel::DropUnflushed,
    CrashModel::KeepAll,
    CrashModel::Subset,
    CrashModel::Torn { unit_sectors: 1 },
];
const SETS: &[&str] = &["cut.load_seconds=0.6"];
const HOST_BUDGET: Duration = Duration::from_secs(600);

/// What this machine's own kernel looks at, one list for each thread.
const HOST: [&[Honest]; 2] = [
    &[Honest { base: host("ext4"), share: 60, sample: 70, models: MODELS, budget: HOST_BUDGET }],
    &[
        Honest { base: host("btrfs"), share: 25, sample: 45, models: MODELS, budget: HOST_BUDGET },
        Honest { base: host("xfs"), share: 15, sample: 25, models: MODELS, budget: HOST_BUDGET },
    ],
];

/// Beside the states that were asked for: some of a pool, in a guest.
const GUEST: Honest = Honest {
    base: ZFS,
    share: 0,
    sample: 12,
    models: &[CrashModel::DropUnflushed],
    budget: Duration::from_secs(150),
};

const fn host(scenario: &'static str) -> Base {
    Base { scenario, sets: SETS, in_guest: false, fua: false }
}

/// Looks at honest stacks until so many states held as were asked for, or an alarm.
pub fn run(
    options: &MutantsOptions,
    scratch: &Path,
    watch: &Watch,
    quiet: &Watch,
) -> Result<Vec<ControlRow>> {
    if options.controls == 0 {
        return Ok(Vec::new());
    }
    let seen = AtomicU32::new(0);
    let tell = || {
        let done = u64::from(seen.fetch_add(1, Ordering::Relaxed)) + 1;
        let stage = "looking at honest stacks".to_owned();
        let text = "states".to_owned();
        watch.tell(Progress::Part { stage, done, total: u64::from(options.controls), text });
    };
    let mut rows = std::thread::scope(|scope| {
        let threads = HOST.iter().enumerate().map(|(nth, list)| {
            let own = scratch.join(format!("controls-{nth}"));
            let tell = &tell;
            scope.spawn(move || {
                fs::create_dir_all(&own)?;
                let of = |honest| look(honest, options, &own, quiet, tell);
                list.iter().map(of).collect::<Result<Vec<ControlRow>>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the controls ended")))
        });
        joined.collect::<Result<Vec<_>>>()
    })?
    .concat();
    rows.push(match options.host_only {
        true => {
            let why = Some("--host-only: it needs a guest".to_owned());
            ControlRow { skipped: why, ..row_of(&GUEST) }
        }
        false => look(&GUEST, options, scratch, quiet, &tell)?,
    });
    Ok(rows)
}

fn row_of(honest: &Honest) -> ControlRow {
    ControlRow {
        scenario: honest.base.scenario,
        held: 0,
        not_judged: 0,
        unmeasured: Vec::new(),
        runs: 0,
        alarms: Vec::new(),
        skipped: None,
    }
}

/// States of one honest stack, of as many recordings as it takes.
fn look(
    honest: &Honest,
    options: &MutantsOptions,
    scratch: &Path,
    quiet: &Watch,
    tell: &dyn Fn(),
) -> Result<ControlRow> {
    let mut started = Instant::now();
    let wanted = options.controls.saturating_mul(honest.share).div_ceil(100);
    let mut row = row_of(honest);
    while row.runs == 0
        || (row.held < wanted && row.alarms.is_empty() && started.elapsed() < honest.budget)
    {
        let seed = options.seed.wrapping_add(1000 + u64::from(row.runs));
        let run = Recorded::new(&honest.base, &[], seed, options, scratch, quiet)
            .with_context(|| format!("the control {} was not recorded", honest.base.scenario))?;
        row.runs += 1;
        if row.runs == 1 {
            // What has to be made once, such as a guest's image, is not of its time.
            started = Instant::now();
        }
        let mut kernel = run.kernel(scratch, quiet)?;
        for model in honest.models.iter().copied() {
            let facts = run.facts_under(model);
            let recording = run.evidence(model)?;
            let log = &recording.log;
            let states = NonZeroU32::new(honest.sample).unwrap_or(NonZeroU32::MIN);
            let which = Which::Sample { states };
            let mut planned = plan_cuts(log, recording.acks(), model, which, seed)?;
            if honest.base.in_guest {
                // There is time for some only, and the late ones have most to judge.
                planned.reverse();
            }
            let blank = Image::blank(log.header.disk_bytes)?;
            let mut cursor = StateCursor::new(log, &blank, model)?;
            for (index, planned) in planned.iter().enumerate() {
                quiet.check()?;
                if (wanted > 0 && row.held >= wanted) || started.elapsed() >= honest.budget {
                    break;
                }
                let state = cursor.at(planned.cut, planned.seed)?;
                let place = (index as u32, planned);
                let (outcome, observed) = kernel.look(&facts, &recording, place, &state)?;
                match outcome.verdict(&facts.scenario) {
                    Verdict::Held => row.held += 1,
                    Verdict::NotMeasured if is_early(&outcome, &facts.scenario) => {
                        row.not_judged += 1;
                    }
                    Verdict::NotMeasured => row.unmeasured.extend(reason(&outcome)),
                    Verdict::Violated | Verdict::HarnessBroken => {
                        row.alarms.push(keep(&run, model, &outcome, &observed, &options.runs)?);
                    }
                }
                tell();
            }
        }
        drop(kernel);
        if row.alarms.is_empty() {
            fs::remove_dir_all(run.folder.path()).context("cannot remove a control's run")?;
        }
    }
    Ok(row)
}

/// Whether nothing of the load was there yet to be judged, in a file system that was found whole.
fn is_early(outcome: &StateOutcome, scenario: &Scenario) -> bool {
    let mut pairs = outcome.claims.iter().zip(&scenario.claim);
    pairs.all(|(claim, spec)| match spec.kind {
        ClaimKind::Consistent => claim.verdict == Verdict::Held,
        ClaimKind::MaxLoss => true,
        _ => claim.verdict == Verdict::Held || outcome.is_before_load(spec.dataset.as_deref()),
    })
}

/// Why a state could not be judged.
fn reason(outcome: &StateOutcome) -> Option<String> {
    let unknown = outcome.claims.iter().filter(|claim| claim.verdict == Verdict::NotMeasured);
    unknown.flat_map(|claim| claim.because.first()).next().cloned()
}

/// Keeps the run and the state of an alarm. Returns what to tell.
fn keep(
    run: &Recorded,
    model: CrashModel,
    outcome: &StateOutcome,
    observed: &Observation,
    runs: &Path,
) -> Result<String> {
    let name = format!("alarm-{}", run.facts.scenario.name);
    let kept = RunDir::create(runs, &name, run.facts.seed).context("cannot keep an alarm's run")?;
    fs::copy(run.folder.trace(), kept.trace()).context("cannot keep an alarm's trace")?;
    fs::copy(run.folder.facts(), kept.facts()).context("cannot keep an alarm's facts")?;
    let state = kept.path().join("state");
    fs::create_dir(&state)?;
    RunDir::open(&state).write_observation(observed).context("cannot keep what was found")?;
    let json = serde_json::to_string_pretty(outcome)?;
    fs::write(state.join("outcome.json"), json).context("cannot keep an alarm's outcome")?;
    let against = |verdict| matches!(verdict, Verdict::Violated | Verdict::HarnessBroken);
    let because = outcome.claims.iter().filter(|claim| against(claim.verdict));
    let first = because.flat_map(|claim| claim.because.first()).next();
    Ok(format!(
        "{model}, entry {}: {}; kept in {}",
        outcome.place.cut,
        first.cloned().unwrap_or_default(),
        kept.path().display()
    ))
}
