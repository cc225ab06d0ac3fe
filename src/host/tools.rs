//! The file systems' own tools, on the block device: make one, check one.

use super::disk::HostDisk;
use super::error::HostError;
use crate::agent::exec::exec;
use crate::agent::protocol::ExecResult;
use crate::guest::process::last_lines;
use crate::stack::scenario::{Discard, PlainFs};
use std::path::Path;
use std::time::Duration;

/// Lines of a tool's output that an error shows.
const TAIL_LINES: usize = 10;
/// The tool is killed when its time is up; if that does not end it, it waits for a block that does
/// not come, and after this time the connection is given up.
const GRACE: Duration = Duration::from_secs(5);

/// Where tools are, first place first.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Checks the file system on the device, which must not be mounted and whose log must have been
/// replayed (by a mount and an unmount). The result is the tool's own word: an exit code other than
/// 0 is an outcome of the state, as is a time-out.
pub fn check(disk: &HostDisk, fstype: &str) -> Result<ExecResult, HostError> {
    run(disk, fstype, PlainFs::checker)
}

/// Makes a file system, whole: nothing of it is left for the kernel to initialise later.
pub fn make(disk: &HostDisk, fstype: &str) -> Result<(), HostError> {
    let result = run(disk, fstype, |fs, device| fs.mkfs(device, Discard::Leave))?;
    match result.code {
        Some(0) => Ok(()),
        _ => {
            let said = last_lines(&format!("{}{}", result.stdout, result.stderr), TAIL_LINES);
            Err(HostError::Tool { command: format!("mkfs.{fstype}"), said })
        }
    }
}

fn run(
    disk: &HostDisk,
    fstype: &str,
    command: impl FnOnce(PlainFs, &str) -> Vec<&str>,
) -> Result<ExecResult, HostError> {
    let fs = PlainFs::named(fstype).ok_or_else(|| HostError::FileSystem(fstype.to_owned()))?;
    let device = disk.device().to_string_lossy();
    let mut argv: Vec<String> =
        command(fs, &device).into_iter().map(|word| word.to_owned()).collect();
    argv[0] = find(&argv[0])?;
    let step = disk.limited_by("run a file system's tool", disk.limit() + GRACE);
    let result = exec(&argv, disk.limit());
    drop(step);
    disk.check()?;
    result.map_err(|said| HostError::Tool { command: argv.join(" "), said })
}

/// A program's path. Given whole, the program is started without a copy of this process's page
/// tables, which takes longer than a check does.
fn find(program: &str) -> Result<String, HostError> {
    let paths = FOLDERS.iter().map(|folder| format!("{folder}/{program}"));
    let found = paths.into_iter().find(|path| Path::new(path).is_file());
    found.ok_or_else(|| HostError::Tool {
        command: program.to_owned(),
        said: format!("it is in none of {}: install it", FOLDERS.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_by_its_whole_path_and_a_missing_one_is_named() {
        assert_eq!(find("sh").expect("a shell"), "/usr/bin/sh");
        let error = find("no-such-tool").expect_err("missing").to_string();
        assert!(error.contains("no-such-tool") && error.contains("/usr/sbin"), "{error}");
    }
}
