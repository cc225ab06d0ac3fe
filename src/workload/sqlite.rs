//! A stream whose operations are transactions of a SQLite database in a folder of its own.
//!
//! What always holds: a transaction is acknowledged only after its COMMIT returned; after a failed
//! call nothing more is; and the journal mode and the degree of durability are those of the plan, for
//! they are read back.

use crate::agent::protocol::StreamRate;
use crate::history::message::Intent;
use crate::units::Seq;
use crate::workload::ledger::{Ledger, deletes_to, touches};
use crate::workload::plan::{SqliteSpec, StreamPlan, WriterFault};
use crate::workload::reporter::{Halt, Reporter, Shared, errno_of as errno_of_io, tell_console};
use crate::workload::stream::Stream;
use nix::errno::Errno;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A write-ahead log is copied into the database when it has so many pages, so that a short load
/// sees it happen. (SQLite's own choice is 1000.)
const CHECKPOINT_PAGES: u32 = 128;
/// `PRAGMA synchronous` by its number: sqlite.org/pragma.html#pragma_synchronous.
const LEVELS: [&str; 4] = ["off", "normal", "full", "extra"];

const SCHEMA: &str = "
    CREATE TABLE book (tx INTEGER PRIMARY KEY, touched INTEGER NOT NULL, lines INTEGER NOT NULL,
        body BLOB NOT NULL, sum BLOB NOT NULL);
    CREATE TABLE line (tx INTEGER NOT NULL REFERENCES book (tx), part INTEGER NOT NULL,
        body BLOB NOT NULL, sum BLOB NOT NULL, PRIMARY KEY (tx, part)) WITHOUT ROWID;";

/// The database of a stream.
pub fn database_path(stream: &StreamPlan) -> PathBuf {
    Path::new(&stream.path).join("stream.db")
}

/// One database at work.
#[derive(Debug)]
pub struct Sqlite {
    reporter: Reporter,
    spec: SqliteSpec,
    ledger: Ledger,
    /// Closed only while its files are forced to disk.
    database: Option<Connection>,
}

impl Sqlite {
    /// Makes the folder and in it a database without rows; a folder that exists is an error.
    pub fn create(
        shared: Arc<Shared>,
        stream: &StreamPlan,
        spec: SqliteSpec,
    ) -> io::Result<Sqlite> {
        fs::create_dir(&stream.path)?;
        let database =
            open(stream, spec, OpenFlags::SQLITE_OPEN_CREATE).map_err(io::Error::other)?;
        database.execute_batch(SCHEMA).map_err(io::Error::other)?;
        let ledger = Ledger::new(&shared.plan, stream);
        let reporter = Reporter::new(shared, stream.clone());
        Ok(Sqlite { reporter, spec, ledger, database: Some(database) })
    }

    fn load(&mut self, stop: &AtomicBool) -> Result<(), Halt> {
        let mut next = Seq(self.reporter.stream().fill() + 1);
        self.reporter.begin(Some(Intent::without_place(next)))?;
        let mut pace = self.reporter.pace();
        while self.reporter.go_on(&mut pace, stop)? {
            let after = Seq(next.0 + 1);
            self.operation(next, after)?;
            next = after;
        }
        Ok(())
    }

    fn operation(&mut self, seq: Seq, next: Seq) -> Result<(), Halt> {
        let begun = self.reporter.begun(seq);
        let done = self.transact(seq.0).map_err(|error| self.failed(&error));
        done.map_err(Halt::Call)?;
        let carried = self.reporter.returned(begun);
        self.reporter.acknowledge(&carried, Some(Intent::without_place(next))).map(drop)
    }

    fn transact(&mut self, tx: u64) -> rusqlite::Result<()> {
        let Some(database) = &mut self.database else { return Err(rusqlite::Error::InvalidQuery) };
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        carry_out(&transaction, &self.ledger, tx)?;
        transaction.commit()
    }

    fn failed(&self, error: &rusqlite::Error) -> Errno {
        tell_console(self.reporter.stream(), &format!("SQLite: {error}"));
        errno_of(error)
    }

    /// Closes the database, forces all its files and their folder to disk, and opens it again.
    fn make_durable(&mut self) -> Result<(), Halt> {
        let stream = self.reporter.stream().clone();
        let closed = self.database.take().map_or(Ok(()), Connection::close);
        closed.map_err(|(_, error)| Halt::Call(self.failed(&error)))?;
        sync_folder(Path::new(&stream.path)).map_err(|error| Halt::Call(errno_of_io(&error)))?;
        let opened = open(&stream, self.spec, OpenFlags::empty());
        self.database = Some(opened.map_err(|words| {
            tell_console(&stream, &words);
            Halt::Call(Errno::EIO)
        })?);
        Ok(())
    }
}

impl Stream for Sqlite {
    fn plan(&self) -> &StreamPlan {
        self.reporter.stream()
    }

    fn fill(&mut self) -> Result<(), Halt> {
        let first = Seq(1);
        self.reporter.announce(first)?;
        self.reporter.flush()?;
        let begun = self.reporter.begun(first);
        self.transact(first.0).map_err(|error| Halt::Call(self.failed(&error)))?;
        let carried = self.reporter.returned(begun);
        self.make_durable()?;
        self.reporter.acknowledge(&carried, None)?;
        self.reporter.flush()
    }

    fn run(mut self: Box<Self>, stop: &AtomicBool) -> io::Result<StreamRate> {
        let load = self.load(stop);
        self.reporter.end(load)
    }
}

/// The rows of one transaction.
fn carry_out(database: &Transaction, ledger: &Ledger, tx: u64) -> rusqlite::Result<()> {
    let (book, lines) = (ledger.book(tx, 0), ledger.lines(tx));
    let mut insert = database.prepare_cached("INSERT INTO book VALUES (?1, 0, ?2, ?3, ?4)")?;
    insert.execute(params![tx as i64, lines, book.body, book.sum])?;
    let mut insert = database.prepare_cached("INSERT INTO line VALUES (?1, ?2, ?3, ?4)")?;
    for part in 0..lines {
        let line = ledger.line(tx, part);
        insert.execute(params![tx as i64, part, line.body, line.sum])?;
    }
    if let Some(old) = touches(tx) {
        let book = ledger.book(old, tx);
        let sql = "UPDATE book SET touched = ?1, body = ?2, sum = ?3 WHERE tx = ?4";
        let mut update = database.prepare_cached(sql)?;
        update.execute(params![tx as i64, book.body, book.sum, old as i64])?;
    }
    if let Some(last) = deletes_to(tx) {
        for sql in ["DELETE FROM line WHERE tx <= ?1", "DELETE FROM book WHERE tx <= ?1"] {
            database.prepare_cached(sql)?.execute(params![last as i64])?;
        }
    }
    Ok(())
}

/// Opens the database as the plan says, and checks that it is so.
fn open(stream: &StreamPlan, spec: SqliteSpec, how: OpenFlags) -> Result<Connection, String> {
    let how = how | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let words = |error: rusqlite::Error| format!("SQLite: {error}");
    let database = Connection::open_with_flags(database_path(stream), how).map_err(words)?;
    let synchronous = match stream.fault {
        Some(WriterFault::NoSync) => "off",
        _ => spec.synchronous.name(),
    };
    let journal = spec.journal.name();
    let settings = format!(
        "PRAGMA journal_mode = {journal}; PRAGMA synchronous = {synchronous}; \
         PRAGMA foreign_keys = on; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; \
         PRAGMA temp_store = memory;"
    );
    database.execute_batch(&settings).map_err(words)?;
    let mode: String =
        database.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(words)?;
    let level: u8 =
        database.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(words)?;
    let level = LEVELS.get(usize::from(level)).copied().unwrap_or("unknown");
    match (mode.as_str(), level) == (journal, synchronous) {
        true => Ok(database),
        false => Err(format!(
            "the database is in journal mode {mode} with synchronous {level}; the plan says \
             {journal} and {synchronous}"
        )),
    }
}

/// Forces every file in a folder, and the folder, to disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(folder)?.sync_all()
}

/// SQLite tells its own codes; the nearest errno goes to the lab, its words to the console.
fn errno_of(error: &rusqlite::Error) -> Errno {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Errno::ENOSPC,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Errno::EUCLEAN,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Errno::EBUSY,
        Some(ErrorCode::OutOfMemory) => Errno::ENOMEM,
        Some(ErrorCode::ReadOnly) => Errno::EROFS,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests;
