//! Which acceleration works here. /dev/kvm can be there and open, and a guest still hang on it for
//! ever, so a guest is booted on it with a time limit, and what came of it is remembered.

use crate::guest::cache::digest_of_texts;
use crate::guest::config::Accel;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::guest::recipe::Recipe;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const KVM: &str = "/dev/kvm";
/// On a CPU of its own a guest answers within some 5 s.
const KVM_BOOT_LIMIT: Duration = Duration::from_secs(15);

/// What works, and what the user should know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What works.
    pub accel: Accel,
    /// What was tried and why it is not KVM.
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    works: bool,
    why: String,
}

/// Finds out what works here, unless the recipe's configuration says what to use.
pub fn choose(recipe: &Recipe, cache: &Path, watch: &Watch) -> Result<Choice, GuestError> {
    if let Some(accel) = recipe.config.accel {
        return Ok(Choice { accel, note: None });
    }
    let identity = match File::options().read(true).write(true).open(KVM) {
        Err(why) => return Ok(emulation(&format!("{KVM} cannot be opened ({why})"))),
        Ok(device) => identity(recipe, &device),
    };
    let path = memory_path(cache, &identity);
    let found = match recall(&path) {
        Some(found) => found,
        None => {
            let found = try_kvm(recipe, watch)?;
            remember(&path, &found)?;
            found
        }
    };
    if found.works {
        return Ok(Choice { accel: Accel::Kvm, note: None });
    }
    let why = format!("{} (remembered in {}; remove it to try again)", found.why, path.display());
    Ok(emulation(&why))
}

fn emulation(why: &str) -> Choice {
    let note = format!("the guest runs under software emulation: {why}");
    Choice { accel: Accel::Tcg, note: Some(note) }
}

/// Whatever could make a second try end differently.
fn identity(recipe: &Recipe, device: &File) -> Vec<String> {
    let node = device.metadata().map(|meta| (meta.rdev(), meta.ino(), meta.mode()));
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    vec![
        release,
        recipe.qemu_version.clone(),
        recipe.image.digest.clone(),
        recipe.host_cpu.clone(),
        format!("{node:?}"),
    ]
}

fn memory_path(cache: &Path, identity: &[String]) -> PathBuf {
    cache.join("acceleration").join(format!("{}.json", &digest_of_texts(identity)[..16]))
}

fn recall(path: &Path) -> Option<Remembered> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn remember(path: &Path, found: &Remembered) -> Result<(), GuestError> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(path);
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, found)?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(GuestError::file("write", path))
}

fn try_kvm(recipe: &Recipe, watch: &Watch) -> Result<Remembered, GuestError> {
    let limit_s = KVM_BOOT_LIMIT.as_secs();
    watch.stage(format!("trying a guest on {KVM}, for at most {limit_s} s"));
    let recipe = Recipe { accel: Accel::Kvm, ..recipe.clone() };
    let why = match recipe.boot(None, KVM_BOOT_LIMIT, watch) {
        Ok(_) => return Ok(Remembered { works: true, why: String::new() }),
        Err(GuestError::Cancelled) => return Err(GuestError::Cancelled),
        Err(GuestError::TimedOut { .. }) => {
            format!("{KVM} opens, but a guest on it did not answer within {limit_s} s")
        }
        Err(GuestError::Ended { how, stderr, .. }) => {
            let words = stderr.lines().next().map(|line| format!(": {line}")).unwrap_or_default();
            format!("{KVM} opens, but QEMU ended on it ({how}{words})")
        }
        Err(why) => format!("{KVM} opens, but a guest on it failed ({why})"),
    };
    Ok(Remembered { works: false, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_out_is_remembered_per_host() {
        let cache = tempfile::tempdir().expect("a folder");
        let path = memory_path(cache.path(), &["host one".into()]);
        assert_eq!(recall(&path), None);
        let found = Remembered { works: false, why: "it hung".into() };
        remember(&path, &found).expect("written");
        assert_eq!(recall(&path), Some(found));
        assert_eq!(recall(&memory_path(cache.path(), &["host two".into()])), None);
    }

    #[test]
    fn a_damaged_memory_is_no_memory() {
        let cache = tempfile::tempdir().expect("a folder");
        let path = cache.path().join("x.json");
        fs::write(&path, "{\"works\": tr").expect("written");
        assert_eq!(recall(&path), None);
    }
}
