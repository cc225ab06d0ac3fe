//! What the plan says of one record-sized place of a stream's file.
//!
//! Sequences and streams come from bytes that were read back, so each is checked before the plan is
//! asked; what the plan does not know is "no", never a panic.

use crate::record::layout::{self, Header, RECORD_BYTES, RecordBytes};
use crate::record::observed::{ObservedBlock, Summary};
use crate::record::ring::Ring;
use crate::units::{Seq, StreamId};
use crate::workload::plan::{Pattern, Plan, StreamPlan};

/// A place in the file of a stream of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The workload.
    pub plan: &'a Plan,
    /// The stream whose file it is.
    pub stream: &'a StreamPlan,
    /// Byte offset in the file.
    pub location: u64,
}

/// Byte offset that an operation of this stream writes; `None` for a sequence that no operation can
/// have.
pub fn planned_location(plan: &Plan, stream: &StreamPlan, seq: Seq) -> Option<u64> {
    if seq.0 == 0 {
        return None;
    }
    match stream.pattern {
        Pattern::Append => (seq.0 - 1).checked_mul(RECORD_BYTES as u64),
        Pattern::Overwrite { .. } | Pattern::Replace => Some(stream.location(plan.seed, seq)),
        Pattern::Script(_) | Pattern::Sqlite(_) | Pattern::Exec(_) => None,
    }
}

/// The stream of this number.
pub fn stream_of(plan: &Plan, id: StreamId) -> Option<&StreamPlan> {
    plan.streams.iter().find(|stream| stream.id == id)
}

impl Place<'_> {
    /// Whether the plan lets this operation of this place's stream write here.
    pub fn is_of(&self, seq: Seq) -> bool {
        planned_location(self.plan, self.stream, seq) == Some(self.location)
    }

    /// Whether a header says all that the plan says of its operation, and belongs here.
    pub fn fits(&self, header: &Header) -> bool {
        header.run == self.plan.run
            && header.stream == self.stream.id
            && header.location == self.location
            && self.is_of(header.seq)
            && header.body == self.stream.body(self.plan, header.seq)
    }

    /// What was read here, with bodies compared with the ring instead of hashed. Whatever is not
    /// exactly a record of this place, or zeros, is kept as it is.
    pub fn observe(&self, bytes: &[u8], ring: &Ring) -> ObservedBlock {
        if let Some(summary) = bytes.try_into().ok().and_then(|record| self.record(record, ring)) {
            return ObservedBlock::Record(summary);
        }
        if is_zero(bytes) {
            return ObservedBlock::Zeros;
        }
        ObservedBlock::Odd(bytes.into())
    }

    fn record(&self, record: &RecordBytes, ring: &Ring) -> Option<Summary> {
        let (header, digest) = layout::open(record).ok()?;
        let (body, body_digest) = ring.get(header.body)?;
        let whole = self.fits(&header)
            && header.body_digest == body_digest
            && layout::has_body(record, body);
        whole.then(|| header.summary(digest))
    }
}

/// Whether there is nothing but zero bytes.
pub fn is_zero(bytes: &[u8]) -> bool {
    // The first byte decides nearly always; the whole is looked at only when it is zero.
    bytes.first().is_none_or(|&byte| byte == 0) && bytes.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::{plan, write_record};

    #[test]
    fn only_the_record_of_its_own_place_is_a_record() {
        let plan = plan();
        let ring = Ring::make(plan.seed, plan.bodies);
        let record = write_record(&plan, StreamId(1), Seq(3));
        let at = |stream: usize, location| Place {
            plan: &plan,
            stream: &plan.streams[stream],
            location,
        };
        let seen = at(0, 8192).observe(&record, &ring);
        assert!(matches!(seen, ObservedBlock::Record(Summary { seq: Seq(3), .. })), "{seen:?}");
        for elsewhere in [at(0, 4096), at(1, 8192), at(0, 8191)] {
            assert_eq!(elsewhere.observe(&record, &ring), ObservedBlock::Odd(record.into()));
        }
        let mut damaged = record;
        damaged[2000] ^= 1;
        assert_eq!(at(0, 8192).observe(&damaged, &ring), ObservedBlock::Odd(damaged.into()));
        assert_eq!(
            at(0, 8192).observe(&record[..4095], &ring),
            ObservedBlock::Odd(record[..4095].into())
        );
        assert_eq!(at(0, 8192).observe(&[0; 4096], &ring), ObservedBlock::Zeros);
        assert_eq!(at(0, 8192).observe(&[0; 100], &ring), ObservedBlock::Zeros);
    }

    #[test]
    fn sequences_that_no_operation_can_have_are_nowhere() {
        let plan = plan();
        for seq in [Seq(0), Seq(u64::MAX), Seq(1 << 60)] {
            assert_eq!(planned_location(&plan, &plan.streams[0], seq), None, "append {seq}");
        }
        assert_eq!(planned_location(&plan, &plan.streams[1], Seq(0)), None);
        assert!(planned_location(&plan, &plan.streams[1], Seq(u64::MAX)).is_some());
    }
}
