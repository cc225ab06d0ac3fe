//! What the kernel logged about a device, while something was tried on it.

use nix::libc;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Lines that are kept at most.
const LINES_MAX: usize = 20;
/// The kernel hands out one record a read; none is longer.
const RECORD_BYTES: usize = 8 << 10;
/// Records that are looked through at most: other parts of the kernel may log without end.
const RECORDS_MAX: usize = 10_000;

/// The kernel's log from one instant on. Without a readable log nothing is ever said.
pub(super) struct KernelLog(Option<File>);

impl KernelLog {
    /// From now on.
    pub fn from_now() -> KernelLog {
        let open = || {
            let mut log =
                File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
            log.seek(SeekFrom::End(0))?;
            std::io::Result::Ok(log)
        };
        KernelLog(open().ok())
    }

    /// The lines since then that name a device, such as `loop3`.
    pub fn about(mut self, device: &str) -> String {
        let Some(log) = &mut self.0 else { return String::new() };
        let (mut said, mut record) = (Vec::new(), vec![0; RECORD_BYTES]);
        for _ in 0..RECORDS_MAX {
            match log.read(&mut record) {
                Ok(0) => break,
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&record[..bytes]);
                    said.extend(message(&text, device).map(str::to_owned));
                }
                // The record was overwritten before it was read; the next one is there.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        said.truncate(LINES_MAX);
        said.join("\n")
    }
}

/// The text of a record "priority,number,time,flags;text\n KEY=value...", if it names the device.
fn message<'a>(record: &'a str, device: &str) -> Option<&'a str> {
    let text = record.split_once(';')?.1.lines().next()?;
    let names = |(at, _): (usize, &str)| {
        let next = text[at + device.len()..].chars().next();
        !next.is_some_and(|c| c.is_ascii_alphanumeric())
    };
    text.match_indices(device).any(names).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_told_if_it_names_the_very_device() {
        let record = "3,1234,99,-;EXT4-fs (loop1): VFS: Can't find ext4\n SUBSYSTEM=block\n";
        assert_eq!(message(record, "loop1"), Some("EXT4-fs (loop1): VFS: Can't find ext4"));
        assert_eq!(message(record, "loop"), None);
        assert_eq!(message("3,1,2,-;EXT4-fs (loop12): bad", "loop1"), None);
        assert_eq!(message("no head", "loop1"), None);
    }
}
