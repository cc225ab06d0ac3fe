//! Databases and programs in a real guest: what the verdicts say of a real cut, and that a database
//! that forces nothing to disk is caught.

use serde_json::Value;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// One guest at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The JSON document of a call.
fn plugpull(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_plugpull")).args(arguments).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| {
        panic!("no JSON document ({why}): {}", String::from_utf8_lossy(&output.stderr))
    })
}

/// The JSON document of a trial, and its folder.
fn trial(scenario: &str, arguments: &[&str]) -> (Value, TempDir) {
    let runs = tempfile::tempdir().unwrap();
    let place = runs.path().display().to_string();
    let words = ["trial", scenario, "--json", "--seed", "11", "--runs", &place];
    (plugpull(&[&words, arguments].concat()), runs)
}

/// The verdict on a claim, with why.
fn verdict<'t>(trial: &'t Value, kind: &str, dataset: Option<&str>) -> (&'t str, String) {
    let mut claims = trial["claims"].as_array().unwrap().iter();
    let wanted = |claim: &&Value| claim["kind"] == kind && claim["dataset"].as_str() == dataset;
    let claim = claims.find(wanted).expect(kind);
    (claim["verdict"].as_str().unwrap(), claim["because"].to_string())
}

#[test]
fn guest_databases_are_a_prefix_after_a_cut_and_one_that_forces_nothing_is_caught() {
    let _alone = alone();
    let (control, runs) = trial("sqlite-ext4", &[]);
    for (kind, dataset) in [
        ("consistent", None),
        ("intact", None),
        ("prefix", Some("kept")),
        ("durable", Some("kept")),
        ("prefix", Some("recent")),
    ] {
        let (verdict, because) = verdict(&control, kind, dataset);
        assert_eq!(verdict, "held", "{kind} {dataset:?}: {because}");
    }
    let run = std::fs::read_dir(runs.path()).unwrap().next().unwrap().unwrap().path();
    let run = run.display().to_string();
    let words = ["explore", &run, "--in", "host", "--budget", "none", "--json"];
    let explored = plugpull(&words);
    assert_ne!(explored["verdict"], "violated", "{:#}", explored["claims"]);
    let (durable, because) = verdict(&explored, "durable", Some("kept"));
    assert_eq!(durable, "held", "this machine's kernel sees the same states: {because}");

    let (unsynced, _runs) = trial("sqlite-ext4", &["--set", "kept.fault=no-sync"]);
    let (caught, because) = verdict(&unsynced, "durable", Some("kept"));
    assert_eq!(caught, "violated", "{because}");
    let lost = &unsynced["datasets"]["kept"]["outcomes"]["lost-though-durable"];
    assert!(lost.as_u64().unwrap() > 0, "{unsynced:#}");
}

#[test]
fn guest_a_program_of_the_users_own_is_judged_by_what_it_says() {
    let _alone = alone();
    let (exec, _runs) = trial("exec", &[]);
    for (kind, dataset) in [("prefix", "customer"), ("prefix", "billing"), ("durable", "billing")] {
        let (verdict, because) = verdict(&exec, kind, Some(dataset));
        assert_eq!(verdict, "held", "{kind} {dataset}: {because}");
    }
}
