//! After which operations of a script its tree is exactly what was seen.
//!
//! One walk through the operations: each changes a few names or words, and the distance between the
//! tree and what was seen is kept at the cost of these. An instant fits where it is zero, or where
//! all that differs is a part of the next operation.

use super::differ::{Differ, Distance};
use super::instants::{Instant, Instants};
use super::seen::SeenTree;
use super::torn::{self, Mapped, Next};
use crate::script::model::effect::Effect;
use crate::script::model::tree::{Inode, Tree};
use crate::script::op::Op;
use crate::units::Seq;

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// The instants that fit.
    pub instants: Instants,
    /// The latest of those that come nearest.
    pub nearest: Seq,
    /// How many operations could be carried out: fewer than there are if one fails.
    pub possible: u64,
}

/// How operations may be there in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Words of a file that are written in one transaction: its record size.
    pub transaction_words: u64,
    /// Operations up to this one had returned.
    pub returned: Seq,
}

/// Walks through the operations. `seen` knows the paths of `tree`, which is before the first.
pub fn walk(tree: Tree, ops: &[Op], seen: &SeenTree, parts: Parts) -> Walk {
    let mut differ = Differ::new(tree, seen);
    let mut mapped = Mapped::default();
    let mut found = Walk { instants: Instants::default(), nearest: Seq(0), possible: 0 };
    let mut least: Option<Distance> = None;
    let mut ops = (1..).map(Seq).zip(ops);
    loop {
        let next = ops.next().and_then(|(seq, op)| {
            let effect = differ.tree.effect(op).ok()?;
            Some((seq, op, effect))
        });
        let distance = differ.distance();
        if least.is_none_or(|least| distance <= least) {
            (least, found.nearest) = (Some(distance), Seq(found.possible));
        }
        if seen.broken.is_empty() {
            fits(&mut found, &differ, seen, &mapped, next.as_ref(), parts);
        }
        let Some((seq, op, effect)) = next else { break };
        mapped.note(&differ.tree, op, &effect);
        differ.apply(seq, &effect);
        mapped.forget_unnamed(&differ.tree, &effect);
        found.possible = seq.0;
    }
    found
}

/// Adds the instant behind the operations so far, if it fits.
fn fits(
    found: &mut Walk,
    differ: &Differ,
    seen: &SeenTree,
    mapped: &Mapped,
    next: Option<&(Seq, &Op, Effect)>,
    parts: Parts,
) {
    let whole = Seq(found.possible);
    let Some(different) = differ.only_files() else { return };
    if different == 0 {
        found.instants.push(Instant { whole, part: false });
        return;
    }
    let explained = |next: Option<&Next>| {
        let target = next.map(|next| next.change.file);
        let files = mapped.files().filter(|file| Some(*file) != target).chain(target);
        let explained = files.map(|file| explained_pairs(differ, seen, file, next, mapped));
        explained.sum::<u64>() == different
    };
    if explained(None) {
        found.instants.push(Instant { whole, part: false });
        return;
    }
    let next = next.and_then(|(seq, op, effect)| {
        Next::of(*seq, op, effect, parts.transaction_words, *seq > parts.returned)
    });
    if next.is_some() && explained(next.as_ref()) {
        found.instants.push(Instant { whole, part: true });
    }
}

/// How many pairs of a file differ only as they may.
fn explained_pairs(
    differ: &Differ,
    seen: &SeenTree,
    file: Inode,
    next: Option<&Next>,
    mapped: &Mapped,
) -> u64 {
    let pairs = differ.pairs(file).iter().filter(|pair| pair.differs());
    let explained = pairs.filter(|pair| {
        let other = &seen.files[pair.seen as usize];
        torn::explains(&differ.tree, file, other, pair.wrong, next, mapped)
    });
    explained.count() as u64
}

#[cfg(test)]
mod tests;
