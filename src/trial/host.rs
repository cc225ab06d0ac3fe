//! The first half of a trial without a guest: set-up and load on this machine's own kernel, until the
//! disk is cut. What the kernel still has in its memory then fails to be written, as it must.

use super::facts::{self, RunFacts};
use super::folder::RunDir;
use super::live::{Collector, SET_UP_WRITTEN, sample};
use super::options::TrialOptions;
use super::report::Versions;
use super::run::{check_runs, keep, make_folder, new_run_id, new_trace, timing};
use super::stages::Stages;
use crate::agent::load::Load;
use crate::agent::protocol::Request;
use crate::cut::choose::{CutPlan, choose};
use crate::disk::{LOAD_BEGINS, LocalDisk};
use crate::guest::disk::{CacheMode, DiskBus};
use crate::guest::host::{FOR_HOST, ensure_programs};
use crate::guest::progress::Watch;
use crate::host::{HostDisk, make};
use crate::stack::scenario::{PatternName, PlainFs, PlainSpec, Scenario, Stack};
use crate::stack::settings;
use crate::trace::{Recorder, lab_now};
use crate::workload::clock;
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Each step on the device; a healthy one takes milliseconds.
const LIMIT: Duration = Duration::from_secs(60);
/// Requests that a disk with timing takes at once.
const QUEUE: usize = 8;
/// Between two clock samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Records a load on this machine's own kernel up to its cut.
pub fn record_in_host(options: &TrialOptions, watch: &Watch) -> Result<(RunDir, RunFacts)> {
    let scenario = settings::load(&options.scenario, &options.sets)?;
    let (fs, spec) = plain(&scenario)?;
    check_runs(options)?;
    let stages = Stages::new(watch);
    ensure_programs(&FOR_HOST, stages.watch())?;
    let plan = scenario.plan(new_run_id(), options.seed);
    let folder = make_folder(options, &scenario, &plan)?;
    let disk_bytes = scenario.disk.size_mib << 20;
    let recorder = new_trace(&folder.trace(), plan.run, disk_bytes)?;
    let timing = timing(&scenario.disk);
    let requests = if timing.is_none() { 1 } else { QUEUE };
    let (local, _events) = LocalDisk::new(None, timing, recorder.clone())?;
    let mut disk = HostDisk::start_overlapping(disk_bytes, LIMIT, requests)?;
    disk.insert(Arc::new(local))?;
    let cut = load_and_cut(&disk, &scenario, (fs, spec), &plan, &recorder, stages.watch())?;
    drop(disk);
    recorder.sync()?;
    let mut facts = RunFacts {
        format: facts::FORMAT,
        sha256: BTreeMap::new(),
        seed: options.seed,
        asked: options.scenario.clone(),
        sets: options.sets.clone(),
        versions: versions(fs, options)?,
        scenario,
        plan,
        acceleration: None,
        limits: None,
        cut,
        power_off_s: 0.0,
        guest_cpu_slowdown: 1.0,
        begins_at: None,
        notes: Vec::new(),
        stages: Vec::new(),
    };
    keep(&mut facts, &folder, stages)?;
    Ok((folder, facts))
}

/// The file system of a scenario that this machine's kernel can run as it is.
fn plain(scenario: &Scenario) -> Result<(PlainFs, &PlainSpec)> {
    let name = &scenario.name;
    refuse_programs(scenario)?;
    if scenario.has(PatternName::Sqlite) {
        bail!(
            "SQLite cannot write to a mount without a place, as this machine's are: leave out \
             `--in host` to record {name}, then explore the run's folder with it"
        );
    }
    let Stack::Plain(fs, spec) = scenario.stack.get() else {
        bail!(
            "{name} stands on ZFS, which this machine's kernel is not asked for: leave out \
             `--in host`, or take one of ext4, xfs, btrfs"
        );
    };
    if scenario.disk.bus != DiskBus::VirtioBlk || scenario.disk.cache != CacheMode::WriteBack {
        bail!(
            "{name} asks for a bus or a cache of QEMU's (disk.bus, disk.cache): leave out `--in host`"
        );
    }
    Ok((fs, spec))
}

/// A scenario's programs run as root, in a guest that is thrown away; never here.
pub fn refuse_programs(scenario: &Scenario) -> Result<()> {
    if scenario.has(PatternName::Exec) {
        bail!(
            "{} runs programs of its own (exec), and on this machine's own kernel they could do \
             anything: leave out `--in host`",
            scenario.name
        );
    }
    Ok(())
}

/// The scenario's mount options, and that a damaged ext4 is an error of its calls, never a panic of
/// this machine.
pub fn safe_options(fs: PlainFs, spec: &PlainSpec) -> String {
    let safe = match fs {
        PlainFs::Ext4 => "errors=continue",
        // Two states of one file system have the same UUID.
        PlainFs::Xfs => "nouuid",
        PlainFs::Btrfs => "",
    };
    let options: Vec<&str> =
        [safe].into_iter().filter(|o| !o.is_empty()).chain(spec.options()).collect();
    options.join(",")
}

fn load_and_cut(
    disk: &HostDisk,
    scenario: &Scenario,
    (fs, spec): (PlainFs, &PlainSpec),
    plan: &crate::workload::plan::Plan,
    recorder: &Recorder,
    watch: &Watch,
) -> Result<CutPlan> {
    watch.stage(format!("making {fs} on a loop device of this machine"));
    make(disk, fs.name())?;
    let mounted = disk.mount(fs.name(), &safe_options(fs, spec))?;
    for name in scenario.dataset.keys() {
        std::fs::create_dir(mounted.path().join(name)).context("cannot make a dataset's folder")?;
    }
    watch.stage("making the bodies and filling the files");
    let (theirs, ours) = UnixStream::pair()?;
    let collector = Collector::start(ours, recorder.clone())?;
    let mut load = Load::without_locked_memory(File::from(OwnedFd::from(theirs)));
    let mut ask = |request| {
        load.handle(request, &mut |_| Ok(())).map_err(|words| anyhow!("the load: {words}"))
    };
    ask(Request::Prepare(scenario.plan_at(mounted.path(), plan.run, plan.seed)))?;
    recorder.mark(SET_UP_WRITTEN)?;
    settle(mounted.path(), disk.device())?;
    watch.stage("load, until the disk is cut");
    sample(recorder, || Ok(clock::stamp()))?;
    recorder.mark(LOAD_BEGINS)?;
    let begin = lab_now();
    ask(Request::StartLoad)?;
    let cut = choose(&scenario.cut, scenario.cut_period_s(), plan.seed);
    let CutPlan::Uniform { at_ns } = cut else { bail!("a worst cut needs a pool's commits") };
    while lab_now().0 < begin.0 + at_ns {
        watch.check()?;
        sample(recorder, || Ok(clock::stamp()))?;
        let left = Duration::from_nanos((begin.0 + at_ns).saturating_sub(lab_now().0));
        std::thread::sleep(left.min(SAMPLE_EVERY));
    }
    recorder.cut("at an instant drawn from the seed")?;
    // Every call that still needs the disk fails now, and each stream stops at its first error.
    ask(Request::StopLoad)?;
    drop(load);
    collector.finish()?;
    // What is left in the kernel's memory cannot be written: that is the cut.
    let _ = mounted.unmount();
    Ok(cut)
}

/// As in a guest: the file system, and then the device, so that a flush stands behind the set-up
/// whatever the mount options are.
fn settle(root: &Path, device: &Path) -> Result<()> {
    rustix::fs::syncfs(File::open(root)?).context("cannot sync the file system")?;
    File::open(device)?.sync_all().with_context(|| format!("cannot sync {}", device.display()))
}

fn versions(fs: PlainFs, options: &TrialOptions) -> Result<Versions> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let [program, flag] = fs.version() else { bail!("{fs} has no tool that says its version") };
    let said = Command::new(program).arg(flag).output();
    let said = said.with_context(|| format!("cannot run {program} {flag}"))?;
    let text = [said.stdout, said.stderr].concat();
    let first = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned();
    Ok(Versions {
        plugpull: env!("CARGO_PKG_VERSION").to_owned(),
        qemu: "none".to_owned(),
        suite: options.suite,
        kernel: kernel.trim().to_owned(),
        stack: first,
        image_sha256: String::new(),
        full_root_sha256: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_cannot_or_must_not_run_is_refused_with_the_way_out() {
        let load = |name: &str| settings::load(name, &[]).expect("a built-in scenario");
        let refused = |name: &str| plain(&load(name)).expect_err("refused").to_string();
        assert!(refused("exec").contains("programs of its own"));
        assert!(refused("sqlite-ext4").contains("explore the run's folder"));
        assert!(refused("zfs-sync-disabled").contains("ZFS"));
        assert!(plain(&load("ext4")).is_ok(), "control");
        assert!(refuse_programs(&load("sqlite-ext4")).is_ok(), "its states can be looked at");
    }
}
