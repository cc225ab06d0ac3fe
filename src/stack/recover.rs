//! Gives a crash state to the real tools of a restored guest, and keeps what they say.
//!
//! Nothing is forced: no -f, -F, -X, -T, -m, and not readonly, for then the intent log would not be
//! replayed. A tool that fails is an outcome, not an error.

use super::build::{StackError, mount_disk};
use super::pool::check_properties;
use super::scenario::{DISK_MOUNT, PlainFs, PlainSpec, Scenario, Stack, ZfsSpec};
use super::{plain, zfs as zfs_text};
use crate::agent::protocol::ExecResult;
use crate::guest::control::Control;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::verify::consistent::{Recovery, ZfsRecovery};
use std::time::Duration;

/// Each tool's limit: generous, for emulation is slow.
const TOOL: Duration = Duration::from_secs(300);

/// Lets the file system's own tools recover and check the crash state on `device`. The files can be
/// read afterwards if the recovery says so.
pub fn recover(
    control: &mut Control,
    scenario: &Scenario,
    device: &str,
    watch: &Watch,
) -> Result<Recovery, StackError> {
    match scenario.stack.get() {
        Stack::Zfs(zfs) => recover_pool(control, zfs, scenario, device, watch).map(Recovery::Zfs),
        Stack::Plain(fs, spec) => {
            plain::recover(control, (fs, spec), device, watch).map(Recovery::Plain)
        }
    }
}

/// Checks, imports and scrubs. The datasets are mounted afterwards if the import succeeded.
fn recover_pool(
    control: &mut Control,
    zfs: &ZfsSpec,
    scenario: &Scenario,
    device: &str,
    watch: &Watch,
) -> Result<ZfsRecovery, StackError> {
    let pool = &zfs.pool;
    watch.stage("mounting the disk's file system (journal replay)");
    match mount_disk(control, PlainFs::Ext4, &PlainSpec::default(), device) {
        Err(StackError::Guest(GuestError::Agent { words, .. })) => {
            return Ok(ZfsRecovery::of_unmountable(&words));
        }
        other => other?,
    }
    watch.stage("zdb -e -bc before the import");
    let leak_check = control.exec(&["zdb", "-e", "-p", DISK_MOUNT, "-bc", pool], TOOL)?;
    watch.stage("zpool import");
    let argv = ["zpool", "import", "-o", "cachefile=none", "-d", DISK_MOUNT, pool];
    let import = control.exec(&argv, TOOL)?;
    let mut recovery =
        ZfsRecovery { leak_check, import, used: None, status: None, scrub: None, panic: None };
    if recovery.import.code != Some(0) {
        return Ok(recovery);
    }
    let messages = control.read_file("/proc/spl/kstat/zfs/dbgmsg")?;
    recovery.used = zfs_text::used_txg(&messages, pool);
    // An intent log is replayed when its dataset is mounted: one that is not would look lost.
    check_properties(control, zfs, scenario)?;
    watch.stage("zpool scrub");
    let status = scrub(control, pool)?;
    recovery.scrub = zfs_text::parse_scrub(&status.stdout);
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
