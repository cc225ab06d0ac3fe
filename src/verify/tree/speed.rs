//! A million operations are judged within a bound. The figures of a release build are far below it.

use super::pieces::in_pieces;
use super::survey::{Held, at_one_instant};
use crate::script::model::promises::Family;
use crate::script::model::testing;
use crate::script::model::tree::{Entry, Tree};
use crate::script::op::{PathId, WORD_BYTES};
use crate::script::spec::{Forced, Script, ScriptSpec};
use crate::script::tree::{FileSeen, Node, NodeKind, ObservedTree, Run, RunWhat};
use crate::units::{RunId, Seq, StreamId};
use crate::verify::survey::test_support::stream;
use crate::verify::survey::{Promise, Proofs};
use crate::workload::plan::Plan;
use std::time::Instant;

const OPS: usize = 1_000_000;
/// A debug build on a machine that others use too; a release build takes a tenth.
const SECONDS_MAX: u64 = 60;

/// What a reader finds after the first `kept` operations.
fn observed(script: &Script, kept: usize) -> ObservedTree {
    let mut tree = Tree::new(&script.paths);
    for (seq, op) in (1..).map(Seq).zip(&script.ops[..kept]) {
        tree.run(seq, op).expect("a valid script");
    }
    let node = |(path, entry): (PathId, Entry)| {
        let kind = match entry {
            Entry::Dir(_) => NodeKind::Dir,
            Entry::Symlink(to) => NodeKind::Symlink(tree.names().name(to).to_owned()),
            Entry::File(file) => {
                let content = tree.content(file).expect("a file");
                let run = |(words, by): (std::ops::Range<u64>, Seq)| Run {
                    len: (words.end - words.start) * WORD_BYTES,
                    what: if by == Seq(0) { RunWhat::Zeros } else { RunWhat::Of(by) },
                };
                NodeKind::File(FileSeen {
                    ino: u64::from(file.0),
                    nlink: u64::from(tree.links(file)),
                    size: content.size() * WORD_BYTES,
                    runs: content.pieces(0..content.size()).map(run).collect(),
                })
            }
        };
        Node { path: tree.names().name(path).to_owned(), kind }
    };
    let below = tree.entries().filter(|(path, _)| *path != tree.names().root());
    let mut nodes: Vec<Node> = below.map(node).collect();
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    ObservedTree { stream: StreamId(1), exists: true, nodes }
}

fn judged_in_time(script: &Script, kept: usize) {
    let plan = Plan { run: RunId([1; 16]), seed: 7, bodies: 1, streams: Vec::new() };
    let acks: Vec<_> =
        (0..script.ops.len() as u64).map(|n| (3 * n, 3 * n + 1, 3 * n + 2)).collect();
    let (_, said) = stream(1, &acks, 0);
    let found = observed(script, kept);
    let promise = Promise::AllButRecent;
    let held =
        Held { plan: &plan, stream: StreamId(1), script, said: &said, found: &found, promise };
    let begun = Instant::now();
    let one = at_one_instant(&held, 128 << 10, Proofs::EachAck);
    let prefix = begun.elapsed();
    assert_eq!(one.findings, Vec::new());
    assert!(one.instants.first().is_some_and(|first| first.whole <= Seq(kept as u64)));
    let begun = Instant::now();
    in_pieces(&held, Family::Zfs);
    let pieces = begun.elapsed();
    println!("{} operations: one instant {prefix:?}, pieces {pieces:?}", script.ops.len());
    assert!(prefix.as_secs() < SECONDS_MAX && pieces.as_secs() < SECONDS_MAX);
}

#[test]
fn a_million_random_operations_are_judged_in_time() {
    judged_in_time(&testing::long_script(1, OPS), OPS - 1_000);
}

#[test]
fn a_million_blocks_are_judged_in_time() {
    let spec = ScriptSpec::Overwrite { slots: 256, block_bytes: 4096, forced: Forced::Fsync };
    judged_in_time(&spec.script(7, StreamId(1), OPS as u64), OPS - 999);
}
