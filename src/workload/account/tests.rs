//! Databases in memory: transactions carried out whole, but for what is planted.

use super::*;
use crate::record::testing::plan;
use crate::workload::ledger::KEPT;
use proptest::prelude::*;

/// The two tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tables {
    books: BTreeMap<u64, u64>,
    lines: BTreeSet<(u64, u8)>,
}

fn ledger() -> Ledger {
    let plan = plan();
    Ledger::new(&plan, &plan.streams[0])
}

impl Tables {
    fn carry_out(&mut self, tx: u64) {
        self.books.insert(tx, 0);
        self.lines.extend((0..ledger().lines(tx)).map(|part| (tx, part)));
        if let Some(book) = touches(tx).and_then(|old| self.books.get_mut(&old)) {
            *book = tx;
        }
        if let Some(last) = deletes_to(tx) {
            self.books.retain(|tx, _| *tx > last);
            self.lines.retain(|(tx, _)| *tx > last);
        }
    }

    fn after(transactions: impl IntoIterator<Item = u64>) -> Tables {
        let mut tables = Tables::default();
        transactions.into_iter().for_each(|tx| tables.carry_out(tx));
        tables
    }

    fn account(&self) -> Account {
        let (ledger, mut account) = (ledger(), Account::new(ledger()));
        for (tx, touched) in &self.books {
            let row = ledger.book(*tx, *touched);
            account.book(*tx, *touched, u64::from(ledger.lines(*tx)), &row);
        }
        for (tx, part) in &self.lines {
            account.line(*tx, u64::from(*part), &ledger.line(*tx, *part));
        }
        account
    }
}

#[test]
fn every_prefix_is_whole_whatever_was_deleted_or_rewritten() {
    let mut tables = Tables::default();
    assert_eq!(tables.account().finish(), (vec![], vec![]));
    for tx in 1..=3 * KEPT {
        tables.carry_out(tx);
        assert_eq!(tables.account().finish(), (vec![1..=tx], vec![]), "{tx}");
    }
}

#[test]
fn a_damaged_row_a_foreign_row_and_an_old_row_are_told_and_not_counted() {
    let tables = Tables::after(1..=300);
    let mut account = tables.account();
    let mut row = ledger().line(290, 0);
    row.body[3] ^= 1;
    account.lines.remove(&290);
    account.line(290, 0, &row);
    let (survived, broken) = account.finish();
    assert_eq!(survived, [1..=289, 291..=300]);
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(broken[0].id == Some(290) && broken[0].words.contains("damaged"), "{broken:?}");

    let mut account = tables.account();
    account.book(7, 0, u64::from(ledger().lines(7)), &ledger().book(7, 0));
    let (survived, broken) = account.finish();
    assert_eq!(survived, [1..=300]);
    assert!(broken[0].id == Some(7) && broken[0].words.contains("deleted"), "{broken:?}");

    let mut account = tables.account();
    account.line(u64::MAX, 0, &ledger().line(3, 0));
    account.line(5, 200, &ledger().line(5, 0));
    account.book(0, 0, 1, &ledger().book(0, 0));
    account.book(9, 3, u64::from(ledger().lines(9)), &ledger().book(9, 3));
    let (survived, broken) = account.finish();
    assert_eq!((survived, broken.len()), (vec![1..=300], 4), "numbers without sense bound nothing");
}

#[test]
fn a_transaction_without_one_of_its_traces_is_broken() {
    let whole = Tables::after(1..=288);
    // 288 rewrites 285's row, and deletes the rows of 17 to 32.
    let mut untouched = whole.clone();
    untouched.books.insert(285, 0);
    let mut undeleted = whole.clone();
    undeleted.books.insert(20, 0);
    let mut without_book = whole.clone();
    without_book.books.remove(&288);
    let mut without_line = whole.clone();
    without_line.lines.remove(&(288, 0));
    for (planted, tables) in [untouched, undeleted, without_book, without_line].iter().enumerate() {
        let (survived, broken) = tables.account().finish();
        assert_eq!(survived, [1..=287], "{planted}");
        assert_eq!(broken.first().and_then(|broken| broken.id), Some(288), "{planted}: {broken:?}");
    }
    assert_eq!(whole.account().finish(), (vec![1..=288], vec![]), "control");
}

#[test]
fn a_flood_of_damage_is_told_in_bounds() {
    let mut account = Account::new(ledger());
    (1..10_000).for_each(|tx| account.line(tx, 99, &ledger().line(1, 0)));
    let (survived, broken) = account.finish();
    assert_eq!((survived.len(), broken.len()), (0, BROKEN_MAX + 1));
    assert!(broken[BROKEN_MAX].words.contains("9899"), "{:?}", broken[BROKEN_MAX]);
}

proptest! {
    /// A transaction that was lost whole among others is a gap exactly there, unless a deletion has
    /// taken its place since.
    #[test]
    fn a_lost_transaction_is_a_gap_where_it_was(
        kept in 1u64..600, lost in prop::collection::btree_set(1u64..600, 0..4),
    ) {
        let tables = Tables::after((1..=kept).filter(|tx| !lost.contains(tx)));
        let (survived, broken) = tables.account().finish();
        prop_assert_eq!(broken, vec![]);
        let there = |tx: u64| survived.iter().any(|range| range.contains(&tx));
        let newest = (1..=kept).rev().find(|tx| !lost.contains(tx)).unwrap_or(0);
        // A lost deleter leaves its rows to the next: then they are there, and no gap.
        let deleted = (1..=newest).filter(|tx| !lost.contains(tx)).filter_map(deletes_to).max();
        for tx in deleted.unwrap_or(0) + 1..=newest {
            prop_assert_eq!(there(tx), !lost.contains(&tx), "{}", tx);
        }
        prop_assert!(survived.iter().all(|range| *range.end() <= newest));
    }
}
