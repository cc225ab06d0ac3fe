//! Real power cuts of ext4, XFS and Btrfs without a pool: what holds on an honest stack, and what a
//! planted fault in the stack or in the writer violates.

use super::support::*;
use serde_json::Value;
use std::path::Path;
use tempfile::TempPath;

/// Verdicts on consistent, intact, durable of `data` and durable of `config`.
fn verdicts(trial: &Trial) -> [&str; 4] {
    [
        trial.verdict("consistent"),
        trial.verdict("intact"),
        trial.verdict_on("durable", "data"),
        trial.verdict_on("durable", "config"),
    ]
}

const HELD: [&str; 4] = ["held"; 4];

/// The scenario `ext4` with mount options, and perhaps a fault of the stream that replaces its file.
fn ext4(options: &str, fault: &str) -> TempPath {
    varied_scenario("ext4", |text| {
        let text = text
            .replace("mount_options = \"\"", &format!("mount_options = \"{options}\""))
            .replace("size_mib = 256", "size_mib = 128");
        text.replace("[dataset.config]\n", &format!("[dataset.config]\n{fault}"))
    })
}

#[test]
fn guest_plain_file_systems_keep_their_claims_on_an_honest_disk() {
    let _alone = alone();
    for (seed, name) in (1..).zip(["ext4", "xfs", "btrfs"]) {
        let trial = Trial::run_scenario(Path::new(name), &[], seed);
        assert_eq!((verdicts(&trial), trial.exit_code()), (HELD, 0), "{trial}");
        for dataset in ["data", "config"] {
            assert_eq!(trial.outcomes(dataset, &[LOSS, DAMAGE].concat()), 0, "{trial}");
        }
        assert!(trial.because("consistent").contains("nothing found"), "{trial}");
        assert_eq!(trial.json["pool"], Value::Null);
    }
}

#[test]
fn guest_ext4_without_barriers_loses_what_it_acknowledged() {
    let _alone = alone();
    let options = ["--set", "stack.mount_options=barrier=0"];
    let trial = Trial::run_scenario(Path::new("ext4"), &options, 2);
    assert_eq!(verdicts(&trial)[2..], ["violated"; 2], "{trial}");
    assert!(trial.outcomes("data", &["lost-though-durable"]) > 0, "{trial}");
    assert_eq!(trial.exit_code(), 1);
}

#[test]
fn guest_a_rename_without_fsync_leaves_an_empty_file_where_nothing_else_forces_it() {
    let _alone = alone();
    let options = "data=writeback,noauto_da_alloc";
    let faulty = ext4(options, "fault = \"rename-without-fsync\"\n");
    let trial = Trial::run_scenario(&faulty, &[], 3);
    assert_eq!(verdicts(&trial), ["held", "violated", "held", "violated"], "{trial}");
    let findings = trial.claim("intact")["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{trial}");
    assert_eq!(findings[0]["outcome"], "hole");
    assert!(trial.outcomes("config", &["lost-though-durable"]) > 0, "{trial}");
    let control = Trial::run_scenario(&ext4(options, ""), &[], 3);
    assert_eq!(verdicts(&control), HELD, "{control}");
}

/// Paced, and alone on its file system: nobody else's fsync commits the journal for it.
fn alone_on_ext4(fault: &str) -> TempPath {
    varied_scenario("ext4", |text| {
        let from = text.find("[dataset.data]").unwrap();
        let until = text.find("[dataset.config]").unwrap();
        let claim = text.find("[[claim]]\nkind = \"durable\"\ndataset = \"data\"").unwrap();
        let last = text.find("[[claim]]\nkind = \"durable\"\ndataset = \"config\"").unwrap();
        let text = [&text[..from], &text[until..claim], &text[last..]].concat();
        text.replace("pattern = \"replace\"\n", "pattern = \"replace\"\npace_hz = 2\n")
            .replace("[dataset.config]\n", &format!("[dataset.config]\n{fault}"))
    })
}

#[test]
fn guest_a_rename_whose_folder_was_not_forced_is_gone() {
    let _alone = alone();
    let faulty = alone_on_ext4("fault = \"no-directory-fsync\"\n");
    let trial = Trial::run_scenario(&faulty, &[], 4);
    assert_eq!(trial.verdict("durable"), "violated", "{trial}");
    assert_eq!(trial.outcomes("config", &["lost-though-durable"]), 1, "{trial}");
    assert_eq!(trial.outcomes("config", DAMAGE), 0, "the older version is whole: {trial}");
    let control = Trial::run_scenario(&alone_on_ext4(""), &[], 4);
    assert_eq!((control.verdict("durable"), control.exit_code()), ("held", 0), "{control}");
}

#[test]
fn guest_a_cache_that_passes_no_flush_on_is_not_measured() {
    let _alone = alone();
    let cache = ["--set", "disk.cache=unsafe"];
    let trial = Trial::run_scenario(Path::new("ext4"), &cache, 5);
    assert_eq!(verdicts(&trial), ["not-measured"; 4], "{trial}");
    assert!(trial.because("durable").contains("no flush stands behind the set-up"), "{trial}");
    assert_eq!(trial.exit_code(), 3);
}
