//! Files and mounts, as the lab asks for them. Each error names the path and the kernel's reason.

use nix::mount::{MsFlags, mount, umount};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is read of one file; a longer one is refused, so that no answer outgrows its frame.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Between two looks for a path.
const LOOK: Duration = Duration::from_millis(2);

/// The text of a file. Bytes that are not UTF-8 are replaced.
pub fn read(path: &str) -> Result<String, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|why| format!("cannot read {path}: {why}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("cannot read {path}: it is longer than {FILE_BYTES_MAX} bytes"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Overwrites a file that exists, in one write(2): kernel files take their text whole.
pub fn write(path: &str, text: &str) -> Result<(), String> {
    let write = || File::options().write(true).open(path)?.write_all(text.as_bytes());
    write().map_err(|why| format!("cannot write {:?} to {path}: {why}", text.trim_end()))
}

/// Makes a sparse file; one that exists is left alone and is an error.
pub fn sparse(path: &str, bytes: u64) -> Result<(), String> {
    let make = || File::options().write(true).create_new(true).open(path)?.set_len(bytes);
    make().map_err(|why| format!("cannot make {path} with {bytes} bytes: {why}"))
}

/// Forces a file, or a device's cache, to disk.
pub fn fsync(path: &str) -> Result<(), String> {
    let fsync = || File::open(path)?.sync_all();
    fsync().map_err(|why| format!("cannot fsync {path}: {why}"))
}

/// Waits until a path exists.
pub fn wait_for(path: &str, limit: Duration) -> Result<(), String> {
    let deadline = Instant::now() + limit;
    while !Path::new(path).exists() {
        if Instant::now() >= deadline {
            return Err(format!("{path} did not appear within {} ms", limit.as_millis()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// mount(2), with its mount point made when missing.
pub fn mount_at(source: &str, target: &str, fstype: &str, options: &str) -> Result<(), String> {
    let (flags, data) = split_options(options);
    fs::create_dir_all(target).map_err(|why| format!("cannot make the folder {target}: {why}"))?;
    mount(Some(source), target, Some(fstype), flags, Some(data.as_str())).map_err(|why| {
        format!("cannot mount {source} on {target} as {fstype} ({options:?}): {why}")
    })
}

/// umount(2).
pub fn unmount(target: &str) -> Result<(), String> {
    umount(target).map_err(|why| format!("cannot unmount {target}: {why}"))
}

/// Some words that people write among a file system's options are flags of the system call, which
/// the file system would not know.
fn split_options(options: &str) -> (MsFlags, String) {
    let (mut flags, mut rest) = (MsFlags::empty(), Vec::new());
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => flags |= MsFlags::MS_RDONLY,
            "rw" | "defaults" => {}
            "noatime" => flags |= MsFlags::MS_NOATIME,
            "relatime" => flags |= MsFlags::MS_RELATIME,
            "sync" => flags |= MsFlags::MS_SYNCHRONOUS,
            "bind" => flags |= MsFlags::MS_BIND,
            other => rest.push(other),
        }
    }
    (flags, rest.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_call_are_told_apart_from_those_of_the_file_system() {
        let (flags, data) = split_options("ro,noatime,data=ordered,barrier=0");
        assert_eq!(flags, MsFlags::MS_RDONLY | MsFlags::MS_NOATIME);
        assert_eq!(data, "data=ordered,barrier=0");
        assert_eq!(split_options(""), (MsFlags::empty(), String::new()));
    }

    #[test]
    fn a_sparse_file_is_never_made_over_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool.img").to_string_lossy().into_owned();
        assert_eq!(sparse(&path, 1 << 30), Ok(()));
        assert_eq!(fs::metadata(&path).expect("made").len(), 1 << 30);
        assert!(sparse(&path, 1).expect_err("it exists").contains(&path));
        assert!(read(&path).expect_err("too long").contains("longer than"));
    }

    #[test]
    fn a_file_that_does_not_exist_is_not_written_and_is_named() {
        assert!(
            write("/nonexistent/parameter", "1\n").expect_err("missing").contains("/nonexistent")
        );
        assert!(wait_for("/nonexistent", Duration::from_millis(5)).is_err());
    }
}
