//! Explorations of real recordings, on this machine's own kernel (root) and in a guest.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// One at a time: two on few cores only disturb each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plugpull(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plugpull"));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    plugpull(words).output().expect("the tool")
}

/// A finished exploration and where its runs are.
struct Explored {
    json: Value,
    code: i32,
    runs: TempDir,
}

impl Explored {
    fn new(words: &[&str]) -> Explored {
        let runs = tempfile::tempdir().expect("a folder");
        let place = runs.path().to_str().expect("a path").to_owned();
        let (json, code) = explore(&[words, &["--runs", &place]].concat());
        Explored { json, code, runs }
    }

    /// The folder of the recorded run.
    fn run(&self) -> PathBuf {
        let mut entries = std::fs::read_dir(self.runs.path()).expect("a folder");
        entries.next().expect("a run").expect("a run").path()
    }
}

fn explore(words: &[&str]) -> (Value, i32) {
    let output = run(&[&["explore", "--json"], words].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|why| panic!("no JSON document ({why}): {errors}"));
    (json, output.status.code().expect("it ended by itself"))
}

fn claim<'j>(json: &'j Value, kind: &str, dataset: Option<&str>) -> &'j Value {
    let claims = json["claims"].as_array().expect("claims");
    let found = claims.iter().find(|claim| {
        claim["kind"] == kind && dataset.is_none_or(|dataset| claim["dataset"] == dataset)
    });
    found.unwrap_or_else(|| panic!("no claim {kind}: {json:#}"))
}

fn verdicts(json: &Value) -> BTreeSet<&str> {
    let claims = json["claims"].as_array().expect("claims");
    claims.iter().filter_map(|claim| claim["verdict"].as_str()).collect()
}

#[test]
fn every_state_of_an_honest_ext4_holds_and_the_loss_is_none_at_every_instant() {
    let _alone = alone();
    let words = ["ext4", "--in", "host", "--seed", "3", "--load-seconds", "0.5"];
    let explored = Explored::new(&[&words[..], &["--budget", "none"]].concat());
    let json = &explored.json;
    assert_eq!((verdicts(json), explored.code), (BTreeSet::from(["held"]), 0), "{json:#}");
    let states = &json["states"];
    assert!(states["planned"].as_u64() > Some(20), "{states}");
    assert_eq!(states["planned"], states["known"]);
    for dataset in ["data", "config"] {
        let curve = &json["curves"][dataset];
        assert_eq!(curve["maximum_s"]["hi"], 0.0, "{curve}");
        assert_eq!(curve["unknown_s"], 0.0, "{curve}");
    }
    let folder = explored.run().join("explore-drop-unflushed-every");
    let chart = std::fs::read_to_string(folder.join("loss-curve.svg")).expect("a chart");
    assert!(chart.starts_with("<svg") && chart.contains("data"), "{chart}");
}

#[test]
fn a_file_system_without_barriers_violates_durable_unless_only_a_vm_was_killed() {
    let _alone = alone();
    let words = ["ext4", "--in", "host", "--seed", "3", "--load-seconds", "0.5"];
    let barrier = ["--set", "stack.mount_options=barrier=0", "--cuts", "sample:40"];
    let explored = Explored::new(&[&words[..], &barrier].concat());
    let durable = claim(&explored.json, "durable", Some("data"));
    assert_eq!(durable["verdict"], "violated", "{durable:#}");
    assert_eq!(explored.code, 1);
    assert!(durable["first"]["index"].is_u64(), "the state is named: {durable:#}");

    let run = explored.run();
    let run = run.to_str().expect("a path");
    let (json, _) =
        explore(&[run, "--in", "host", "--crash-model", "keep-all", "--cuts", "sample:40"]);
    assert_eq!(claim(&json, "consistent", None)["verdict"], "held", "{json:#}");
    assert_eq!(claim(&json, "durable", Some("data"))["violated"], 0, "{json:#}");
}

#[test]
fn chance_and_a_second_cut_during_recovery_leave_an_honest_ext4_whole() {
    let _alone = alone();
    let words = ["ext4", "--in", "host", "--seed", "5", "--load-seconds", "0.5"];
    let some = ["--cuts", "sample:12", "--recovery-cuts", "2"];
    let explored = Explored::new(&[&words[..], &some].concat());
    assert_eq!(verdicts(&explored.json), BTreeSet::from(["held"]), "{:#}", explored.json);
    let again = explored.json["states"]["recovery_cuts"].as_u64();
    assert!(again > Some(12), "{again:?}");
    let run = explored.run();
    let run = run.to_str().expect("a path");
    for model in ["subset", "torn"] {
        let (json, _) = explore(&[run, "--in", "host", "--crash-model", model, "--budget", "8s"]);
        assert_eq!(claim(&json, "consistent", None)["violated"], 0, "{model}: {json:#}");
        assert_eq!(claim(&json, "durable", Some("data"))["violated"], 0, "{model}: {json:#}");
        assert!(json["states"]["known"].as_u64() > Some(20), "{model}: {json:#}");
    }
}

#[test]
fn an_exploration_that_was_killed_goes_on_where_it_was() {
    let _alone = alone();
    let words = ["ext4", "--in", "host", "--seed", "9", "--load-seconds", "1"];
    let none = Explored::new(&[&words[..], &["--budget", "0s"]].concat());
    assert_eq!((none.code, &none.json["states"]["known"]), (3, &Value::from(0)));
    let run = none.run();
    let place = run.to_str().expect("a path").to_owned();
    let lines = run.join("explore-drop-unflushed-every/states.jsonl");
    let known = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter(|line| line.ends_with('}')).count()
    };
    for _ in 0..3 {
        let before = known(&lines);
        let mut child = plugpull(&["explore", &place, "--in", "host"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the tool");
        while known(&lines) < before + 5 && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().expect("killed");
        child.wait().expect("an end");
    }
    let (json, code) = explore(&[&place, "--in", "host", "--budget", "none"]);
    assert_eq!((verdicts(&json), code), (BTreeSet::from(["held"]), 0), "{json:#}");
    let text = std::fs::read_to_string(&lines).expect("lines");
    let outcome = |line: &str| serde_json::from_str::<Value>(line).expect(line);
    let indices: Vec<u64> =
        text.lines().filter_map(|line| outcome(line)["index"].as_u64()).collect();
    let each: BTreeSet<u64> = indices.iter().copied().collect();
    assert_eq!(each.len() as u64, json["states"]["planned"].as_u64().expect("a number"));
    assert_eq!(indices.len(), each.len(), "no state was looked at twice");
}

/// What the lab's own disk cannot show is nothing of the state: an honest one was called violated when
/// the scratch folder was full, and stayed so.
#[test]
fn a_full_scratch_folder_is_an_error_and_no_state_s_fault() {
    let _alone = alone();
    let words = ["ext4", "--in", "host", "--seed", "3", "--load-seconds", "0.5"];
    let recorded = Explored::new(&[&words[..], &["--budget", "0s"]].concat());
    let run_folder = recorded.run();
    let place = run_folder.to_str().expect("a path");
    // A file system of its own over the scratch folders, for this process alone.
    let script =
        "mount -t tmpfs -o size=24k,mode=700 none \"/tmp/plugpull-$(id -u)\" && exec \"$@\"";
    let tool = env!("CARGO_BIN_EXE_plugpull");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", tool, "explore", place])
        .args(["--in", "host", "--cuts", "sample:20", "--workers", "1"])
        .output()
        .expect("unshare");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("No space left"), "{errors}");
    let lines = run_folder.join("explore-drop-unflushed-sample-20/states.jsonl");
    let kept = std::fs::read_to_string(&lines).unwrap_or_default();
    assert!(!kept.contains("\"violated\""), "{kept}");
    let (json, code) = explore(&[place, "--in", "host", "--cuts", "sample:20"]);
    let verdict = |kind, dataset| claim(&json, kind, dataset)["verdict"].clone();
    assert_eq!(verdict("consistent", None), "held", "{json:#}");
    assert_eq!((verdict("durable", Some("data")), code), ("held".into(), 0), "{json:#}");
}

#[test]
fn outcomes_of_other_claims_or_of_no_state_of_the_list_are_not_taken_up() {
    let _alone = alone();
    let words = ["ext4", "--in", "host", "--seed", "3", "--load-seconds", "0.5"];
    let explored = Explored::new(&[&words[..], &["--cuts", "sample:4"]].concat());
    let run_folder = explored.run();
    let again = ["explore", run_folder.to_str().expect("a path"), "--in", "host"];
    let again = || run(&[&again[..], &["--cuts", "sample:4"]].concat());
    assert_eq!(again().status.code(), Some(0), "control");
    let refused = |path: &Path, change: fn(&str) -> String, said: &str| {
        let text = std::fs::read_to_string(path).expect("a file");
        let changed = change(&text);
        assert_ne!(changed, text);
        std::fs::write(path, changed).expect("changed");
        let output = again();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{errors}");
        std::fs::write(path, text).expect("as before");
    };
    let lines = run_folder.join("explore-drop-unflushed-sample-4/states.jsonl");
    let no_claims = |text: &str| {
        let mut line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        line["claims"] = Value::Array(Vec::new());
        format!("{line}\n")
    };
    refused(&lines, no_claims, "not of this list");
    refused(&lines, |text| text.replacen("\"index\":0", "\"index\":99999", 1), "not of this list");
    let other_claim = |text: &str| text.replacen("\"intact\"", "\"consistent\"", 1);
    refused(&run_folder.join("facts.json"), other_claim, "belongs to another exploration");
    assert_eq!(again().status.code(), Some(0), "control");
}

#[test]
fn a_trace_that_goes_out_as_a_dm_log_writes_log_and_comes_back_has_the_same_states() {
    let _alone = alone();
    let words = ["ext4", "--in", "host", "--seed", "3", "--load-seconds", "0.5"];
    let recorded = Explored::new(&[&words[..], &["--budget", "0s"]].concat());
    let run_folder = recorded.run();
    let log = recorded.runs.path().join("a.log");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let done = run(&["log", "export", &path(&run_folder), &path(&log)]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let import = |words: &[&str]| {
        let runs = tempfile::tempdir().expect("a folder");
        let (log, place) = (path(&log), path(runs.path()));
        let done = run(&[&["log", "import", &log, "--runs", &place], words].concat());
        (done, runs)
    };
    let (done, runs) = import(&["--fs", "ext4", "--begins", "load-begins"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let folder = std::fs::read_dir(runs.path()).expect("a folder").next().expect("a run");
    let folder = path(&folder.expect("a run").path());
    let (json, code) = explore(&[&folder, "--in", "host", "--cuts", "sample:30"]);
    let held = claim(&json, "consistent", None);
    assert_eq!((&held["held"], &held["verdict"], code), (&30.into(), &"held".into(), 0));
    let (json, _) = explore(&[&folder, "--in", "host", "--cuts", "after-ack:5"]);
    assert_eq!(json["states"]["planned"], 5, "acks are marks: {json:#}");

    for (words, said) in [
        (&["--fs", "ext4", "--begins", "nope"][..], "it has [\"set-up-written\", \"load-begins\"]"),
        (&["--fs", "xfs"], "is not within 300"),
    ] {
        let (done, runs) = import(words);
        let errors = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{errors}");
        assert_eq!(std::fs::read_dir(runs.path()).expect("a folder").count(), 0, "nothing stays");
    }
}

#[test]
fn guest_s_states_of_zfs_are_consistent_and_the_customer_s_loss_follows_its_groups() {
    let _alone = alone();
    let words = ["--seed", "4", "--load-seconds", "4", "--set", "stack.txg_timeout_s=1"];
    let explored = Explored::new(&[&words[..], &["--cuts", "sample:5"]].concat());
    let json = &explored.json;
    assert_eq!(claim(json, "consistent", None)["verdict"], "held", "{json:#}");
    for kind in ["consistent", "intact", "point-in-time", "durable"] {
        let claim = claim(json, kind, None);
        assert_eq!(
            (&claim["violated"], &claim["harness_broken"]),
            (&0.into(), &0.into()),
            "{json:#}"
        );
    }
    assert_eq!(json["cost"]["starts"], 1, "one guest looked at all of them");
    let customer = &json["curves"]["customer"];
    let largest = customer["maximum_s"]["hi"].as_f64().expect("a curve");
    assert!((0.5..6.0).contains(&largest), "{customer}");
    assert_eq!(json["curves"]["billing"]["maximum_s"]["hi"], 0.0, "{json:#}");
}

#[test]
fn guest_s_real_cut_leaves_what_the_trace_says() {
    let _alone = alone();
    let runs = tempfile::tempdir().expect("a folder");
    let place = runs.path().to_str().expect("a path");
    let words = ["agree", "--json", "--count", "1", "--seed", "6", "--load-seconds", "4"];
    let short = ["--set", "stack.txg_timeout_s=1", "--runs", place];
    let output = run(&[&words[..], &short].concat());
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|why| panic!("{why}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!((&json["agreeing"], output.status.code()), (&1.into(), Some(0)), "{json:#}");
    assert!(json["cuts"][0]["records"].as_u64() > Some(1024), "{json:#}");
    assert_eq!(json["cuts"][0]["predicted_streams"], 4, "{json:#}");
}

#[test]
fn what_cannot_be_explored_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("a path");
    let cases: [(&[&str], &str); 5] = [
        (&["explore", place], "facts.json"),
        (&["explore", "--in", "host", "--runs", place], "leave out `--in host`"),
        (&["explore", "ext4", "--in", "host", "--runs", place, "--cuts", "seeds:0"], "seeds:N"),
        (&["explore", "ext4", "--budget", "soon"], "90s"),
        (&["explore", "no-such-scenario"], "no-such-scenario"),
    ];
    for (words, said) in cases {
        let output = run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.contains(said), "{words:?}: {errors}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
