//! Every class of outcome from real record bytes, each beside a control; and the survey against a
//! model that applies operations one after another.

use super::*;
use crate::history::log::Acked;
use crate::history::message::Ack;
use crate::record::classify::classify;
use crate::record::layout::{self, Digest, Header};
use crate::record::place::Place;
use crate::record::ring::{Ring, body};
use crate::record::testing::plan;
use crate::units::{RunId, SECTOR_BYTES};
use crate::verify::verdict::Verdict;
use crate::verify::{intact, point_in_time};
use proptest::prelude::*;

const APPEND: usize = 0;
/// Eight slots.
const OVERWRITE: usize = 1;
const BLOCK: usize = RECORD_BYTES as usize;

type Blocks = Vec<Vec<u8>>;

/// A stream that wrote some operations, of which the first were acknowledged.
struct Run {
    plan: Plan,
    ring: Ring,
    stream: StreamPlan,
    records: Vec<Vec<u8>>,
    said: StreamHistory,
}

impl Run {
    fn new(stream: usize, written: u64, acked: u64) -> Run {
        let plan = plan();
        let stream = plan.streams[stream].clone();
        let records = records(&plan, &stream, written);
        let ack = |(n, record): (u64, &Vec<u8>)| ack(n, record);
        let acked: Vec<Acked> = (1..=acked).zip(&records).map(ack).collect();
        let announced = (written > 0).then_some(Seq(written));
        let said = StreamHistory { acked, announced, ..StreamHistory::default() };
        Run { ring: Ring::make(plan.seed, plan.bodies), plan, stream, records, said }
    }

    fn slot(&self, seq: u64) -> usize {
        self.stream.slot(self.plan.seed, Seq(seq)) as usize
    }

    fn record(&self, seq: u64) -> Vec<u8> {
        self.records[seq as usize - 1].clone()
    }

    /// The file after the first `kept` operations.
    fn file(&self, kept: u64) -> Blocks {
        let mut blocks = Blocks::new();
        for seq in 1..=kept {
            self.put(&mut blocks, seq, &self.record(seq));
        }
        blocks
    }

    /// Lays `bytes` where operation `seq` writes.
    fn put(&self, blocks: &mut Blocks, seq: u64, bytes: &[u8]) {
        let slot = self.slot(seq);
        if blocks.len() <= slot {
            blocks.resize(slot + 1, vec![0; BLOCK]);
        }
        blocks[slot] = bytes.to_vec();
    }

    /// The file after `kept` operations, with the place of operation `seq` changed.
    fn file_but(&self, kept: u64, seq: u64, bytes: &[u8]) -> Blocks {
        let mut blocks = self.file(kept);
        self.put(&mut blocks, seq, bytes);
        blocks
    }

    /// The operation that overwrote the place of `seq` first.
    fn next_onto(&self, seq: u64) -> u64 {
        (seq + 1..).find(|n| self.slot(*n) == self.slot(seq)).expect("slots repeat")
    }

    fn observed(&self, blocks: &Blocks) -> ObservedFile {
        let observe = |(slot, block): (u64, &Vec<u8>)| {
            let (plan, stream) = (&self.plan, &self.stream);
            Place { plan, stream, location: slot * RECORD_BYTES }.observe(block, &self.ring)
        };
        let size = Some(blocks.iter().map(|block| block.len() as u64).sum());
        let blocks = (0..).zip(blocks).map(observe).collect();
        ObservedFile { stream: self.stream.id, size, blocks }
    }

    fn survey_file(&self, file: &ObservedFile, promise: Promise) -> StreamSurvey {
        let look = |bytes: &[u8], stream: &StreamPlan, location| {
            classify(&Place { plan: &self.plan, stream, location }, bytes)
        };
        survey(&self.plan, &self.stream, &self.said, file, promise, &look).expect("readers agree")
    }

    fn survey(&self, blocks: &Blocks) -> StreamSurvey {
        self.survey_file(&self.observed(blocks), Promise::AllButRecent)
    }

    /// Asserts that exactly this is wrong at exactly this place, and that the oracles that judge
    /// places say so.
    #[track_caller]
    fn expect_damage(&self, blocks: &Blocks, outcome: Outcome, seq: Option<u64>, slot: usize) {
        self.expect_damage_in(&self.observed(blocks), outcome, seq, slot);
    }

    #[track_caller]
    fn expect_damage_in(
        &self,
        file: &ObservedFile,
        outcome: Outcome,
        seq: Option<u64>,
        slot: usize,
    ) {
        let survey = self.survey_file(file, Promise::AllButRecent);
        assert_eq!(places(&survey), [(outcome, seq, slot)], "{survey:?}");
        assert_eq!(survey.count(outcome), 1);
        let intact = intact::judge(&[&survey]);
        assert_eq!((intact.verdict, &intact.findings), (Verdict::Violated, &survey.findings));
        let one_instant =
            point_in_time::judge(&[(&survey, &self.said)], point_in_time::OrderedBy::Done);
        assert_eq!(one_instant.verdict, Verdict::Violated);
        assert!(one_instant.because[0].contains(&outcome.to_string()), "{one_instant:?}");
    }

    /// Asserts that nothing is damaged, and what became of the operations.
    #[track_caller]
    fn expect_whole(&self, blocks: &Blocks, counts: &[(Outcome, u64)]) -> StreamSurvey {
        let survey = self.survey(blocks);
        assert_eq!(survey.counts, BTreeMap::from_iter(counts.iter().copied()), "{survey:?}");
        assert_eq!(intact::judge(&[&survey]).verdict, Verdict::Held);
        survey
    }
}

/// The records of a stream, chained as its writer chains them.
fn records(plan: &Plan, stream: &StreamPlan, written: u64) -> Vec<Vec<u8>> {
    let mut previous = Digest::default();
    let record = |n| {
        let (record, digest) = sealed(plan, stream, Seq(n), previous);
        previous = digest;
        record
    };
    (1..=written).map(record).collect()
}

fn sealed(plan: &Plan, stream: &StreamPlan, seq: Seq, previous: Digest) -> (Vec<u8>, Digest) {
    let index = stream.body(plan, seq);
    let body = body(plan.seed, index);
    let mut record = [0; BLOCK];
    layout::put_body(&mut record, &body);
    let header = Header {
        run: plan.run,
        stream: stream.id,
        start: EventNo(seq.0 * 3 - 2),
        seq,
        location: stream.location(plan.seed, seq),
        stamp: GuestNs(seq.0 * 1_000),
        previous,
        body: index,
        body_digest: Digest::of(&body),
    };
    let digest = layout::seal(&header, &mut record);
    (record.to_vec(), digest)
}

fn ack(n: u64, record: &[u8]) -> Acked {
    let record: &[u8; BLOCK] = record.try_into().expect("a record's length");
    let (header, digest) = layout::open(record).expect("a record");
    let at = |after| GuestNs(n * 1_000 + after);
    let event = |after| EventNo(header.start.0 + after);
    let ack = Ack {
        seq: Seq(n),
        start: header.start,
        done: event(1),
        end: event(2),
        start_ns: at(0),
        done_ns: at(100),
        end_ns: at(200),
        digest: digest.short(),
    };
    Acked { ack, entry: n }
}

fn places(survey: &StreamSurvey) -> Vec<(Outcome, Option<u64>, usize)> {
    let place = |finding: &Finding| {
        (finding.outcome, finding.seq.map(|seq| seq.0), (finding.location / RECORD_BYTES) as usize)
    };
    survey.findings.iter().map(place).collect()
}

/// Some sectors of one block, the others of another.
fn mixed(front: &[u8], back: &[u8], is_front: impl Fn(usize) -> bool) -> Vec<u8> {
    let sectors = front.chunks(SECTOR_BYTES).zip(back.chunks(SECTOR_BYTES)).enumerate();
    sectors.flat_map(|(n, (f, b))| if is_front(n) { f } else { b }).copied().collect()
}

fn flipped(block: &[u8], byte: usize, bit: u8) -> Vec<u8> {
    let mut block = block.to_vec();
    block[byte] ^= 1 << bit;
    block
}

use Outcome::*;

#[test]
fn a_file_with_every_acked_operation_is_whole() {
    for stream in [APPEND, OVERWRITE] {
        let run = Run::new(stream, 20, 20);
        let survey = run.expect_whole(&run.file(20), &[(Survived, 20)]);
        assert_eq!((survey.missing, survey.missing_count), (Missing::None, 0));
        let newest = survey.newest.expect("a survivor");
        assert_eq!((newest.seq, newest.start, newest.at), (Seq(20), EventNo(58), GuestNs(20_200)));
        assert!(survey.load_survived());
    }
}

#[test]
fn operations_that_were_not_acked_may_be_there_or_not() {
    for stream in [APPEND, OVERWRITE] {
        let run = Run::new(stream, 12, 10);
        let there = run.expect_whole(&run.file(12), &[(Survived, 10), (UnackedSurvived, 2)]);
        assert_eq!(there.newest.map(|newest| newest.at), Some(GuestNs(12_000)), "its own stamp");
        let gone = run.expect_whole(&run.file(10), &[(Survived, 10), (UnackedGone, 2)]);
        assert_eq!((there.missing, gone.missing), (Missing::None, Missing::None));
    }
}

#[test]
fn acked_operations_at_the_end_are_lost_by_what_was_promised() {
    for stream in [APPEND, OVERWRITE] {
        let run = Run::new(stream, 20, 20);
        let file = run.observed(&run.file(17));
        for (promise, class) in
            [(Promise::AllButRecent, LostInWindow), (Promise::Everything, LostThoughDurable)]
        {
            let survey = run.survey_file(&file, promise);
            assert_eq!(survey.counts, BTreeMap::from([(Survived, 17), (class, 3)]));
            assert_eq!((survey.missing, survey.missing_count), (Missing::From(Seq(18)), 3));
            assert_eq!(places(&survey), [], "a loss is no damage");
        }
    }
}

#[test]
fn what_filled_the_file_before_the_load_was_durable_whatever_is_promised() {
    let run = Run::new(OVERWRITE, 10, 10);
    let survey = run.survey(&run.file(5));
    let lost = [(Survived, 5), (LostThoughDurable, 3), (LostInWindow, 2)];
    assert_eq!(survey.counts, BTreeMap::from(lost));
    assert_eq!(survey.missing, Missing::From(Seq(6)));
    assert!(!survey.load_survived());
}

#[test]
fn a_file_that_is_gone_is_a_loss_of_all_that_was_acked() {
    let run = Run::new(OVERWRITE, 20, 20);
    let gone = ObservedFile { stream: run.stream.id, size: None, blocks: Vec::new() };
    let survey = run.survey_file(&gone, Promise::AllButRecent);
    assert_eq!(survey.counts, BTreeMap::from([(LostThoughDurable, 8), (LostInWindow, 12)]));
    assert_eq!((survey.newest, survey.missing), (None, Missing::From(Seq(1))));
    assert_eq!(survey.missing_count, 20);
}

#[test]
fn zeros_where_a_survivor_implies_a_record_are_a_hole() {
    let run = Run::new(APPEND, 20, 20);
    run.expect_damage(&run.file_but(20, 7, &[0; BLOCK]), Hole, Some(7), 6);
    let survey = run.survey(&run.file_but(20, 7, &[0; BLOCK]));
    assert_eq!((survey.missing, survey.missing_count), (Missing::From(Seq(7)), 1));
    assert_eq!(survey.count(Survived), 19);
    let run = Run::new(OVERWRITE, 8, 8);
    run.expect_damage(&run.file_but(8, 3, &[0; BLOCK]), Hole, Some(3), 2);
}

#[test]
fn a_file_that_ends_before_a_place_that_a_survivor_implies_has_a_hole_there() {
    let run = Run::new(OVERWRITE, 30, 30);
    // The newest lies below the last slot, so cutting the last slot off leaves it.
    let last = (1..=30).rev().find(|n| run.slot(*n) == 7).expect("the fill wrote it");
    assert!(last < 30);
    let mut blocks = run.file(30);
    blocks.truncate(7);
    run.expect_damage(&blocks, Hole, Some(last), 7);
}

#[test]
fn an_older_version_where_a_survivor_implies_a_newer_one_is_stale() {
    let run = Run::new(OVERWRITE, 40, 40);
    let newer = run.next_onto(3);
    let kept = newer + 1;
    assert!(run.slot(kept) != run.slot(3) && kept <= 40);
    run.expect_whole(&run.file(kept), &[(Survived, kept), (LostInWindow, 40 - kept)]);
    run.expect_damage(&run.file_but(kept, 3, &run.record(3)), Stale, Some(newer), 2);
}

#[test]
fn a_write_split_over_two_transactions_is_torn_there() {
    let run = Run::new(APPEND, 20, 20);
    let torn = mixed(&run.record(9), &[0; BLOCK], |n| n < 3);
    run.expect_damage(&run.file_but(20, 9, &torn), TornAtTransaction, Some(9), 8);
    let run = Run::new(OVERWRITE, 40, 40);
    let newer = run.next_onto(3);
    let torn = mixed(&run.record(newer), &run.record(3), |n| n < 5);
    run.expect_damage(&run.file_but(newer + 1, 3, &torn), TornAtTransaction, Some(newer), 2);
}

#[test]
fn a_flipped_bit_or_swapped_sectors_are_torn_in_a_sector() {
    for stream in [APPEND, OVERWRITE] {
        let run = Run::new(stream, 8, 8);
        for byte in [20, 300, 505, 600, 4095] {
            let damaged = flipped(&run.record(4), byte, 3);
            run.expect_damage(&run.file_but(8, 4, &damaged), TornInSector, Some(4), 3);
        }
        let mut swapped = run.record(4);
        let (one, two) = swapped.split_at_mut(3 * SECTOR_BYTES);
        one[SECTOR_BYTES..2 * SECTOR_BYTES].swap_with_slice(&mut two[..SECTOR_BYTES]);
        run.expect_damage(&run.file_but(8, 4, &swapped), TornInSector, Some(4), 3);
    }
    let run = Run::new(OVERWRITE, 40, 40);
    let newer = run.next_onto(3);
    let mix = mixed(&run.record(newer), &run.record(3), |n| n == 2);
    run.expect_damage(&run.file_but(newer + 1, 3, &mix), TornInSector, Some(newer), 2);
}

#[test]
fn an_operation_in_flight_may_be_there_in_part() {
    let run = Run::new(APPEND, 11, 10);
    let torn = mixed(&run.record(11), &[0; BLOCK], |n| n % 3 == 1);
    let counts = [(Survived, 10), (UnackedGone, 1), (InFlightInPart, 1)];
    let survey = run.expect_whole(&run.file_but(10, 11, &torn), &counts);
    assert_eq!(places(&survey), [(InFlightInPart, None, 10)]);
    let newer = Run::new(OVERWRITE, 40, 40).next_onto(3);
    let run = Run::new(OVERWRITE, newer, newer - 1);
    let torn = mixed(&run.record(newer), &run.record(3), |n| n % 2 == 0);
    let survey = run.survey(&run.file_but(newer - 1, 3, &torn));
    assert_eq!(places(&survey), [(InFlightInPart, Some(3), 2)]);
    assert_eq!((survey.missing, survey.count(Survived)), (Missing::None, newer - 1));
}

#[test]
fn an_acked_operation_that_is_there_in_part_was_not_in_flight() {
    let run = Run::new(APPEND, 11, 11);
    let torn = mixed(&run.record(11), &[0; BLOCK], |n| n < 4);
    run.expect_damage(&run.file_but(10, 11, &torn), TornAtTransaction, None, 10);
    let survey = run.survey(&run.file_but(10, 11, &torn));
    assert_eq!((survey.missing, survey.count(LostInWindow)), (Missing::From(Seq(11)), 1));
}

/// An operation of the overwrite stream whose successor writes the same place, and the one after
/// that another.
fn overwritten_at_once() -> u64 {
    let run = Run::new(OVERWRITE, 8, 8);
    let found =
        (9..200).find(|n| run.slot(*n) == run.slot(n + 1) && run.slot(n + 1) != run.slot(n + 2));
    found.expect("some place is written twice in a row")
}

#[test]
fn an_operation_in_flight_over_the_newest_does_not_hide_it() {
    let newest = overwritten_at_once();
    for acked in [newest, newest - 2] {
        let run = Run::new(OVERWRITE, newest + 1, acked);
        let torn = mixed(&run.record(newest + 1), &run.record(newest), |n| n > 5);
        let survey = run.survey(&run.file_but(newest, newest, &torn));
        let place = (InFlightInPart, Some(newest), run.slot(newest));
        assert_eq!(places(&survey), [place]);
        assert_eq!(survey.newest.map(|survivor| survivor.seq), Some(Seq(newest)));
        assert_eq!((survey.missing, survey.count(Survived)), (Missing::None, acked));
    }
    let run = Run::new(OVERWRITE, newest + 1, newest + 1);
    let torn = mixed(&run.record(newest + 1), &run.record(newest), |n| n > 5);
    let survey = run.survey(&run.file_but(newest, newest, &torn));
    assert_eq!(survey.count(TornInSector), 1, "an acked one was not in flight");
    assert_eq!(survey.newest.map(|survivor| survivor.seq), Some(Seq(newest - 1)));
}

#[test]
fn an_unacked_operation_that_a_survivor_implies_was_not_in_flight() {
    // Two un-acked operations of one place, torn, and a third that began when both had returned.
    let older = overwritten_at_once();
    let run = Run::new(OVERWRITE, older + 2, older - 1);
    let torn = mixed(&run.record(older + 1), &run.record(older), |n| n < 4);
    let file = run.file_but(older + 2, older, &torn);
    run.expect_damage(&file, TornAtTransaction, Some(older + 1), run.slot(older));
}

#[test]
fn a_part_of_an_unacked_operation_beyond_lost_acked_ones_was_not_in_flight() {
    let run = Run::new(APPEND, 11, 10);
    let torn = mixed(&run.record(11), &[0; BLOCK], |n| n < 4);
    run.expect_damage(&run.file_but(8, 11, &torn), TornAtTransaction, None, 10);
}

#[test]
fn a_record_in_a_place_or_file_that_is_not_its_own_is_misdirected() {
    let run = Run::new(APPEND, 20, 20);
    run.expect_damage(&run.file_but(20, 5, &run.record(9)), Misdirected, Some(5), 4);
    let other = Run::new(OVERWRITE, 8, 8).record(5);
    run.expect_damage(&run.file_but(20, 5, &other), Misdirected, Some(5), 4);
    run.expect_damage(&run.file_but(20, 25, &run.record(9)), Misdirected, None, 24);
}

#[test]
fn a_record_of_another_run_is_foreign_and_noise_is_garbage() {
    let run = Run::new(APPEND, 20, 20);
    let elsewhere = Plan { run: RunId([9; 16]), ..run.plan.clone() };
    let foreign = records(&elsewhere, &run.stream, 5).remove(4);
    run.expect_damage(&run.file_but(20, 5, &foreign), Foreign, Some(5), 4);
    run.expect_damage(&run.file_but(20, 5, &[0xa5; BLOCK]), Garbage, Some(5), 4);
    let behind_the_end = run.file_but(20, 21, &[0xa5; BLOCK]);
    run.expect_damage(&behind_the_end, Garbage, None, 20);
}

#[test]
fn a_place_that_cannot_be_read_is_unreadable() {
    let run = Run::new(OVERWRITE, 8, 8);
    let mut file = run.observed(&run.file(8));
    file.blocks[2] = ObservedBlock::Unreadable(5);
    run.expect_damage_in(&file, Unreadable, Some(3), 2);
}

#[test]
fn a_whole_record_that_is_not_the_acknowledged_one_is_garbage() {
    let run = Run::new(APPEND, 20, 20);
    let blocks = run.file(20);
    let mut other_digest = Run::new(APPEND, 20, 20);
    other_digest.said.acked[6].ack.digest = [1; 8];
    // Its successor names the digest that is on the disk, not the acknowledged one.
    let found = places(&other_digest.survey(&blocks));
    assert_eq!(found, [(Garbage, Some(7), 6), (Garbage, Some(8), 7)]);
    let mut other_start = Run::new(APPEND, 20, 20);
    other_start.said.acked[6].ack.start = EventNo(1_000);
    other_start.expect_damage(&blocks, Garbage, Some(7), 6);
}

#[test]
fn a_record_that_names_another_one_before_it_is_garbage() {
    for acked in [19, 3] {
        let run = Run::new(APPEND, 20, acked);
        let (unchained, _) = sealed(&run.plan, &run.stream, Seq(20), Digest([7; 32]));
        run.expect_damage(&run.file_but(20, 20, &unchained), Garbage, Some(20), 19);
    }
}

#[test]
fn a_record_far_beyond_what_was_announced_is_garbage_and_not_a_survivor() {
    let mut run = Run::new(OVERWRITE, 20, 20);
    let slot = (0..8).find(|slot| run.slot(20) != *slot).expect("eight slots");
    let far = (2 << 20..).find(|n| run.slot(*n) == slot).expect("slots repeat");
    let (record, _) = sealed(&run.plan, &run.stream, Seq(far), Digest([7; 32]));
    let blocks = run.file_but(20, slot as u64 + 1, &record);
    let found = places(&run.survey(&blocks));
    assert_eq!(found, [(Garbage, Some(far), slot)]);
    assert_eq!(run.survey(&blocks).newest.map(|newest| newest.seq), Some(Seq(20)));
    run.said.announced = Some(Seq(far));
    let believed = run.survey(&blocks).newest.map(|newest| newest.seq);
    assert_eq!(believed, Some(Seq(far)), "control: an announced one is believed");
}

#[test]
fn two_readers_that_disagree_are_an_error_with_its_place() {
    let run = Run::new(APPEND, 8, 8);
    let mut file = run.observed(&run.file(8));
    file.blocks[3] = ObservedBlock::Odd(run.record(4).into());
    let look = |bytes: &[u8], stream: &StreamPlan, location| {
        classify(&Place { plan: &run.plan, stream, location }, bytes)
    };
    let found =
        survey(&run.plan, &run.stream, &run.said, &file, Promise::AllButRecent, &look).map(|_| ());
    assert_eq!(found, Err(ReadersDisagree { stream: StreamId(1), location: 3 * RECORD_BYTES }));
}

/// The disk by the definition: operations applied in order, the next one in part.
#[derive(Debug, Clone, Copy)]
struct Crash {
    stream: usize,
    written: u64,
    acked: u64,
    kept: u64,
    /// Sectors of operation `kept + 1` that are there, one bit each; 0 for none of it.
    sectors: u8,
}

fn crashes() -> impl Strategy<Value = Crash> {
    let torn = prop_oneof![Just(0u8), 1u8..=254];
    (0usize..2, 1u64..=24, 0u64..=24, 0u64..=24, torn).prop_map(|(stream, written, a, k, torn)| {
        let (acked, kept) = (a.min(written), k.min(written));
        let sectors = if kept < written { torn } else { 0 };
        Crash { stream, written, acked, kept, sectors }
    })
}

impl Crash {
    fn run(&self) -> Run {
        Run::new(self.stream, self.written, self.acked)
    }

    fn blocks(&self, run: &Run) -> Blocks {
        let mut blocks = run.file(self.kept);
        if self.sectors != 0 {
            let next = self.kept + 1;
            let before = blocks.get(run.slot(next)).cloned().unwrap_or(vec![0; BLOCK]);
            let there = |n: usize| self.sectors >> n & 1 == 1;
            run.put(&mut blocks, next, &mixed(&run.record(next), &before, there));
        }
        blocks
    }

    fn expected_counts(&self, fill: u64) -> BTreeMap<Outcome, u64> {
        let mut counts = BTreeMap::new();
        for seq in 1..=self.written {
            let class = match (seq <= self.kept, seq <= self.acked) {
                (true, true) => Survived,
                (true, false) => UnackedSurvived,
                (false, false) => UnackedGone,
                (false, true) if seq <= fill => LostThoughDurable,
                (false, true) => LostInWindow,
            };
            *counts.entry(class).or_insert(0) += 1;
        }
        counts
    }

    /// How the place of the operation that is there in part should be called.
    fn torn_class(&self) -> Outcome {
        let prefix = self.sectors.trailing_ones() + self.sectors.leading_zeros() == 8;
        match (self.kept + 1 > self.acked, prefix) {
            (true, _) => InFlightInPart,
            (false, true) => TornAtTransaction,
            (false, false) => TornInSector,
        }
    }
}

/// Damage to one place.
#[derive(Debug, Clone)]
enum Damage {
    Flip { byte: usize, bit: u8 },
    Zeros,
    Older,
    OtherPlace,
    OtherRun,
    Noise,
    SwappedSectors { one: usize, two: usize },
    Shortened,
}

fn damages() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0..BLOCK, 0u8..8).prop_map(|(byte, bit)| Damage::Flip { byte, bit }),
        Just(Damage::Zeros),
        Just(Damage::Older),
        Just(Damage::OtherPlace),
        Just(Damage::OtherRun),
        Just(Damage::Noise),
        (0usize..8, 1usize..8)
            .prop_map(|(one, by)| Damage::SwappedSectors { one, two: (one + by) % 8 }),
        Just(Damage::Shortened),
    ]
}

impl Damage {
    /// Does it to the place of operation `seq`, the newest of its place.
    fn to(&self, run: &Run, blocks: &mut Blocks, seq: u64) {
        let slot = run.slot(seq);
        let older = (1..seq).rev().find(|n| run.slot(*n) == slot);
        let other_run = Plan { run: RunId([9; 16]), ..run.plan.clone() };
        let block = &mut blocks[slot];
        match *self {
            Damage::Flip { byte, bit } => *block = flipped(block, byte, bit),
            Damage::Zeros => block.fill(0),
            Damage::Older => *block = older.map_or(vec![0; BLOCK], |seq| run.record(seq)),
            Damage::OtherPlace => {
                let other = (1..=run.records.len() as u64).find(|n| run.slot(*n) != slot);
                *block = other.map_or(vec![0; BLOCK], |seq| run.record(seq));
            }
            Damage::OtherRun => {
                *block = sealed(&other_run, &run.stream, Seq(seq), Digest::default()).0;
            }
            Damage::Noise => *block = [body(99, 3).to_vec(), body(99, 4).to_vec()].concat(),
            Damage::SwappedSectors { one, two } => {
                let order = |n| {
                    if n == one {
                        two
                    } else if n == two {
                        one
                    } else {
                        n
                    }
                };
                let sector = |n: usize| &block[n * SECTOR_BYTES..(n + 1) * SECTOR_BYTES];
                *block = (0..8).flat_map(|n| sector(order(n)).to_vec()).collect();
            }
            Damage::Shortened => blocks.truncate(slot),
        }
        if let Some(block) = blocks.get_mut(slot) {
            block.truncate(BLOCK);
        }
    }
}

/// Zeros at the end of a file and its end are one.
fn trimmed(mut blocks: Blocks) -> Blocks {
    while blocks.last().is_some_and(|block| block.iter().all(|byte| *byte == 0)) {
        blocks.pop();
    }
    blocks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_crash_is_surveyed_as_the_model_that_applies_operations_in_order_says(
        crash in crashes(),
    ) {
        let run = crash.run();
        // An acked operation torn over the newest that was there leaves neither: it has a test of its own.
        let over_newest = crash.kept > 0 && run.slot(crash.kept + 1) == run.slot(crash.kept);
        prop_assume!(crash.sectors == 0 || crash.kept >= crash.acked || !over_newest);
        let survey = run.survey(&crash.blocks(&run));
        let lost = crash.acked.saturating_sub(crash.kept);
        prop_assert_eq!(survey.newest.map_or(0, |newest| newest.seq.0), crash.kept);
        prop_assert_eq!(survey.load_survived(), crash.kept > run.stream.fill());
        let mut counts = crash.expected_counts(run.stream.fill());
        let torn = (crash.sectors != 0).then(|| crash.torn_class());
        let placed = torn.map(|class| (class, run.slot(crash.kept + 1)));
        let found: Vec<_> = places(&survey).iter().map(|(class, _, slot)| (*class, *slot)).collect();
        prop_assert_eq!(found, Vec::from_iter(placed));
        let before = (1..=crash.kept).rev().find(|n| run.slot(*n) == run.slot(crash.kept + 1));
        let mut first_gone = crash.kept + 1;
        let mut missing = lost;
        if let Some(class) = torn {
            *counts.entry(class).or_insert(0) += 1;
            // What an acked operation left in part of an older one's place is gone too.
            if let (true, Some(before)) = (class.is_damage(), before) {
                *counts.entry(Survived).or_insert(0) -= 1;
                (first_gone, missing) = (before, lost + 1);
            }
        }
        counts.retain(|_, count| *count > 0);
        prop_assert_eq!(&survey.counts, &counts);
        let first = if missing > 0 { Missing::From(Seq(first_gone)) } else { Missing::None };
        prop_assert_eq!((survey.missing, survey.missing_count), (first, missing));
    }

    #[test]
    fn damage_to_any_place_is_found_there_or_is_the_state_of_an_earlier_instant(
        crash in crashes(), damage in damages(), which in any::<prop::sample::Index>(),
    ) {
        let crash = Crash { sectors: 0, kept: crash.kept.max(1), ..crash };
        let run = crash.run();
        let whole = run.file(crash.kept);
        let slot = which.index(whole.len());
        let newest_here = (1..=crash.kept).rev().find(|n| run.slot(*n) == slot);
        let mut blocks = whole.clone();
        damage.to(&run, &mut blocks, newest_here.expect("a file has no gaps"));
        prop_assume!(blocks != whole);
        let earlier = (0..crash.kept).find(|kept| run.file(*kept) == trimmed(blocks.clone()));
        let survey = run.survey(&blocks);
        match earlier {
            Some(kept) => {
                prop_assert_eq!(survey.newest.map_or(0, |newest| newest.seq.0), kept);
                let lost = crash.acked.saturating_sub(kept);
                prop_assert_eq!(survey.missing_count, lost);
                prop_assert_eq!(places(&survey), []);
            }
            None => {
                let here = |finding: &&Finding| finding.location == slot as u64 * RECORD_BYTES;
                let found = survey.findings.iter().find(here);
                prop_assert!(found.is_some_and(|f| f.outcome.is_damage()), "{:?}", survey);
                prop_assert_eq!(intact::judge(&[&survey]).verdict, Verdict::Violated);
            }
        }
    }
}
