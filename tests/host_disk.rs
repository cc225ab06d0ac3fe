//! The disk given to this machine's own kernel. Needs root, FUSE, loop devices and the file systems;
//! without one of them the tests fail and say so.

use plugpull::disk::{
    CrashModel, DiskLog, Image, LocalDisk, Timing, crash_state, durable_requests,
};
use plugpull::guest::Watch;
use plugpull::guest::host::{FOR_HOST, ensure_programs};
use plugpull::host::bench::{Sequence, StatesBench, measure_states};
use plugpull::host::{HostDisk, MountError, check, make};
use plugpull::trace::{Command, EntryNo, Recorder, TraceHeader};
use plugpull::units::RunId;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const FILE_SYSTEMS: [(&str, u64); 3] =
    [("ext4", 64 << 20), ("xfs", 320 << 20), ("btrfs", 256 << 20)];

/// The tests share the machine's loop devices and look at which there are: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static PROGRAMS: OnceLock<()> = OnceLock::new();
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    PROGRAMS.get_or_init(|| ensure_programs(&FOR_HOST, &Watch::silent()).expect("the tools"));
    guard
}

struct Lab {
    folder: tempfile::TempDir,
    recorder: Recorder,
    host: HostDisk,
}

fn new_disk(path: &Path, base: Image) -> (Arc<LocalDisk>, Recorder) {
    let header = TraceHeader::now(RunId([9; 16]), base.disk_bytes());
    let recorder = Recorder::create(path, &header).expect("a trace");
    let (disk, _) =
        LocalDisk::new(Some(base), Timing::default(), recorder.clone()).expect("a disk");
    (Arc::new(disk), recorder)
}

impl Lab {
    fn new(disk_bytes: u64) -> Lab {
        let folder = tempfile::tempdir().expect("a folder");
        let blank = Image::blank(disk_bytes).expect("a size");
        let (disk, recorder) = new_disk(&folder.path().join("trace"), blank);
        let mut host =
            HostDisk::start_overlapping(disk_bytes, LIMIT, 4).expect("root, FUSE and loop devices");
        host.insert(disk).expect("inserted");
        Lab { folder, recorder, host }
    }

    fn log(&self) -> DiskLog {
        self.recorder.sync().expect("written");
        DiskLog::read(self.recorder.path(), |_, _| {}).expect("a log")
    }

    /// Puts the state of the first trace at `cut` into the device.
    fn insert_state(&mut self, log: &DiskLog, cut: EntryNo) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let blank = Image::blank(log.header.disk_bytes).expect("a size");
        let state = crash_state(log, &blank, cut, CrashModel::DropUnflushed, 0).expect("a state");
        let name = format!("state-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (disk, _) = new_disk(&self.folder.path().join(name), state);
        self.host.insert(disk).expect("inserted");
    }

    /// Mounts, reads one file, unmounts, checks.
    fn read_and_check(&self, fstype: &str, name: &str) -> Option<Vec<u8>> {
        let mounted = self.host.mount(fstype, "").expect("mounted");
        let bytes = fs::read(mounted.path().join(name)).ok();
        mounted.unmount().expect("unmounted");
        let result = check(&self.host, fstype).expect("a checker");
        assert_eq!(result.code, Some(0), "{fstype}: {}{}", result.stdout, result.stderr);
        bytes
    }
}

fn write_synced(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("a file");
    file.write_all(bytes).expect("written");
    file.sync_all().expect("synced");
}

/// Records mkfs and two synced files; tells where each file's sync began and had returned.
fn record(lab: &Lab, fstype: &str) -> [(EntryNo, EntryNo); 2] {
    make(&lab.host, fstype).expect("mkfs");
    let mounted = lab.host.mount(fstype, "").expect("mounted");
    let sync = |name: &str, byte: u8| {
        let begins = lab.recorder.next_entry();
        write_synced(&mounted.path().join(name), &[byte; 4096]);
        (begins, lab.recorder.next_entry())
    };
    let both = [sync("first", 1), sync("second", 2)];
    mounted.unmount().expect("unmounted");
    both
}

#[test]
fn a_synced_file_is_recorded_behind_an_answered_flush_and_its_states_show_it_or_not() {
    let _alone = alone();
    for (fstype, disk_bytes) in FILE_SYSTEMS {
        let mut lab = Lab::new(disk_bytes);
        let [first, second] = record(&lab, fstype);
        let log = lab.log();
        for (begins, acked) in [first, second] {
            let within = |entry: EntryNo| entry >= begins && entry < acked;
            let flushed = log.requests.iter().any(|flush| {
                flush.command() == Command::Flush
                    && within(flush.arrival)
                    && flush.succeeded_before(acked)
                    && log.requests.iter().any(|write| {
                        write.command() == Command::Write
                            && within(write.arrival)
                            && write.succeeded_before(flush.arrival)
                    })
            });
            assert!(
                flushed,
                "{fstype}: no write before an answered flush in {begins:?}..{acked:?}"
            );
            assert!(
                log.requests
                    .iter()
                    .filter(|r| r.command() == Command::Write && within(r.arrival))
                    .any(|r| durable_requests(&log, acked).holds(r))
            );
        }
        // In this order a page kept from one state would show in the next.
        for _ in 0..2 {
            lab.insert_state(&log, second.1);
            assert_eq!(lab.read_and_check(fstype, "first"), Some(vec![1; 4096]), "{fstype}");
            assert_eq!(lab.read_and_check(fstype, "second"), Some(vec![2; 4096]), "{fstype}");
            lab.insert_state(&log, second.0);
            assert_eq!(lab.read_and_check(fstype, "first"), Some(vec![1; 4096]), "{fstype}");
            assert_eq!(lab.read_and_check(fstype, "second"), None, "{fstype}: no flush yet");
        }
    }
}

#[test]
fn after_the_cut_a_write_fails_and_nothing_is_recorded() {
    let _alone = alone();
    let lab = Lab::new(64 << 20);
    make(&lab.host, "ext4").expect("mkfs");
    let mounted = lab.host.mount("ext4", "").expect("mounted");
    write_synced(&mounted.path().join("before"), b"before");
    lab.recorder.cut("by the test").expect("a cut");
    let recorded = lab.recorder.next_entry();
    let mut file = File::create(mounted.path().join("after")).and_then(|mut file| {
        file.write_all(b"after")?;
        Ok(file)
    });
    let error = file.as_mut().map_or_else(|_| None, |file| file.sync_all().err());
    assert!(file.is_err() || error.is_some(), "a sync behind the cut must fail");
    drop(file);
    let mut device = File::open(lab.host.device()).expect("the device");
    let mut far = vec![0; 4096];
    std::io::Seek::seek(&mut device, std::io::SeekFrom::Start(63 << 20)).expect("a place");
    let read = std::io::Read::read_exact(&mut device, &mut far).expect_err("no data");
    assert_eq!(read.raw_os_error(), Some(nix::libc::EIO));
    drop(device);
    drop(mounted);
    assert_eq!(lab.recorder.next_entry(), recorded);
}

#[test]
fn a_discard_and_a_zeroing_reach_the_trace_and_a_file_that_is_open_keeps_the_disk_in_place() {
    let _alone = alone();
    let mut lab = Lab::new(64 << 20);
    make(&lab.host, "ext4").expect("mkfs");
    let count = |lab: &Lab| {
        lab.log().requests.iter().filter(|request| request.command() == Command::Trim).count()
    };
    let before = count(&lab);
    let mounted = lab.host.mount("ext4", "discard").expect("mounted");
    write_synced(&mounted.path().join("gone"), &vec![3; 1 << 20]);
    fs::remove_file(mounted.path().join("gone")).expect("removed");
    rustix::fs::syncfs(File::open(mounted.path()).expect("the root")).expect("synced");
    let held = File::create(mounted.path().join("held")).expect("a file");
    let error = mounted.unmount().expect_err("a file is open").to_string();
    assert!(error.contains("still in use"), "{error}");
    assert!(count(&lab) > before, "no discard was recorded");
    let blank = Image::blank(64 << 20).expect("a size");
    let (other, _) = new_disk(&lab.folder.path().join("other"), blank);
    assert!(lab.host.insert(other.clone()).is_err(), "not while a file system uses it");
    drop(held);
    lab.host.insert(other).expect("inserted");
    let refused = lab.host.mount("ext4", "").expect_err("there is nothing on it");
    assert!(matches!(refused, MountError::Refused { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("EXT4-fs") || !Path::new("/dev/kmsg").exists(), "{text}");
    let blank = Image::blank(1 << 20).expect("a size");
    let (small, _) = new_disk(&lab.folder.path().join("small"), blank);
    assert!(lab.host.insert(small).expect_err("too small").to_string().contains("cannot take"));
}

#[test]
fn a_flush_that_takes_longer_than_the_limit_ends_and_the_disk_is_given_up() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let header = TraceHeader::now(RunId([9; 16]), 64 << 20);
    let recorder = Recorder::create(&folder.path().join("trace"), &header).expect("a trace");
    let timing = Timing { flush: Duration::from_secs(8), ..Timing::default() };
    let (disk, _) = LocalDisk::new(None, timing, recorder).expect("a disk");
    let mut host = HostDisk::start(64 << 20, Duration::from_millis(500)).expect("a device");
    host.insert(Arc::new(disk)).expect("inserted");
    let start = Instant::now();
    let step = host.limited("write to the device");
    let mut device = File::options().write(true).open(host.device()).expect("the device");
    let done = device.write_all(&[1; 4096]).and_then(|()| device.sync_all());
    drop((step, device));
    assert!(done.is_err() && start.elapsed() < Duration::from_secs(5), "{done:?}");
    let error = host.check().expect_err("it took too long").to_string();
    assert!(error.contains("write to the device"), "{error}");
    drop(host);
    drop(Lab::new(1 << 20));
}

/// Loop devices in use.
fn loops() -> Vec<PathBuf> {
    let all = fs::read_dir("/sys/block").expect("sysfs").flatten();
    let mut bound: Vec<PathBuf> =
        all.map(|entry| entry.path()).filter(|path| path.join("loop").is_dir()).collect();
    bound.sort();
    bound
}

const CHILD: &str = "PLUGPULL_TEST_CHILD_IS_KILLED";

/// Not a test by itself: what [`a_tool_that_is_killed_leaves_nothing_behind`] starts and kills. It
/// writes to a mounted file system and reads from it, on a slow disk, in several threads.
#[test]
fn the_child_that_is_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let lab = Lab::new(64 << 20);
    make(&lab.host, "ext4").expect("mkfs");
    let mounted = lab.host.mount("ext4", "").expect("mounted");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = mounted.path().join(format!("file-{thread}"));
            scope.spawn(move || {
                loop {
                    write_synced(&path, &vec![7; 64 << 10]);
                    fs::read(&path).expect("read");
                }
            });
        }
        println!("\nready");
    });
}

#[test]
fn a_tool_that_is_killed_leaves_nothing_behind() {
    let _alone = alone();
    let (loops_before, mounts_before) = (loops(), fs::read_to_string("/proc/mounts").expect("it"));
    for round in 0..10 {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "the_child_that_is_killed", "--nocapture"])
            .env(CHILD, "1")
            .env("TMPDIR", std::env::temp_dir())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "the child got ready");
        std::thread::sleep(Duration::from_millis(37 * round));
        let during = fs::read_to_string("/proc/mounts").expect("it");
        assert_eq!(during, mounts_before, "nothing has a place in a folder");
        assert!(loops().len() > loops_before.len());
        child.kill().expect("killed");
        child.wait().expect("it ends");
        let deadline = Instant::now() + Duration::from_secs(10);
        while loops() != loops_before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(loops(), loops_before, "round {round}");
    }
    assert_eq!(fs::read_to_string("/proc/mounts").expect("it"), mounts_before);
    let lab = Lab::new(64 << 20);
    record(&lab, "ext4");
}

#[test]
fn states_are_verified_side_by_side_in_both_sequences() {
    let _alone = alone();
    for sequence in [Sequence::OneMount, Sequence::TwoMounts] {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let bench = StatesBench {
            disk_bytes: 64 << 20,
            files: 20,
            states: 20,
            workers: vec![1, 2],
            sequence,
            ..StatesBench::default()
        };
        let rates = measure_states(folder.path(), &bench).expect("measured");
        for rate in rates {
            println!("{rate}");
            assert_eq!(rate.states, 20);
        }
    }
}
