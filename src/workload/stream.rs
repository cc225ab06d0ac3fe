//! A stream at work, whatever its operations are.

use crate::agent::protocol::StreamRate;
use crate::workload::exec_stream::ExecStream;
use crate::workload::plan::{Pattern, StreamPlan};
use crate::workload::reporter::{Halt, Shared};
use crate::workload::script_writer::ScriptWriter;
use crate::workload::sqlite::Sqlite;
use crate::workload::target::StreamFile;
use crate::workload::writer::Writer;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One stream: made, filled, then run by a thread of its own.
pub trait Stream: Send + std::fmt::Debug {
    /// Its plan.
    fn plan(&self) -> &StreamPlan;
    /// Carries out the operations that belong to the set-up, makes them durable, and then
    /// acknowledges them.
    fn fill(&mut self) -> Result<(), Halt>;
    /// Carries out the load until told to stop, at its end, or until a call fails; the lab is told
    /// which. An error means that the lab could not be told.
    fn run(self: Box<Self>, stop: &AtomicBool) -> io::Result<StreamRate>;
}

/// Makes what a stream writes to; what exists is an error.
pub fn create(shared: &Arc<Shared>, stream: &StreamPlan) -> io::Result<Box<dyn Stream>> {
    match &stream.pattern {
        Pattern::Append | Pattern::Overwrite { .. } | Pattern::Replace => {
            let file = StreamFile::create(stream)?;
            Ok(Box::new(Writer::new(shared.clone(), stream.clone(), file)))
        }
        Pattern::Script(script) => Ok(Box::new(ScriptWriter::create(shared, stream, script)?)),
        Pattern::Sqlite(spec) => Ok(Box::new(Sqlite::create(shared.clone(), stream, *spec)?)),
        Pattern::Exec(exec) => Ok(Box::new(ExecStream::create(shared.clone(), stream, exec)?)),
    }
}
