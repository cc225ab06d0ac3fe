//! An exported disk with its loop device, kept over many states, and what is mounted from it.

use super::connections::abort_switch;
use super::error::{HostError, MountError};
use super::export::{Export, FILE, Serving, Slot, serve};
use super::guard::{Guard, Limited};
use super::kernel_log::KernelLog;
use super::loop_device::{LoopDevice, patiently};
use super::mount::mount_device;
use crate::disk::LocalDisk;
use nix::unistd::Uid;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Data that lie no further apart are read at once.
const GAP_BYTES: u64 = 64 << 10;

/// A disk of the lab as a block device of this machine. Nothing of it outlives the process.
#[derive(Debug)]
pub struct HostDisk {
    // In the order in which they must go: the device writes what it still has and closes the file,
    // the guard then ends the connection, and the serving threads end with that.
    device: LoopDevice,
    guard: Guard,
    _serving: Serving,
    slot: Slot,
    disk_bytes: u64,
    limit: Duration,
}

impl HostDisk {
    /// Exports a disk of this size, with nothing on it yet. Each later step, and each check, may
    /// take `limit`; after one that took longer this disk is of no use any more: start another.
    ///
    /// One thread serves it, which is the quickest for a disk without timing: with more, each
    /// request wakes another.
    pub fn start(disk_bytes: u64, limit: Duration) -> Result<HostDisk, HostError> {
        HostDisk::start_overlapping(disk_bytes, limit, 1)
    }

    /// The same for a disk with timing, on which up to `requests` overlap; later ones arrive when
    /// an earlier one is answered, as at a disk with so deep a queue.
    pub fn start_overlapping(
        disk_bytes: u64,
        limit: Duration,
        requests: usize,
    ) -> Result<HostDisk, HostError> {
        if !Uid::effective().is_root() {
            return Err(HostError::NotRoot);
        }
        let slot = Slot::default();
        // Named in this order, so that on an error the mount goes before its threads are waited for.
        let (serving, root) = serve(Export { slot: slot.clone(), disk_bytes }, requests.max(1))?;
        let guard = Guard::start(abort_switch(&root)?)?;
        let attaching = guard.limit("attach a loop device", limit);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&root, FILE, flags, Mode::empty())
            .map_err(HostError::system("open the exported file", FILE))?;
        let device = LoopDevice::attach(&File::from(file))?;
        drop(attaching);
        guard.check()?;
        Ok(HostDisk { device, guard, _serving: serving, slot, disk_bytes, limit })
    }

    /// From now on the device shows `disk`; nothing of the one before is remembered. Not possible
    /// while one is mounted.
    pub fn insert(&mut self, disk: Arc<LocalDisk>) -> Result<(), HostError> {
        if disk.disk_bytes() != self.disk_bytes {
            let (disk, exported) = (disk.disk_bytes(), self.disk_bytes);
            return Err(HostError::Size { disk, exported });
        }
        let step = self.guard.limit("insert a disk", self.limit);
        let ranges = disk.data_ranges(GAP_BYTES);
        self.device.replace(|| self.slot.set(Some(disk)))?;
        self.device.ask_for(&ranges);
        drop(step);
        self.guard.check()
    }

    /// The block device, `/dev/loopN`.
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// Mounts what is on the disk, read-write unless the options say `ro`, so that the file
    /// system's log is replayed. `options` are separated by commas.
    pub fn mount(&self, fstype: &str, options: &str) -> Result<Mounted<'_>, MountError> {
        let step = self.limited("mount the file system");
        let log = KernelLog::from_now();
        let device = self.device.path().to_string_lossy();
        let mounted = patiently(|| mount_device(&device, fstype, options));
        drop(step);
        self.guard.check()?;
        let root = mounted.map_err(|errno| {
            let name = self.device.path().file_name().unwrap_or_default();
            MountError::Refused {
                fstype: fstype.to_owned(),
                options: options.to_owned(),
                errno: errno.into(),
                said: log.about(&name.to_string_lossy()),
            }
        })?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), root.as_raw_fd());
        Ok(Mounted { disk: self, root, path: path.into() })
    }

    /// Bounds what the caller does on the mounted file system, until the value is dropped: when the
    /// time passes every request fails.
    pub fn limited(&self, step: &'static str) -> Limited<'_> {
        self.guard.limit(step, self.limit)
    }

    /// The same with a limit of the caller's.
    pub fn limited_by(&self, step: &'static str, limit: Duration) -> Limited<'_> {
        self.guard.limit(step, limit)
    }

    /// Whether a step took too long, after which this disk is of no use any more.
    pub fn check(&self) -> Result<(), HostError> {
        self.guard.check()
    }

    /// How long each step may take.
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

/// A mounted file system. Dropped, it is unmounted without a word about how that went.
#[derive(Debug)]
pub struct Mounted<'a> {
    disk: &'a HostDisk,
    root: OwnedFd,
    path: PathBuf,
}

impl Mounted<'_> {
    /// The file system's root. Good for all processes, while this value lives; it is a path through
    /// this process's descriptors, since the file system has no place in any folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts; fails if a file of it is still open, with which the file system goes on.
    pub fn unmount(self) -> Result<(), HostError> {
        let Mounted { disk, root, .. } = self;
        let step = disk.limited("unmount the file system");
        drop(root);
        let is_used = disk.device.is_used();
        drop(step);
        disk.check()?;
        match is_used {
            true => Err(HostError::StillUsed { device: disk.device().to_owned() }),
            false => Ok(()),
        }
    }
}
