//! The tree of files after so many operations of a script.
//!
//! What always holds: a name lies in a folder that is there; a file has as many links as names;
//! a file without a name has no content any more, for operations name files by their paths.

use super::content::Content;
use super::effect::{DataChange, Effect, Impossible, NameChange, With};
use super::names::Names;
use crate::script::op::{Op, PathId, Paths};
use crate::units::Seq;

/// A file or folder, by a number that no other ever has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode(pub u32);

/// What a name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A folder.
    Dir(Inode),
    /// A file; other names may name it too.
    File(Inode),
    /// A symbolic link to this path, as it is written.
    Symlink(PathId),
}

/// A tree.
#[derive(Debug, Clone)]
pub struct Tree {
    names: Names,
    /// By path.
    at: Vec<Option<Entry>>,
    /// By inode; those of folders stay empty.
    files: Vec<File>,
}

#[derive(Debug, Clone, Default)]
struct File {
    content: Content,
    links: u32,
}

impl Tree {
    /// Before the first operation there is the stream's own folder, and nothing in it.
    pub fn new(paths: &Paths) -> Tree {
        let names = Names::new(paths);
        let mut tree = Tree { names, at: Vec::new(), files: vec![File::default()] };
        let root = tree.names.root();
        tree.put(root, Some(Entry::Dir(Inode(0))));
        tree
    }

    /// What a path names.
    pub fn entry(&self, path: PathId) -> Option<Entry> {
        self.at.get(path.0 as usize).copied().flatten()
    }

    /// A file's words.
    pub fn content(&self, file: Inode) -> Option<&Content> {
        self.files.get(file.0 as usize).map(|file| &file.content)
    }

    /// How many names a file has.
    pub fn links(&self, file: Inode) -> u32 {
        self.files.get(file.0 as usize).map_or(0, |file| file.links)
    }

    /// The paths.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The paths, to learn new ones.
    pub fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Every path at which something is.
    pub fn entries(&self) -> impl Iterator<Item = (PathId, Entry)> + '_ {
        let all = (0..).zip(&self.at);
        all.filter_map(|(path, entry)| entry.map(|entry| (PathId(path), entry)))
    }

    /// The number that the next file or folder gets.
    pub(super) fn next_inode(&self) -> Inode {
        Inode(self.files.len() as u32)
    }

    /// Carries an operation out, and tells what it changed.
    pub fn run(&mut self, seq: Seq, op: &Op) -> Result<Effect, Impossible> {
        let effect = self.effect(op)?;
        self.apply(seq, &effect);
        Ok(effect)
    }

    /// Changes what [`Tree::effect`] said of operation `seq` on this tree.
    pub fn apply(&mut self, seq: Seq, effect: &Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Names(changes) => {
                changes.iter().for_each(|change| self.rename_one(change));
                changes.iter().for_each(|change| self.forget_unnamed(change));
            }
            Effect::Data(change) => self.write(seq, change),
        }
    }

    fn rename_one(&mut self, change: &NameChange) {
        if let Some(Entry::File(file) | Entry::Dir(file)) = change.after {
            self.file_mut(file).links += 1;
        }
        self.put(change.path, change.after);
        if let Some(Entry::File(file)) = change.before {
            self.file_mut(file).links -= 1;
        }
    }

    /// Forgets what a file held, if no name names it any more.
    fn forget_unnamed(&mut self, change: &NameChange) {
        if let Some(Entry::File(file)) = change.before
            && self.links(file) == 0
        {
            self.file_mut(file).content = Content::default();
        }
    }

    fn write(&mut self, seq: Seq, change: &DataChange) {
        let DataChange { file, words, with, size } = change;
        match with {
            With::Own => self.file_mut(*file).content.set(words.clone(), seq),
            With::Zeros => self.file_mut(*file).content.set(words.clone(), super::content::ZEROS),
            With::Same => {}
            With::Of(source) => {
                let source = &self.files[source.0 as usize].content;
                let pieces: Vec<_> = source.pieces(words.clone()).collect();
                self.file_mut(*file).content.paste(&pieces);
            }
        }
        self.file_mut(*file).content.resize(*size);
    }

    fn file_mut(&mut self, file: Inode) -> &mut File {
        let at = file.0 as usize;
        if self.files.len() <= at {
            self.files.resize_with(at + 1, File::default);
        }
        &mut self.files[at]
    }

    fn put(&mut self, path: PathId, entry: Option<Entry>) {
        let at = path.0 as usize;
        if self.at.len() <= at {
            self.at.resize(at + 1, None);
        }
        self.at[at] = entry;
    }
}
