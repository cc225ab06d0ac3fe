//! One stream that carries out a script.
//!
//! What always holds: as of every stream (see [`super::writer`]): intent, start event, the calls, done,
//! end, ack. An operation is its own call and nothing more; what makes it durable is another operation,
//! or comes with it. After a failed call the stream acknowledges nothing more.

use crate::agent::protocol::StreamRate;
use crate::history::message::Intent;
use crate::script::content::Key;
use crate::script::op::Op;
use crate::script::spec::{Generator, ScriptSpec};
use crate::units::Seq;
use crate::workload::clock;
use crate::workload::plan::{Pattern, Plan, StreamPlan, WriterFault};
use crate::workload::reporter::{Carried, Halt, Reporter, Shared};
use crate::workload::script_calls::ScriptCalls;
use crate::workload::stream::Stream;
use nix::errno::Errno;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The ack of a sync that took so long is sent at once, with all before it: held back it would count
/// as un-acked, and so would what it made durable. A quicker one made nothing durable (sync=disabled),
/// and a message costs more than it did; so a message never costs more than a tenth of such a sync.
const PROMPT_NS: u64 = 1_000_000;

/// Whether an operation's ack is sent at once.
fn is_prompt(op: &Op, took_ns: u64) -> bool {
    op.sync().is_some() && took_ns >= PROMPT_NS
}

/// A script and how far it has come.
#[derive(Debug)]
struct Work {
    generator: Box<dyn Generator>,
    key: Key,
    calls: ScriptCalls,
    /// The next operation and its number; `None` at the script's end.
    next: Option<Op>,
    seq: Seq,
}

impl Work {
    fn create(plan: &Plan, stream: &StreamPlan, script: &ScriptSpec) -> io::Result<Work> {
        let calls = ScriptCalls::create(Path::new(&stream.path))?;
        let mut generator = script.generator(plan.seed, stream.id);
        let next = generator.next_op();
        Ok(Work { generator, key: Key::new(plan.seed, stream.id), calls, next, seq: Seq(1) })
    }

    /// Carries out the next operation; `None` at the script's end.
    fn carry(&mut self, shared: &Shared) -> Result<Option<(Op, Carried)>, Errno> {
        let Some(op) = self.next else { return Ok(None) };
        self.calls.prepare(&op, self.seq, self.key);
        let start = shared.events.next();
        let start_ns = clock::stamp();
        self.calls.carry(&op, self.generator.paths())?;
        let done_ns = clock::stamp();
        let done = shared.events.next();
        let carried = Carried { seq: self.seq, start, done, start_ns, done_ns, digest: [0; 8] };
        self.advance();
        Ok(Some((op, carried)))
    }

    /// The same calls, and nothing else.
    fn carry_plainly(&mut self) -> Result<bool, Errno> {
        let Some(op) = self.next else { return Ok(false) };
        self.calls.prepare(&op, self.seq, self.key);
        self.calls.carry(&op, self.generator.paths())?;
        self.advance();
        Ok(true)
    }

    fn advance(&mut self) {
        self.next = self.generator.next_op();
        self.seq = Seq(self.seq.0 + 1);
    }

    fn intent(&self) -> Option<Intent> {
        self.next.map(|_| Intent { seq: self.seq, location: 0 })
    }
}

/// A stream that carries out a script.
#[derive(Debug)]
pub struct ScriptWriter {
    reporter: Reporter,
    shared: Arc<Shared>,
    work: Work,
}

impl ScriptWriter {
    /// Makes the stream's folder; one that exists is an error.
    pub fn create(
        shared: &Arc<Shared>,
        stream: &StreamPlan,
        script: &ScriptSpec,
    ) -> io::Result<ScriptWriter> {
        let work = Work::create(&shared.plan, stream, script)?;
        let reporter = Reporter::new(shared.clone(), stream.clone());
        Ok(ScriptWriter { reporter, shared: shared.clone(), work })
    }

    fn load(&mut self, stop: &AtomicBool) -> Result<(), Halt> {
        self.reporter.begin(self.work.intent())?;
        let mut pace = self.reporter.pace();
        while self.reporter.go_on(&mut pace, stop)? && self.operation()? {}
        Ok(())
    }

    /// Whether there was one more.
    fn operation(&mut self) -> Result<bool, Halt> {
        let Some((op, carried)) = self.work.carry(&self.shared).map_err(Halt::Call)? else {
            return Ok(false);
        };
        let end_ns = self.reporter.acknowledge(&carried, self.work.intent())?;
        if is_prompt(&op, end_ns.0.saturating_sub(carried.start_ns.0)) {
            self.reporter.flush()?;
        }
        if self.reporter.stream().fault == Some(WriterFault::Stall) {
            self.reporter.stall()?;
        }
        Ok(true)
    }
}

impl Stream for ScriptWriter {
    fn plan(&self) -> &StreamPlan {
        self.reporter.stream()
    }

    /// One syncfs(2), which comes before all their acks.
    fn fill(&mut self) -> Result<(), Halt> {
        let fill = self.reporter.stream().fill();
        let (work, shared) = (&mut self.work, &self.shared);
        let intents = (1..=fill).map(|seq| Intent { seq: Seq(seq), location: 0 });
        self.reporter.fill(intents, || {
            let mut carried = Vec::with_capacity(fill as usize);
            for _ in 0..fill {
                carried.extend(work.carry(shared)?.map(|(_, carried)| carried));
            }
            work.calls.sync_all()?;
            Ok(carried)
        })?;
        // The set-up has no fault.
        if self.reporter.stream().fault == Some(WriterFault::SkipSync) {
            self.work.calls.lie();
        }
        Ok(())
    }

    fn run(mut self: Box<Self>, stop: &AtomicBool) -> io::Result<StreamRate> {
        let load = self.load(stop);
        self.reporter.end(load)
    }
}

/// The calls of a plan's only stream for so long, without intents, acks and messages: what our own
/// part of the load costs is measured against it.
pub fn plain_loop(plan: &Plan, run: Duration) -> io::Result<StreamRate> {
    let [stream] = plan.streams.as_slice() else {
        return Err(io::Error::other("a plain loop is of one stream"));
    };
    let Pattern::Script(script) = &stream.pattern else {
        return Err(io::Error::other("a plain loop is of a script"));
    };
    let mut work = Work::create(plan, stream, script)?;
    for _ in 0..script.fill() {
        work.carry_plainly()?;
    }
    work.calls.sync_all()?;
    let (begin, mut acked) = (Instant::now(), 0);
    while begin.elapsed() < run && work.carry_plainly()? {
        acked += 1;
    }
    Ok(StreamRate { acked, elapsed_ns: begin.elapsed().as_nanos() as u64 })
}

#[cfg(test)]
mod tests;
