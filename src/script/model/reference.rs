//! The model's model: paths to lists of words, as plainly as can be. For tests.

use crate::script::op::{FallocateHow, Op, PathId, Paths, WORD_BYTES};
use crate::script::tree::{FileSeen, Node, NodeKind, ObservedTree, Run, RunWhat};
use crate::units::{Seq, StreamId};
use std::collections::BTreeMap;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plain {
    /// A folder.
    Dir,
    /// A link to this.
    Symlink(String),
    /// A file, by its number.
    File(usize),
}

/// A tree of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reference {
    /// By path; the root is not among them.
    pub nodes: BTreeMap<String, Plain>,
    /// By number: whose word lies in each place, 0 for zeros.
    pub files: Vec<Vec<u64>>,
}

impl Reference {
    /// After these operations.
    pub fn after(paths: &Paths, ops: &[Op]) -> Reference {
        let mut reference = Reference::default();
        for (seq, op) in (1..).zip(ops) {
            reference.run(paths, seq, op);
        }
        reference
    }

    fn file(&self, path: &str) -> usize {
        match self.nodes.get(path) {
            Some(Plain::File(file)) => *file,
            other => panic!("{path} is {other:?}"),
        }
    }

    /// Carries out an operation that succeeds.
    pub fn run(&mut self, paths: &Paths, seq: u64, op: &Op) {
        let name = |path: PathId| paths.name(path).to_owned();
        let span = |offset: u64, len: u64| {
            (offset / WORD_BYTES) as usize..((offset + len) / WORD_BYTES) as usize
        };
        match *op {
            Op::Mkdir(path) => drop(self.nodes.insert(name(path), Plain::Dir)),
            Op::Rmdir(path) | Op::Unlink(path) => drop(self.nodes.remove(&name(path))),
            Op::Create(path) => {
                self.nodes.insert(name(path), Plain::File(self.files.len()));
                self.files.push(Vec::new());
            }
            Op::Symlink { target, at } => {
                self.nodes.insert(name(at), Plain::Symlink(name(target)));
            }
            Op::Link { from, to } => {
                let file = self.file(&name(from));
                self.nodes.insert(name(to), Plain::File(file));
            }
            Op::Rename { from, to } => self.rename(&name(from), &name(to)),
            Op::Write { path, offset, len, .. } => {
                let file = self.file(&name(path));
                self.fill(file, span(offset, len), |_| seq);
            }
            Op::Truncate { path, size } => {
                let file = self.file(&name(path));
                self.files[file].resize((size / WORD_BYTES) as usize, 0);
            }
            Op::Fallocate { path, offset, len, how } => {
                let file = self.file(&name(path));
                let (span, size) = (span(offset, len), self.files[file].len());
                match how {
                    FallocateHow::KeepSize => {}
                    FallocateHow::Allocate => {
                        self.files[file].resize(size.max(span.end), 0);
                    }
                    FallocateHow::ZeroRange => self.fill(file, span, |_| 0),
                    FallocateHow::PunchHole => {
                        self.fill(file, span.start.min(size)..span.end.min(size), |_| 0);
                    }
                }
            }
            Op::Copy { from, to, offset, len } => {
                let (from, to) = (self.file(&name(from)), self.file(&name(to)));
                let source = self.files[from].clone();
                let span = span(offset, len);
                if span.start < source.len() && from != to {
                    self.fill(to, span.start..span.end.min(source.len()), |at| source[at]);
                }
            }
            Op::Sync { .. } => {}
        }
    }

    fn fill(&mut self, file: usize, span: std::ops::Range<usize>, by: impl Fn(usize) -> u64) {
        let words = &mut self.files[file];
        words.resize(words.len().max(span.end), 0);
        span.for_each(|at| words[at] = by(at));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let of_one_file = matches!(self.nodes.get(from), Some(Plain::File(_)))
            && self.nodes.get(from) == self.nodes.get(to);
        if of_one_file || from == to {
            return;
        }
        let below = format!("{from}/");
        let moving: Vec<String> = self
            .nodes
            .keys()
            .filter(|name| *name == from || name.starts_with(&below))
            .cloned()
            .collect();
        for name in moving {
            let node = self.nodes.remove(&name).expect("it is there");
            self.nodes.insert(format!("{to}{}", &name[from.len()..]), node);
        }
    }

    /// What a reader finds.
    pub fn observe(&self, stream: StreamId) -> ObservedTree {
        let node = |(path, plain): (&String, &Plain)| {
            let kind = match plain {
                Plain::Dir => NodeKind::Dir,
                Plain::Symlink(target) => NodeKind::Symlink(target.clone()),
                Plain::File(file) => NodeKind::File(FileSeen {
                    ino: 100 + *file as u64,
                    nlink: self.nodes.values().filter(|other| *other == plain).count() as u64,
                    size: self.files[*file].len() as u64 * WORD_BYTES,
                    runs: runs(&self.files[*file]),
                }),
            };
            Node { path: path.clone(), kind }
        };
        ObservedTree { stream, exists: true, nodes: self.nodes.iter().map(node).collect() }
    }
}

/// Words as a reader tells them.
pub fn runs(words: &[u64]) -> Vec<Run> {
    let run = |run: &[u64]| Run {
        len: run.len() as u64 * WORD_BYTES,
        what: match run[0] {
            0 => RunWhat::Zeros,
            by => RunWhat::Of(Seq(by)),
        },
    };
    words.chunk_by(|a, b| a == b).map(run).collect()
}

mod tests {
    use super::super::testing::scripts;
    use super::super::tree::{Entry, Tree};
    use super::*;
    use proptest::prelude::*;

    /// The tree in the reference's form, its files numbered by their first path.
    fn plain(tree: &Tree) -> BTreeMap<String, (Plain, Vec<u64>)> {
        let mut numbers = BTreeMap::new();
        let mut entries: Vec<(String, Entry)> = tree
            .entries()
            .map(|(path, entry)| (tree.names().name(path).to_owned(), entry))
            .filter(|(path, _)| !path.is_empty())
            .collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let plain = |(path, entry): (String, Entry)| {
            let told = match entry {
                Entry::Dir(_) => (Plain::Dir, Vec::new()),
                Entry::Symlink(to) => (Plain::Symlink(tree.names().name(to).to_owned()), vec![]),
                Entry::File(file) => {
                    let next = numbers.len();
                    let number = *numbers.entry(file).or_insert(next);
                    let content = tree.content(file).expect("a file");
                    let words = content.pieces(0..content.size());
                    let words = words.flat_map(|(range, by)| range.map(move |_| by.0)).collect();
                    (Plain::File(number), words)
                }
            };
            (path, told)
        };
        entries.into_iter().map(plain).collect()
    }

    fn numbered(reference: &Reference) -> BTreeMap<String, (Plain, Vec<u64>)> {
        let mut numbers = BTreeMap::new();
        let told = |(path, node): (&String, &Plain)| {
            let told = match node {
                Plain::File(file) => {
                    let next = numbers.len();
                    let number = *numbers.entry(*file).or_insert(next);
                    (Plain::File(number), reference.files[*file].clone())
                }
                other => (other.clone(), Vec::new()),
            };
            (path.clone(), told)
        };
        reference.nodes.iter().map(told).collect()
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_the_reference_after_each_operation(script in scripts(60)) {
            let mut tree = Tree::new(&script.paths);
            let mut reference = Reference::default();
            for (seq, op) in (1..).zip(&script.ops) {
                tree.run(Seq(seq), op).expect("a valid script");
                reference.run(&script.paths, seq, op);
                prop_assert_eq!(plain(&tree), numbered(&reference), "after {} {:?}", seq, op);
            }
        }
    }
}
