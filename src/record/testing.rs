//! A small plan and its records, for the tests of this folder.

use crate::record::layout::{self, Digest, Header, RECORD_BYTES, RecordBytes};
use crate::record::place::stream_of;
use crate::record::ring;
use crate::units::{EventNo, GuestNs, RunId, Seq, StreamId};
use crate::workload::plan::{Pattern, Plan, StreamPlan};

/// Stream 1 appends, stream 2 overwrites 8 slots, stream 3 replaces its file.
pub fn plan() -> Plan {
    let stream = |id, pattern| StreamPlan {
        id: StreamId(id),
        dataset: "customer".into(),
        path: format!("/tank/customer/{id}"),
        pattern,
        pace_hz: None,
        batch: 1,
        fault: None,
    };
    Plan {
        run: RunId(*b"a run of a test."),
        seed: 7,
        bodies: 16,
        streams: vec![
            stream(1, Pattern::Append),
            stream(2, Pattern::Overwrite { slots: 8 }),
            stream(3, Pattern::Replace),
        ],
    }
}

/// The record that the plan says operation `seq` of a stream writes.
pub fn write_record(plan: &Plan, stream: StreamId, seq: Seq) -> RecordBytes {
    let planned = stream_of(plan, stream).expect("a stream of the plan");
    write_record_at(plan, stream, seq, planned.location(plan.seed, seq))
}

/// The same with a location of the caller's choice in its header.
pub fn write_record_at(plan: &Plan, stream: StreamId, seq: Seq, location: u64) -> RecordBytes {
    let index = stream_of(plan, stream).expect("a stream of the plan").body(plan, seq);
    let body = ring::body(plan.seed, index);
    let mut record = [0; RECORD_BYTES];
    layout::put_body(&mut record, &body);
    let header = Header {
        run: plan.run,
        stream,
        start: EventNo(seq.0 * 4),
        seq,
        location,
        stamp: GuestNs(seq.0 * 1000),
        previous: Digest([seq.0 as u8; 32]),
        body: index,
        body_digest: Digest::of(&body),
    };
    layout::seal(&header, &mut record);
    record
}
