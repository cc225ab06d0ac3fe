//! What a stream tells the lab, whatever its operations are.
//!
//! What always holds: an operation's start event is taken before its first call and its end event
//! after the last returned, and its stamps lie between the two; an ack is sent only when the caller
//! says that the operation is durable.

use crate::agent::protocol::StreamRate;
use crate::history::message::{Ack, Intent, Message, OpMessage, StreamEvent, StreamNote};
use crate::units::{EventNo, GuestNs, Seq};
use crate::workload::clock;
use crate::workload::outbox::Outbox;
use crate::workload::pace::{Pace, interval_ns};
use crate::workload::plan::StreamPlan;
use crate::workload::writer::Shared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One stream's way to the lab.
#[derive(Debug)]
pub struct Teller {
    shared: Arc<Shared>,
    stream: StreamPlan,
    outbox: Outbox,
    acked: u64,
    first_ns: Option<GuestNs>,
    last_ns: GuestNs,
}

/// An operation that begins.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    seq: Seq,
    start: EventNo,
    start_ns: GuestNs,
}

/// An operation whose effect can be seen.
#[derive(Debug, Clone, Copy)]
pub struct Returned {
    begun: Begun,
    done: EventNo,
    done_ns: GuestNs,
}

impl Teller {
    /// Of a stream of the shared plan that has said nothing yet.
    pub fn new(shared: Arc<Shared>, stream: StreamPlan) -> Teller {
        let outbox = Outbox::new(shared.port.clone(), stream.batch);
        Teller { shared, stream, outbox, acked: 0, first_ns: None, last_ns: GuestNs(0) }
    }

    /// The stream.
    pub fn stream(&self) -> &StreamPlan {
        &self.stream
    }

    /// Announces an operation by itself, at once.
    pub fn intent(&mut self, seq: Seq) -> io::Result<()> {
        self.send(None, Some(seq))?;
        self.outbox.flush()
    }

    /// Taken just before an operation's first call.
    pub fn begin(&self, seq: Seq) -> Begun {
        let start = self.shared.events.next();
        Begun { seq, start, start_ns: clock::stamp() }
    }

    /// Taken just after the call returned that makes it visible.
    pub fn returned(&self, begun: Begun) -> Returned {
        let done_ns = clock::stamp();
        Returned { begun, done: self.shared.events.next(), done_ns }
    }

    /// Ends an operation that is durable, and announces the next in the same message. Its digest is
    /// empty: what such an operation wrote follows from its sequence alone.
    pub fn ack(&mut self, returned: Returned, next: Option<Seq>) -> io::Result<()> {
        let end_ns = clock::stamp();
        let Returned { begun: Begun { seq, start, start_ns }, done, done_ns } = returned;
        let end = self.shared.events.next();
        self.acked += 1;
        self.first_ns.get_or_insert(start_ns);
        self.last_ns = end_ns;
        let ack = Ack { seq, start, done, end, start_ns, done_ns, end_ns, digest: [0; 8] };
        self.send(Some(ack), next)
    }

    fn send(&mut self, ack: Option<Ack>, next: Option<Seq>) -> io::Result<()> {
        let event = self.shared.events.next();
        let intent = next.map(|seq| Intent { seq, location: 0 });
        self.outbox.post(&Message::Op(OpMessage { stream: self.stream.id, event, ack, intent }))
    }

    /// Tells that the load begins, and announces its first operation.
    pub fn started(&mut self, first: Option<Seq>) -> io::Result<()> {
        (self.acked, self.first_ns) = (0, None);
        self.note(StreamEvent::Started)?;
        first.map_or(Ok(()), |seq| self.intent(seq))
    }

    /// Tells what became of the stream, behind all that was held back.
    pub fn note(&mut self, what: StreamEvent) -> io::Result<()> {
        let (event, at) = (self.shared.events.next(), clock::stamp());
        let note = StreamNote { stream: self.stream.id, event, at, what };
        self.outbox.post(&Message::Stream(note))?;
        self.outbox.flush()
    }

    /// Sends what is held back.
    pub fn flush(&mut self) -> io::Result<()> {
        self.outbox.flush()
    }

    /// The schedule of a paced stream. Streams are spread over one interval, so that they do not
    /// all write in the same instant.
    pub fn pace(&self) -> Option<Pace> {
        let hz = self.stream.pace_hz?;
        let streams = &self.shared.plan.streams;
        let rank = streams.iter().position(|other| other.id == self.stream.id).unwrap_or(0) as u64;
        let offset = interval_ns(hz) * rank / streams.len().max(1) as u64;
        Some(Pace::new(clock::steady_ns() + offset, hz))
    }

    /// Waits until the next operation is due, or until told to stop. Nothing is held back meanwhile.
    pub fn wait(&mut self, pace: &mut Pace, stop: &AtomicBool) -> io::Result<()> {
        let now = clock::steady_ns();
        let due = pace.next_due(now);
        if due > now {
            self.outbox.flush()?;
            clock::sleep_until(due, stop);
        }
        Ok(())
    }

    /// What was acknowledged since the load began.
    pub fn rate(&self) -> StreamRate {
        let first = self.first_ns.unwrap_or(self.last_ns);
        StreamRate { acked: self.acked, elapsed_ns: self.last_ns.0.saturating_sub(first.0) }
    }
}

/// Words that only the guest's console can keep: a message has room for an errno. In a process that
/// is no guest's there is none.
pub fn tell_console(stream: &StreamPlan, words: &str) {
    if std::process::id() == 1 {
        eprintln!("plugpull agent: stream {}: {words}", stream.id);
    }
}
