//! Seeded operations of every kind on a small tree, without end.
//!
//! Most crash-consistency faults show after a few operations and a sync right behind them (CrashMonkey
//! and ACE, OSDI 2018), so half of the syncs come 1 to 3 operations after the one before, and most are
//! of what was touched last. What always holds: no operation is made that would fail, and what all
//! files have together is bounded.

use super::dice::Dice;
use super::names::{DIRECT_BYTES, Entry, Names, parent};
use crate::script::op::{FallocateHow, Op, PathId, Paths, SyncHow, WORD_BYTES, WriteHow};
use crate::script::spec::Generator;
use crate::units::StreamId;
use std::collections::VecDeque;

/// Sets the choices apart from every other use of a seed.
const PURPOSE: u64 = u64::from_le_bytes(*b"files v1");

/// Folders that the set-up makes, and that later ones are made, or renamed, as.
const FOLDERS: [&str; 6] = ["a", "b", "a/c", "b/d", "a/c/e", "f"];
/// Operations of the set-up: the folders, and a sync.
pub const FILL: u64 = FOLDERS.len() as u64 + 1;
/// So many folders are always there.
const FOLDERS_MIN: usize = 3;
/// A folder that is renamed takes what is in it along; no deeper than this.
const DEPTH_MAX: usize = 5;
/// All files together have no more.
const BYTES_MAX: u64 = 48 << 20;
/// Room behind its end that a file is given at most.
const ROOM_MAX: u64 = 64 << 10;
/// A proposal is right about every second time; after so many wrong ones the file system is synced.
const TRIES: u32 = 64;

/// A script of every kind of operation.
#[derive(Debug)]
pub struct Random {
    names_each: u64,
    file_bytes: u64,
    sync_every: u64,
    dice: Dice,
    paths: Paths,
    names: Names,
    /// Operations that belong together, and the set-up.
    due: VecDeque<Op>,
    /// What was touched last.
    last: PathId,
    until_sync: u64,
}

/// Kinds of proposals, as often as they are listed.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Create,
    Write,
    Append,
    Truncate,
    Fallocate,
    Rename,
    RenameOver,
    RenameFolder,
    Link,
    Symlink,
    Unlink,
    Again,
    Mkdir,
    Rmdir,
    Copy,
}

const KINDS: [(Kind, u64); 15] = [
    (Kind::Create, 12),
    (Kind::Write, 20),
    (Kind::Append, 10),
    (Kind::Truncate, 7),
    (Kind::Fallocate, 8),
    (Kind::Rename, 6),
    (Kind::RenameOver, 7),
    (Kind::RenameFolder, 3),
    (Kind::Link, 5),
    (Kind::Symlink, 3),
    (Kind::Unlink, 4),
    (Kind::Again, 6),
    (Kind::Mkdir, 4),
    (Kind::Rmdir, 3),
    (Kind::Copy, 5),
];

impl Random {
    /// The script of a stream. `sync_every` operations lie between two syncs on average.
    pub fn new(
        names: u32,
        file_bytes: u64,
        sync_every: u32,
        (seed, stream): (u64, StreamId),
    ) -> Random {
        let mut paths = Paths::default();
        let mut due: VecDeque<Op> =
            FOLDERS.iter().map(|folder| Op::Mkdir(paths.intern(folder))).collect();
        let last = paths.intern("");
        due.push_back(Op::Sync { path: last, how: SyncHow::Syncfs });
        let mut random = Random {
            names_each: u64::from(names),
            file_bytes: file_bytes / WORD_BYTES * WORD_BYTES,
            sync_every: u64::from(sync_every),
            dice: Dice::new(PURPOSE, seed, stream),
            paths,
            names: Names::default(),
            due,
            last,
            until_sync: 0,
        };
        random.until_sync = random.distance();
        random
    }

    /// Operations to the next sync: 1 to 3 half of the time, 2 on average; the other half makes up
    /// for it, so that the average of both is `sync_every`.
    fn distance(&mut self) -> u64 {
        let far = (4 * self.sync_every).saturating_sub(5);
        let most = if self.dice.chance(1, 2) { 3 } else { far.max(1) };
        1 + self.dice.below(most)
    }

    fn propose(&mut self) -> Option<Op> {
        let all: u64 = KINDS.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.dice.below(all);
        let kind = KINDS.iter().find(|(_, weight)| {
            let here = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            here
        });
        match kind?.0 {
            Kind::Create => Some(Op::Create(self.any_name())),
            Kind::Write => self.write(),
            Kind::Append => {
                let path = self.file()?;
                let offset = self.size(path);
                let len = self.length(self.file_bytes.checked_sub(offset)?)?;
                Some(Op::Write { path, offset, len, how: WriteHow::Buffered })
            }
            Kind::Truncate => {
                let path = self.file()?;
                let words = self.file_bytes / WORD_BYTES;
                Some(Op::Truncate { path, size: self.dice.below(words + 1) * WORD_BYTES })
            }
            Kind::Fallocate => self.fallocate(),
            Kind::Rename => Some(Op::Rename { from: self.leaf()?, to: self.any_name() }),
            Kind::RenameOver => Some(Op::Rename { from: self.file()?, to: self.leaf()? }),
            Kind::RenameFolder => self.rename_folder(),
            Kind::Link => Some(Op::Link { from: self.file()?, to: self.any_name() }),
            Kind::Symlink => Some(Op::Symlink { target: self.any_name(), at: self.any_name() }),
            Kind::Unlink => Some(Op::Unlink(self.leaf()?)),
            Kind::Again => self.again(),
            Kind::Mkdir => Some(Op::Mkdir(self.folder_slot())),
            Kind::Rmdir => {
                (self.folders().len() > FOLDERS_MIN).then(|| Op::Rmdir(self.folder_slot()))
            }
            Kind::Copy => {
                let (from, to) = (self.file()?, self.file()?);
                let (offset, len) = self.range(self.size(from), 4096)?;
                Some(Op::Copy { from, to, offset, len })
            }
        }
    }

    fn write(&mut self) -> Option<Op> {
        let path = self.file()?;
        let how = match self.dice.below(10) {
            0..5 => WriteHow::Buffered,
            5 => WriteHow::Dsync,
            6 => WriteHow::Sync,
            7 | 8 => WriteHow::Direct,
            _ => WriteHow::Mapped,
        };
        let (offset, len) = match how {
            WriteHow::Direct => self.blocks(self.file_bytes, DIRECT_BYTES)?,
            // A mapping ends where its file does.
            WriteHow::Mapped => self.range(self.size(path), 4096)?,
            WriteHow::Buffered | WriteHow::Dsync | WriteHow::Sync => {
                self.range(self.file_bytes, 4096)?
            }
        };
        Some(Op::Write { path, offset, len, how })
    }

    fn fallocate(&mut self) -> Option<Op> {
        let path = self.file()?;
        let size = self.size(path);
        let how = self.dice.one(&[
            FallocateHow::Allocate,
            FallocateHow::KeepSize,
            FallocateHow::PunchHole,
            FallocateHow::ZeroRange,
        ])?;
        let end = match how {
            FallocateHow::Allocate => self.file_bytes,
            FallocateHow::KeepSize => self.file_bytes.min(size + ROOM_MAX),
            FallocateHow::PunchHole | FallocateHow::ZeroRange => size,
        };
        let (offset, len) = self.range(end, 4096)?;
        Some(Op::Fallocate { path, offset, len, how })
    }

    fn rename_folder(&mut self) -> Option<Op> {
        let folders = self.folders();
        let (from, to) = (self.dice.one(&folders)?, self.folder_slot());
        let depth = |path: &str| path.split('/').count();
        let name = self.paths.name(from);
        let inside = self.names.all().filter(|(path, _)| path.starts_with(name));
        let deepest = inside.map(|(path, _)| depth(path)).max()?;
        let new_depth = deepest - depth(name) + depth(self.paths.name(to));
        (new_depth <= DEPTH_MAX).then_some(Op::Rename { from, to })
    }

    /// The same path unlinked, created again, mostly written, and forced: its old file must not come
    /// back, and the new one must not be taken for it (OpenZFS issue 18996).
    fn again(&mut self) -> Option<Op> {
        let path = self.leaf()?;
        self.due.push_back(Op::Create(path));
        if self.dice.chance(3, 4) {
            let len = self.length(self.file_bytes)?;
            self.due.push_back(Op::Write { path, offset: 0, len, how: WriteHow::Buffered });
        }
        self.due.push_back(Op::Sync { path, how: SyncHow::Fsync });
        Some(Op::Unlink(path))
    }

    fn sync(&mut self) -> Option<Op> {
        let leaf = if self.dice.chance(7, 10) { self.last } else { self.leaf()? };
        let is_file = matches!(self.names.entry(self.paths.name(leaf)), Some(Entry::File(_)));
        let how = match self.dice.below(20) {
            0..9 => SyncHow::Fsync,
            9..12 => SyncHow::Fdatasync,
            12 => SyncHow::Msync,
            13 => SyncHow::SyncFileRange,
            14..18 => SyncHow::FsyncDir,
            _ => SyncHow::Syncfs,
        };
        let path = match how {
            SyncHow::Syncfs => self.paths.intern(""),
            SyncHow::FsyncDir => self.folder_of(leaf),
            // What was touched last may have gone, or be no file; then its folder.
            _ if !is_file => {
                return Some(Op::Sync { path: self.folder_of(leaf), how: SyncHow::FsyncDir });
            }
            _ => leaf,
        };
        Some(Op::Sync { path, how })
    }

    fn folder_of(&mut self, path: PathId) -> PathId {
        let folder = parent(self.paths.name(path)).to_owned();
        self.paths.intern(&folder)
    }

    /// A range within `end` bytes: of blocks half of the time, else of words.
    fn range(&mut self, end: u64, block: u64) -> Option<(u64, u64)> {
        let unit = if self.dice.chance(1, 2) { block } else { WORD_BYTES };
        self.blocks(end, unit).or_else(|| self.blocks(end, WORD_BYTES))
    }

    fn blocks(&mut self, end: u64, unit: u64) -> Option<(u64, u64)> {
        let units = end / unit;
        let first = self.dice.below(units.checked_sub(1)? + 1);
        // Short ones are more frequent, and ends at the file's end too.
        let most = (units - first) >> self.dice.below(5);
        let count = 1 + self.dice.below(most.max(1));
        Some((first * unit, count.min(units - first) * unit))
    }

    fn length(&mut self, room: u64) -> Option<u64> {
        self.range(room, 4096).map(|(_, len)| len)
    }

    fn size(&self, path: PathId) -> u64 {
        self.names.size(self.paths.name(path))
    }

    fn folders(&mut self) -> Vec<PathId> {
        self.pick(|entry| entry == Entry::Dir)
    }

    fn pick(&mut self, wanted: fn(Entry) -> bool) -> Vec<PathId> {
        let all = self.names.all().filter(|(_, entry)| wanted(*entry));
        all.map(|(path, _)| self.paths.intern(path)).collect()
    }

    fn file(&mut self) -> Option<PathId> {
        let files = self.pick(|entry| matches!(entry, Entry::File(_)));
        self.dice.one(&files)
    }

    /// A name that is no folder's.
    fn leaf(&mut self) -> Option<PathId> {
        let leaves = self.pick(|entry| entry != Entry::Dir);
        self.dice.one(&leaves)
    }

    /// A name that a file may have, taken or not.
    fn any_name(&mut self) -> PathId {
        let folders = self.folders();
        let folder = self.dice.one(&folders).map_or("", |id| self.paths.name(id)).to_owned();
        let number = self.dice.below(self.names_each);
        let dash = if folder.is_empty() { "" } else { "/" };
        self.paths.intern(&format!("{folder}{dash}n{number}"))
    }

    fn folder_slot(&mut self) -> PathId {
        let slot = self.dice.below(FOLDERS.len() as u64) as usize;
        self.paths.intern(FOLDERS[slot])
    }

    fn takes(&self, op: &Op) -> bool {
        if self.names.check(op, &self.paths).is_err() {
            return false;
        }
        let grows = match *op {
            Op::Write { path, offset, len, .. }
            | Op::Fallocate { path, offset, len, .. }
            | Op::Copy { to: path, offset, len, .. } => {
                (offset + len).saturating_sub(self.size(path))
            }
            Op::Truncate { path, size } => size.saturating_sub(self.size(path)),
            _ => 0,
        };
        self.names.bytes() + grows <= BYTES_MAX
    }

    fn change(&mut self) -> Option<Op> {
        for _ in 0..TRIES {
            let op = self.propose();
            if let Some(op) = op.filter(|op| self.takes(op)) {
                return Some(op);
            }
            self.due.clear();
        }
        None
    }

    fn take(&mut self, op: Op) -> Op {
        self.names.apply(&op, &self.paths);
        match op {
            Op::Mkdir(path) | Op::Create(path) | Op::Write { path, .. } => self.last = path,
            Op::Truncate { path, .. } | Op::Fallocate { path, .. } => self.last = path,
            Op::Rename { to, .. } | Op::Link { to, .. } | Op::Copy { to, .. } => self.last = to,
            Op::Symlink { at: path, .. } | Op::Unlink(path) | Op::Rmdir(path) => self.last = path,
            Op::Sync { .. } => {}
        }
        op
    }
}

impl Generator for Random {
    fn next_op(&mut self) -> Option<Op> {
        if let Some(op) = self.due.pop_front() {
            return Some(self.take(op));
        }
        if self.until_sync == 0 {
            self.until_sync = self.distance();
            let sync = self.sync();
            if let Some(op) = sync.filter(|op| self.names.check(op, &self.paths).is_ok()) {
                return Some(op);
            }
        }
        self.until_sync -= 1;
        let otherwise = Op::Sync { path: self.paths.intern(""), how: SyncHow::Syncfs };
        let op = self.change().unwrap_or(otherwise);
        Some(self.take(op))
    }

    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn fill(&self) -> u64 {
        FILL
    }
}

#[cfg(test)]
mod tests {
    use crate::script::generate::names::Names;
    use crate::script::op::{FallocateHow, Op, SyncHow, WriteHow};
    use crate::script::spec::{Script, ScriptSpec};
    use crate::units::StreamId;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn script(seed: u64, sync_every: u32, file_bytes: u64, count: u64) -> Script {
        ScriptSpec::Random { names: 4, file_bytes, sync_every }.script(seed, StreamId(1), count)
    }

    proptest! {
        #[test]
        fn no_operation_would_fail_and_the_same_seed_gives_the_same(
            seed: u64, sync_every in 1..20u32, words in 512..16_384u64,
        ) {
            let script = script(seed, sync_every, words * 8, 500);
            prop_assert_eq!(script.ops.len(), 500);
            let mut names = Names::default();
            for op in &script.ops {
                prop_assert_eq!(names.check(op, &script.paths), Ok(()), "{:?}", op);
                names.apply(op, &script.paths);
                prop_assert!(names.all().all(|(path, _)| names.size(path) <= words * 8));
            }
            let again = self::script(seed, sync_every, words * 8, 500);
            prop_assert_eq!(again.ops, script.ops);
        }
    }

    #[test]
    fn every_kind_of_operation_comes_and_so_does_the_same_path_again() {
        let script = script(7, 5, 65_536, 20_000);
        let kinds: HashSet<_> = script.ops.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 12);
        let hows: HashSet<WriteHow> = script
            .ops
            .iter()
            .filter_map(|op| match op {
                Op::Write { how, .. } => Some(*how),
                _ => None,
            })
            .collect();
        assert_eq!(hows.len(), 5);
        let hows: HashSet<FallocateHow> = script
            .ops
            .iter()
            .filter_map(|op| match op {
                Op::Fallocate { how, .. } => Some(*how),
                _ => None,
            })
            .collect();
        assert_eq!(hows.len(), 4);
        let hows: HashSet<SyncHow> = script
            .ops
            .iter()
            .filter_map(|op| match op {
                Op::Sync { how, .. } => Some(*how),
                _ => None,
            })
            .collect();
        assert_eq!(hows.len(), 6);
        let again = script
            .ops
            .windows(2)
            .filter(|pair| matches!(pair, [Op::Unlink(old), Op::Create(new)] if old == new));
        assert!(again.count() > 200);
    }

    #[test]
    fn syncs_come_about_as_often_as_asked_and_half_of_them_soon() {
        for sync_every in [2, 5, 20] {
            let script = script(3, sync_every, 65_536, 20_000);
            let gaps: Vec<usize> =
                script.ops.split(|op| matches!(op, Op::Sync { .. })).map(<[Op]>::len).collect();
            let mean = script.ops.len() as f64 / gaps.len() as f64 - 1.0;
            let wanted = f64::from(sync_every);
            // A path that comes again is forced each time, which counts most where syncs are rare.
            assert!((wanted * 0.4..wanted * 1.3).contains(&mean), "{sync_every}: {mean}");
            let soon = gaps.iter().filter(|gap| **gap <= 3).count();
            assert!(soon * 10 >= gaps.len() * 3, "{sync_every}: {soon} of {}", gaps.len());
        }
    }
}
