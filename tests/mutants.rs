//! The kill table of a few faults on this machine's own kernel. Needs root, FUSE, loop devices and
//! the file systems; without one of them the tests fail and say so.

use serde_json::Value;
use std::process::{Command, Output};

fn mutants(arguments: &[&str]) -> Output {
    let runs = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plugpull"));
    command.args(["mutants", "--host-only", "--runs"]).arg(runs.path()).args(arguments);
    command.output().unwrap()
}

fn table(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = mutants(arguments);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let json =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {words}"));
    (json, output.status.code())
}

#[test]
fn faults_of_disk_writer_and_evidence_are_caught_as_was_named_in_advance() {
    let names = "flush-ignored,write-lost,ack-before-fsync,trace-cut-short";
    let (table, code) = table(&["--only", names, "--controls", "0", "--json"]);
    assert_eq!((table["exit_code"].as_i64(), code), (Some(0), Some(0)), "{table:#}");
    let rows = table["mutants"].as_array().unwrap();
    let named: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(named.join(","), names);
    let caught = |row: usize, model: &str| rows[row]["cells"][model]["caught"].as_u64();
    for (row, class) in ["lost-though-durable", "stale", "lost-though-durable"].iter().enumerate() {
        assert_eq!(rows[row]["class"], *class);
        assert!(caught(row, "drop-unflushed") > Some(0), "{:#}", rows[row]);
    }
    assert_eq!(caught(0, "keep-all"), Some(0), "keep-all counts no flush");
    assert!(caught(1, "keep-all") > Some(0), "a write that is lost is lost under every model");
    assert_eq!(rows[3]["class"], "ends: not measured");
    assert_eq!(caught(3, "drop-unflushed"), Some(1));
    assert_eq!(rows[3]["cells"].as_object().unwrap().len(), 1, "the others were not tried");
}

#[test]
fn controls_raise_no_alarm_and_what_was_left_out_is_told_by_the_exit_code() {
    let (table, code) = table(&["--only", "zeroed,zfs-nocacheflush", "--controls", "20", "--json"]);
    assert_eq!(code, Some(3), "{table:#}");
    assert_eq!(table["mutants"][0]["skipped"], false);
    assert_eq!(table["mutants"][1]["skipped"], true, "a pool needs a guest");
    let controls = table["controls"].as_array().unwrap();
    let held: u64 = controls.iter().filter_map(|row| row["held"].as_u64()).sum();
    assert!(held >= 20, "{table:#}");
    assert!(controls.iter().all(|row| row["alarms"].as_array().unwrap().is_empty()), "{table:#}");
    let scenarios: Vec<&str> = controls.iter().filter_map(|row| row["scenario"].as_str()).collect();
    assert_eq!(scenarios, ["ext4", "btrfs", "xfs", "zfs-sync-disabled"]);
    assert!(controls[3]["skipped"].as_str().unwrap().contains("guest"));
}

#[test]
fn an_unknown_fault_is_refused_and_the_known_ones_are_listed() {
    let output = mutants(&["--only", "nosuch"]);
    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("nosuch") && words.contains("torn-4096"), "{words}");
    let listed = mutants(&["--list"]);
    assert_eq!(listed.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&listed.stdout).lines().count() >= 24);
}
