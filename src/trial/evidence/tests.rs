//! Traces that lack something, or contradict themselves: none may become evidence that could pass.

use super::*;
use crate::history::message::{Ack, Intent, OpMessage, StreamEvent, StreamNote, TxgRow, TxgState};
use crate::trace::{ClockSample, Recorder, Request, RequestNo, TraceHeader, TraceReader, lab_now};
use crate::units::{GuestNs, RunId, Seq};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const STREAM: StreamId = StreamId(3);
const BLOCK: u32 = 4096;

/// One thing that the lab records.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// A write of this group's uberblock, its reply, a flush and that one's reply.
    Synced(u64),
    /// The same without the flush.
    Unflushed(u64),
    /// A row that says that this group is born now.
    Birth(u64),
    /// A clock sample, the guest's clock this much ahead of where it was.
    Sample {
        step_ns: u64,
    },
    /// The ack of this operation, and the intent of the next.
    Acked(u64),
    /// The stream's note that it started.
    Started,
    Mark(&'static str),
    Cut,
    /// Bytes that are no frame.
    Noise,
}

use Part::*;

/// What a run without a fault records.
fn good() -> Vec<Part> {
    let mut parts = vec![Birth(10), Sample { step_ns: 0 }, Mark(SET_UP_WRITTEN)];
    parts.extend([Sample { step_ns: 0 }, Birth(11), Synced(10), Mark(LOAD_BEGINS), Started]);
    parts.extend([Acked(1), Acked(2), Sample { step_ns: 0 }, Acked(3), Birth(12), Synced(11)]);
    parts.extend([Acked(4), Acked(5), Sample { step_ns: 0 }, Cut, Acked(6)]);
    parts
}

fn without(part: Part) -> Vec<Part> {
    let parts = good();
    assert!(parts.contains(&part), "{part:?}");
    parts.into_iter().filter(|other| *other != part).collect()
}

fn with(part: Part, behind: Part) -> Vec<Part> {
    let mut parts = good();
    let at = parts.iter().position(|other| *other == behind).expect("a part of it");
    parts.insert(at + 1, part);
    parts
}

/// A trace being written.
struct Lab {
    recorder: Recorder,
    /// The guest's clock starts with the trace.
    started: u64,
    event: u64,
}

impl Lab {
    fn guest_now(&self) -> GuestNs {
        GuestNs(lab_now().0 - self.started)
    }

    fn next_event(&mut self) -> EventNo {
        self.event += 1;
        EventNo(self.event)
    }

    fn record(&mut self, part: Part) {
        match part {
            Synced(txg) => {
                self.write(txg);
                self.ask(Command::Flush, &[]);
            }
            Unflushed(txg) => self.write(txg),
            Birth(txg) => {
                let row = self.row(txg);
                self.send(&Message::Txg(row));
            }
            Sample { step_ns } => {
                let before = lab_now();
                let guest = GuestNs(self.guest_now().0 + step_ns);
                let sample = ClockSample { before, after: lab_now(), guest };
                self.recorder.clock_sample(sample).expect("recorded");
            }
            Acked(seq) => {
                let op = self.op(seq);
                self.send(&Message::Op(op));
            }
            Started => {
                let (event, at) = (self.next_event(), self.guest_now());
                let note = StreamNote { stream: STREAM, event, at, what: StreamEvent::Started };
                self.send(&Message::Stream(note));
            }
            Mark(name) => {
                self.recorder.mark(name).expect("recorded");
                // Longer than the clock map's error: what comes next is certainly behind it.
                thread::sleep(Duration::from_millis(2));
            }
            Cut => {
                self.recorder.cut("test").expect("recorded");
            }
            Noise => self.recorder.message(b"no frame, not even a short one").expect("recorded"),
        }
    }

    fn write(&mut self, txg: u64) {
        let mut block = [0u8; BLOCK as usize];
        for (at, field) in [0x00ba_b10c_u64, 5000, txg].into_iter().enumerate() {
            block[8 * at..8 * at + 8].copy_from_slice(&field.to_le_bytes());
        }
        self.ask(Command::Write, &block);
    }

    fn ask(&mut self, command: Command, payload: &[u8]) {
        let length = payload.len() as u32;
        let request = Request { no: RequestNo(0), command, fua: false, offset: 0, length };
        let arrived = self.recorder.request(request, payload).expect("recorded");
        self.recorder.reply(arrived.no, 0).expect("recorded");
    }

    fn row(&mut self, txg: u64) -> TxgRow {
        let birth = self.guest_now();
        TxgRow {
            event: self.next_event(),
            seen_ns: birth,
            txg: Txg(txg),
            birth,
            state: TxgState::Open,
            dirty_bytes: 0,
            open_ns: 0,
            quiesce_ns: 0,
            wait_ns: 0,
            sync_ns: 0,
        }
    }

    fn op(&mut self, seq: u64) -> OpMessage {
        let now = self.guest_now();
        let ack = Ack {
            seq: Seq(seq),
            start: self.next_event(),
            done: self.next_event(),
            end: self.next_event(),
            start_ns: now,
            done_ns: now,
            end_ns: now,
            digest: [seq as u8; 8],
        };
        let intent = Some(Intent { seq: Seq(seq + 1), location: seq * u64::from(BLOCK) });
        OpMessage { stream: STREAM, event: self.next_event(), ack: Some(ack), intent }
    }

    fn send(&self, message: &Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.recorder.message(&frame).expect("recorded");
    }
}

/// Records these parts.
fn trace(parts: &[Part]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    let started = lab_now();
    let disk_bytes = 16 * u64::from(BLOCK);
    let header =
        TraceHeader { run: RunId([3; 16]), disk_bytes, realtime_ns: 0, monotonic: started };
    let recorder = Recorder::create(&path, &header).expect("a trace");
    let mut lab = Lab { recorder, started: started.0, event: 0 };
    parts.iter().for_each(|part| lab.record(*part));
    lab.recorder.sync().expect("written");
    (folder, path)
}

fn read_at(path: &Path) -> Result<Recording, EvidenceError> {
    read(path, &[STREAM], CrashModel::DropUnflushed, SettledBy::Commit)
}

fn evidence(parts: &[Part]) -> Result<Recording, EvidenceError> {
    let (_folder, path) = trace(parts);
    read_at(&path)
}

/// Asserts that these parts are no evidence, with this verdict and these words.
#[track_caller]
fn refused(parts: &[Part], verdict: Verdict, words: &str) {
    let error = evidence(parts).expect_err("no evidence");
    assert_eq!(error.verdict(), verdict, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

use Verdict::{HarnessBroken, NotMeasured};

#[test]
fn a_whole_trace_is_evidence_of_what_it_says() {
    let recording = evidence(&good()).expect("evidence");
    let evidence = recording.at_its_cut().expect("evidence");
    let stream = &evidence.history.streams[&STREAM];
    assert_eq!((stream.newest_acked(), stream.announced), (Seq(5), Some(Seq(6))));
    assert_eq!((stream.late_acks, evidence.history.late), (1, 1));
    let commits: Vec<u64> = evidence.commits.iter().map(|commit| commit.txg.0).collect();
    assert_eq!((commits, evidence.written), (vec![10, 11], Some(Txg(11))));
    assert!(recording.begin < evidence.commits[1].durable);
    assert!(evidence.commits[1].durable < evidence.cut);
}

/// An earlier cut sees what had happened by then and nothing else: the flush that made group 11
/// durable is answered in the entry that the cut is placed at.
#[test]
fn an_earlier_cut_of_the_same_trace_sees_only_what_came_before_it() {
    let recording = evidence(&good()).expect("evidence");
    let replies = recording.log.requests.iter().filter_map(|request| request.reply());
    let last = replies.max_by_key(|reply| reply.entry).expect("a reply");
    let earlier = recording.at(last.entry, last.at).expect("evidence");
    let stream = &earlier.history.streams[&STREAM];
    assert_eq!((stream.newest_acked(), stream.late_acks), (Seq(3), 3));
    let commits: Vec<u64> = earlier.commits.iter().map(|commit| commit.txg.0).collect();
    assert_eq!((commits, earlier.written), (vec![10], Some(Txg(11))));
}

#[test]
fn a_trace_that_lacks_its_cut_or_a_mark_is_not_measured() {
    refused(&without(Cut), NotMeasured, "holds no cut");
    refused(&without(Mark(LOAD_BEGINS)), NotMeasured, LOAD_BEGINS);
    refused(&without(Mark(SET_UP_WRITTEN)), NotMeasured, SET_UP_WRITTEN);
    let mut late = without(Mark(LOAD_BEGINS));
    late.push(Mark(LOAD_BEGINS));
    refused(&late, NotMeasured, "before the cut");
}

#[test]
fn a_set_up_that_was_not_durable_when_the_load_began_is_not_measured() {
    refused(&without(Synced(10)), NotMeasured, "the set-up's last write");
    let unflushed: Vec<Part> = good()
        .into_iter()
        .map(|part| if part == Synced(10) { Unflushed(10) } else { part })
        .collect();
    refused(&unflushed, NotMeasured, "the set-up's last write");
    // The commit comes in time, but its group was closed before the set-up's last write.
    let mut older = without(Birth(11));
    older.insert(1, Birth(11));
    older.insert(2, Sample { step_ns: 0 });
    refused(&older, NotMeasured, "the set-up's last write");
    refused(&without(Birth(11)), NotMeasured, "the set-up's last write");
}

#[test]
fn a_plain_file_system_is_settled_by_a_flush_between_the_marks_and_by_nothing_else() {
    let plain = |parts: &[Part]| {
        let (_folder, path) = trace(parts);
        read(&path, &[STREAM], CrashModel::DropUnflushed, SettledBy::Flush)
    };
    let evidence = plain(&good()).expect("evidence");
    let evidence = evidence.at_its_cut().expect("evidence");
    assert_eq!((evidence.commits.len(), evidence.written), (0, None), "it has no commits");
    let only = |part: Option<Part>| {
        let parts = good().into_iter().filter(|other| *other != Synced(10));
        let mut parts: Vec<Part> = parts.collect();
        parts.splice(0..0, part);
        parts
    };
    let between: Vec<Part> =
        good().into_iter().map(|p| if p == Synced(10) { Unflushed(10) } else { p }).collect();
    for parts in [only(None), only(Some(Synced(10))), between] {
        let error = plain(&parts).expect_err("no evidence");
        assert_eq!(error.verdict(), NotMeasured);
        assert!(error.to_string().contains("no flush stands behind the set-up"), "{error}");
    }
}

#[test]
fn a_lost_ack_is_not_measured_and_a_lost_last_one_promises_nothing() {
    refused(&without(Acked(3)), NotMeasured, "the ack of operation 3 is missing");
    refused(&without(Acked(1)), NotMeasured, "the ack of operation 1 is missing");
    let shorter = evidence(&without(Acked(5))).expect("evidence");
    let shorter = shorter.at_its_cut().expect("evidence");
    assert_eq!(shorter.history.streams[&STREAM].newest_acked(), Seq(4));
}

#[test]
fn a_message_that_comes_twice_is_a_broken_harness() {
    let (_folder, path) = trace(&good());
    let bytes = fs::read(&path).expect("read");
    for (from, to) in messages(&path) {
        // The very entry again at the end, before the cut, and behind it.
        for at in [cut_at(&path), bytes.len()] {
            let doubled = [&bytes[..at], &bytes[from..to], &bytes[at..]].concat();
            fs::write(&path, doubled).expect("written");
            let error = read_at(&path).expect_err("no evidence");
            assert_eq!(error.verdict(), HarnessBroken, "{error}");
            assert!(error.to_string().contains("given out twice"), "{error}");
        }
        fs::write(&path, &bytes).expect("written");
    }
    refused(&with(Acked(3), Acked(3)), HarnessBroken, "acknowledged twice");
}

#[test]
fn clocks_that_contradict_each_other_are_a_broken_harness_and_none_is_not_measured() {
    let stepped = with(Sample { step_ns: 50_000_000 }, Acked(3));
    refused(&stepped, HarnessBroken, "contradict each other");
    refused(&without(Sample { step_ns: 0 }), NotMeasured, "no clock sample");
}

#[test]
fn bytes_that_are_no_message_and_a_stream_that_is_not_planned_are_a_broken_harness() {
    refused(&with(Noise, Acked(2)), HarnessBroken, "no frame starts");
    let (_folder, path) = trace(&good());
    let error = read(&path, &[StreamId(9)], CrashModel::DropUnflushed, SettledBy::Commit)
        .expect_err("no evidence");
    assert_eq!(error.verdict(), HarnessBroken, "{error}");
}

/// Where each entry starts and ends, and whether it is a message, and whether it is the cut.
fn entries(path: &Path) -> Vec<(usize, usize, bool, bool)> {
    let mut reader = TraceReader::open(path).expect("a trace");
    let mut starts: Vec<(usize, bool, bool)> = Vec::new();
    while let Some((at, entry)) = reader.next_entry().expect("reads") {
        let start = at.payload_at as usize - crate::trace::ENTRY_HEAD_BYTES;
        let (message, cut) = (matches!(entry, Entry::Message(_)), matches!(entry, Entry::Cut(_)));
        starts.push((start, message, cut));
    }
    let bytes = fs::metadata(path).expect("a file").len() as usize;
    let ends = starts.iter().skip(1).map(|(start, ..)| *start).chain([bytes]);
    starts.iter().zip(ends).map(|((start, m, c), end)| (*start, end, *m, *c)).collect()
}

fn messages(path: &Path) -> Vec<(usize, usize)> {
    let all = entries(path).into_iter();
    all.filter(|entry| entry.2).map(|(start, end, ..)| (start, end)).collect()
}

/// The byte at which the cut's entry starts.
fn cut_at(path: &Path) -> usize {
    entries(path).into_iter().find(|entry| entry.3).expect("a cut").0
}

/// A good trace's bytes, where its entries end, and when it was cut.
struct Sound {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    cut_ends: usize,
    cut: LabNs,
}

fn sound() -> &'static Sound {
    static SOUND: OnceLock<Sound> = OnceLock::new();
    SOUND.get_or_init(|| {
        let (_folder, path) = trace(&good());
        let all = entries(&path);
        Sound {
            bytes: fs::read(&path).expect("read"),
            ends: all.iter().map(|entry| entry.1).collect(),
            cut_ends: all.iter().find(|entry| entry.3).expect("a cut").1,
            cut: read_at(&path).expect("evidence").cut,
        }
    })
}

fn read_bytes(bytes: &[u8]) -> Result<Recording, EvidenceError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    fs::write(&path, bytes).expect("written");
    read_at(&path)
}

#[test]
fn a_trace_cut_short_anywhere_is_not_measured_unless_it_ends_behind_its_cut() {
    let sound = sound();
    // Whole payloads need not be tried byte by byte.
    for length in (0..sound.bytes.len()).filter(|n| n % 7 == 0 || sound.ends.contains(n)) {
        match read_bytes(&sound.bytes[..length]) {
            Ok(evidence) => {
                assert!(length >= sound.cut_ends && sound.ends.contains(&length), "{length}");
                assert_eq!(evidence.cut, sound.cut);
            }
            Err(error) => assert_eq!(error.verdict(), NotMeasured, "{length}: {error}"),
        }
    }
    let behind = read_bytes(&sound.bytes[..sound.cut_ends]).expect("control: the cut is there");
    assert_eq!(
        behind.at_its_cut().expect("evidence").history.streams[&STREAM].newest_acked(),
        Seq(5)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_flipped_bit_is_never_evidence(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = sound().bytes.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let error = read_bytes(&bytes).expect_err("no evidence");
        prop_assert_eq!(error.verdict(), NotMeasured, "byte {}: {}", at, error);
    }

    #[test]
    fn an_entry_gone_or_repeated_never_lets_more_pass(
        which in any::<prop::sample::Index>(), repeated: bool,
    ) {
        let sound = sound();
        let which = which.index(sound.ends.len());
        let start = if which == 0 { crate::trace::HEADER_BYTES } else { sound.ends[which - 1] };
        let (before, rest) = sound.bytes.split_at(start);
        let (entry, behind) = rest.split_at(sound.ends[which] - start);
        let bytes = match repeated {
            true => [before, entry, entry, behind].concat(),
            false => [before, behind].concat(),
        };
        if let Ok(evidence) = read_bytes(&bytes) {
            let acked = evidence.at_its_cut().expect("evidence").history.streams[&STREAM].newest_acked();
            prop_assert!(acked <= Seq(5));
            prop_assert_eq!(evidence.cut, sound.cut);
        }
    }
}
