//! What can go wrong between the lab's disk and this machine's kernel.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The lab's own side failed: this says nothing about the state that was tried.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Only root may mount.
    #[error(
        "only root may give a disk to this machine's kernel: run it with sudo, or leave out \
         `--in host` to use a guest"
    )]
    NotRoot,
    /// Something that the kernel must have.
    #[error("cannot {doing} {}: {source}; {fix}", path.display())]
    Missing {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
        /// What to do about it.
        fix: &'static str,
    },
    /// A system call that should have worked.
    #[error("cannot {doing} {}: {source}", path.display())]
    System {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A disk of another size than the one that is exported.
    #[error("a disk of {disk} bytes cannot take the place of one of {exported} bytes")]
    Size {
        /// Bytes of the disk.
        disk: u64,
        /// Bytes of the exported one.
        exported: u64,
    },
    /// A step took too long; its disk was given up, and every request on it failed.
    #[error("to {step} took longer than {} s; the disk was given up", limit.as_secs_f64())]
    TooLong {
        /// Which step, as a verb.
        step: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// The file system goes on after its unmount: something holds a file of it open.
    #[error("{} is still in use: unmount it, and close every file of it, first", device.display())]
    StillUsed {
        /// The loop device.
        device: PathBuf,
    },
    /// No such file system here.
    #[error("{0:?} is not a file system that the host side knows: use ext4, xfs or btrfs")]
    FileSystem(String),
    /// A tool could not be started, or failed where it must not.
    #[error("`{command}` failed: {said}")]
    Tool {
        /// The program with its arguments.
        command: String,
        /// Its last words, or why it did not start.
        said: String,
    },
}

impl HostError {
    /// For `map_err`: `doing` is a verb.
    pub(super) fn system<E: Into<io::Error>>(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> HostError {
        let path = path.into();
        move |source| HostError::System { doing, path, source: source.into() }
    }
}

/// Why a disk was not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refused the file system: an outcome of the state on the disk.
    #[error("the kernel does not mount {fstype} ({options:?}): {errno}{}{said}",
        if said.is_empty() { "" } else { "; it said:\n" })]
    Refused {
        /// The file system.
        fstype: String,
        /// The options.
        options: String,
        /// The kernel's error.
        errno: io::Error,
        /// What the kernel logged meanwhile about this device.
        said: String,
    },
    /// The lab's own side failed.
    #[error(transparent)]
    Host(#[from] HostError),
}
