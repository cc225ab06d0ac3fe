//! `point-in-time`: the datasets of a group came back to one earlier instant.
//!
//! Some set of operations, closed under *before*, must yield exactly what is observed. A is before
//! B iff A's ordering event comes before B's first; that is an interval order, so a set is closed
//! iff no operation outside it is before one inside. A stream's newest whole record and all that it
//! implies are inside; the acked operations that are gone are outside. So one comparison decides:
//! the earliest ordering event outside against the latest start inside.

use super::survey::{Missing, StreamSurvey};
use super::verdict::{Judgement, Verdict};
use crate::history::log::StreamHistory;
use crate::units::{EventNo, Seq, StreamId};

/// Which event orders two operations on a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderedBy {
    /// ZFS: a write that returned is in this or an earlier transaction group.
    Done,
    /// Another file system on a volume of ZFS: it may hold back a write that returned, so only what
    /// was forced out of it is ordered.
    Ack,
}

/// An operation at one side of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Side {
    event: EventNo,
    stream: StreamId,
    seq: Seq,
}

/// Judges one group of datasets. `streams` pairs what was found with what was said.
pub fn judge(streams: &[(&StreamSurvey, &StreamHistory)], order: OrderedBy) -> Judgement {
    let damage = streams.iter().flat_map(|(survey, _)| &survey.findings);
    let damage: Vec<_> = damage.filter(|finding| finding.outcome.is_damage()).cloned().collect();
    if let Some(worst) = damage.first() {
        let because = format!(
            "no set of operations yields what is there; {}: {} ({})",
            worst.place(),
            worst.outcome,
            worst.text
        );
        return Judgement::new(Verdict::Violated, because).with_findings(damage);
    }
    let outside = streams.iter().filter_map(|pair| earliest_outside(pair, order)).min_by_key(at);
    let inside = streams.iter().filter_map(|(survey, _)| latest_inside(survey)).max_by_key(at);
    match (outside, inside) {
        (Some(gone), Some(kept)) if gone.event < kept.event => Judgement::new(
            Verdict::Violated,
            format!(
                "operation {} of stream {} is gone though it had returned (event {}) before operation {} of stream {}, which is there, began (event {})",
                gone.seq, gone.stream, gone.event, kept.seq, kept.stream, kept.event
            ),
        ),
        (_, None) => Judgement::new(
            Verdict::NotMeasured,
            "no operation survived, so nothing could be out of order",
        ),
        (gone, Some(kept)) => Judgement::new(Verdict::Held, held_text(gone, kept, streams.len())),
    }
}

fn at(side: &Side) -> EventNo {
    side.event
}

fn earliest_outside(
    (survey, said): &(&StreamSurvey, &StreamHistory),
    order: OrderedBy,
) -> Option<Side> {
    let first = match survey.missing {
        Missing::None => return None,
        Missing::From(seq) => seq,
    };
    let ack = said.ack(first)?.ack;
    let event = match order {
        OrderedBy::Done => ack.done,
        OrderedBy::Ack => ack.end,
    };
    Some(Side { event, stream: survey.stream, seq: first })
}

fn latest_inside(survey: &StreamSurvey) -> Option<Side> {
    let newest = survey.newest?;
    Some(Side { event: newest.start, stream: survey.stream, seq: newest.seq })
}

fn held_text(gone: Option<Side>, kept: Side, streams: usize) -> String {
    match gone {
        Some(gone) => format!(
            "all {streams} streams came back to one instant: the latest survivor began at event {}, the first loss returned at event {}",
            kept.event, gone.event
        ),
        None => format!("all {streams} streams came back with every acked operation"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::survey::test_support::*;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_in_one_stream_behind_a_survivor_of_another_is_violated() {
        // Stream 1's second operation returned at event 5; stream 2's third began at event 9.
        let (one, said_one) = stream(1, &[(1, 2, 3), (4, 5, 6)], 1);
        let (two, said_two) = stream(2, &[(7, 8, 10), (9, 11, 12)], 2);
        let judged = judge(&[(&one, &said_one), (&two, &said_two)], OrderedBy::Done);
        assert_eq!(judged.verdict, Verdict::Violated);
        assert!(judged.because[0].contains("operation 2 of stream 1"), "{:?}", judged.because);
    }

    #[test]
    fn what_had_returned_but_was_not_acknowledged_is_ordered_on_datasets_and_not_on_volumes() {
        // Stream 1's second operation returned at event 5 and was acknowledged at event 10; stream
        // 2's began at event 7.
        let (one, said_one) = stream(1, &[(1, 2, 3), (4, 5, 10)], 1);
        let (two, said_two) = stream(2, &[(7, 8, 9)], 1);
        let judged = |order| judge(&[(&one, &said_one), (&two, &said_two)], order).verdict;
        assert_eq!(judged(OrderedBy::Done), Verdict::Violated);
        assert_eq!(judged(OrderedBy::Ack), Verdict::Held);
    }

    #[test]
    fn operations_that_overlap_may_go_either_way() {
        let (one, said_one) = stream(1, &[(1, 10, 12)], 0);
        let (two, said_two) = stream(2, &[(2, 3, 4), (5, 6, 7)], 2);
        let judged = judge(&[(&one, &said_one), (&two, &said_two)], OrderedBy::Done);
        assert_eq!(judged.verdict, Verdict::Held, "{:?}", judged.because);
    }

    #[test]
    fn nothing_left_at_all_is_not_a_pass() {
        let (one, said_one) = stream(1, &[(1, 2, 3)], 0);
        assert_eq!(judge(&[(&one, &said_one)], OrderedBy::Done).verdict, Verdict::NotMeasured);
    }

    /// A stream's operations as (start, done, end) events, and how many of them are there.
    type Kept = (Vec<(u64, u64, u64)>, usize);

    /// By the definition: is there no pair of one outside before one inside? An observation of
    /// append streams leaves only one set to try, the first `kept` operations of each.
    fn a_closed_set_yields(streams: &[Kept]) -> bool {
        let inside = |s: usize, n: usize| n < streams[s].1;
        let all = || (0..streams.len()).flat_map(|s| (0..streams[s].0.len()).map(move |n| (s, n)));
        all().all(|(s, n)| {
            inside(s, n)
                || all().filter(|(t, m)| inside(*t, *m)).all(|(t, m)| {
                    let before = streams[s].0[n].1 < streams[t].0[m].0;
                    !before
                })
        })
    }

    /// Random interleavings of up to three streams with up to four operations each.
    fn histories() -> impl Strategy<Value = Vec<Kept>> {
        prop::collection::vec((1usize..=4, 0usize..=4), 1..=3).prop_flat_map(|shape| {
            let owners: Vec<usize> = shape
                .iter()
                .enumerate()
                .flat_map(|(stream, (ops, _))| vec![stream; ops * 3])
                .collect();
            Just(owners).prop_shuffle().prop_map(move |owners| {
                let mut events: Vec<Vec<u64>> = vec![Vec::new(); shape.len()];
                owners.iter().enumerate().for_each(|(at, s)| events[*s].push(at as u64 + 1));
                let ops = |list: &Vec<u64>| list.chunks(3).map(|c| (c[0], c[1], c[2])).collect();
                let kept = shape.iter().map(|(ops, kept)| *kept.min(ops));
                events.iter().map(ops).zip(kept).collect()
            })
        })
    }

    proptest! {
        #[test]
        fn the_one_comparison_agrees_with_trying_every_pair(streams in histories()) {
            let built: Vec<_> = streams
                .iter()
                .enumerate()
                .map(|(n, (ops, kept))| stream(n as u16, ops, *kept as u64))
                .collect();
            let pairs: Vec<_> = built.iter().map(|(survey, said)| (survey, said)).collect();
            let judged = judge(&pairs, OrderedBy::Done).verdict;
            let nothing_left = streams.iter().all(|(_, kept)| *kept == 0);
            let expected = match a_closed_set_yields(&streams) {
                _ if nothing_left => Verdict::NotMeasured,
                true => Verdict::Held,
                false => Verdict::Violated,
            };
            prop_assert_eq!(judged, expected);
        }
    }
}
