//! The pool's transaction groups, as its txgs kstat tells them.
//!
//! Rows ascend by txg and groups commit in that order, so a look reads from the newest row back to
//! the last one known to be committed: the guest's CPU is emulated, and the load needs it.

use crate::history::message::{Message, TxgRow, TxgState};
use crate::units::{EventNo, GuestNs, Txg};
use crate::workload::clock::{self, Events};
use crate::workload::outbox::{Outbox, Port};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// More bytes than 2,000 rows have.
const KSTAT_BYTES_MAX: u64 = 1 << 18;
/// Rows that go in one write: more than ever change between two looks.
const ROWS_HELD: u32 = 64;
const STACK_BYTES: usize = 256 << 10;

/// Why the kstat could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum TxgsError {
    /// It is not there, or does not read.
    #[error("{path} does not read: {source} (is the pool imported, and zfs_txg_history above 0?)")]
    Read {
        /// The kstat.
        path: PathBuf,
        /// What the call said.
        source: io::Error,
    },
    /// A pool cannot have this name.
    #[error("{0:?} is no pool's name")]
    Pool(String),
    /// No line names the columns.
    #[error("the txgs kstat has no column {0} (does this ZFS show others?)")]
    Column(&'static str),
    /// A row that this tool cannot read.
    #[error("the txgs kstat's row {row:?} has no readable {column}")]
    Row {
        /// The whole row.
        row: String,
        /// The column.
        column: &'static str,
    },
    /// A thread could not be started, or the lab does not listen.
    #[error("the txgs kstat cannot be watched: {0}")]
    Watch(#[from] io::Error),
}

const NAMES: [&str; 8] = ["txg", "birth", "state", "ndirty", "otime", "qtime", "wtime", "stime"];

/// Reads the rows that are not known to be committed, oldest first, found by the names of their
/// columns. Without `behind` these are the last committed one and all behind it. The rows are not
/// stamped yet: event and time seen are 0.
pub fn parse(text: &str, behind: Option<Txg>) -> Result<Vec<TxgRow>, TxgsError> {
    // ZFS before 0.8 had a line of its own before the names.
    let names_at =
        text.lines().position(|line| line.split_whitespace().any(|word| word == NAMES[0]));
    let names_at = names_at.ok_or(TxgsError::Column(NAMES[0]))?;
    let mut columns = [0; NAMES.len()];
    for (column, name) in columns.iter_mut().zip(NAMES) {
        let names = text.lines().nth(names_at).unwrap_or_default();
        let found = names.split_whitespace().position(|other| other == name);
        *column = found.ok_or(TxgsError::Column(name))?;
    }
    let mut rows = Vec::new();
    for line in text.lines().skip(names_at + 1).collect::<Vec<_>>().into_iter().rev() {
        if line.trim().is_empty() {
            continue;
        }
        let row = parse_row(line, &columns)?;
        if behind.is_some_and(|behind| row.txg <= behind) {
            break;
        }
        rows.push(row);
        if behind.is_none() && row.state == TxgState::Committed {
            break;
        }
    }
    rows.reverse();
    Ok(rows)
}

fn parse_row(line: &str, columns: &[usize; NAMES.len()]) -> Result<TxgRow, TxgsError> {
    let field = |at: usize| line.split_whitespace().nth(columns[at]);
    let bad = |at: usize| TxgsError::Row { row: line.trim().to_owned(), column: NAMES[at] };
    let number = |at: usize| -> Result<u64, TxgsError> {
        field(at).and_then(|text| text.parse().ok()).ok_or_else(|| bad(at))
    };
    let state = match field(2).map(str::as_bytes) {
        Some(&[letter]) => TxgState::from_letter(letter),
        _ => None,
    };
    Ok(TxgRow {
        event: EventNo(0),
        seen_ns: GuestNs(0),
        txg: Txg(number(0)?),
        birth: GuestNs(number(1)?),
        state: state.ok_or_else(|| bad(2))?,
        dirty_bytes: number(3)?,
        open_ns: number(4)?,
        quiesce_ns: number(5)?,
        wait_ns: number(6)?,
        sync_ns: number(7)?,
    })
}

/// Which rows are news.
#[derive(Debug, Default)]
pub struct Changes {
    committed: Option<Txg>,
    /// The others that were seen, with their state.
    alive: Vec<(Txg, TxgState)>,
}

impl Changes {
    /// The rows whose state changed since the last look, oldest first.
    pub fn look(&mut self, text: &str) -> Result<Vec<TxgRow>, TxgsError> {
        let rows = parse(text, self.committed)?;
        let alive: Vec<_> = rows.iter().map(|row| (row.txg, row.state)).collect();
        let is_news = |row: &TxgRow| !self.alive.contains(&(row.txg, row.state));
        let news = rows.into_iter().filter(is_news).collect();
        let is_committed = |(_, state): &&(Txg, TxgState)| *state == TxgState::Committed;
        self.committed = alive.iter().rev().find(is_committed).map(|row| row.0).or(self.committed);
        self.alive = alive;
        Ok(news)
    }
}

/// A thread that sends the rows that changed. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Looks at once, so that an error is the caller's, and then each interval.
    pub fn start(
        pool: &str,
        interval: Duration,
        events: Arc<Events>,
        port: Arc<Port>,
    ) -> Result<Watch, TxgsError> {
        if pool.is_empty() || pool.contains('/') || pool.starts_with('.') {
            return Err(TxgsError::Pool(pool.to_owned()));
        }
        let path = Path::new("/proc/spl/kstat/zfs").join(pool).join("txgs");
        Watch::start_at(path, interval, events, port)
    }

    /// The same for a kstat elsewhere.
    pub fn start_at(
        path: PathBuf,
        interval: Duration,
        events: Arc<Events>,
        port: Arc<Port>,
    ) -> Result<Watch, TxgsError> {
        let outbox = Outbox::new(port, ROWS_HELD);
        let mut watcher =
            Watcher { path, events, outbox, changes: Changes::default(), text: String::new() };
        watcher.look()?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let interval_ns = interval.max(Duration::from_millis(1)).as_nanos() as u64;
        let thread = Builder::new()
            .name("txgs".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || watcher.run(interval_ns, &told))?;
        Ok(Watch { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed where it happened.
            let _ = thread.join();
        }
    }
}

struct Watcher {
    path: PathBuf,
    events: Arc<Events>,
    outbox: Outbox,
    changes: Changes,
    text: String,
}

impl Watcher {
    fn run(mut self, interval_ns: u64, stop: &AtomicBool) {
        let mut due = clock::steady_ns();
        loop {
            due = clock::steady_ns().max(due.saturating_add(interval_ns));
            clock::sleep_until(due, stop);
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = self.look() {
                // The pool was exported, or the lab is gone: rows end here, and the lab sees that.
                eprintln!("no more rows: {error}");
                return;
            }
        }
    }

    fn look(&mut self) -> Result<(), TxgsError> {
        self.text.clear();
        let read = File::open(&self.path)
            .and_then(|file| file.take(KSTAT_BYTES_MAX).read_to_string(&mut self.text));
        read.map_err(|source| TxgsError::Read { path: self.path.clone(), source })?;
        let seen_ns = clock::stamp();
        for row in self.changes.look(&self.text)? {
            let event = self.events.next();
            self.outbox.post(&Message::Txg(TxgRow { event, seen_ns, ..row }))?;
        }
        Ok(self.outbox.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::message::Frames;
    use std::os::unix::fs::FileExt;

    const HEAD: &str = "txg      birth            state ndirty       nread        nwritten     \
        reads    writes   otime        qtime        wtime        stime       \n";
    const ROWS: [&str; 4] = [
        "41       88001000000      C     131072       4096         262144       1        40       5000100200   12000        45000        51000000    \n",
        "42       93001100200      C     2097152      0            4194304      0        96       5120000000   13000        46000        98000000    \n",
        "43       98121100200      S     0            0            0            0        0        5119000000   14000        47000        0           \n",
        "44       103240100200     O     0            0            0            0        0        0            0            0            0           \n",
    ];

    fn text(rows: &[&str]) -> String {
        [&[HEAD], rows].concat().concat()
    }

    fn seen(rows: &[TxgRow]) -> Vec<(u64, TxgState)> {
        rows.iter().map(|row| (row.txg.0, row.state)).collect()
    }

    #[test]
    fn rows_are_read_by_the_names_of_their_columns() {
        let rows = parse(&text(&ROWS), Some(Txg(41))).expect("rows");
        let committed = TxgRow {
            event: EventNo(0),
            seen_ns: GuestNs(0),
            txg: Txg(42),
            birth: GuestNs(93_001_100_200),
            state: TxgState::Committed,
            dirty_bytes: 2_097_152,
            open_ns: 5_120_000_000,
            quiesce_ns: 13_000,
            wait_ns: 46_000,
            sync_ns: 98_000_000,
        };
        assert_eq!(rows[0], committed);
        let swapped = "25 0 0x01 100 1 2 3\nstate txg birth ndirty otime qtime wtime stime\n\
                       C 42 93001100200 2097152 5120000000 13000 46000 98000000\n";
        assert_eq!(parse(swapped, None).expect("a row"), [committed]);
    }

    #[test]
    fn the_kstat_of_openzfs_2_3_9_reads_as_it_was_printed() {
        let printed = "\
txg      birth            state ndirty       nread        nwritten     reads    writes   otime        qtime        wtime        stime       
6        85489162089      C     688128       0            76800        0        56       1291843207   39835        134131       820717528   
38       195323767680     C     0            0            0            0        0        1216010      8596         66565        740068      
39       195324983690     C     0            0            0            0        0        861646       7855         64470        226064      
40       195325845336     O     0            0            0            0        0        0            0            0            0           
";
        let rows = parse(printed, Some(Txg(5))).expect("rows");
        assert_eq!(rows.iter().map(|row| row.txg.0).collect::<Vec<_>>(), [6, 38, 39, 40]);
        let first = (rows[0].birth.0, rows[0].dirty_bytes, rows[0].open_ns, rows[0].sync_ns);
        assert_eq!(first, (85_489_162_089, 688_128, 1_291_843_207, 820_717_528));
        // A group is born when the one before it stops taking transactions.
        assert_eq!(rows[2].birth.0 + rows[2].open_ns, rows[3].birth.0);
        assert_eq!(seen(&parse(printed, None).expect("rows"))[0], (39, TxgState::Committed));
    }

    #[test]
    fn the_first_look_tells_the_last_committed_and_all_that_are_not() {
        let rows = Changes::default().look(&text(&ROWS)).expect("rows");
        let expected = [(42, TxgState::Committed), (43, TxgState::Syncing), (44, TxgState::Open)];
        assert_eq!(seen(&rows), expected);
        assert!(Changes::default().look(HEAD).expect("no rows").is_empty());
    }

    #[test]
    fn later_looks_tell_only_what_changed_and_miss_no_group() {
        let mut changes = Changes::default();
        changes.look(&text(&ROWS)).expect("rows");
        assert!(changes.look(&text(&ROWS)).expect("rows").is_empty());
        let later = [
            ROWS[1].to_owned(),
            ROWS[2].replace(" S ", " C "),
            ROWS[3].replace(" O ", " C "),
            ROWS[3].replace("44 ", "45 ").replace(" O ", " W "),
            ROWS[3].replace("44 ", "46 "),
        ];
        let later: Vec<&str> = later.iter().map(String::as_str).collect();
        let news = changes.look(&text(&later)).expect("rows");
        let expected = [
            (43, TxgState::Committed),
            (44, TxgState::Committed),
            (45, TxgState::Waiting),
            (46, TxgState::Open),
        ];
        assert_eq!(seen(&news), expected);
        assert!(changes.look(&text(&later)).expect("rows").is_empty());
    }

    #[test]
    fn what_is_not_a_kstat_is_refused_with_what_is_missing() {
        assert!(matches!(parse("", None), Err(TxgsError::Column("txg"))));
        let no_birth = HEAD.replace("birth", "death");
        assert!(matches!(parse(&no_birth, None), Err(TxgsError::Column("birth"))));
        let strange = text(&[&ROWS[3].replace(" O ", " ? ")]);
        assert!(matches!(parse(&strange, None), Err(TxgsError::Row { column: "state", .. })));
        let short = text(&["44 103240100200 O 0\n"]);
        assert!(matches!(parse(&short, None), Err(TxgsError::Row { column: "otime", .. })));
    }

    #[test]
    fn a_watch_sends_changes_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let kstat = folder.path().join("txgs");
        std::fs::write(&kstat, text(&ROWS)).expect("a file");
        let messages = tempfile::tempfile().expect("a file");
        let port = Arc::new(Port::new(messages.try_clone().expect("a second handle")));
        let interval = Duration::from_millis(1);
        let watch =
            Watch::start_at(kstat.clone(), interval, Arc::default(), port).expect("a watch");
        let renamed = folder.path().join("next");
        std::fs::write(&renamed, text(&ROWS).replace(" S ", " C ")).expect("a file");
        std::fs::rename(&renamed, &kstat).expect("one instant");
        let rows = || {
            let mut bytes = vec![0; messages.metadata().expect("a file").len() as usize];
            messages.read_exact_at(&mut bytes, 0).expect("its bytes");
            let mut frames = Frames::default();
            frames.feed(&bytes);
            let next = || frames.next_frame().expect("whole frames").map(|(_, message)| message);
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        while rows().len() < 4 {
            std::thread::sleep(interval);
        }
        drop(watch);
        let Message::Txg(last) = &rows()[3] else { panic!("{:?}", rows()) };
        assert_eq!((last.txg, last.state, last.event), (Txg(43), TxgState::Committed, EventNo(4)));
    }

    #[test]
    fn a_pool_that_is_not_there_is_an_error_at_once() {
        let port = Arc::new(Port::new(tempfile::tempfile().expect("a file")));
        let watch =
            |pool| Watch::start(pool, Duration::from_millis(1), Arc::default(), port.clone()).err();
        assert!(matches!(watch("no such pool"), Some(TxgsError::Read { .. })));
        assert!(matches!(watch("../x"), Some(TxgsError::Pool(_))));
    }
}
