//! One stream: records written one after another, each made durable and acknowledged.
//!
//! What always holds: an operation's start event is taken before its first call and its end event
//! after the last returned, and its stamps lie between the two; an ack is sent only after the call
//! that makes the operation durable returned (but for the planted fault); and after a failed call a
//! stream acknowledges nothing more, because a second fsync may say "done" of pages that the kernel
//! has given up.

use crate::agent::protocol::StreamRate;
use crate::history::message::Intent;
use crate::record::layout::{self, Digest, Header, RECORD_BYTES, RecordBytes};
use crate::units::Seq;
use crate::workload::clock;
use crate::workload::plan::{StreamPlan, WriterFault};
use crate::workload::reporter::{Carried, Halt, Reporter, Shared, errno_of};
use crate::workload::stream::Stream;
use crate::workload::target::Target;
use nix::errno::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One stream at work.
#[derive(Debug)]
pub struct Writer<T> {
    reporter: Reporter,
    records: Records<T>,
}

/// Its records.
#[derive(Debug)]
struct Records<T> {
    shared: Arc<Shared>,
    stream: StreamPlan,
    target: T,
    record: Box<RecordBytes>,
    /// The next operation.
    next: Seq,
    /// Digest of the record before it.
    previous: Digest,
}

impl<T: Target> Writer<T> {
    /// A stream of the shared plan that has written nothing yet.
    pub fn new(shared: Arc<Shared>, stream: StreamPlan, target: T) -> Writer<T> {
        let reporter = Reporter::new(shared.clone(), stream.clone());
        // Not zeros: a page that was only asked for could still be the kernel's shared zero page.
        let record = Box::new([0xff; RECORD_BYTES]);
        let previous = Digest::default();
        let records = Records { shared, stream, target, record, next: Seq(1), previous };
        Writer { reporter, records }
    }

    fn load(&mut self, stop: &AtomicBool) -> Result<(), Halt> {
        self.reporter.begin(Some(self.records.intent(self.records.next)))?;
        let mut pace = self.reporter.pace();
        while self.reporter.go_on(&mut pace, stop)? {
            self.operation()?;
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<(), Halt> {
        let written = self.records.write().map_err(Halt::Call)?;
        match self.records.stream.fault {
            // The faults of a replaced file are its target's, those of a script or a database their own.
            None
            | Some(
                WriterFault::RenameWithoutFsync
                | WriterFault::NoDirectoryFsync
                | WriterFault::SkipSync
                | WriterFault::NoSync,
            ) => {
                self.records.sync().map_err(Halt::Call)?;
                self.acknowledge(&written)
            }
            // The planted fault: the lab hears of it before it is durable, at once.
            Some(WriterFault::AckBeforeFsync) => {
                self.acknowledge(&written)?;
                self.reporter.flush()?;
                self.records.sync().map_err(Halt::Call)
            }
            // The planted fault: a load with a hole in it.
            Some(WriterFault::Stall) => {
                self.records.sync().map_err(Halt::Call)?;
                self.acknowledge(&written)?;
                self.reporter.stall()
            }
        }
    }

    /// Ends an operation and announces the next, in one message.
    fn acknowledge(&mut self, written: &Carried) -> Result<(), Halt> {
        let next = self.records.intent(self.records.next);
        self.reporter.acknowledge(written, Some(next)).map(drop)
    }
}

impl<T: Target> Records<T> {
    /// Makes the next record and writes it.
    fn write(&mut self) -> Result<Carried, Errno> {
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
        Ok(Carried { seq, start, done, start_ns, done_ns, digest: digest.short() })
    }

    fn sync(&self) -> Result<(), Errno> {
        self.target.sync().map_err(|error| errno_of(&error))
    }

    fn intent(&self, seq: Seq) -> Intent {
        Intent { seq, location: self.stream.location(self.shared.plan.seed, seq) }
    }
}

impl<T: Target + Send + std::fmt::Debug> Stream for Writer<T> {
    fn plan(&self) -> &StreamPlan {
        &self.records.stream
    }

    /// One sync, which comes before all their acks.
    fn fill(&mut self) -> Result<(), Halt> {
        let fill = self.records.stream.fill();
        let (stream, seed) = (self.records.stream.clone(), self.records.shared.plan.seed);
        let intents = (1..=fill)
            .map(|seq| Intent { seq: Seq(seq), location: stream.location(seed, Seq(seq)) });
        let records = &mut self.records;
        self.reporter.fill(intents, || {
            let written = (1..=fill).map(|_| records.write()).collect::<Result<_, _>>()?;
            records.sync()?;
            Ok(written)
        })
    }

    fn run(mut self: Box<Self>, stop: &AtomicBool) -> io::Result<StreamRate> {
        let load = self.load(stop);
        self.reporter.end(load)
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

#[cfg(test)]
mod tests;
