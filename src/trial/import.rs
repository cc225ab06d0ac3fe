//! A run made of another tool's log: its crash states can be looked at, and whether each is
//! consistent can be judged. There is nothing of ours to read back in it.

use super::facts::{self, RunFacts};
use super::folder::RunDir;
use super::report::Versions;
use super::run::new_run_id;
use crate::cut::choose::CutPlan;
use crate::disk::DiskLog;
use crate::disk::log_writes::{self, Imported};
use crate::guest::Suite;
use crate::stack::scenario::{PlainFs, Scenario};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is imported, and where to.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// A dm-log-writes log.
    pub log: PathBuf,
    /// The file system that wrote it.
    pub fs: PlainFs,
    /// From which mark on its states are of interest; from the start without one.
    pub begins_at: Option<String>,
    /// The disk's size, which a kernel's log does not say.
    pub disk_bytes: Option<u64>,
    /// Under which folder the run's folder is made.
    pub runs: PathBuf,
}

/// Imports a log as a run that can be explored.
pub fn import(options: &ImportOptions) -> Result<(RunDir, Imported)> {
    let name = format!("imported-{}", options.fs);
    let folder = RunDir::create(&options.runs, &name, 0)
        .with_context(|| format!("cannot make a run folder under {}", options.runs.display()))?;
    let done = fill(options, &folder, &name);
    if done.is_err() {
        // Nothing half-made stays; the folder is this call's own.
        let _ = std::fs::remove_dir_all(folder.path());
    }
    Ok((folder, done?))
}

fn fill(options: &ImportOptions, folder: &RunDir, name: &str) -> Result<Imported> {
    let imported = log_writes::import(&options.log, &folder.trace(), options.disk_bytes)?;
    let log = DiskLog::read(&folder.trace(), |_, _| {})?;
    let begins_at = options.begins_at.clone();
    if let Some(mark) = &begins_at
        && log.mark(mark).is_none()
    {
        let marks: Vec<&str> = log.marks.iter().map(|mark| mark.name.as_str()).collect();
        anyhow::bail!("the log has no mark {mark:?}; it has {marks:?}");
    }
    let scenario = scenario(options, name, imported.disk_bytes)?;
    let mut plan = scenario.plan(new_run_id(), 0);
    plan.run = log.header.run;
    let mut facts = RunFacts {
        format: facts::FORMAT,
        sha256: BTreeMap::new(),
        seed: 0,
        asked: options.log.display().to_string(),
        sets: Vec::new(),
        scenario,
        plan,
        versions: Versions {
            plugpull: env!("CARGO_PKG_VERSION").to_owned(),
            qemu: "unknown".to_owned(),
            suite: Suite::default(),
            kernel: "unknown".to_owned(),
            stack: "unknown".to_owned(),
            image_sha256: String::new(),
            full_root_sha256: None,
        },
        acceleration: None,
        limits: None,
        cut: CutPlan::Uniform { at_ns: 0 },
        power_off_s: 0.0,
        guest_cpu_slowdown: 1.0,
        begins_at,
        notes: vec![format!("imported from {}", options.log.display())],
        stages: Vec::new(),
    };
    facts.seal(folder)?;
    folder.write_facts(&facts).context("cannot keep the run's facts")?;
    Ok(imported)
}

/// A scenario without a load, whose only claim is that the file system stays consistent.
fn scenario(options: &ImportOptions, name: &str, disk_bytes: u64) -> Result<Scenario> {
    let text = format!(
        "name = {name:?}\n\
         tries = \"a log of another tool, state by state\"\n\
         guest = {{ memory_mib = 1024, cpus = 2 }}\n\
         disk = {{ size_mib = {} }}\n\
         stack = {{ kind = \"{}\" }}\n\
         dataset = {{}}\n\
         cut = {{ when = \"uniform\", script = \"cut-qemu-kill\", load_seconds = 1.0, \
                  crash_model = \"drop-unflushed\" }}\n\
         [[claim]]\n\
         kind = \"consistent\"\n\
         says = \"The file system always stays consistent.\"\n",
        disk_bytes.div_ceil(1 << 20),
        options.fs
    );
    let scenario: Scenario = toml::from_str(&text).context("an imported log's scenario")?;
    scenario.check().with_context(|| fs_needs(&options.log))?;
    Ok(scenario)
}

fn fs_needs(log: &Path) -> String {
    format!("the disk of {} is not one that this file system can be on", log.display())
}
