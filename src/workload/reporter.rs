//! What every stream of ours tells the lab: intents, acks, how it began and ended; and its pace.
//!
//! What always holds: an ack's end event and stamp are taken when it is made, after the operation's
//! last call; every message has an event number of its own; nothing is sent after a message that
//! failed.

use crate::agent::protocol::StreamRate;
use crate::history::message::{Ack, Intent, Message, OpMessage, StreamEvent, StreamNote};
use crate::record::ring::Ring;
use crate::units::{EventNo, GuestNs, Seq};
use crate::workload::clock::{self, Events};
use crate::workload::outbox::{Outbox, Port};
use crate::workload::pace::{Pace, interval_ns};
use crate::workload::plan::{Plan, StreamPlan};
use nix::errno::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Messages of the set-up that go in one write.
const FILL_BATCH: u32 = 256;

/// A planted stall comes after so many operations of the load.
const STALL_EVERY: u64 = 150;
/// How long it lasts.
const STALL: Duration = Duration::from_secs(1);

/// What the streams of a load share.
#[derive(Debug)]
pub struct Shared {
    /// The workload.
    pub plan: Plan,
    /// Its bodies.
    pub ring: Arc<Ring>,
    /// The event counter.
    pub events: Arc<Events>,
    /// Where messages go.
    pub port: Arc<Port>,
}

/// Why a stream stopped before it was told to.
#[derive(Debug)]
pub enum Halt {
    /// A call on its file failed; the lab was told.
    Call(Errno),
    /// The lab can no longer be told anything.
    Port(io::Error),
}

/// An operation whose first calls returned: visible, and not yet acknowledged.
#[derive(Debug, Clone, Copy)]
pub struct Carried {
    /// Which operation.
    pub seq: Seq,
    /// Taken before its first call.
    pub start: EventNo,
    /// Taken when what it did could be seen.
    pub done: EventNo,
    /// The clock with `start`.
    pub start_ns: GuestNs,
    /// The clock with `done`.
    pub done_ns: GuestNs,
    /// First 8 bytes of its record's digest; zeros for what is no record.
    pub digest: [u8; 8],
}

/// An operation that begins.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    seq: Seq,
    start: EventNo,
    start_ns: GuestNs,
}

/// One stream's side of the conversation.
#[derive(Debug)]
pub struct Reporter {
    shared: Arc<Shared>,
    stream: StreamPlan,
    outbox: Outbox,
    acked: u64,
    first_ns: Option<GuestNs>,
    last_ns: GuestNs,
}

impl Reporter {
    /// Of a stream of the shared plan that has said nothing yet.
    pub fn new(shared: Arc<Shared>, stream: StreamPlan) -> Reporter {
        let outbox = Outbox::new(shared.port.clone(), stream.batch);
        Reporter { shared, stream, outbox, acked: 0, first_ns: None, last_ns: GuestNs(0) }
    }

    /// What the streams share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The stream's plan.
    pub fn stream(&self) -> &StreamPlan {
        &self.stream
    }

    /// The next event number.
    pub fn event(&self) -> EventNo {
        self.shared.events.next()
    }

    /// Taken just before an operation's first call.
    pub fn begun(&self, seq: Seq) -> Begun {
        Begun { seq, start: self.event(), start_ns: clock::stamp() }
    }

    /// Taken just after the call returned that lets others see an operation that is no record.
    pub fn returned(&self, begun: Begun) -> Carried {
        let Begun { seq, start, start_ns } = begun;
        let done_ns = clock::stamp();
        Carried { seq, start, done: self.event(), start_ns, done_ns, digest: [0; 8] }
    }

    /// Announces an operation by itself.
    pub fn announce(&mut self, seq: Seq) -> Result<(), Halt> {
        let message = self.message(None, Some(Intent::without_place(seq)));
        self.outbox.post(&message).map_err(Halt::Port)
    }

    /// The set-up: all intents go first, then `carry` does everything and makes it durable, then all
    /// acks go.
    pub fn fill(
        &mut self,
        intents: impl Iterator<Item = Intent>,
        carry: impl FnOnce() -> Result<Vec<Carried>, Errno>,
    ) -> Result<(), Halt> {
        let mut outbox = Outbox::new(self.shared.port.clone(), FILL_BATCH);
        for intent in intents {
            outbox.post(&self.message(None, Some(intent))).map_err(Halt::Port)?;
        }
        outbox.flush().map_err(Halt::Port)?;
        for carried in &carry().map_err(Halt::Call)? {
            let ack = self.ack(carried);
            outbox.post(&self.message(Some(ack), None)).map_err(Halt::Port)?;
        }
        outbox.flush().map_err(Halt::Port)
    }

    /// The load begins, with this operation if there is one.
    pub fn begin(&mut self, first: Option<Intent>) -> Result<(), Halt> {
        (self.acked, self.first_ns) = (0, None);
        self.note(StreamEvent::Started).map_err(Halt::Port)?;
        if first.is_some() {
            let announcement = self.message(None, first);
            self.outbox.post(&announcement).map_err(Halt::Port)?;
        }
        self.flush()
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

    /// Waits until the next operation is due; nothing is held back meanwhile. Whether to go on.
    pub fn go_on(&mut self, pace: &mut Option<Pace>, stop: &AtomicBool) -> Result<bool, Halt> {
        if let Some(pace) = pace.as_mut().filter(|_| !stop.load(Ordering::Relaxed)) {
            let now = clock::steady_ns();
            let due = pace.next_due(now);
            if due > now {
                self.flush()?;
                clock::sleep_until(due, stop);
            }
        }
        Ok(!stop.load(Ordering::Relaxed))
    }

    /// Ends an operation and announces the next, in one message. Returns the instant of the ack.
    pub fn acknowledge(
        &mut self,
        carried: &Carried,
        next: Option<Intent>,
    ) -> Result<GuestNs, Halt> {
        let ack = self.ack(carried);
        let message = self.message(Some(ack), next);
        self.outbox.post(&message).map_err(Halt::Port)?;
        Ok(ack.end_ns)
    }

    /// Sends what is held back.
    pub fn flush(&mut self) -> Result<(), Halt> {
        self.outbox.flush().map_err(Halt::Port)
    }

    /// The planted stall, where it is due.
    pub fn stall(&mut self) -> Result<(), Halt> {
        if self.acked.is_multiple_of(STALL_EVERY) {
            self.flush()?;
            std::thread::sleep(STALL);
        }
        Ok(())
    }

    /// Tells the lab how the load ended, behind all that was held back. An error means that it could
    /// not be told.
    pub fn end(&mut self, load: Result<(), Halt>) -> io::Result<StreamRate> {
        let end = match load {
            Ok(()) => StreamEvent::Ended,
            Err(Halt::Call(errno)) => StreamEvent::Failed(errno as i32),
            Err(Halt::Port(error)) => return Err(error),
        };
        self.note(end)?;
        let first = self.first_ns.unwrap_or(self.last_ns);
        let elapsed_ns = self.last_ns.0.saturating_sub(first.0);
        Ok(StreamRate { acked: self.acked, elapsed_ns })
    }

    fn ack(&mut self, carried: &Carried) -> Ack {
        let end_ns = clock::stamp();
        let end = self.shared.events.next();
        self.acked += 1;
        self.first_ns.get_or_insert(carried.start_ns);
        self.last_ns = end_ns;
        let &Carried { seq, start, done, start_ns, done_ns, digest } = carried;
        Ack { seq, start, done, end, start_ns, done_ns, end_ns, digest }
    }

    fn message(&self, ack: Option<Ack>, intent: Option<Intent>) -> Message {
        let event = self.shared.events.next();
        Message::Op(OpMessage { stream: self.stream.id, event, ack, intent })
    }

    fn note(&mut self, what: StreamEvent) -> io::Result<()> {
        let (event, at) = (self.shared.events.next(), clock::stamp());
        let note = StreamNote { stream: self.stream.id, event, at, what };
        self.outbox.post(&Message::Stream(note))?;
        self.outbox.flush()
    }
}

/// Words that only the guest's console can keep: a message has room for an errno. In a process that
/// is no guest's there is none.
pub fn tell_console(stream: &StreamPlan, words: &str) {
    if std::process::id() == 1 {
        eprintln!("plugpull agent: stream {}: {words}", stream.id);
    }
}

/// The errno behind an error of the standard library.
pub fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
