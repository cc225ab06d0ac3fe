//! Which script a stream carries out, as its plan says it, and the way to its operations.

use super::op::{Op, Paths, SyncHow, WriteHow};
use crate::units::StreamId;
use serde::{Deserialize, Serialize};

/// Kinds of script. Each is a pure function of (spec, seed, stream).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "script")]
pub enum ScriptSpec {
    /// Seeded operations of every kind on a few names, without end.
    Random {
        /// Names of files in each of its folders.
        names: u32,
        /// No file grows beyond this many bytes.
        file_bytes: u64,
        /// A sync about every so many operations.
        sync_every: u32,
    },
    /// Every sequence of up to so many operations on a fixed small tree, each in a folder of its own,
    /// each followed by each kind of sync (bounded black-box testing: ACE, OSDI 2018).
    Exhaustive {
        /// 1 or 2.
        operations: u32,
    },
    /// These operations, one a line, as [`super::text`] reads them.
    Listed {
        /// The lines.
        operations: Vec<String>,
        /// How many of them belong to the set-up.
        fill: u64,
    },
    /// What dpkg does with this many files, again and again: each round is the next version.
    PackageInstall {
        /// Files of the package.
        files: u32,
        /// dpkg's `--force-unsafe-io`: no fsync of unpacked files.
        unsafe_io: bool,
    },
    /// Blocks one behind the other into one file, each made durable. A full file is renamed away.
    Append {
        /// Bytes of a block.
        block_bytes: u64,
        /// How each is written and made durable.
        forced: Forced,
    },
    /// Blocks into slots of one file that the seed picks, each made durable.
    Overwrite {
        /// Blocks in the file.
        slots: u32,
        /// Bytes of a block.
        block_bytes: u64,
        /// How each is written and made durable.
        forced: Forced,
    },
}

/// How a block is written and made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forced {
    /// pwrite(2), fsync(2).
    #[default]
    Fsync,
    /// pwrite(2), fdatasync(2).
    Fdatasync,
    /// pwrite(2) with O_DSYNC.
    ODsync,
    /// pwrite(2) with O_SYNC.
    OSync,
    /// pwrite(2) with O_DIRECT, then fdatasync(2).
    ODirect,
    /// Stores into a shared mapping, msync(2).
    Msync,
    /// pwrite(2), sync_file_range(2): nothing is promised.
    SyncFileRange,
}

impl Forced {
    /// How the block is written, and the call behind it, if one is needed.
    pub fn calls(self) -> (WriteHow, Option<SyncHow>) {
        match self {
            Forced::Fsync => (WriteHow::Buffered, Some(SyncHow::Fsync)),
            Forced::Fdatasync => (WriteHow::Buffered, Some(SyncHow::Fdatasync)),
            Forced::ODsync => (WriteHow::Dsync, None),
            Forced::OSync => (WriteHow::Sync, None),
            Forced::ODirect => (WriteHow::Direct, Some(SyncHow::Fdatasync)),
            Forced::Msync => (WriteHow::Mapped, Some(SyncHow::Msync)),
            Forced::SyncFileRange => (WriteHow::Buffered, Some(SyncHow::SyncFileRange)),
        }
    }
}

/// Where a script's operations come from, one after the other.
pub trait Generator: Send + std::fmt::Debug {
    /// The next operation; `None` at the end of a script that has one.
    fn next_op(&mut self) -> Option<Op>;
    /// The paths of the operations so far.
    fn paths(&self) -> &Paths;
    /// Operations that belong to the set-up.
    fn fill(&self) -> u64;
}

/// The beginning of a script: operation n (from 1) is at index n - 1.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Its paths.
    pub paths: Paths,
    /// Its operations.
    pub ops: Vec<Op>,
    /// Operations that belong to the set-up.
    pub fill: u64,
}

impl ScriptSpec {
    /// Operations that belong to the set-up.
    pub fn fill(&self) -> u64 {
        super::generate::fill(self)
    }

    /// The operations, one by one.
    pub fn generator(&self, seed: u64, stream: StreamId) -> Box<dyn Generator> {
        super::generate::generator(self, seed, stream)
    }

    /// The first `count` operations, or all if there are fewer.
    pub fn script(&self, seed: u64, stream: StreamId, count: u64) -> Script {
        let mut generator = self.generator(seed, stream);
        let ops = (0..count).map_while(|_| generator.next_op()).collect();
        Script { ops, fill: generator.fill(), paths: generator.paths().clone() }
    }
}
