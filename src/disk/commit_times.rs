//! When each transaction group of a pool became durable on the disk, under a crash model.
//!
//! A group is durable once one write of its uberblock is. Under `subset` and `torn` it may be there
//! earlier by chance; what is told is when it must be, so a window told from these is one that the
//! model may show.

use super::crash::CrashModel;
use super::log::{DiskLog, LOAD_BEGINS};
use crate::trace::{Command, EntryNo};
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
    let flushed = flushed_at(log);
    // What an unsafe disk had made durable before it began to lie.
    let honest =
        |index: usize| flushed[index].filter(|(_, by)| begins.is_none_or(|from| *by < from));
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
        let durable = match model {
            CrashModel::KeepAll => Some(request.arrived),
            CrashModel::DropUnflushed | CrashModel::Subset | CrashModel::Torn { .. } => {
                flushed[index].map(|(at, _)| at)
            }
            CrashModel::Unsafe { .. } => honest(index).map(|(at, _)| at).or(pushed_out[index]),
        };
        let Some(durable) = durable else { continue };
        let known = earliest.entry(sighting.txg).or_insert(durable);
        *known = durable.min(*known);
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

/// For each request the reply that made it durable on an honest disk, and that reply's entry.
fn flushed_at(log: &DiskLog) -> Vec<Option<(LabNs, EntryNo)>> {
    // (arrival, earliest reply among this and all later arrivals) of the flushes that succeeded.
    let mut flushes: Vec<(EntryNo, (EntryNo, LabNs))> = log
        .requests
        .iter()
        .filter(|request| request.command() == Command::Flush)
        .filter_map(|flush| {
            let reply = flush.reply().filter(|reply| reply.error == 0)?;
            Some((flush.arrival, (reply.entry, reply.at)))
        })
        .collect();
    let mut earliest = (EntryNo(u32::MAX), LabNs(u64::MAX));
    for (_, reply) in flushes.iter_mut().rev() {
        earliest = earliest.min(*reply);
        *reply = earliest;
    }
    let durable = |request: &super::log::DiskRequest| {
        let reply = request.reply().filter(|reply| reply.error == 0)?;
        let from = flushes.partition_point(|(arrival, _)| *arrival <= reply.entry);
        let covered = flushes.get(from).map(|(_, (entry, at))| (*at, *entry));
        let forced = request.fua().then_some((reply.at, reply.entry));
        forced.or(covered)
    };
    log.requests.iter().map(durable).collect()
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
