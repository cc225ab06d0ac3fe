//! A workload from its plan to its observation, in an ordinary process and a folder of its own.

use plugpull::agent::load::Load;
use plugpull::agent::protocol::{Reply, Request};
use plugpull::history::message::{Ack, Frames, Message, StreamEvent};
use plugpull::record::classify::{self, SectorSeen, Seen};
use plugpull::record::observed::{ObservedBlock, ObservedFile, Summary};
use plugpull::record::place::Place;
use plugpull::record::wire::Decoder;
use plugpull::units::{RunId, Seq, StreamId};
use plugpull::workload::plan::{Pattern, Plan, StreamPlan};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

struct Rig {
    _folder: TempDir,
    messages: File,
    load: Load,
    plan: Plan,
}

fn plan(folder: &Path) -> Plan {
    let stream = |id: u16, pattern, pace_hz, batch| StreamPlan {
        id: StreamId(id),
        dataset: "customer".into(),
        path: folder.join(format!("stream-{id}")).display().to_string(),
        pattern,
        pace_hz,
        batch,
        fault: None,
    };
    Plan {
        run: RunId(*b"test-of-workload"),
        seed: 20,
        bodies: 64,
        streams: vec![
            stream(1, Pattern::Append, None, 1),
            stream(2, Pattern::Overwrite { slots: 32 }, None, 16),
            stream(3, Pattern::Append, Some(200), 8),
        ],
    }
}

fn rig() -> Rig {
    let folder = tempfile::tempdir().expect("a folder");
    let messages = tempfile::tempfile().expect("a file");
    let load = Load::without_locked_memory(messages.try_clone().expect("a second handle"));
    let plan = plan(folder.path());
    Rig { _folder: folder, messages, load, plan }
}

impl Rig {
    fn ask(&mut self, request: Request) -> Result<Reply, String> {
        self.load.handle(request, &mut |_| panic!("only an observation has blobs"))
    }

    fn run_for(&mut self, time: Duration) -> Vec<u64> {
        self.ask(Request::Prepare(self.plan.clone())).expect("prepared");
        self.ask(Request::StartLoad).expect("started");
        thread::sleep(time);
        match self.ask(Request::StopLoad) {
            Ok(Reply::Rates(rates)) => rates.iter().map(|rate| rate.acked).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn messages(&self) -> Vec<Message> {
        let mut bytes = vec![0; self.messages.metadata().expect("a file").len() as usize];
        self.messages.read_exact_at(&mut bytes, 0).expect("its bytes");
        let mut frames = Frames::default();
        frames.feed(&bytes);
        let next = || frames.next_frame().expect("whole frames").map(|(_, message)| message);
        std::iter::from_fn(next).collect()
    }

    fn acks(&self, stream: StreamId) -> Vec<Ack> {
        let ack = |message| match message {
            Message::Op(op) if op.stream == stream => op.ack,
            _ => None,
        };
        self.messages().into_iter().filter_map(ack).collect()
    }

    /// Observes from a load that knows nothing, as the restored guest's.
    fn observe(&self) -> Vec<ObservedFile> {
        let mut load = Load::without_locked_memory(tempfile::tempfile().expect("a file"));
        let (mut decoder, mut files) = (Decoder::default(), Vec::new());
        let mut blob = |part: &[u8]| {
            files.extend(decoder.part(part).expect("a part"));
            Ok(())
        };
        let reply = load.handle(Request::Observe(self.plan.clone()), &mut blob);
        assert!(matches!(reply, Ok(Reply::Done)), "{reply:?}");
        files
    }

    fn file(&self, stream: usize) -> File {
        let path = &self.plan.streams[stream].path;
        File::options().read(true).write(true).open(path).expect("the stream's file")
    }
}

fn records(file: &ObservedFile) -> Vec<Summary> {
    let record = |block: &ObservedBlock| match block {
        ObservedBlock::Record(summary) => *summary,
        other => panic!("not a record: {other:?}"),
    };
    file.blocks.iter().map(record).collect()
}

#[test]
fn what_was_acknowledged_is_what_is_read_back() {
    let mut rig = rig();
    let acked = rig.run_for(Duration::from_millis(300));
    assert!(acked.iter().all(|&acked| acked > 10), "{acked:?}");
    let observed = rig.observe();
    assert_eq!(observed.iter().map(|file| file.stream.0).collect::<Vec<_>>(), [1, 2, 3]);
    for (file, stream) in observed.iter().zip(&rig.plan.streams) {
        let acks = rig.acks(stream.id);
        assert!(acks.windows(2).all(|pair| pair[1].seq.0 == pair[0].seq.0 + 1));
        // The last operation of each place is what the file must hold.
        let mut newest = BTreeMap::new();
        for ack in &acks {
            newest.insert(stream.location(rig.plan.seed, ack.seq), *ack);
        }
        let found = records(file);
        assert_eq!(found.len(), newest.len());
        for (ack, record) in newest.values().zip(found) {
            assert_eq!((record.seq, record.start), (ack.seq, ack.start));
            assert_eq!((record.stamp, record.digest), (ack.start_ns, ack.digest));
            let before = ack.seq.0.checked_sub(2).map(|at| acks[at as usize].digest);
            assert_eq!(record.previous, before.unwrap_or_default());
        }
    }
}

#[test]
fn every_event_number_is_taken_once_and_every_stream_tells_its_start_and_end() {
    let mut rig = rig();
    rig.run_for(Duration::from_millis(100));
    let mut events = Vec::new();
    let mut notes = Vec::new();
    for message in rig.messages() {
        match message {
            Message::Op(op) => {
                events.push(op.event);
                events.extend(op.ack.iter().flat_map(|ack| [ack.start, ack.done, ack.end]));
            }
            Message::Stream(note) => {
                events.push(note.event);
                notes.push((note.stream.0, note.what));
            }
            Message::Txg(row) => events.push(row.event),
        }
    }
    let total = events.len();
    events.sort();
    events.dedup();
    assert_eq!(events.len(), total);
    notes.sort_by_key(|note| note.0);
    let both = [StreamEvent::Started, StreamEvent::Ended];
    let expected: Vec<_> = (1..=3).flat_map(|id| both.map(|what| (id, what))).collect();
    assert_eq!(notes, expected);
}

#[test]
fn a_paced_stream_never_exceeds_its_rate() {
    let mut rig = rig();
    rig.plan.streams.retain(|stream| stream.id == StreamId(3));
    rig.run_for(Duration::from_millis(500));
    let acks = rig.acks(StreamId(3));
    let (first, last) = (acks[0].start_ns.0, acks[acks.len() - 1].start_ns.0);
    let slots = (last - first) / 5_000_000 + 2;
    assert!(acks.len() >= 3 && acks.len() as u64 <= slots, "{} in {slots} slots", acks.len());
}

#[test]
fn planted_damage_comes_back_raw_and_is_classed_as_what_it_is() {
    let mut rig = rig();
    rig.run_for(Duration::from_millis(200));
    let before = rig.observe();
    let first = records(&before[0]);
    let file = rig.file(0);
    let mut record = [0; 4096];
    file.read_exact_at(&mut record, 4096).expect("record 2");
    file.write_all_at(&[0; 4096], 0).expect("a hole");
    file.write_all_at(&record, 2 * 4096).expect("record 2 in the place of 3");
    file.write_all_at(&[0; 512], 3 * 4096 + 1024).expect("a zeroed sector");
    file.write_all_at(&[0x11; 4096], 4 * 4096).expect("garbage");

    let after = rig.observe();
    let blocks = &after[0].blocks;
    let class = |at: usize| match &blocks[at] {
        ObservedBlock::Odd(bytes) => {
            let stream = &rig.plan.streams[0];
            let place = Place { plan: &rig.plan, stream, location: at as u64 * 4096 };
            classify::classify(&place, bytes)
        }
        other => panic!("not odd: {other:?}"),
    };
    assert_eq!(blocks[0], ObservedBlock::Zeros);
    assert_eq!(blocks[1], ObservedBlock::Record(first[1]));
    let misdirected = Seen::Misdirected { stream: StreamId(1), seq: Seq(2), location: 4096 };
    assert_eq!(class(2), misdirected);
    let mut sectors = vec![SectorSeen::Of(Seq(4)); 8];
    sectors[2] = SectorSeen::Zeros;
    assert_eq!(class(3), Seen::Torn(sectors));
    assert_eq!(class(4), Seen::Garbage);
    assert_eq!(blocks[5..], before[0].blocks[5..]);
    assert_eq!(after[1..], before[1..]);
}

#[test]
fn requests_out_of_order_and_files_that_exist_are_refused_with_what_to_do() {
    let mut rig = rig();
    let refused = |outcome: Result<Reply, String>, words: &str| {
        let error = outcome.expect_err("refused");
        assert!(error.contains(words), "{error}");
    };
    refused(rig.ask(Request::StartLoad), "prepare first");
    refused(rig.ask(Request::StopLoad), "start one first");
    refused(rig.ask(Request::Clock), "not a request about the load");
    refused(rig.ask(Request::Prepare(Plan { bodies: 0, ..rig.plan.clone() })), "bodies");
    rig.ask(Request::Prepare(rig.plan.clone())).expect("prepared");
    refused(rig.ask(Request::Prepare(rig.plan.clone())), "the file must not");
    refused(rig.ask(Request::StartLoad), "prepare first");
}
