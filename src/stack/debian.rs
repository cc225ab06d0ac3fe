//! A small Debian on a stack, into which dpkg and apt install packages that are there already.
//!
//! It is unpacked from the full root's disk, which must be attached, and its packages stay on that
//! disk: its only apt source is a folder that is shown in it. So it needs no network.

use super::build::StackError;
use super::full_root::{FULL_ROOT, bind, chroot, inside, mount, unmount_all};
use crate::guest::control::Control;
use std::time::Duration;

/// The packages with their index: the same place on the disk and in an unpacked Debian.
const DEBS: &str = "/plugpull/debs";
/// The Debian to unpack, as programs of the full root see it.
const ARCHIVE: &str = "/plugpull/debian.tar";
/// Unpacking writes some 65 MB in some 2,200 files.
const UNPACK: Duration = Duration::from_secs(300);

/// Unpacks it into a folder that exists, given as programs of the full root see it (what
/// [`super::full_root::show`] returned).
pub fn unpack(control: &mut Control, seen: &str) -> Result<(), StackError> {
    let argv = ["tar", "--extract", "--numeric-owner", "--file", ARCHIVE, "--directory", seen];
    control.run(&inside(&argv), UNPACK)?;
    Ok(())
}

/// Mounts in it what programs need, and its packages. `folder` is its place in the guest. Nothing
/// of this lasts over a cut.
pub fn enter(control: &mut Control, folder: &str) -> Result<(), StackError> {
    mount(control, "proc", &format!("{folder}/proc"), "proc", "")?;
    mount(control, "devtmpfs", &format!("{folder}/dev"), "devtmpfs", "")?;
    mount(control, "devpts", &format!("{folder}/dev/pts"), "devpts", "")?;
    bind(control, &format!("{FULL_ROOT}{DEBS}"), &format!("{folder}{DEBS}"))
}

/// Undoes [`enter`], so that the stack below can be unmounted or exported.
pub fn leave(control: &mut Control, folder: &str) -> Result<(), StackError> {
    for place in ["/proc", "/dev", DEBS] {
        unmount_all(control, &format!("{folder}{place}"))?;
    }
    Ok(())
}

/// The words that run a program in it, asking no questions.
pub fn within<'a>(folder: &'a str, argv: &[&'a str]) -> Vec<&'a str> {
    [&chroot(folder)[..], &["DEBIAN_FRONTEND=noninteractive"], argv].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_in_it_without_questions() {
        let argv = within("/tank/customer", &["dpkg", "--audit"]).join(" ");
        let expected = "busybox chroot /tank/customer /usr/bin/env DEBIAN_FRONTEND=noninteractive ";
        assert!(argv.starts_with(expected) && argv.ends_with(" dpkg --audit"), "{argv}");
    }
}
