//! A whole workload: its files made and filled, then one thread a stream.
//!
//! What always holds: a file that exists is never written to, and when a load starts, every file
//! with its fill, and its name, is durable.

use crate::agent::protocol::StreamRate;
use crate::record::ring::Ring;
use crate::units::StreamId;
use crate::workload::check::{self, BadPlan};
use crate::workload::clock::Events;
use crate::workload::outbox::Port;
use crate::workload::plan::Plan;
use crate::workload::reporter::{Halt, Shared};
use crate::workload::stream::{self, Stream};
use crate::workload::target::folder_of;
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// A stream's thread calls little and keeps its buffers on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Why a workload could not be run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The plan itself.
    #[error(transparent)]
    Plan(#[from] BadPlan),
    /// A file could not be made.
    #[error(
        "stream {stream} cannot make {path}: {source} (its folder must exist, the file must not)"
    )]
    Create {
        /// Which stream.
        stream: StreamId,
        /// Its file.
        path: String,
        /// What the call said.
        source: io::Error,
    },
    /// The file's name could not be made durable.
    #[error("{path} and its folder cannot be synced: {source}")]
    Folder {
        /// The file.
        path: String,
        /// What the call said.
        source: io::Error,
    },
    /// Writing or syncing the fill failed.
    #[error("stream {stream} cannot fill {path}: {errno} (is there room?)")]
    Fill {
        /// Which stream.
        stream: StreamId,
        /// Its file.
        path: String,
        /// What the call said.
        errno: Errno,
    },
    /// Messages do not reach the lab.
    #[error("stream {stream} cannot send its messages: {source} (does the lab still listen?)")]
    Messages {
        /// Which stream.
        stream: StreamId,
        /// What the call said.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("no thread for stream {stream}: {source}")]
    Thread {
        /// Which stream.
        stream: StreamId,
        /// What the call said.
        source: io::Error,
    },
    /// A thread panicked.
    #[error("the thread of stream {stream} panicked; the guest's console says where")]
    Panicked {
        /// Which stream.
        stream: StreamId,
    },
}

/// A workload whose files are ready.
#[derive(Debug)]
pub struct Prepared {
    streams: Vec<Box<dyn Stream>>,
}

impl Prepared {
    /// Makes and fills every stream's file, in the plan's order.
    pub fn make(
        plan: Plan,
        ring: Arc<Ring>,
        events: Arc<Events>,
        port: Arc<Port>,
    ) -> Result<Prepared, WorkloadError> {
        check::check(&plan)?;
        let shared = Arc::new(Shared { plan, ring, events, port });
        let streams = shared.plan.streams.iter().map(|plan| {
            let path = plan.path.clone();
            let mut stream = stream::create(&shared, plan).map_err(|source| {
                WorkloadError::Create { stream: plan.id, path: path.clone(), source }
            })?;
            fill(&mut *stream)?;
            sync_name(Path::new(&path)).map_err(|source| WorkloadError::Folder { path, source })?;
            Ok(stream)
        });
        Ok(Prepared { streams: streams.collect::<Result<_, WorkloadError>>()? })
    }

    /// Starts one thread a stream.
    pub fn start(self) -> Result<Running, WorkloadError> {
        let mut running = Running { stop: Arc::default(), threads: Vec::new() };
        for work in self.streams {
            let (stream, stop) = (work.plan().id, running.stop.clone());
            let thread = Builder::new()
                .name(format!("stream-{stream}"))
                .stack_size(STACK_BYTES)
                .spawn(move || work.run(&stop))
                .map_err(|source| WorkloadError::Thread { stream, source })?;
            running.threads.push((stream, thread));
        }
        Ok(running)
    }
}

fn fill(work: &mut dyn Stream) -> Result<(), WorkloadError> {
    let halt = match work.fill() {
        Ok(()) => return Ok(()),
        Err(halt) => halt,
    };
    let (stream, path) = (work.plan().id, work.plan().path.clone());
    Err(match halt {
        Halt::Call(errno) => WorkloadError::Fill { stream, path, errno },
        Halt::Port(source) => WorkloadError::Messages { stream, source },
    })
}

/// A new file's name is durable only when its folder is. The file once more, for the writer of a
/// replaced one may have a fault, and the set-up has none.
fn sync_name(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    folder_of(path)?.sync_all()
}

/// A workload at work. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<(StreamId, JoinHandle<io::Result<StreamRate>>)>,
}

impl Running {
    /// Tells every stream to stop and waits for all: what each did, in the plan's order.
    pub fn stop(mut self) -> Result<Vec<StreamRate>, WorkloadError> {
        self.stop.store(true, Ordering::Relaxed);
        let ended: Vec<_> = std::mem::take(&mut self.threads)
            .into_iter()
            .map(|(stream, thread)| (stream, thread.join()))
            .collect();
        let rates = ended.into_iter().map(|(stream, outcome)| match outcome {
            Ok(Ok(rate)) => Ok(rate),
            Ok(Err(source)) => Err(WorkloadError::Messages { stream, source }),
            Err(_) => Err(WorkloadError::Panicked { stream }),
        });
        rates.collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
