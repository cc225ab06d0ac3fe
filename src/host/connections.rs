//! The kernel's switch that ends a FUSE connection, whatever hangs on it.

use super::error::HostError;
use super::mount::mount_detached;
use nix::sys::stat::{fstat, minor};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Opens the switch of the connection behind a FUSE mount. A byte written to it aborts the
/// connection: what waits on it, and all that comes later, ends with an error.
pub(super) fn abort_switch(fuse_root: &OwnedFd) -> Result<File, HostError> {
    // Mounted here, detached: not every machine has it at /sys/fs/fuse/connections.
    let connections = mount_detached("fusectl", &[])?;
    let stat = fstat(fuse_root).map_err(HostError::system("look at", "the exported disk"))?;
    // The kernel names a connection by its mount's device number.
    let name = format!("{}/abort", minor(stat.st_dev));
    let switch =
        openat(&connections, name.as_str(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(HostError::system("open the kernel's fusectl file", name))?;
    Ok(File::from(switch))
}
