//! Every fault lands in a record that is acknowledged and read.

use super::*;
use crate::disk::{CrashModel, StateCursor, crash_state};
use crate::history::log::{Acked, StreamHistory};
use crate::history::message::Ack;
use crate::record::testing::plan;
use crate::trace::{Recorder, Request, RequestNo, TraceHeader};
use crate::units::{EventNo, GuestNs, Seq, StreamId};
use layout::Digest;
use std::collections::BTreeMap;

const DISK: u64 = 1 << 20;
/// Of the testing plan: it overwrites eight slots.
const OVERWRITE: usize = 1;

struct Written {
    _folder: tempfile::TempDir,
    log: DiskLog,
    plan: Plan,
    history: History,
}

/// A stream that wrote so many operations, each followed by a flush, all of them acknowledged but
/// the last.
fn written(operations: u64) -> Written {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    let plan = plan();
    let stream = &plan.streams[OVERWRITE];
    let recorder = Recorder::create(&path, &TraceHeader::now(plan.run, DISK)).expect("a trace");
    let ask = |command, offset, payload: &[u8]| {
        let length = payload.len() as u32;
        let request = Request { no: RequestNo(0), command, fua: false, offset, length };
        let arrived = recorder.request(request, payload).expect("recorded");
        recorder.reply(arrived.no, 0).expect("recorded");
    };
    for seq in (1..=operations).map(Seq) {
        let mut record = [0; RECORD_BYTES];
        let location = stream.location(plan.seed, seq);
        let header = Header {
            run: plan.run,
            stream: stream.id,
            start: EventNo(seq.0),
            seq,
            location,
            stamp: GuestNs(seq.0),
            previous: Digest::default(),
            body: 0,
            body_digest: Digest::default(),
        };
        layout::seal(&header, &mut record);
        ask(Command::Write, location, &record);
        ask(Command::Flush, 0, &[]);
    }
    recorder.cut("test").expect("recorded");
    recorder.sync().expect("synced");
    let ack = |n: u64| Ack {
        seq: Seq(n),
        start: EventNo(n),
        done: EventNo(n),
        end: EventNo(n),
        start_ns: GuestNs(n),
        done_ns: GuestNs(n),
        end_ns: GuestNs(n),
        digest: [0; 8],
    };
    let acked = (1..operations).map(|n| Acked { ack: ack(n), entry: n }).collect();
    let said = StreamHistory { acked, ..StreamHistory::default() };
    let streams: BTreeMap<StreamId, StreamHistory> = BTreeMap::from([(stream.id, said)]);
    let history = History { streams, ..History::default() };
    let log = DiskLog::read(&path, |_, _| {}).expect("read");
    Written { _folder: folder, log, plan, history }
}

/// The fault of a kind for a cut at the end of the trace, and the two states.
fn planted(written: &Written, kind: DiskKind) -> Result<(DiskFault, [Image; 2]), TargetError> {
    let Written { log, plan, history, .. } = written;
    let blank = Image::blank(DISK).expect("a size");
    let (cut, model) = (log.cut_entry(), CrashModel::DropUnflushed);
    let image = crash_state(log, &blank, cut, model, 0).expect("a state");
    let fault = Control { log, plan, history, image: &image, cut, seed: 5 }.fault(kind)?;
    let mut cursor = StateCursor::with_fault(log, &blank, model, Some(fault)).expect("planted");
    let faulty = cursor.at(cut, 0).expect("a state").image;
    Ok((fault, [image, faulty]))
}

fn bytes(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; DISK as usize];
    image.read_at(0, &mut bytes).expect("read");
    bytes
}

#[test]
fn every_fault_of_a_record_alters_one_that_is_acknowledged_and_read() {
    let written = written(60);
    for kind in [
        DiskKind::WriteLost,
        DiskKind::StaleSector,
        DiskKind::Misdirected,
        DiskKind::Duplicated,
        DiskKind::BitFlipped,
        DiskKind::TornAt512,
        DiskKind::Zeroed,
    ] {
        let (fault, [honest, faulty]) = planted(&written, kind).expect("a place");
        assert_ne!(bytes(&honest), bytes(&faulty), "{fault}");
        // Request 2n is the write of operation n + 1.
        let seq = u64::from(fault.request().expect("a request")) / 2 + 1;
        assert!((9..=55).contains(&seq), "{fault}: overwritten, acked, and not the newest");
    }
}

#[test]
fn a_fault_without_anything_to_plant_it_in_is_refused() {
    let few = written(8);
    let refused = planted(&few, DiskKind::WriteLost).expect_err("only the set-up's records");
    assert!(refused.to_string().contains("no record that overwrote another"), "{refused}");
    for kind in [DiskKind::TrimTooLong, DiskKind::JournalZeroed, DiskKind::DirectoryFlipped] {
        assert!(planted(&written(60), kind).is_err(), "{kind:?}");
    }
}

#[test]
fn a_fault_of_flushes_needs_no_place() {
    let (fault, _) = planted(&written(60), DiskKind::FlushIgnored).expect("planted");
    assert_eq!(fault, DiskFault::FlushIgnored);
}
