//! Reading back what survived of a stream whose operations are transactions, or a program's own.
//!
//! What always holds: the software itself recovers first, as it would for its user, and whatever it
//! says then is an outcome; nothing of it is an error of the tool.

use crate::agent::exec::exec_with;
use crate::record::document::{Kind, encode};
use crate::record::rows::{Check, ObservedRows};
use crate::record::wire::Sink;
use crate::workload::account::Account;
use crate::workload::exec_lines;
use crate::workload::exec_stream::{command, environment};
use crate::workload::ledger::{Ledger, Row};
use crate::workload::plan::{ExecSpec, Pattern, Plan, StreamPlan};
use crate::workload::sqlite::database_path;
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// A program may take so long to say what survived.
const SURVIVORS: Duration = Duration::from_secs(240);
/// Characters of a check's words that are kept.
const WORDS_MAX: usize = 2_000;

/// Reads a stream back, if its operations are rows, and sends what was found.
pub fn observe(plan: &Plan, stream: &StreamPlan, sink: &mut Sink) -> io::Result<()> {
    let rows = match &stream.pattern {
        Pattern::Sqlite(_) => of_sqlite(plan, stream),
        Pattern::Exec(exec) => of_program(plan, stream, exec),
        _ => return Ok(()),
    };
    encode(stream.id, Kind::Rows, &rows, sink)
}

fn check(name: &str, outcome: Result<String, String>) -> Check {
    let passed = outcome.is_ok();
    let mut words = outcome.unwrap_or_else(|words| words);
    if let Some((end, _)) = words.char_indices().nth(WORDS_MAX) {
        words.truncate(end);
        words.push_str("...");
    }
    Check { name: name.to_owned(), passed, words }
}

fn of_sqlite(plan: &Plan, stream: &StreamPlan) -> ObservedRows {
    let mut rows = ObservedRows {
        stream: stream.id,
        checks: Vec::new(),
        survived: Vec::new(),
        broken: Vec::new(),
    };
    let (database, _copy) = match open(stream) {
        Ok(opened) => opened,
        Err(words) => {
            rows.checks.push(check("open", Err(words)));
            return rows;
        }
    };
    rows.checks.push(check("open", Ok(String::new())));
    rows.checks.push(check("integrity_check", integrity(&database)));
    rows.checks.push(check("foreign_key_check", foreign_keys(&database)));
    let mut account = Account::new(Ledger::new(plan, stream));
    let read = read_books(&database, &mut account)
        .and_then(|books| Ok(books + read_lines(&database, &mut account)?));
    let read = read.map(|rows| format!("{rows} rows")).map_err(|error| error.to_string());
    rows.checks.push(check("read every row", read));
    (rows.survived, rows.broken) = account.finish();
    if let Err((_, error)) = database.close() {
        rows.checks.push(check("close", Err(error.to_string())));
    }
    rows
}

/// Opens the database as any program would: SQLite rolls a hot journal back, or takes its log in, by
/// itself. Where SQLite cannot reach it, which is so in a mount without a place, a copy is opened.
fn open(stream: &StreamPlan) -> Result<(Connection, Option<TempDir>), String> {
    let own = database_path(stream);
    let place = |error: io::Error| format!("{}: {error}", own.display());
    let folder = Path::new(&stream.path);
    let copy = if is_reachable(folder) { None } else { Some(copied(folder).map_err(place)?) };
    let name = own.file_name().unwrap_or_default();
    let path = copy.as_ref().map_or_else(|| own.clone(), |copy| copy.path().join(name));
    let how = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, how).and_then(|database| {
        database.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(database)
    });
    Ok((opened.map_err(|error| format!("{}: {error}", own.display()))?, copy))
}

/// SQLite follows links by their text, and that of a descriptor of a mount without a place leads
/// elsewhere.
fn is_reachable(folder: &Path) -> bool {
    let Ok(own) = fs::metadata(folder) else { return true };
    let by_text = fs::canonicalize(folder).and_then(fs::metadata);
    by_text.is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
}

/// The files of a folder in another.
fn copied(folder: &Path) -> io::Result<TempDir> {
    let copy = tempfile::tempdir()?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
        }
    }
    Ok(copy)
}

fn integrity(database: &Connection) -> Result<String, String> {
    let words = || -> rusqlite::Result<Vec<String>> {
        let mut statement = database.prepare("PRAGMA integrity_check(20)")?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    let words = words().map_err(|error| error.to_string())?.join("; ");
    if words == "ok" { Ok(words) } else { Err(words) }
}

fn foreign_keys(database: &Connection) -> Result<String, String> {
    let count = || -> rusqlite::Result<usize> {
        let mut statement = database.prepare("PRAGMA foreign_key_check")?;
        let (mut rows, mut count) = (statement.query([])?, 0);
        while rows.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    };
    match count().map_err(|error| error.to_string())? {
        0 => Ok(String::new()),
        count => Err(format!("{count} lines belong to no book row")),
    }
}

fn read_books(database: &Connection, account: &mut Account) -> rusqlite::Result<u64> {
    let mut statement = database.prepare("SELECT tx, touched, lines, body, sum FROM book")?;
    let (mut rows, mut count) = (statement.query([])?, 0);
    while let Some(row) = rows.next()? {
        count += 1;
        let numbers = (number(row, 0), number(row, 1), number(row, 2));
        match (numbers, contents(row, 3)) {
            ((Some(tx), Some(touched), Some(lines)), Some(contents)) => {
                account.book(tx, touched, lines, &contents);
            }
            ((tx, ..), _) => account.find(tx, "a book row does not hold what it must".to_owned()),
        }
    }
    Ok(count)
}

fn read_lines(database: &Connection, account: &mut Account) -> rusqlite::Result<u64> {
    let mut statement = database.prepare("SELECT tx, part, body, sum FROM line")?;
    let (mut rows, mut count) = (statement.query([])?, 0);
    while let Some(row) = rows.next()? {
        count += 1;
        match (number(row, 0), number(row, 1), contents(row, 2)) {
            (Some(tx), Some(part), Some(contents)) => account.line(tx, part, &contents),
            (tx, ..) => account.find(tx, "a line does not hold what it must".to_owned()),
        }
    }
    Ok(count)
}

fn number(row: &rusqlite::Row, at: usize) -> Option<u64> {
    row.get::<_, i64>(at).ok().and_then(|number| u64::try_from(number).ok())
}

/// The body in this column and the sum in the next.
fn contents(row: &rusqlite::Row, at: usize) -> Option<Row> {
    Some(Row { body: row.get(at).ok()?, sum: row.get(at + 1).ok()? })
}

fn of_program(plan: &Plan, stream: &StreamPlan, exec: &ExecSpec) -> ObservedRows {
    let argv = command(&exec.survivors, exec);
    let ran = exec_with(&argv, &environment(plan.seed, stream, exec), SURVIVORS);
    let mut found = exec_lines::Found::default();
    let ended = match ran {
        Err(words) => Err(words),
        Ok(ran) => {
            found = exec_lines::found(&ran.stdout);
            match (ran.code, ran.timed_out) {
                (Some(0), false) => Ok(String::new()),
                (_, true) => Err(format!("it ran longer than {} s", SURVIVORS.as_secs())),
                (Some(code), _) => Err(format!("exit code {code}: {}", ran.stderr.trim_end())),
                (None, _) => Err(ran.stderr.trim_end().to_owned()),
            }
        }
    };
    let understood = found.malformed.map_or(Ok(String::new()), Err);
    let own = [check("survivors ran", ended), check("survivors' words", understood)];
    let theirs = found.checks.into_iter();
    let theirs = theirs
        .map(|told| check(&told.name, if told.passed { Ok(told.words) } else { Err(told.words) }));
    ObservedRows {
        stream: stream.id,
        checks: own.into_iter().chain(theirs).collect(),
        survived: found.survived,
        broken: found.broken,
    }
}
