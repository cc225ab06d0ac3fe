//! Chosen places for a cut: where a file system is in the middle of something.
//!
//! What is told are windows: a cut anywhere behind the first entry, at the second or before it.

use super::timeline::Timeline;
use crate::disk::DiskLog;
use crate::disk::jbd2::JournalBlock;
use crate::trace::EntryNo;
use crate::units::Txg;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A kind of place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Right after an operation was acknowledged.
    AfterAck,
    /// After the first uberblock of a new txg was written, and before one of them is durable.
    InTxgSync,
    /// When half of the uberblocks of a txg were written: they go to the labels at both ends of a
    /// pool's device.
    BetweenLabels,
    /// After the first block of a transaction of ext4's journal was written, and before its commit
    /// block is durable.
    InJournalCommit,
}

const PLACES: [(Place, &str); 4] = [
    (Place::AfterAck, "after-ack"),
    (Place::InTxgSync, "in-txg-sync"),
    (Place::BetweenLabels, "between-labels"),
    (Place::InJournalCommit, "in-journal-commit"),
];

/// Text that names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("place {0:?} is not one of after-ack, in-txg-sync, between-labels, in-journal-commit")]
pub struct PlaceError(String);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PLACES.iter().find(|(place, _)| place == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let found = PLACES.iter().find(|(_, name)| *name == text);
        found.map(|(place, _)| *place).ok_or_else(|| PlaceError(text.to_owned()))
    }
}

type Window = (EntryNo, EntryNo);

/// All windows of a kind within the load, ascending.
pub(super) fn windows(
    log: &DiskLog,
    acks: &[EntryNo],
    place: Place,
    timeline: &Timeline<'_>,
) -> Vec<Window> {
    let all = match place {
        Place::AfterAck => {
            acks.iter().map(|ack| (*ack, EntryNo(ack.0.saturating_add(1)))).collect()
        }
        Place::InTxgSync => txg_syncs(log, timeline),
        Place::BetweenLabels => between_labels(log),
        Place::InJournalCommit => journal_commits(log, timeline),
    };
    let mut windows: Vec<Window> = all
        .into_iter()
        // Not a part of an ack's window: it has one cut, which may lie behind the end.
        .filter(|(lo, _)| *lo < timeline.end())
        .map(|(lo, hi)| (lo.max(timeline.begins()), hi.min(timeline.end())))
        .filter(|(lo, hi)| lo < hi)
        .collect();
    windows.sort_unstable();
    windows.dedup();
    windows
}

/// The uberblock writes of each txg that was new, as indices of requests.
fn uberblocks(log: &DiskLog) -> BTreeMap<Txg, Vec<u32>> {
    let mut of_txg: BTreeMap<Txg, Vec<u32>> = BTreeMap::new();
    for sighting in &log.uberblocks {
        let highest = of_txg.last_key_value().map(|(txg, _)| *txg);
        // An older one again is a part of what was there, not a new group.
        if highest.is_none_or(|highest| highest <= sighting.txg) {
            of_txg.entry(sighting.txg).or_default().push(sighting.request);
        }
    }
    of_txg
}

fn txg_syncs(log: &DiskLog, timeline: &Timeline<'_>) -> Vec<Window> {
    let window = |writes: Vec<u32>| {
        let requests = || writes.iter().map(|index| &log.requests[*index as usize]);
        let durable = requests().filter_map(|r| timeline.durable_at.of(r)).map(|d| d.by).min();
        Some((requests().next()?.arrival, durable.unwrap_or(timeline.end())))
    };
    uberblocks(log).into_values().filter_map(window).collect()
}

fn between_labels(log: &DiskLog) -> Vec<Window> {
    let arrival = |index: u32| log.requests[index as usize].arrival;
    let window = |writes: Vec<u32>| {
        let half = writes.len() / 2;
        Some((arrival(*writes.get(half.checked_sub(1)?)?), arrival(*writes.get(half)?)))
    };
    uberblocks(log).into_values().filter_map(window).collect()
}

/// A transaction of a journal.
struct Transaction {
    first: EntryNo,
    /// When its commit block became durable, if it did.
    committed: Option<EntryNo>,
    has_commit: bool,
}

fn journal_commits(log: &DiskLog, timeline: &Timeline<'_>) -> Vec<Window> {
    let mut transactions: BTreeMap<u32, Transaction> = BTreeMap::new();
    for sighting in &log.journal {
        let request = &log.requests[sighting.request as usize];
        let first = request.arrival;
        let new = Transaction { first, committed: None, has_commit: false };
        let transaction = transactions.entry(sighting.sequence).or_insert(new);
        if sighting.block == JournalBlock::Commit && !transaction.has_commit {
            transaction.has_commit = true;
            transaction.committed = timeline.durable_at.of(request).map(|durable| durable.by);
        }
    }
    let complete = transactions.into_values().filter(|transaction| transaction.has_commit);
    complete.map(|t| (t.first, t.committed.unwrap_or(timeline.end()))).collect()
}
