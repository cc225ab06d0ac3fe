//! The guest's end of the two virtio ports.
//!
//! A port can be opened by one process only, so each is opened once and for ever. While the lab is
//! not connected a read returns no bytes: that is not an end, it is waited out.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

/// Requests and replies.
pub const CONTROL: &str = "plugpull.control";
/// What the workload tells.
pub const MESSAGES: &str = "plugpull.messages";

/// Where the kernel lists the ports.
const PORTS: &str = "/sys/class/virtio-ports";
/// How long to wait for a port: the devices are found while the kernel boots.
const TRIES: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);
/// Between two looks for a lab that is not connected. It delays the first request after a restore.
const LAB_AWAY_PAUSE: Duration = Duration::from_millis(2);

/// Opens a port by its name.
pub fn open(name: &str) -> io::Result<File> {
    for _ in 0..TRIES {
        if let Some(node) = find(Path::new(PORTS), name)? {
            return File::options().read(true).write(true).open(Path::new("/dev").join(node));
        }
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no virtio port is named {name}")))
}

/// The device node of the port with this name, if the kernel has found it yet.
fn find(ports: &Path, name: &str) -> io::Result<Option<std::ffi::OsString>> {
    let entries = match fs::read_dir(ports) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        match fs::read_to_string(entry.path().join("name")) {
            Ok(found) if found.trim_end() == name => return Ok(Some(entry.file_name())),
            // A port without a name has no such file.
            _ => {}
        }
    }
    Ok(None)
}

/// Reads at least one byte, however long the lab stays away.
pub fn read(mut port: &File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match port.read(buffer) {
            Ok(0) => std::thread::sleep(LAB_AWAY_PAUSE),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Writes all, head and payload.
pub fn write(mut port: &File, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| port.write_all(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_its_name_and_a_nameless_one_is_passed_over() {
        let ports = tempfile::tempdir().expect("a folder");
        for (node, name) in [("vport0p1", Some(CONTROL)), ("vport0p2", None)] {
            let entry = ports.path().join(node);
            fs::create_dir(&entry).expect("an entry");
            if let Some(name) = name {
                fs::write(entry.join("name"), format!("{name}\n")).expect("a name");
            }
        }
        assert_eq!(find(ports.path(), CONTROL).expect("listed"), Some("vport0p1".into()));
        assert_eq!(find(ports.path(), MESSAGES).expect("listed"), None);
        assert_eq!(find(&ports.path().join("none"), CONTROL).expect("not there yet"), None);
    }
}
