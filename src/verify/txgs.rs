//! What the pool's transaction groups tell: what closed each, and how long its phases took.
//!
//! The sync thread's timer runs from the start of the sync before (module/zfs/txg.c,
//! txg_sync_thread), so a group N closed by the timer was open until sync-start(N - 1) + timeout,
//! or until the sync before it ended if that took longer.

use crate::history::message::{TxgRow, TxgState};
use crate::units::{GuestNs, Txg};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What ended a transaction group's time open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClosedBy {
    /// `zfs_txg_timeout` ran out.
    Timer,
    /// More than `zfs_dirty_data_sync_percent` of `zfs_dirty_data_max` was dirty.
    DirtyBytes,
    /// Something asked for a sync: a snapshot, a property, `zpool sync`, an administrative command.
    Forced,
    /// The rows do not tell.
    Unknown,
}

impl fmt::Display for ClosedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ClosedBy::Timer => "timer",
            ClosedBy::DirtyBytes => "dirty bytes",
            ClosedBy::Forced => "forced",
            ClosedBy::Unknown => "unknown",
        })
    }
}

/// The limits under which a pool closes its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxgLimits {
    /// `zfs_txg_timeout`, in nanoseconds.
    pub timeout_ns: u64,
    /// Dirty bytes at which a group is closed early.
    pub dirty_bytes: u64,
}

/// A group's story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxgStory {
    /// Which.
    pub txg: Txg,
    /// When it opened.
    pub birth: GuestNs,
    /// What closed it; `None` while it is open.
    pub closed_by: Option<ClosedBy>,
    /// Dirty bytes when it was synced.
    pub dirty_bytes: u64,
    /// Time open, in nanoseconds.
    pub open_ns: u64,
    /// Time quiescing, in nanoseconds.
    pub quiesce_ns: u64,
    /// Time waiting for the sync thread, in nanoseconds.
    pub wait_ns: u64,
    /// Time syncing, in nanoseconds.
    pub sync_ns: u64,
}

/// The story of each group that the guest reported.
pub fn stories(rows: &BTreeMap<Txg, TxgRow>, limits: TxgLimits) -> Vec<TxgStory> {
    rows.values()
        .map(|row| TxgStory {
            txg: row.txg,
            birth: row.birth,
            closed_by: closed_by(rows, row, limits),
            dirty_bytes: row.dirty_bytes,
            open_ns: row.open_ns,
            quiesce_ns: row.quiesce_ns,
            wait_ns: row.wait_ns,
            sync_ns: row.sync_ns,
        })
        .collect()
}

fn closed_by(rows: &BTreeMap<Txg, TxgRow>, row: &TxgRow, limits: TxgLimits) -> Option<ClosedBy> {
    if row.state == TxgState::Open {
        return None;
    }
    // The kstat fills the dirty column only when the group is synced: one that was closed early and
    // is not committed yet may have been closed by dirty bytes.
    if row.state == TxgState::Committed && row.dirty_bytes >= limits.dirty_bytes {
        return Some(ClosedBy::DirtyBytes);
    }
    let previous = row.txg.0.checked_sub(1).and_then(|txg| rows.get(&Txg(txg)));
    let Some(previous) = previous else { return Some(ClosedBy::Unknown) };
    // The numbers come from messages, so their sums are bounded.
    let before_sync = [previous.open_ns, previous.quiesce_ns, previous.wait_ns];
    let sync_start = before_sync.into_iter().fold(previous.birth.0, u64::saturating_add);
    let closed = row.birth.0.saturating_add(row.open_ns);
    let timer = sync_start.saturating_add(limits.timeout_ns.max(previous.sync_ns));
    let early = timer.saturating_sub(limits.timeout_ns / 20);
    // Nothing but the timer, woken late, closes a group after its time.
    Some(match (closed < early, row.state) {
        (false, _) => ClosedBy::Timer,
        (true, TxgState::Committed) => ClosedBy::Forced,
        (true, _) => ClosedBy::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::EventNo;

    const LIMITS: TxgLimits = TxgLimits { timeout_ns: 5_000_000_000, dirty_bytes: 20_000_000 };

    fn row(txg: u64, birth_ms: u64, open_ms: u64, sync_ms: u64, dirty_bytes: u64) -> TxgRow {
        TxgRow {
            event: EventNo(0),
            seen_ns: GuestNs(0),
            txg: Txg(txg),
            birth: GuestNs(birth_ms * 1_000_000),
            state: TxgState::Committed,
            dirty_bytes,
            open_ns: open_ms * 1_000_000,
            quiesce_ns: 0,
            wait_ns: 0,
            sync_ns: sync_ms * 1_000_000,
        }
    }

    fn second_closed_by(first: TxgRow, second: TxgRow) -> Option<ClosedBy> {
        let rows = BTreeMap::from([(first.txg, first), (second.txg, second)]);
        stories(&rows, LIMITS)[1].closed_by
    }

    #[test]
    fn the_timer_runs_from_the_start_of_the_sync_before() {
        let first = row(7, 0, 5_000, 300, 1_000);
        assert_eq!(second_closed_by(first, row(8, 5_000, 5_003, 80, 1_000)), Some(ClosedBy::Timer));
        let slow = row(7, 0, 5_000, 7_400, 1_000);
        assert_eq!(second_closed_by(slow, row(8, 5_000, 7_410, 80, 9)), Some(ClosedBy::Timer));
    }

    #[test]
    fn dirty_bytes_and_forced_syncs_are_told_from_the_timer() {
        let first = row(7, 0, 5_000, 300, 1_000);
        let full = row(8, 5_000, 900, 200, 21_000_000);
        assert_eq!(second_closed_by(first, full), Some(ClosedBy::DirtyBytes));
        let asked = row(8, 5_000, 900, 200, 1_000);
        assert_eq!(second_closed_by(first, asked), Some(ClosedBy::Forced));
        let odd = row(8, 5_000, 9_000, 200, 1_000);
        assert_eq!(second_closed_by(first, odd), Some(ClosedBy::Timer));
        let syncing = TxgRow { state: TxgState::Syncing, ..asked };
        assert_eq!(second_closed_by(first, syncing), Some(ClosedBy::Unknown));
    }
}
