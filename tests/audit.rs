//! `plugpull audit`, from the command line and on a live pool in a guest.

use plugpull::agent::protocol::Request;
use plugpull::audit::{judge, live, policy::Policy};
use plugpull::guest::{DiskBus, DiskSource, GuestConfig, Lab, Progress, Start, Watch};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const POLICY: &str = "\
    [[rule]]\ndatasets = \"tank\"\nsync = \"standard\"\n\
    [[rule]]\ndatasets = \"tank/billing\"\nsync = \"standard\"\n\
    [[rule]]\ndatasets = \"tank/servers\"\nsync = \"disabled\"\n\
    [[rule]]\ndatasets = \"tank/servers/*\"\nsync = \"disabled\"\n\
    except = [{ datasets = \"tank/servers/alice\", sync = \"standard\" }]\n";
const LIST: &str = "tank\tsync\tstandard\tdefault\n\
    tank/billing\tsync\tstandard\tdefault\n\
    tank/servers\tsync\tdisabled\tlocal\n\
    tank/servers/alice\tsync\tstandard\tlocal\n\
    tank/servers/bob\tsync\tdisabled\tinherited from tank/servers\n";

/// Audits `tank` by these two texts.
fn audit(policy: &str, list: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let (policy_path, list_path) = (folder.path().join("policy"), folder.path().join("list"));
    std::fs::write(&policy_path, policy).expect("written");
    std::fs::write(&list_path, list).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plugpull"));
    command.args(["audit", "tank", "--policy"]).arg(policy_path).arg("--from").arg(list_path);
    command.args(more).output().expect("the tool")
}

fn said(output: &Output) -> (Option<i32>, String) {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8_lossy(&both).into_owned())
}

#[test]
fn a_pool_as_its_policy_says_passes_and_one_that_is_not_ends_with_1() {
    let (code, text) = said(&audit(POLICY, LIST, &[]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("tank: all 5 datasets are as the policy says"), "{text}");
    let reinstalled = LIST.replace("alice\tsync\tstandard\tlocal", "alice\tsync\tdisabled\tlocal");
    let (code, text) = said(&audit(POLICY, &reinstalled, &[]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("WRONG: tank/servers/alice says standard"), "{text}");
}

#[test]
fn the_json_document_tells_each_dataset_with_its_source_and_verdict() {
    let more = format!("{LIST}tank/scratch\tsync\talways\treceived\n");
    let output = audit(POLICY, &more, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&json["format"], &json["as_asked"]), (&1.into(), &false.into()));
    let datasets = json["datasets"].as_array().expect("datasets");
    let verdict = |n: usize| datasets[n]["verdict"].as_str().expect("a verdict");
    assert_eq!((datasets.len(), verdict(0), verdict(5)), (6, "as-asked", "no-rule"));
    assert_eq!(datasets[4]["source"], "inherited from tank/servers");
    assert_eq!(datasets[5]["sync"], "always");
}

#[test]
fn bad_usage_and_bad_input_end_with_2_and_name_the_place() {
    let cases = [
        (audit("", LIST, &[]), "rule"),
        (audit(&POLICY.replace("disabled", "off"), LIST, &[]), "line"),
        (audit(POLICY, "no list\n", &[]), "zfs get"),
        (audit(POLICY, "", &[]), "no dataset"),
        (audit(POLICY, "other\tsync\tstandard\tdefault\n", &[]), "not of tank"),
    ];
    for (output, words) in cases {
        let (code, text) = said(&output);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(words), "{text}");
        assert!(output.stdout.is_empty(), "{text}");
    }
    let missing = ["audit", "tank", "--policy", "/nonexistent/policy.toml"];
    let output = Command::new(env!("CARGO_BIN_EXE_plugpull")).args(missing).output();
    let (code, text) = said(&output.expect("the tool"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("/nonexistent/policy.toml") && text.contains("--help"), "{text}");
}

/// The tool itself runs in the guest, whose process 1 it is too, and asks the guest's own ZFS.
#[test]
fn guest_s_live_pool_is_audited_by_the_tool_itself() {
    let listen = |told| {
        if let Progress::Stage(text) | Progress::Note(text) = told {
            eprintln!("{text}");
        }
    };
    let watch = Watch::new(listen, Arc::default());
    let agent = Path::new(env!("CARGO_BIN_EXE_plugpull"));
    let lab = Lab::prepare_with_agent(GuestConfig::default(), agent, &watch).expect("a lab");
    let mut guest = lab.start(Start::Saved, None).expect("a guest");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::File::create(&path).expect("a file").set_len(512 << 20).expect("a size");
    let disk = guest.add_disk(&DiskSource::RawFile(path), DiskBus::VirtioBlk).expect("a disk");
    let table = format!("echo start=1MiB | sfdisk --quiet {}", disk.device);
    let pool = format!("{}1", disk.device);
    let control = &mut guest.control;
    for command in [
        &["busybox", "sh", "-c", &table][..],
        &["zpool", "create", "-o", "cachefile=none", "tank", &pool],
        &["zfs", "create", "tank/billing"],
        &["zfs", "create", "-o", "sync=disabled", "tank/servers"],
        &["zfs", "create", "-o", "sync=standard", "tank/servers/alice"],
        &["zfs", "create", "-s", "-V", "64M", "tank/servers/bob"],
    ] {
        control.run(command, LIMIT).expect("made");
    }
    let zfs = [&["zfs"][..], &live::arguments("tank")].concat();
    let listed = control.run(&zfs, LIMIT).expect("listed").stdout;
    assert_eq!(listed, LIST, "as this file's other tests take ZFS to print it");
    let policy = Policy::parse("policy", POLICY).expect("a policy");
    assert!(judge::judge("tank", &policy, judge::datasets(&listed).expect("a list")).as_asked);

    let request = Request::SparseFile { path: "/tmp/policy".to_owned(), bytes: 0 };
    control.call(request, LIMIT).expect("made");
    control.write_file("/tmp/policy", POLICY).expect("written");
    let audit = ["/init", "audit", "tank", "--policy", "/tmp/policy"];
    let passed = control.exec(&audit, LIMIT).expect("run");
    assert_eq!(passed.code, Some(0), "{passed:?}");
    // Reinstalled: the server's own setting is gone with its dataset.
    control.run(&["zfs", "destroy", "tank/servers/alice"], LIMIT).expect("destroyed");
    control.run(&["zfs", "create", "tank/servers/alice"], LIMIT).expect("made");
    let failed = control.exec(&audit, LIMIT).expect("run");
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stdout.contains("WRONG: tank/servers/alice says standard"), "{failed:?}");
    let missing = control.exec(&["/init", "audit", "nosuch", "--policy", "/tmp/policy"], LIMIT);
    let missing = missing.expect("run");
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("nosuch"), "{missing:?}");
}
