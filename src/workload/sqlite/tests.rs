//! A real database in a folder, and what is read back of it.

use super::*;
use crate::history::message::StreamEvent;
use crate::record::rows::ObservedRows;
use crate::workload::plan::{Journal, Pattern, Synchronous};
use crate::workload::testing::Bench;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const KINDS: [(Journal, Synchronous); 4] = [
    (Journal::Wal, Synchronous::Full),
    (Journal::Wal, Synchronous::Normal),
    (Journal::Delete, Synchronous::Full),
    (Journal::Delete, Synchronous::Extra),
];

fn bench(journal: Journal, synchronous: Synchronous) -> (Bench, SqliteSpec) {
    let spec = SqliteSpec { journal, synchronous };
    (Bench::new(Pattern::Sqlite(spec), None), spec)
}

/// Fills it, carries out so many transactions of a load, and leaves the database open as a cut would.
fn written(bench: &Bench, spec: SqliteSpec, count: u64) -> Sqlite {
    let mut stream = create(bench, spec);
    stream.fill().expect("filled");
    for seq in 2..=count {
        stream.operation(Seq(seq), Seq(seq + 1)).expect("a transaction");
    }
    stream
}

fn create(bench: &Bench, spec: SqliteSpec) -> Sqlite {
    Sqlite::create(bench.shared.clone(), &bench.plan().streams[0], spec).expect("created")
}

fn passed(rows: &ObservedRows) -> Vec<&str> {
    assert!(rows.checks.iter().all(|check| check.passed), "{:?}", rows.checks);
    rows.checks.iter().map(|check| check.name.as_str()).collect()
}

#[test]
fn every_transaction_is_read_back_whole_in_each_journal_mode() {
    for (journal, synchronous) in KINDS {
        let (bench, spec) = bench(journal, synchronous);
        let stream = written(&bench, spec, 600);
        drop(stream);
        let rows = bench.read_back();
        assert_eq!(
            (rows.survived.as_slice(), rows.broken.as_slice()),
            ([1..=600].as_slice(), [].as_slice())
        );
        let checks = ["open", "integrity_check", "foreign_key_check", "read every row"];
        assert_eq!(passed(&rows), checks, "{journal:?} {synchronous:?}");
        let acks: Vec<u64> = bench.acks().iter().map(|ack| ack.seq.0).collect();
        assert_eq!(acks, (1..=600).collect::<Vec<_>>());
        let intents: Vec<u64> = bench.intents().iter().map(|intent| intent.seq.0).collect();
        assert_eq!(intents.first(), Some(&1));
        assert_eq!(intents.last(), Some(&601));
    }
}

#[test]
fn a_load_runs_until_it_is_told_to_stop_and_tells_its_start_and_end() {
    let (bench, spec) = bench(Journal::Wal, Synchronous::Normal);
    let mut stream = create(&bench, spec);
    stream.fill().expect("filled");
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let load = std::thread::spawn(move || Box::new(stream).run(&told));
    let deadline = Instant::now() + Duration::from_secs(60);
    while bench.acks().len() < 50 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    let rate = load.join().expect("no panic").expect("told");
    let acks = bench.acks();
    assert_eq!(rate.acked + 1, acks.len() as u64);
    assert!(acks.iter().all(|ack| ack.start < ack.done && ack.done < ack.end));
    assert!(acks.windows(2).all(|pair| pair[0].end < pair[1].start), "one after another");
    assert_eq!(bench.end(), Some(StreamEvent::Ended));
    let rows = bench.read_back();
    assert_eq!(rows.survived, [1..=acks.len() as u64]);
    passed(&rows);
}

#[test]
fn a_copy_made_in_the_middle_of_a_load_recovers_to_a_prefix() {
    for (journal, synchronous) in KINDS {
        let (bench, spec) = bench(journal, synchronous);
        let stream = written(&bench, spec, 40);
        // What the disk holds while the database is open: a log that is not copied in yet.
        let folder = Path::new(&bench.plan().streams[0].path).to_owned();
        let copy = bench.folder.path().join("copy");
        fs::create_dir(&copy).expect("a folder");
        for entry in fs::read_dir(&folder).expect("the folder") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), copy.join(entry.file_name())).expect("copied");
        }
        drop(stream);
        fs::remove_dir_all(&folder).expect("removed");
        fs::rename(&copy, &folder).expect("renamed");
        let rows = bench.read_back();
        assert_eq!(rows.survived, [1..=40], "{journal:?}");
        passed(&rows);
    }
}

#[test]
fn a_database_that_is_missing_or_damaged_is_a_failed_check_with_its_words() {
    let (bench, spec) = bench(Journal::Wal, Synchronous::Full);
    drop(written(&bench, spec, 100));
    let path = database_path(&bench.plan().streams[0]);
    let whole = fs::read(&path).expect("a database");
    let failed = |name: &str| {
        let rows = bench.read_back();
        let failed: Vec<_> = rows.checks.iter().filter(|check| !check.passed).collect();
        assert!(failed.iter().any(|check| check.name == name), "{name}: {:?}", rows.checks);
        assert!(failed.iter().all(|check| !check.words.is_empty()), "{failed:?}");
        rows
    };
    fs::write(&path, &whole[..100]).expect("written");
    assert_eq!(failed("open").survived, []);
    fs::write(&path, [7; 8192]).expect("written");
    failed("open");
    let mut torn = whole.clone();
    torn[4096..8192].fill(0);
    fs::write(&path, &torn).expect("written");
    failed("integrity_check");
    fs::remove_file(&path).expect("removed");
    let gone = failed("open");
    assert_eq!((gone.survived.len(), gone.broken.len()), (0, 0));
    assert!(!path.exists(), "looking makes no database");
    fs::write(&path, &whole).expect("written");
    assert_eq!(bench.read_back().survived, [1..=100], "control");
}

#[test]
fn a_flipped_byte_inside_a_body_is_found_where_sqlite_itself_finds_nothing() {
    let (bench, spec) = bench(Journal::Delete, Synchronous::Full);
    drop(written(&bench, spec, 20));
    let path = database_path(&bench.plan().streams[0]);
    let mut bytes = fs::read(&path).expect("a database");
    let ledger = Ledger::new(bench.plan(), &bench.plan().streams[0]);
    let body = ledger.line(15, 0).body;
    let at = bytes.windows(32).position(|window| window == &body[..32]).expect("its body");
    bytes[at + 5] ^= 0x10;
    fs::write(&path, bytes).expect("written");
    let rows = bench.read_back();
    passed(&rows);
    assert_eq!(rows.survived, [1..=14, 16..=20]);
    assert_eq!(rows.broken.iter().map(|broken| broken.id).collect::<Vec<_>>(), [Some(15)]);
}

#[test]
fn the_pragmas_are_in_effect_and_the_planted_fault_forces_nothing() {
    let spec = SqliteSpec { journal: Journal::Wal, synchronous: Synchronous::Full };
    for (fault, level) in [(None, 2), (Some(WriterFault::NoSync), 0)] {
        let bench = Bench::new(Pattern::Sqlite(spec), fault);
        let stream = written(&bench, spec, 1);
        let database = stream.database.as_ref().expect("open");
        let found: u8 =
            database.query_row("PRAGMA synchronous", [], |row| row.get(0)).expect("a level");
        assert_eq!(found, level);
    }
}

#[test]
fn a_call_that_fails_ends_the_stream_and_what_exists_is_never_written_to() {
    let (bench, spec) = bench(Journal::Delete, Synchronous::Full);
    let stream = written(&bench, spec, 3);
    let again = Sqlite::create(bench.shared.clone(), &bench.plan().streams[0], spec);
    assert_eq!(again.expect_err("it exists").kind(), io::ErrorKind::AlreadyExists);
    // Its folder is gone, so no journal can be made.
    fs::remove_dir_all(&bench.plan().streams[0].path).expect("removed");
    let acked = bench.acks().len();
    Box::new(stream).run(&AtomicBool::new(false)).expect("the lab was told");
    assert!(matches!(bench.end(), Some(StreamEvent::Failed(_))), "{:?}", bench.end());
    assert_eq!(bench.acks().len(), acked);
}
