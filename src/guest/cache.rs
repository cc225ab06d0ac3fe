//! The user's cache folder: images, saved guests, and what was learnt about the host.

use crate::guest::error::GuestError;
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::guest::progress::Watch;

/// The user's cache folder: `PLUGPULL_CACHE`, else `XDG_CACHE_HOME/plugpull`, else
/// `HOME/.cache/plugpull`. It is made when missing.
pub fn cache_folder() -> Result<PathBuf, GuestError> {
    let folder = choose(|name| std::env::var_os(name)).ok_or(GuestError::NoCacheFolder)?;
    fs::create_dir_all(&folder).map_err(GuestError::file("make the cache folder", &folder))?;
    std::path::absolute(&folder).map_err(GuestError::file("find the cache folder", &folder))
}

fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("PLUGPULL_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("plugpull")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/plugpull")))
}

/// SHA-256 of a file, in hexadecimal digits.
pub fn digest_of_file(path: &Path) -> Result<String, GuestError> {
    let mut hash = Sha256::new();
    File::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut HashWriter(&mut hash)))
        .map_err(GuestError::file("read", path))?;
    Ok(hex(&hash.finalize()))
}

/// SHA-256 of texts, each with its length so that no two lists look alike.
pub fn digest_of_texts(texts: &[String]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hex(&hash.finalize())
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An exclusive lock on a file, held until it is dropped or its owner dies. Another owner is waited
/// for, however long it works, and `waiting` is told once.
pub fn lock(path: &Path, watch: &Watch, waiting: &str) -> Result<Flock<File>, GuestError> {
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(GuestError::file("open the lock", path))?;
    let mut told = false;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, nix::errno::Errno::EWOULDBLOCK | nix::errno::Errno::EINTR)) => file = back,
            Err((_, errno)) => return Err(GuestError::file("lock", path)(errno.into())),
        }
        if !told {
            watch.stage(waiting);
            told = true;
        }
        watch.check()?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(set: &[(&str, &str)]) -> Option<PathBuf> {
        choose(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_first_variable_that_says_something_decides() {
        assert_eq!(chosen(&[("PLUGPULL_CACHE", "/a"), ("HOME", "/h")]), Some(PathBuf::from("/a")));
        assert_eq!(
            chosen(&[("PLUGPULL_CACHE", ""), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]),
            Some(PathBuf::from("/x/plugpull"))
        );
        assert_eq!(chosen(&[("HOME", "/h")]), Some(PathBuf::from("/h/.cache/plugpull")));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn texts_that_only_look_alike_when_joined_have_other_digests() {
        let digest =
            |texts: &[&str]| digest_of_texts(&texts.iter().map(|&t| t.into()).collect::<Vec<_>>());
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["ab", "c"]), digest(&["ab", "c"]));
    }

    #[test]
    fn a_file_and_its_bytes_have_the_known_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("abc");
        fs::write(&path, "abc").expect("a file");
        let digest = digest_of_file(&path).expect("read");
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_lock_is_waited_for_until_the_user_wants_to_stop() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let held = lock(&path, &Watch::silent(), "").expect("free");
        let cancel = std::sync::Arc::new(true.into());
        let error = lock(&path, &Watch::new(|_| {}, cancel), "waiting").expect_err("held");
        assert!(matches!(error, GuestError::Cancelled));
        drop(held);
        lock(&path, &Watch::silent(), "").expect("free again");
    }
}
