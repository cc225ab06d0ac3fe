//! Blocks into one file: appended, or into slots of it, each forced to disk.

use crate::script::content::FILE_BYTES_MAX;
use crate::script::op::{Op, PathId, Paths, SyncHow};
use crate::script::spec::{Forced, Generator};
use crate::units::StreamId;
use crate::workload::plan::splitmix64;
use std::collections::VecDeque;

/// Sets the slots apart from every other use of a seed.
const PURPOSE: u64 = u64::from_le_bytes(*b"slots v1");

/// Operations of the set-up of appended blocks: the file, and a sync.
pub const APPEND_FILL: u64 = 2;

/// Operations of the set-up of blocks in slots: the file, each slot once, and a sync.
pub fn overwrite_fill(slots: u32) -> u64 {
    u64::from(slots) + 2
}

/// Where the next block goes.
#[derive(Debug)]
enum Place {
    /// Behind the one before, in this file.
    End { file: u32 },
    /// Into a slot that the seed picks.
    Slot { slots: u32, lane: u64 },
}

/// A script of blocks.
#[derive(Debug)]
pub struct Blocks {
    place: Place,
    block_bytes: u64,
    forced: Forced,
    paths: Paths,
    path: PathId,
    written: u64,
    due: VecDeque<Op>,
    fill: u64,
}

impl Blocks {
    /// Blocks one behind the other. A file that is full is left, and the next one is begun.
    pub fn append(block_bytes: u64, forced: Forced) -> Blocks {
        let mut blocks = Blocks::new(Place::End { file: 0 }, block_bytes, forced);
        let names = blocks.sync_names();
        blocks.due.extend([Op::Create(blocks.path), names]);
        blocks.fill = APPEND_FILL;
        blocks
    }

    /// Blocks into slots; the set-up fills each slot once.
    pub fn overwrite(
        slots: u32,
        block_bytes: u64,
        forced: Forced,
        (seed, stream): (u64, StreamId),
    ) -> Blocks {
        let lane = splitmix64(splitmix64(seed ^ PURPOSE) ^ u64::from(stream.0));
        let mut blocks = Blocks::new(Place::Slot { slots, lane }, block_bytes, forced);
        let (path, len) = (blocks.path, block_bytes);
        let how = Default::default();
        blocks.due.push_back(Op::Create(path));
        blocks.due.extend((0..u64::from(slots)).map(|slot| Op::Write {
            path,
            offset: slot * len,
            len,
            how,
        }));
        let names = blocks.sync_names();
        blocks.due.push_back(names);
        blocks.fill = overwrite_fill(slots);
        blocks
    }

    fn new(place: Place, block_bytes: u64, forced: Forced) -> Blocks {
        let mut paths = Paths::default();
        let path = paths.intern("blocks-0");
        let due = VecDeque::new();
        Blocks { place, block_bytes, forced, paths, path, written: 0, due, fill: 0 }
    }

    fn sync_names(&mut self) -> Op {
        Op::Sync { path: self.paths.intern(""), how: SyncHow::Syncfs }
    }

    /// A block's offset; a new file is begun first where the old one has no room.
    fn offset(&mut self) -> u64 {
        match &mut self.place {
            Place::Slot { slots, lane } => {
                let slot = splitmix64(lane.wrapping_add(self.written)) % u64::from((*slots).max(1));
                slot * self.block_bytes
            }
            Place::End { file } => {
                let room = (FILE_BYTES_MAX / self.block_bytes.max(1)).max(1);
                let at = self.written % room;
                if at == 0 && self.written > 0 {
                    *file += 1;
                    let name = format!("blocks-{file}");
                    self.path = self.paths.intern(&name);
                    let how = SyncHow::FsyncDir;
                    let folder = self.paths.intern("");
                    self.due.extend([Op::Create(self.path), Op::Sync { path: folder, how }]);
                }
                at * self.block_bytes
            }
        }
    }
}

impl Generator for Blocks {
    fn next_op(&mut self) -> Option<Op> {
        if self.due.is_empty() {
            let (how, sync) = self.forced.calls();
            let offset = self.offset();
            let (path, len) = (self.path, self.block_bytes);
            self.written += 1;
            self.due.push_back(Op::Write { path, offset, len, how });
            self.due.extend(sync.map(|how| Op::Sync { path, how }));
        }
        self.due.pop_front()
    }

    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn fill(&self) -> u64 {
        self.fill
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::spec::ScriptSpec;

    fn script(spec: ScriptSpec, count: u64) -> Vec<Op> {
        spec.script(7, StreamId(1), count).ops
    }

    #[test]
    fn appended_blocks_lie_one_behind_the_other_and_each_is_forced() {
        let spec = ScriptSpec::Append { block_bytes: 512, forced: Forced::Fdatasync };
        let ops = script(spec, 6);
        assert!(matches!(ops[0], Op::Create(_)) && ops[1].sync().is_some());
        for (n, pair) in ops[2..].chunks(2).enumerate() {
            let offset = n as u64 * 512;
            assert!(matches!(pair[0], Op::Write { offset: at, len: 512, .. } if at == offset));
            assert!(matches!(pair[1].sync(), Some((_, SyncHow::Fdatasync))));
        }
    }

    #[test]
    fn a_full_file_is_followed_by_a_new_one_that_is_made_durable() {
        let block_bytes = FILE_BYTES_MAX / 2;
        let ops = script(ScriptSpec::Append { block_bytes, forced: Forced::OSync }, 8);
        let creates: Vec<usize> = ops
            .iter()
            .enumerate()
            .filter(|(_, op)| matches!(op, Op::Create(_)))
            .map(|(n, _)| n)
            .collect();
        assert_eq!(creates, [0, 4]);
        assert!(matches!(ops[5].sync(), Some((_, SyncHow::FsyncDir))));
        assert!(matches!(ops[6], Op::Write { offset: 0, .. }), "{ops:?}");
    }

    #[test]
    fn overwritten_slots_are_filled_first_and_the_seed_picks_the_others() {
        let spec =
            |slots| ScriptSpec::Overwrite { slots, block_bytes: 8192, forced: Forced::ODsync };
        let ops = script(spec(4), 200);
        let offsets = |ops: &[Op]| -> Vec<u64> {
            let offset = |op: &Op| match op {
                Op::Write { offset, .. } => Some(*offset),
                _ => None,
            };
            ops.iter().filter_map(offset).collect()
        };
        assert_eq!(offsets(&ops[..6]), [0, 8192, 16384, 24576]);
        let mut hit = offsets(&ops[6..]);
        hit.sort_unstable();
        hit.dedup();
        assert_eq!(hit, [0, 8192, 16384, 24576]);
    }
}
