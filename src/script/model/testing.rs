//! Small random scripts that succeed, for tests.

use super::tree::{Entry, Tree};
use crate::script::op::{FallocateHow, Op, PathId, Paths, SyncHow, WriteHow};
use crate::script::spec::Script;
use crate::units::Seq;
use crate::workload::plan::splitmix64;
use proptest::prelude::*;

/// Offsets and lengths are multiples of this many bytes: one sector.
pub const PIECE: u64 = 512;
/// Pieces in a file at most.
const PIECES: u64 = 4;
/// What operations name.
const NAMES: [&str; 9] = ["d", "e", "a", "b", "d/a", "d/b", "e/a", "e/c", "d/e"];

/// Scripts of up to so many operations.
pub fn scripts(ops_max: usize) -> impl Strategy<Value = Script> {
    (any::<u64>(), 1..=ops_max).prop_map(|(seed, count)| script(seed, count))
}

/// A random script.
pub fn script(seed: u64, count: usize) -> Script {
    drawn(seed, count, true)
}

/// One whose folders keep their names: of those that move into one another the paths only grow.
pub fn long_script(seed: u64, count: usize) -> Script {
    drawn(seed, count, false)
}

fn drawn(seed: u64, count: usize, folders_move: bool) -> Script {
    let mut paths = Paths::default();
    for name in NAMES.iter().chain([&""]) {
        paths.intern(name);
    }
    let mut tree = Tree::new(&paths);
    let (mut state, mut ops) = (splitmix64(seed), Vec::new());
    while ops.len() < count {
        let mut draw = |below: u64| {
            state = splitmix64(state);
            state % below
        };
        let op = random(&mut draw, &paths);
        let moves_a_folder = match op {
            Op::Rename { from, .. } => matches!(tree.entry(from), Some(Entry::Dir(_))),
            _ => false,
        };
        if moves_a_folder && !folders_move {
            continue;
        }
        if tree.run(Seq(ops.len() as u64 + 1), &op).is_ok() {
            ops.push(op);
        }
    }
    Script { paths, ops, fill: 0 }
}

fn random(draw: &mut impl FnMut(u64) -> u64, paths: &Paths) -> Op {
    let root = paths.find("").expect("the root");
    let (path, other) = (PathId(draw(9) as u32), PathId(draw(9) as u32));
    let offset = draw(PIECES) * PIECE;
    let len = (draw(PIECES - offset / PIECE) + 1) * PIECE;
    match draw(22) {
        0 => Op::Mkdir(path),
        1 => Op::Rmdir(path),
        2..=4 => Op::Create(path),
        5..=9 => {
            use WriteHow::*;
            let how = [Buffered, Buffered, Dsync, Sync, Direct, Mapped][draw(6) as usize];
            Op::Write { path, offset, len, how }
        }
        10 => Op::Truncate { path, size: offset },
        11 => {
            use FallocateHow::*;
            let how = [Allocate, KeepSize, PunchHole, ZeroRange][draw(4) as usize];
            Op::Fallocate { path, offset, len, how }
        }
        12..=14 => Op::Rename { from: path, to: other },
        15 => Op::Link { from: path, to: other },
        16 => Op::Symlink { target: path, at: other },
        17 => Op::Unlink(path),
        18 => Op::Copy { from: path, to: other, offset, len },
        _ => {
            use SyncHow::*;
            let how =
                [Fsync, Fsync, Fdatasync, Msync, SyncFileRange, FsyncDir, Syncfs][draw(7) as usize];
            Op::Sync { path: if how == Syncfs { root } else { path }, how }
        }
    }
}
