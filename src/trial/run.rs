//! A trial from its options to its report, in the order in which things happen.

use super::compose;
use super::evidence::{self, Recording};
use super::facts::{self, RunFacts};
use super::folder::RunDir;
use super::inspect::{self, Observation};
use super::live::{self, Disk, Live};
use super::options::TrialOptions;
use super::render;
use super::report::{TrialReport, Versions};
use super::stages::Stages;
use crate::cut::script::CutScript;
use crate::disk::{DiskConfig, DiskServer, Image, LiveStore, Timing, crash_state, failure};
use crate::guest::progress::Watch;
use crate::guest::run_folder::RunFolder;
use crate::guest::{GuestConfig, Lab, Start};
use crate::stack::full_root;
use crate::stack::scenario::{DiskSpec, Scenario};
use crate::stack::settings;
use crate::trace::{Recorder, TraceHeader};
use crate::units::RunId;
use crate::workload::plan::Plan;
use anyhow::{Context, Result, bail};
use rand::Rng;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

/// A finished trial.
#[derive(Debug)]
pub struct Trial {
    /// What it found.
    pub report: TrialReport,
    /// Where it is kept.
    pub folder: RunDir,
}

/// Everything that is fixed before a guest is started.
pub struct Setting {
    /// What was asked for.
    pub options: TrialOptions,
    /// The scenario with every `--set` applied.
    pub scenario: Scenario,
    /// The plan of its workload.
    pub plan: Plan,
    /// Where guests come from.
    pub lab: Lab,
    /// Digest of the fuller root, if programs run in it: made by now.
    pub full_root: Option<String>,
    /// Where the run is kept.
    pub folder: RunDir,
}

impl Setting {
    /// Checks what was asked for, finds or makes what guests need, and makes the run's folder.
    pub fn new(options: &TrialOptions, watch: &Watch) -> Result<Setting> {
        let scenario = settings::load(&options.scenario, &options.sets)?;
        CutScript::find(&scenario.cut.script)?;
        check_runs(options)?;
        let plan = scenario.plan(new_run_id(), options.seed);
        let lab = Lab::prepare(guest_config(options, &scenario), watch)?;
        let full_root = match plan.datasets_in_full_root().is_empty() {
            true => None,
            false => Some(lab.full_root()?.digest),
        };
        let folder = make_folder(options, &scenario, &plan)?;
        Ok(Setting { options: options.clone(), scenario, plan, lab, full_root, folder })
    }
}

/// Whether the run can be kept: better known before a guest is built than after.
pub(super) fn check_runs(options: &TrialOptions) -> Result<()> {
    RunDir::check(&options.runs)
        .with_context(|| format!("cannot write in {}", options.runs.display()))
}

/// Makes the run's folder, with what was asked for in it.
pub(super) fn make_folder(
    options: &TrialOptions,
    scenario: &Scenario,
    plan: &Plan,
) -> Result<RunDir> {
    let folder = RunDir::create(&options.runs, &scenario.name, options.seed)
        .with_context(|| format!("cannot make a run folder under {}", options.runs.display()))?;
    let what = serde_json::json!({ "options": options, "scenario": scenario, "plan": plan });
    folder.write_plan(&what).context("cannot write the run folder's plan.json")?;
    Ok(folder)
}

/// Runs a trial: prepare, load and cut, observe, judge, keep.
pub fn run(options: &TrialOptions, watch: &Watch) -> Result<Trial> {
    run_started(options, Start::Saved, watch)
}

/// The same with guests that are started in this way.
pub fn run_started(options: &TrialOptions, how: Start, watch: &Watch) -> Result<Trial> {
    let stages = Stages::new(watch);
    let setting = Setting::new(options, stages.watch())?;
    let folder = &setting.folder;
    let live = load_and_cut(&setting, None, how, stages.watch())?;
    let mut facts = facts(&setting, &live);
    let model = setting.scenario.cut.crash_model;
    if let Ok(recording) = evidence::of_run(folder, &facts, model) {
        let observed = observe(&setting, &recording, how, stages.watch())?;
        folder.write_observation(&observed).context("cannot keep what was found")?;
    }
    stages.watch().stage("judging");
    keep(&mut facts, folder, stages)?;
    let report = judge_run(folder)?;
    Ok(Trial { report, folder: setting.folder })
}

/// Records a load up to its cut, for its states to be looked at later.
pub fn record(options: &TrialOptions, watch: &Watch) -> Result<(Setting, RunFacts)> {
    record_beside(options, None, watch)
}

/// The same, with a disk beside the trace that hears what the trace records.
pub fn record_beside(
    options: &TrialOptions,
    beside: Option<LiveStore>,
    watch: &Watch,
) -> Result<(Setting, RunFacts)> {
    let stages = Stages::new(watch);
    let setting = Setting::new(options, stages.watch())?;
    let live = load_and_cut(&setting, beside, Start::Saved, stages.watch())?;
    let mut facts = facts(&setting, &live);
    keep(&mut facts, &setting.folder, stages)?;
    Ok((setting, facts))
}

/// Writes a run's facts, sealed to the files that are there.
pub(super) fn keep(facts: &mut RunFacts, folder: &RunDir, stages: Stages) -> Result<()> {
    (facts.stages, facts.notes) = stages.finish();
    facts.seal(folder)?;
    folder.write_facts(facts).context("cannot keep the run's facts")
}

/// Judges a run from its folder alone, and writes the report into it.
pub fn judge_run(folder: &RunDir) -> Result<TrialReport> {
    let facts = RunFacts::load(folder)?;
    let report = match evidence::of_run(folder, &facts, facts.scenario.cut.crash_model) {
        Ok(recording) => {
            let evidence = recording.at_its_cut()?;
            compose::judged(&facts, &evidence, &Observation::load(folder, &facts.plan)?)
        }
        Err(error) => compose::unjudged(&facts, &error),
    };
    let markdown = render::markdown(&report);
    folder
        .write_report(&report, &markdown)
        .with_context(|| format!("cannot write the report in {}", folder.path().display()))?;
    Ok(report)
}

fn facts(setting: &Setting, live: &Live) -> RunFacts {
    let Setting { options, scenario, plan, lab, .. } = setting;
    RunFacts {
        format: facts::FORMAT,
        sha256: BTreeMap::new(),
        seed: options.seed,
        asked: options.scenario.clone(),
        sets: options.sets.clone(),
        scenario: scenario.clone(),
        plan: plan.clone(),
        versions: Versions {
            plugpull: env!("CARGO_PKG_VERSION").to_owned(),
            qemu: lab.qemu_version().trim_start_matches("QEMU emulator version ").to_owned(),
            suite: options.suite,
            kernel: live.kernel.clone(),
            stack: live.stack.clone(),
            image_sha256: lab.image().digest.clone(),
            full_root_sha256: setting.full_root.clone(),
        },
        acceleration: Some(lab.accel()),
        limits: live.limits,
        cut: live.plan,
        power_off_s: live.power_off.as_secs_f64(),
        guest_cpu_slowdown: live.cpu_slowdown,
        begins_at: None,
        notes: Vec::new(),
        stages: Vec::new(),
    }
}

pub(super) fn new_run_id() -> RunId {
    let mut id = [0; 16];
    rand::rng().fill_bytes(&mut id);
    RunId(id)
}

fn guest_config(options: &TrialOptions, scenario: &Scenario) -> GuestConfig {
    GuestConfig {
        memory_mib: scenario.guest.memory_mib,
        cpus: scenario.guest.cpus,
        suite: options.suite,
        bench: false,
        accel: options.accel,
    }
}

/// The guests that a run's states are looked at in: as the one that lost power.
pub fn guest_config_of(facts: &RunFacts) -> GuestConfig {
    GuestConfig {
        memory_mib: facts.scenario.guest.memory_mib,
        cpus: facts.scenario.guest.cpus,
        suite: facts.versions.suite,
        bench: false,
        accel: facts.acceleration,
    }
}

pub(super) fn timing(spec: &DiskSpec) -> Timing {
    let bytes_per_s = NonZeroU64::new((spec.bandwidth_mib_s * 1_048_576.0) as u64);
    Timing {
        flush: Duration::from_secs_f64(spec.flush_ms / 1e3),
        write_bytes_per_s: bytes_per_s,
        read_bytes_per_s: bytes_per_s,
    }
}

fn load_and_cut(
    setting: &Setting,
    beside: Option<LiveStore>,
    how: Start,
    watch: &Watch,
) -> Result<Live> {
    let folder = &setting.folder;
    let spec = &setting.scenario.disk;
    let disk_bytes = spec.size_mib << 20;
    let recorder = new_trace(&folder.trace(), setting.plan.run, disk_bytes)?;
    let sockets = RunFolder::new()?;
    let socket = sockets.path().join("disk");
    let blank = Image::blank(disk_bytes)?;
    let config = DiskConfig { socket, base: Some(blank), timing: timing(spec) };
    let (server, events) = DiskServer::start(config, recorder.clone())?;
    if let Some(store) = beside {
        store.set_size(disk_bytes).context("cannot size the medium beside the trace")?;
        server.tell_too(store);
    }
    let disk = Disk { server, events, recorder };
    let mut guest = setting.lab.start(how, Some(&folder.console()))?;
    full_root::attach_for(&mut guest, &setting.lab, &setting.plan)?;
    live::run(guest, &disk, &setting.scenario, &setting.plan, watch)
}

/// Makes the file of a trace that starts now.
pub fn new_trace(path: &Path, run: RunId, disk_bytes: u64) -> Result<Recorder> {
    Ok(Recorder::create(path, &TraceHeader::now(run, disk_bytes))?)
}

/// Gives the crash state to another guest; what its recovery writes is a trace of its own.
fn observe(
    setting: &Setting,
    recording: &Recording,
    how: Start,
    watch: &Watch,
) -> Result<Observation> {
    let folder = &setting.folder;
    let log = &recording.log;
    watch.stage("building the crash state");
    let blank = Image::blank(log.header.disk_bytes)?;
    let (model, seed) = (setting.scenario.cut.crash_model, setting.options.seed);
    let state = crash_state(log, &blank, log.cut_entry(), model, seed)?;
    let recorder = new_trace(&folder.recovery_trace(), setting.plan.run, log.header.disk_bytes)?;
    let sockets = RunFolder::new()?;
    let socket = sockets.path().join("disk");
    let config = DiskConfig { socket, base: Some(state), timing: Timing::default() };
    let (disk, events) = DiskServer::start(config, recorder)?;
    let mut guest = setting.lab.start(how, Some(&folder.recovery_console()))?;
    full_root::attach_for(&mut guest, &setting.lab, &setting.plan)?;
    let observed = inspect::run(&mut guest, &disk, &setting.scenario, &setting.plan, watch);
    // What a disk of the lab's own failed to show is nothing of the state.
    match failure(&events) {
        Some(reason) => bail!("the lab's disk failed: {reason}"),
        None => observed,
    }
}
