//! The walk against trying every instant with the plain reference.

use super::*;
use crate::script::model::reference::{Plain, Reference, runs};
use crate::script::model::testing::{PIECE, scripts};
use crate::script::op::{Paths, SyncHow, WriteHow};
use crate::script::spec::Script;
use crate::script::tree::{NodeKind, ObservedTree, Run, RunWhat};
use crate::units::StreamId;
use crate::verify::tree::instants::Instants;
use proptest::prelude::*;

const PARTS: Parts = Parts { transaction_words: 1 << 14, returned: Seq(u64::MAX) };

fn walked(script: &Script, found: &ObservedTree, parts: Parts) -> Walk {
    let mut tree = Tree::new(&script.paths);
    let seen = SeenTree::new(found, tree.names_mut());
    walk(tree, &script.ops, &seen, parts)
}

/// Writes into mappings are ordered by their sync; the others say enough here.
fn without_mappings(mut script: Script) -> Script {
    for op in &mut script.ops {
        if let Op::Write { how, .. } = op
            && *how == WriteHow::Mapped
        {
            *how = WriteHow::Buffered;
        }
    }
    script
}

/// Two trees are the same to a reader: inode numbers only tell which names belong together.
fn looks_like(one: &ObservedTree, other: &ObservedTree) -> bool {
    let mut numbers = std::collections::BTreeMap::new();
    let mut back = std::collections::BTreeMap::new();
    one.nodes.len() == other.nodes.len()
        && one.nodes.iter().zip(&other.nodes).all(|(a, b)| {
            a.path == b.path
                && match (&a.kind, &b.kind) {
                    (NodeKind::File(a), NodeKind::File(b)) => {
                        *numbers.entry(a.ino).or_insert(b.ino) == b.ino
                            && *back.entry(b.ino).or_insert(a.ino) == a.ino
                            && (a.nlink, a.size, &a.runs) == (b.nlink, b.size, &b.runs)
                    }
                    (a, b) => a == b,
                }
        })
}

proptest! {
    #[test]
    fn the_walk_finds_exactly_the_instants_that_trying_each_finds(
        script in scripts(40).prop_map(without_mappings), at in 0usize..=40,
    ) {
        let at = at.min(script.ops.len());
        let found = Reference::after(&script.paths, &script.ops[..at]).observe(StreamId(1));
        let mut expected = Instants::default();
        for k in 0..=script.ops.len() {
            let here = Reference::after(&script.paths, &script.ops[..k]).observe(StreamId(1));
            if looks_like(&here, &found) {
                expected.push(Instant { whole: Seq(k as u64), part: false });
            }
        }
        let walked = walked(&script, &found, PARTS);
        prop_assert_eq!(walked.possible, script.ops.len() as u64);
        prop_assert_eq!(walked.instants.last().is_some(), true);
        // A part may look like the whole of an earlier state as well.
        let whole = |instants: &Instants| -> Vec<u64> {
            (0..=script.ops.len() as u64)
                .filter(|at| instants.first_from(Seq(*at))
                    == Some(Instant { whole: Seq(*at), part: false }))
                .collect()
        };
        prop_assert_eq!(whole(&walked.instants), whole(&expected));
    }

    #[test]
    fn a_swapped_name_a_changed_word_or_size_fits_no_instant_unless_the_reference_says_so(
        script in scripts(30).prop_map(without_mappings), at in 0usize..=30, which: u64, fault in 0..4u8,
    ) {
        let at = at.min(script.ops.len());
        let mut found = Reference::after(&script.paths, &script.ops[..at]).observe(StreamId(1));
        prop_assume!(plant(&mut found, which, fault));
        let any = (0..=script.ops.len()).any(|k| {
            let here = Reference::after(&script.paths, &script.ops[..k]).observe(StreamId(1));
            looks_like(&here, &found)
        });
        let walked = walked(&script, &found, PARTS);
        let whole = walked.instants.first().is_some_and(|first| !first.part);
        prop_assert!(any || !whole || walked.instants.first().is_some_and(|at| at.part),
            "{:?} {:?}", walked, found);
    }
}

/// A node is taken out, a word is changed, a file is longer, or two names become one file.
fn plant(found: &mut ObservedTree, which: u64, fault: u8) -> bool {
    let files: Vec<usize> = (0..found.nodes.len())
        .filter(|at| matches!(found.nodes[*at].kind, NodeKind::File(_)))
        .collect();
    let Some(&at) = files.get(which as usize % files.len().max(1)) else { return false };
    let NodeKind::File(file) = &mut found.nodes[at].kind else { return false };
    match fault {
        0 => drop(found.nodes.remove(at)),
        1 => {
            file.size += PIECE;
            match file.runs.last_mut() {
                Some(Run { len, what: RunWhat::Zeros }) => *len += PIECE,
                _ => file.runs.push(Run { len: PIECE, what: RunWhat::Zeros }),
            }
        }
        2 => file.nlink += 1,
        _ => {
            let Some(run) = file.runs.first_mut() else { return false };
            run.what = match run.what {
                RunWhat::Zeros => RunWhat::Of(Seq(1 + which % 30)),
                _ => RunWhat::Zeros,
            };
            file.runs = merged(&file.runs);
        }
    }
    true
}

/// Runs as a reader tells them: two that touch differ.
fn merged(runs: &[Run]) -> Vec<Run> {
    let alike = runs.chunk_by(|a, b| a.what == b.what);
    let run = |alike: &[Run]| Run {
        len: alike.iter().map(|run| run.len).sum(),
        what: alike[0].what.clone(),
    };
    alike.map(run).collect()
}

fn one_file(writes: &[(u64, u64, WriteHow)]) -> Script {
    let mut paths = Paths::default();
    let path = paths.intern("f");
    let write = |(offset, len, how): &(u64, u64, WriteHow)| Op::Write {
        path,
        offset: *offset,
        len: *len,
        how: *how,
    };
    let ops = [Op::Create(path)].into_iter().chain(writes.iter().map(write)).collect();
    Script { paths, ops, fill: 0 }
}

fn seen_words(script: &Script, words: &[u64]) -> ObservedTree {
    let mut reference = Reference::after(&script.paths, &script.ops[..1]);
    let Some(Plain::File(file)) = reference.nodes.get("f").cloned() else { panic!("a file") };
    reference.files[file] = words.to_vec();
    let found = reference.observe(StreamId(1));
    assert!(matches!(&found.nodes[0].kind, NodeKind::File(file) if file.runs == runs(words)));
    found
}

fn words(parts: &[(u64, usize)]) -> Vec<u64> {
    parts.iter().flat_map(|(by, len)| std::iter::repeat_n(*by, *len)).collect()
}

#[test]
fn a_write_over_two_transactions_may_be_there_up_to_their_border_and_nowhere_else() {
    use WriteHow::Buffered;
    let script = one_file(&[(0, 4096, Buffered), (0, 4096, Buffered)]);
    let parts = Parts { transaction_words: 256, returned: Seq(u64::MAX) };
    let first = |parts, held: &[(u64, usize)]| {
        let walk = walked(&script, &seen_words(&script, &words(held)), parts);
        walk.instants.first().map(|at| (at.whole.0, at.part))
    };
    assert_eq!(first(parts, &[(3, 512)]), Some((3, false)), "control");
    assert_eq!(first(parts, &[(3, 256), (2, 256)]), Some((2, true)));
    assert_eq!(first(parts, &[(2, 256), (3, 256)]), None, "the back before the front");
    assert_eq!(first(parts, &[(3, 64), (2, 448)]), None, "not a border of a transaction");
    assert_eq!(first(parts, &[(3, 256), (0, 256)]), None, "a hole");
    assert_eq!(first(parts, &[(2, 256)]), Some((1, true)), "it grows as far as it is there");
    assert_eq!(first(parts, &[(2, 256), (0, 256)]), None, "longer than what is there");
    let in_flight = Parts { returned: Seq(2), ..parts };
    assert_eq!(first(in_flight, &[(3, 64), (2, 448)]), Some((2, true)), "in flight");
    assert_eq!(first(in_flight, &[(3, 60), (2, 452)]), None, "torn in a sector");
    assert_eq!(first(in_flight, &[(2, 64)]), None, "the first had returned");
}

#[test]
fn stores_into_a_mapping_may_be_missing_until_a_sync_and_not_behind_it() {
    let mut script = one_file(&[(0, 1024, WriteHow::Buffered), (0, 1024, WriteHow::Mapped)]);
    let (path, other) = (script.paths.intern("f"), script.paths.intern("g"));
    script.ops.extend([Op::Create(other), Op::Sync { path, how: SyncHow::Msync }]);
    script.ops.push(Op::Unlink(other));
    let whole = |held: &[(u64, usize)], other: bool| {
        let mut found = seen_words(&script, &words(held));
        if other {
            let mut node = found.nodes[0].clone();
            let NodeKind::File(file) = &mut node.kind else { panic!("a file") };
            (file.ino, file.size, node.path) = (9, 0, "g".to_owned());
            file.runs.clear();
            found.nodes.push(node);
        }
        let walk = walked(&script, &found, PARTS);
        (walk.instants.first().map(|at| at.whole.0), walk.instants.last().map(|at| at.whole.0))
    };
    assert_eq!(whole(&[(3, 128)], true), (Some(4), Some(5)));
    assert_eq!(whole(&[(2, 128)], true), (Some(4), Some(4)), "not stored yet, and no sync yet");
    assert_eq!(whole(&[(3, 64), (2, 64)], true), (Some(4), Some(4)));
    assert_eq!(whole(&[(0, 128)], true), (None, None), "zeros were never there");
    assert_eq!(whole(&[(2, 128)], false), (Some(2), Some(3)), "before the other file");
}
