//! What became of a script's operations where the whole tree comes back to one instant.

use super::damage::{self, Words};
use super::instants::{Instant, Instants};
use super::prefix::{Parts, Walk, walk};
use super::seen::SeenTree;
use crate::history::log::StreamHistory;
use crate::script::model::tree::Tree;
use crate::script::op::Op;
use crate::script::spec::Script;
use crate::script::tree::ObservedTree;
use crate::units::{EventNo, GuestNs, Seq, StreamId};
use crate::verify::outcome::{Finding, Outcome};
use crate::verify::survey::{Missing, Promise, Proofs, Renamed, StreamSurvey, Survivor};
use crate::workload::plan::Plan;
use std::collections::BTreeMap;

/// What a tree is held against.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The run's plan.
    pub plan: &'a Plan,
    /// The stream.
    pub stream: StreamId,
    /// Its operations, as far as any may have been carried out.
    pub script: &'a Script,
    /// What it said.
    pub said: &'a StreamHistory,
    /// What was read back.
    pub found: &'a ObservedTree,
    /// What is owed.
    pub promise: Promise,
}

impl Held<'_> {
    /// Whose words may be seen.
    pub(super) fn words(&self) -> Words<'_> {
        Words { plan: self.plan, stream: self.stream, ops: &self.script.ops }
    }

    /// The changing operations after `after`, up to `upto`.
    pub(super) fn changing(&self, after: Seq, upto: Seq) -> impl Iterator<Item = Seq> + '_ {
        let ops = (after.0 + 1..=upto.0).map(Seq);
        let changes = |seq: &Seq| self.script.ops.get(seq.0 as usize - 1).is_some_and(Op::changes);
        ops.filter(changes)
    }

    /// An operation that is there: when it began, at the earliest, and when it was acknowledged.
    pub fn survivor(&self, seq: Seq) -> Option<Survivor> {
        if seq == Seq(0) {
            return None;
        }
        if let Some(acked) = self.said.ack(seq) {
            let ack = acked.ack;
            return Some(Survivor { seq, start: ack.start, at: ack.end_ns });
        }
        // A stream does one operation after the other.
        let last = self.said.acked.last().map(|acked| acked.ack);
        let start = last.map_or(EventNo(0), |ack| EventNo(ack.end.0.saturating_add(1)));
        Some(Survivor { seq, start, at: last.map_or(GuestNs(0), |ack| ack.end_ns) })
    }
}

/// Holds a tree against its script. `transaction_bytes` of a file are written as one step.
pub fn at_one_instant(held: &Held, transaction_bytes: u64, proofs: Proofs) -> StreamSurvey {
    let mut tree = Tree::new(&held.script.paths);
    let seen = SeenTree::new(held.found, tree.names_mut());
    let transaction_words = transaction_bytes / crate::script::op::WORD_BYTES;
    let parts = Parts { transaction_words, returned: held.said.newest_acked() };
    let walked = walk(tree.clone(), &held.script.ops, &seen, parts);
    let findings = match walked.instants.is_empty() {
        true => damage::against(tree, &held.words(), &seen, walked.nearest),
        false => Vec::new(),
    };
    sum_up(held, walked, findings, proofs)
}

fn sum_up(held: &Held, walked: Walk, findings: Vec<Finding>, proofs: Proofs) -> StreamSurvey {
    let nearest = Instant { whole: walked.nearest, part: false };
    let first = walked.instants.first().unwrap_or(nearest);
    let last = walked.instants.last().unwrap_or(nearest);
    let acked = held.said.newest_acked();
    let missing = |from: Instant| {
        let gone = held.changing(from.whole, acked).next();
        gone.map_or(Missing::None, Missing::From)
    };
    // In a tree at one instant every rename happened or did not; of a damaged one it is not told.
    let renames = held
        .changing(Seq(0), first.whole)
        .filter(|seq| matches!(held.script.ops.get(seq.0 as usize - 1), Some(Op::Rename { .. })));
    let renamed = match walked.instants.is_empty() {
        true => 0,
        false => renames.count() as u64,
    };
    let mut counts = counts(held, last);
    for finding in &findings {
        *counts.entry(finding.outcome).or_insert(0) += 1;
    }
    StreamSurvey {
        stream: held.stream,
        newest: held.survivor(first.whole),
        missing: missing(last),
        missing_at_most: missing(first),
        missing_count: held.changing(last.whole, acked).count() as u64,
        findings,
        counts,
        fill: held.script.fill,
        proofs,
        renamed: Renamed { checked: renamed, broken: Vec::new() },
        instants: match walked.instants.is_empty() {
            true => Instants::one(walked.nearest),
            false => walked.instants,
        },
    }
}

fn counts(held: &Held, last: Instant) -> BTreeMap<Outcome, u64> {
    let acked = held.said.newest_acked();
    let announced = held.said.announced.unwrap_or(acked).max(acked);
    let (kept, fill) = (last.whole, Seq(held.script.fill));
    let between = |after: Seq, upto: Seq| held.changing(after.min(upto), upto).count() as u64;
    let recent = match held.promise {
        Promise::Everything => Outcome::LostThoughDurable,
        Promise::AllButRecent => Outcome::LostInWindow,
    };
    let in_part = u64::from(last.part && last.newest() > acked);
    let gone = between(kept.max(acked), announced).saturating_sub(in_part);
    let mut counts = BTreeMap::new();
    for (outcome, count) in [
        (Outcome::Survived, between(Seq(0), kept.min(acked))),
        (Outcome::UnackedSurvived, between(acked, kept)),
        (Outcome::InFlightInPart, in_part),
        (Outcome::UnackedGone, gone),
        (Outcome::LostThoughDurable, between(kept, fill.min(acked))),
        (recent, between(kept.max(fill), acked)),
    ] {
        if count > 0 {
            *counts.entry(outcome).or_insert(0) += count;
        }
    }
    counts
}

#[cfg(test)]
mod tests;
