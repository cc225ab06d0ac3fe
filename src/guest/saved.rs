//! Saved guests: booted once, written to a file, restored for every later start.
//!
//! A guest is saved before any disk was plugged in. Its folder gets its name only when it is whole,
//! and one lock covers making and removing; a restore needs no lock, because it holds the file open.

use crate::guest::cache::lock;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::guest::recipe::{BOOT_LIMIT, Recipe};
use crate::guest::running::Guest;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// So many are kept, some 200 MB each; the one that was not used for longest goes first.
const KEPT_MAX: usize = 4;
/// Finding one, making it and making it again take three; more are other tools in our way.
const TRIES: u32 = 6;
/// QEMU has this long to write one.
const SAVE_LIMIT: Duration = Duration::from_secs(300);
const STATE_FILE: &str = "state";
const META_FILE: &str = "meta.json";
/// Begins the name of a folder that is not whole yet.
const HALF_MADE: &str = ".making-";

/// What is known about a saved guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of this file.
    pub format: u32,
    /// Bytes of its state.
    pub bytes: u64,
    /// From power-on to an agent that answers, in milliseconds.
    pub boot_ms: u64,
    /// The time that writing the state took, in milliseconds.
    pub save_ms: u64,
    /// How its CPU is run.
    pub accel: String,
    /// The QEMU that it fits.
    pub qemu: String,
    /// The image that it was booted from.
    pub image: PathBuf,
}

/// The folder of all saved guests.
#[derive(Debug, Clone)]
pub struct SavedGuests {
    folder: PathBuf,
}

impl SavedGuests {
    /// In this cache.
    pub fn new(cache: &Path) -> Result<SavedGuests, GuestError> {
        let folder = cache.join("saved");
        fs::create_dir_all(&folder).map_err(GuestError::file("make the folder", &folder))?;
        Ok(SavedGuests { folder })
    }

    /// Starts a clone of the recipe's saved guest. One that is missing is made; one that does not fit
    /// any more is made again, once, and that is said.
    pub fn start(
        &self,
        recipe: &Recipe,
        console: Option<&Path>,
        watch: &Watch,
    ) -> Result<Guest, GuestError> {
        let key = recipe.key();
        let mut failed = None;
        for _ in 0..TRIES {
            let Some(state) = self.open(&key)? else {
                self.make(&key, recipe, watch)?;
                continue;
            };
            let which = identity(&state);
            match recipe.restore(state, console, watch) {
                Ok(guest) => return Ok(guest),
                Err(why) if failed.is_some() || is_not_its_fault(&why) => return Err(why),
                Err(why) => {
                    watch.note(format!("the saved guest cannot be used and is made again: {why}"));
                    self.remove(&key, which, watch)?;
                    failed = Some(why);
                }
            }
        }
        let vanished = || GuestError::file("keep", &self.folder_of(&key))(not_found());
        Err(failed.unwrap_or_else(vanished))
    }

    /// Where the recipe's saved guest is, or will be.
    pub fn place(&self, recipe: &Recipe) -> PathBuf {
        self.folder_of(&recipe.key())
    }

    /// What is known about the recipe's saved guest, if there is one.
    pub fn meta(&self, recipe: &Recipe) -> Option<Meta> {
        read_meta(&self.place(recipe))
    }

    fn folder_of(&self, key: &str) -> PathBuf {
        self.folder.join(&key[..key.len().min(16)])
    }

    /// The state of a whole saved guest. Opening it counts as a use.
    fn open(&self, key: &str) -> Result<Option<File>, GuestError> {
        let folder = self.folder_of(key);
        let path = folder.join(STATE_FILE);
        let (Some(meta), Ok(state)) = (read_meta(&folder), File::open(&path)) else {
            return Ok(None);
        };
        let bytes = state.metadata().map_err(GuestError::file("look at", &path))?.len();
        if bytes != meta.bytes {
            return Ok(None);
        }
        let used = File::options().append(true).open(folder.join(META_FILE));
        // Only the order in which they are removed hangs on it.
        let _ = used.and_then(|file| file.set_modified(SystemTime::now()));
        Ok(Some(state))
    }

    /// Removes a saved guest, unless another tool has made a new one in the meantime.
    fn remove(&self, key: &str, which: Identity, watch: &Watch) -> Result<(), GuestError> {
        let _lock = self.lock(watch)?;
        let folder = self.folder_of(key);
        let now = File::open(folder.join(STATE_FILE)).map(|state| identity(&state));
        if !now.is_ok_and(|now| now == which) {
            return Ok(());
        }
        fs::remove_dir_all(&folder).map_err(GuestError::file("remove", &folder))
    }

    fn lock(&self, watch: &Watch) -> Result<impl Drop + use<>, GuestError> {
        lock(&self.folder.join(".lock"), watch, "waiting for another plugpull that saves a guest")
    }

    fn make(&self, key: &str, recipe: &Recipe, watch: &Watch) -> Result<(), GuestError> {
        let _lock = self.lock(watch)?;
        if self.open(key)?.is_some() {
            return Ok(());
        }
        self.remove_half_made()?;
        let made = self.folder.join(format!("{HALF_MADE}{}", std::process::id()));
        fs::create_dir(&made).map_err(GuestError::file("make the folder", &made))?;
        let result = fill(&made, recipe, watch).and_then(|()| self.publish(&made, key));
        if result.is_err() {
            let _ = fs::remove_dir_all(&made);
        }
        result
    }

    /// Whoever holds the lock is the only maker: what is half made was left behind.
    fn remove_half_made(&self) -> Result<(), GuestError> {
        let entries = fs::read_dir(&self.folder).map_err(GuestError::file("list", &self.folder))?;
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(HALF_MADE) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(GuestError::file("remove", &path))?;
            }
        }
        Ok(())
    }

    fn publish(&self, made: &Path, key: &str) -> Result<(), GuestError> {
        let folder = self.folder_of(key);
        if folder.exists() {
            // Not whole: `open` has just refused it.
            fs::remove_dir_all(&folder).map_err(GuestError::file("remove", &folder))?;
        }
        fs::rename(made, &folder).map_err(GuestError::file("name", &folder))?;
        self.prune()
    }

    /// Removes the ones that were not used for longest, and what has no meta.json first of all.
    fn prune(&self) -> Result<(), GuestError> {
        let entries = fs::read_dir(&self.folder).map_err(GuestError::file("list", &self.folder))?;
        let mut guests: Vec<(SystemTime, PathBuf)> = entries
            .flatten()
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
            .map(|entry| {
                let used =
                    fs::metadata(entry.path().join(META_FILE)).and_then(|meta| meta.modified());
                (used.unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
            })
            .collect();
        guests.sort_by(|one, other| other.cmp(one));
        for (_, path) in guests.drain(KEPT_MAX.min(guests.len())..) {
            fs::remove_dir_all(&path).map_err(GuestError::file("remove", &path))?;
        }
        Ok(())
    }
}

/// Boots a guest and writes its state and what is known about it into a folder.
fn fill(folder: &Path, recipe: &Recipe, watch: &Watch) -> Result<(), GuestError> {
    watch.stage(format!("booting the guest once, to save it ({})", recipe.accel));
    let guest = recipe.boot(None, BOOT_LIMIT, watch)?;
    let boot_ms = guest.ready_after.as_millis() as u64;
    watch.stage("saving the guest");
    let (path, started) = (folder.join(STATE_FILE), Instant::now());
    let state = File::create(&path).map_err(GuestError::file("make", &path))?;
    guest.save(&state, SAVE_LIMIT)?;
    let save_ms = started.elapsed().as_millis() as u64;
    state.sync_all().map_err(GuestError::file("write", &path))?;
    let meta = Meta {
        format: 1,
        bytes: state.metadata().map_err(GuestError::file("look at", &path))?.len(),
        boot_ms,
        save_ms,
        accel: recipe.accel.to_string(),
        qemu: recipe.qemu_version.clone(),
        image: recipe.image.folder.clone(),
    };
    let path = folder.join(META_FILE);
    let text = serde_json::to_string_pretty(&meta).map_err(std::io::Error::other);
    text.and_then(|text| {
        let mut file = File::create(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    })
    .map_err(GuestError::file("write", &path))
}

fn read_meta(folder: &Path) -> Option<Meta> {
    let text = fs::read_to_string(folder.join(META_FILE)).ok()?;
    serde_json::from_str(&text).ok().filter(|meta: &Meta| meta.format == 1)
}

/// Whether a start failed for a reason that a new saved guest would not change.
fn is_not_its_fault(why: &GuestError) -> bool {
    matches!(why, GuestError::Cancelled | GuestError::File { .. } | GuestError::Foreign(_))
}

/// Tells one state from its successor under the same name.
type Identity = Option<(u64, u64)>;

fn identity(state: &File) -> Identity {
    state.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

fn not_found() -> std::io::Error {
    std::io::ErrorKind::NotFound.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(saved: &SavedGuests, key: &str, bytes: &[u8], age_s: u64) {
        let folder = saved.folder_of(key);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join(STATE_FILE), bytes).expect("a state");
        let meta = Meta {
            format: 1,
            bytes: 4,
            boot_ms: 1,
            save_ms: 1,
            accel: "tcg".into(),
            qemu: "7.2".into(),
            image: "/img".into(),
        };
        let path = folder.join(META_FILE);
        fs::write(&path, serde_json::to_string(&meta).expect("JSON")).expect("a meta");
        let file = File::options().append(true).open(path).expect("the meta");
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).expect("a time");
    }

    #[test]
    fn a_state_of_another_length_than_was_noted_counts_as_missing() {
        let cache = tempfile::tempdir().expect("a folder");
        let saved = SavedGuests::new(cache.path()).expect("made");
        put(&saved, "whole", b"1234", 0);
        put(&saved, "cut", b"123", 0);
        assert!(saved.open("whole").expect("looked").is_some());
        assert!(saved.open("cut").expect("looked").is_none());
        assert!(saved.open("none").expect("looked").is_none());
    }

    #[test]
    fn the_ones_used_last_are_kept() {
        let cache = tempfile::tempdir().expect("a folder");
        let saved = SavedGuests::new(cache.path()).expect("made");
        for age_s in 0..6 {
            put(&saved, &format!("guest{age_s}"), b"1234", 100 * age_s);
        }
        saved.open("guest5").expect("looked").expect("there");
        saved.prune().expect("pruned");
        let kept: Vec<u64> =
            (0..6).filter(|n| saved.folder_of(&format!("guest{n}")).exists()).collect();
        assert_eq!(kept, [0, 1, 2, 5]);
    }

    #[test]
    fn only_the_state_that_did_not_fit_is_removed_and_not_its_successor() {
        let cache = tempfile::tempdir().expect("a folder");
        let saved = SavedGuests::new(cache.path()).expect("made");
        put(&saved, "guest", b"1234", 0);
        let first = saved.open("guest").expect("looked").expect("there");
        let place = saved.folder_of("guest");
        fs::rename(&place, cache.path().join("old")).expect("out of the way");
        put(&saved, "guest", b"5678", 0);
        saved.remove("guest", identity(&first), &Watch::silent()).expect("looked");
        let second = saved.open("guest").expect("looked").expect("still there");
        saved.remove("guest", identity(&second), &Watch::silent()).expect("removed");
        assert!(!place.exists());
    }

    #[test]
    fn what_a_killed_tool_left_half_made_is_removed() {
        let cache = tempfile::tempdir().expect("a folder");
        let saved = SavedGuests::new(cache.path()).expect("made");
        let left = saved.folder.join(format!("{HALF_MADE}17"));
        fs::create_dir(&left).expect("a folder");
        saved.remove_half_made().expect("removed");
        assert!(!left.exists());
    }
}
