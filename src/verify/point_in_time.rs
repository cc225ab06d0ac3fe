//! `point-in-time`: the datasets of a group came back to one earlier instant.
//!
//! Some set of operations, closed under *before*, must yield exactly what is observed. A is before
//! B iff A's ordering event comes before B's first. What was found of a stream fits one instant of
//! it, or several: the first k of its operations. So a choice of one k for each stream is sought.
//! Taking more of one stream can only force more of the others, so the search starts with the least
//! of each and takes, again and again, the least that holds all that is before what is inside. It
//! ends in the least choice that is closed, or where a stream has none: then there is no choice.
//! *Before* is an interval order, so of all that is inside only the latest start counts.

use super::survey::{Missing, StreamSurvey};
use super::tree::instants::Instant;
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
    let closed = match least_closed(streams, order) {
        Ok(closed) => closed,
        Err(Unclosed { gone, kept }) => {
            let because = format!(
                "operation {} of stream {} is gone though it had returned (event {}) before operation {} of stream {}, which is there, began (event {})",
                gone.seq, gone.stream, gone.event, kept.seq, kept.stream, kept.event
            );
            return Judgement::new(Verdict::Violated, because);
        }
    };
    let gone = streams.iter().filter_map(|pair| earliest_outside(pair, order)).min_by_key(at);
    match latest_inside(streams, &closed) {
        None => Judgement::new(
            Verdict::NotMeasured,
            "no operation survived, so nothing could be out of order",
        ),
        Some(kept) => Judgement::new(Verdict::Held, held_text(gone, kept, streams.len())),
    }
}

fn at(side: &Side) -> EventNo {
    side.event
}

/// Two operations that no choice of instants allows: one outside before one inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unclosed {
    gone: Side,
    kept: Side,
}

/// The least choice of an instant for each stream that holds all that is before what it holds.
fn least_closed(
    streams: &[(&StreamSurvey, &StreamHistory)],
    order: OrderedBy,
) -> Result<Vec<Instant>, Unclosed> {
    let none = Instant { whole: Seq(0), part: false };
    let first = |(survey, _): &(&StreamSurvey, _)| survey.instants.first().unwrap_or(none);
    let mut chosen: Vec<Instant> = streams.iter().map(first).collect();
    loop {
        let Some(latest) = latest_inside(streams, &chosen) else { return Ok(chosen) };
        let mut moved = false;
        for ((survey, said), chosen) in streams.iter().zip(&mut chosen) {
            let forced = before(said, latest.event, order);
            if chosen.whole >= forced {
                continue;
            }
            let Some(next) = survey.instants.first_from(forced) else {
                let gone = first_gone(survey, said, forced, order);
                return Err(Unclosed { gone, kept: latest });
            };
            (*chosen, moved) = (next, true);
        }
        if !moved {
            return Ok(chosen);
        }
    }
}

fn event(said: &StreamHistory, seq: Seq, order: OrderedBy) -> Option<EventNo> {
    let ack = said.ack(seq)?.ack;
    Some(match order {
        OrderedBy::Done => ack.done,
        OrderedBy::Ack => ack.end,
    })
}

/// The newest operation of a stream whose ordering event comes before `event`.
fn before(said: &StreamHistory, start: EventNo, order: OrderedBy) -> Seq {
    let count = said.acked.partition_point(|acked| match order {
        OrderedBy::Done => acked.ack.done < start,
        OrderedBy::Ack => acked.ack.end < start,
    });
    Seq(count as u64)
}

/// The first operation that is gone of a stream of which the first `forced` had to be there.
fn first_gone(survey: &StreamSurvey, said: &StreamHistory, forced: Seq, order: OrderedBy) -> Side {
    let seq = match survey.missing {
        Missing::From(seq) if seq <= forced => seq,
        _ => forced,
    };
    Side { event: event(said, seq, order).unwrap_or_default(), stream: survey.stream, seq }
}

fn earliest_outside(
    (survey, said): &(&StreamSurvey, &StreamHistory),
    order: OrderedBy,
) -> Option<Side> {
    let seq = match survey.missing {
        Missing::None => return None,
        Missing::From(seq) => seq,
    };
    Some(Side { event: event(said, seq, order)?, stream: survey.stream, seq })
}

fn latest_inside(streams: &[(&StreamSurvey, &StreamHistory)], chosen: &[Instant]) -> Option<Side> {
    let inside = streams.iter().zip(chosen).filter_map(|((survey, said), chosen)| {
        let seq = chosen.newest();
        let event = start(survey, said, seq)?;
        Some(Side { event, stream: survey.stream, seq })
    });
    inside.max_by_key(at)
}

/// The first event of an operation that is there. Of one that was not acknowledged its record may
/// tell; else it came after all that its stream had acknowledged.
fn start(survey: &StreamSurvey, said: &StreamHistory, seq: Seq) -> Option<EventNo> {
    if seq == Seq(0) {
        return None;
    }
    if let Some(acked) = said.ack(seq) {
        return Some(acked.ack.start);
    }
    if let Some(newest) = survey.newest.filter(|newest| newest.seq == seq) {
        return Some(newest.start);
    }
    let last = said.acked.last().map_or(EventNo(0), |acked| acked.ack.end);
    Some(EventNo(last.0.saturating_add(1)))
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
    use super::super::tree::instants::Instants;
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

    /// One that fits several instants: after each of these many of its operations.
    fn with_instants(
        id: u16,
        ops: &[(u64, u64, u64)],
        fits: &[u64],
    ) -> (StreamSurvey, StreamHistory) {
        let last = *fits.last().expect("one");
        let (mut survey, said) = stream(id, ops, last);
        survey.instants = Instants::default();
        for whole in fits {
            survey.instants.push(Instant { whole: Seq(*whole), part: false });
        }
        survey.newest = stream(id, ops, fits[0]).0.newest;
        (survey, said)
    }

    proptest! {
        #[test]
        fn the_least_choice_is_found_exactly_where_trying_every_choice_finds_one(
            streams in histories(), masks in prop::collection::vec(1u8..32, 3),
        ) {
            let fits: Vec<Vec<u64>> = streams
                .iter()
                .zip(&masks)
                .map(|((ops, kept), mask)| {
                    let mut fits: Vec<u64> =
                        (0..=ops.len() as u64).filter(|k| mask & (1 << k) != 0).collect();
                    if fits.is_empty() {
                        fits.push(*kept as u64);
                    }
                    fits
                })
                .collect();
            let built: Vec<_> = streams
                .iter()
                .zip(&fits)
                .enumerate()
                .map(|(n, ((ops, _), fits))| with_instants(n as u16, ops, fits))
                .collect();
            let pairs: Vec<_> = built.iter().map(|(survey, said)| (survey, said)).collect();
            let judged = judge(&pairs, OrderedBy::Done);
            let mut any = false;
            let choices: usize = fits.iter().map(Vec::len).product();
            for mut n in 0..choices {
                let choice: Vec<Kept> = streams
                    .iter()
                    .zip(&fits)
                    .map(|((ops, _), fits)| {
                        let k = fits[n % fits.len()];
                        n /= fits.len();
                        (ops.clone(), k as usize)
                    })
                    .collect();
                any |= a_closed_set_yields(&choice);
            }
            match judged.verdict {
                Verdict::Violated => prop_assert!(!any, "{:?}", judged),
                Verdict::Held => prop_assert!(any, "{:?}", judged),
                _ => prop_assert!(fits.iter().all(|fits| fits[0] == 0), "{:?}", judged),
            }
        }
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
