//! What the lab asks of the agent, and its frames on the control port.
//!
//! A frame is a 16-byte head (magic, kind, length, CRC-32C) and a payload: JSON for a request or a
//! reply, raw bytes for an observation's blocks. One request at a time; a reply carries the
//! request's number, so that an answer that comes after a time-out is not taken for the next one's.

use crate::units::GuestNs;
use crate::workload::plan::Plan;
use serde::{Deserialize, Serialize};

/// A request with its number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// Counts the requests of one connection.
    pub number: u64,
    /// What is asked, or answered.
    pub body: T,
}

/// What the lab can ask.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Who are you? Answered with `Reply::Hello`.
    Hello,
    /// First thing after a restore: the clock is set and the entropy credited to the kernel.
    Wake {
        /// Nanoseconds since 1970.
        realtime_ns: u64,
        /// Hexadecimal digits of the lab's entropy.
        entropy: String,
    },
    /// What does the clock say? Answered with `Reply::Clock`.
    Clock,
    /// Do a fixed computation. Answered with `Reply::Took`.
    Compute,
    /// Run a tool to its end.
    Exec {
        /// Program and arguments; the program is looked up in the image's path.
        argv: Vec<String>,
        /// The tool is killed after this time.
        timeout_ms: u64,
    },
    /// Starts a tool and does not wait for it: other requests are answered beside it. One at a time.
    Begin {
        /// Program and arguments; the program is looked up in the image's path.
        argv: Vec<String>,
        /// The tool is killed after this time.
        timeout_ms: u64,
    },
    /// Waits for the tool that `Begin` started. Answered with `Reply::Exec`.
    End,
    /// mount(2).
    Mount {
        /// Device or source.
        source: String,
        /// Mount point, made when missing.
        target: String,
        /// File system type.
        fstype: String,
        /// Mount options that the file system reads.
        options: String,
    },
    /// umount(2).
    Unmount {
        /// Mount point.
        target: String,
    },
    /// The text of a file, kernel files included. Answered with `Reply::Text`.
    ReadFile {
        /// Which.
        path: String,
    },
    /// Overwrites a kernel file (a module parameter, a queue's setting).
    WriteFile {
        /// Which.
        path: String,
        /// New text.
        text: String,
    },
    /// Makes a sparse file.
    SparseFile {
        /// Where; it must not exist.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// fsync(2) of a file, or of a device, which flushes its cache.
    Fsync {
        /// Which.
        path: String,
    },
    /// Waits until a path exists.
    WaitFor {
        /// Which.
        path: String,
        /// At most this long.
        timeout_ms: u64,
    },
    /// Waits until a ZFS volume has its block device. Answered with `Reply::Text`, its path.
    FindVolume {
        /// The volume's full name, `pool/name`.
        name: String,
        /// At most this long.
        timeout_ms: u64,
    },
    /// Makes the bodies, opens and fills the streams' files, and syncs them.
    Prepare(Plan),
    /// Starts the load of the prepared plan on the messages port.
    StartLoad,
    /// Sends the rows of a pool's txgs kstat that changed, this often, on the messages port.
    WatchTxgs {
        /// The pool.
        pool: String,
        /// Between two looks.
        interval_ms: u64,
    },
    /// Ends the load (not the way to a cut) and waits for its streams. Answered with `Reply::Rates`.
    StopLoad,
    /// Makes the calls of a plan's only stream, a script, for so long, and says nothing meanwhile: what
    /// intents, acks and messages cost is measured against it. Answered with `Reply::Rates`.
    PlainLoop {
        /// The workload.
        plan: Plan,
        /// How long, behind the set-up.
        run_ms: u64,
    },
    /// Reads back every stream's file. Answered with one blob a stream, then `Reply::Done`.
    Observe(Plan),
}

/// What the agent answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To `Hello`.
    Hello {
        /// Kernel release.
        kernel: String,
        /// The agent's package version.
        agent: String,
        /// Problems met at start-up, each with its tool's own words.
        warnings: Vec<String>,
    },
    /// Done; nothing to say.
    Done,
    /// To `Clock`.
    Clock(GuestNs),
    /// To `Compute`.
    Took {
        /// How long it took.
        ns: u64,
    },
    /// To `Exec` and `End`.
    Exec(ExecResult),
    /// To `ReadFile` and `FindVolume`.
    Text(String),
    /// To `StopLoad`: acked operations and seconds of load, per stream in the plan's order.
    Rates(Vec<StreamRate>),
    /// It could not be done.
    Failed(String),
}

/// How a tool ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecResult {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
    /// Its standard output, as text.
    pub stdout: String,
    /// Its standard error, as text.
    pub stderr: String,
    /// How long it ran, in the guest's nanoseconds.
    pub took_ns: u64,
}

/// What a stream did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamRate {
    /// Operations acked.
    pub acked: u64,
    /// From the first operation's start to the last one's end.
    pub elapsed_ns: u64,
}
