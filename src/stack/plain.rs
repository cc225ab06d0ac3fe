//! A plain file system on the disk: made with its own tools, mounted, and checked to be what was asked.

use super::build::{SHORT, StackError, TOOL, mount_at, mount_disk};
use super::scenario::{DISK_MOUNT, Discard, PlainFs, PlainSpec, Scenario};
use crate::agent::protocol::{ExecResult, Request};
use crate::guest::control::Control;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::verify::consistent::{PlainRecovery, Step};
use std::time::Duration;

/// A checker's limit: generous, for emulation is slow.
const CHECKER: Duration = Duration::from_secs(300);

/// Makes the file system, mounts it and makes a folder for each dataset.
pub fn build(
    control: &mut Control,
    (fs, spec): (PlainFs, &PlainSpec),
    scenario: &Scenario,
    device: &str,
) -> Result<(), StackError> {
    control.run(&fs.mkfs(device, Discard::First), TOOL)?;
    mount_disk(control, fs, spec, device)?;
    check_options(control, spec, DISK_MOUNT)?;
    for name in scenario.dataset.keys() {
        control.run(&["busybox", "mkdir", &scenario.mountpoint(name)], SHORT)?;
    }
    Ok(())
}

/// Every mount option that a verdict rests on must be in effect.
pub fn check_options(
    control: &mut Control,
    spec: &PlainSpec,
    target: &str,
) -> Result<(), StackError> {
    let mounts = control.read_file("/proc/mounts")?;
    let shown = shown_options(&mounts, target)
        .ok_or(StackError::Unreadable { what: "/proc/mounts", text: mounts.clone() })?;
    match spec.options().find(|option| !is_shown(option, shown)) {
        None => Ok(()),
        Some(option) => {
            Err(StackError::Option { option: option.to_owned(), found: shown.to_owned() })
        }
    }
}

/// The options of a mount point, as /proc/mounts shows them; of several mounts the last is on top.
pub fn shown_options<'t>(mounts: &'t str, target: &str) -> Option<&'t str> {
    let fields = |line: &'t str| {
        let mut fields = line.split(' ');
        Some((fields.nth(1)?, fields.nth(1)?))
    };
    let mut newest_first = mounts.lines().rev().filter_map(fields);
    newest_first.find(|(at, _)| *at == target).map(|(_, options)| options)
}

/// Whether an option is among those shown. Ext4 shows `barrier=0` by its other name.
pub fn is_shown(option: &str, shown: &str) -> bool {
    let name = match option {
        "barrier=0" => "nobarrier",
        option => option,
    };
    shown.split(',').any(|other| other == name)
}

/// Brings everything written so far to the disk, with a flush of the device behind it: the file
/// system's own may have been mounted away, or may not be needed any more.
pub fn settle(control: &mut Control, device: &str) -> Result<(), StackError> {
    control.run(&["busybox", "sync"], TOOL)?;
    control.call(Request::Fsync { path: device.to_owned() }, SHORT)?;
    Ok(())
}

/// A file system's device and where it is mounted.
#[derive(Debug, Clone, Copy)]
pub struct On<'a> {
    /// The device.
    pub device: &'a str,
    /// The mount point.
    pub target: &'a str,
}

/// Mounts the crash state, which replays its log, checks it unmounted, and mounts it again. What the
/// kernel or the checker refuses is an outcome, not an error.
pub fn recover(
    control: &mut Control,
    (fs, spec): (PlainFs, &PlainSpec),
    on: On,
    watch: &Watch,
) -> Result<PlainRecovery, StackError> {
    let On { device, target } = on;
    let mut recovery = PlainRecovery::of_nothing(fs);
    watch.stage(format!("mounting {fs} (log replay)"));
    recovery.mount = step(mount_at(control, fs, spec, device, target))?;
    if recovery.mount != Step::Done {
        return Ok(recovery);
    }
    let unmount = Request::Unmount { target: target.to_owned() };
    recovery.unmount = step(control.call(unmount, TOOL).map(drop).map_err(StackError::from))?;
    if recovery.unmount != Step::Done {
        return Ok(recovery);
    }
    watch.stage(format!("checking {fs}"));
    let checked: ExecResult = control.exec(&fs.checker(device), CHECKER)?;
    recovery.check = Some(checked);
    recovery.mount_read = step(mount_at(control, fs, spec, device, target))?;
    Ok(recovery)
}

/// A call that the guest's kernel refused is told from a guest that cannot be asked.
fn step(result: Result<(), StackError>) -> Result<Step, StackError> {
    match result {
        Ok(()) => Ok(Step::Done),
        Err(StackError::Guest(GuestError::Agent { words, .. })) => Ok(Step::Failed(words)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "proc /proc proc rw 0 0\n\
        /dev/vda /mnt ext4 rw,relatime,nobarrier,noauto_da_alloc,data=writeback 0 0\n\
        /dev/vdb /mnt2 xfs rw,relatime 0 0\n";

    #[test]
    fn an_option_is_in_effect_only_if_the_kernel_shows_it() {
        let shown = shown_options(MOUNTS, "/mnt").unwrap();
        for option in ["barrier=0", "nobarrier", "data=writeback", "noauto_da_alloc"] {
            assert!(is_shown(option, shown), "{option}");
        }
        for option in ["barrier=1", "data=journal", "auto_da_alloc", "data", "rela"] {
            assert!(!is_shown(option, shown), "{option}");
        }
        assert_eq!(shown_options(MOUNTS, "/mnt2"), Some("rw,relatime"));
        assert_eq!(shown_options(MOUNTS, "/mn"), None);
        let twice = format!("{MOUNTS}/dev/vdc /mnt ext4 rw 0 0\n");
        assert_eq!(shown_options(&twice, "/mnt"), Some("rw"));
    }
}
