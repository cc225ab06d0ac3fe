//! What a stream says against what its target saw.

use super::*;
use crate::history::message::{Ack, Frames, Message, StreamEvent};
use crate::record::ring::Ring;
use crate::record::testing::plan;
use crate::workload::outbox::Port;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// A target in memory that fails or falls short at a given write or sync, and remembers how many
/// bytes of messages had gone when each sync came.
#[derive(Debug, Default)]
struct Script {
    short_write: Option<usize>,
    failed_write: Option<usize>,
    failed_sync: Option<usize>,
    stop_after: usize,
}

#[derive(Debug)]
struct Fake {
    script: Script,
    messages: File,
    stop: Arc<AtomicBool>,
    writes: Mutex<Vec<(u64, Box<[u8]>)>>,
    acks_at_sync: Arc<Mutex<Vec<usize>>>,
}

impl Target for Fake {
    fn write_at(&self, bytes: &[u8], location: u64) -> io::Result<usize> {
        let mut writes = self.writes.lock().expect("no panic");
        writes.push((location, bytes.into()));
        if self.script.failed_write == Some(writes.len()) {
            return Err(Errno::ENOSPC.into());
        }
        let is_short = self.script.short_write == Some(writes.len());
        Ok(if is_short { 512 } else { bytes.len() })
    }

    fn sync(&self) -> io::Result<()> {
        let mut syncs = self.acks_at_sync.lock().expect("no panic");
        syncs.push(acks(&messages(&self.messages)).len());
        if syncs.len() >= self.script.stop_after {
            self.stop.store(true, Ordering::Relaxed);
        }
        if self.script.failed_sync == Some(syncs.len()) {
            return Err(Errno::EIO.into());
        }
        Ok(())
    }
}

struct Outcome {
    rate: StreamRate,
    messages: Vec<Message>,
    acks_at_sync: Vec<usize>,
}

fn messages(file: &File) -> Vec<Message> {
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    let mut frames = Frames::default();
    frames.feed(&bytes);
    std::iter::from_fn(|| frames.next_frame().expect("whole frames").map(|(_, m)| m)).collect()
}

fn acks(messages: &[Message]) -> Vec<Ack> {
    let ack = |message: &Message| match message {
        Message::Op(op) => op.ack,
        _ => None,
    };
    messages.iter().filter_map(ack).collect()
}

fn intents(messages: &[Message]) -> Vec<Intent> {
    let intent = |message: &Message| match message {
        Message::Op(op) => op.intent,
        _ => None,
    };
    messages.iter().filter_map(intent).collect()
}

fn run(change: impl FnOnce(&mut StreamPlan), script: Script) -> Outcome {
    let mut plan = plan();
    let mut stream = plan.streams[0].clone();
    change(&mut stream);
    plan.streams = vec![stream.clone()];
    let messages_file = tempfile::tempfile().expect("a file");
    let port = Arc::new(Port::new(messages_file.try_clone().expect("a second handle")));
    let ring = Arc::new(Ring::make(plan.seed, plan.bodies));
    let shared = Arc::new(Shared { plan, ring, events: Arc::default(), port });
    let (stop, acks_at_sync) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let target = Fake {
        script,
        messages: messages_file.try_clone().expect("a second handle"),
        stop: stop.clone(),
        writes: Mutex::default(),
        acks_at_sync: Arc::clone(&acks_at_sync),
    };
    let mut writer = Writer::new(shared, stream, target);
    if writer.records.stream.fill() > 0 {
        writer.fill().expect("a fake takes all");
    }
    let rate = Box::new(writer).run(&stop).expect("a file takes all messages");
    let acks_at_sync = acks_at_sync.lock().expect("no panic").clone();
    Outcome { rate, messages: messages(&messages_file), acks_at_sync }
}

fn ten() -> Script {
    Script { stop_after: 10, ..Script::default() }
}

fn last_note(outcome: &Outcome) -> Option<StreamEvent> {
    match outcome.messages.last() {
        Some(Message::Stream(note)) => Some(note.what),
        _ => None,
    }
}

#[test]
fn each_operation_is_announced_then_acknowledged_after_its_sync() {
    let outcome = run(|_| (), ten());
    assert_eq!(outcome.acks_at_sync, (0..10).collect::<Vec<_>>());
    assert_eq!(outcome.rate.acked, 10);
    let seqs: Vec<u64> = acks(&outcome.messages).iter().map(|ack| ack.seq.0).collect();
    assert_eq!(seqs, (1..=10).collect::<Vec<_>>());
    let announced: Vec<u64> =
        intents(&outcome.messages).iter().map(|intent| intent.seq.0).collect();
    assert_eq!(announced, (1..=11).collect::<Vec<_>>());
    assert_eq!(last_note(&outcome), Some(StreamEvent::Ended));
}

#[test]
fn stamps_lie_between_events_so_order_by_events_is_order_in_time() {
    let outcome = run(|_| (), ten());
    let acks = acks(&outcome.messages);
    for ack in &acks {
        assert!(ack.start < ack.done && ack.done < ack.end);
        assert!(ack.start_ns <= ack.done_ns && ack.done_ns <= ack.end_ns);
    }
    for pair in acks.windows(2) {
        assert!(pair[0].end < pair[1].start && pair[0].end_ns <= pair[1].start_ns);
    }
}

#[test]
fn the_planted_fault_acknowledges_before_the_sync() {
    let outcome = run(|stream| stream.fault = Some(WriterFault::AckBeforeFsync), ten());
    assert_eq!(outcome.acks_at_sync, (1..=10).collect::<Vec<_>>());
    let held = |stream: &mut StreamPlan| {
        (stream.batch, stream.fault) = (100, Some(WriterFault::AckBeforeFsync));
    };
    assert_eq!(run(held, ten()).acks_at_sync, (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_batch_is_held_back_and_nothing_of_it_is_lost() {
    let outcome = run(|stream| stream.batch = 4, ten());
    assert_eq!(outcome.acks_at_sync, [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]);
    assert_eq!(acks(&outcome.messages).len(), 10);
}

#[test]
fn a_paced_stream_holds_nothing_back_while_it_sleeps() {
    let outcome = run(|stream| (stream.batch, stream.pace_hz) = (100, Some(200)), ten());
    // An operation that was late does not sleep first, so not every ack need have gone.
    assert!(outcome.acks_at_sync[9] > 0, "{:?}", outcome.acks_at_sync);
    assert!(outcome.rate.elapsed_ns >= 40_000_000, "{:?}", outcome.rate);
}

#[test]
fn after_a_failed_call_a_stream_acknowledges_nothing_more() {
    let cases = [
        (Script { failed_sync: Some(3), ..ten() }, Errno::EIO),
        (Script { failed_write: Some(3), ..ten() }, Errno::ENOSPC),
        (Script { short_write: Some(3), ..ten() }, Errno::EIO),
    ];
    for (script, errno) in cases {
        let outcome = run(|stream| stream.batch = 8, script);
        assert_eq!(acks(&outcome.messages).len(), 2);
        assert_eq!(last_note(&outcome), Some(StreamEvent::Failed(errno as i32)));
        assert_eq!(outcome.rate.acked, 2);
    }
}

#[test]
fn the_fill_is_acknowledged_only_after_its_one_sync() {
    let outcome = run(|stream| *stream = plan().streams[1].clone(), ten());
    assert_eq!(outcome.acks_at_sync[..3], [0, 8, 9]);
    let acks = acks(&outcome.messages);
    assert_eq!(acks.iter().map(|ack| ack.seq.0).collect::<Vec<_>>(), (1..=17).collect::<Vec<_>>());
    assert_eq!(outcome.rate.acked, 9, "the fill is not part of the load's rate");
    let intents = intents(&outcome.messages);
    assert_eq!(intents.len(), 18);
    assert!(intents[..8].iter().all(|intent| intent.location == (intent.seq.0 - 1) * 4096));
    assert_eq!(acks[0].seq, Seq(1));
    let first =
        outcome.messages.iter().position(|m| matches!(m, Message::Op(op) if op.ack.is_some()));
    assert_eq!(first, Some(8), "every intent of the fill went before its first write");
}
