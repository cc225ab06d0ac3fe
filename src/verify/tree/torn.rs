//! Which parts of an operation may be there without the rest, where a tree comes back to one
//! instant.
//!
//! A write is split at the borders of a transaction, from its front; one that was in flight, at any
//! sector. What zeroes a range, or stores into a mapping, may have done so in any of its sectors.
//! Stores into a mapping belong to the instant of the next sync of their file: until then each of
//! their words may still be what it was.

use super::differ::{Difference, both, differences};
use super::seen::SeenFile;
use crate::script::model::content::Content;
use crate::script::model::effect::{DataChange, Effect, With};
use crate::script::model::tree::{Entry, Inode, Tree};
use crate::script::op::{Op, WORD_BYTES, WriteHow};
use crate::units::{SECTOR_BYTES, Seq};
use std::collections::HashMap;
use std::ops::Range;

/// Words of a sector.
pub const SECTOR_WORDS: u64 = SECTOR_BYTES as u64 / WORD_BYTES;

/// Words and what they hold.
type Held = (Range<u64>, Seq);

/// Stores into mappings that no sync has followed yet: what their words held before.
#[derive(Debug, Clone, Default)]
pub struct Mapped {
    before: HashMap<Inode, Vec<Held>>,
}

impl Mapped {
    /// Takes note of an operation that is about to be applied.
    pub fn note(&mut self, tree: &Tree, op: &Op, effect: &Effect) {
        match (op, effect) {
            (Op::Write { how: WriteHow::Mapped, .. }, Effect::Data(change)) => {
                let Some(content) = tree.content(change.file) else { return };
                let held = content.pieces(change.words.clone());
                self.before.entry(change.file).or_default().extend(held);
            }
            _ if self.before.is_empty() => {}
            _ => match op.sync() {
                Some((path, _)) if path == tree.names().root() => self.before.clear(),
                Some((path, _)) => {
                    if let Some(Entry::File(file)) = tree.entry(path) {
                        self.before.remove(&file);
                    }
                }
                None => {}
            },
        }
    }

    /// Forgets the stores into files that lost their last name by an operation.
    pub fn forget_unnamed(&mut self, tree: &Tree, effect: &Effect) {
        let Effect::Names(changes) = effect else { return };
        for change in changes {
            if let Some(Entry::File(file)) = change.before
                && tree.links(file) == 0
            {
                self.before.remove(&file);
            }
        }
    }

    /// Files with such stores.
    pub fn files(&self) -> impl Iterator<Item = Inode> + '_ {
        self.before.keys().copied()
    }

    fn words(&self, file: Inode) -> u64 {
        let held = self.before.get(&file);
        held.map_or(0, |held| held.iter().map(|(words, _)| words.end - words.start).sum())
    }

    /// Whether these words of a file may still be `seen`'s.
    fn explains(&self, file: Inode, piece: &Difference) -> bool {
        let Some(held) = self.before.get(&file) else { return false };
        let mut at = piece.words.start;
        let of_it: Vec<&Held> = held.iter().filter(|(_, by)| *by == piece.seen).collect();
        while at < piece.words.end {
            match of_it.iter().find(|(words, _)| words.contains(&at)) {
                Some((words, _)) => at = words.end,
                None => return false,
            }
        }
        true
    }
}

/// The operation behind an instant, as far as a part of it may be there.
#[derive(Debug, Clone)]
pub struct Next {
    /// What it would change.
    pub change: DataChange,
    /// Its number.
    pub seq: Seq,
    /// Where it may be cut.
    pub cut: Cut,
}

/// Where an operation may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Everything in front of a multiple of so many words is new, everything behind it is old.
    Front(u64),
    /// Each sector is new or old.
    Sectors,
}

impl Next {
    /// What may be there in part of an operation. One transaction is a border of `transaction_words`
    /// of the file; `in_flight` says that it may not have returned.
    pub fn of(
        seq: Seq,
        op: &Op,
        effect: &Effect,
        transaction_words: u64,
        in_flight: bool,
    ) -> Option<Next> {
        let Effect::Data(change) = effect else { return None };
        let border = if in_flight { SECTOR_WORDS } else { transaction_words };
        let cut = match op {
            Op::Write { how: WriteHow::Mapped, .. } => Cut::Sectors,
            Op::Write { .. } | Op::Copy { .. } => Cut::Front(border.max(1)),
            _ => Cut::Sectors,
        };
        Some(Next { change: change.clone(), seq, cut })
    }
}

/// Whether a file that was seen is one of the tree with a part of the next operation, or without
/// stores into a mapping that no sync followed.
pub fn explains(
    tree: &Tree,
    file: Inode,
    seen: &SeenFile,
    wrong: u64,
    next: Option<&Next>,
    mapped: &Mapped,
) -> bool {
    let next = next.filter(|next| next.change.file == file);
    let most = next.map_or(0, |next| next.change.words.end - next.change.words.start);
    if wrong > most + mapped.words(file) {
        return false;
    }
    let (Some(content), Some(size)) = (tree.content(file), seen.size()) else { return false };
    let all = 0..content.size().max(seen.words());
    let within = |words: &Range<u64>| {
        next.is_some_and(|next| {
            next.change.words.start <= words.start && words.end <= next.change.words.end
        })
    };
    let outside = differences(content, seen, all.clone());
    let border = next.map_or(0..0, |next| next.change.words.clone());
    let mut outside = outside.flat_map(|piece| split(piece, &border));
    if !outside.all(|piece| within(&piece.words) || mapped.explains(file, &piece)) {
        return false;
    }
    match next {
        None => size == content.size(),
        Some(next) => part_of(tree, content, seen, size, next, mapped),
    }
}

/// A difference cut at the borders of a range.
fn split(piece: Difference, border: &Range<u64>) -> impl Iterator<Item = Difference> {
    let Difference { words, ours, seen } = piece;
    let first = words.start..words.end.min(border.start.max(words.start));
    let middle = words.start.max(border.start)..words.end.min(border.end);
    let last = words.start.max(border.end)..words.end;
    let some = if border.is_empty() { [words, 0..0, 0..0] } else { [first, middle, last] };
    some.into_iter().filter(|words| !words.is_empty()).map(move |words| Difference {
        words,
        ours,
        seen,
    })
}

fn part_of(
    tree: &Tree,
    content: &Content,
    seen: &SeenFile,
    size: u64,
    next: &Next,
    mapped: &Mapped,
) -> bool {
    let DataChange { file, words, with, size: longer } = &next.change;
    let empty = Content::default();
    let new: Vec<Held> = match with {
        With::Own => vec![(words.clone(), next.seq)],
        With::Zeros => vec![(words.clone(), Seq(0))],
        With::Same => content.pieces(words.clone()).collect(),
        With::Of(source) => tree.content(*source).unwrap_or(&empty).pieces(words.clone()).collect(),
    };
    let found = both(content.pieces(words.clone()), seen.pieces(words.clone()));
    let found: Vec<(Range<u64>, (Seq, Seq))> =
        found.map(|(words, old, seen)| (words, (old, seen))).collect();
    let pieces = both(new.into_iter(), found.into_iter());
    // The part that is new may end from `least` to `most`.
    let (mut least, mut most) = (words.start, words.end);
    let mut sectors = Sectors::default();
    for (piece, new, (old, seen)) in pieces {
        let was = Difference { words: piece.clone(), ours: old, seen };
        let (is_new, is_old) = (seen == new, seen == old || mapped.explains(*file, &was));
        if !is_new {
            most = most.min(piece.start);
        }
        if !is_old {
            least = piece.end;
        }
        sectors.take(&piece, is_new, is_old);
    }
    match next.cut {
        // All of it with its size is no part.
        Cut::Sectors => {
            let whole = most == words.end && size == *longer;
            !sectors.torn && !whole && (size == content.size() || size == *longer)
        }
        Cut::Front(border) => {
            // A longer file ends where the part that is there does.
            let from = if size > content.size() { least.max(size) } else { least };
            let cut = from.max(words.start + 1).next_multiple_of(border);
            cut <= most && cut < words.end && size == content.size().max(cut)
        }
    }
}

/// Whether every sector is new or old as a whole.
#[derive(Debug, Default)]
struct Sectors {
    /// The last sector that is only one of them, and whether that is new.
    last: Option<(u64, bool)>,
    torn: bool,
}

impl Sectors {
    fn take(&mut self, piece: &Range<u64>, is_new: bool, is_old: bool) {
        if is_new && is_old {
            return;
        }
        let first = piece.start / SECTOR_WORDS;
        self.torn |= !is_new && !is_old || self.last == Some((first, !is_new));
        self.last = Some(((piece.end - 1) / SECTOR_WORDS, is_new));
    }
}
