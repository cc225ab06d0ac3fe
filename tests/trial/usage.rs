//! Bad usage and bad input: exit code 2, and words that name the place and the way out.

use super::support::plugpull;

/// The words on standard error of a call that must end with exit code 2.
fn refused(arguments: &[&str]) -> String {
    let output = plugpull().args(arguments).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
    assert!(output.stdout.is_empty());
    words
}

#[test]
fn a_bad_scenario_or_setting_is_refused_before_anything_starts() {
    assert!(refused(&["trial", "nosuch"]).contains("zfs-sync-disabled"));
    assert!(refused(&["trial", "/nonexistent.toml"]).contains("/nonexistent.toml"));
    assert!(refused(&["trial", "--set", "billing.sync=maybe"]).contains("maybe"));
    assert!(refused(&["trial", "--set", "disk.flush_ms=-1"]).contains("disk.flush_ms"));
    assert!(refused(&["trial", "--load-seconds", "-3"]).contains("-3"));
    assert!(refused(&["trial", "--crash-model", "gentle"]).contains("drop-unflushed"));
    assert!(refused(&["trial", "--set", "cut.script=cut-nothing"]).contains("cut-qemu-kill"));
    assert!(refused(&["nosuch"]).contains("nosuch"));
}

#[test]
fn a_folder_that_is_no_run_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let words = refused(&["judge", folder.path().to_str().unwrap()]);
    assert!(words.contains("facts.json"), "{words}");
    std::fs::write(folder.path().join("facts.json"), "{}").unwrap();
    let words = refused(&["judge", folder.path().to_str().unwrap()]);
    assert!(words.contains("facts.json") && words.contains("missing field"), "{words}");
}

#[test]
fn every_command_explains_itself_and_the_scenarios_are_listed() {
    for arguments in [&["--help"][..], &["trial", "--help"], &["judge", "--help"]] {
        let output = plugpull().args(arguments).output().unwrap();
        assert!(output.status.success());
    }
    let output = plugpull().arg("scenarios").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("zfs-sync-disabled-full"), "{text}");
}
