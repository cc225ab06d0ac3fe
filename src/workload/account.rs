//! Which transactions a database's rows show: whole, gone, or in part.
//!
//! Pure. A transaction leaves up to three traces: its own rows, an older row rewritten, and old rows
//! deleted. It is whole if all of them are there, gone if none is, broken otherwise. What an older
//! transaction left and a later one deleted counts as whole with the later one, which implies it.

use crate::record::rows::Broken;
use crate::workload::ledger::{Ledger, Row, deletes_to, last_deleter, touched_by, touches};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Broken places that are told one by one.
const BROKEN_MAX: usize = 100;

/// The rows of a database, taken one by one and in any order.
#[derive(Debug)]
pub struct Account {
    ledger: Ledger,
    /// By transaction: the one that wrote its book row last, 0 for itself.
    books: BTreeMap<u64, u64>,
    /// By transaction: a bit for each part.
    lines: BTreeMap<u64, u8>,
    /// Transactions of which a row is damaged.
    damaged: BTreeSet<u64>,
    broken: Vec<Broken>,
    untold: u64,
}

/// What became of one transaction.
enum Fate {
    Whole,
    Gone,
    Broken(String),
}

impl Account {
    /// Of no row yet.
    pub fn new(ledger: Ledger) -> Account {
        Account {
            ledger,
            books: BTreeMap::new(),
            lines: BTreeMap::new(),
            damaged: BTreeSet::new(),
            broken: Vec::new(),
            untold: 0,
        }
    }

    /// Something that is no row of any transaction.
    pub fn find(&mut self, id: Option<u64>, words: String) {
        self.damaged.extend(id);
        match self.broken.len() < BROKEN_MAX {
            true => self.broken.push(Broken { id, words }),
            false => self.untold += 1,
        }
    }

    /// A row of `book`.
    pub fn book(&mut self, tx: u64, touched: u64, lines: u64, row: &Row) {
        let possible = touched == 0 || touched_by(tx) == Some(touched);
        if tx == 0 || !possible || lines != u64::from(self.ledger.lines(tx)) {
            let words = format!("book row {tx} says {lines} lines, and rewritten by {touched}");
            return self.find(Some(tx), words);
        }
        if *row != self.ledger.book(tx, touched) {
            let own = row.sum == self.ledger.book_sum(tx, touched, &row.body);
            return self.find(Some(tx), format!("book row {tx} {}", damage(own)));
        }
        self.books.insert(tx, touched);
    }

    /// A row of `line`.
    pub fn line(&mut self, tx: u64, part: u64, row: &Row) {
        let known = u8::try_from(part).ok().filter(|part| *part < self.ledger.lines(tx));
        let Some(part) = known.filter(|_| tx != 0) else {
            return self.find(Some(tx), format!("transaction {tx} has no line {part}"));
        };
        if *row != self.ledger.line(tx, part) {
            let own = row.sum == self.ledger.sum(tx, part, 0, &row.body);
            return self.find(Some(tx), format!("line {part} of transaction {tx} {}", damage(own)));
        }
        *self.lines.entry(tx).or_insert(0) |= 1 << part;
    }

    /// The transactions that are there, each whole, and the places that are neither whole nor gone.
    pub fn finish(mut self) -> (Vec<RangeInclusive<u64>>, Vec<Broken>) {
        let newest = self.newest();
        let deleter = last_deleter(newest);
        // Of what it deletes, all that the deleter before it left.
        let before =
            deleter.and_then(|tx| deletes_to(tx - super::ledger::DELETE_EVERY)).unwrap_or(0);
        let gone_to = deleter.and_then(deletes_to).unwrap_or(0);
        let left = (before + 1..=gone_to).filter(|tx| self.has_rows(*tx)).count() as u64;
        let undeleted = gone_to > before && left == gone_to - before;
        let implied = if undeleted { before } else { gone_to };
        self.leftovers(before);
        let mut survived = Ranges::default();
        if implied > 0 {
            survived.push(1..=implied);
        }
        for tx in implied + 1..=newest {
            let deletion = (deleter == Some(tx)).then_some((gone_to - before, left));
            match self.fate(tx, implied, deletion) {
                Fate::Whole => survived.push(tx..=tx),
                Fate::Gone => {}
                Fate::Broken(words) => self.find(Some(tx), words),
            }
        }
        if self.untold > 0 {
            let words = format!("{} more places that are not told one by one", self.untold);
            self.broken.push(Broken { id: None, words });
        }
        (survived.0, self.broken)
    }

    /// The newest transaction of which a whole row says that it was there.
    fn newest(&self) -> u64 {
        let books = self.books.iter().map(|(tx, touched)| *tx.max(touched)).max();
        let lines = self.lines.keys().next_back().copied();
        books.max(lines).unwrap_or(0)
    }

    fn has_rows(&self, tx: u64) -> bool {
        self.books.contains_key(&tx) || self.lines.contains_key(&tx)
    }

    /// Rows that an earlier deletion must have taken.
    fn leftovers(&mut self, deleted_to: u64) {
        let books = self.books.range(..=deleted_to).map(|(tx, _)| *tx);
        let all: BTreeSet<u64> =
            books.chain(self.lines.range(..=deleted_to).map(|(tx, _)| *tx)).collect();
        for tx in all {
            let words = format!("rows of transaction {tx} are there, which a later one deleted");
            self.find(Some(tx), words);
        }
    }

    /// `deletion`: how many transactions it deletes, and of how many there are rows.
    fn fate(&self, tx: u64, implied: u64, deletion: Option<(u64, u64)>) -> Fate {
        let all_lines = (1u8 << self.ledger.lines(tx)) - 1;
        let lines = self.lines.get(&tx).copied().unwrap_or(0);
        let book = self.books.contains_key(&tx);
        let touched = touches(tx).filter(|old| *old > implied);
        let touched = touched.and_then(|old| self.books.get(&old)).map(|by| *by == tx);
        let deleted = deletion.filter(|(of, _)| *of > 0);
        let mut traces = vec![("its book row", book, !book)];
        traces.push(("its lines", lines == all_lines, lines == 0));
        traces.extend(touched.map(|there| ("the row that it rewrites", there, !there)));
        let of_deletion = |(of, left)| ("its deletions", left == 0, left == of);
        traces.extend(deleted.map(of_deletion));
        if self.damaged.contains(&tx) {
            // It was told already, and what is missing is the damaged row.
            return Fate::Gone;
        }
        if traces.iter().all(|(_, there, _)| *there) {
            return Fate::Whole;
        }
        if traces.iter().all(|(_, _, gone)| *gone) {
            return Fate::Gone;
        }
        let words = traces.iter().map(|(what, there, gone)| match (there, gone) {
            (true, _) => format!("{what}: there"),
            (_, true) => format!("{what}: not there"),
            _ => format!("{what}: in part"),
        });
        let words: Vec<String> = words.collect();
        Fate::Broken(format!("transaction {tx} is there in part ({})", words.join(", ")))
    }
}

fn damage(own_sum: bool) -> &'static str {
    match own_sum {
        true => "has its own sum, and not the body that this run writes there",
        false => "is damaged: its body is not what its sum says",
    }
}

/// Ascending ranges, those that meet joined.
#[derive(Debug, Default)]
struct Ranges(Vec<RangeInclusive<u64>>);

impl Ranges {
    fn push(&mut self, range: RangeInclusive<u64>) {
        match self.0.last_mut() {
            Some(last) if *last.end() + 1 == *range.start() => *last = *last.start()..=*range.end(),
            _ => self.0.push(range),
        }
    }
}

#[cfg(test)]
mod tests;
