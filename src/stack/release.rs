//! Lets go of a stack that was looked at, so that the guest can be given another disk.

use super::build::StackError;
use super::recover::CHECK_MOUNT;
use super::scenario::{DISK_MOUNT, Scenario, Stack};
use crate::agent::protocol::Request;
use crate::guest::control::Control;
use std::time::Duration;

const TOOL: Duration = Duration::from_secs(60);

/// Exports the pool, if it was imported, and unmounts the disks' file systems, if they were
/// mounted.
pub fn release(control: &mut Control, scenario: &Scenario) -> Result<(), StackError> {
    let mounts = control.read_file("/proc/mounts")?;
    let is_mounted = |place: &str| mounts.lines().any(|line| line.split(' ').nth(1) == Some(place));
    if let Stack::Zfs(zfs) = scenario.stack.get() {
        let kstat = format!("/proc/spl/kstat/zfs/{}/state", zfs.pool);
        if control.read_file(&kstat).is_ok() {
            control.run(&["zpool", "export", &zfs.pool], TOOL)?;
        }
    }
    for place in [DISK_MOUNT, CHECK_MOUNT].into_iter().filter(|place| is_mounted(place)) {
        control.call(Request::Unmount { target: place.to_owned() }, TOOL)?;
    }
    Ok(())
}
