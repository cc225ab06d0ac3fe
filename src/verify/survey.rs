//! What became of every operation of a stream: its file held against what was said.
//!
//! A stream does one operation after another, so its newest whole record implies all before it.
//! With M the newest whole record and A the newest ack: operations up to M must be there (or be
//! overwritten by one that is), those from M + 1 to A are lost, those after A owe nothing.

use super::outcome::{Finding, Outcome};
use super::tree::instants::Instants;
use crate::history::log::StreamHistory;
use crate::history::message::Ack;
use crate::record::classify::{SectorSeen, Seen, transaction_boundary};
use crate::record::observed::{ObservedBlock, ObservedFile, Summary};
use crate::units::{EventNo, GuestNs, Seq, StreamId};
use crate::workload::plan::{Plan, RECORD_BYTES, StreamPlan};
use std::collections::BTreeMap;

/// Operations that a stream may do while their messages are still on their way: more than any port
/// holds. It bounds what a single crafted record can make this module do.
const UNACKED_MAX: u64 = 1 << 20;

/// What a dataset owes for an acked operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// All of them are there after a cut.
    Everything,
    /// The latest may be gone.
    AllButRecent,
}

/// The acked operations of a stream that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// None.
    None,
    /// This one is the first.
    From(Seq),
}

/// A surviving operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survivor {
    /// Place in the stream.
    pub seq: Seq,
    /// Its first event number, as its record says.
    pub start: EventNo,
    /// When it was acked, or else when its record was made.
    pub at: GuestNs,
}

/// What became of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSurvey {
    /// Which stream.
    pub stream: StreamId,
    /// The newest whole record.
    pub newest: Option<Survivor>,
    /// The acked operations that are gone.
    pub missing: Missing,
    /// The acked operations that may be gone: what was found fits both. Nothing that is there could
    /// tell, so it bounds the loss from above.
    pub missing_at_most: Missing,
    /// How many of them.
    pub missing_count: u64,
    /// Places that are not as they should be, or worth a word.
    pub findings: Vec<Finding>,
    /// Operations by class.
    pub counts: BTreeMap<Outcome, u64>,
    /// Operations that only filled the file before the load.
    pub fill: u64,
    /// Which acks a flush of the disk must stand behind where durability is claimed.
    pub proofs: Proofs,
    /// The instants that what was found fits; never none. Where something is damaged, the nearest.
    pub instants: Instants,
    /// Files that were renamed over others, or replaced.
    pub renamed: Renamed,
}

/// What became of files that were whole and durable when they were given another's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renamed {
    /// How many were looked at.
    pub checked: u64,
    /// Those that are not one whole version under one of the names.
    pub broken: Vec<Finding>,
}

/// Which acks promise durability, and since when a flush may have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proofs {
    /// Each ack, by a flush that arrived after its own operation began.
    EachAck,
    /// The acks of these syncs only.
    Syncs(Vec<SyncProof>),
}

/// One ack that promises durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncProof {
    /// The sync.
    pub sync: Seq,
    /// The newest operation that it makes durable and no sync before it did: the flush must have
    /// arrived after this one began.
    pub since: Seq,
}

impl StreamSurvey {
    /// Operations of a class.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.counts.get(&outcome).copied().unwrap_or(0)
    }

    /// Whether an operation of the load survived.
    pub fn load_survived(&self) -> bool {
        self.newest.is_some_and(|newest| newest.seq.0 > self.fill)
    }
}

/// The tool's own data say different things of one block: no stack can be blamed for that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadersDisagree {
    /// The two readers.
    #[error(
        "stream {stream}, byte {location}: the guest's reader called this block odd, the lab's calls it a whole record"
    )]
    OddOrWhole {
        /// Which stream.
        stream: StreamId,
        /// Byte offset in its file.
        location: u64,
    },
    /// The reader and the writer. A record carries its own SHA-256, so whatever a disk does to it
    /// leaves no other whole record of the same run and sequence: what was read is another run's,
    /// or what was said is.
    #[error(
        "stream {stream}, byte {location}: a whole record {seq} was read back that is not the one that was acknowledged: is it another run's?"
    )]
    NotAsAcked {
        /// Which stream.
        stream: StreamId,
        /// Byte offset in its file.
        location: u64,
        /// The operation.
        seq: Seq,
    },
}

/// Recognises a block that is not a whole record in its place.
pub type Classify<'a> = &'a dyn Fn(&[u8], &StreamPlan, u64) -> Seen;

/// Holds a stream's file against its history.
pub fn survey(
    plan: &Plan,
    stream: &StreamPlan,
    said: &StreamHistory,
    file: &ObservedFile,
    promise: Promise,
    classify: Classify,
) -> Result<StreamSurvey, ReadersDisagree> {
    let newest = Seq(0);
    let mut work = Work { plan, stream, said, file, classify, newest, findings: Vec::new() };
    let records = work.whole_records()?;
    let newest = work.newest_there(&records);
    work.newest = newest.map_or(Seq(0), |survivor| survivor.seq);
    let damaged = work.walk(&records)?;
    work.one_whole_version(&records);
    Ok(work.sum_up(newest, damaged, promise))
}

struct Work<'a> {
    plan: &'a Plan,
    stream: &'a StreamPlan,
    said: &'a StreamHistory,
    file: &'a ObservedFile,
    classify: Classify<'a>,
    /// The newest operation that is there; 0 if none is.
    newest: Seq,
    findings: Vec<Finding>,
}

impl Work<'_> {
    fn find(&mut self, outcome: Outcome, seq: Option<Seq>, slot: u64, text: String) {
        let location = slot * RECORD_BYTES;
        self.findings.push(Finding { outcome, stream: self.stream.id, seq, location, text });
    }

    /// Whole records that are what was said of them, by slot. The others become findings.
    fn whole_records(&mut self) -> Result<BTreeMap<u64, Summary>, ReadersDisagree> {
        let mut records = BTreeMap::new();
        let mut digests: BTreeMap<Seq, [u8; 8]> = BTreeMap::new();
        for (slot, block) in self.file.blocks.iter().enumerate() {
            let (slot, ObservedBlock::Record(record)) = (slot as u64, block) else { continue };
            match self.contradiction(record, slot)? {
                None => {
                    digests.insert(record.seq, record.digest);
                    records.insert(slot, *record);
                }
                Some((outcome, text)) => self.find(outcome, Some(record.seq), slot, text),
            }
        }
        for (slot, record) in &records {
            let previous = Seq(record.seq.0.saturating_sub(1));
            let said = self.said.ack(previous).map(|acked| acked.ack.digest);
            let expected = said.or_else(|| digests.get(&previous).copied());
            if expected.is_some_and(|digest| digest != record.previous) {
                let text = format!("record {} names another record before it", record.seq);
                self.find(Outcome::Garbage, Some(record.seq), *slot, text);
            }
        }
        Ok(records)
    }

    /// Why a whole record cannot be what it says.
    fn contradiction(
        &self,
        record: &Summary,
        slot: u64,
    ) -> Result<Option<(Outcome, String)>, ReadersDisagree> {
        if record.seq.0 == 0 || self.stream.slot(self.plan.seed, record.seq) != slot {
            let text = format!("record {} does not belong here", record.seq);
            return Ok(Some((Outcome::Misdirected, text)));
        }
        let acked = self.said.newest_acked().0;
        if record.seq.0 > acked.saturating_add(UNACKED_MAX) {
            let text =
                format!("record {} is far beyond operation {acked}, the newest acked", record.seq);
            return Ok(Some((Outcome::Garbage, text)));
        }
        let (stream, location, seq) = (self.stream.id, slot * RECORD_BYTES, record.seq);
        let is_acked = |ack: &Ack| ack.digest == record.digest && ack.start == record.start;
        match self.said.ack(seq) {
            Some(acked) if !is_acked(&acked.ack) => {
                Err(ReadersDisagree::NotAsAcked { stream, location, seq })
            }
            _ => Ok(None),
        }
    }

    /// The newest operation that is there: the newest whole record's, or the one behind it if the
    /// operation in flight wrote over that in part, which it began when that had returned.
    fn newest_there(&self, records: &BTreeMap<u64, Summary>) -> Option<Survivor> {
        let whole = records.values().max_by_key(|record| record.seq).map(|record| Survivor {
            seq: record.seq,
            start: record.start,
            at: self.said.ack(record.seq).map_or(record.stamp, |acked| acked.ack.end_ns),
        });
        let covered = Seq(whole.map_or(0, |survivor| survivor.seq.0).saturating_add(1));
        if !self.is_covered_in_flight(covered) {
            return whole;
        }
        // Un-acked, it began at the earliest when the one before it did.
        let at_least = |survivor: Survivor| Survivor { seq: covered, ..survivor };
        let said = self.said.ack(covered).map(|acked| Survivor {
            seq: covered,
            start: acked.ack.start,
            at: acked.ack.end_ns,
        });
        said.or(whole.map(at_least))
    }

    /// Whether the place of this operation holds it and, in part, the operation after it.
    fn is_covered_in_flight(&self, covered: Seq) -> bool {
        let slot_of = |seq| self.stream.slot(self.plan.seed, seq);
        let slot = slot_of(covered);
        if slot_of(Seq(covered.0.saturating_add(1))) != slot {
            return false;
        }
        let block = usize::try_from(slot).ok().and_then(|slot| self.file.blocks.get(slot));
        let Some(ObservedBlock::Odd(bytes)) = block else { return false };
        match (self.classify)(bytes, self.stream, slot * RECORD_BYTES) {
            Seen::Torn(sectors) => {
                sectors.contains(&SectorSeen::Of(covered))
                    && self.is_in_flight(&sectors, covered, Some(covered))
            }
            _ => false,
        }
    }

    /// Looks at every place that should hold a record or does hold something. Returns the
    /// operations that should be there and are not.
    fn walk(&mut self, records: &BTreeMap<u64, Summary>) -> Result<Vec<Seq>, ReadersDisagree> {
        let mut expected: BTreeMap<u64, Seq> = BTreeMap::new();
        for n in 1..=self.newest.0 {
            expected.insert(self.stream.slot(self.plan.seed, Seq(n)), Seq(n));
        }
        let end = expected.keys().next_back().map_or(0, |slot| slot + 1);
        let mut damaged = Vec::new();
        for slot in 0..end.max(self.file.blocks.len() as u64) {
            let should = expected.get(&slot).copied();
            let whole = match records.get(&slot) {
                Some(record) => self.version(record, should, slot),
                None => self.not_a_record(should, slot)?,
            };
            damaged.extend(should.filter(|_| !whole));
        }
        Ok(damaged)
    }

    fn version(&mut self, record: &Summary, should: Option<Seq>, slot: u64) -> bool {
        match should {
            Some(should) if record.seq < should => {
                let text =
                    format!("holds record {} where {should} was overwritten onto it", record.seq);
                self.find(Outcome::Stale, Some(should), slot, text);
                false
            }
            _ => true,
        }
    }

    /// Judges a place without an acceptable whole record. True when nothing is wrong with it.
    fn not_a_record(&mut self, should: Option<Seq>, slot: u64) -> Result<bool, ReadersDisagree> {
        let blocks = &self.file.blocks;
        let block = usize::try_from(slot).ok().and_then(|slot| blocks.get(slot));
        match block {
            // Already a finding of its own.
            Some(ObservedBlock::Record(_)) => Ok(false),
            None | Some(ObservedBlock::Zeros) => {
                if let Some(should) = should {
                    let what = if block.is_none() { "the file ends before" } else { "zeros where" };
                    let text = format!("{what} record {should} was");
                    self.find(Outcome::Hole, Some(should), slot, text);
                }
                Ok(should.is_none())
            }
            Some(ObservedBlock::Unreadable(errno)) => {
                let text = format!("reading failed with errno {errno}");
                self.find(Outcome::Unreadable, should, slot, text);
                Ok(false)
            }
            Some(ObservedBlock::Odd(bytes)) => {
                let location = slot * RECORD_BYTES;
                match (self.classify)(bytes, self.stream, location) {
                    Seen::Whole(_) => {
                        Err(ReadersDisagree::OddOrWhole { stream: self.stream.id, location })
                    }
                    seen => Ok(self.odd(&seen, should, slot)),
                }
            }
        }
    }

    fn odd(&mut self, seen: &Seen, should: Option<Seq>, slot: u64) -> bool {
        let (outcome, text) = match seen {
            Seen::Torn(sectors) if self.is_in_flight(sectors, self.newest, should) => {
                (Outcome::InFlightInPart, describe(sectors))
            }
            Seen::Torn(sectors) if transaction_boundary(sectors).is_some() => {
                (Outcome::TornAtTransaction, describe(sectors))
            }
            Seen::Torn(sectors) => (Outcome::TornInSector, describe(sectors)),
            Seen::Misdirected { stream, seq, location } => {
                let text = format!("record {seq} of stream {stream} for byte {location}");
                (Outcome::Misdirected, text)
            }
            Seen::Foreign { run } => (Outcome::Foreign, format!("a record of run {run}")),
            Seen::Garbage | Seen::Whole(_) => (Outcome::Garbage, "no part is a record's".into()),
            Seen::Zeros => (Outcome::Hole, "zeros, and the file ends inside".into()),
        };
        let fine = match outcome {
            Outcome::InFlightInPart => true,
            Outcome::Hole => should.is_none(),
            _ => false,
        };
        if outcome == Outcome::Hole && fine {
            return true;
        }
        self.find(outcome, should, slot, text);
        fine
    }

    /// Whether a mix of whole sectors is what the operation in flight may leave: its own, the
    /// version before, and zeros where the file grew. A stream does one operation after another, so
    /// only the one after the newest that is there can have been in flight, and only un-acked.
    fn is_in_flight(&self, sectors: &[SectorSeen], newest: Seq, before: Option<Seq>) -> bool {
        let next = Seq(newest.0.saturating_add(1));
        let own = SectorSeen::Of(next);
        let before = before.map_or(SectorSeen::Zeros, SectorSeen::Of);
        !self.is_replaced()
            && next > self.said.newest_acked()
            && sectors.contains(&own)
            && sectors.iter().all(|sector| *sector == own || *sector == before)
    }

    fn sum_up(self, newest: Option<Survivor>, damaged: Vec<Seq>, promise: Promise) -> StreamSurvey {
        let (acked, fill) = (self.said.newest_acked().0, self.stream.fill());
        let kept = self.newest.0;
        let mut counts = BTreeMap::new();
        let mut add = |outcome, n: u64| {
            if n > 0 {
                *counts.entry(outcome).or_insert(0) += n;
            }
        };
        let damaged_acked = damaged.iter().filter(|seq| seq.0 <= acked).count() as u64;
        add(Outcome::Survived, kept.min(acked) - damaged_acked);
        let damaged_unacked = damaged.len() as u64 - damaged_acked;
        add(Outcome::UnackedSurvived, kept.saturating_sub(acked) - damaged_unacked);
        let announced = self.said.announced.map_or(0, |seq| seq.0);
        add(Outcome::UnackedGone, announced.saturating_sub(kept.max(acked)));
        let lost = acked.saturating_sub(kept);
        let lost_fill = fill.min(acked).saturating_sub(kept);
        let recent = match promise {
            Promise::Everything => Outcome::LostThoughDurable,
            Promise::AllButRecent => Outcome::LostInWindow,
        };
        add(Outcome::LostThoughDurable, lost_fill);
        add(recent, lost - lost_fill);
        for finding in &self.findings {
            add(finding.outcome, 1);
        }
        let renamed = match self.is_replaced() {
            true => self.replaced(),
            false => Renamed::default(),
        };
        let first = damaged.iter().copied().filter(|seq| seq.0 <= acked).min();
        let first = first.or((lost > 0).then_some(Seq(kept + 1)));
        StreamSurvey {
            stream: self.stream.id,
            newest,
            missing: first.map_or(Missing::None, Missing::From),
            missing_at_most: first.map_or(Missing::None, Missing::From),
            missing_count: lost + damaged_acked,
            findings: self.findings,
            counts,
            fill,
            proofs: Proofs::EachAck,
            instants: Instants::one(self.newest),
            renamed,
        }
    }
}

/// The sectors of a torn place in words, runs together.
fn describe(sectors: &[SectorSeen]) -> String {
    let runs = sectors.chunk_by(|a, b| in_words(a) == in_words(b));
    let text: Vec<String> =
        runs.map(|run| format!("{} x {}", run.len(), in_words(&run[0]))).collect();
    format!("sectors: {}", text.join(", "))
}

fn in_words(sector: &SectorSeen) -> String {
    match sector {
        SectorSeen::Zeros => "zeros".to_owned(),
        SectorSeen::Of(seq) => format!("record {seq}"),
        SectorSeen::Damaged(seq) => format!("damaged record {seq}"),
        SectorSeen::Misdirected { stream, seq, .. } => {
            format!("record {seq} of stream {stream}, misplaced")
        }
        SectorSeen::Foreign => "another run's".to_owned(),
        SectorSeen::Garbage => "garbage".to_owned(),
    }
}

mod replaced;

#[cfg(test)]
mod model;
#[cfg(test)]
mod sample;
#[cfg(test)]
pub(crate) mod test_support;
#[cfg(test)]
mod tests;
