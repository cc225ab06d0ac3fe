//! How far a tree is from what was seen, kept up to date at the cost of what each operation changes.
//!
//! What always holds: `distance` is zero exactly when every path names the same on both sides, every
//! file has the same words and size, and two names are names of one file on one side exactly when
//! they are on the other. A link count follows from that, and is held against the names when they are
//! read.

use super::seen::{SeenEntry, SeenFile, SeenTree};
use crate::script::model::content::Content;
use crate::script::model::effect::{DataChange, Effect, Impossible};
use crate::script::model::tree::{Entry, Inode, Tree};
use crate::script::op::{Op, PathId};
use crate::units::Seq;
use std::ops::Range;

/// How far apart: names and files first, words to tell a little from a lot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Distance {
    /// Names that name something else, and files that are not the same.
    pub places: u64,
    /// Words that differ.
    pub words: u64,
}

/// A file of the tree and a file that was seen under the same name.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// Which of [`SeenTree::files`].
    pub seen: u32,
    /// Names that they have in common.
    names: u32,
    /// Words that differ.
    pub wrong: u64,
    /// Whether their sizes differ.
    pub size_differs: bool,
}

impl Pair {
    /// Whether they differ.
    pub fn differs(&self) -> bool {
        self.wrong > 0 || self.size_differs
    }
}

/// A tree beside what was seen.
pub struct Differ<'s> {
    /// The tree.
    pub tree: Tree,
    seen: &'s SeenTree<'s>,
    /// By inode.
    pairs: Vec<Vec<Pair>>,
    /// By file that was seen: with how many files it is paired.
    paired: Vec<u32>,
    wrong_names: u64,
    /// Pairs beyond the first of each file, on either side.
    crossed: u64,
    different: u64,
    words: u64,
}

impl<'s> Differ<'s> {
    /// Before the first operation.
    pub fn new(tree: Tree, seen: &'s SeenTree<'s>) -> Differ<'s> {
        let paired = vec![0; seen.files.len()];
        let mut differ = Differ {
            tree,
            seen,
            pairs: Vec::new(),
            paired,
            wrong_names: 0,
            crossed: 0,
            different: 0,
            words: 0,
        };
        let both = differ.tree.entries().map(|(path, _)| path);
        let mut paths: Vec<PathId> = both.chain(seen.entries().map(|(path, _)| path)).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.into_iter().for_each(|path| differ.enter(path));
        differ
    }

    /// How far apart they are.
    pub fn distance(&self) -> Distance {
        // A file that is not there at all is further off than one with some other words.
        let places = 2 * (self.wrong_names + self.crossed) + self.different;
        Distance { places, words: self.words }
    }

    /// How many pairs of files differ, if nothing else does.
    pub fn only_files(&self) -> Option<u64> {
        (self.wrong_names + self.crossed == 0).then_some(self.different)
    }

    /// The files that were seen under the names of a file.
    pub fn pairs(&self, file: Inode) -> &[Pair] {
        self.pairs.get(file.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Carries out an operation.
    pub fn run(&mut self, seq: Seq, op: &Op) -> Result<(), Impossible> {
        let effect = self.tree.effect(op)?;
        self.apply(seq, &effect);
        Ok(())
    }

    /// Changes what [`Tree::effect`] said of operation `seq`.
    pub fn apply(&mut self, seq: Seq, effect: &Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Names(changes) => {
                changes.iter().for_each(|change| self.leave(change.path));
                self.tree.apply(seq, effect);
                changes.iter().for_each(|change| self.enter(change.path));
            }
            Effect::Data(change) => {
                self.look_at(change, false);
                self.tree.apply(seq, effect);
                self.look_at(change, true);
            }
        }
    }

    /// Takes what a file's changed words differ in out of the count, or into it.
    fn look_at(&mut self, change: &DataChange, into: bool) {
        let at = change.file.0 as usize;
        let Some(pairs) = self.pairs.get_mut(at).filter(|pairs| !pairs.is_empty()) else { return };
        let Some(content) = self.tree.content(change.file) else { return };
        for pair in pairs {
            let seen = &self.seen.files[pair.seen as usize];
            let wrong = wrong_words(content, seen, change.words.clone());
            let before = pair.differs();
            if into {
                (pair.wrong, self.words) = (pair.wrong + wrong, self.words + wrong);
                pair.size_differs = seen.size() != Some(content.size());
                self.different += u64::from(pair.differs());
            } else {
                self.different -= u64::from(before);
                (pair.wrong, self.words) = (pair.wrong - wrong, self.words - wrong);
            }
        }
    }

    /// Takes what a path is on both sides into the count.
    fn enter(&mut self, path: PathId) {
        match (self.tree.entry(path), self.seen.entry(path)) {
            (Some(Entry::File(file)), Some(SeenEntry::File(seen))) => self.pair(file, seen),
            (ours, seen) => self.wrong_names += u64::from(!is_same(ours, seen)),
        }
    }

    /// Takes it out again.
    fn leave(&mut self, path: PathId) {
        match (self.tree.entry(path), self.seen.entry(path)) {
            (Some(Entry::File(file)), Some(SeenEntry::File(seen))) => self.part(file, seen),
            (ours, seen) => self.wrong_names -= u64::from(!is_same(ours, seen)),
        }
    }

    fn pair(&mut self, file: Inode, seen: u32) {
        let at = file.0 as usize;
        if self.pairs.len() <= at {
            self.pairs.resize_with(at + 1, Vec::new);
        }
        if let Some(pair) = self.pairs[at].iter_mut().find(|pair| pair.seen == seen) {
            pair.names += 1;
            return;
        }
        let empty = Content::default();
        let content = self.tree.content(file).unwrap_or(&empty);
        let other = &self.seen.files[seen as usize];
        let wrong = wrong_words(content, other, 0..content.size().max(other.words()));
        let size_differs = other.size() != Some(content.size());
        let pair = Pair { seen, names: 1, wrong, size_differs };
        self.crossed += u64::from(!self.pairs[at].is_empty());
        self.crossed += u64::from(self.paired[seen as usize] > 0);
        self.paired[seen as usize] += 1;
        self.different += u64::from(pair.differs());
        self.words += wrong;
        self.pairs[at].push(pair);
    }

    fn part(&mut self, file: Inode, seen: u32) {
        let pairs = &mut self.pairs[file.0 as usize];
        let Some(at) = pairs.iter().position(|pair| pair.seen == seen) else { return };
        pairs[at].names -= 1;
        if pairs[at].names > 0 {
            return;
        }
        let pair = pairs.swap_remove(at);
        self.crossed -= u64::from(!pairs.is_empty());
        self.paired[seen as usize] -= 1;
        self.crossed -= u64::from(self.paired[seen as usize] > 0);
        self.different -= u64::from(pair.differs());
        self.words -= pair.wrong;
    }
}

fn is_same(ours: Option<Entry>, seen: Option<SeenEntry>) -> bool {
    match (ours, seen) {
        (None, None) | (Some(Entry::Dir(_)), Some(SeenEntry::Dir)) => true,
        (Some(Entry::Symlink(to)), Some(SeenEntry::Symlink(seen))) => to == seen,
        _ => false,
    }
}

/// How many of these words differ.
fn wrong_words(content: &Content, seen: &SeenFile, words: Range<u64>) -> u64 {
    differences(content, seen, words).map(|piece| piece.words.end - piece.words.start).sum()
}

/// A run of words that differ alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which words.
    pub words: Range<u64>,
    /// Whose they should be.
    pub ours: Seq,
    /// Whose they are.
    pub seen: Seq,
}

/// Where a file of the tree and one that was seen differ among these words.
pub fn differences<'a>(
    content: &'a Content,
    seen: &'a SeenFile,
    words: Range<u64>,
) -> impl Iterator<Item = Difference> + 'a {
    both(content.pieces(words.clone()), seen.pieces(words))
        .map(|(words, ours, seen)| Difference { words, ours, seen })
        .filter(|piece| piece.ours != piece.seen)
}

/// Two divisions of the same words as one.
pub fn both<A: Copy, B: Copy>(
    ours: impl Iterator<Item = (Range<u64>, A)>,
    theirs: impl Iterator<Item = (Range<u64>, B)>,
) -> impl Iterator<Item = (Range<u64>, A, B)> {
    let (mut ours, mut theirs) = (ours.peekable(), theirs.peekable());
    std::iter::from_fn(move || {
        let ((one, a), (other, b)) = (ours.peek()?.clone(), theirs.peek()?.clone());
        let words = one.start.max(other.start)..one.end.min(other.end);
        if one.end == words.end {
            ours.next();
        }
        if other.end == words.end {
            theirs.next();
        }
        Some((words, a, b))
    })
}
