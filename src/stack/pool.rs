//! A pool in a file: made with ZFS's own tools, and checked to be what was asked.

use super::build::{SHORT, StackError, TOOL};
use super::scenario::{DISK_MOUNT, DatasetSpec, Scenario, ZfsSpec};
use super::zfs as zfs_text;
use crate::agent::protocol::Request;
use crate::guest::control::Control;
use crate::verify::txgs::TxgLimits;

/// What `settle` changes: a user property, which means nothing to ZFS.
const SETTLED: &str = "plugpull:settled=yes";
/// Every property that a scenario can give a dataset, and whether it is mounted.
const PROPERTIES: &str = "sync,recordsize,compression,logbias,mounted";

/// The path of the pool's file in the guest.
pub fn pool_file(zfs: &ZfsSpec) -> String {
    format!("{DISK_MOUNT}/{}.img", zfs.pool)
}

/// Makes the pool and its datasets on the mounted disk, under the limits that the scenario gives.
pub fn build(
    control: &mut Control,
    zfs: &ZfsSpec,
    scenario: &Scenario,
) -> Result<TxgLimits, StackError> {
    let limits = set_parameters(control, zfs)?;
    make_pool(control, zfs)?;
    make_datasets(control, zfs, scenario)?;
    check_properties(control, zfs, scenario)?;
    Ok(limits)
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

fn set_parameters(control: &mut Control, zfs: &ZfsSpec) -> Result<TxgLimits, StackError> {
    let timeout_s = u64::from(zfs.txg_timeout_s);
    set_parameter(control, "zfs_txg_timeout", timeout_s)?;
    if let Some(mib) = zfs.dirty_data_max_mib {
        set_parameter(control, "zfs_dirty_data_max", mib << 20)?;
    }
    if zfs.nocacheflush {
        set_parameter(control, "zfs_nocacheflush", 1)?;
    }
    let max = read_parameter(control, "zfs_dirty_data_max")?;
    let percent = read_parameter(control, "zfs_dirty_data_sync_percent")?;
    Ok(TxgLimits { timeout_ns: timeout_s * 1_000_000_000, dirty_bytes: max / 100 * percent })
}

fn make_pool(control: &mut Control, zfs: &ZfsSpec) -> Result<(), StackError> {
    let file = pool_file(zfs);
    let bytes = zfs.pool_mib << 20;
    control.call(Request::SparseFile { path: file.clone(), bytes }, SHORT)?;
    let create = ["zpool", "create", "-o", "autotrim=on", "-o", "cachefile=none", &zfs.pool, &file];
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

fn make_datasets(
    control: &mut Control,
    zfs: &ZfsSpec,
    scenario: &Scenario,
) -> Result<(), StackError> {
    for (name, dataset) in &scenario.dataset {
        let mut argv = vec!["zfs".to_owned(), "create".to_owned()];
        for (property, value) in given_properties(dataset) {
            argv.extend(["-o".to_owned(), format!("{property}={value}")]);
        }
        argv.push(format!("{}/{name}", zfs.pool));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        control.run(&argv, TOOL)?;
    }
    Ok(())
}

/// Every property that a verdict rests on must be in effect, and every dataset mounted.
pub fn check_properties(
    control: &mut Control,
    zfs: &ZfsSpec,
    scenario: &Scenario,
) -> Result<(), StackError> {
    // All in one call: a tool's start takes longer than its work.
    let columns = "name,property,value,source";
    let mut get = vec!["zfs", "get", "-Hp", "-o", columns, PROPERTIES];
    let names: Vec<String> =
        scenario.dataset.keys().map(|name| format!("{}/{name}", zfs.pool)).collect();
    get.extend(names.iter().map(String::as_str));
    let text = control.run(&get, TOOL)?.stdout;
    let unreadable = || StackError::Unreadable { what: "`zfs get`", text: text.trim().to_owned() };
    let found = zfs_text::parse_properties(&text).ok_or_else(unreadable)?;
    for (full, dataset) in names.iter().zip(scenario.dataset.values()) {
        let mut expected = given_properties(dataset);
        expected.push(("mounted", "yes".to_owned()));
        for (property, expected) in expected {
            let mut lines = found.iter().filter(|line| line.name == *full);
            let line = lines.find(|line| line.property == property);
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
pub fn settle(control: &mut Control, zfs: &ZfsSpec) -> Result<(), StackError> {
    let pool = zfs.pool.as_str();
    control.run(&["zfs", "set", SETTLED, pool], TOOL)?;
    control.run(&["zpool", "sync", pool], TOOL)?;
    control.run(&["busybox", "sync"], TOOL)?;
    Ok(())
}
