//! The lab's side of guests: everything found or made once, then any number of starts.

use crate::guest::acceleration::choose;
use crate::guest::cache::{cache_folder, digest_of_file};
use crate::guest::config::{Accel, GuestConfig};
use crate::guest::error::GuestError;
use crate::guest::full_root::FullRoot;
use crate::guest::host::{FOR_GUESTS, ensure_programs, qemu_version};
use crate::guest::image::Image;
use crate::guest::progress::Watch;
use crate::guest::recipe::{BOOT_LIMIT, Recipe};
use crate::guest::run_folder::sweep;
use crate::guest::running::Guest;
use crate::guest::saved::{Meta, SavedGuests};
use std::path::{Path, PathBuf};

/// This program, even when its file was replaced since it started.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// How a guest is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// As a clone of the saved guest, which is made when it is missing.
    Saved,
    /// From power-on: slow, but with random choices of its own.
    Fresh,
}

/// Where guests come from.
#[derive(Debug)]
pub struct Lab {
    recipe: Recipe,
    accel_note: Option<String>,
    saved: SavedGuests,
    cache: PathBuf,
    watch: Watch,
}

impl Lab {
    /// Clears up after killed tools, then finds or makes what guests need: the host's packages, the
    /// image, and which acceleration works. The first time takes minutes, later ones none.
    pub fn prepare(config: GuestConfig, watch: &Watch) -> Result<Lab, GuestError> {
        Lab::prepare_with_agent(config, Path::new(OWN_PROGRAM), watch)
    }

    /// As `prepare`, with another program as the agent.
    pub fn prepare_with_agent(
        config: GuestConfig,
        agent: &Path,
        watch: &Watch,
    ) -> Result<Lab, GuestError> {
        sweep()?;
        let cache = cache_folder()?;
        ensure_programs(&FOR_GUESTS, watch)?;
        let image = Image::ensure(config.suite, &cache, watch)?;
        let mut recipe = Recipe {
            accel: Accel::Tcg,
            agent: agent.to_owned(),
            agent_digest: digest_of_file(agent)?,
            qemu_version: qemu_version()?,
            host_cpu: host_cpu(),
            image,
            config,
        };
        let choice = choose(&recipe, &cache, watch)?;
        recipe.accel = choice.accel;
        choice.note.iter().for_each(|note| watch.note(note));
        let saved = SavedGuests::new(&cache)?;
        Ok(Lab { recipe, accel_note: choice.note, saved, cache, watch: watch.clone() })
    }

    /// Starts a guest and waits until its agent answers. Its console goes to a file, which is one of
    /// the guest's own if none is named.
    pub fn start(&self, how: Start, console: Option<&Path>) -> Result<Guest, GuestError> {
        let guest = match how {
            Start::Saved => self.saved.start(&self.recipe, console, &self.watch)?,
            Start::Fresh => {
                self.watch.stage(format!("booting a guest ({})", self.recipe.accel));
                self.recipe.boot(console, BOOT_LIMIT, &self.watch)?
            }
        };
        for warning in &guest.hello.warnings {
            self.watch.note(format!("the guest warns: {warning}"));
        }
        Ok(guest)
    }

    /// How the CPU is run.
    pub fn accel(&self) -> Accel {
        self.recipe.accel
    }

    /// What was tried and why the CPU is emulated, if it is and nobody asked for it.
    pub fn accel_note(&self) -> Option<&str> {
        self.accel_note.as_deref()
    }

    /// Kernel and tools of the guest.
    pub fn image(&self) -> &Image {
        &self.recipe.image
    }

    /// The second disk for guests that run real software. The first time takes minutes.
    pub fn full_root(&self) -> Result<FullRoot, GuestError> {
        FullRoot::ensure(self.recipe.config.suite, &self.cache, &self.watch)
    }

    /// What the guest was asked to be.
    pub fn config(&self) -> &GuestConfig {
        &self.recipe.config
    }

    /// The first line of QEMU's version.
    pub fn qemu_version(&self) -> &str {
        &self.recipe.qemu_version
    }

    /// Digest of the agent's program.
    pub fn agent_digest(&self) -> &str {
        &self.recipe.agent_digest
    }

    /// The user's cache folder.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Where the saved guest is, or will be.
    pub fn saved_place(&self) -> PathBuf {
        self.saved.place(&self.recipe)
    }

    /// What is known about the saved guest, if there is one.
    pub fn saved_meta(&self) -> Option<Meta> {
        self.saved.meta(&self.recipe)
    }
}

/// Model and features of the host's CPU.
fn host_cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let wanted = ["model name", "flags", "microcode"];
    let lines = text.lines().take_while(|line| !line.is_empty());
    lines.filter(|line| wanted.iter().any(|name| line.starts_with(name))).collect()
}
