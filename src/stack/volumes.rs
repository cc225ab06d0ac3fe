//! Volumes of a pool with ext4 on each: made, recovered and let go of.

use super::build::{StackError, TOOL, mount_at};
use super::scenario::{Discard, PlainFs, Pool, Scenario};
use super::{plain, vdev};
use crate::agent::protocol::Request;
use crate::guest::control::Control;
use crate::guest::progress::Watch;
use crate::verify::consistent::PlainRecovery;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the module may take to make a volume's device.
const DEVICE: Duration = Duration::from_secs(60);

fn device(control: &mut Control, pool: Pool, name: &str) -> Result<String, StackError> {
    Ok(control.find_volume(&format!("{}/{name}", pool.spec.pool), DEVICE)?)
}

/// Makes ext4 on each volume, mounts it where its dataset's files are to be, and checks its options.
pub fn build(control: &mut Control, pool: Pool, scenario: &Scenario) -> Result<(), StackError> {
    let spec = pool.spec.on_volumes();
    for name in scenario.dataset.keys() {
        let (device, target) = (device(control, pool, name)?, scenario.mountpoint(name));
        // A new volume is blank: a discard would only write to the pool.
        control.run(&PlainFs::Ext4.mkfs(&device, Discard::Leave), TOOL)?;
        mount_at(control, PlainFs::Ext4, &spec, &device, &target)?;
        plain::check_options(control, &spec, &target)?;
    }
    Ok(())
}

/// Before anything was tried.
pub fn untried(scenario: &Scenario) -> BTreeMap<String, PlainRecovery> {
    let of = |name: &String| (name.clone(), PlainRecovery::of_nothing(PlainFs::Ext4));
    scenario.dataset.keys().map(of).collect()
}

/// Lets ext4's own tools recover and check each volume of the imported pool.
pub fn recover(
    control: &mut Control,
    pool: Pool,
    scenario: &Scenario,
    watch: &Watch,
) -> Result<BTreeMap<String, PlainRecovery>, StackError> {
    let spec = pool.spec.on_volumes();
    let mut all = BTreeMap::new();
    for name in scenario.dataset.keys() {
        let (device, target) = (device(control, pool, name)?, scenario.mountpoint(name));
        let on = plain::On { device: &device, target: &target };
        let recovery = plain::recover(control, (PlainFs::Ext4, &spec), on, watch)?;
        all.insert(name.clone(), recovery);
    }
    Ok(all)
}

/// Unmounts the volumes that are mounted, so that their pool can be exported.
pub fn release(control: &mut Control, scenario: &Scenario) -> Result<(), StackError> {
    for name in scenario.dataset.keys() {
        let target = scenario.mountpoint(name);
        if vdev::is_mounted(control, &target)? {
            control.call(Request::Unmount { target }, TOOL)?;
        }
    }
    Ok(())
}
