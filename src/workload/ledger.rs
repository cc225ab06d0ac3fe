//! What a SQLite stream's transactions write: two tables of which every row follows from the number
//! of the last transaction alone.
//!
//! Pure. Transaction n adds one row to `book` and one to three to `line`; each fourth one rewrites the
//! book row of the third before it, and each sixteenth deletes all rows that are [`KEPT`] transactions
//! old. So inserts, updates and deletes are all seen, and a database stays small however long a load
//! runs. Every body and its sum follow from run, seed, stream, transaction and part.

use crate::units::{RunId, StreamId};
use crate::workload::plan::{Plan, StreamPlan, splitmix64};
use sha2::{Digest, Sha256};

/// Rows of this many transactions are left by each that deletes.
pub const KEPT: u64 = 256;
/// Each so-manieth transaction deletes.
pub const DELETE_EVERY: u64 = 16;
/// Each so-manieth transaction rewrites an older row.
const TOUCH_EVERY: u64 = 4;
/// How far back that row is.
const TOUCH_BACK: u64 = 3;
/// The part of a book row, behind any line's.
const BOOK: u8 = 0xff;

/// Whose transactions.
#[derive(Debug, Clone, Copy)]
pub struct Ledger {
    run: RunId,
    seed: u64,
    stream: StreamId,
}

/// A row's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// From the seed.
    pub body: Vec<u8>,
    /// First 16 bytes of the SHA-256 of what the row is and holds.
    pub sum: [u8; 16],
}

impl Ledger {
    /// The transactions of a stream.
    pub fn new(plan: &Plan, stream: &StreamPlan) -> Ledger {
        Ledger { run: plan.run, seed: plan.seed, stream: stream.id }
    }

    /// The row of a transaction in `book`, as that transaction (0) or a later one wrote it.
    pub fn book(&self, tx: u64, touched: u64) -> Row {
        self.row(tx, BOOK, touched, 32..320)
    }

    /// A row of a transaction in `line`.
    pub fn line(&self, tx: u64, part: u8) -> Row {
        self.row(tx, part, 0, 64..1024)
    }

    /// How many rows a transaction has in `line`: their parts count from 0.
    pub fn lines(&self, tx: u64) -> u8 {
        1 + (self.word(tx, BOOK, 1) % 3) as u8
    }

    fn word(&self, tx: u64, part: u8, touched: u64) -> u64 {
        let lane = (u64::from(self.stream.0) << 8) | u64::from(part);
        let own = splitmix64(splitmix64(self.seed).wrapping_add(lane)).wrapping_add(tx);
        splitmix64(splitmix64(own).wrapping_add(touched))
    }

    fn row(&self, tx: u64, part: u8, touched: u64, bytes: std::ops::Range<u64>) -> Row {
        let first = self.word(tx, part, touched);
        let len = bytes.start + first % (bytes.end - bytes.start);
        let words = (0..len.div_ceil(8)).map(|n| splitmix64(first.wrapping_add(n)));
        let mut body: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        body.truncate(len as usize);
        Row { sum: self.sum(tx, part, touched, &body), body }
    }

    /// What a row with this body has as its sum.
    pub fn sum(&self, tx: u64, part: u8, touched: u64, body: &[u8]) -> [u8; 16] {
        let mut sha = Sha256::new();
        sha.update(self.run.0);
        sha.update(self.stream.0.to_le_bytes());
        sha.update(tx.to_le_bytes());
        sha.update([part]);
        sha.update(touched.to_le_bytes());
        sha.update(body);
        let mut sum = [0; 16];
        sum.copy_from_slice(&sha.finalize()[..16]);
        sum
    }

    /// The sum of a book row with this body.
    pub fn book_sum(&self, tx: u64, touched: u64, body: &[u8]) -> [u8; 16] {
        self.sum(tx, BOOK, touched, body)
    }
}

/// The older transaction whose book row this one rewrites.
pub fn touches(tx: u64) -> Option<u64> {
    (tx.is_multiple_of(TOUCH_EVERY) && tx > TOUCH_BACK).then(|| tx - TOUCH_BACK)
}

/// The later transaction that rewrites this one's book row.
pub fn touched_by(tx: u64) -> Option<u64> {
    tx.checked_add(TOUCH_BACK).filter(|later| later.is_multiple_of(TOUCH_EVERY))
}

/// Up to which transaction this one deletes all rows.
pub fn deletes_to(tx: u64) -> Option<u64> {
    (tx.is_multiple_of(DELETE_EVERY) && tx > KEPT).then(|| tx - KEPT)
}

/// The last transaction up to this one that deletes.
pub fn last_deleter(newest: u64) -> Option<u64> {
    let tx = newest - newest % DELETE_EVERY;
    deletes_to(tx).map(|_| tx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::plan;

    #[test]
    fn every_row_is_its_own_and_the_same_again() {
        let plan = plan();
        let ledger = Ledger::new(&plan, &plan.streams[0]);
        let other = Ledger::new(&plan, &plan.streams[1]);
        assert_eq!(ledger.line(7, 0), ledger.line(7, 0));
        let row = ledger.line(7, 0);
        assert_eq!(row.sum, ledger.sum(7, 0, 0, &row.body));
        for different in [ledger.line(7, 1), ledger.line(8, 0), other.line(7, 0)] {
            assert_ne!(row.body, different.body);
            assert_ne!(row.sum, different.sum);
        }
        assert_ne!(ledger.book(5, 0), ledger.book(5, 8));
        let counts: Vec<u8> = (1..100).map(|tx| ledger.lines(tx)).collect();
        assert!((1..=3).all(|count| counts.contains(&count)) && !counts.contains(&4));
    }

    #[test]
    fn rewriting_and_deleting_follow_from_the_number_alone() {
        assert_eq!((touches(4), touches(8), touches(5)), (Some(1), Some(5), None));
        assert!((1..100).all(|tx| touched_by(tx).is_none_or(|later| touches(later) == Some(tx))));
        assert!((1..100).all(|tx| touches(tx).is_none_or(|old| touched_by(old) == Some(tx))));
        assert_eq!((deletes_to(256), deletes_to(272), deletes_to(273)), (None, Some(16), None));
        assert_eq!(
            (last_deleter(271), last_deleter(272), last_deleter(300)),
            (None, Some(272), Some(288))
        );
    }
}
