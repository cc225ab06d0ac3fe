//! A guest's second disk in use: a whole Debian at [`FULL_ROOT`], whose programs run in a chroot.
//!
//! What always holds: the disk is mounted read-only and can be given to any number of guests. What
//! its programs write goes to memory, or to folders of the stack that are shown below `/data`.

use super::build::{SHORT, StackError, TOOL};
use crate::agent::protocol::Request;
use crate::guest::Lab;
use crate::guest::control::Control;
use crate::guest::disk::{AddedDisk, DiskBus};
use crate::guest::full_root::FullRoot;
use crate::guest::running::Guest;
use crate::stack::scenario::Scenario;
use crate::workload::plan::Plan;

/// Where it is mounted in the guest.
pub const FULL_ROOT: &str = "/full";
/// PostgreSQL's programs, as its own programs see them.
pub const POSTGRESQL_BIN: &str = "/plugpull/postgresql/bin";
/// A new cluster to copy, as its own programs see it.
pub const NEW_CLUSTER: &str = "/plugpull/pgdata";
/// The user that owns a cluster.
pub const POSTGRES: &str = "postgres";

/// What is mounted in it: file system type, place and options.
const MOUNTS: [(&str, &str, &str); 8] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("devpts", "/dev/pts", ""),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("tmpfs", "/run", "mode=755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/data", "mode=755"),
];
/// The folders that programs expect to find and that a fresh `/dev` and `/run` do not have.
const FRESH: &str = "ln -sfn /proc/self/fd /dev/fd && \
    install -d -o postgres -g postgres -m 2775 /run/postgresql";

/// Plugs the disk in, mounts it, and mounts in it what programs expect. Give it back with
/// [`detach`].
pub fn attach(guest: &mut Guest, root: &FullRoot) -> Result<AddedDisk, StackError> {
    let disk = guest.add_disk(&root.disk(), DiskBus::VirtioBlk)?;
    let control = &mut guest.control;
    mount(control, &disk.device, FULL_ROOT, "ext4", "ro")?;
    for (fstype, place, options) in MOUNTS {
        mount(control, fstype, &format!("{FULL_ROOT}{place}"), fstype, options)?;
    }
    control.run(&inside(&["sh", "-c", FRESH]), TOOL)?;
    Ok(disk)
}

/// Gives a guest the full root if a plan's programs run in it.
pub fn attach_for(guest: &mut Guest, lab: &Lab, plan: &Plan) -> Result<(), StackError> {
    if !plan.datasets_in_full_root().is_empty() {
        attach(guest, &lab.full_root()?)?;
    }
    Ok(())
}

/// Shows the datasets whose programs run in the full root to these. Undo it with [`hide_all`] before
/// the stack is let go of.
pub fn show_all(control: &mut Control, scenario: &Scenario, plan: &Plan) -> Result<(), StackError> {
    let shown = |name: &str| show(control, &scenario.mountpoint(name), name).map(drop);
    plan.datasets_in_full_root().into_iter().try_for_each(shown)
}

/// Undoes [`show_all`]. A program that still uses a dataset makes this fail.
pub fn hide_all(control: &mut Control, plan: &Plan) -> Result<(), StackError> {
    let hide = |name: &str| unmount_all(control, &format!("{FULL_ROOT}{}", seen_at(name)));
    plan.datasets_in_full_root().into_iter().try_for_each(hide)
}

/// Where a dataset is, as programs of the full root see it.
pub fn seen_at(name: &str) -> String {
    format!("/data/{name}")
}

/// Shows a folder of the guest, such as a dataset's mount point, to the programs in the full root.
/// Returns its path as they see it.
pub fn show(control: &mut Control, folder: &str, name: &str) -> Result<String, StackError> {
    let seen = seen_at(name);
    bind(control, folder, &format!("{FULL_ROOT}{seen}"))?;
    Ok(seen)
}

/// Unmounts all of it and takes the disk out. A program of it that still runs makes this fail.
pub fn detach(guest: &mut Guest, disk: &AddedDisk) -> Result<(), StackError> {
    unmount_all(&mut guest.control, FULL_ROOT)?;
    guest.remove_disk(disk)?;
    Ok(())
}

/// The words that run a program in the full root, as root.
pub fn inside<'a>(argv: &[&'a str]) -> Vec<&'a str> {
    [&chroot(FULL_ROOT)[..], argv].concat()
}

/// The words before a program and its environment in another root. Busybox takes a name that is one
/// of its own for itself, whatever the root; `env` by its path looks into the root.
pub(super) fn chroot(root: &str) -> [&str; 4] {
    ["busybox", "chroot", root, "/usr/bin/env"]
}

/// The same as the user `postgres`: PostgreSQL refuses to run as root.
pub fn inside_as_postgres<'a>(argv: &[&'a str]) -> Vec<&'a str> {
    let user = ["setpriv", "--reuid", POSTGRES, "--regid", POSTGRES, "--init-groups"];
    inside(&[&user, argv].concat())
}

/// Shows a folder at another place too.
pub(super) fn bind(control: &mut Control, folder: &str, place: &str) -> Result<(), StackError> {
    mount(control, folder, place, "none", "bind")
}

pub(super) fn mount(
    control: &mut Control,
    source: &str,
    target: &str,
    fstype: &str,
    options: &str,
) -> Result<(), StackError> {
    let mount = Request::Mount {
        source: source.to_owned(),
        target: target.to_owned(),
        fstype: fstype.to_owned(),
        options: options.to_owned(),
    };
    control.call(mount, SHORT)?;
    Ok(())
}

/// Unmounts what is mounted at or below a place, newest first.
pub(super) fn unmount_all(control: &mut Control, place: &str) -> Result<(), StackError> {
    let mounts = control.read_file("/proc/mounts")?;
    for target in mounted_below(&mounts, place) {
        control.call(Request::Unmount { target: target.to_owned() }, TOOL)?;
    }
    Ok(())
}

/// The mount points at or below a place, newest first, of the text of /proc/mounts.
fn mounted_below<'t>(mounts: &'t str, place: &str) -> Vec<&'t str> {
    let is_below = |target: &&str| {
        target
            .strip_prefix(place)
            .is_some_and(|rest| matches!(rest.as_bytes().first(), None | Some(b'/')))
    };
    mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(is_below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_last_is_unmounted_first_and_others_stay() {
        let mounts = "proc /proc proc rw 0 0\n/dev/vdb /full ext4 ro 0 0\n\
            proc /full/proc proc rw 0 0\ntank/customer /full/data/customer zfs rw 0 0\n\
            /dev/vdc /full2 ext4 rw 0 0\ntank/customer /tank/customer zfs rw 0 0\n";
        let below = mounted_below(mounts, "/full");
        assert_eq!(below, ["/full/data/customer", "/full/proc", "/full"]);
        assert_eq!(mounted_below(mounts, "/none"), [""; 0]);
    }

    #[test]
    fn a_program_runs_in_the_root_as_root_or_as_the_database_s_user() {
        let argv = inside(&["true"]).join(" ");
        assert_eq!(argv, "busybox chroot /full /usr/bin/env true");
        let argv = inside_as_postgres(&["true"]).join(" ");
        let expected = "busybox chroot /full /usr/bin/env setpriv --reuid postgres ";
        assert!(argv.starts_with(expected) && argv.ends_with(" --init-groups true"), "{argv}");
    }
}
