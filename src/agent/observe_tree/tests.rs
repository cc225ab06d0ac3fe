//! What scripts leave on a real folder against a simple interpretation of them in memory.

use super::*;
use crate::record::found::FoundDecoder;
use crate::script::op::{FallocateHow, Op, Paths};
use crate::script::spec::ScriptSpec;
use crate::units::{RunId, StreamId};
use crate::workload::plan::Pattern;
use crate::workload::script_calls::ScriptCalls;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A tree in memory: each file is the operation that wrote each of its words, 0 for zeros.
#[derive(Default)]
struct Memory {
    names: BTreeMap<String, Named>,
    files: Vec<Vec<u64>>,
}

#[derive(Clone)]
enum Named {
    Dir,
    Symlink(String),
    File(usize),
}

impl Memory {
    fn file(&mut self, name: &str) -> &mut Vec<u64> {
        let Some(Named::File(file)) = self.names.get(name) else { panic!("{name} is a file") };
        &mut self.files[*file]
    }

    fn put(&mut self, name: &str, offset: u64, words: &[u64]) {
        let (file, at) = (self.file(name), (offset / 8) as usize);
        file.resize(file.len().max(at + words.len()), 0);
        file[at..at + words.len()].copy_from_slice(words);
    }

    fn apply(&mut self, seq: u64, op: &Op, paths: &Paths) {
        let name = |id| paths.name(id).to_owned();
        let words = |len: u64, word| vec![word; (len / 8) as usize];
        match *op {
            Op::Mkdir(path) => drop(self.names.insert(name(path), Named::Dir)),
            Op::Rmdir(path) | Op::Unlink(path) => drop(self.names.remove(&name(path))),
            Op::Create(path) => {
                self.files.push(Vec::new());
                self.names.insert(name(path), Named::File(self.files.len() - 1));
            }
            Op::Write { path, offset, len, .. } => self.put(&name(path), offset, &words(len, seq)),
            Op::Truncate { path, size } => self.file(&name(path)).resize((size / 8) as usize, 0),
            Op::Fallocate { path, offset, len, how } => match how {
                FallocateHow::Allocate => {
                    let file = self.file(&name(path));
                    file.resize(file.len().max(((offset + len) / 8) as usize), 0);
                }
                FallocateHow::KeepSize => {}
                FallocateHow::PunchHole | FallocateHow::ZeroRange => {
                    self.put(&name(path), offset, &words(len, 0));
                }
            },
            Op::Rename { from, to } => {
                let (from, to) = (name(from), name(to));
                let inside = format!("{from}/");
                let moved: Vec<String> = self.names.keys().cloned().collect();
                for old in moved.iter().filter(|old| **old == from || old.starts_with(&inside)) {
                    let named = self.names.remove(old).expect("it was just there");
                    self.names.insert(format!("{to}{}", &old[from.len()..]), named);
                }
            }
            Op::Link { from, to } => {
                let named = self.names[&name(from)].clone();
                self.names.insert(name(to), named);
            }
            Op::Symlink { target, at } => {
                self.names.insert(name(at), Named::Symlink(name(target)));
            }
            Op::Copy { from, to, offset, len } => {
                let (first, last) = ((offset / 8) as usize, ((offset + len) / 8) as usize);
                let copied = self.file(&name(from))[first..last].to_vec();
                self.put(&name(to), offset, &copied);
            }
            Op::Sync { .. } => {}
        }
    }

    /// As it should be read back; a file's number is its place here.
    fn tree(&self, stream: StreamId) -> ObservedTree {
        let links = |file: usize| {
            let is_it = |named: &&Named| matches!(named, Named::File(other) if *other == file);
            self.names.values().filter(is_it).count() as u64
        };
        let kind = |named: &Named| match named {
            Named::Dir => NodeKind::Dir,
            Named::Symlink(target) => NodeKind::Symlink(target.clone()),
            Named::File(file) => {
                let mut runs: Vec<Run> = Vec::new();
                for word in &self.files[*file] {
                    let what = if *word == 0 { RunWhat::Zeros } else { RunWhat::Of(Seq(*word)) };
                    match runs.last_mut() {
                        Some(last) if last.what == what => last.len += 8,
                        _ => runs.push(Run { len: 8, what }),
                    }
                }
                let size = self.files[*file].len() as u64 * 8;
                NodeKind::File(FileSeen { ino: *file as u64, nlink: links(*file), size, runs })
            }
        };
        let node =
            |(path, named): (&String, &Named)| Node { path: path.clone(), kind: kind(named) };
        ObservedTree { stream, exists: true, nodes: self.names.iter().map(node).collect() }
    }
}

/// Inode numbers replaced by the number of the first name of the same file.
fn by_first_name(mut tree: ObservedTree) -> ObservedTree {
    let mut first = BTreeMap::new();
    for (at, node) in tree.nodes.iter_mut().enumerate() {
        if let NodeKind::File(file) = &mut node.kind {
            file.ino = *first.entry(file.ino).or_insert(at as u64);
        }
    }
    tree
}

fn plan(folder: &Path, script: &ScriptSpec, seed: u64) -> Plan {
    let stream = StreamPlan {
        id: StreamId(1),
        dataset: "customer".into(),
        path: folder.join("stream-1").display().to_string(),
        pattern: Pattern::Script(script.clone()),
        pace_hz: None,
        batch: 1,
        fault: None,
    };
    Plan { run: RunId([1; 16]), seed, bodies: 1, streams: vec![stream] }
}

fn observed(plan: &Plan) -> ObservedTree {
    let mut decoder = FoundDecoder::default();
    let mut sink = |part: &[u8]| {
        decoder.part(part).expect("a part");
        Ok(())
    };
    observe(plan, &plan.streams[0], &mut sink).expect("an observation");
    decoder.finish(plan).expect("one for each stream").trees.remove(0)
}

fn read_back_is_what_was_done(script: &ScriptSpec, seed: u64, count: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(folder.path(), script, seed);
    let key = Key::new(seed, StreamId(1));
    let mut calls = ScriptCalls::create(&folder.path().join("stream-1")).expect("a new folder");
    let (mut memory, script) = (Memory::default(), script.script(seed, StreamId(1), count));
    for (seq, op) in (1..).zip(&script.ops) {
        calls.prepare(op, Seq(seq), key);
        calls.carry(op, &script.paths).expect("each can be carried out");
        memory.apply(seq, op, &script.paths);
    }
    let found = by_first_name(observed(&plan));
    assert_eq!(found, by_first_name(memory.tree(StreamId(1))), "seed {seed}");
}

#[test]
fn what_random_scripts_did_is_read_back_exactly() {
    let script = ScriptSpec::Random { names: 4, file_bytes: 65_536, sync_every: 30 };
    (0..12).for_each(|seed| read_back_is_what_was_done(&script, seed, 150 + seed * 60));
}

#[test]
fn what_the_other_scripts_did_is_read_back_exactly() {
    read_back_is_what_was_done(&ScriptSpec::Exhaustive { operations: 1 }, 7, 700);
    read_back_is_what_was_done(&ScriptSpec::PackageInstall { files: 30, unsafe_io: true }, 7, 300);
}

#[test]
fn a_folder_that_is_gone_and_one_that_is_no_folder_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(folder.path(), &ScriptSpec::Exhaustive { operations: 1 }, 7);
    let gone = observed(&plan);
    assert!(!gone.exists && gone.nodes.is_empty());
    fs::write(&plan.streams[0].path, "no folder").expect("a file");
    let file = observed(&plan);
    let errno = Errno::ENOTDIR as i32;
    let kind = NodeKind::Unreadable { call: Call::ReadDir, errno };
    assert_eq!((file.exists, &file.nodes[0].kind), (true, &kind));
}

#[test]
fn odd_words_stay_as_they_are_and_a_word_in_a_wrong_place_is_odd() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(folder.path(), &ScriptSpec::Exhaustive { operations: 1 }, 7);
    let root = folder.path().join("stream-1");
    fs::create_dir(&root).expect("a folder");
    let mut bytes = vec![0; 8192 + 3];
    let key = Key::new(7, StreamId(1));
    key.fill(Seq(5), 0, &mut bytes[..64]);
    key.fill(Seq(6), 0, &mut bytes[64..72]);
    bytes[72..80].copy_from_slice(b"garbage.");
    bytes[8192..].copy_from_slice(b"end");
    fs::write(root.join("a"), &bytes).expect("a file");
    std::os::unix::fs::symlink("a", root.join("b")).expect("a link");
    let tree = observed(&plan);
    let Some(Node { kind: NodeKind::File(file), .. }) = tree.find("a") else { panic!("{tree:?}") };
    let run = |len, what| Run { len, what };
    let expected = [
        run(64, RunWhat::Of(Seq(5))),
        run(16, RunWhat::Odd(bytes[64..80].into())),
        run(8192 - 80, RunWhat::Zeros),
        run(3, RunWhat::Odd(b"end".as_slice().into())),
    ];
    assert_eq!(file.runs, expected);
    assert_eq!(tree.find("b").map(|node| &node.kind), Some(&NodeKind::Symlink("a".to_owned())));
}

/// A file in memory of which some bytes cannot be read.
struct Damaged {
    bytes: Vec<u8>,
    unreadable: std::ops::Range<u64>,
}

impl Source for Damaged {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> std::io::Result<usize> {
        if at < self.unreadable.end && self.unreadable.start < at + bytes.len() as u64 {
            return Err(Errno::EIO.into());
        }
        let rest = &self.bytes[(at as usize).min(self.bytes.len())..];
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

#[test]
fn what_cannot_be_read_is_located_and_odd_bytes_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(folder.path(), &ScriptSpec::Exhaustive { operations: 1 }, 7);
    let mut walk = Walk {
        stream: &plan.streams[0],
        key: Key::new(7, StreamId(1)),
        nodes: Vec::new(),
        odd_left: 4096,
        buffer: vec![0; READ_BYTES],
    };
    let source = Damaged { bytes: vec![0; 5 * 4096], unreadable: 4100..4200 };
    let runs = walk.runs(&source, 5 * 4096, "a").expect("it can be told");
    let lens: Vec<u64> = runs.iter().map(|run| run.len).collect();
    assert_eq!(lens, [4096, 4096, 3 * 4096]);
    assert_eq!(runs[1].what, RunWhat::Unreadable(5));
    let source = Damaged { bytes: vec![7; 3 * 4096], unreadable: 0..0 };
    let runs = walk.runs(&source, 3 * 4096, "a").expect("it can be told");
    assert!(matches!(&runs[0].what, RunWhat::Odd(odd) if odd.len() == 4096));
    assert_eq!(runs[1], Run { len: 8192, what: RunWhat::Unreadable(ODD_BEYOND_BOUND) });
    let shrank = walk.runs(&source, 4 * 4096, "a");
    assert!(matches!(shrank, Err(ObserveError::Shrank { at: 12288, .. })));
}
