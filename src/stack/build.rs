//! Builds a scenario's stack in a guest with the real tools, and checks that it is what was asked.

use super::scenario::{DatasetSpec, Scenario, StackKind};
use super::zfs;
use crate::agent::protocol::Request;
use crate::guest::control::Control;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::verify::txgs::TxgLimits;
use std::time::Duration;

/// Where the disk's file system is mounted in the guest.
pub const DISK_MOUNT: &str = "/mnt";
/// What `settle` changes: a user property, which means nothing to ZFS.
const SETTLED: &str = "plugpull:settled=yes";
/// For tools that take seconds even in emulation.
const TOOL: Duration = Duration::from_secs(120);
/// For requests without a tool.
const SHORT: Duration = Duration::from_secs(30);

/// Why a stack is not there.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The guest or one of its tools failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A property or parameter is not what the scenario says.
    #[error("{what} is {found:?} in the guest where the scenario says {expected:?}")]
    NotAsAsked {
        /// Which.
        what: String,
        /// Its value in the guest.
        found: String,
        /// Its value in the scenario.
        expected: String,
    },
    /// A tool or kernel file said something that cannot be read.
    #[error("cannot read {what} of the guest: {text:?}")]
    Unreadable {
        /// What it should have been.
        what: &'static str,
        /// What it said.
        text: String,
    },
}

/// The path of the pool's file in the guest.
pub fn pool_file(scenario: &Scenario) -> String {
    format!("{DISK_MOUNT}/{}.img", scenario.stack.pool)
}

/// Makes the stack on `device` and checks it. The pool's transaction groups are limited as told.
pub fn build(
    control: &mut Control,
    scenario: &Scenario,
    device: &str,
    watch: &Watch,
) -> Result<TxgLimits, StackError> {
    match scenario.stack.kind {
        StackKind::ZfsInAFile => {
            watch.stage("making ext4 on the disk");
            make_ext4(control, device)?;
            let limits = set_parameters(control, scenario)?;
            watch.stage("making the pool in a file, and its datasets");
            make_pool(control, scenario)?;
            make_datasets(control, scenario)?;
            check_properties(control, scenario)?;
            Ok(limits)
        }
    }
}

/// Inode tables and journal are written now, not by a kernel thread during the load.
fn make_ext4(control: &mut Control, device: &str) -> Result<(), StackError> {
    let now = "lazy_itable_init=0,lazy_journal_init=0";
    control.run(&["mkfs.ext4", "-q", "-F", "-E", now, device], TOOL)?;
    mount_ext4(control, device)
}

/// Mounts the disk's file system; that replays its journal.
pub fn mount_ext4(control: &mut Control, device: &str) -> Result<(), StackError> {
    let mount = Request::Mount {
        source: device.to_owned(),
        target: DISK_MOUNT.to_owned(),
        fstype: "ext4".to_owned(),
        options: String::new(),
    };
    control.call(mount, SHORT)?;
    Ok(())
}

fn parameter(name: &str) -> String {
    format!("/sys/module/zfs/parameters/{name}")
}

fn read_parameter(control: &mut Control, name: &str) -> Result<u64, StackError> {
    let text = control.read_file(&parameter(name))?;
    text.trim()
        .parse()
        .map_err(|_| StackError::Unreadable { what: "a ZFS module parameter", text: text.clone() })
}

fn set_parameter(control: &mut Control, name: &str, value: u64) -> Result<(), StackError> {
    control.write_file(&parameter(name), &value.to_string())?;
    match read_parameter(control, name)? {
        found if found == value => Ok(()),
        found => Err(StackError::NotAsAsked {
            what: name.to_owned(),
            found: found.to_string(),
            expected: value.to_string(),
        }),
    }
}

fn set_parameters(control: &mut Control, scenario: &Scenario) -> Result<TxgLimits, StackError> {
    let timeout_s = u64::from(scenario.stack.txg_timeout_s);
    set_parameter(control, "zfs_txg_timeout", timeout_s)?;
    if let Some(mib) = scenario.stack.dirty_data_max_mib {
        set_parameter(control, "zfs_dirty_data_max", mib << 20)?;
    }
    let max = read_parameter(control, "zfs_dirty_data_max")?;
    let percent = read_parameter(control, "zfs_dirty_data_sync_percent")?;
    Ok(TxgLimits { timeout_ns: timeout_s * 1_000_000_000, dirty_bytes: max / 100 * percent })
}

fn make_pool(control: &mut Control, scenario: &Scenario) -> Result<(), StackError> {
    let file = pool_file(scenario);
    let bytes = scenario.stack.pool_mib << 20;
    control.call(Request::SparseFile { path: file.clone(), bytes }, SHORT)?;
    let create = [
        "zpool",
        "create",
        "-o",
        "autotrim=on",
        "-o",
        "cachefile=none",
        &scenario.stack.pool,
        &file,
    ];
    control.run(&create, TOOL)?;
    Ok(())
}

/// The properties that a scenario gives a dataset, as `zfs get -p` prints them.
fn given_properties(dataset: &DatasetSpec) -> Vec<(&'static str, String)> {
    let mut given = vec![("sync", dataset.sync.as_str().to_owned())];
    let bytes = dataset.recordsize_kib.map(|kib| (u64::from(kib) << 10).to_string());
    given.extend(bytes.map(|value| ("recordsize", value)));
    given.extend(dataset.compression.clone().map(|value| ("compression", value)));
    given.extend(dataset.logbias.clone().map(|value| ("logbias", value)));
    given
}

fn make_datasets(control: &mut Control, scenario: &Scenario) -> Result<(), StackError> {
    for (name, dataset) in &scenario.dataset {
        let mut argv = vec!["zfs".to_owned(), "create".to_owned()];
        for (property, value) in given_properties(dataset) {
            argv.extend(["-o".to_owned(), format!("{property}={value}")]);
        }
        argv.push(format!("{}/{name}", scenario.stack.pool));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        control.run(&argv, TOOL)?;
    }
    Ok(())
}

/// Every property that a verdict rests on must be in effect, and every dataset mounted.
pub fn check_properties(control: &mut Control, scenario: &Scenario) -> Result<(), StackError> {
    for (name, dataset) in &scenario.dataset {
        let full = format!("{}/{name}", scenario.stack.pool);
        let get = ["zfs", "get", "-Hp", "-o", "name,property,value,source", "all", &full];
        let text = control.run(&get, TOOL)?.stdout;
        let unreadable =
            || StackError::Unreadable { what: "`zfs get`", text: text.trim().to_owned() };
        let found = zfs::parse_properties(&text).ok_or_else(unreadable)?;
        let mut expected = given_properties(dataset);
        expected.push(("mounted", "yes".to_owned()));
        for (property, expected) in expected {
            let line = found.iter().find(|line| line.property == property);
            let value = &line.ok_or_else(unreadable)?.value;
            if *value != expected {
                let (what, found) = (format!("{property} of {full}"), value.clone());
                return Err(StackError::NotAsAsked { what, found, expected });
            }
        }
    }
    Ok(())
}

/// Brings everything written so far to the disk, on every layer: the pool, then the file system
/// that holds it.
///
/// A group in which nothing changed writes no uberblock (OpenZFS, `vdev_config_sync`), so when the
/// timer had closed the last group of the set-up already, `zpool sync` alone would leave nothing on
/// the disk that shows it durable. A property of the pool's own changes one more group first.
pub fn settle(control: &mut Control, scenario: &Scenario) -> Result<(), StackError> {
    let pool = scenario.stack.pool.as_str();
    control.run(&["zfs", "set", SETTLED, pool], TOOL)?;
    control.run(&["zpool", "sync", pool], TOOL)?;
    control.run(&["busybox", "sync"], TOOL)?;
    Ok(())
}
