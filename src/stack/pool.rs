//! A pool: made with ZFS's own tools, and checked to be what was asked.

use super::build::{StackError, TOOL};
use super::scenario::{DatasetSpec, Holds, Pool, Scenario, ZfsSpec};
use super::{plain, vdev, zfs as zfs_text};
use crate::guest::control::Control;
use crate::verify::txgs::TxgLimits;

/// What `settle` changes: a user property, which means nothing to ZFS.
const SETTLED: &str = "plugpull:settled=yes";
/// Every property that a scenario can give a dataset or a volume, and whether it is mounted.
const PROPERTIES: &str = "sync,recordsize,volblocksize,volsize,compression,logbias,mounted";

/// Makes the pool and its datasets on a blank disk, under the limits that the scenario gives.
pub fn build(
    control: &mut Control,
    pool: Pool,
    scenario: &Scenario,
    device: &str,
) -> Result<TxgLimits, StackError> {
    let limits = set_parameters(control, pool.spec)?;
    let path = vdev::make(control, pool, device)?;
    make_pool(control, pool, &path)?;
    make_datasets(control, pool, scenario)?;
    check_properties(control, pool, scenario)?;
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

fn make_pool(control: &mut Control, pool: Pool, path: &str) -> Result<(), StackError> {
    let mut argv = vec!["zpool", "create", "-o", "autotrim=on", "-o", "cachefile=none"];
    if let Holds::Volumes { .. } = pool.holds {
        // Nothing of the pool itself is mounted: its volumes' file systems are, in its place.
        argv.extend(["-m", "none"]);
    }
    argv.extend([&pool.spec.pool, path]);
    control.run(&vdev::command(pool, &argv), TOOL)?;
    Ok(())
}

/// The properties that a scenario gives a dataset or a volume, as `zfs get -p` prints them.
fn given_properties(holds: Holds, dataset: &DatasetSpec) -> Vec<(&'static str, String)> {
    let mut given = vec![("sync", dataset.sync.as_str().to_owned())];
    let block_size = match holds {
        Holds::Datasets => "recordsize",
        Holds::Volumes { .. } => "volblocksize",
    };
    let bytes = dataset.recordsize_kib.map(|kib| (u64::from(kib) << 10).to_string());
    given.extend(bytes.map(|value| (block_size, value)));
    given.extend(dataset.compression.clone().map(|value| ("compression", value)));
    given.extend(dataset.logbias.clone().map(|value| ("logbias", value)));
    given
}

/// The properties that it must have.
fn expected_properties(holds: Holds, dataset: &DatasetSpec) -> Vec<(&'static str, String)> {
    let mut expected = given_properties(holds, dataset);
    expected.push(match holds {
        Holds::Datasets => ("mounted", "yes".to_owned()),
        Holds::Volumes { mib } => ("volsize", (mib << 20).to_string()),
    });
    expected
}

/// The command that makes it. A volume is sparse, as providers make them.
fn create(pool: Pool, name: &str, dataset: &DatasetSpec) -> Vec<String> {
    let mut argv = vec!["zfs".to_owned(), "create".to_owned()];
    if let Holds::Volumes { mib } = pool.holds {
        argv.extend(["-s".to_owned(), "-V".to_owned(), format!("{mib}M")]);
    }
    for (property, value) in given_properties(pool.holds, dataset) {
        argv.extend(["-o".to_owned(), format!("{property}={value}")]);
    }
    argv.push(format!("{}/{name}", pool.spec.pool));
    argv
}

fn make_datasets(control: &mut Control, pool: Pool, scenario: &Scenario) -> Result<(), StackError> {
    for (name, dataset) in &scenario.dataset {
        let argv = create(pool, name, dataset);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        control.run(&argv, TOOL)?;
    }
    Ok(())
}

/// Every property that a verdict rests on must be in effect, and every dataset mounted.
pub fn check_properties(
    control: &mut Control,
    pool: Pool,
    scenario: &Scenario,
) -> Result<(), StackError> {
    // All in one call: a tool's start takes longer than its work.
    let columns = "name,property,value,source";
    let mut get = vec!["zfs", "get", "-Hp", "-o", columns, PROPERTIES];
    let names: Vec<String> =
        scenario.dataset.keys().map(|name| format!("{}/{name}", pool.spec.pool)).collect();
    get.extend(names.iter().map(String::as_str));
    let text = control.run(&get, TOOL)?.stdout;
    let unreadable = || StackError::Unreadable { what: "`zfs get`", text: text.trim().to_owned() };
    let found = zfs_text::parse_properties(&text).ok_or_else(unreadable)?;
    for (full, dataset) in names.iter().zip(scenario.dataset.values()) {
        for (property, expected) in expected_properties(pool.holds, dataset) {
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

/// Brings everything written so far to the disk, on every layer: the file systems on volumes, the
/// pool, then the file system that holds it, with a flush of the disk behind them: a pool or a file
/// system may have been told to ask for none.
///
/// A group in which nothing changed writes no uberblock (OpenZFS, `vdev_config_sync`), so when the
/// timer had closed the last group of the set-up already, `zpool sync` alone would leave nothing on
/// the disk that shows it durable. A property of the pool's own changes one more group first.
pub fn settle(control: &mut Control, pool: Pool, device: &str) -> Result<(), StackError> {
    let name = pool.spec.pool.as_str();
    if let Holds::Volumes { .. } = pool.holds {
        control.run(&["busybox", "sync"], TOOL)?;
    }
    control.run(&["zfs", "set", SETTLED, name], TOOL)?;
    control.run(&["zpool", "sync", name], TOOL)?;
    plain::settle(control, device)
}

#[cfg(test)]
mod tests {
    use super::super::settings::{DEFAULT, load};
    use super::*;

    fn command(name: &str, sets: &[&str]) -> String {
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        let scenario = load(name, &sets).expect("a scenario");
        let pool = scenario.stack.pool().expect("a pool");
        create(pool, "customer", &scenario.dataset["customer"]).join(" ")
    }

    #[test]
    fn a_dataset_and_a_volume_get_the_properties_that_mean_something_for_them() {
        let sets = ["customer.recordsize_kib=16", "customer.logbias=throughput"];
        let dataset = command(DEFAULT, &sets);
        let expected = "-o sync=disabled -o recordsize=16384 -o logbias=throughput tank/customer";
        assert_eq!(dataset, format!("zfs create {expected}"));
        let volume = command("zvol-ext4", &[&sets[..], &["stack.zvol_mib=96"]].concat());
        let expected = expected.replace("recordsize", "volblocksize");
        assert_eq!(volume, format!("zfs create -s -V 96M {expected}"));
    }

    #[test]
    fn a_dataset_must_be_mounted_and_a_volume_have_its_size() {
        let scenario = load(DEFAULT, &[]).expect("a scenario");
        let customer = &scenario.dataset["customer"];
        let of_dataset = expected_properties(Holds::Datasets, customer);
        assert!(of_dataset.contains(&("mounted", "yes".to_owned())), "{of_dataset:?}");
        let of_volume = expected_properties(Holds::Volumes { mib: 2 }, customer);
        assert!(of_volume.contains(&("volsize", "2097152".to_owned())), "{of_volume:?}");
        assert!(of_volume.iter().all(|(property, _)| *property != "mounted"), "{of_volume:?}");
    }
}
