//! All that decides what a guest is, and the two ways to start it.

use crate::guest::arguments::{Launch, Origin, signature};
use crate::guest::cache::digest_of_texts;
use crate::guest::config::{Accel, GuestConfig};
use crate::guest::error::GuestError;
use crate::guest::image::Image;
use crate::guest::initrd::write_initrd;
use crate::guest::machine::Machine;
use crate::guest::progress::Watch;
use crate::guest::run_folder::RunFolder;
use crate::guest::running::{Connected, Guest};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A power-on takes some 15 s under emulation; on a busy host several times that.
pub const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// A restore takes under 2 s.
const RESTORE_LIMIT: Duration = Duration::from_secs(60);

/// All that decides what a guest is.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// What was asked for.
    pub config: GuestConfig,
    /// How the CPU is run.
    pub accel: Accel,
    /// Kernel and tools.
    pub image: Image,
    /// The agent's program.
    pub agent: PathBuf,
    /// Its digest.
    pub agent_digest: String,
    /// The first line of QEMU's version.
    pub qemu_version: String,
    /// The host's CPU. The guest sees it under KVM, and under emulation too its TSC runs at the rate
    /// of the host's, which the kernel measured before the guest was saved.
    pub host_cpu: String,
}

impl Recipe {
    /// Names what two guests must share to be clones of one saved guest.
    pub fn key(&self) -> String {
        let GuestConfig { memory_mib, cpus, bench, .. } = self.config;
        let mut parts = signature(self.accel, memory_mib, cpus);
        parts.extend([
            self.image.digest.clone(),
            self.agent_digest.clone(),
            self.qemu_version.clone(),
            self.host_cpu.clone(),
            format!("bench={bench}"),
        ]);
        digest_of_texts(&parts)
    }

    /// Starts a guest from power-on; its agent has `limit` to answer.
    pub fn boot(
        &self,
        console: Option<&Path>,
        limit: Duration,
        watch: &Watch,
    ) -> Result<Guest, GuestError> {
        let (folder, started) = (RunFolder::new()?, Instant::now());
        let initrd = folder.path().join("initrd");
        let archives = self.image.archives(self.config.bench);
        let archives: Vec<&Path> = archives.iter().map(PathBuf::as_path).collect();
        write_initrd(&initrd, &archives, &self.agent)?;
        let origin = Origin::PowerOn { initrd: &initrd };
        let machine = self.start(folder, origin, None, console, watch)?;
        let guest = Connected::new(machine)?.wake(started, limit)?;
        // QEMU has read it; some 50 MB that nobody needs any more.
        let _ = std::fs::remove_file(&initrd);
        Ok(guest)
    }

    /// Starts a guest from its saved state.
    pub fn restore(
        &self,
        state: File,
        console: Option<&Path>,
        watch: &Watch,
    ) -> Result<Guest, GuestError> {
        let (folder, started) = (RunFolder::new()?, Instant::now());
        let machine = self.start(folder, Origin::Saved, Some(state), console, watch)?;
        let mut connected = Connected::new(machine)?;
        connected.go_on(RESTORE_LIMIT)?;
        connected.wake(started, RESTORE_LIMIT)
    }

    fn start(
        &self,
        folder: RunFolder,
        origin: Origin,
        state: Option<File>,
        console: Option<&Path>,
        watch: &Watch,
    ) -> Result<Machine, GuestError> {
        let (own, kernel) = (folder.path().to_owned(), self.image.kernel());
        let own_console = own.join("console");
        let launch = Launch {
            accel: self.accel,
            memory_mib: self.config.memory_mib,
            cpus: self.config.cpus,
            kernel: &kernel,
            folder: &own,
            console: console.unwrap_or(&own_console),
            origin,
        };
        Machine::start(folder, &launch, state, watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe {
            config: GuestConfig::default(),
            accel: Accel::Tcg,
            image: Image { folder: "/img".into(), facts: "{}".into(), digest: "i".into() },
            agent: "/bin/agent".into(),
            agent_digest: "a".into(),
            qemu_version: "7.2".into(),
            host_cpu: "cpu".into(),
        }
    }

    #[test]
    fn whatever_makes_another_guest_makes_another_key() {
        let base = recipe();
        let changes: [fn(&mut Recipe); 8] = [
            |r| r.config.memory_mib = 2048,
            |r| r.config.cpus = 1,
            |r| r.config.bench = true,
            |r| r.accel = Accel::Kvm,
            |r| r.image.digest = "j".into(),
            |r| r.agent_digest = "b".into(),
            |r| r.qemu_version = "10.0".into(),
            |r| r.host_cpu = "other".into(),
        ];
        let mut keys = vec![base.key()];
        for change in changes {
            let mut other = base.clone();
            change(&mut other);
            keys.push(other.key());
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), changes.len() + 1);
    }
}
