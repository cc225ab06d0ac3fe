//! Writes a trace: one lock, and the order in which it is taken is the order of truth.
//!
//! What always holds: the cut is one entry, written once; no request and no reply is appended
//! behind it. After a failed write nothing is appended any more, so that the file never has a hole,
//! and every later call says why.

use super::entry::{ClockSample, Entry, EntryNo, Request, RequestNo};
use super::header::TraceHeader;
use super::tail::{Tail, read_file};
use crate::units::{LabNs, RunId};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

/// Entries wait in memory at most this long, unless many of them push each other out earlier.
const FLUSH_DELAY: Duration = Duration::from_millis(50);
/// A trace grows no longer: extents hold positions in 47 bits, and those of several traces are
/// laid end to end.
const TRACE_BYTES_MAX: u64 = 1 << 44;

/// Why a trace was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be made, written or read.
    #[error("cannot {what} the trace {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a trace of this version.
    #[error("{} cannot be read as a trace: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first bytes.
        source: super::header::HeaderError,
    },
    /// An earlier write failed; the trace ends there.
    #[error("the trace {} ended early, nothing can be recorded any more: {reason}", path.display())]
    Ended {
        /// The file.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// The power is gone: the disk neither takes nor answers requests.
    #[error("the disk is cut: it takes and answers no request any more")]
    Frozen,
    /// A payload longer than its kind may have.
    #[error("an entry's payload of {bytes} bytes is too long for the trace {}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Bytes of the payload.
        bytes: usize,
    },
    /// The trace is as large as one may be.
    #[error("the trace {} is full; split the run into shorter ones", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
}

/// CLOCK_MONOTONIC, the clock of every trace.
pub fn lab_now() -> LabNs {
    // The clock exists on every Linux, so that the fallback is never taken.
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .unwrap_or_else(|_| nix::sys::time::TimeSpec::new(0, 0));
    LabNs((now.tv_sec() as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec() as u64))
}

impl TraceHeader {
    /// The header of a trace that begins now.
    pub fn now(run: RunId, disk_bytes: u64) -> TraceHeader {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let realtime_ns = since_1970.map_or(0, |since| since.as_nanos() as u64);
        TraceHeader { run, disk_bytes, realtime_ns, monotonic: lab_now() }
    }
}

/// The one writer of a trace. Clones write to the same file.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: Arc<File>,
    header: TraceHeader,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tail: Tail,
    entries: u32,
    requests: u64,
    cut: Option<LabNs>,
    failed: Option<String>,
}

impl Recorder {
    /// Makes the file and writes its header. Refuses a path that exists: a trace is never written
    /// over.
    pub fn create(path: &Path, header: &TraceHeader) -> Result<Recorder, TraceError> {
        let io = |what| move |source| TraceError::Io { what, path: path.to_owned(), source };
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(io("create"))?;
        let file = Arc::new(file);
        let mut tail = Tail::new(file.clone());
        tail.append(&header.encode(), &[]).and_then(|()| tail.flush()).map_err(io("write"))?;
        let state = State { tail, entries: 0, requests: 0, cut: None, failed: None };
        let inner = Arc::new(Inner {
            path: path.to_owned(),
            file,
            header: *header,
            state: Mutex::new(state),
        });
        flush_now_and_then(&inner).map_err(io("start the writer of"))?;
        Ok(Recorder(inner))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What the file says about itself.
    pub fn header(&self) -> &TraceHeader {
        &self.0.header
    }

    /// Appends one frame of the guest. Behind the cut too: it is late then.
    pub fn message(&self, frame: &[u8]) -> Result<(), TraceError> {
        self.append(&Entry::Message(frame))
    }

    /// Appends a named instant.
    pub fn mark(&self, name: &str) -> Result<(), TraceError> {
        self.append(&Entry::Mark(name))
    }

    /// Appends JSON text.
    pub fn note(&self, json: &str) -> Result<(), TraceError> {
        self.append(&Entry::Note(json))
    }

    /// Appends a sample of the clocks.
    pub fn clock_sample(&self, sample: ClockSample) -> Result<(), TraceError> {
        self.append(&Entry::ClockSample(sample))
    }

    /// Cuts the power: appends the cut under the disk's lock and hands the file to the kernel. A
    /// second call returns the first instant.
    pub fn cut(&self, how: &str) -> Result<LabNs, TraceError> {
        let mut state = self.lock();
        if let Some(at) = state.cut {
            return Ok(at);
        }
        // Frozen even if the entry cannot be written: the guest dies, and the error says that the
        // trial cannot be judged.
        state.cut = Some(lab_now());
        let at = self.0.append(&mut state, &Entry::Cut(how))?.at;
        state.cut = Some(at);
        self.0.flush(&mut state)?;
        Ok(at)
    }

    /// Whether the power is gone.
    pub fn frozen(&self) -> bool {
        self.lock().cut.is_some()
    }

    /// Hands all entries to the kernel: whoever opens the file now finds them.
    pub fn hand_over(&self) -> Result<(), TraceError> {
        self.0.flush(&mut self.lock())
    }

    /// Hands all entries to the kernel, and waits until they are on the lab's own disk.
    pub fn sync(&self) -> Result<(), TraceError> {
        self.hand_over()?;
        self.0.file.sync_data().map_err(|source| TraceError::Io {
            what: "sync",
            path: self.0.path.clone(),
            source,
        })
    }

    /// The number that the next entry will get.
    pub fn next_entry(&self) -> EntryNo {
        EntryNo(self.lock().entries)
    }

    /// Appends a request that arrived whole, numbers it, and tells where its payload stands.
    pub(crate) fn request(&self, request: Request, payload: &[u8]) -> Result<Arrived, TraceError> {
        let mut state = self.lock();
        if state.cut.is_some() {
            return Err(TraceError::Frozen);
        }
        let no = RequestNo(state.requests);
        let appended =
            self.0.append(&mut state, &Entry::Request(Request { no, ..request }, payload))?;
        state.requests += 1;
        Ok(Arrived { no, at: appended.at, payload_at: appended.payload_at })
    }

    /// Appends the reply that is about to be sent.
    pub(crate) fn reply(&self, no: RequestNo, error: u32) -> Result<(), TraceError> {
        let mut state = self.lock();
        if state.cut.is_some() {
            return Err(TraceError::Frozen);
        }
        self.0.append(&mut state, &Entry::Reply(no, error)).map(|_| ())
    }

    /// Reads what was appended before, wherever it is by now.
    pub(crate) fn read_at(&self, position: u64, out: &mut [u8]) -> Result<(), TraceError> {
        let read = |source| TraceError::Io { what: "read", path: self.0.path.clone(), source };
        let in_file = self.lock().tail.read_pending(position, out).map_err(read)?;
        // The file only grows, so the rest needs no lock.
        read_file(&self.0.file, position, &mut out[..in_file]).map_err(read)
    }

    fn append(&self, entry: &Entry) -> Result<(), TraceError> {
        self.0.append(&mut self.lock(), entry).map(|_| ())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// What became of a request when it was recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    /// Its number.
    pub no: RequestNo,
    /// When it arrived.
    pub at: LabNs,
    /// The file position of its payload.
    pub payload_at: u64,
}

struct Appended {
    at: LabNs,
    payload_at: u64,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock; and if it did, the state would still be a prefix.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, state: &mut State, entry: &Entry) -> Result<Appended, TraceError> {
        if let Some(reason) = &state.failed {
            return Err(TraceError::Ended { path: self.path.clone(), reason: reason.clone() });
        }
        if state.entries == u32::MAX || state.tail.end() > TRACE_BYTES_MAX {
            return Err(TraceError::Full { path: self.path.clone() });
        }
        let at = lab_now();
        let Some((head, payload)) = entry.encode(at) else {
            let bytes = entry.payload_bytes();
            return Err(TraceError::TooLong { path: self.path.clone(), bytes });
        };
        let payload_at = state.tail.end() + head.len() as u64;
        if let Err(source) = state.tail.append(&head, payload) {
            return Err(self.fail(state, source));
        }
        state.entries += 1;
        Ok(Appended { at, payload_at })
    }

    fn flush(&self, state: &mut State) -> Result<(), TraceError> {
        match &state.failed {
            Some(why) => {
                let source = io::Error::other(why.clone());
                Err(TraceError::Io { what: "write", path: self.path.clone(), source })
            }
            None => state.tail.flush().map_err(|source| self.fail(state, source)),
        }
    }

    fn fail(&self, state: &mut State, source: io::Error) -> TraceError {
        state.failed = Some(source.to_string());
        TraceError::Io { what: "write", path: self.path.clone(), source }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Not left to the last owner, which may be the thread below: whoever drops its recorder and
        // then opens the file finds all in it. A failure is kept in the state and seen as a trace
        // that is cut short.
        let _ = self.0.flush(&mut self.lock());
    }
}

/// Bounds how long an entry waits in memory. The thread ends soon after the last recorder.
fn flush_now_and_then(inner: &Arc<Inner>) -> io::Result<()> {
    let weak: Weak<Inner> = Arc::downgrade(inner);
    let run = move || {
        while let Some(inner) = weak.upgrade() {
            // A failure is kept in the state and told to whoever appends next.
            let _ = inner.flush(&mut inner.lock());
            drop(inner);
            std::thread::sleep(FLUSH_DELAY);
        }
    };
    std::thread::Builder::new().name("trace-flush".into()).spawn(run).map(|_| ())
}
