//! What can go wrong with a guest.

use crate::agent::frame::FrameError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What went wrong, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The user asked to stop.
    #[error("interrupted")]
    Cancelled,
    /// Nothing says where the cache is.
    #[error("no folder for the cache: set PLUGPULL_CACHE, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    /// A file of the lab.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody else's folder where ours should be.
    #[error("{} is not a folder that only this user can enter; remove it", .0.display())]
    Foreign(PathBuf),
    /// Programs that the lab needs are not installed, and it may not install them.
    #[error("the lab needs packages that are not installed; run: {line}")]
    PackagesMissing {
        /// The command that installs them.
        line: String,
    },
    /// A program of the host failed.
    #[error("`{command}` failed ({how}); it said:\n{said}")]
    Command {
        /// The program with its arguments.
        command: String,
        /// Its exit status.
        how: String,
        /// The last lines of its output.
        said: String,
    },
    /// QEMU is gone.
    #[error(
        "QEMU ended ({how}) while the lab waited for {waiting}{}{}",
        said("QEMU's last words", stderr),
        said("the end of the guest's console", console)
    )]
    Ended {
        /// Its exit status.
        how: String,
        /// What the lab was waiting for.
        waiting: String,
        /// The last lines of its standard error.
        stderr: String,
        /// The last lines of the guest's console.
        console: String,
    },
    /// QEMU lives, but what was waited for did not come.
    #[error("waited {} s in vain for {waiting}{}", limit.as_secs_f32(), said("the end of the guest's console", console))]
    TimedOut {
        /// What the lab was waiting for.
        waiting: String,
        /// How long.
        limit: Duration,
        /// The last lines of the guest's console.
        console: String,
    },
    /// A socket to QEMU failed though QEMU lives.
    #[error("lost the connection for {waiting}: {source}")]
    Connection {
        /// What the lab was waiting for.
        waiting: String,
        /// The system's reason.
        source: io::Error,
    },
    /// QEMU refused a command.
    #[error("QEMU refused {command}: {words}")]
    Qmp {
        /// The command.
        command: String,
        /// QEMU's own words.
        words: String,
    },
    /// QEMU's side of its protocol is not what it should be.
    #[error("QEMU's monitor said what the lab does not understand: {0}")]
    QmpWords(String),
    /// The agent could not do what it was asked.
    #[error("the guest could not {request}: {words}")]
    Agent {
        /// What was asked, as a verb.
        request: String,
        /// The agent's own words.
        words: String,
    },
    /// The agent answered another question.
    #[error(
        "the guest answered {request} with {reply}; the lab and the agent are not of one version"
    )]
    Answer {
        /// What was asked.
        request: String,
        /// What came.
        reply: String,
    },
    /// A tool ran in the guest and failed.
    #[error(
        "`{tool}` in the guest {how}{}{}",
        said("its standard error", stderr),
        said("its standard output", stdout)
    )]
    Tool {
        /// The tool with its arguments.
        tool: String,
        /// How it ended.
        how: String,
        /// What it printed.
        stdout: String,
        /// What it complained about.
        stderr: String,
    },
    /// Bytes from the guest that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The guest's disk is not what the lab asked for.
    #[error(
        "the guest sees {device} as {found:?}, not as \"write back\": its flushes would not reach the lab"
    )]
    NotWriteBack {
        /// The device.
        device: String,
        /// What its queue says.
        found: String,
    },
    /// It has too many disks already.
    #[error("the guest has {0} disks of this bus already; take one out first")]
    NoPlaceForDisk(u8),
}

impl GuestError {
    /// For `map_err`: a file of the lab, and what was tried with it.
    pub fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GuestError {
        move |source| GuestError::File { doing, path: path.to_owned(), source }
    }
}

/// A block of quoted text under its heading, or nothing if there is none.
fn said(heading: &str, text: &str) -> String {
    match text.trim_end() {
        "" => String::new(),
        text => format!("\n{heading}:\n{text}"),
    }
}
