//! What one operation changes, worked out before it is applied: an oracle looks at the same places
//! before and after.

use super::content::Content;
use super::tree::{Entry, Inode, Tree};
use crate::script::op::{FallocateHow, Op, PathId, WORD_BYTES};
use std::ops::Range;

/// What an operation changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that a reader can see.
    Nothing,
    /// Names: all of them in one step.
    Names(Vec<NameChange>),
    /// A file's words or its size.
    Data(DataChange),
}

/// One path before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameChange {
    /// Which path.
    pub path: PathId,
    /// What it named.
    pub before: Option<Entry>,
    /// What it names.
    pub after: Option<Entry>,
}

/// Words of a file that change, and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataChange {
    /// The file.
    pub file: Inode,
    /// The words that the operation was asked to change.
    pub words: Range<u64>,
    /// What they hold afterwards.
    pub with: With,
    /// Words in the file afterwards.
    pub size: u64,
}

/// What changed words hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// The operation's own.
    Own,
    /// Zeros.
    Zeros,
    /// What the same words of this file hold.
    Of(Inode),
    /// What they held: only the size may change.
    Same,
}

/// An operation that fails on this tree. A script ends before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path:?}: {why}")]
pub struct Impossible {
    /// The path.
    pub path: String,
    /// Why it fails.
    pub why: &'static str,
}

impl Tree {
    /// What an operation would change. The tree only learns new paths.
    pub fn effect(&mut self, op: &Op) -> Result<Effect, Impossible> {
        match *op {
            Op::Mkdir(path) => {
                let after = Entry::Dir(self.next_inode());
                self.make(path, after)
            }
            Op::Create(path) => {
                let after = Entry::File(self.next_inode());
                self.make(path, after)
            }
            Op::Symlink { target, at } => self.make(at, Entry::Symlink(target)),
            Op::Link { from, to } => {
                let file = self.file(from)?;
                self.make(to, Entry::File(file))
            }
            Op::Rmdir(path) => self.remove_folder(path),
            Op::Unlink(path) => self.unlink(path),
            Op::Rename { from, to } => self.rename(from, to),
            Op::Write { path, offset, len, .. } => {
                let file = self.file(path)?;
                let words = words(offset, len);
                let size = self.size(file).max(words.end);
                Ok(data(file, words, With::Own, size))
            }
            Op::Truncate { path, size } => {
                let (file, size) = (self.file(path)?, size / WORD_BYTES);
                let before = self.size(file);
                Ok(data(file, before.min(size)..before.max(size), With::Zeros, size))
            }
            Op::Fallocate { path, offset, len, how } => {
                let (file, words) = (self.file(path)?, words(offset, len));
                let size = self.size(file);
                let longer = size.max(words.end);
                Ok(match how {
                    FallocateHow::KeepSize => Effect::Nothing,
                    FallocateHow::Allocate => data(file, words, With::Same, longer),
                    FallocateHow::ZeroRange => data(file, words, With::Zeros, longer),
                    FallocateHow::PunchHole => {
                        data(file, words.start.min(size)..words.end.min(size), With::Zeros, size)
                    }
                })
            }
            Op::Copy { from, to, offset, len } => self.copy(from, to, words(offset, len)),
            Op::Sync { path, .. } => match self.entry(path) {
                Some(_) => Ok(Effect::Nothing),
                None => self.impossible(path, "there is nothing to sync"),
            },
        }
    }

    fn impossible<T>(&self, path: PathId, why: &'static str) -> Result<T, Impossible> {
        Err(Impossible { path: self.names().name(path).to_owned(), why })
    }

    fn file(&self, path: PathId) -> Result<Inode, Impossible> {
        match self.entry(path) {
            Some(Entry::File(file)) => Ok(file),
            Some(_) => self.impossible(path, "it is no file"),
            None => self.impossible(path, "there is no such file"),
        }
    }

    fn size(&self, file: Inode) -> u64 {
        self.content(file).map_or(0, Content::size)
    }

    fn make(&self, path: PathId, after: Entry) -> Result<Effect, Impossible> {
        if self.entry(path).is_some() {
            return self.impossible(path, "it is there already");
        }
        self.in_a_folder(path)?;
        Ok(Effect::Names(vec![NameChange { path, before: None, after: Some(after) }]))
    }

    fn in_a_folder(&self, path: PathId) -> Result<(), Impossible> {
        match self.entry(self.names().parent(path)) {
            Some(Entry::Dir(_)) if path != self.names().root() => Ok(()),
            _ => self.impossible(path, "it lies in no folder"),
        }
    }

    fn is_empty_folder(&self, path: PathId) -> bool {
        self.names().children(path).iter().all(|child| self.entry(*child).is_none())
    }

    fn remove_folder(&self, path: PathId) -> Result<Effect, Impossible> {
        let before = self.entry(path);
        match before {
            Some(Entry::Dir(_)) if path == self.names().root() => {
                self.impossible(path, "it is the stream's own folder")
            }
            Some(Entry::Dir(_)) if self.is_empty_folder(path) => {
                Ok(Effect::Names(vec![NameChange { path, before, after: None }]))
            }
            Some(Entry::Dir(_)) => self.impossible(path, "the folder is not empty"),
            _ => self.impossible(path, "it is no folder"),
        }
    }

    fn unlink(&self, path: PathId) -> Result<Effect, Impossible> {
        let before = self.entry(path);
        match before {
            Some(Entry::File(_) | Entry::Symlink(_)) => {
                Ok(Effect::Names(vec![NameChange { path, before, after: None }]))
            }
            Some(Entry::Dir(_)) => self.impossible(path, "it is a folder"),
            None => self.impossible(path, "there is no such name"),
        }
    }

    fn rename(&mut self, from: PathId, to: PathId) -> Result<Effect, Impossible> {
        let Some(moving) = self.entry(from) else {
            return self.impossible(from, "there is no such name");
        };
        self.in_a_folder(from)?;
        self.in_a_folder(to)?;
        let over = self.entry(to);
        match (moving, over) {
            // rename(2): two names of one file stay as they are.
            (Entry::File(one), Some(Entry::File(other))) if one == other => {
                return Ok(Effect::Nothing);
            }
            _ if from == to => return Ok(Effect::Nothing),
            (Entry::Dir(_), _) if self.names().is_within(to, from) => {
                return self.impossible(to, "a folder cannot go into itself");
            }
            (Entry::Dir(_), Some(Entry::Dir(_))) if !self.is_empty_folder(to) => {
                return self.impossible(to, "the folder is not empty");
            }
            (Entry::Dir(_), Some(Entry::File(_) | Entry::Symlink(_))) => {
                return self.impossible(to, "a folder cannot replace a file");
            }
            (Entry::File(_) | Entry::Symlink(_), Some(Entry::Dir(_))) => {
                return self.impossible(to, "a file cannot replace a folder");
            }
            _ => {}
        }
        let mut changes = vec![
            NameChange { path: from, before: Some(moving), after: None },
            NameChange { path: to, before: over, after: Some(moving) },
        ];
        if let Entry::Dir(_) = moving {
            self.move_below(from, (from, to), &mut changes);
        }
        Ok(Effect::Names(changes))
    }

    /// What lies in a folder moves with it.
    fn move_below(
        &mut self,
        folder: PathId,
        (from, to): (PathId, PathId),
        changes: &mut Vec<NameChange>,
    ) {
        for child in self.names().children(folder).to_vec() {
            let Some(entry) = self.entry(child) else { continue };
            let moved = self.names_mut().moved(child, from, to);
            changes.push(NameChange { path: child, before: Some(entry), after: None });
            changes.push(NameChange { path: moved, before: None, after: Some(entry) });
            if let Entry::Dir(_) = entry {
                self.move_below(child, (from, to), changes);
            }
        }
    }

    /// copy_file_range(2) ends where the file that it reads ends.
    fn copy(&self, from: PathId, to: PathId, words: Range<u64>) -> Result<Effect, Impossible> {
        let (source, file) = (self.file(from)?, self.file(to)?);
        let words = words.start..words.end.min(self.size(source));
        if source == file || words.is_empty() {
            return Ok(Effect::Nothing);
        }
        let size = self.size(file).max(words.end);
        Ok(data(file, words, With::Of(source), size))
    }
}

fn words(offset: u64, len: u64) -> Range<u64> {
    offset / WORD_BYTES..offset.saturating_add(len) / WORD_BYTES
}

fn data(file: Inode, words: Range<u64>, with: With, size: u64) -> Effect {
    Effect::Data(DataChange { file, words, with, size })
}
