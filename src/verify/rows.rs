//! What became of a stream whose operations are transactions, or a program's own: what survived, held
//! against what was said.
//!
//! A stream's operations come one after another, so the newest that is there implies all before it:
//! what is there must be all operations up to one. With M the newest that is there and A the newest
//! ack, those from M + 1 to A are lost, and those after A owe nothing. A gap before M, a broken
//! operation, and a failed check are damage whatever was claimed about loss.

use super::outcome::{Finding, Outcome};
use super::survey::{Missing, Promise, Proofs, Renamed, StreamSurvey, Survivor};
use super::tree::instants::Instants;
use crate::history::log::StreamHistory;
use crate::record::rows::ObservedRows;
use crate::units::{EventNo, GuestNs, Seq, StreamId};
use crate::workload::plan::StreamPlan;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Operations that a stream may do while their messages are still on their way.
const UNACKED_MAX: u64 = 1 << 20;

/// Gaps that are told one by one.
const GAPS_MAX: usize = 1_000;

/// Holds what survived of a stream against its history. `None`: nothing was read.
pub fn survey(
    stream: &StreamPlan,
    said: &StreamHistory,
    rows: Option<&ObservedRows>,
    promise: Promise,
) -> StreamSurvey {
    let mut work = Work { stream: stream.id, findings: Vec::new() };
    let survived = rows.map_or_else(Vec::new, |rows| work.sound(rows, said.newest_acked().0));
    if let Some(rows) = rows {
        work.own_words(rows);
    }
    let kept = survived.last().map_or(0, |range| *range.end());
    let gaps = gaps(&survived);
    work.gaps(&gaps);
    let (acked, fill) = (said.newest_acked().0, stream.fill());
    let gone: u64 = gaps.iter().map(|gap| up_to(gap, acked)).sum();
    let lost = acked.saturating_sub(kept);
    let lost_fill = fill.min(acked).saturating_sub(kept);
    let there = |up_to_id| survived.iter().map(|range| up_to(range, up_to_id)).sum::<u64>();
    let announced = said.announced.map_or(0, |seq| seq.0);
    let recent = match promise {
        Promise::Everything => Outcome::LostThoughDurable,
        Promise::AllButRecent => Outcome::LostInWindow,
    };
    let whole = [
        (Outcome::Survived, there(acked)),
        (Outcome::UnackedSurvived, there(u64::MAX) - there(acked)),
        (Outcome::UnackedGone, announced.saturating_sub(kept.max(acked))),
        (Outcome::LostThoughDurable, lost_fill),
        (recent, lost - lost_fill),
    ];
    let mut counts = BTreeMap::new();
    let found = work.findings.iter().map(|finding| (finding.outcome, 1));
    for (outcome, count) in whole.into_iter().filter(|(_, n)| *n > 0).chain(found) {
        *counts.entry(outcome).or_insert(0) += count;
    }
    let first = gaps.first().map(|gap| *gap.start()).filter(|first| *first <= acked);
    let first = first.or((lost > 0).then_some(kept + 1)).map(Seq);
    let missing = first.map_or(Missing::None, Missing::From);
    StreamSurvey {
        stream: stream.id,
        instants: Instants::one(Seq(kept)),
        renamed: Renamed::default(),
        newest: (kept > 0).then(|| survivor(Seq(kept), said)),
        missing,
        missing_at_most: missing,
        missing_count: lost + gone,
        findings: work.findings,
        counts,
        fill,
        proofs: Proofs::EachAck,
    }
}

struct Work {
    stream: StreamId,
    findings: Vec<Finding>,
}

impl Work {
    fn find(&mut self, outcome: Outcome, seq: Option<u64>, text: String) {
        let seq = seq.map(Seq);
        self.findings.push(Finding { outcome, stream: self.stream, seq, location: 0, text });
    }

    /// The survivors as far as they can be true. What cannot be is a finding: a list that is out of
    /// order, or an operation far beyond all that was said.
    fn sound(&mut self, rows: &ObservedRows, acked: u64) -> Vec<RangeInclusive<u64>> {
        let most = acked.saturating_add(UNACKED_MAX);
        let mut sound: Vec<RangeInclusive<u64>> = Vec::new();
        for range in &rows.survived {
            let (first, last) = (*range.start(), *range.end());
            let behind = sound.last().map_or(0, |before| *before.end());
            if first <= behind || last < first {
                let text = format!("the list of survivors says {first} to {last} behind {behind}");
                self.find(Outcome::Broken, None, text);
                continue;
            }
            if last > most {
                let text =
                    format!("operation {last} is far beyond operation {acked}, the newest acked");
                self.find(Outcome::Broken, Some(last), text);
            }
            if first <= most {
                sound.push(first..=last.min(most));
            }
        }
        sound
    }

    fn own_words(&mut self, rows: &ObservedRows) {
        if rows.checks.is_empty() {
            self.find(Outcome::FailedCheck, None, "no check was made of it".to_owned());
        }
        for check in rows.checks.iter().filter(|check| !check.passed) {
            let words = if check.words.is_empty() { "no words" } else { check.words.as_str() };
            self.find(Outcome::FailedCheck, None, format!("{}: {words}", check.name));
        }
        for broken in &rows.broken {
            self.find(Outcome::Broken, broken.id, broken.words.clone());
        }
    }

    fn gaps(&mut self, gaps: &[RangeInclusive<u64>]) {
        if let Some(last) = gaps.get(GAPS_MAX..).and_then(|untold| untold.last()) {
            let text = format!("of {} more gaps this is the last", gaps.len() - GAPS_MAX);
            self.find(Outcome::Gap, Some(*last.start()), text);
        }
        for gap in gaps.iter().take(GAPS_MAX) {
            let (first, last) = (gap.start(), gap.end());
            let which = match first == last {
                true => format!("operation {first} is"),
                false => format!("operations {first} to {last} are"),
            };
            let text = format!("{which} not there, and operation {} is", last + 1);
            self.find(Outcome::Gap, Some(*first), text);
        }
    }
}

/// What lies between ascending ranges, and before the first.
fn gaps(survived: &[RangeInclusive<u64>]) -> Vec<RangeInclusive<u64>> {
    let ends = std::iter::once(0).chain(survived.iter().map(|range| *range.end()));
    let between = ends.zip(survived).filter(|(end, range)| end + 1 < *range.start());
    between.map(|(end, range)| end + 1..=range.start() - 1).collect()
}

/// How many of a range are at most `most`.
fn up_to(range: &RangeInclusive<u64>, most: u64) -> u64 {
    (most.min(*range.end()) + 1).saturating_sub(*range.start())
}

/// Un-acked, it began at the earliest when the newest acked one did; with none acked, when the stream
/// did.
fn survivor(seq: Seq, said: &StreamHistory) -> Survivor {
    let known = said.ack(seq).or_else(|| said.acked.last());
    let began = said.notes.first();
    Survivor {
        seq,
        start: known.map(|acked| acked.ack.start).or(began.map(|n| n.event)).unwrap_or(EventNo(0)),
        at: known.map(|acked| acked.ack.end_ns).or(began.map(|n| n.at)).unwrap_or(GuestNs(0)),
    }
}

#[cfg(test)]
mod tests;
