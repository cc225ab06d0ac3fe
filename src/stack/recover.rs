//! Gives a crash state to the real tools of a restored guest, and keeps what they say.
//!
//! Nothing is forced: no -f, -F, -X, -T, -m, and not readonly, for then the intent log would not be
//! replayed. A tool that fails is an outcome, not an error.

use super::build::{DISK_MOUNT, StackError, check_properties, mount_ext4};
use super::scenario::Scenario;
use super::zfs;
use crate::agent::protocol::ExecResult;
use crate::guest::control::Control;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::verify::consistent::Recovery;
use std::time::Duration;

/// Each tool's limit: generous, for emulation is slow.
const TOOL: Duration = Duration::from_secs(300);

/// Checks, imports and scrubs. The datasets are mounted afterwards if the import succeeded.
pub fn recover(
    control: &mut Control,
    scenario: &Scenario,
    device: &str,
    watch: &Watch,
) -> Result<Recovery, StackError> {
    let pool = &scenario.stack.pool;
    watch.stage("mounting the disk's file system (journal replay)");
    match mount_ext4(control, device) {
        Err(StackError::Guest(GuestError::Agent { words, .. })) => {
            return Ok(Recovery::of_unmountable(&words));
        }
        other => other?,
    }
    watch.stage("zdb -e -bc before the import");
    let leak_check = control.exec(&["zdb", "-e", "-p", DISK_MOUNT, "-bc", pool], TOOL)?;
    watch.stage("zpool import");
    let argv = ["zpool", "import", "-o", "cachefile=none", "-d", DISK_MOUNT, pool];
    let import = control.exec(&argv, TOOL)?;
    let mut recovery = Recovery {
        leak_check,
        import,
        used: None,
        status: None,
        scrub: None,
        unreadable: 0,
        panic: None,
    };
    if recovery.import.code != Some(0) {
        return Ok(recovery);
    }
    let messages = control.read_file("/proc/spl/kstat/zfs/dbgmsg")?;
    recovery.used = zfs::used_txg(&messages, pool);
    // An intent log is replayed when its dataset is mounted: one that is not would look lost.
    check_properties(control, scenario)?;
    watch.stage("zpool scrub");
    let status = scrub(control, pool)?;
    recovery.scrub = zfs::parse_scrub(&status.stdout);
    recovery.status = Some(status);
    Ok(recovery)
}

fn scrub(control: &mut Control, pool: &str) -> Result<ExecResult, StackError> {
    let started = control.exec(&["zpool", "scrub", "-w", pool], TOOL)?;
    match started.code {
        Some(0) => Ok(control.exec(&["zpool", "status", pool], TOOL)?),
        _ => Ok(started),
    }
}
