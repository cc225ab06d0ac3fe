//! Small streams for the oracles' tests.
use super::*;
use crate::history::log::Acked;
use crate::history::message::Ack;

/// A stream whose operations have these (start, done, end) events; the first `kept` are there.
pub fn stream(id: u16, ops: &[(u64, u64, u64)], kept: u64) -> (StreamSurvey, StreamHistory) {
    let ack = |(n, (start, done, end)): (usize, &(u64, u64, u64))| Acked {
        entry: n as u64,
        ack: Ack {
            seq: Seq(n as u64 + 1),
            start: EventNo(*start),
            done: EventNo(*done),
            end: EventNo(*end),
            start_ns: GuestNs(start * 1_000_000),
            done_ns: GuestNs(done * 1_000_000),
            end_ns: GuestNs(end * 1_000_000),
            digest: [n as u8; 8],
        },
    };
    let acked: Vec<Acked> = ops.iter().enumerate().map(ack).collect();
    let newest = acked.get((kept as usize).wrapping_sub(1)).map(|acked| Survivor {
        seq: acked.ack.seq,
        start: acked.ack.start,
        at: acked.ack.end_ns,
    });
    let lost = ops.len() as u64 - kept;
    let missing = if lost > 0 { Missing::From(Seq(kept + 1)) } else { Missing::None };
    let survey = StreamSurvey {
        stream: StreamId(id),
        newest,
        missing,
        missing_at_most: missing,
        missing_count: lost,
        findings: Vec::new(),
        counts: BTreeMap::from([(Outcome::Survived, kept), (Outcome::LostInWindow, lost)]),
        fill: 0,
        proofs: Proofs::EachAck,
        instants: Instants::one(Seq(kept)),
        renamed: Renamed::default(),
    };
    (survey, StreamHistory { acked, ..StreamHistory::default() })
}
