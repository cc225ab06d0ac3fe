//! A guest with its second disk: a real PostgreSQL and a real apt on a real pool, killed and repaired.
//! The disk is built on demand, by the tool.

use plugpull::agent::protocol::ExecResult;
use plugpull::guest::disk::AddedDisk;
use plugpull::guest::{DiskBus, DiskSource, Guest, GuestConfig, Lab, Progress, Start, Watch};
use plugpull::stack::build::build;
use plugpull::stack::debian::{enter, leave, unpack, within};
use plugpull::stack::full_root::{
    NEW_CLUSTER, POSTGRESQL_BIN, attach, detach, inside, inside_as_postgres, show,
};
use plugpull::stack::settings;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(240);
/// The dataset of the scenario, which ZFS mounts there.
const CUSTOMER: &str = "/tank/customer";
/// Where its files go in there.
const PIP: &str = "/tank/customer/usr/lib/python3/dist-packages/pip";
/// What pg_amcheck is asked.
const CHECK: [&str; 2] = ["--database=postgres", "--heapallindexed"];

/// One guest at a time: two emulated ones on few cores only disturb each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A guest with a pool and the second disk. Dropping it cuts its power.
struct Bench {
    guest: Guest,
    full: AddedDisk,
    /// The dataset as programs of the full root see it.
    seen: String,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let listen = |progress| match progress {
            Progress::Stage(text) | Progress::Note(text) => eprintln!("{text}"),
            Progress::Part { .. } => {}
        };
        let (watch, agent) = (Watch::new(listen, Arc::default()), env!("CARGO_BIN_EXE_plugpull"));
        let scenario = settings::load("zfs-sync-disabled", &[]).expect("a scenario");
        let lab = Lab::prepare_with_agent(GuestConfig::default(), Path::new(agent), &watch);
        let lab = lab.expect("a lab");
        let root = lab.full_root().expect("a second disk");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        std::fs::File::create(&path).expect("a file").set_len(4 << 30).expect("a size");
        let mut guest = lab.start(Start::Saved, None).expect("a guest");
        let source = DiskSource::RawFile(path);
        let disk = guest.add_disk(&source, DiskBus::VirtioBlk).expect("a disk");
        timed("the pool", || build(&mut guest.control, &scenario, &disk.device, &watch))
            .expect("a pool");
        let full = timed("the second disk", || attach(&mut guest, &root)).expect("attached");
        let seen = show(&mut guest.control, CUSTOMER, "customer").expect("shown");
        Bench { guest, full, seen, _folder: folder }
    }

    fn must(&mut self, what: &str, argv: &[&str]) -> String {
        let result = timed(what, || self.guest.control.run(argv, LIMIT));
        let ExecResult { stdout, .. } = result.unwrap_or_else(|error| panic!("{what}: {error}"));
        stdout
    }

    fn postgres(&mut self, what: &str, program: &str, arguments: &[&str]) -> String {
        let program = format!("{POSTGRESQL_BIN}/{program}");
        self.must(what, &inside_as_postgres(&[&[program.as_str()], arguments].concat()))
    }

    /// Nothing holds on to the disk or to the pool.
    fn let_go(mut self) {
        let (guest, full) = (&mut self.guest, &self.full);
        timed("letting go", || detach(guest, full)).expect("nothing uses it any more");
        self.must("exporting the pool", &["zpool", "export", "tank"]);
    }
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    eprintln!("{:6.2} s  {what}", started.elapsed().as_secs_f64());
    result
}

#[test]
fn postgresql_on_a_dataset_survives_a_crash_and_a_damaged_table_is_found() {
    let _alone = alone();
    let mut bench = Bench::new();
    let cluster = format!("{}/db", bench.seen);
    let start = ["-D", &cluster, "-l", "/tmp/log", "-w", "-t", "120", "start"];
    let stop = |how| ["-D", cluster.as_str(), "-m", how, "stop"];
    bench.must("copying the cluster", &inside(&["cp", "-a", NEW_CLUSTER, &cluster]));
    bench.postgres("starting PostgreSQL", "pg_ctl", &start);
    let sql = "CREATE TABLE t (n int PRIMARY KEY, filler text)";
    bench.postgres("making a table", "psql", &["-Xqc", sql]);
    let sql = "INSERT INTO t SELECT n, repeat('x', 400) FROM generate_series(1, 500) n";
    bench.postgres("inserting 500 rows", "psql", &["-Xqc", sql]);
    bench.postgres("crashing it", "pg_ctl", &stop("immediate"));

    bench.postgres("starting it again", "pg_ctl", &start);
    let count = ["-XAtc", "SELECT count(*) FROM t"];
    assert_eq!(bench.postgres("counting", "psql", &count).trim(), "500");
    bench.postgres("pg_amcheck", "pg_amcheck", &CHECK);
    let path = ["-XAtc", "SELECT pg_relation_filepath('t')"];
    let table = bench.postgres("asking for the table's file", "psql", &path);
    bench.postgres("stopping it", "pg_ctl", &stop("fast"));

    let of = format!("of={CUSTOMER}/db/{}", table.trim());
    let damage = ["busybox", "dd", "if=/dev/urandom", &of, "bs=1", "seek=9000", "count=64"];
    bench.must("damaging it", &[&damage[..], &["conv=notrunc"]].concat());
    bench.postgres("starting it again", "pg_ctl", &start);
    let check = format!("{POSTGRESQL_BIN}/pg_amcheck");
    let check = inside_as_postgres(&[&[check.as_str()], &CHECK[..]].concat());
    let found = bench.guest.control.exec(&check, LIMIT).expect("it runs");
    assert_eq!((found.code, found.timed_out), (Some(2), false), "{found:?}");
    bench.postgres("stopping it", "pg_ctl", &stop("fast"));
    bench.let_go();
}

#[test]
fn apt_that_is_killed_half_way_is_repaired_by_dpkg_and_apt() {
    let _alone = alone();
    let mut bench = Bench::new();
    let seen = bench.seen.clone();
    let debian = |argv: &[&'static str]| within(CUSTOMER, argv);
    timed("unpacking Debian", || unpack(&mut bench.guest.control, &seen)).expect("unpacked");
    enter(&mut bench.guest.control, CUSTOMER).expect("mounted");

    let install = debian(&["apt-get", "--yes", "install", "python3-pip"]);
    bench.guest.control.begin(&install, LIMIT).expect("begun");
    // A package's files have such names until all of them are there.
    let half_way = format!("{PIP}/__init__.py.dpkg-new");
    timed("installing until the kill", || bench.guest.control.wait_for(&half_way, LIMIT))
        .expect("it unpacks");
    bench.must("killing it", &["busybox", "killall", "-9", "apt-get", "dpkg"]);
    let killed = bench.guest.control.end(LIMIT).expect("ended");
    assert_ne!(killed.code, Some(0), "{killed:?}");
    let audit = debian(&["dpkg", "--audit"]);
    let broken = bench.must("dpkg says what is half there", &audit);
    assert!(broken.contains("python3-pip"), "{broken:?}");

    bench.must("dpkg --configure -a", &debian(&["dpkg", "--configure", "-a"]));
    bench.must("apt-get -f install", &debian(&["apt-get", "--yes", "-f", "install"]));
    bench.must("apt-get install", &install);
    assert_eq!(bench.must("dpkg --audit", &audit), "");
    let version = bench.must("running pip", &debian(&["pip", "--version"]));
    assert!(version.starts_with("pip "), "{version}");
    let verify = debian(&["dpkg", "--verify", "python3-pip", "python3-wheel"]);
    assert_eq!(bench.must("dpkg --verify", &verify), "");
    let main = format!("{PIP}/__main__.py");
    bench.must("damaging a file", &["busybox", "truncate", "-s", "100", &main]);
    let found = bench.guest.control.exec(&verify, LIMIT).expect("it runs").stdout;
    assert!(found.contains("/pip/__main__.py"), "{found:?}");
    leave(&mut bench.guest.control, CUSTOMER).expect("unmounted");
    bench.let_go();
}
