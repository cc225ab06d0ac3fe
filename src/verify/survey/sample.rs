//! A stream that wrote real record bytes, its file after a crash, and what a survey of it must say.

use super::*;
use crate::history::log::Acked;
use crate::history::message::Ack;
use crate::record::classify::classify;
use crate::record::layout::{self, Digest, Header};
use crate::record::place::Place;
use crate::record::ring::{Ring, body};
use crate::record::testing::plan;
use crate::units::SECTOR_BYTES;
use crate::verify::verdict::Verdict;
use crate::verify::{intact, point_in_time};

pub const APPEND: usize = 0;
/// Eight slots.
pub const OVERWRITE: usize = 1;
pub const REPLACE: usize = 2;
pub const BLOCK: usize = RECORD_BYTES as usize;

pub type Blocks = Vec<Vec<u8>>;

/// A stream that wrote some operations, of which the first were acknowledged.
pub struct Run {
    pub plan: Plan,
    pub ring: Ring,
    pub stream: StreamPlan,
    pub records: Vec<Vec<u8>>,
    pub said: StreamHistory,
}

impl Run {
    pub fn new(stream: usize, written: u64, acked: u64) -> Run {
        let plan = plan();
        let stream = plan.streams[stream].clone();
        let records = records(&plan, &stream, written);
        let ack = |(n, record): (u64, &Vec<u8>)| ack(n, record);
        let acked: Vec<Acked> = (1..=acked).zip(&records).map(ack).collect();
        let announced = (written > 0).then_some(Seq(written));
        let said = StreamHistory { acked, announced, ..StreamHistory::default() };
        Run { ring: Ring::make(plan.seed, plan.bodies), plan, stream, records, said }
    }

    pub fn slot(&self, seq: u64) -> usize {
        self.stream.slot(self.plan.seed, Seq(seq)) as usize
    }

    pub fn record(&self, seq: u64) -> Vec<u8> {
        self.records[seq as usize - 1].clone()
    }

    /// The file after the first `kept` operations.
    pub fn file(&self, kept: u64) -> Blocks {
        let mut blocks = Blocks::new();
        for seq in 1..=kept {
            self.put(&mut blocks, seq, &self.record(seq));
        }
        blocks
    }

    /// Lays `bytes` where operation `seq` writes.
    pub fn put(&self, blocks: &mut Blocks, seq: u64, bytes: &[u8]) {
        let slot = self.slot(seq);
        if blocks.len() <= slot {
            blocks.resize(slot + 1, vec![0; BLOCK]);
        }
        blocks[slot] = bytes.to_vec();
    }

    /// The file after `kept` operations, with the place of operation `seq` changed.
    pub fn file_but(&self, kept: u64, seq: u64, bytes: &[u8]) -> Blocks {
        let mut blocks = self.file(kept);
        self.put(&mut blocks, seq, bytes);
        blocks
    }

    /// The operation that overwrote the place of `seq` first.
    pub fn next_onto(&self, seq: u64) -> u64 {
        (seq + 1..).find(|n| self.slot(*n) == self.slot(seq)).expect("slots repeat")
    }

    pub fn observed(&self, blocks: &Blocks) -> ObservedFile {
        let observe = |(slot, block): (u64, &Vec<u8>)| {
            let (plan, stream) = (&self.plan, &self.stream);
            Place { plan, stream, location: slot * RECORD_BYTES }.observe(block, &self.ring)
        };
        let size = Some(blocks.iter().map(|block| block.len() as u64).sum());
        let blocks = (0..).zip(blocks).map(observe).collect();
        ObservedFile { stream: self.stream.id, size, blocks }
    }

    pub fn try_survey(
        &self,
        file: &ObservedFile,
        promise: Promise,
    ) -> Result<StreamSurvey, ReadersDisagree> {
        let look = |bytes: &[u8], stream: &StreamPlan, location| {
            classify(&Place { plan: &self.plan, stream, location }, bytes)
        };
        survey(&self.plan, &self.stream, &self.said, file, promise, &look)
    }

    pub fn survey_file(&self, file: &ObservedFile, promise: Promise) -> StreamSurvey {
        self.try_survey(file, promise).expect("readers agree")
    }

    pub fn survey(&self, blocks: &Blocks) -> StreamSurvey {
        self.survey_file(&self.observed(blocks), Promise::AllButRecent)
    }

    /// Asserts that exactly this is wrong at exactly this place, and that the oracles that judge
    /// places say so.
    #[track_caller]
    pub fn expect_damage(&self, blocks: &Blocks, outcome: Outcome, seq: Option<u64>, slot: usize) {
        self.expect_damage_in(&self.observed(blocks), outcome, seq, slot);
    }

    #[track_caller]
    pub fn expect_damage_in(
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
    pub fn expect_whole(&self, blocks: &Blocks, counts: &[(Outcome, u64)]) -> StreamSurvey {
        let survey = self.survey(blocks);
        assert_eq!(survey.counts, BTreeMap::from_iter(counts.iter().copied()), "{survey:?}");
        assert_eq!(intact::judge(&[&survey]).verdict, Verdict::Held);
        survey
    }
}

/// The records of a stream, chained as its writer chains them.
pub fn records(plan: &Plan, stream: &StreamPlan, written: u64) -> Vec<Vec<u8>> {
    let mut previous = Digest::default();
    let record = |n| {
        let (record, digest) = sealed(plan, stream, Seq(n), previous);
        previous = digest;
        record
    };
    (1..=written).map(record).collect()
}

pub fn sealed(plan: &Plan, stream: &StreamPlan, seq: Seq, previous: Digest) -> (Vec<u8>, Digest) {
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

pub fn ack(n: u64, record: &[u8]) -> Acked {
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

pub fn places(survey: &StreamSurvey) -> Vec<(Outcome, Option<u64>, usize)> {
    let place = |finding: &Finding| {
        (finding.outcome, finding.seq.map(|seq| seq.0), (finding.location / RECORD_BYTES) as usize)
    };
    survey.findings.iter().map(place).collect()
}

/// Some sectors of one block, the others of another.
pub fn mixed(front: &[u8], back: &[u8], is_front: impl Fn(usize) -> bool) -> Vec<u8> {
    let sectors = front.chunks(SECTOR_BYTES).zip(back.chunks(SECTOR_BYTES)).enumerate();
    sectors.flat_map(|(n, (f, b))| if is_front(n) { f } else { b }).copied().collect()
}

pub fn flipped(block: &[u8], byte: usize, bit: u8) -> Vec<u8> {
    let mut block = block.to_vec();
    block[byte] ^= 1 << bit;
    block
}
