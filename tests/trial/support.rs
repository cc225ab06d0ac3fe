//! Runs `plugpull trial` and reads what it says.

use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::{TempDir, TempPath};

/// Outcome classes of a place that is not whole.
pub const DAMAGE: &[&str] = &[
    "hole",
    "stale",
    "torn-at-transaction",
    "torn-in-sector",
    "misdirected",
    "foreign",
    "garbage",
    "unreadable",
];
/// Outcome classes of an acked operation that is gone.
pub const LOSS: &[&str] = &["lost-in-window", "lost-though-durable"];

/// One guest at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tool under test.
pub fn plugpull() -> Command {
    Command::new(env!("CARGO_BIN_EXE_plugpull"))
}

/// The default scenario with its text changed, in a file that goes with what is returned.
pub fn scenario_file(change: impl Fn(&str) -> String) -> TempPath {
    varied_scenario("zfs-sync-disabled", change)
}

/// The same with a scenario of the tool's own by name.
pub fn varied_scenario(name: &str, change: impl Fn(&str) -> String) -> TempPath {
    let text = std::fs::read_to_string(format!("workloads/{name}.toml")).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text, "the change must find what it changes");
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::io::Write::write_all(&mut file, changed.as_bytes()).unwrap();
    file.into_temp_path()
}

/// A finished trial, as its JSON document tells it.
pub struct Trial {
    /// The document on standard output.
    pub json: Value,
    code: Option<i32>,
    runs: TempDir,
}

impl Trial {
    /// Runs the default scenario.
    pub fn run(arguments: &[&str], seed: u64) -> Trial {
        Trial::run_scenario(Path::new("zfs-sync-disabled"), arguments, seed)
    }

    /// Runs the default scenario until its load did not stall. A busy host may stall an emulated
    /// guest, which the tool rightly calls not measured; that is tried again, twice at most.
    pub fn run_steady(arguments: &[&str], seed: u64) -> Trial {
        let stalled = |trial: &Trial| {
            trial.verdict("max-loss") == "not-measured"
                && trial.because("max-loss").contains("completed nothing for")
        };
        let trial = Trial::run(arguments, seed);
        let again = |trial: Trial| match stalled(&trial) {
            true => Trial::run(arguments, seed),
            false => trial,
        };
        again(again(trial))
    }

    /// Runs a scenario by name or path.
    pub fn run_scenario(scenario: &Path, arguments: &[&str], seed: u64) -> Trial {
        let runs = tempfile::tempdir().unwrap();
        let output = plugpull()
            .arg("trial")
            .arg(scenario)
            .args(["--json", "--seed", &seed.to_string()])
            .arg("--runs")
            .arg(runs.path())
            .args(arguments)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|why| panic!("no JSON document ({why}): {errors}"));
        Trial { json, code: output.status.code(), runs }
    }

    /// The run's folder.
    pub fn folder(&self) -> PathBuf {
        let mut entries = std::fs::read_dir(self.runs.path()).unwrap();
        entries.next().unwrap().unwrap().path()
    }

    /// The exit code, which must be the one that the document says.
    pub fn exit_code(&self) -> i32 {
        let code = self.code.expect("it ended by itself");
        assert_eq!(self.json["exit_code"], code, "{self}");
        code
    }

    fn claims(&self) -> &Vec<Value> {
        self.json["claims"].as_array().expect("claims")
    }

    /// The first claim of a kind.
    pub fn claim(&self, kind: &str) -> &Value {
        self.claims().iter().find(|claim| claim["kind"] == kind).expect(kind)
    }

    /// The verdict on the first claim of a kind.
    pub fn verdict(&self, kind: &str) -> &str {
        self.claim(kind)["verdict"].as_str().expect("a verdict")
    }

    /// The verdict on a claim about a dataset.
    pub fn verdict_on(&self, kind: &str, dataset: &str) -> &str {
        let matches = |claim: &&Value| claim["kind"] == kind && claim["dataset"] == dataset;
        self.claims().iter().find(matches).expect(kind)["verdict"].as_str().expect("a verdict")
    }

    /// Why a claim was judged as it was.
    pub fn because(&self, kind: &str) -> String {
        let because = self.claim(kind)["because"].as_array().expect("reasons");
        because.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
    }

    /// What became of a dataset.
    pub fn dataset(&self, name: &str) -> &Value {
        &self.json["datasets"][name]
    }

    /// Operations and places of a dataset in any of these classes.
    pub fn outcomes(&self, dataset: &str, classes: &[&str]) -> u64 {
        let outcomes = self.dataset(dataset)["outcomes"].as_object().expect("outcomes");
        classes.iter().filter_map(|class| outcomes.get(*class)?.as_u64()).sum()
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.json)
    }
}
