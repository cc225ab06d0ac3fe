//! When each transaction group of a pool became durable on the disk, under a crash model.
//!
//! A group is durable once one write of its uberblock is. Under `subset` and `torn` it may be there
//! earlier by chance; what is told is when it must be, so a window told from these is one that the
//! model may show.

use super::crash::{CrashModel, DurableAt};
use super::log::{DiskLog, LOAD_BEGINS};
use crate::trace::Command;
use crate::units::{LabNs, Txg};
use std::collections::BTreeMap;

/// From this instant on a txg's uberblock is part of every crash state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Which.
    pub txg: Txg,
    /// When it became durable under the crash model.
    pub durable: LabNs,
}

/// The commits of a trace, ascending in txg and in time.
pub fn commit_times(log: &DiskLog, model: CrashModel) -> Vec<Commit> {
    let begins = log.mark(LOAD_BEGINS).map(|mark| mark.entry);
    let durable = DurableAt::new(log);
    // What an unsafe disk had made durable before it began to lie.
    let flushed = |index: usize| durable.of(&log.requests[index]);
    let honest = |index: usize| flushed(index).filter(|d| begins.is_none_or(|from| d.by < from));
    let pushed_out = match model {
        CrashModel::Unsafe { mib } => {
            pushed_out_at(log, u64::from(mib) << 20, |index| honest(index).is_some())
        }
        _ => Vec::new(),
    };
    let mut earliest: BTreeMap<Txg, LabNs> = BTreeMap::new();
    for sighting in &log.uberblocks {
        let index = sighting.request as usize;
        let request = &log.requests[index];
        let held_from = match model {
            CrashModel::KeepAll => Some(request.arrived),
            CrashModel::DropUnflushed | CrashModel::Subset | CrashModel::Torn { .. } => {
                flushed(index).map(|durable| durable.at)
            }
            CrashModel::Unsafe { .. } => {
                honest(index).map(|durable| durable.at).or(pushed_out[index])
            }
        };
        let Some(from) = held_from else { continue };
        let known = earliest.entry(sighting.txg).or_insert(from);
        *known = from.min(*known);
    }
    let of = |(txg, durable)| Commit { txg, durable };
    let mut commits: Vec<Commit> = earliest.into_iter().map(of).collect();
    commits.sort_by_key(|commit| (commit.durable, commit.txg));
    let mut newest = None;
    commits.retain(|commit| {
        let advances = newest.is_none_or(|txg| commit.txg > txg);
        newest = newest.max(Some(commit.txg));
        advances
    });
    commits
}

/// For each request when so many bytes had been written from it on that the cache could not hold
/// it any more. What is `safe` already is not in the cache.
fn pushed_out_at(
    log: &DiskLog,
    cache_bytes: u64,
    safe: impl Fn(usize) -> bool,
) -> Vec<Option<LabNs>> {
    let size = |index: usize| match log.requests[index].command() {
        Command::Write if !safe(index) => log.requests[index].bytes(),
        _ => 0,
    };
    let (mut at, mut held) = (0, 0);
    let mut pushed = Vec::with_capacity(log.requests.len());
    for index in 0..log.requests.len() {
        while held <= cache_bytes && at < log.requests.len() {
            held += size(at);
            at += 1;
        }
        let out = (held > cache_bytes).then(|| log.requests[at - 1].arrived);
        pushed.push(out);
        held -= size(index);
    }
    pushed
}

#[cfg(test)]
mod tests;
