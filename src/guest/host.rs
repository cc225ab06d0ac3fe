//! The programs that the lab needs on this host, and the Debian packages that have them.

use crate::guest::arguments::QEMU;
use crate::guest::error::GuestError;
use crate::guest::process::{last_lines, spawn_bound, wait_or_stop};
use crate::guest::progress::Watch;
use nix::unistd::Uid;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program and the Debian package that has it.
pub type Program = (&'static str, &'static str);

/// What a trial needs. Nothing in here needs qemu-img.
pub const FOR_GUESTS: [Program; 1] = [(QEMU, "qemu-system-x86")];
/// What the disk is held against. QEMU's package comes first: together with another release's
/// qemu-utils it cannot be installed; asked for alone it replaces it, and then its own fits.
pub const FOR_CLIENTS: [Program; 5] = [
    (QEMU, "qemu-system-x86"),
    ("qemu-io", "qemu-utils"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("fio", "fio"),
];
/// What makes and checks the file systems that this machine's own kernel mounts.
pub const FOR_HOST: [Program; 6] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_repair", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("btrfs", "btrfs-progs"),
];

/// Another apt may be at work; waiting for it is better than failing.
const APT: [&str; 5] =
    ["apt-get", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"];
/// Lines of apt's output that an error shows.
const TAIL_LINES: usize = 15;

/// Installs what is missing, as root, one package after the other; otherwise says what to type.
pub fn ensure_programs(needed: &[Program], watch: &Watch) -> Result<(), GuestError> {
    if missing(needed, is_installed).is_empty() {
        return Ok(());
    }
    if !Uid::effective().is_root() || !is_installed("apt-get") {
        let line = line_to_type(&missing(needed, is_installed));
        return Err(GuestError::PackagesMissing { line });
    }
    watch.stage("updating this host's package lists");
    apt(&["update"], watch)?;
    // Looked up anew each time: a package may replace one that was there.
    while let Some(package) = missing(needed, is_installed).first() {
        watch.stage(format!("installing {package} on this host"));
        apt(&["install", package], watch)?;
        if missing(needed, is_installed).first() == Some(package) {
            return Err(GuestError::PackagesMissing { line: line_to_type(&[package]) });
        }
    }
    Ok(())
}

/// The packages of the programs that are not there, each once.
fn missing(needed: &[Program], is_installed: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<&str> = needed
        .iter()
        .filter(|(program, _)| !is_installed(program))
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    packages
}

fn line_to_type(packages: &[&str]) -> String {
    format!("sudo apt-get install --no-install-recommends {}", packages.join(" "))
}

/// Whether a program is on the path.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn apt(arguments: &[&str], watch: &Watch) -> Result<(), GuestError> {
    let mut command = Command::new(APT[0]);
    command.args(&APT[1..]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    run(command, watch)
}

/// Runs a program of the host to its end; its output is shown only if it fails.
pub fn run(mut command: Command, watch: &Watch) -> Result<(), GuestError> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let program = words[0].clone();
    let mut output = tempfile::tempfile().map_err(GuestError::file("make", Path::new("/tmp")))?;
    let share =
        |file: &File| file.try_clone().map_err(GuestError::file("share", Path::new("/tmp")));
    command.stdin(Stdio::null()).stdout(share(&output)?).stderr(share(&output)?);
    let mut child = spawn_bound(command).map_err(GuestError::file("start", Path::new(&program)))?;
    let status = wait_or_stop(&mut child, watch);
    let status = status.map_err(GuestError::file("wait for", Path::new(&program)))?;
    watch.check()?;
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    let _ = output.seek(SeekFrom::Start(0)).and_then(|_| output.read_to_end(&mut said));
    let said = last_lines(&String::from_utf8_lossy(&said), TAIL_LINES);
    Err(GuestError::Command { command: words.join(" "), how: status.to_string(), said })
}

/// The first line of `qemu --version`: a saved guest fits one version of QEMU only.
pub fn qemu_version() -> Result<String, GuestError> {
    let output = Command::new(QEMU).arg("--version").output();
    let output = output.map_err(GuestError::file("start", Path::new(QEMU)))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.lines().next() {
        Some(line) if output.status.success() => Ok(line.to_owned()),
        _ => Err(GuestError::Command {
            command: format!("{QEMU} --version"),
            how: output.status.to_string(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_emulator_is_asked_for_alone_in_one_line_to_copy() {
        let packages = missing(&FOR_GUESTS, |_| false);
        assert_eq!(
            line_to_type(&packages),
            "sudo apt-get install --no-install-recommends qemu-system-x86"
        );
        assert!(missing(&FOR_GUESTS, |_| true).is_empty());
        let clients = missing(&FOR_CLIENTS, |program| program == QEMU);
        assert_eq!(clients, ["qemu-utils", "libnbd-bin", "fio"]);
    }

    #[test]
    fn a_program_that_fails_shows_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; echo E: no such package >&2; exit 100"]);
        let error = run(command, &Watch::silent()).expect_err("it fails").to_string();
        assert!(
            error.contains("exit status: 100") && error.ends_with("E: no such package"),
            "{error}"
        );
    }

    #[test]
    fn a_program_is_stopped_when_the_user_wants_to_stop() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let watch = Watch::new(|_| {}, std::sync::Arc::new(true.into()));
        assert!(matches!(run(command, &watch), Err(GuestError::Cancelled)));
    }
}
