//! Drives real guests: the image is built on demand, the guest saved on demand, all by the tool.

use plugpull::agent::protocol::Request;
use plugpull::disk::{
    CrashModel, DiskConfig, DiskEvent, DiskLog, DiskServer, Image, LocalDisk, Timing, crash_state,
};
use plugpull::guest::link::Deadline;
use plugpull::guest::process::ProcessId;
use plugpull::guest::{
    DiskBus, DiskSource, Guest, GuestConfig, GuestError, Lab, Progress, Start, Watch, sweep,
};
use plugpull::stack::build::{build, settle};
use plugpull::stack::settings;
use plugpull::trace::{Recorder, TraceHeader};
use plugpull::units::RunId;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const LIMIT: Duration = Duration::from_secs(30);
/// Makes `the_tool_that_gets_killed` start a guest and wait for its end.
const CHILD: &str = "PLUGPULL_TEST_CHILD";

/// One guest at a time: two emulated ones on few cores only disturb each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A lab, and the stages and notes that it tells.
fn lab() -> (Lab, Arc<Mutex<Vec<String>>>) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = told.clone();
    let listen = move |progress| match progress {
        Progress::Stage(text) | Progress::Note(text) => {
            eprintln!("{text}");
            kept.lock().expect("no panic").push(text);
        }
        Progress::Part { .. } => {}
    };
    let (watch, agent) = (Watch::new(listen, Arc::default()), env!("CARGO_BIN_EXE_plugpull"));
    let lab = Lab::prepare_with_agent(GuestConfig::default(), Path::new(agent), &watch);
    (lab.expect("a lab"), told)
}

fn guest() -> Guest {
    lab().0.start(Start::Saved, None).expect("a guest")
}

fn shell(guest: &mut Guest, script: &str) -> String {
    guest.control.run(&["sh", "-c", script], LIMIT).expect("a shell").stdout
}

#[test]
fn guest_restored_from_its_saved_state_is_whole_and_runs_the_image_s_tools() {
    let _alone = alone();
    let (lab, told) = lab();
    let mut guest = lab.start(Start::Saved, None).expect("a guest");
    eprintln!("ready after {:?}; saved guest: {:?}", guest.ready_after, lab.saved_meta());

    assert_eq!(Some(guest.hello.kernel.clone()), lab.image().fact("kernel_release"));
    assert_eq!(guest.hello.warnings, [""; 0], "{told:?}");
    let first = guest.control.clock().expect("a clock");
    assert!(guest.control.clock().expect("a clock") > first);
    let version = guest.control.run(&["zpool", "version"], LIMIT).expect("zpool").stdout;
    let zfs = lab.image().fact("zfs_version").expect("known");
    assert!(version.contains(&format!("zfs-kmod-{zfs}")), "{version} is not {zfs}");
    let hostid = shell(&mut guest, "cat /sys/module/spl/parameters/spl_hostid");
    assert_eq!(hostid.trim().parse(), Ok(0x706c_7567_u64));
}

#[test]
fn guest_clones_have_the_time_and_random_numbers_of_their_own() {
    let _alone = alone();
    let (lab, _) = lab();
    let draw = || {
        let mut guest = lab.start(Start::Saved, None).expect("a guest");
        let since_1970: u64 = shell(&mut guest, "date +%s").trim().parse().expect("seconds");
        let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        assert!(here.abs_diff(since_1970) <= 5, "{since_1970} in the guest, {here} here");
        shell(&mut guest, "head -c 16 /dev/urandom | od -t x1")
    };
    assert_ne!(draw(), draw());
}

#[test]
fn guest_whose_saved_state_does_not_fit_is_saved_again_once_though_two_want_it() {
    let _alone = alone();
    let (lab, told) = lab();
    drop(lab.start(Start::Saved, None).expect("a guest"));
    let state = lab.saved_place().join("state");
    let bytes = std::fs::metadata(&state).expect("saved").len();
    let file = std::fs::File::create(&state).expect("overwritten");
    file.set_len(bytes).expect("as long as before");

    told.lock().expect("no panic").clear();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut guest = lab.start(Start::Saved, None).expect("a guest all the same");
                guest.control.clock().expect("it answers");
            });
        }
    });
    let told = told.lock().expect("no panic");
    let count = |words: &str| told.iter().filter(|text| text.contains(words)).count();
    assert!(count("is made again") >= 1, "{told:?}");
    assert_eq!(count("booting the guest once"), 1, "{told:?}");
}

#[test]
fn guest_start_that_the_user_interrupts_ends_soon_and_leaves_nothing() {
    let _alone = alone();
    let (cancel, agent) = (Arc::new(AtomicBool::new(false)), env!("CARGO_BIN_EXE_plugpull"));
    let watch = Watch::new(|_| {}, cancel.clone());
    let lab = Lab::prepare_with_agent(GuestConfig::default(), Path::new(agent), &watch);
    let (lab, folder) = (lab.expect("a lab"), tempfile::tempdir().expect("a folder"));
    let console = folder.path().join("console");
    let waits = || lab.start(Start::Fresh, Some(&console)).map(drop);
    let result = std::thread::scope(|scope| {
        let start = scope.spawn(waits);
        while !console.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        cancel.store(true, Ordering::Relaxed);
        let asked = Instant::now();
        let result = start.join().expect("no panic");
        assert!(asked.elapsed() < LIMIT);
        result
    });
    assert!(matches!(result, Err(GuestError::Cancelled)), "{result:?}");
}

#[test]
fn guest_whose_console_has_no_place_is_an_error_and_keeps_its_saved_state() {
    let _alone = alone();
    let (lab, _) = lab();
    drop(lab.start(Start::Saved, None).expect("a guest"));
    let error = lab.start(Start::Saved, Some(Path::new("/nonexistent/console"))).map(drop);
    let error = error.expect_err("no such folder").to_string();
    assert!(error.contains("/nonexistent/console"), "{error}");
    assert!(lab.saved_meta().is_some());
}

#[test]
fn guest_takes_disks_on_both_buses_with_a_write_back_cache() {
    let _alone = alone();
    let mut guest = guest();
    let folder = tempfile::tempdir().expect("a folder");
    for (bus, device) in [(DiskBus::VirtioBlk, "/dev/vda"), (DiskBus::Nvme, "/dev/nvme0n1")] {
        let path = folder.path().join(device.replace('/', "-"));
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(64 << 20).expect("a size");
        let disk = guest.add_disk(&DiskSource::RawFile(path.clone()), bus).expect("a disk");
        assert_eq!(disk.device, device);
        shell(&mut guest, &format!("printf plugged | dd of={device} conv=fsync 2>&1"));
        let written = std::fs::read(&path).expect("the file");
        assert!(written.starts_with(b"plugged"));
    }
}

/// A guest looks at one disk after the other under the same name, and never at an earlier one's data.
#[test]
fn guest_s_disk_can_be_taken_out_and_another_one_takes_its_place() {
    let _alone = alone();
    let mut guest = guest();
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..3 {
        let path = folder.path().join(round.to_string());
        let file = std::fs::File::create(&path).expect("a file");
        std::io::Write::write_all(&mut &file, format!("round {round}").as_bytes()).expect("said");
        file.set_len(64 << 20).expect("a size");
        let started = Instant::now();
        let disk = guest.add_disk(&DiskSource::RawFile(path), DiskBus::VirtioBlk).expect("a disk");
        let added = started.elapsed();
        assert_eq!(disk.device, "/dev/vda");
        let seen = shell(&mut guest, "head -c 7 /dev/vda");
        assert_eq!(seen, format!("round {round}"));
        let started = Instant::now();
        guest.remove_disk(&disk).expect("taken out");
        eprintln!("plugged in after {added:?}, taken out after {:?}", started.elapsed());
    }
}

/// A disk with these words at its start.
fn disk_that_says(folder: &Path, words: &str) -> Image {
    let (path, bytes) = (folder.join(words), 64 << 20);
    let recorder = Recorder::create(&path, &TraceHeader::now(RunId([5; 16]), bytes));
    let recorder = recorder.expect("a trace");
    let (disk, _) = LocalDisk::new(None, Timing::default(), recorder.clone()).expect("a disk");
    let mut block = words.as_bytes().to_vec();
    block.resize(4096, 0);
    disk.write_at(0, &block).expect("written");
    disk.flush().expect("flushed");
    recorder.sync().expect("synced");
    let log = DiskLog::read(&path, |_, _| {}).expect("a log");
    let blank = Image::blank(bytes).expect("a size");
    crash_state(&log, &blank, log.entries, CrashModel::DropUnflushed, 0).expect("a state")
}

/// The disk stays plugged in, the lab shows another: it is read as itself. The control: a guest that
/// holds the device open goes on seeing what it has read, so this test could fail.
#[test]
fn guest_s_plugged_disk_shows_the_next_state_once_nothing_uses_the_one_before() {
    let _alone = alone();
    let mut guest = guest();
    let folder = tempfile::tempdir().expect("a folder");
    let overlay = |name: &str| {
        let header = TraceHeader::now(RunId([6; 16]), 64 << 20);
        Recorder::create(&folder.path().join(name), &header).expect("a trace")
    };
    let socket = folder.path().join("disk");
    let base = Some(disk_that_says(folder.path(), "state 0"));
    let config = DiskConfig { socket, base, timing: Timing::default() };
    let (server, _) = DiskServer::start(config, overlay("overlay 0")).expect("a disk");
    let source = DiskSource::nbd(server.socket());
    assert_eq!(guest.add_disk(&source, DiskBus::VirtioBlk).expect("a disk").device, "/dev/vda");
    let read = "head -c 7 /dev/vda";
    for round in 0..4 {
        if round > 0 {
            let state = disk_that_says(folder.path(), &format!("state {round}"));
            assert!(server.is_idle());
            server.insert(state, overlay(&format!("overlay {round}"))).expect("inserted");
        }
        assert_eq!(shell(&mut guest, read), format!("state {round}"));
        // What the guest wrote to one is not in the next.
        shell(&mut guest, "printf written | dd of=/dev/vda conv=fsync,notrunc 2>&1");
        assert_eq!(shell(&mut guest, read), "written");
    }
    let holds = ["sh", "-c", "exec < /dev/vda; head -c 7; sleep 3"];
    guest.control.begin(&holds, LIMIT).expect("begun");
    shell(&mut guest, "sleep 1");
    let state = disk_that_says(folder.path(), "state 9");
    server.insert(state, overlay("overlay 9")).expect("inserted");
    assert_eq!(shell(&mut guest, read), "written", "control: it is held open");
    guest.control.end(LIMIT).expect("ended");
}

#[test]
fn guest_that_panics_is_an_error_with_the_end_of_its_console() {
    let _alone = alone();
    let (mut guest, start) = (guest(), Instant::now());
    let error = guest.control.write_file("/proc/sysrq-trigger", "c").expect_err("a panic");
    assert!(start.elapsed() < LIMIT);
    let GuestError::Ended { console, .. } = &error else { panic!("{error}") };
    assert!(console.contains("Kernel panic - not syncing"), "{error}");
}

#[test]
fn guest_whose_agent_gives_up_is_an_error_with_its_reason() {
    let _alone = alone();
    let mut guest = guest();
    let until = Deadline::after(LIMIT);
    guest.control.link().send(b"bytes that are no frame", "the guest", until).expect("sent");
    let error = guest.control.clock().expect_err("the agent gave up");
    assert!(error.to_string().contains("no frame starts at byte"), "{error}");
}

#[test]
fn guest_that_hangs_is_an_error_in_time_and_its_late_answer_is_nobody_else_s() {
    let _alone = alone();
    let mut guest = guest();
    guest.pause().expect("paused");
    let start = Instant::now();
    let read = Request::ReadFile { path: "/proc/version".into() };
    let error = guest.control.call(read, Duration::from_secs(1)).expect_err("no answer");
    assert!(matches!(error, GuestError::TimedOut { .. }), "{error}");
    assert!(start.elapsed() < LIMIT);
    guest.unpause().expect("goes on");
    guest.control.clock().expect("the clock, not the text of the file");
}

#[test]
fn guest_s_failing_and_endless_tools_are_errors_with_their_own_words() {
    let _alone = alone();
    let mut guest = guest();
    let error = guest.control.run(&["zpool", "import", "nothing"], LIMIT).expect_err("no pool");
    assert!(error.to_string().contains("cannot import 'nothing'"), "{error}");
    let endless = ["sh", "-c", "echo begun; sleep 1000"];
    let error = guest.control.run(&endless, Duration::from_millis(300)).expect_err("killed");
    let text = error.to_string();
    assert!(text.contains("was killed") && text.contains("begun"), "{text}");
    let error = guest.control.read_file("/nonexistent").expect_err("missing").to_string();
    assert!(error.contains("/nonexistent"), "{error}");
}

#[test]
fn guest_of_a_killed_tool_is_gone_and_the_next_start_clears_up() {
    let _alone = alone();
    // What the child needs may have to be made first, and not while it is about to be killed.
    drop(guest());
    let mut tool = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_tool_that_gets_killed", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool");
    let lines = BufReader::new(tool.stdout.take().expect("piped")).lines();
    let mut found = lines.map_while(Result::ok).filter_map(|line| {
        let (_, rest) = line.split_once("GUEST ")?;
        let (pid, console) = rest.split_once(' ')?;
        Some((pid.parse().ok()?, console.to_owned()))
    });
    let (pid, console): (u32, String) = found.next().expect("a guest");
    let (qemu, folder) = (ProcessId::of(pid).expect("it runs"), Path::new(&console).parent());
    let folder = folder.expect("a folder");
    assert!(folder.exists());

    tool.kill().expect("SIGKILL");
    tool.wait().expect("gone");
    let deadline = Instant::now() + LIMIT;
    while qemu.is_alive() {
        assert!(Instant::now() < deadline, "QEMU {pid} outlives its tool");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(sweep().expect("swept") >= 1);
    assert!(!folder.exists());
}

/// Not a test of its own: the process that `guest_of_a_killed_tool...` kills.
#[test]
fn the_tool_that_gets_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let guest = guest();
    println!("GUEST {} {}", guest.pid(), guest.console().display());
    guest.wait_end(Duration::from_secs(300)).expect("killed long before");
}

/// A group in which nothing changed writes no uberblock: without a change of its own, a set-up whose
/// groups the timer had all closed could not be shown durable, and such a trial measured nothing.
#[test]
fn guest_s_set_up_is_shown_durable_also_when_the_timer_had_closed_all_its_groups() {
    let _alone = alone();
    let (lab, _) = lab();
    let scenario = settings::load("zfs-sync-disabled", &["stack.txg_timeout_s=1".to_owned()]);
    let scenario = scenario.expect("the default");
    let folder = tempfile::tempdir().expect("a folder");
    let header = TraceHeader::now(RunId([7; 16]), scenario.disk.size_mib << 20);
    let recorder = Recorder::create(&folder.path().join("trace"), &header).expect("a trace");
    let config =
        DiskConfig { socket: folder.path().join("disk"), base: None, timing: Timing::default() };
    let (disk, events) = DiskServer::start(config, recorder).expect("a disk");
    let mut guest = lab.start(Start::Saved, None).expect("a guest");
    let added = guest.add_disk(&DiskSource::nbd(disk.socket()), DiskBus::VirtioBlk);
    let device = added.expect("a disk").device;
    let watch = Watch::new(|_| {}, Arc::default());
    build(&mut guest.control, &scenario, &device, &watch).expect("a pool");

    // Until the pool has nothing left to write.
    while events.recv_timeout(Duration::from_secs(4)).is_ok() {}
    settle(&mut guest.control, &scenario, &device).expect("settled");
    let seen = events.recv_timeout(Duration::from_secs(1));
    assert!(matches!(seen, Ok(DiskEvent::Commit { .. })), "{seen:?}");
}
