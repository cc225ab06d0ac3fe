//! One stream: records written one after another, each made durable and acknowledged.
//!
//! What always holds: an operation's start event is taken before its first call and its end event
//! after the last returned, and its stamps lie between the two; an ack is sent only after the call
//! that makes the operation durable returned (but for the planted fault); and after a failed call a
//! stream acknowledges nothing more, because a second fsync may say "done" of pages that the kernel
//! has given up.

use crate::agent::protocol::StreamRate;
use crate::history::message::{Ack, Intent, Message, OpMessage, StreamEvent, StreamNote};
use crate::record::layout::{self, Digest, Header, RECORD_BYTES, RecordBytes};
use crate::record::ring::Ring;
use crate::units::{EventNo, GuestNs, Seq};
use crate::workload::clock::{self, Events};
use crate::workload::outbox::{Outbox, Port};
use crate::workload::pace::{Pace, interval_ns};
use crate::workload::plan::{Plan, StreamPlan, WriterFault};
use crate::workload::stream::Stream;
use crate::workload::target::Target;
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

/// One stream at work.
#[derive(Debug)]
pub struct Writer<T> {
    shared: Arc<Shared>,
    stream: StreamPlan,
    target: T,
    record: Box<RecordBytes>,
    /// The next operation.
    next: Seq,
    /// Digest of the record before it.
    previous: Digest,
    outbox: Outbox,
    acked: u64,
    first_ns: Option<GuestNs>,
    last_ns: GuestNs,
}

/// An operation whose write returned and whose durability call did not.
#[derive(Debug, Clone, Copy)]
struct Written {
    seq: Seq,
    start: EventNo,
    done: EventNo,
    start_ns: GuestNs,
    done_ns: GuestNs,
    digest: Digest,
}

impl<T: Target> Writer<T> {
    /// A stream of the shared plan that has written nothing yet.
    pub fn new(shared: Arc<Shared>, stream: StreamPlan, target: T) -> Writer<T> {
        let outbox = Outbox::new(shared.port.clone(), stream.batch);
        // Not zeros: a page that was only asked for could still be the kernel's shared zero page.
        let record = Box::new([0xff; RECORD_BYTES]);
        Writer {
            shared,
            stream,
            target,
            record,
            next: Seq(1),
            previous: Digest::default(),
            outbox,
            acked: 0,
            first_ns: None,
            last_ns: GuestNs(0),
        }
    }

    fn load(&mut self, stop: &AtomicBool) -> Result<(), Halt> {
        self.note(StreamEvent::Started).map_err(Halt::Port)?;
        let first = Some(self.intent(self.next));
        let announcement = self.message(None, first);
        self.outbox.post(&announcement).map_err(Halt::Port)?;
        self.outbox.flush().map_err(Halt::Port)?;
        let mut pace = self.pace();
        while !stop.load(Ordering::Relaxed) {
            if let Some(pace) = &mut pace {
                self.wait(pace, stop)?;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            self.operation()?;
        }
        Ok(())
    }

    /// The schedule of a paced stream. Streams are spread over one interval, so that they do not
    /// all write in the same instant.
    fn pace(&self) -> Option<Pace> {
        let hz = self.stream.pace_hz?;
        let streams = &self.shared.plan.streams;
        let rank = streams.iter().position(|other| other.id == self.stream.id).unwrap_or(0) as u64;
        let offset = interval_ns(hz) * rank / streams.len().max(1) as u64;
        Some(Pace::new(clock::steady_ns() + offset, hz))
    }

    fn wait(&mut self, pace: &mut Pace, stop: &AtomicBool) -> Result<(), Halt> {
        let now = clock::steady_ns();
        let due = pace.next_due(now);
        if due > now {
            self.outbox.flush().map_err(Halt::Port)?;
            clock::sleep_until(due, stop);
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<(), Halt> {
        let written = self.write().map_err(Halt::Call)?;
        match self.stream.fault {
            // The faults of a replaced file are its target's, those of a database its own.
            None
            | Some(
                WriterFault::RenameWithoutFsync
                | WriterFault::NoDirectoryFsync
                | WriterFault::NoSync,
            ) => {
                self.sync().map_err(Halt::Call)?;
                self.acknowledge(&written)
            }
            // The planted fault: the lab hears of it before it is durable, at once.
            Some(WriterFault::AckBeforeFsync) => {
                self.acknowledge(&written)?;
                self.outbox.flush().map_err(Halt::Port)?;
                self.sync().map_err(Halt::Call)
            }
            // The planted fault: a load with a hole in it.
            Some(WriterFault::Stall) => {
                self.sync().map_err(Halt::Call)?;
                self.acknowledge(&written)?;
                if self.acked.is_multiple_of(STALL_EVERY) {
                    self.outbox.flush().map_err(Halt::Port)?;
                    std::thread::sleep(STALL);
                }
                Ok(())
            }
        }
    }

    /// Makes the next record and writes it.
    fn write(&mut self) -> Result<Written, Errno> {
        let seq = self.next;
        let location = self.stream.location(self.shared.plan.seed, seq);
        let index = self.stream.body(&self.shared.plan, seq);
        // The ring has every body that the plan can name; without it there is nothing to write.
        let (body, body_digest) = self.shared.ring.get(index).ok_or(Errno::EINVAL)?;
        layout::put_body(&mut self.record, body);
        let start = self.shared.events.next();
        let start_ns = clock::stamp();
        let header = Header {
            run: self.shared.plan.run,
            stream: self.stream.id,
            start,
            seq,
            location,
            stamp: start_ns,
            previous: self.previous,
            body: index,
            body_digest,
        };
        let digest = layout::seal(&header, &mut self.record);
        write_once(&self.target, &self.record, location)?;
        let done_ns = clock::stamp();
        let done = self.shared.events.next();
        self.previous = digest;
        self.next = Seq(seq.0 + 1);
        Ok(Written { seq, start, done, start_ns, done_ns, digest })
    }

    fn sync(&self) -> Result<(), Errno> {
        self.target.sync().map_err(|error| errno_of(&error))
    }

    /// Ends an operation and announces the next, in one message.
    fn acknowledge(&mut self, written: &Written) -> Result<(), Halt> {
        let ack = self.ack(written);
        let next = Some(self.intent(self.next));
        let message = self.message(Some(ack), next);
        self.outbox.post(&message).map_err(Halt::Port)
    }

    fn ack(&mut self, written: &Written) -> Ack {
        let end_ns = clock::stamp();
        let end = self.shared.events.next();
        self.acked += 1;
        self.first_ns.get_or_insert(written.start_ns);
        self.last_ns = end_ns;
        let &Written { seq, start, done, start_ns, done_ns, digest } = written;
        Ack { seq, start, done, end, start_ns, done_ns, end_ns, digest: digest.short() }
    }

    fn intent(&self, seq: Seq) -> Intent {
        Intent { seq, location: self.stream.location(self.shared.plan.seed, seq) }
    }

    fn message(&self, ack: Option<Ack>, intent: Option<Intent>) -> Message {
        let event = self.shared.events.next();
        Message::Op(OpMessage { stream: self.stream.id, event, ack, intent })
    }

    /// Tells the lab what became of the stream, behind all that was held back.
    fn note(&mut self, what: StreamEvent) -> io::Result<()> {
        let (event, at) = (self.shared.events.next(), clock::stamp());
        let note = StreamNote { stream: self.stream.id, event, at, what };
        self.outbox.post(&Message::Stream(note))?;
        self.outbox.flush()
    }
}

impl<T: Target + Send + std::fmt::Debug> Stream for Writer<T> {
    fn plan(&self) -> &StreamPlan {
        &self.stream
    }

    /// One sync, which comes before all their acks.
    fn fill(&mut self) -> Result<(), Halt> {
        let fill = self.stream.fill();
        let mut outbox = Outbox::new(self.shared.port.clone(), FILL_BATCH);
        for seq in (1..=fill).map(Seq) {
            let intent = Some(self.intent(seq));
            outbox.post(&self.message(None, intent)).map_err(Halt::Port)?;
        }
        outbox.flush().map_err(Halt::Port)?;
        let written: Vec<Written> =
            (1..=fill).map(|_| self.write()).collect::<Result<_, _>>().map_err(Halt::Call)?;
        self.sync().map_err(Halt::Call)?;
        for written in &written {
            let ack = self.ack(written);
            outbox.post(&self.message(Some(ack), None)).map_err(Halt::Port)?;
        }
        outbox.flush().map_err(Halt::Port)
    }

    fn run(mut self: Box<Self>, stop: &AtomicBool) -> io::Result<StreamRate> {
        (self.acked, self.first_ns) = (0, None);
        let end = match self.load(stop) {
            Ok(()) => StreamEvent::Ended,
            Err(Halt::Call(errno)) => StreamEvent::Failed(errno as i32),
            Err(Halt::Port(error)) => return Err(error),
        };
        self.note(end)?;
        let first = self.first_ns.unwrap_or(self.last_ns);
        let elapsed_ns = self.last_ns.0.saturating_sub(first.0);
        Ok(StreamRate { acked: self.acked, elapsed_ns })
    }
}

/// One pwrite. A short one is an error: its rest would be a second transaction, and a record that
/// was torn there would be blamed on the file system.
fn write_once(target: &impl Target, record: &RecordBytes, location: u64) -> Result<(), Errno> {
    loop {
        match target.write_at(record, location) {
            Ok(RECORD_BYTES) => return Ok(()),
            Ok(_) => return Err(Errno::EIO),
            // Nothing was written yet.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno_of(&error)),
        }
    }
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests;
