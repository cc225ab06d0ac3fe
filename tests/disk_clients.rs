//! The disk against real NBD clients: QEMU's, libnbd's, fio's. Each is needed: a missing one
//! is installed, or the test fails with how to.

use plugpull::disk::{CrashModel, DiskConfig, DiskLog, DiskServer, Image, Timing, crash_state};
use plugpull::guest::Watch;
use plugpull::guest::host::{FOR_CLIENTS, ensure_programs};
use plugpull::trace::{Command as DiskCommand, Recorder, TraceEnd, TraceHeader};
use plugpull::units::RunId;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A running disk in a folder of its own.
struct Lab {
    folder: TempDir,
    recorder: Recorder,
    server: Option<DiskServer>,
}

impl Lab {
    fn new(disk_bytes: u64, timing: Timing) -> Lab {
        Lab::on(Image::blank(disk_bytes).expect("a size"), timing)
    }

    fn on(base: Image, timing: Timing) -> Lab {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let header = TraceHeader::now(RunId([1; 16]), base.disk_bytes());
        let recorder = Recorder::create(&folder.path().join("trace"), &header).expect("a trace");
        let socket = folder.path().join("disk.sock");
        let config = DiskConfig { socket, base: Some(base), timing };
        let (server, _) = DiskServer::start(config, recorder.clone()).expect("a disk");
        Lab { folder, recorder, server: Some(server) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.file("disk.sock").display())
    }

    /// One qemu-io session, in which no command may fail.
    fn qemu_io(&self, commands: &[&str]) {
        let uri = self.uri();
        let mut arguments = vec!["-f", "raw", "-d", "unmap", "-t", "writeback"];
        commands.iter().for_each(|command| arguments.extend(["-c", *command]));
        arguments.push(&uri);
        let text = succeed("qemu-io", &arguments);
        assert!(!text.contains("failed"), "{text}");
    }

    /// fio writes 4 KiB or more at random places, then reads all back and compares.
    fn fio_verify(&self, options: &[&str]) {
        let uri = format!("--uri={}", self.uri());
        let common = ["--name=verify", "--ioengine=nbd", &uri, "--rw=randwrite"];
        let verify = ["--verify=crc32c", "--do_verify=1", "--verify_state_save=0"];
        succeed("fio", &[&common, options, &verify[..]].concat());
    }

    /// Ends the disk, then reads its trace.
    fn log(&mut self) -> DiskLog {
        self.server = None;
        self.recorder.sync().expect("the trace is on disk");
        let log = DiskLog::read(&self.file("trace"), |_, _| {}).expect("a trace");
        assert!(matches!(log.end, TraceEnd::Clean { .. }), "{}", log.end);
        assert!(!self.file("disk.sock").exists(), "the socket is left behind");
        log
    }
}

/// Runs a client; all of them are installed before the first is needed, or the test fails.
fn run(program: &str, arguments: &[&str]) -> Output {
    static CLIENTS: OnceLock<()> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        ensure_programs(&FOR_CLIENTS, &Watch::silent()).unwrap_or_else(|error| panic!("{error}"));
    });
    // A client that hangs must not hang the tests.
    let output = Command::new("timeout").arg("120").arg(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{program} cannot be started: {error}"))
}

/// Runs a client, which must succeed; returns what it says.
fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?} failed:\n{text}{errors}");
    text
}

fn count(log: &DiskLog, command: DiskCommand) -> usize {
    log.requests.iter().filter(|request| request.command() == command).count()
}

/// What the disk holds at the end of its trace.
fn state(log: &DiskLog, base: &Image, model: CrashModel) -> Image {
    crash_state(log, base, log.cut_entry(), model, 1).expect("a state")
}

fn read(image: &Image, offset: u64, bytes: u64) -> Vec<u8> {
    let mut out = vec![9; bytes as usize];
    image.read_at(offset, &mut out).expect("reads");
    out
}

/// Bytes that repeat nowhere.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| byte()).collect()
}

#[test]
fn qemu_io_reads_back_what_it_wrote_and_each_request_is_in_the_trace() {
    let mut lab = Lab::new(64 * MIB, Timing::default());
    lab.qemu_io(&[
        "write -P 0xaa 0 1M",
        "write -P 0xbb 4k 4k",
        "write -f -P 0xcc 8k 512",
        "flush",
        "read -P 0xaa 0 4k",
        "read -P 0xbb 4k 4k",
        "read -P 0xcc 8k 512",
        "read -P 0xaa 8704 1039872",
        "discard 4k 4k",
        "read -P 0 4k 4k",
        "write -z 64k 64k",
        "write -z -u 128k 64k",
        "read -P 0 64k 128k",
        "read -P 0xaa 192k 64k",
        "read -P 0 32M 32M",
    ]);
    let log = lab.log();
    assert_eq!(count(&log, DiskCommand::Write), 3);
    assert_eq!(log.requests.iter().filter(|request| request.fua()).count(), 1);
    assert_eq!(count(&log, DiskCommand::Trim), 1);
    assert_eq!(count(&log, DiskCommand::WriteZeroes), 2);
    assert!(count(&log, DiskCommand::Flush) >= 1);
    assert!(log.reads >= 8);
    assert!(log.requests.iter().all(|request| request.reply().is_some_and(|r| r.error == 0)));
}

#[test]
fn a_crash_state_is_a_disk_that_recovery_writes_to_and_that_crashes_again() {
    let blank = Image::blank(8 * MIB).expect("a size");
    let mut first = Lab::on(blank.clone(), Timing::default());
    first.qemu_io(&["write -P 1 0 1M", "flush", "write -P 2 512k 1M"]);
    let after_first = state(&first.log(), &blank, CrashModel::KeepAll);

    let mut second = Lab::on(after_first.clone(), Timing::default());
    second.qemu_io(&[
        "read -P 1 0 512k",
        "read -P 2 512k 1M",
        "write -P 3 256k 512k",
        "read -P 3 256k 512k",
        "read -P 2 768k 768k",
        "discard 0 4k",
        "read -P 0 0 4k",
    ]);
    let after_second = state(&second.log(), &after_first, CrashModel::KeepAll);

    let third = Lab::on(after_second, Timing::default());
    third.qemu_io(&[
        "read -P 0 0 4k",
        "read -P 1 4k 252k",
        "read -P 3 256k 512k",
        "read -P 2 768k 768k",
        "read -P 0 1536k 512k",
    ]);
}

#[test]
fn nbdinfo_sees_a_write_back_disk_of_small_blocks_for_one_connection() {
    let lab = Lab::new(64 * MIB, Timing::default());
    let text = succeed("nbdinfo", &["--json", &lab.uri()]);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let export = &json["exports"][0];
    assert_eq!(export["export-size"], 64 * MIB, "{text}");
    for offered in ["can_flush", "can_fua", "can_trim", "can_zero"] {
        assert_eq!(export[offered], true, "{offered}");
    }
    for missing in ["is_read_only", "can_multi_conn", "can_fast_zero", "can_cache", "can_df"] {
        assert_eq!(export[missing], false, "{missing}");
    }
    assert_eq!(export["block_size_minimum"], 512);
    assert_eq!(export["block_size_preferred"], 4096);
    assert_eq!(export["block_size_maximum"], 32 * MIB);
    assert!(succeed("nbdinfo", &["--list", &lab.uri()]).contains("export=\"\""));
}

#[test]
fn nbdcopy_brings_a_file_in_and_out_again_and_what_it_flushed_survives_a_cut() {
    let mut lab = Lab::new(24 * MIB, Timing::default());
    let bytes = noise(24 << 20);
    let (file, out) = (lab.file("in"), lab.file("out"));
    std::fs::write(&file, &bytes).expect("a temporary file");
    succeed("nbdcopy", &["--flush", &file.display().to_string(), &lab.uri()]);
    succeed("nbdcopy", &[&lab.uri(), &out.display().to_string()]);
    assert!(std::fs::read(&out).expect("the copy") == bytes, "the copy differs");
    let log = lab.log();
    let blank = Image::blank(24 * MIB).expect("a size");
    let survived = state(&log, &blank, CrashModel::DropUnflushed);
    assert!(read(&survived, 0, 24 * MIB) == bytes, "what was flushed is gone");
}

#[test]
fn fio_verifies_its_random_writes_at_depth() {
    let mut lab = Lab::new(64 * MIB, Timing::default());
    for block in ["--bs=4k", "--bs=128k"] {
        lab.fio_verify(&[block, "--size=32m", "--iodepth=16", "--fsync=64"]);
    }
    let log = lab.log();
    assert_eq!(count(&log, DiskCommand::Write), 32 * 256 + 32 * 8);
    assert!(count(&log, DiskCommand::Flush) >= 32 * 4);
}

#[test]
fn a_slow_disk_delays_what_it_is_told_to_and_fio_still_verifies() {
    let timing = Timing {
        flush: Duration::from_millis(20),
        write_bytes_per_s: NonZeroU64::new(64 * MIB),
        read_bytes_per_s: None,
    };
    let mut lab = Lab::new(64 * MIB, timing);
    let start = Instant::now();
    lab.fio_verify(&["--bs=64k", "--size=16m", "--iodepth=8", "--fsync=16"]);
    // 16 MiB take the channel 0.25 s; the flushes overlap with nothing and take 0.3 s more.
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
    let log = lab.log();
    assert!(count(&log, DiskCommand::Flush) >= 15);
    for flush in log.requests.iter().filter(|r| r.command() == DiskCommand::Flush) {
        let reply = flush.reply().expect("an answer");
        assert!(reply.at.0 - flush.arrived.0 >= 20_000_000);
    }
}

#[test]
fn after_the_cut_a_client_gets_neither_an_answer_nor_an_error() {
    let mut lab = Lab::new(8 * MIB, Timing::default());
    lab.qemu_io(&["write -P 1 0 64k"]);
    let first = lab.recorder.cut("by the test").expect("a cut");
    assert_eq!(lab.recorder.cut("again").expect("a cut"), first);
    let uri = lab.uri();
    let output = Command::new("timeout")
        .args(["2", "qemu-io", "-f", "raw", "-c", "write 0 64k", &uri])
        .output()
        .expect("timeout is part of coreutils");
    assert_eq!(output.status.code(), Some(124), "the client ended by itself: {output:?}");
    let log = lab.log();
    assert_eq!(count(&log, DiskCommand::Write), 1);
    assert_eq!(log.cut.as_ref().map(|cut| cut.at), Some(first));
}
