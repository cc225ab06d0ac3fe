//! Which block device is which ZFS volume. Without udev nothing links `/dev/zvol/pool/name` to it, and
//! the kernel numbers devices as they come, so each is asked for its name.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two looks for a device: the module makes them beside the tool that asked for them.
const LOOK: Duration = Duration::from_millis(5);
/// `ZFS_MAX_DATASET_NAME_LEN` (OpenZFS, include/sys/fs/zfs.h).
const NAME_BYTES: usize = 256;

mod ioctls {
    // BLKZNAME of the same header: the volume's name.
    nix::ioctl_read!(blkzname, 0x12, 125, [u8; super::NAME_BYTES]);
}

/// Waits until the volume `name` has a device, and returns its path.
pub fn find(name: &str, limit: Duration) -> Result<String, String> {
    let deadline = Instant::now() + limit;
    loop {
        let device = look(name).map_err(|why| format!("cannot look through /dev: {why}"))?;
        match device {
            Some(device) => return Ok(device),
            None if Instant::now() >= deadline => {
                return Err(format!(
                    "no block device of the volume {name} appeared within {} ms",
                    limit.as_millis()
                ));
            }
            None => std::thread::sleep(LOOK),
        }
    }
}

fn look(name: &str) -> io::Result<Option<String>> {
    for entry in fs::read_dir("/dev")? {
        let entry = entry?;
        let file_name = entry.file_name();
        let is_named = file_name.to_str().is_some_and(is_volume);
        // One that cannot be asked is gone again, or not ready yet.
        if is_named && name_of(&entry.path()).is_ok_and(|found| found == name) {
            return Ok(entry.path().to_str().map(str::to_owned));
        }
    }
    Ok(None)
}

/// `zd0` and `zd16`, not their partitions `zd0p1`.
fn is_volume(file_name: &str) -> bool {
    let number = file_name.strip_prefix("zd");
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

fn name_of(device: &Path) -> io::Result<String> {
    let device = File::open(device)?;
    let mut name = [0; NAME_BYTES];
    // SAFETY: the kernel writes at most NAME_BYTES bytes to `name`; the descriptor is open.
    unsafe { ioctls::blkzname(device.as_raw_fd(), &mut name) }?;
    let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
    Ok(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_volumes_are_asked() {
        assert!(is_volume("zd0") && is_volume("zd16"));
        for other in ["zd", "zd0p1", "zero", "sd0", "zdx"] {
            assert!(!is_volume(other), "{other}");
        }
    }

    #[test]
    fn a_device_that_is_no_volume_has_no_name_and_a_missing_volume_is_named() {
        assert!(name_of(Path::new("/dev/null")).is_err());
        let error = find("no-such/volume", Duration::from_millis(6)).expect_err("there is none");
        assert!(error.contains("no-such/volume") && error.contains("6 ms"), "{error}");
    }
}
