//! The guest's image: kernel and RAM disk, made by vm-scripts/build-guest when it is missing.

use crate::guest::build_script::BuildScript;
use crate::guest::cache::digest_of_file;
use crate::guest::config::Suite;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What builds it.
pub(super) const SCRIPT: BuildScript =
    BuildScript { files: &[("build-guest", BUILD_GUEST)], builds: "the guest image" };
/// The script's text.
pub(super) const BUILD_GUEST: &str = include_str!("../../vm-scripts/build-guest");

/// A complete image.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is made of: the text of its guest.json.
    pub facts: String,
    /// Digest of guest.json, which holds the digests of all other files.
    pub digest: String,
}

impl Image {
    /// Finds the image of a suite, or builds it, which takes minutes.
    pub fn ensure(suite: Suite, cache: &Path, watch: &Watch) -> Result<Image, GuestError> {
        Image::open(SCRIPT.ensure(suite, cache, watch)?)
    }

    fn open(folder: PathBuf) -> Result<Image, GuestError> {
        let path = folder.join("guest.json");
        let facts = std::fs::read_to_string(&path).map_err(GuestError::file("read", &path))?;
        Ok(Image { digest: digest_of_file(&path)?, facts, folder })
    }

    /// The kernel.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The archives of the RAM disk.
    pub fn archives(&self, bench: bool) -> Vec<PathBuf> {
        let names = if bench { &["initramfs.cpio", "bench.cpio"][..] } else { &["initramfs.cpio"] };
        names.iter().map(|name| self.folder.join(name)).collect()
    }

    /// A fact of guest.json by its name, such as `kernel_release` or `zfs_version`.
    pub fn fact(&self, name: &str) -> Option<String> {
        let facts: Value = serde_json::from_str(&self.facts).ok()?;
        facts.get(name)?.as_str().map(str::to_owned)
    }
}
