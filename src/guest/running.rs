//! A running guest: its process, its monitor and its agent.

use crate::agent::protocol::Request;
use crate::guest::arguments::{CONTROL_SOCKET, MESSAGES_SOCKET, QMP_SOCKET};
use crate::guest::cache::hex;
use crate::guest::control::{Control, Hello};
use crate::guest::disk::{AddedDisk, CacheMode, DiskBus, DiskSource, blockdev_add, device_add};
use crate::guest::error::GuestError;
use crate::guest::link::{Deadline, Link};
use crate::guest::machine::Machine;
use crate::guest::qmp::Qmp;
use rand::Rng;
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// QEMU has this long to make its sockets and to answer a command.
pub const QMP_LIMIT: Duration = Duration::from_secs(30);
/// The guest has this long to see a disk that was plugged in.
const DISK_LIMIT: Duration = Duration::from_secs(30);
/// Disks of one bus that a guest can have at once: its PCI bus has no place for many more.
const DISKS_MAX: u8 = 20;
/// Bytes of entropy that a guest starts with.
const ENTROPY_BYTES: usize = 32;

/// A guest whose agent answers. Dropping it cuts its power.
pub struct Guest {
    /// The agent.
    pub control: Control,
    /// Who the agent said it is.
    pub hello: Hello,
    /// How long it took from the start of QEMU to an agent that was told time and entropy.
    pub ready_after: Duration,
    pub(crate) qmp: Qmp,
    machine: Machine,
    messages: Option<UnixStream>,
    /// What is plugged in.
    disks: Vec<AddedDisk>,
}

/// A QEMU whose sockets are connected, before its agent has spoken.
pub struct Connected {
    machine: Machine,
    /// Its monitor.
    pub qmp: Qmp,
    control: Control,
    messages: UnixStream,
}

impl Connected {
    /// Connects to the sockets of a QEMU that has just been started.
    pub fn new(machine: Machine) -> Result<Connected, GuestError> {
        let until = Deadline::after(QMP_LIMIT);
        let link =
            |name: &str| Link::connect(&machine.folder().join(name), machine.vitals(), until);
        let qmp = Qmp::new(link(QMP_SOCKET)?, QMP_LIMIT)?;
        let control = Control::new(link(CONTROL_SOCKET)?);
        let path = machine.folder().join(MESSAGES_SOCKET);
        let messages = UnixStream::connect(&path).map_err(GuestError::file("connect to", &path))?;
        Ok(Connected { machine, qmp, control, messages })
    }

    /// Waits until a saved state has been read in whole, and lets the guest go on. It was saved
    /// while it stood still, so it does nothing before this.
    pub fn go_on(&mut self, limit: Duration) -> Result<(), GuestError> {
        let (until, vitals) = (Deadline::after(limit), self.machine.vitals());
        loop {
            match self.qmp.status(QMP_LIMIT)?.as_str() {
                "inmigrate" => until.check(&*vitals, "the saved guest to be read in")?,
                "running" => return Ok(()),
                _ => return self.qmp.execute("cont", json!({}), QMP_LIMIT).map(drop),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the agent's first words, then gives it the time and entropy of its own.
    pub fn wake(self, started: std::time::Instant, limit: Duration) -> Result<Guest, GuestError> {
        let Connected { machine, qmp, mut control, messages } = self;
        let hello = control.hello(limit)?;
        let mut entropy = [0; ENTROPY_BYTES];
        rand::rng().fill_bytes(&mut entropy);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let realtime_ns = since_1970.as_nanos() as u64;
        control.call(Request::Wake { realtime_ns, entropy: hex(&entropy) }, limit)?;
        Ok(Guest {
            control,
            hello,
            ready_after: started.elapsed(),
            qmp,
            machine,
            messages: Some(messages),
            disks: Vec::new(),
        })
    }
}

impl Guest {
    /// The messages port, once: it can be read to its end, which comes when QEMU ends.
    pub fn take_messages(&mut self) -> Option<UnixStream> {
        self.messages.take()
    }

    /// QEMU's process number, for the script that cuts.
    pub fn pid(&self) -> u32 {
        self.machine.pid()
    }

    /// Where its console goes.
    pub fn console(&self) -> &Path {
        self.machine.console()
    }

    /// Plugs a disk in and waits until the guest has it with a write-back cache.
    pub fn add_disk(&mut self, source: &DiskSource, bus: DiskBus) -> Result<AddedDisk, GuestError> {
        self.add_cached_disk(source, bus, CacheMode::WriteBack)
    }

    /// The same with what QEMU does with its flushes.
    pub fn add_cached_disk(
        &mut self,
        source: &DiskSource,
        bus: DiskBus,
        cache: CacheMode,
    ) -> Result<AddedDisk, GuestError> {
        // The guest gives a new disk the lowest name that is free.
        let is_free = |nth: &u8| !self.disks.contains(&AddedDisk::nth(bus, *nth));
        let nth = (0..DISKS_MAX).find(is_free).ok_or(GuestError::NoPlaceForDisk(DISKS_MAX))?;
        let disk = AddedDisk::nth(bus, nth);
        self.disks.push(disk.clone());
        self.qmp.execute("blockdev-add", blockdev_add(&disk.node, source, cache), QMP_LIMIT)?;
        self.qmp.execute("device_add", device_add(&disk.node, bus), QMP_LIMIT)?;
        // The node in /dev comes before its queue's files in /sys, or after them.
        self.control.wait_for(&disk.device, DISK_LIMIT)?;
        self.control.wait_for(&disk.write_cache_file(), DISK_LIMIT)?;
        let found = self.control.read_file(&disk.write_cache_file())?;
        match found.trim_end() {
            "write back" => Ok(disk),
            found => {
                let device = disk.device;
                Err(GuestError::NotWriteBack { device, found: found.to_owned() })
            }
        }
    }

    /// Takes a disk out that nothing in the guest uses any more, and waits until QEMU has let go of
    /// it.
    pub fn remove_disk(&mut self, disk: &AddedDisk) -> Result<(), GuestError> {
        let device = json!({ "id": disk.device_id() });
        self.qmp.execute("device_del", device, QMP_LIMIT)?;
        let (until, vitals) = (Deadline::after(DISK_LIMIT), self.machine.vitals());
        loop {
            // The guest's kernel lets the device go first; until then its node is in use.
            let node = json!({ "node-name": disk.node });
            match self.qmp.execute("blockdev-del", node, QMP_LIMIT) {
                Err(GuestError::Qmp { .. }) => until.check(&*vitals, "the disk to be let go of")?,
                other => {
                    self.disks.retain(|added| added != disk);
                    return other.map(drop);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the guest's CPUs, as a hang would.
    pub fn pause(&mut self) -> Result<(), GuestError> {
        self.qmp.execute("stop", json!({}), QMP_LIMIT).map(drop)
    }

    /// Lets a paused guest go on.
    pub fn unpause(&mut self) -> Result<(), GuestError> {
        self.qmp.execute("cont", json!({}), QMP_LIMIT).map(drop)
    }

    /// Writes the whole guest to a file and ends it. Nothing may be plugged in yet.
    pub(crate) fn save(mut self, state: &File, limit: Duration) -> Result<(), GuestError> {
        self.pause()?;
        let bandwidth = json!({ "max-bandwidth": i64::MAX });
        self.qmp.execute("migrate-set-parameters", bandwidth, QMP_LIMIT)?;
        self.qmp.give_file("state", state, QMP_LIMIT)?;
        self.qmp.execute("migrate", json!({ "uri": "fd:state" }), QMP_LIMIT)?;
        let (until, vitals) = (Deadline::after(limit), self.machine.vitals());
        loop {
            let answer = self.qmp.execute("query-migrate", json!({}), QMP_LIMIT)?;
            match answer.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let words = answer.get("error-desc").unwrap_or(&answer).to_string();
                    return Err(GuestError::Qmp { command: "migrate".into(), words });
                }
                _ => until.check(&*vitals, "the guest to be saved")?,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until QEMU has ended, whoever ends it.
    pub fn wait_end(&self, limit: Duration) -> Result<(), GuestError> {
        self.machine.wait_end(limit)
    }

    /// Cuts its power: SIGKILL. Dropping it does the same.
    pub fn kill(&self) {
        self.machine.kill();
    }
}
