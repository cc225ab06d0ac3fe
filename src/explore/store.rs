//! An exploration's folder: each outcome is kept when it is known, so that it can go on later.
//!
//! What always holds: a line of states.jsonl is whole, or it is the last one and is left out; and
//! outcomes of one list of states are never mixed with those of another.

use super::report::ExploreReport;
use super::state::StateOutcome;
use crate::trial::inspect::Observation;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of the files in the folder.
pub const FORMAT: u32 = 1;

/// What the outcomes belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFile {
    /// Version of the files.
    pub format: u32,
    /// The crash model.
    pub model: String,
    /// Which states.
    pub which: String,
    /// How many.
    pub states: u32,
    /// Second cuts in the recovery from each.
    pub recovery_cuts: u32,
    /// SHA-256 of the trace.
    pub trace_sha256: String,
    /// SHA-256 of what is judged, and of the list: scenario with its claims, plan, planned cuts.
    pub judged_sha256: String,
    /// The tool: another version may judge otherwise.
    pub plugpull: String,
    /// Whose kernel looks.
    pub place: String,
}

/// Why outcomes cannot be kept, or read again.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder holds another exploration.
    #[error(
        "{} belongs to another exploration (other states, claims or trace, another kernel, or another \
         version of the tool); remove the folder to begin again",
        path.display()
    )]
    Other {
        /// Its plan.
        path: PathBuf,
    },
    /// A line before the last is no outcome.
    #[error("line {line} of {} is no outcome of a state: {why}; remove it to have it looked at again", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        why: serde_json::Error,
    },
    /// An outcome that is of no state of the list.
    #[error("{}: the outcome of state {index} is not of this list of states; remove the folder to begin again", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it says of itself.
        index: u32,
    },
    /// Another exploration of the same states is running.
    #[error("{} is being explored by another process", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
}

/// The folder, held by this process alone.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    states: File,
    /// Holds the lock.
    _plan: nix::fcntl::Flock<File>,
}

impl Store {
    /// Makes the folder, or takes up what it holds.
    pub fn open(path: &Path, plan: &PlanFile) -> Result<(Store, Vec<StateOutcome>), StoreError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::File { what, path, source }
        };
        fs::create_dir_all(path).map_err(failed("make the folder", path))?;
        let place = path.join("plan.json");
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&place);
        let file = open.map_err(failed("open", &place))?;
        let kind = nix::fcntl::FlockArg::LockExclusiveNonblock;
        let locked = nix::fcntl::Flock::lock(file, kind)
            .map_err(|_| StoreError::InUse { path: path.to_owned() })?;
        let text = fs::read_to_string(&place).map_err(failed("read", &place))?;
        if text.is_empty() {
            let json = serde_json::to_string_pretty(plan).unwrap_or_default();
            fs::write(&place, json).map_err(failed("write", &place))?;
        } else if serde_json::from_str::<PlanFile>(&text).ok().as_ref() != Some(plan) {
            return Err(StoreError::Other { path: place });
        }
        let lines = path.join("states.jsonl");
        let (outcomes, whole_bytes) = read_lines(&lines)?;
        let states = File::options().append(true).create(true).open(&lines);
        let states = states.map_err(failed("open", &lines))?;
        // What a killed tool wrote of a line goes, or the next one would be behind it.
        states.set_len(whole_bytes).map_err(failed("shorten", &lines))?;
        Ok((Store { path: path.to_owned(), states, _plan: locked }, outcomes))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps an outcome.
    pub fn keep(&mut self, outcome: &StateOutcome) -> Result<(), StoreError> {
        let path = self.path.join("states.jsonl");
        let write = || -> io::Result<()> {
            let mut line = serde_json::to_vec(outcome)?;
            line.push(b'\n');
            (&self.states).write_all(&line)
        };
        write().map_err(|source| StoreError::File { what: "write", path, source })
    }

    /// Keeps what was found in a state of which a claim was not held.
    pub fn keep_evidence(&self, name: &str, observed: &Observation) -> Result<(), StoreError> {
        let folder = self.path.join(name);
        let write = || -> io::Result<()> {
            fs::create_dir_all(&folder)?;
            let recovery = serde_json::to_vec_pretty(&observed.recovery)?;
            fs::write(folder.join("recovery.json"), recovery)?;
            fs::write(folder.join("observed"), observed.to_bytes()?)
        };
        write().map_err(|source| StoreError::File { what: "write in", path: folder, source })
    }

    /// Writes the report and its parts.
    pub fn write_report(
        &self,
        report: &ExploreReport,
        markdown: &str,
        chart: &str,
    ) -> Result<(), StoreError> {
        let json = serde_json::to_string_pretty(report).unwrap_or_default();
        let files = [("explore.json", &*json), ("report.md", markdown), ("loss-curve.svg", chart)];
        files.into_iter().try_for_each(|(name, text)| {
            let path = self.path.join(name);
            fs::write(&path, text).map_err(|source| StoreError::File {
                what: "write",
                path,
                source,
            })
        })
    }
}

/// The outcomes of a file, and the bytes of its whole lines.
fn read_lines(path: &Path) -> Result<(Vec<StateOutcome>, u64), StoreError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(source) => {
            return Err(StoreError::File { what: "read", path: path.to_owned(), source });
        }
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let outcomes = lines.enumerate().map(|(at, line)| {
        serde_json::from_slice(line).map_err(|why| StoreError::Line {
            path: path.to_owned(),
            line: at + 1,
            why,
        })
    });
    Ok((outcomes.collect::<Result<_, _>>()?, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::testing::{outcome, planned};
    use crate::verify::verdict::Verdict::Held;

    fn plan() -> PlanFile {
        PlanFile {
            format: FORMAT,
            model: "drop-unflushed".to_owned(),
            which: "every".to_owned(),
            states: 3,
            recovery_cuts: 0,
            trace_sha256: "00".to_owned(),
            judged_sha256: "00".to_owned(),
            plugpull: "0.1.0".to_owned(),
            place: "guest".to_owned(),
        }
    }

    fn outcomes() -> Vec<StateOutcome> {
        planned(3).iter().map(|place| outcome(place, [Held; 5], Some(1))).collect()
    }

    /// A folder in which these outcomes were kept.
    fn kept(outcomes: &[StateOutcome]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut store, before) = Store::open(folder.path(), &plan()).expect("a store");
        assert_eq!(before, []);
        outcomes.iter().try_for_each(|outcome| store.keep(outcome)).expect("kept");
        folder
    }

    #[test]
    fn a_tool_killed_at_any_byte_leaves_whole_outcomes_and_goes_on_behind_them() {
        let all = outcomes();
        let folder = kept(&all);
        let lines = folder.path().join("states.jsonl");
        let bytes = fs::read(&lines).expect("lines");
        for length in 0..bytes.len() {
            fs::write(&lines, &bytes[..length]).expect("shortened");
            let whole = bytes[..length].iter().filter(|byte| **byte == b'\n').count();
            let (mut store, before) = Store::open(folder.path(), &plan()).expect("a store");
            assert_eq!(before, all[..whole], "{length} bytes");
            store.keep(&all[whole]).expect("kept");
            drop(store);
            let (_, after) = Store::open(folder.path(), &plan()).expect("a store");
            assert_eq!(after, all[..=whole], "{length} bytes");
        }
    }

    #[test]
    fn another_list_of_states_a_second_process_and_a_damaged_line_are_refused() {
        let folder = kept(&outcomes());
        let other = PlanFile { trace_sha256: "01".to_owned(), ..plan() };
        let open = |plan: &PlanFile| Store::open(folder.path(), plan);
        let error = open(&other).expect_err("another trace").to_string();
        assert!(error.contains("plan.json") && error.contains("remove the folder"), "{error}");

        let (store, _) = open(&plan()).expect("a store");
        let error = open(&plan()).expect_err("in use").to_string();
        assert!(error.contains("by another process"), "{error}");
        drop(store);

        let lines = folder.path().join("states.jsonl");
        let text = fs::read_to_string(&lines).expect("lines").replacen("\"index\"", "\"inde\"", 1);
        fs::write(&lines, text).expect("damaged");
        let error = open(&plan()).expect_err("damaged").to_string();
        assert!(error.contains("line 1 of") && error.contains("states.jsonl"), "{error}");
    }
}
