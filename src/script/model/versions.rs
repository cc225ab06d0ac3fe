//! What each name and each file may be after a cut: what is durable, and all that it was since.
//!
//! What always holds: `durable` is the state that the newest acknowledged sync of it promises;
//! `since` are its later states, oldest first, up to the last operation that may have run. What a
//! sync makes durable costs as much as what changed since the one before.

use super::content::{Content, ZEROS};
use super::effect::{DataChange, Effect, NameChange, With};
use super::names::Names;
use super::promises::{DataOf, Family, NamesOf, Promised};
use super::tree::{Entry, Inode, Tree};
use crate::script::op::{Op, PathId, Paths};
use crate::units::Seq;
use std::collections::HashMap;
use std::ops::Range;

/// A name in a folder, wherever that folder lies: folders are renamed with what is in them.
pub type Slot = (Inode, String);

/// What a name names from an operation on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Named {
    /// The operation; 0 for what was before the first.
    pub seq: Seq,
    /// What it names.
    pub entry: Option<Entry>,
    /// What was given the name by it, or lost it by a rename.
    pub of: Option<Inode>,
}

/// What a name may name.
#[derive(Debug, Clone, Default)]
pub struct Name {
    /// What it names at least.
    pub durable: Named,
    /// What it named later.
    pub since: Vec<Named>,
}

impl Name {
    /// Everything that it may be.
    pub fn versions(&self) -> impl Iterator<Item = Option<Entry>> + '_ {
        let since = self.since.iter().map(|named| named.entry);
        std::iter::once(self.durable.entry).chain(since)
    }

    /// The last of them.
    pub fn last(&self) -> Named {
        self.since.last().copied().unwrap_or(self.durable)
    }

    /// Makes the first `count` of its later states durable, the last of them. Gives its operation.
    fn settle(&mut self, count: usize) -> Option<Seq> {
        let last = *self.since.get(count.checked_sub(1)?)?;
        self.since.drain(..count);
        self.durable = last;
        Some(last.seq)
    }
}

/// What a file may hold.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// What it holds at least.
    pub durable: Content,
    /// The sync that promised it.
    pub synced: Seq,
    /// Words that were changed since, and what to.
    pub since: Vec<(Range<u64>, Seq)>,
    /// Its sizes since then, in words: the least and the most.
    pub sizes: (u64, u64),
    /// The newest operation that changed it.
    changed: Seq,
    /// Whether anything is not durable.
    dirty: bool,
}

impl File {
    fn settle(&mut self, sync: Seq, size: u64) -> Option<Seq> {
        if !self.dirty {
            return None;
        }
        for (words, by) in self.since.drain(..) {
            self.durable.set(words, by);
        }
        self.since.shrink_to(16);
        self.durable.resize(size);
        (self.sizes, self.synced, self.dirty) = ((size, size), sync, false);
        Some(self.changed)
    }

    /// Only these words of the newest operation become durable, and the size that they need.
    fn settle_words(&mut self, words: &Range<u64>, by: Seq) {
        let cut = |(range, by): (Range<u64>, Seq)| {
            let front = range.start..range.end.min(words.start);
            let back = range.start.max(words.end)..range.end;
            [front, back].into_iter().filter(|part| !part.is_empty()).map(move |part| (part, by))
        };
        self.since = std::mem::take(&mut self.since).into_iter().flat_map(cut).collect();
        self.durable.resize(self.durable.size().max(words.end));
        self.durable.set(words.clone(), by);
        self.sizes.0 = self.sizes.0.max(words.end);
        self.dirty = !self.since.is_empty() || self.sizes.0 != self.sizes.1;
    }
}

/// A sync and the newest operation that it made durable and none before it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Covered {
    /// The sync.
    pub sync: Seq,
    /// The operation.
    pub newest: Seq,
}

/// All of a script's names and files.
#[derive(Debug, Clone)]
pub struct Versions {
    tree: Tree,
    family: Family,
    /// By place.
    pub names: HashMap<Slot, Name>,
    /// By inode.
    pub files: HashMap<Inode, File>,
    /// Each sync that made something durable.
    pub covered: Vec<Covered>,
    /// Names with states that are not durable, by what was given them or taken away with a rename.
    named: HashMap<Inode, Vec<Slot>>,
    /// The same by the folder.
    within: HashMap<Inode, Vec<Slot>>,
    dirty_files: Vec<Inode>,
    /// Where a folder was made.
    made: HashMap<Inode, Slot>,
    /// Renames of files that were durable under their old names, as a whole.
    pub renames: Vec<Rename>,
}

/// A rename of a file that was durable, with its whole content, under its old name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// The operation.
    pub seq: Seq,
    /// The file.
    pub file: Inode,
    /// Its old name.
    pub from: Slot,
    /// Its new one.
    pub to: Slot,
}

impl Versions {
    /// Before the first operation.
    pub fn new(paths: &Paths, family: Family) -> Versions {
        Versions {
            tree: Tree::new(paths),
            family,
            names: HashMap::new(),
            files: HashMap::new(),
            covered: Vec::new(),
            named: HashMap::new(),
            within: HashMap::new(),
            dirty_files: Vec::new(),
            made: HashMap::new(),
            renames: Vec::new(),
        }
    }

    /// Carries out the operations; those up to `acked` returned, so their promises count. Gives how
    /// many could be carried out.
    pub fn run(&mut self, ops: &[Op], acked: Seq) -> u64 {
        for (seq, op) in (1..).map(Seq).zip(ops) {
            let Ok(effect) = self.tree.effect(op) else { return seq.0 - 1 };
            match &effect {
                Effect::Nothing => {}
                Effect::Names(changes) => self.rename(seq, changes),
                Effect::Data(change) => self.write(seq, change),
            }
            self.tree.apply(seq, &effect);
            if let Some(promised) = self.family.promised(op).filter(|_| seq <= acked) {
                self.settle(seq, op, promised);
            }
        }
        ops.len() as u64
    }

    /// The paths.
    pub fn paths(&self) -> &Names {
        self.tree.names()
    }

    /// The paths, to learn new ones.
    pub fn paths_mut(&mut self) -> &mut Names {
        self.tree.names_mut()
    }

    /// The stream's own folder.
    pub fn root(&self) -> Inode {
        Inode(0)
    }

    /// Where a path lies now.
    fn slot(&self, path: PathId) -> Option<Slot> {
        match self.tree.entry(self.tree.names().parent(path)) {
            Some(Entry::Dir(folder)) => Some((folder, self.tree.names().last(path).to_owned())),
            _ => None,
        }
    }

    /// What lies in a folder moves with it, so of a rename only its two names count.
    fn rename(&mut self, seq: Seq, changes: &[NameChange]) {
        let moving = changes.first().and_then(|change| change.before).filter(|_| changes.len() > 1);
        if let (Some(Entry::File(file)), [from, to]) = (moving, changes) {
            self.note_rename(seq, file, from.path, to.path);
        }
        for change in changes.iter().take(2) {
            let Some(slot) = self.slot(change.path) else { continue };
            let inode = match change.after.or(moving) {
                Some(Entry::File(inode) | Entry::Dir(inode)) => Some(inode),
                _ => None,
            };
            if let (Some(Entry::Dir(folder)), None) = (change.after, moving) {
                self.made.insert(folder, slot.clone());
            }
            let name = self.names.entry(slot.clone()).or_default();
            name.since.push(Named { seq, entry: change.after, of: inode });
            self.within.entry(slot.0).or_default().push(slot.clone());
            if let Some(inode) = inode {
                self.named.entry(inode).or_default().push(slot);
            }
        }
    }

    fn note_rename(&mut self, seq: Seq, file: Inode, from: PathId, to: PathId) {
        let (Some(from), Some(to)) = (self.slot(from), self.slot(to)) else { return };
        let whole = self.files.get(&file).is_some_and(|file| !file.dirty && file.synced > ZEROS);
        let named = self.names.get(&from).is_some_and(|name| {
            name.since.is_empty() && name.durable.entry == Some(Entry::File(file))
        });
        if whole && named {
            self.renames.push(Rename { seq, file, from, to });
        }
    }

    fn write(&mut self, seq: Seq, change: &DataChange) {
        let DataChange { file, words, with, size } = change;
        let of = |source: &Inode| -> Vec<(Range<u64>, Seq)> {
            let content = self.tree.content(*source);
            content.map_or_else(Vec::new, |content| content.pieces(words.clone()).collect())
        };
        let pieces = match with {
            With::Own => vec![(words.clone(), seq)],
            With::Zeros => vec![(words.clone(), ZEROS)],
            With::Same => Vec::new(),
            With::Of(source) => of(source),
        };
        let before = self.tree.content(*file).map_or(0, Content::size);
        if pieces.is_empty() && before == *size {
            return;
        }
        let file_of = self.files.entry(*file).or_default();
        if !file_of.dirty {
            file_of.dirty = true;
            self.dirty_files.push(*file);
        }
        file_of.changed = seq;
        file_of.since.extend(pieces.into_iter().filter(|(words, _)| !words.is_empty()));
        let (least, most) = file_of.sizes;
        file_of.sizes = (least.min(*size), most.max(*size));
    }

    fn settle(&mut self, sync: Seq, op: &Op, promised: Promised) {
        let path = match *op {
            Op::Sync { path, .. } | Op::Write { path, .. } => path,
            _ => return,
        };
        let entry = self.tree.entry(path);
        let names = match (promised.names, entry) {
            (NamesOf::All, _) => self.settle_all_names(),
            (NamesOf::Own, Some(Entry::File(inode))) => self.settle_names_of(inode),
            (NamesOf::Folder, Some(Entry::Dir(inode))) => {
                self.settle_folder(inode).max(self.settle_names_of(inode))
            }
            _ => None,
        };
        let data = match (promised.data, entry) {
            (DataOf::All, _) => {
                let dirty = std::mem::take(&mut self.dirty_files);
                dirty.into_iter().filter_map(|file| self.settle_file(sync, file)).max()
            }
            (DataOf::File, Some(Entry::File(file))) => self.settle_file(sync, file),
            (DataOf::Write, Some(Entry::File(file))) => self.settle_write(sync, op, file),
            _ => None,
        };
        if let Some(newest) = names.max(data) {
            self.covered.push(Covered { sync, newest });
        }
    }

    fn settle_file(&mut self, sync: Seq, file: Inode) -> Option<Seq> {
        let size = self.tree.content(file).map_or(0, Content::size);
        self.files.get_mut(&file)?.settle(sync, size)
    }

    fn settle_write(&mut self, seq: Seq, op: &Op, file: Inode) -> Option<Seq> {
        let Op::Write { offset, len, .. } = *op else { return None };
        let words = offset / 8..offset.saturating_add(len) / 8;
        self.files.get_mut(&file)?.settle_words(&words, seq);
        Some(seq)
    }

    fn settle_all_names(&mut self) -> Option<Seq> {
        self.named.clear();
        let slots = self.within.drain().flat_map(|(_, slots)| slots);
        let names = &mut self.names;
        slots.filter_map(|slot| names.get_mut(&slot).and_then(settle_name)).max()
    }

    fn settle_folder(&mut self, folder: Inode) -> Option<Seq> {
        let slots = self.within.remove(&folder).unwrap_or_default();
        let names = &mut self.names;
        slots.iter().filter_map(|slot| names.get_mut(slot).and_then(settle_name)).max()
    }

    /// The names that something was given, those that renames took from it, and the folders that were
    /// made for them.
    fn settle_names_of(&mut self, inode: Inode) -> Option<Seq> {
        let mut newest = None;
        for slot in self.named.remove(&inode).unwrap_or_default() {
            newest = newest.max(self.settle_making_of(slot.0));
            let Some(name) = self.names.get_mut(&slot) else { continue };
            let concerns = name.since.iter().rposition(|named| named.of == Some(inode));
            newest = newest.max(concerns.and_then(|at| name.settle(at + 1)));
        }
        newest
    }

    /// A name that is there lies in a folder that is: where that was made, and so on upwards.
    fn settle_making_of(&mut self, folder: Inode) -> Option<Seq> {
        let slot = self.made.get(&folder)?.clone();
        let name = self.names.get_mut(&slot)?;
        let made = |named: &Named| named.entry == Some(Entry::Dir(folder));
        let at = name.since.iter().position(made)?;
        let newest = name.settle(at + 1);
        newest.max(self.settle_making_of(slot.0))
    }
}

fn settle_name(name: &mut Name) -> Option<Seq> {
    name.settle(name.since.len())
}
