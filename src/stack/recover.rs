//! Gives a crash state to the real tools of a restored guest, and keeps what they say.
//!
//! Nothing is forced: no -f, -F, -X, -T, -m, and not readonly, for then the intent log would not be
//! replayed. A tool that fails is an outcome, not an error. The leak check sees the state as the
//! crash left it: it runs before the import, or beside it on a disk of its own.

use super::build::StackError;
use super::pool::check_properties;
use super::scenario::{DISK_MOUNT, Holds, Pool, Scenario, Stack};
use super::vdev::{self, CHECKED, MAIN};
use super::{plain, volumes, zfs as zfs_text};
use crate::agent::protocol::ExecResult;
use crate::guest::control::Control;
use crate::guest::progress::Watch;
use crate::verify::consistent::{PlainRecovery, Recovery, VolumesRecovery, ZfsRecovery};
use std::collections::BTreeMap;
use std::time::Duration;

/// Each tool's limit: generous, for emulation is slow.
const TOOL: Duration = Duration::from_secs(300);

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
        Stack::Zfs(pool) => {
            let mut volumes = volumes::untried(scenario);
            let asked = Asked { pool, scenario, watch };
            let recovered = recover_pool(control, asked, disks, &mut volumes)?;
            Ok(match pool.holds {
                Holds::Datasets => Recovery::Zfs(recovered),
                Holds::Volumes { .. } => {
                    Recovery::Volumes(VolumesRecovery { pool: recovered, volumes })
                }
            })
        }
        Stack::Plain(fs, spec) => {
            let on = plain::On { device: disks.recovered, target: DISK_MOUNT };
            plain::recover(control, (fs, spec), on, watch).map(Recovery::Plain)
        }
    }
}

/// What is recovered, and who hears of it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    pool: Pool<'a>,
    scenario: &'a Scenario,
    watch: &'a Watch,
}

type Volumes = BTreeMap<String, PlainRecovery>;

/// Checks, imports and scrubs. The datasets are mounted afterwards if the import succeeded.
fn recover_pool(
    control: &mut Control,
    asked: Asked,
    disks: StateDisks,
    volumes: &mut Volumes,
) -> Result<ZfsRecovery, StackError> {
    let Asked { pool, scenario, watch } = asked;
    watch.stage(match pool.vdev.has_a_host() {
        true => "mounting the disk's file system (journal replay)",
        false => "reading the disk's partition table",
    });
    let search = match vdev::show(control, pool, disks.recovered, MAIN)? {
        Ok(search) => search,
        Err(words) => return Ok(ZfsRecovery::of_unreachable(&words)),
    };
    let Some(untouched) = disks.untouched else {
        watch.stage("zdb -e -bc before the import");
        let leak_check = control.exec(&leak_check(pool, &search), TOOL)?;
        let imported = import_and_scrub(control, asked, &search, volumes)?;
        return Ok(ZfsRecovery { leak_check, ..imported });
    };
    let check_at = match vdev::show(control, pool, untouched, CHECKED)? {
        Ok(search) => search,
        Err(words) => return Ok(ZfsRecovery::of_unreachable(&words)),
    };
    watch.stage("zdb -e -bc on a disk of its own");
    // On one CPU: its many threads otherwise make the CPUs of a guest wait for each other.
    let last_cpu = format!("{:x}", 1u64 << (scenario.guest.cpus - 1).min(63));
    let mut argv = vec!["busybox", "taskset", &last_cpu];
    argv.extend(leak_check(pool, &check_at));
    control.begin(&argv, TOOL)?;
    let recovery = import_and_scrub(control, asked, &search, volumes)?;
    Ok(ZfsRecovery { leak_check: control.end(TOOL)?, ..recovery })
}

/// Reads the pool's labels, found in a folder or on a device, and compares each block that is in use
/// with the space maps.
fn leak_check<'a>(pool: Pool<'a>, search: &'a str) -> Vec<&'a str> {
    vdev::command(pool, &["zdb", "-e", "-p", search, "-bc", &pool.spec.pool])
}

/// All but the leak check.
fn import_and_scrub(
    control: &mut Control,
    asked: Asked,
    search: &str,
    volumes: &mut Volumes,
) -> Result<ZfsRecovery, StackError> {
    let Asked { pool, scenario, watch } = asked;
    let name = &pool.spec.pool;
    watch.stage("zpool import");
    let argv = ["zpool", "import", "-o", "cachefile=none", "-d", search, name];
    let import = control.exec(&vdev::command(pool, &argv), TOOL)?;
    let mut recovery = ZfsRecovery { import, ..ZfsRecovery::unsaid() };
    if recovery.import.code != Some(0) {
        return Ok(recovery);
    }
    let messages = control.read_file("/proc/spl/kstat/zfs/dbgmsg")?;
    recovery.used = zfs_text::used_txg(&messages, name);
    // An intent log is replayed when its dataset is mounted, and a volume's when its device comes: one
    // that is not would look lost.
    check_properties(control, pool, scenario)?;
    if let Holds::Volumes { .. } = pool.holds {
        *volumes = volumes::recover(control, pool, scenario, watch)?;
    }
    watch.stage("zpool scrub");
    let status = scrub(control, name)?;
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
