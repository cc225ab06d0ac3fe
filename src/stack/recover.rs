//! Gives a crash state to the real tools of a restored guest, and keeps what they say.
//!
//! Nothing is forced: no -f, -F, -X, -T, -m, and not readonly, for then the intent log would not be
//! replayed. A tool that fails is an outcome, not an error. The leak check sees the state as the
//! crash left it: it runs before the import, or beside it on a disk of its own.

use super::build::{StackError, mount_at};
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
/// Where the disk is mounted that only the leak check sees.
pub(super) const CHECK_MOUNT: &str = "/mnt-check";

/// The disks that show a crash state.
#[derive(Debug, Clone, Copy)]
pub struct StateDisks<'a> {
    /// The one that is recovered and read.
    pub recovered: &'a str,
    /// Another that shows the same and stores its writes elsewhere. With it a pool's leak check runs
    /// beside the import and not before it.
    pub untouched: Option<&'a str>,
}

impl<'a> StateDisks<'a> {
    /// One disk, on which everything is done in turn.
    pub fn one(device: &'a str) -> StateDisks<'a> {
        StateDisks { recovered: device, untouched: None }
    }
}

/// Lets the file system's own tools recover and check the crash state. The files can be read
/// afterwards if the recovery says so.
pub fn recover(
    control: &mut Control,
    scenario: &Scenario,
    disks: StateDisks,
    watch: &Watch,
) -> Result<Recovery, StackError> {
    match scenario.stack.get() {
        Stack::Zfs(zfs) => recover_pool(control, zfs, scenario, disks, watch).map(Recovery::Zfs),
        Stack::Plain(fs, spec) => {
            plain::recover(control, (fs, spec), disks.recovered, watch).map(Recovery::Plain)
        }
    }
}

/// Checks, imports and scrubs. The datasets are mounted afterwards if the import succeeded.
fn recover_pool(
    control: &mut Control,
    zfs: &ZfsSpec,
    scenario: &Scenario,
    disks: StateDisks,
    watch: &Watch,
) -> Result<ZfsRecovery, StackError> {
    watch.stage("mounting the disk's file system (journal replay)");
    let mounts = [(Some(disks.recovered), DISK_MOUNT), (disks.untouched, CHECK_MOUNT)];
    for (device, target) in mounts {
        let Some(device) = device else { continue };
        match mount_at(control, PlainFs::Ext4, &PlainSpec::default(), device, target) {
            Err(StackError::Guest(GuestError::Agent { words, .. })) => {
                return Ok(ZfsRecovery::of_unmountable(&words));
            }
            other => other?,
        }
    }
    if disks.untouched.is_none() {
        watch.stage("zdb -e -bc before the import");
        let leak_check = control.exec(&leak_check(DISK_MOUNT, &zfs.pool), TOOL)?;
        return Ok(ZfsRecovery { leak_check, ..import_and_scrub(control, zfs, scenario, watch)? });
    }
    watch.stage("zdb -e -bc on a disk of its own");
    // On one CPU: its many threads otherwise make the CPUs of a guest wait for each other.
    let last_cpu = format!("{:x}", 1u64 << (scenario.guest.cpus - 1).min(63));
    let mut argv = vec!["busybox", "taskset", &last_cpu];
    argv.extend(leak_check(CHECK_MOUNT, &zfs.pool));
    control.begin(&argv, TOOL)?;
    let recovery = import_and_scrub(control, zfs, scenario, watch)?;
    Ok(ZfsRecovery { leak_check: control.end(TOOL)?, ..recovery })
}

/// Reads the pool's labels, and compares each block that is in use with the space maps.
fn leak_check<'a>(folder: &'a str, pool: &'a str) -> [&'a str; 6] {
    ["zdb", "-e", "-p", folder, "-bc", pool]
}

/// All but the leak check.
fn import_and_scrub(
    control: &mut Control,
    zfs: &ZfsSpec,
    scenario: &Scenario,
    watch: &Watch,
) -> Result<ZfsRecovery, StackError> {
    let pool = &zfs.pool;
    watch.stage("zpool import");
    let argv = ["zpool", "import", "-o", "cachefile=none", "-d", DISK_MOUNT, pool];
    let import = control.exec(&argv, TOOL)?;
    let mut recovery = ZfsRecovery { import, ..ZfsRecovery::unsaid() };
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
