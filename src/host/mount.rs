//! Mounts that have no place in any folder: fsopen(2), fsconfig(2), fsmount(2).
//!
//! What always holds: a mount is known by one descriptor alone, and closing it unmounts. No other
//! process sees it in its mount table, no mount point is needed, and none is left behind.

use super::error::HostError;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::os::fd::OwnedFd;

/// Mounts a file system of the kernel's own; `parameters` are its names and values.
pub(super) fn mount_detached(
    fstype: &str,
    parameters: &[(&str, &str)],
) -> Result<OwnedFd, HostError> {
    let missing = |source: Errno| HostError::Missing {
        doing: "use the kernel's file system",
        path: fstype.into(),
        source: source.into(),
        fix: "the kernel must have it (modprobe fuse), and be Linux 5.2 or later",
    };
    let context = fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC).map_err(missing)?;
    let failed = HostError::system("mount", fstype);
    let mount = || {
        parameters
            .iter()
            .try_for_each(|(key, value)| fsconfig_set_string(&context, *key, *value))?;
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    };
    mount().map_err(|errno: Errno| failed(errno))
}

/// Mounts what is on a device. An error is the kernel's answer to the options or to the state.
pub(super) fn mount_device(
    device: &str,
    fstype: &str,
    options: &str,
) -> Result<OwnedFd, nix::errno::Errno> {
    let mounted = try_mount_device(device, fstype, options);
    mounted.map_err(|errno| nix::errno::Errno::from_raw(errno.raw_os_error()))
}

fn try_mount_device(device: &str, fstype: &str, options: &str) -> Result<OwnedFd, Errno> {
    let (attributes, rest) = split_options(options);
    let context = fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", device)?;
    for option in rest {
        match option.split_once('=') {
            Some((key, value)) => fsconfig_set_string(&context, key, value)?,
            None => fsconfig_set_flag(&context, option)?,
        }
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Some words that people write among a file system's options belong to the mount.
fn split_options(options: &str) -> (MountAttrFlags, Vec<&str>) {
    let (mut attributes, mut rest) = (MountAttrFlags::empty(), Vec::new());
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "rw" | "defaults" | "relatime" => {}
            "ro" => {
                attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
                rest.push(option);
            }
            "noatime" => attributes |= MountAttrFlags::MOUNT_ATTR_NOATIME,
            "strictatime" => attributes |= MountAttrFlags::MOUNT_ATTR_STRICTATIME,
            "nodiratime" => attributes |= MountAttrFlags::MOUNT_ATTR_NODIRATIME,
            other => rest.push(other),
        }
    }
    (attributes, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_mount_are_told_apart_from_those_of_the_file_system() {
        let (attributes, rest) = split_options("rw,noatime,data=ordered,discard,sync");
        assert_eq!(attributes, MountAttrFlags::MOUNT_ATTR_NOATIME);
        assert_eq!(rest, ["data=ordered", "discard", "sync"]);
        assert_eq!(split_options(""), (MountAttrFlags::empty(), Vec::new()));
    }
}
