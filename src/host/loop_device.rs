//! A loop device on the exported file, with direct I/O and nothing cached.
//!
//! What always holds: the device detaches itself when its last user closes it, however that ends, so
//! that none is left behind by a tool that was killed.

use super::error::HostError;
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CONTROL: &str = "/dev/loop-control";
/// Between the question for a free device and its configuration another tool may take it.
const TRIES: u32 = 64;
/// udev may hold a new device for a moment.
const PAUSE: Duration = Duration::from_millis(2);

/// How long a device may stay busy by accident.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const AGAIN: Duration = Duration::from_micros(100);

const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;
const BLOCK_BYTES: u32 = 512;
/// Another block size: the one that ext4 first sets when it mounts, and keeps if it is its own, as on
/// small disks. Then it drops nothing of what was read ahead.
const MOUNT_BYTES: u32 = 1024;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

mod ioctls {
    nix::ioctl_none_bad!(loop_ctl_get_free, 0x4C82);
    nix::ioctl_write_ptr_bad!(loop_configure, 0x4C0A, super::LoopConfig);
    // BLKBSZSET of linux/fs.h: its number says size_t, but it reads an int.
    nix::ioctl_write_ptr_bad!(
        set_block_size,
        nix::request_code_write!(0x12, 113, size_of::<usize>()),
        nix::libc::c_int
    );
}

/// A bound loop device. Dropped, it detaches unless somebody else has it open.
#[derive(Debug)]
pub(super) struct LoopDevice {
    path: PathBuf,
    device: File,
}

impl LoopDevice {
    /// Binds a free device to a file, which it keeps open by itself.
    pub fn attach(file: &File) -> Result<LoopDevice, HostError> {
        let control = File::options().read(true).write(true).open(CONTROL);
        let control = control.map_err(|source| HostError::Missing {
            doing: "open",
            path: CONTROL.into(),
            source,
            fix: "the kernel needs its loop driver (modprobe loop)",
        })?;
        let mut last = Errno::EBUSY;
        for _ in 0..TRIES {
            // SAFETY: takes no argument and returns a number.
            let number = unsafe { ioctls::loop_ctl_get_free(control.as_raw_fd()) };
            let number = number.map_err(HostError::system("ask for a free device of", CONTROL))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = File::options().read(true).write(true).open(&path);
            let device = match device {
                Ok(device) => device,
                // Its node appears a moment after the number.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => return Err(HostError::system("open", path)(error)),
            };
            match configure(&device, file) {
                Ok(()) => return Ok(LoopDevice { path, device }),
                Err(errno @ (Errno::EBUSY | Errno::EAGAIN)) => last = errno,
                Err(errno) => return Err(HostError::system("bind the disk to", path)(errno)),
            }
            std::thread::sleep(PAUSE);
        }
        Err(HostError::system("find a free device through", CONTROL)(last))
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts another disk in place, by `swap`, so that nothing of the one before is shown: what is
    /// still dirty is written to the old one; then every page goes, and again behind the swap, for
    /// somebody (udev) may have read in between. An error means that the device is in use.
    pub fn replace(&self, swap: impl FnOnce()) -> Result<(), HostError> {
        self.drop_pages(BLOCK_BYTES)?;
        swap();
        self.drop_pages(MOUNT_BYTES)
    }

    /// Has the kernel read these bytes, many at a time, before a mount and a checker ask for them
    /// block by block: replaying a journal is thousands of reads. Only a hint.
    pub fn ask_for(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            let (from, length) = (range.start as i64, (range.end - range.start) as i64);
            let advice = PosixFadviseAdvice::POSIX_FADV_WILLNEED;
            let _ = posix_fadvise(&self.device, from, length, advice);
        }
    }

    /// Changing the device's block size writes and drops all of its pages, and waits for those that
    /// are being read. BLKFLSBUF would leave some: pages that it finds locked or referenced.
    fn drop_pages(&self, block_bytes: u32) -> Result<(), HostError> {
        let size = block_bytes as libc::c_int;
        // SAFETY: the kernel reads one int.
        let set = || unsafe { ioctls::set_block_size(self.device.as_raw_fd(), &size) };
        match patiently(set) {
            Ok(_) => Ok(()),
            Err(Errno::EBUSY) => Err(HostError::StillUsed { device: self.path.clone() }),
            Err(errno) => Err(HostError::system("drop the kernel's pages of", &self.path)(errno)),
        }
    }

    /// Whether something else uses the device as a whole, as a mounted file system does.
    pub fn is_used(&self) -> bool {
        let claim = || {
            let claimed = File::options().read(true).custom_flags(libc::O_EXCL).open(&self.path);
            claimed.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
        };
        matches!(patiently(claim), Err(Errno::EBUSY))
    }
}

/// Tries again while a device is busy, but not for long. A thread that starts a process shares this
/// process's descriptors with it for a moment, until it runs its program: what was closed here
/// meanwhile, a mount or a claim, is closed only then.
pub(super) fn patiently<T>(mut step: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match step() {
            Err(Errno::EBUSY) if Instant::now() < deadline => std::thread::sleep(AGAIN),
            result => return result,
        }
    }
}

fn configure(device: &File, file: &File) -> Result<(), Errno> {
    let config = LoopConfig {
        fd: file.as_raw_fd() as u32,
        block_size: BLOCK_BYTES,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: AUTOCLEAR | DIRECT_IO,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads one `loop_config`, whose layout the types above have.
    unsafe { ioctls::loop_configure(device.as_raw_fd(), &config) }.map(|_| ())
}
