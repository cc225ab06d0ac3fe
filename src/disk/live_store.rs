//! A disk as disks are: a medium, and a cache in memory that is gone with the power.
//!
//! It hears the same requests as the trace but shares nothing with it: no extents, no crash model.
//! What is left in its file after the cut is what the default crash model must say is left. That is
//! how the model is held against a real loss.
//!
//! What always holds: a sector of the file shows the latest arrival among the changes that were
//! destaged to it, and only a flush that was answered, or FUA, destages.

use crate::trace::{Command, RequestNo};
use crate::units::SECTOR_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

/// A medium with a volatile cache. Clones are the same disk.
#[derive(Clone)]
pub struct LiveStore(Arc<Mutex<Store>>);

struct Store {
    medium: File,
    /// Changes in the cache, by their numbers: arrival is ascending.
    cache: BTreeMap<u64, Change>,
    /// For each flush that is not answered: the changes that it covers.
    flushes: BTreeMap<u64, BTreeSet<u64>>,
    /// Which change each sector of the medium shows.
    shown: BTreeMap<u64, u64>,
    /// The first error of the file; nothing is done after it.
    failed: Option<io::Error>,
    cut: bool,
}

struct Change {
    first_sector: u64,
    /// Its sectors' bytes.
    bytes: Vec<u8>,
    fua: bool,
    answered: bool,
}

/// A request, as the disk hears it.
#[derive(Debug, Clone, Copy)]
pub struct Heard<'a> {
    /// Its number; later arrivals have higher ones.
    pub no: RequestNo,
    /// What it asks.
    pub command: Command,
    /// Whether its own data are to be durable when it is answered.
    pub fua: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// A write's bytes.
    pub payload: &'a [u8],
}

impl LiveStore {
    /// A disk whose medium is this file, which is empty.
    pub fn new(medium: File) -> LiveStore {
        LiveStore(Arc::new(Mutex::new(Store {
            medium,
            cache: BTreeMap::new(),
            flushes: BTreeMap::new(),
            shown: BTreeMap::new(),
            failed: None,
            cut: false,
        })))
    }

    /// Makes the medium as large as the disk.
    pub fn set_size(&self, disk_bytes: u64) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).medium.set_len(disk_bytes)
    }

    /// A request arrived.
    pub fn arrived(&self, heard: Heard) {
        self.with(|store| store.arrived(heard));
    }

    /// A request is about to be answered without an error.
    pub fn answered(&self, no: RequestNo) {
        self.with(|store| store.answered(no.0));
    }

    /// The power goes: the cache is gone, and nothing reaches the medium any more.
    pub fn cut(&self) -> io::Result<()> {
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        store.cut = true;
        store.cache.clear();
        store.flushes.clear();
        match store.failed.take() {
            Some(error) => Err(error),
            None => store.medium.sync_all(),
        }
    }

    fn with(&self, act: impl FnOnce(&mut Store) -> io::Result<()>) {
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if store.cut || store.failed.is_some() {
            return;
        }
        store.failed = act(&mut store).err();
    }
}

impl Store {
    fn arrived(&mut self, heard: Heard) -> io::Result<()> {
        let bytes = match heard.command {
            Command::Read => return Ok(()),
            Command::Flush => {
                let answered = self.cache.iter().filter(|(_, change)| change.answered);
                let covered = answered.map(|(no, _)| *no).collect();
                self.flushes.insert(heard.no.0, covered);
                return Ok(());
            }
            Command::Write => heard.payload.to_vec(),
            Command::Trim | Command::WriteZeroes => vec![0; heard.length as usize],
        };
        let first_sector = heard.offset / SECTOR_BYTES as u64;
        let change = Change { first_sector, bytes, fua: heard.fua, answered: false };
        self.cache.insert(heard.no.0, change);
        Ok(())
    }

    fn answered(&mut self, no: u64) -> io::Result<()> {
        if let Some(covered) = self.flushes.remove(&no) {
            return covered.into_iter().try_for_each(|change| self.destage(change));
        }
        let Some(change) = self.cache.get_mut(&no) else { return Ok(()) };
        change.answered = true;
        if change.fua { self.destage(no) } else { Ok(()) }
    }

    /// Brings a change to the medium, if no flush did so before.
    fn destage(&mut self, no: u64) -> io::Result<()> {
        let Some(change) = self.cache.remove(&no) else { return Ok(()) };
        let sectors = change.bytes.chunks(SECTOR_BYTES).enumerate();
        for (nth, bytes) in sectors {
            let sector = change.first_sector + nth as u64;
            if self.shown.get(&sector).is_some_and(|later| *later > no) {
                continue;
            }
            self.shown.insert(sector, no);
            self.medium.write_all_at(bytes, sector * SECTOR_BYTES as u64)?;
        }
        Ok(())
    }
}

impl fmt::Debug for LiveStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveStore")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(no: u64, command: Command, offset: u64, payload: &[u8]) -> Heard<'_> {
        let length = payload.len() as u32;
        Heard { no: RequestNo(no), command, fua: false, offset, length, payload }
    }

    fn store() -> (LiveStore, File) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("a size");
        (LiveStore::new(file.try_clone().expect("a handle")), file)
    }

    /// The first byte of each of the first four sectors.
    fn shows(file: &File) -> [u8; 4] {
        std::array::from_fn(|sector| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, (sector * SECTOR_BYTES) as u64).expect("a byte");
            byte[0]
        })
    }

    #[test]
    fn only_what_a_flush_covers_that_was_answered_is_left() {
        let (disk, file) = store();
        let write = |no, sector: u64, byte: u8| {
            disk.arrived(heard(no, Command::Write, sector * 512, &[byte; 512]));
        };
        write(0, 0, 1);
        disk.answered(RequestNo(0));
        write(1, 1, 2);
        disk.arrived(heard(2, Command::Flush, 0, &[]));
        disk.answered(RequestNo(1));
        assert_eq!(shows(&file), [0; 4], "the flush is not answered");
        disk.answered(RequestNo(2));
        assert_eq!(shows(&file), [1, 0, 0, 0], "it came before the second write was answered");
        write(3, 2, 3);
        disk.answered(RequestNo(3));
        disk.cut().expect("a medium");
        disk.arrived(heard(4, Command::Flush, 0, &[]));
        disk.answered(RequestNo(4));
        assert_eq!(shows(&file), [1, 0, 0, 0], "nothing reaches it behind the cut");
    }

    #[test]
    fn a_later_arrival_stays_over_an_earlier_one_that_is_destaged_after_it() {
        let (disk, file) = store();
        disk.arrived(heard(0, Command::Write, 0, &[1; 1024]));
        let forced = Heard { fua: true, ..heard(1, Command::Write, 512, &[2; 512]) };
        disk.arrived(forced);
        disk.answered(RequestNo(1));
        assert_eq!(shows(&file), [0, 2, 0, 0]);
        disk.answered(RequestNo(0));
        disk.arrived(heard(2, Command::Flush, 0, &[]));
        disk.answered(RequestNo(2));
        assert_eq!(shows(&file), [1, 2, 0, 0]);
        let trim = Heard { length: 512, ..heard(3, Command::Trim, 0, &[]) };
        disk.arrived(trim);
        disk.answered(RequestNo(3));
        disk.arrived(heard(4, Command::Flush, 0, &[]));
        disk.answered(RequestNo(4));
        assert_eq!(shows(&file), [0, 2, 0, 0]);
    }
}
