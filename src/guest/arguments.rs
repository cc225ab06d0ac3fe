//! QEMU's command line, as a pure function of what is to be started.
//!
//! A saved guest fits only the command line it was saved under, so the same function makes both, and
//! its result with fixed paths is part of the saved guest's key.

use crate::agent::ports;
use crate::guest::config::Accel;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The emulator.
pub const QEMU: &str = "qemu-system-x86_64";
/// Names of the sockets in a run folder.
pub const QMP_SOCKET: &str = "qmp";
/// The control port.
pub const CONTROL_SOCKET: &str = "control";
/// The messages port.
pub const MESSAGES_SOCKET: &str = "messages";

/// What the kernel is told.
///
/// `panic=-1` with QEMU's `-no-reboot` makes a kernel panic end QEMU at once. Mitigations protect
/// nobody in here and cost most under emulation. The TSC is right by construction, but an emulated
/// CPU that had to wait for its turn makes it look wrong, and the clock would change in mid-run to one
/// that is slow to read.
const KERNEL_COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable";

/// What is to be started.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// How the CPU is run.
    pub accel: Accel,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// CPUs.
    pub cpus: u32,
    /// The kernel.
    pub kernel: &'a Path,
    /// Where the sockets go.
    pub folder: &'a Path,
    /// Where the console goes.
    pub console: &'a Path,
    /// From where the guest comes.
    pub origin: Origin<'a>,
}

/// From where a guest comes.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// Power-on, with this initial RAM disk.
    PowerOn {
        /// The cpio archives, one behind the other.
        initrd: &'a Path,
    },
    /// A saved guest, in the file that is QEMU's standard input.
    Saved,
}

/// QEMU's arguments, without the program itself.
pub fn arguments(launch: &Launch) -> Vec<OsString> {
    let Launch { accel, memory_mib, cpus, kernel, folder, console, origin } = *launch;
    let mut list = Arguments::default();
    list.words(&["-nodefaults", "-nographic", "-no-reboot", "-no-user-config"]);
    list.words(&["-machine", "pc,vmport=off", "-accel", accelerator(accel), "-cpu", cpu(accel)]);
    list.words(&["-smp", &cpus.to_string(), "-m", &memory_mib.to_string()]);
    list.words(&["-append", KERNEL_COMMAND_LINE, "-kernel"]);
    list.0.push(kernel.into());
    list.path("-qmp", "unix:", &folder.join(QMP_SOCKET), ",server=on,wait=off");
    list.path("-chardev", "file,id=console,path=", console, "");
    list.words(&["-serial", "chardev:console"]);
    list.words(&["-device", "virtio-serial-pci,id=ports,max_ports=3"]);
    list.port("control", &folder.join(CONTROL_SOCKET), ports::CONTROL);
    list.port("messages", &folder.join(MESSAGES_SOCKET), ports::MESSAGES);
    match origin {
        Origin::PowerOn { initrd } => {
            list.words(&["-initrd"]);
            list.0.push(initrd.into());
        }
        Origin::Saved => list.words(&["-incoming", "fd:0"]),
    }
    list.0
}

/// The arguments that a saved guest depends on: all but the paths and where it comes from.
pub fn signature(accel: Accel, memory_mib: u32, cpus: u32) -> Vec<String> {
    let path = PathBuf::from("/");
    let (kernel, folder, console) = (&path, &path, &path);
    let launch = Launch { accel, memory_mib, cpus, kernel, folder, console, origin: Origin::Saved };
    arguments(&launch).iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn accelerator(accel: Accel) -> &'static str {
    match accel {
        Accel::Kvm => "kvm",
        Accel::Tcg => "tcg,thread=multi",
    }
}

/// Under emulation plainer models load modules some 10 % faster and write alike, but hash at half the
/// speed of `max`, and a workload hashes each record.
fn cpu(accel: Accel) -> &'static str {
    match accel {
        Accel::Kvm => "host",
        Accel::Tcg => "max",
    }
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn words(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    /// An option with a path among its values, in which QEMU wants each comma twice.
    fn path(&mut self, option: &str, before: &str, path: &Path, after: &str) {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let mut value = before.as_bytes().to_vec();
        for &byte in path.as_os_str().as_bytes() {
            value.push(byte);
            if byte == b',' {
                value.push(b',');
            }
        }
        value.extend_from_slice(after.as_bytes());
        self.words(&[option]);
        self.0.push(OsString::from_vec(value));
    }

    fn port(&mut self, id: &str, socket: &Path, name: &str) {
        self.path("-chardev", &format!("socket,id={id},path="), socket, ",server=on,wait=off");
        self.words(&["-device", &format!("virtserialport,bus=ports.0,chardev={id},name={name}")]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(accel: Accel, origin: Origin<'static>) -> Launch<'static> {
        let path = Path::new;
        let (kernel, folder, console) = (path("/img/vmlinuz"), path("/run/1-2-0"), path("/a,b"));
        Launch { accel, memory_mib: 1024, cpus: 2, kernel, folder, console, origin }
    }

    #[test]
    fn a_power_on_under_emulation_has_exactly_these_arguments() {
        let origin = Origin::PowerOn { initrd: Path::new("/run/1-2-0/initrd") };
        let list = arguments(&launch(Accel::Tcg, origin));
        let expected = [
            "-nodefaults",
            "-nographic",
            "-no-reboot",
            "-no-user-config",
            "-machine",
            "pc,vmport=off",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "1024",
            "-append",
            "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable",
            "-kernel",
            "/img/vmlinuz",
            "-qmp",
            "unix:/run/1-2-0/qmp,server=on,wait=off",
            "-chardev",
            "file,id=console,path=/a,,b",
            "-serial",
            "chardev:console",
            "-device",
            "virtio-serial-pci,id=ports,max_ports=3",
            "-chardev",
            "socket,id=control,path=/run/1-2-0/control,server=on,wait=off",
            "-device",
            "virtserialport,bus=ports.0,chardev=control,name=plugpull.control",
            "-chardev",
            "socket,id=messages,path=/run/1-2-0/messages,server=on,wait=off",
            "-device",
            "virtserialport,bus=ports.0,chardev=messages,name=plugpull.messages",
            "-initrd",
            "/run/1-2-0/initrd",
        ];
        assert_eq!(list, expected);
    }

    #[test]
    fn a_restore_differs_only_in_where_the_guest_comes_from() {
        let power_on =
            arguments(&launch(Accel::Kvm, Origin::PowerOn { initrd: Path::new("/initrd") }));
        let saved = arguments(&launch(Accel::Kvm, Origin::Saved));
        let common = power_on.len() - 2;
        assert_eq!(power_on[..common], saved[..common]);
        assert_eq!(saved[common..], ["-incoming", "fd:0"]);
    }

    #[test]
    fn what_a_saved_guest_depends_on_changes_its_signature() {
        let base = signature(Accel::Tcg, 1024, 2);
        assert_eq!(base, signature(Accel::Tcg, 1024, 2));
        assert_ne!(base, signature(Accel::Kvm, 1024, 2));
        assert_ne!(base, signature(Accel::Tcg, 2048, 2));
        assert_ne!(base, signature(Accel::Tcg, 1024, 1));
    }
}
