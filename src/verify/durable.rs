//! `durable`: every acked operation is there, and a flush stands behind each ack.
//!
//! Surviving is not enough: an ack that no flush of the disk stands behind was luck. A flush stands
//! behind an ack if it arrived after the operation's start (at its latest possible instant on the
//! lab's clock) and its reply is in the trace before the ack.

use super::survey::{Missing, Proofs, StreamSurvey};
use super::verdict::{Judgement, Verdict};
use crate::history::clock::ClockMap;
use crate::history::log::{Acked, StreamHistory};
use crate::units::{LabNs, Seq, StreamId};

/// A flush, or a forced write, that the disk answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredFlush {
    /// When it arrived.
    pub arrived: LabNs,
    /// Number of its reply's entry in the trace.
    pub reply_entry: u64,
}

/// All flushes of a trace, ready to be asked for the one behind an ack.
#[derive(Debug, Clone)]
pub struct Flushes {
    /// (arrival, earliest reply among this and all later arrivals), ascending.
    by_arrival: Vec<(LabNs, u64)>,
}

impl Flushes {
    /// Takes the flushes in any order.
    pub fn new(flushes: impl IntoIterator<Item = AnsweredFlush>) -> Flushes {
        let mut by_arrival: Vec<_> =
            flushes.into_iter().map(|flush| (flush.arrived, flush.reply_entry)).collect();
        by_arrival.sort_unstable();
        let mut earliest = u64::MAX;
        for (_, reply) in by_arrival.iter_mut().rev() {
            earliest = earliest.min(*reply);
            *reply = earliest;
        }
        Flushes { by_arrival }
    }

    /// Whether a flush arrived at or after `start` and was answered before entry `ack`.
    pub fn stand_behind(&self, start: LabNs, ack: u64) -> bool {
        let from = self.by_arrival.partition_point(|(arrived, _)| *arrived < start);
        self.by_arrival.get(from).is_some_and(|(_, reply)| *reply < ack)
    }
}

/// A stream with what was said, what was found, and where its load begins.
#[derive(Debug, Clone, Copy)]
pub struct StreamEvidence<'a> {
    /// What was found.
    pub survey: &'a StreamSurvey,
    /// What was said.
    pub said: &'a StreamHistory,
}

/// Judges one dataset.
pub fn judge(streams: &[StreamEvidence], clock: &ClockMap, flushes: &Flushes) -> Judgement {
    let lost: u64 = streams.iter().map(|stream| lost(stream)).sum();
    let damaged = streams.iter().flat_map(|stream| &stream.survey.findings);
    let damaged: Vec<_> = damaged.filter(|finding| finding.outcome.is_damage()).cloned().collect();
    let acked: u64 = streams.iter().map(|stream| load_acks(stream).count() as u64).sum();
    if lost > 0 {
        let because = format!(
            "{lost} acked operations are gone or damaged though durability was promised; {}",
            first_lost(streams)
        );
        return Judgement::new(Verdict::Violated, because).with_findings(damaged);
    }
    if acked == 0 {
        let because = "no operation of the load was acknowledged that promises durability";
        return Judgement::new(Verdict::NotMeasured, because);
    }
    let unproven: Vec<(StreamId, Seq)> =
        streams.iter().flat_map(|stream| unproven(stream, clock, flushes)).collect();
    if let Some((stream, seq)) = unproven.first() {
        let because = format!(
            "all {acked} acked operations are there, but the disk answered no flush between the start and the ack of {} of them (first: operation {seq} of stream {stream})",
            unproven.len()
        );
        return Judgement::new(Verdict::NotMeasured, because);
    }
    let because = format!(
        "all {acked} acked operations of the load are there, and the disk answered a flush between start and ack of each"
    );
    Judgement::new(Verdict::Held, because)
}

/// Acked operations of a stream that are gone though they were promised. Of a script only what a
/// sync made durable was; what it lost begins with the first that is gone.
fn lost(stream: &StreamEvidence) -> u64 {
    match (&stream.survey.proofs, stream.survey.missing) {
        (Proofs::EachAck, _) => stream.survey.missing_count,
        (Proofs::Syncs(_), Missing::None) => 0,
        (Proofs::Syncs(syncs), Missing::From(first)) => {
            syncs.iter().filter(|proof| proof.since >= first).count() as u64
        }
    }
}

/// The acks of the load that promise durability, each with the operation since whose start a flush
/// may have come.
pub fn load_acks<'a>(
    stream: &StreamEvidence<'a>,
) -> Box<dyn Iterator<Item = (&'a Acked, &'a Acked)> + 'a> {
    let (survey, said) = (stream.survey, stream.said);
    match &survey.proofs {
        Proofs::EachAck => {
            let of_load = said.acked.iter().filter(|acked| acked.ack.seq.0 > survey.fill);
            Box::new(of_load.map(|acked| (acked, acked)))
        }
        Proofs::Syncs(syncs) => {
            let of_load = syncs.iter().filter(|proof| proof.sync.0 > survey.fill);
            Box::new(
                of_load.filter_map(|proof| Some((said.ack(proof.sync)?, said.ack(proof.since)?))),
            )
        }
    }
}

/// Whether a flush stands behind an ack.
pub fn is_proven((ack, since): (&Acked, &Acked), clock: &ClockMap, flushes: &Flushes) -> bool {
    flushes.stand_behind(clock.lab(since.ack.start_ns).hi, ack.entry)
}

fn first_lost(streams: &[StreamEvidence]) -> String {
    let firsts = streams.iter().filter_map(|stream| match stream.survey.missing {
        Missing::From(seq) => Some((stream.survey.stream, seq)),
        Missing::None => None,
    });
    firsts
        .map(|(stream, seq)| format!("stream {stream} from operation {seq}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn unproven<'a>(
    stream: &StreamEvidence<'a>,
    clock: &'a ClockMap,
    flushes: &'a Flushes,
) -> impl Iterator<Item = (StreamId, Seq)> + use<'a> {
    let id = stream.survey.stream;
    load_acks(stream)
        .filter(|proof| !is_proven(*proof, clock, flushes))
        .map(move |(acked, _)| (id, acked.ack.seq))
}

#[cfg(test)]
mod tests {
    use super::super::survey::test_support::stream;
    use super::*;
    use crate::trace::ClockSample;
    use crate::units::GuestNs;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn clock() -> ClockMap {
        let at = |ms| ClockSample {
            before: LabNs(ms * MS),
            after: LabNs(ms * MS),
            guest: GuestNs(ms * MS),
        };
        ClockMap::new(&[at(0), at(50), at(100)]).unwrap()
    }

    fn flush(arrived_us: u64, reply_entry: u64) -> AnsweredFlush {
        AnsweredFlush { arrived: LabNs(arrived_us * 1_000), reply_entry }
    }

    /// Two operations that start at 1 ms and 4 ms; their acks are entries 0 and 1... scaled by ten.
    fn verdict(kept: u64, flushes: &[AnsweredFlush]) -> Verdict {
        let (survey, mut said) = stream(1, &[(1, 2, 3), (4, 5, 6)], kept);
        said.acked.iter_mut().for_each(|acked| acked.entry = 10 * (acked.entry + 1));
        let evidence = StreamEvidence { survey: &survey, said: &said };
        judge(&[evidence], &clock(), &Flushes::new(flushes.iter().copied())).verdict
    }

    #[test]
    fn all_there_with_a_flush_behind_each_ack_holds() {
        assert_eq!(verdict(2, &[flush(2_000, 9), flush(5_000, 19)]), Verdict::Held);
    }

    #[test]
    fn an_acked_operation_that_is_gone_is_a_violation() {
        assert_eq!(verdict(1, &[flush(2_000, 9), flush(5_000, 19)]), Verdict::Violated);
    }

    #[test]
    fn surviving_without_a_flush_in_time_is_luck_not_a_pass() {
        assert_eq!(verdict(2, &[flush(2_000, 9)]), Verdict::NotMeasured, "no second flush");
        let late = [flush(2_000, 9), flush(5_000, 21)];
        assert_eq!(verdict(2, &late), Verdict::NotMeasured, "answered after the ack");
        let early = [flush(2_000, 9), flush(3_900, 19)];
        assert_eq!(verdict(2, &early), Verdict::NotMeasured, "arrived before the start");
    }

    proptest! {
        #[test]
        fn the_quick_look_up_agrees_with_looking_at_every_flush(
            flushes in prop::collection::vec((0u64..50, 0u64..50), 0..30),
            start in 0u64..50,
            ack in 0u64..50,
        ) {
            let list: Vec<_> = flushes.iter().map(|(at, entry)| flush(*at, *entry)).collect();
            let quick = Flushes::new(list.iter().copied()).stand_behind(LabNs(start * 1_000), ack);
            let slow = list
                .iter()
                .any(|flush| flush.arrived >= LabNs(start * 1_000) && flush.reply_entry < ack);
            prop_assert_eq!(quick, slow);
        }
    }
}
