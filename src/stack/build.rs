//! Builds a scenario's stack in a guest with the real tools, and checks that it is what was asked.

use super::scenario::{DISK_MOUNT, Holds, PlainFs, PlainSpec, Scenario, Stack};
use super::{plain, pool, volumes};
use crate::agent::protocol::Request;
use crate::guest::control::Control;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::verify::txgs::TxgLimits;
use std::time::Duration;

/// For tools that take seconds even in emulation.
pub(super) const TOOL: Duration = Duration::from_secs(120);
/// For requests without a tool.
pub(super) const SHORT: Duration = Duration::from_secs(30);

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
    /// A mount option that the kernel does not show.
    #[error(
        "the mount option {option:?} is not in effect: the kernel shows {found:?}; leave out an option that is the default, for it shows none"
    )]
    Option {
        /// Which.
        option: String,
        /// What it shows.
        found: String,
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

/// Makes the stack on `device` and checks it. A pool says under which limits it closes its groups.
pub fn build(
    control: &mut Control,
    scenario: &Scenario,
    device: &str,
    watch: &Watch,
) -> Result<Option<TxgLimits>, StackError> {
    match scenario.stack.get() {
        Stack::Zfs(pool) => {
            watch.stage("making the pool, what it stands on and what it holds");
            let limits = pool::build(control, pool, scenario, device)?;
            if let Holds::Volumes { .. } = pool.holds {
                watch.stage("making ext4 on the volumes");
                volumes::build(control, pool, scenario)?;
            }
            Ok(Some(limits))
        }
        Stack::Plain(fs, spec) => {
            watch.stage(format!("making {fs} on the disk"));
            plain::build(control, (fs, spec), scenario, device)?;
            Ok(None)
        }
    }
}

/// Mounts the disk's file system; that replays its journal.
pub fn mount_disk(
    control: &mut Control,
    fs: PlainFs,
    spec: &PlainSpec,
    device: &str,
) -> Result<(), StackError> {
    mount_at(control, fs, spec, device, DISK_MOUNT)
}

/// The same at another place.
pub(super) fn mount_at(
    control: &mut Control,
    fs: PlainFs,
    spec: &PlainSpec,
    device: &str,
    target: &str,
) -> Result<(), StackError> {
    let mount = Request::Mount {
        source: device.to_owned(),
        target: target.to_owned(),
        fstype: fs.name().to_owned(),
        options: spec.mount_options.clone(),
    };
    control.call(mount, SHORT)?;
    Ok(())
}

/// Brings everything written so far to the disk, on every layer.
pub fn settle(control: &mut Control, scenario: &Scenario, device: &str) -> Result<(), StackError> {
    match scenario.stack.get() {
        Stack::Zfs(pool) => pool::settle(control, pool, device),
        Stack::Plain(..) => plain::settle(control, device),
    }
}

/// Versions of the stack's tools, as they print them.
pub fn versions(control: &mut Control, scenario: &Scenario) -> Result<String, StackError> {
    let argv = match scenario.stack.get() {
        Stack::Zfs(_) => &["zfs", "version"],
        Stack::Plain(fs, _) => fs.version(),
    };
    // mkfs.ext4 prints its version where others print errors.
    let result = control.run(argv, SHORT)?;
    let lines = result.stdout.lines().chain(result.stderr.lines()).map(str::trim);
    Ok(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(", "))
}
