//! A guest's second disk, made by vm-scripts/build-full-root only when a scenario asks for it: a Debian
//! with PostgreSQL, and a small Debian into which apt can install without a network.

use crate::guest::build_script::BuildScript;
use crate::guest::cache::digest_of_file;
use crate::guest::config::Suite;
use crate::guest::disk::DiskSource;
use crate::guest::error::GuestError;
use crate::guest::image::BUILD_GUEST;
use crate::guest::progress::Watch;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What builds it. It takes its functions from build-guest, which therefore lies beside it.
pub(super) const SCRIPT: BuildScript = BuildScript {
    files: &[
        ("build-full-root", include_str!("../../vm-scripts/build-full-root")),
        ("build-guest", BUILD_GUEST),
    ],
    builds: "the guest's second disk, with PostgreSQL and packages",
};

/// A complete second disk.
#[derive(Debug, Clone)]
pub struct FullRoot {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is made of: the text of its full-root.json.
    pub facts: String,
    /// Digest of full-root.json, which holds the digests of the disk and of the packages on it.
    pub digest: String,
}

impl FullRoot {
    /// Finds the second disk of a suite, or builds it, which takes minutes.
    pub fn ensure(suite: Suite, cache: &Path, watch: &Watch) -> Result<FullRoot, GuestError> {
        let folder = SCRIPT.ensure(suite, cache, watch)?;
        let path = folder.join("full-root.json");
        let facts = std::fs::read_to_string(&path).map_err(GuestError::file("read", &path))?;
        Ok(FullRoot { digest: digest_of_file(&path)?, facts, folder })
    }

    /// What a guest is given: any number of guests may have it at once, for none can write to it.
    pub fn disk(&self) -> DiskSource {
        DiskSource::ReadOnlyFile(self.folder.join("full-root.ext4"))
    }

    /// A fact of full-root.json by its name, such as `postgresql_version` or `dpkg_version`.
    pub fn fact(&self, name: &str) -> Option<String> {
        let facts: Value = serde_json::from_str(&self.facts).ok()?;
        facts.get(name)?.as_str().map(str::to_owned)
    }
}
