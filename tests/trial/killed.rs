//! What is left when the tool is killed or interrupted in the middle of a trial: nothing that runs,
//! and a folder that can be read.

use super::support::{alone, plugpull};
use plugpull::disk::DiskLog;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Starts a trial and returns when its load runs.
fn trial_under_load(runs: &Path) -> Child {
    let mut child = plugpull()
        .args(["trial", "--seed", "41", "--load-seconds", "30", "--runs"])
        .arg(runs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    if !lines.any(|line| line.contains("] load ")) {
        panic!("the load never began: {:?}", child.wait());
    }
    // The rest is read, for a pipe that nobody reads would stop the tool.
    std::thread::spawn(move || lines.for_each(drop));
    // What the disk records stays in memory for some milliseconds.
    std::thread::sleep(Duration::from_secs(2));
    child
}

/// Processes of QEMU whose command line names a folder of this owner.
fn qemus_of(owner: u32) -> Vec<u32> {
    let marker = format!("/plugpull-{}/{owner}-", nix::unistd::Uid::effective());
    let works_there = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&marker))
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(works_there).collect()
}

/// The short-lived folders of this owner.
fn folders_of(owner: u32) -> Vec<PathBuf> {
    let parent = format!("/tmp/plugpull-{}", nix::unistd::Uid::effective());
    let entries = std::fs::read_dir(parent).unwrap().flatten();
    let of_owner = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&format!("{owner}-")))
    };
    entries.map(|entry| entry.path()).filter(of_owner).collect()
}

fn wait_until(what: &str, limit_s: u64, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(limit_s);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {limit_s} s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn only_run(runs: &Path) -> PathBuf {
    std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn guest_a_killed_trial_leaves_no_process_and_a_readable_trace_and_is_swept() {
    let _alone = alone();
    let runs = tempfile::tempdir().unwrap();
    let mut child = trial_under_load(runs.path());
    let owner = child.id();
    assert_eq!(qemus_of(owner).len(), 1, "the guest runs");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("its QEMU is gone", 20, || qemus_of(owner).is_empty());

    let run = only_run(runs.path());
    let log = DiskLog::read(&run.join("trace"), |_, _| {}).unwrap();
    assert!(log.mark("load-begins").is_some() && log.cut.is_none());
    assert!(log.requests.len() > 100, "{} requests", log.requests.len());

    let judged = plugpull().arg("judge").arg(&run).output().unwrap();
    let words = String::from_utf8_lossy(&judged.stderr);
    assert_eq!(judged.status.code(), Some(2), "{words}");
    assert!(words.contains("facts.json") && words.contains("finished run"), "{words}");

    assert!(!folders_of(owner).is_empty(), "a killed tool cannot remove its folders");
    plugpull::guest::sweep().unwrap();
    assert!(folders_of(owner).is_empty(), "the next start does");
}

#[test]
fn guest_an_interrupted_trial_cleans_up_and_says_so() {
    let _alone = alone();
    let runs = tempfile::tempdir().unwrap();
    let mut child = trial_under_load(runs.path());
    let owner = child.id();
    let pid = nix::unistd::Pid::from_raw(owner as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(qemus_of(owner).is_empty());
    assert!(folders_of(owner).is_empty());
}

#[test]
fn a_killed_image_build_leaves_no_half_image_and_no_process() {
    let cache = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("bash")
        .args(["vm-scripts/build-guest", "--cache"])
        .arg(cache.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let images = cache.path().join("images");
    let building = || {
        std::fs::read_dir(&images).is_ok_and(|all| {
            all.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(".build-"))
        })
    };
    // On a fresh machine it installs packages first.
    wait_until("the build has begun", 300, building);
    child.kill().unwrap();
    child.wait().unwrap();
    let marker = cache.path().display().to_string();
    let works_there = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { return false };
            pid != std::process::id()
                && std::fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&marker))
        })
    };
    wait_until("nothing works in its cache any more", 20, || !works_there());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&marker), "{mounts}");
    let asked = std::process::Command::new("bash")
        .args(["vm-scripts/build-guest", "--print-dir", "--cache"])
        .arg(cache.path())
        .output()
        .unwrap();
    assert_eq!(asked.status.code(), Some(10), "a half-made image is no image");
}
