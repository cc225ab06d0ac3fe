//! What a pool stands on: made on a blank disk, shown again from a crash state, and let go of.
//!
//! What always holds: a pool is given a file or a partition, never a whole device, for then ZFS would
//! make a partition itself and wait for a udev that a guest does not have.

use super::build::{SHORT, StackError, TOOL, mount_at};
use super::plain::check_options;
use super::scenario::{DISK_MOUNT, Discard, PlainFs, Pool, Vdev};
use crate::agent::protocol::Request;
use crate::guest::control::Control;
use crate::guest::error::GuestError;
use std::time::Duration;

/// How long the kernel may take to show a partition whose table it has read.
const PARTITION: Duration = Duration::from_secs(10);
/// Where a table's one partition begins, as today's tools make it. It ends where the disk does.
const PARTITION_START_MIB: u64 = 1;

/// libzfs waits three seconds for what udev knows of a device, which here nobody will ever say; this
/// leaves udev's names out of the labels (zpool(8)).
const WITHOUT_UDEV: [&str; 3] = ["busybox", "env", "ZFS_VDEV_DEVID_OPT_OUT=YES"];

/// Where a disk's parts appear in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where its file system is mounted, if it has one.
    pub mount: &'static str,
    /// The loop device on its file, if there is one.
    pub loop_device: &'static str,
}

/// The disk that is loaded, or recovered and read.
pub const MAIN: Place = Place { mount: DISK_MOUNT, loop_device: "/dev/loop0" };
/// The disk that only the leak check sees.
pub const CHECKED: Place = Place { mount: "/mnt-check", loop_device: "/dev/loop1" };

/// The path of the pool's file under a mount.
fn file(pool: Pool, place: Place) -> String {
    format!("{}/{}.img", place.mount, pool.spec.pool)
}

/// The first partition of a disk: behind a name that ends in a digit comes a `p`.
pub fn first_partition(device: &str) -> String {
    match device.ends_with(|c: char| c.is_ascii_digit()) {
        true => format!("{device}p1"),
        false => format!("{device}1"),
    }
}

/// A command of ZFS's own that looks at the pool's devices, as it is to be run.
pub fn command<'a>(pool: Pool, argv: &[&'a str]) -> Vec<&'a str> {
    let before: &[&str] = if pool.vdev == Vdev::File { &[] } else { &WITHOUT_UDEV };
    [before, argv].concat()
}

/// Makes it on a blank disk, and returns its path as `zpool create` takes it.
pub fn make(control: &mut Control, pool: Pool, device: &str) -> Result<String, StackError> {
    if pool.vdev == Vdev::Partition {
        partition(control, device, Some(pool.spec.pool_mib))?;
        let path = first_partition(device);
        control.wait_for(&path, PARTITION)?;
        return Ok(path);
    }
    control.run(&PlainFs::Ext4.mkfs(device, Discard::First), TOOL)?;
    let host = pool.spec.host();
    mount_at(control, PlainFs::Ext4, &host, device, MAIN.mount)?;
    check_options(control, &host, MAIN.mount)?;
    let path = file(pool, MAIN);
    let bytes = pool.spec.pool_mib << 20;
    control.call(Request::SparseFile { path: path.clone(), bytes }, SHORT)?;
    match pool.vdev {
        Vdev::Loop { direct_io } => {
            partition(control, &path, None)?;
            attach(control, &path, MAIN, direct_io)
        }
        Vdev::File | Vdev::Partition => Ok(path),
    }
}

/// Shows what a crash state holds of it, and returns the path to look for the pool at: a folder or
/// a partition. What the kernel or a tool refuses is told in its words.
pub fn show(
    control: &mut Control,
    pool: Pool,
    device: &str,
    place: Place,
) -> Result<Result<String, String>, StackError> {
    match try_to_show(control, pool, device, place) {
        Ok(path) => Ok(Ok(path)),
        Err(StackError::Guest(GuestError::Agent { request, words })) => {
            Ok(Err(format!("could not {request}: {words}")))
        }
        Err(StackError::Guest(error @ GuestError::Tool { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

fn try_to_show(
    control: &mut Control,
    pool: Pool,
    device: &str,
    place: Place,
) -> Result<String, StackError> {
    if pool.vdev == Vdev::Partition {
        // The disk may have shown another state when the kernel last read its table.
        control.run(&["blockdev", "--rereadpt", device], TOOL)?;
        let path = first_partition(device);
        control.wait_for(&path, PARTITION)?;
        return Ok(path);
    }
    mount_at(control, PlainFs::Ext4, &pool.spec.host(), device, place.mount)?;
    match pool.vdev {
        Vdev::Loop { direct_io } => attach(control, &file(pool, place), place, direct_io),
        Vdev::File | Vdev::Partition => Ok(place.mount.to_owned()),
    }
}

/// Lets go of a disk: its loop device is detached, its file system unmounted. A pool on it must have
/// been exported.
pub fn let_go(control: &mut Control, place: Place) -> Result<(), StackError> {
    if control.read_file(&loop_file(place, "backing_file")).is_ok() {
        control.run(&["losetup", "--detach", place.loop_device], TOOL)?;
    }
    if is_mounted(control, place.mount)? {
        control.call(Request::Unmount { target: place.mount.to_owned() }, TOOL)?;
    }
    Ok(())
}

/// Whether something is mounted there.
pub fn is_mounted(control: &mut Control, target: &str) -> Result<bool, StackError> {
    let mounts = control.read_file("/proc/mounts")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(1) == Some(target)))
}

/// Writes a table with one partition of this many MiB, or of all there is, to a disk or a file.
fn partition(control: &mut Control, target: &str, mib: Option<u64>) -> Result<(), StackError> {
    let size = mib.map_or_else(String::new, |mib| format!(", size={mib}MiB"));
    let line = format!("start={PARTITION_START_MIB}MiB{size}");
    let script = format!("echo '{line}' | sfdisk --quiet {target}");
    control.run(&["busybox", "sh", "-c", &script], TOOL)?;
    Ok(())
}

/// Puts the loop device on a file, and returns its partition.
fn attach(
    control: &mut Control,
    file: &str,
    place: Place,
    direct_io: bool,
) -> Result<String, StackError> {
    let mode = if direct_io { "--direct-io=on" } else { "--direct-io=off" };
    control.run(&["losetup", "--partscan", mode, place.loop_device, file], TOOL)?;
    // The kernel falls back to the page cache, without an error, where direct I/O cannot be had.
    let found = control.read_file(&loop_file(place, "dio"))?;
    let expected = if direct_io { "1" } else { "0" };
    if found.trim() != expected {
        return Err(StackError::NotAsAsked {
            what: format!("direct I/O of {}", place.loop_device),
            found: found.trim().to_owned(),
            expected: expected.to_owned(),
        });
    }
    let path = first_partition(place.loop_device);
    control.wait_for(&path, PARTITION)?;
    Ok(path)
}

/// A file of the loop device in sysfs, which is there only while the device is attached.
fn loop_file(place: Place, name: &str) -> String {
    format!("/sys/block/{}/loop/{name}", place.loop_device.trim_start_matches("/dev/"))
}

#[cfg(test)]
mod tests {
    use super::super::settings::load;
    use super::*;

    #[test]
    fn a_partition_is_named_as_the_kernel_names_it() {
        assert_eq!(first_partition("/dev/vda"), "/dev/vda1");
        assert_eq!(first_partition("/dev/nvme0n1"), "/dev/nvme0n1p1");
        assert_eq!(first_partition(MAIN.loop_device), "/dev/loop0p1");
    }

    #[test]
    fn a_pool_in_a_file_needs_nothing_of_udev_and_one_on_a_device_does_not_wait_for_it() {
        let of = |name| {
            let scenario = load(name, &[]).expect("a scenario");
            command(scenario.stack.pool().expect("a pool"), &["zpool", "import"]).join(" ")
        };
        assert_eq!(of("zfs-sync-disabled"), "zpool import");
        for name in ["zfs-on-partition", "zfs-on-loop"] {
            assert_eq!(of(name), "busybox env ZFS_VDEV_DEVID_OPT_OUT=YES zpool import");
        }
    }

    #[test]
    fn the_two_disks_share_no_place() {
        assert_ne!(MAIN.mount, CHECKED.mount);
        assert_ne!(loop_file(MAIN, "dio"), loop_file(CHECKED, "dio"));
        assert_eq!(loop_file(MAIN, "dio"), "/sys/block/loop0/loop/dio");
    }
}
