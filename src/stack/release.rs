//! Lets go of a stack that was looked at, so that the guest can be given another disk.

use super::build::StackError;
use super::scenario::{Holds, Scenario, Stack};
use super::vdev::{self, CHECKED, MAIN};
use super::volumes;
use crate::guest::control::Control;
use std::time::Duration;

const TOOL: Duration = Duration::from_secs(60);

/// Exports the pool, if it was imported, with what is mounted on its volumes; detaches the loop
/// devices; unmounts the disks' file systems, if they were mounted.
pub fn release(control: &mut Control, scenario: &Scenario) -> Result<(), StackError> {
    if let Stack::Zfs(pool) = scenario.stack.get() {
        if let Holds::Volumes { .. } = pool.holds {
            volumes::release(control, scenario)?;
        }
        let kstat = format!("/proc/spl/kstat/zfs/{}/state", pool.spec.pool);
        if control.read_file(&kstat).is_ok() {
            control.run(&["zpool", "export", &pool.spec.pool], TOOL)?;
        }
    }
    [MAIN, CHECKED].into_iter().try_for_each(|place| vdev::let_go(control, place))
}
