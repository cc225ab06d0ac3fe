//! A stream of rows in a folder of its own, run without a guest.

use crate::history::message::{Ack, Frames, Intent, Message, StreamEvent};
use crate::record::found::{Found, FoundDecoder};
use crate::record::ring::Ring;
use crate::record::rows::ObservedRows;
use crate::record::testing;
use crate::units::StreamId;
use crate::workload::outbox::Port;
use crate::workload::plan::{Pattern, Plan, WriterFault};
use crate::workload::reporter::Shared;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tempfile::TempDir;

/// One stream with what it may need.
pub struct Bench {
    pub shared: Arc<Shared>,
    messages: File,
    pub folder: TempDir,
}

impl Bench {
    /// Of this pattern, with this planted fault.
    pub fn new(pattern: Pattern, fault: Option<WriterFault>) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let mut plan = testing::plan();
        plan.streams.truncate(1);
        let stream = &mut plan.streams[0];
        stream.path = folder.path().join("stream-1").display().to_string();
        (stream.pattern, stream.fault, stream.pace_hz) = (pattern, fault, None);
        let messages = tempfile::tempfile().expect("a file");
        let port = Arc::new(Port::new(messages.try_clone().expect("a second handle")));
        let ring = Arc::new(Ring::make(plan.seed, 1));
        let shared = Arc::new(Shared { plan, ring, events: Arc::default(), port });
        Bench { shared, messages, folder }
    }

    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// What it said so far.
    pub fn said(&self) -> Vec<Message> {
        let mut bytes = vec![0; self.messages.metadata().expect("a file").len() as usize];
        self.messages.read_exact_at(&mut bytes, 0).expect("its bytes");
        let mut frames = Frames::default();
        frames.feed(&bytes);
        std::iter::from_fn(|| frames.next_frame().expect("whole frames").map(|(_, m)| m)).collect()
    }

    pub fn acks(&self) -> Vec<Ack> {
        let ack = |message: Message| match message {
            Message::Op(op) => op.ack,
            _ => None,
        };
        self.said().into_iter().filter_map(ack).collect()
    }

    pub fn intents(&self) -> Vec<Intent> {
        let intent = |message: Message| match message {
            Message::Op(op) => op.intent,
            _ => None,
        };
        self.said().into_iter().filter_map(intent).collect()
    }

    /// How it ended.
    pub fn end(&self) -> Option<StreamEvent> {
        match self.said().pop() {
            Some(Message::Stream(note)) => Some(note.what),
            _ => None,
        }
    }

    /// What is read back of it, by way of the lab's decoder.
    pub fn read_back(&self) -> ObservedRows {
        let plan = self.plan();
        let mut decoder = FoundDecoder::default();
        let mut sink = |part: &[u8]| {
            decoder.part(part).expect("a part");
            Ok(())
        };
        crate::agent::observe::observe(plan, &self.shared.ring, &mut sink).expect("read back");
        let Found { mut rows, .. } = decoder.finish(plan).expect("one for each stream");
        assert_eq!(rows[0].stream, StreamId(1));
        rows.remove(0)
    }
}
