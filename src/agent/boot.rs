//! From the kernel's first user process to a guest whose modules are loaded.
//!
//! Nothing in here stops the start: what fails becomes a warning that `Hello` carries to the lab,
//! because a guest that can say what is wrong is worth more than one that is silent.

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;

/// Lists the modules, one absolute path a line, in an order in which they load.
const LOAD_ORDER: &str = "/lib/modules/load-order";

/// Mounts the kernel's file systems, names the host and loads the modules. Returns what failed.
pub fn boot() -> Vec<String> {
    let mut warnings = Vec::new();
    for (fstype, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        if let Err(why) = mount_kernel_fs(fstype, target) {
            warnings.push(format!("cannot mount {fstype} on {target}: {why}"));
        }
    }
    if let Err(why) = fs::write("/proc/sys/kernel/hostname", "plugpull") {
        warnings.push(format!("cannot set the host name: {why}"));
    }
    load_modules(&mut warnings);
    warnings
}

fn mount_kernel_fs(fstype: &str, target: &str) -> std::io::Result<()> {
    fs::create_dir_all(target)?;
    mount(Some(fstype), target, Some(fstype), MsFlags::empty(), None::<&str>)?;
    Ok(())
}

fn load_modules(warnings: &mut Vec<String>) {
    let list = match fs::read_to_string(LOAD_ORDER) {
        Ok(list) => list,
        Err(why) => return warnings.push(format!("cannot read {LOAD_ORDER}: {why}")),
    };
    let hostid = fs::read("/etc/hostid").ok().and_then(|bytes| hostid_of(&bytes));
    for path in list.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Err(why) = load_module(path, &parameters(path, hostid)) {
            warnings.push(format!("cannot load the module {path}: {why}"));
        }
    }
}

fn load_module(path: &str, parameters: &str) -> std::io::Result<()> {
    let parameters = CString::new(parameters)?;
    match finit_module(File::open(path)?, &parameters, ModuleInitFlags::empty()) {
        Ok(()) | Err(nix::errno::Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A pool remembers the hostid that last used it, and an import elsewhere would need -f. The image's
/// hostid is given to spl as a parameter, so that kernel and tools cannot disagree about it.
fn parameters(module: &str, hostid: Option<u32>) -> String {
    let is_spl = Path::new(module).file_name().is_some_and(|name| name == "spl.ko");
    match hostid {
        Some(hostid) if is_spl => format!("spl_hostid={hostid:#010x}"),
        _ => String::new(),
    }
}

/// The hostid in the bytes of /etc/hostid: four, little-endian; 0 means none.
fn hostid_of(bytes: &[u8]) -> Option<u32> {
    let hostid = u32::from_le_bytes(*bytes.first_chunk::<4>()?);
    (hostid != 0).then_some(hostid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spl_is_told_the_hostid() {
        let hostid = hostid_of(&[0x67, 0x75, 0x6c, 0x70]);
        assert_eq!(parameters("/lib/modules/x/extra/spl.ko", hostid), "spl_hostid=0x706c7567");
        assert_eq!(parameters("/lib/modules/x/extra/zfs.ko", hostid), "");
        assert_eq!(parameters("/lib/modules/x/extra/spl.ko", None), "");
    }

    #[test]
    fn a_short_or_empty_hostid_is_none() {
        assert_eq!(hostid_of(&[1, 2]), None);
        assert_eq!(hostid_of(&[0; 4]), None);
    }
}
