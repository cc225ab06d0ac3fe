//! The run folder: everything a trial leaves behind.

use super::facts::RunFacts;
use super::inspect::Observation;
use super::report::TrialReport;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A run's folder and the files in it.
#[derive(Debug, Clone)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// Makes a new folder under `runs`: the next number, the scenario and the seed.
    pub fn create(runs: &Path, scenario: &str, seed: u64) -> io::Result<RunDir> {
        fs::create_dir_all(runs)?;
        let mut number = newest(runs)? + 1;
        loop {
            let path = runs.join(format!("{number:04}-{scenario}-seed-{seed}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(RunDir(path)),
                // Another trial took this number just now.
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(why) => return Err(why),
            }
        }
    }

    /// Whether runs can be kept under `runs`, which is made if missing: better known before a guest
    /// is built than after.
    pub fn check(runs: &Path) -> io::Result<()> {
        fs::create_dir_all(runs)?;
        tempfile::tempfile_in(runs).map(drop)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The trace of the load up to the cut.
    pub fn trace(&self) -> PathBuf {
        self.0.join("trace")
    }

    /// The trace of what recovery did to the crash state.
    pub fn recovery_trace(&self) -> PathBuf {
        self.0.join("recovery-trace")
    }

    /// The console of the guest that lost power.
    pub fn console(&self) -> PathBuf {
        self.0.join("console.log")
    }

    /// The console of the guest that looked at the crash state.
    pub fn recovery_console(&self) -> PathBuf {
        self.0.join("recovery-console.log")
    }

    /// What the run's verdicts rest on beside the trace and what was found.
    pub fn facts(&self) -> PathBuf {
        self.0.join("facts.json")
    }

    /// What the file system's tools said of the crash state.
    pub fn recovery(&self) -> PathBuf {
        self.0.join("recovery.json")
    }

    /// What was read back from it.
    pub fn observed(&self) -> PathBuf {
        self.0.join("observed")
    }

    /// Takes an existing run's folder.
    pub fn open(path: &Path) -> RunDir {
        RunDir(path.to_owned())
    }

    /// Writes what was found in the crash state.
    pub fn write_observation(&self, observation: &Observation) -> io::Result<()> {
        let recovery = serde_json::to_string_pretty(&observation.recovery)?;
        self.put("recovery.json", recovery.as_bytes())?;
        self.put("observed", &observation.to_bytes()?)
    }

    /// Writes the run's facts.
    pub fn write_facts(&self, facts: &RunFacts) -> io::Result<()> {
        self.put("facts.json", serde_json::to_string_pretty(facts)?.as_bytes())
    }

    /// Writes trial.json and report.md, each whole or not at all.
    pub fn write_report(&self, report: &TrialReport, markdown: &str) -> io::Result<()> {
        let json = serde_json::to_string_pretty(report)?;
        self.put("trial.json", format!("{json}\n").as_bytes())?;
        self.put("report.md", markdown.as_bytes())
    }

    /// Writes what a trial is about to do, so that a folder without a result still says so.
    pub fn write_plan(&self, json: &serde_json::Value) -> io::Result<()> {
        self.put("plan.json", format!("{json:#}\n").as_bytes())
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let half = self.0.join(format!(".{name}.new"));
        fs::write(&half, bytes)?;
        fs::rename(half, self.0.join(name))
    }
}

/// The highest number of a run in this folder; 0 if there is none.
fn newest(runs: &Path) -> io::Result<u64> {
    let number = |entry: io::Result<fs::DirEntry>| -> Option<u64> {
        entry.ok()?.file_name().to_str()?.split_once('-')?.0.parse().ok()
    };
    Ok(fs::read_dir(runs)?.filter_map(number).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_numbered_and_never_share_a_folder() {
        let runs = tempfile::tempdir().unwrap();
        let name = |dir: &RunDir| dir.path().file_name().unwrap().to_str().unwrap().to_owned();
        let first = RunDir::create(runs.path(), "x", 1).unwrap();
        let second = RunDir::create(runs.path(), "x", 1).unwrap();
        assert_eq!(name(&first), "0001-x-seed-1");
        assert_eq!(name(&second), "0002-x-seed-1");
    }
}
