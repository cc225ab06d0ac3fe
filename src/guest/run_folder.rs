//! The short-lived files of one guest, and the removal of those that a killed tool left.
//!
//! `/tmp/plugpull-<uid>/<pid>-<start>-<n>/` holds sockets and temporary files; its name says which
//! process owns it. The path is short because a Unix socket's name has room for 107 bytes. A folder
//! whose owner lives is never touched.

use crate::guest::error::GuestError;
use crate::guest::process::ProcessId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Names the QEMU that works in a folder, as `<pid> <start>`.
const QEMU_FILE: &str = "qemu.pid";
/// How long a killed QEMU may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A folder of this process, removed when dropped.
#[derive(Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes a new, empty, private folder.
    pub fn new() -> Result<RunFolder, GuestError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = parent()?;
        let ProcessId { pid, start } = ProcessId::own();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{pid}-{start}-{number}"));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(GuestError::file("make the folder", &path))?;
        Ok(RunFolder(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves a note for a later sweep: this process works in here.
    pub fn note_qemu(&self, pid: u32) -> Result<(), GuestError> {
        let Some(ProcessId { pid, start }) = ProcessId::of(pid) else { return Ok(()) };
        let path = self.0.join(QEMU_FILE);
        fs::write(&path, format!("{pid} {start}\n")).map_err(GuestError::file("write", &path))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What stays is removed by the next sweep.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The folder of this user's run folders. In /tmp anyone can take the name first, so it must be ours
/// alone.
fn parent() -> Result<PathBuf, GuestError> {
    let uid = Uid::effective().as_raw();
    let path = PathBuf::from(format!("/tmp/plugpull-{uid}"));
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(GuestError::file("make the folder", &path))?,
    }
    let found = fs::symlink_metadata(&path).map_err(GuestError::file("look at", &path))?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
        return Err(GuestError::Foreign(path));
    }
    Ok(path)
}

/// Removes the folders of tools that are gone, and kills a QEMU that one of them left. Returns how
/// many folders it removed.
pub fn sweep() -> Result<usize, GuestError> {
    sweep_in(&parent()?)
}

fn sweep_in(parent: &Path) -> Result<usize, GuestError> {
    let mut removed = 0;
    let entries = fs::read_dir(parent).map_err(GuestError::file("list", parent))?;
    for entry in entries.flatten() {
        let Some(owner) = owner(&entry.file_name().to_string_lossy()) else { continue };
        if owner.is_alive() {
            continue;
        }
        let path = entry.path();
        kill_left_behind(&path);
        match fs::remove_dir_all(&path) {
            // Another tool's sweep was faster.
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            done => {
                done.map_err(GuestError::file("remove", &path))?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// The owner in a folder's name, if the name is one of ours.
fn owner(name: &str) -> Option<ProcessId> {
    let mut parts = name.split('-');
    let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next()?.parse::<u32>().ok()?;
    parts.next().is_none().then_some(ProcessId { pid, start })
}

/// Kills the QEMU that the note in a folder names, if it is still that process and works in there.
fn kill_left_behind(folder: &Path) {
    let Some(id) = noted(folder) else { return };
    if !id.is_alive() || !command_line_names(id.pid, folder) {
        return;
    }
    let _ = kill(Pid::from_raw(id.pid as i32), Signal::SIGKILL);
    let deadline = Instant::now() + KILL_PATIENCE;
    while id.is_alive() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn noted(folder: &Path) -> Option<ProcessId> {
    let note = fs::read_to_string(folder.join(QEMU_FILE)).ok()?;
    let (pid, start) = note.trim_end().split_once(' ')?;
    Some(ProcessId { pid: pid.parse().ok()?, start: start.parse().ok()? })
}

fn command_line_names(pid: u32, folder: &Path) -> bool {
    let folder = folder.as_os_str().as_encoded_bytes();
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.windows(folder.len()).any(|window| window == folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::process::spawn_bound;
    use std::process::{Command, Stdio};

    /// A number that no process has: above the kernel's limit of 2^22.
    const NOBODY: u32 = 1 << 23;

    #[test]
    fn only_names_of_ours_have_an_owner() {
        assert_eq!(owner("12-34-0"), Some(ProcessId { pid: 12, start: 34 }));
        for name in ["12-34", "12-34-0-1", "a-b-c", "12-34-x", ""] {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    #[test]
    fn the_folder_of_a_dead_owner_goes_and_others_stay() {
        let parent = tempfile::tempdir().expect("a folder");
        let own = ProcessId::own();
        let alive = format!("{}-{}-7", own.pid, own.start);
        let dead = format!("{NOBODY}-1-0");
        for name in [&alive, &dead, "notes"] {
            fs::create_dir(parent.path().join(name)).expect("a folder");
        }
        fs::write(parent.path().join(&dead).join("qmp"), "").expect("a file");
        assert_eq!(sweep_in(parent.path()).expect("swept"), 1);
        assert!(parent.path().join(alive).exists());
        assert!(parent.path().join("notes").exists());
        assert!(!parent.path().join(dead).exists());
    }

    #[test]
    fn a_process_left_behind_is_killed_only_if_it_works_in_the_folder() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join(format!("{NOBODY}-1-0"));
        let left_behind = |argument: &Path| {
            fs::create_dir(&folder).expect("a folder");
            let mut command = Command::new("tail");
            command
                .arg("-f")
                .arg("/dev/null")
                .arg(argument)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut child = spawn_bound(command).expect("tail");
            let id = ProcessId::of(child.id()).expect("it runs");
            fs::write(folder.join(QEMU_FILE), format!("{} {}\n", id.pid, id.start)).expect("note");
            // Until it has become tail its command line is still the test's.
            while !command_line_names(id.pid, argument) {
                std::thread::sleep(Duration::from_millis(1));
            }
            sweep_in(parent.path()).expect("swept");
            let killed = !id.is_alive();
            let _ = child.kill();
            child.wait().expect("gone");
            killed
        };
        assert!(left_behind(&folder.join("qmp")));
        assert!(!left_behind(Path::new("/dev/zero-of-another")));
    }
}
