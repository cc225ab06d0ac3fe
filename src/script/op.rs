//! Operations of a script: what one stream asks of the file system, system call by system call.
//!
//! Paths are relative to the stream's folder and interned: an operation is small, and a million of them
//! fit in memory. Offsets and lengths are multiples of [`WORD_BYTES`], because contents are told word
//! by word.

use serde::{Deserialize, Serialize};

/// Contents are words of this many bytes: see [`super::content`].
pub const WORD_BYTES: u64 = 8;

/// A path of a script, by its number in the script's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u32);

/// The paths of a script, each once.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    names: Vec<String>,
    ids: std::collections::HashMap<String, PathId>,
}

impl Paths {
    /// The number of a path, new or not. The stream's own folder is the empty path.
    pub fn intern(&mut self, name: &str) -> PathId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = PathId(self.names.len() as u32);
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// A path's number, if the script has it.
    pub fn find(&self, name: &str) -> Option<PathId> {
        self.ids.get(name).copied()
    }

    /// A path. Numbers come from [`Paths::intern`] of the same table.
    pub fn name(&self, id: PathId) -> &str {
        self.names.get(id.0 as usize).map_or("", String::as_str)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// How a write goes to the file, and what makes it durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteHow {
    /// pwrite(2): nothing is promised until a sync.
    #[default]
    Buffered,
    /// pwrite(2) through a descriptor with O_DSYNC: as if fdatasync(2) came with it.
    Dsync,
    /// pwrite(2) through a descriptor with O_SYNC: as if fsync(2) came with it.
    Sync,
    /// pwrite(2) through a descriptor with O_DIRECT: past the cache, and nothing is promised either.
    Direct,
    /// Stores into a shared mapping; nothing is promised until an msync(2) or a sync.
    Mapped,
}

/// What fallocate(2) does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FallocateHow {
    /// Room for it, zeros where there was nothing; the file grows to its end.
    Allocate,
    /// Room for it; the file's size stays.
    KeepSize,
    /// A hole: it reads as zeros; the size stays.
    PunchHole,
    /// It reads as zeros; the file grows to its end.
    ZeroRange,
}

/// Calls that make earlier operations durable, or that people believe to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncHow {
    /// fsync(2) of a file.
    Fsync,
    /// fdatasync(2) of a file.
    Fdatasync,
    /// msync(2) with MS_SYNC of a whole file's mapping.
    Msync,
    /// sync_file_range(2) with all its flags over the whole file. It promises nothing: it writes no
    /// metadata and flushes no disk cache (its manual page says so).
    SyncFileRange,
    /// fsync(2) of a folder.
    FsyncDir,
    /// syncfs(2) of the file system.
    Syncfs,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// mkdir(2).
    Mkdir(PathId),
    /// rmdir(2).
    Rmdir(PathId),
    /// open(2) with O_CREAT | O_EXCL: an empty file.
    Create(PathId),
    /// One write of `len` bytes at `offset` into a file that exists.
    Write {
        /// The file.
        path: PathId,
        /// Bytes from its begin.
        offset: u64,
        /// Bytes.
        len: u64,
        /// How.
        how: WriteHow,
    },
    /// truncate(2), up or down.
    Truncate {
        /// The file.
        path: PathId,
        /// Its new size in bytes.
        size: u64,
    },
    /// fallocate(2).
    Fallocate {
        /// The file.
        path: PathId,
        /// Bytes from its begin.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What is done with them.
        how: FallocateHow,
    },
    /// rename(2), over whatever file the new name had. Folders too.
    Rename {
        /// The old name.
        from: PathId,
        /// The new one.
        to: PathId,
    },
    /// link(2): a second name of a file.
    Link {
        /// The name that it has.
        from: PathId,
        /// The new one.
        to: PathId,
    },
    /// symlink(2). The target is a path of the table too, and may point nowhere.
    Symlink {
        /// What it points to.
        target: PathId,
        /// Its name.
        at: PathId,
    },
    /// unlink(2).
    Unlink(PathId),
    /// `len` bytes of one file into another that exists: a reflink of the range where the file system
    /// can, else copy_file_range(2).
    Copy {
        /// The file they come from.
        from: PathId,
        /// The file they go to, at the same offset.
        to: PathId,
        /// Bytes from the begin of both.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A sync of a file, a folder, or (with the stream's own folder) the file system.
    Sync {
        /// What is synced.
        path: PathId,
        /// With which call.
        how: SyncHow,
    },
}

impl Op {
    /// Whether it changes what a reader can see.
    pub fn changes(&self) -> bool {
        !matches!(self, Op::Sync { .. })
    }

    /// The sync that comes with it or that it is, and of what.
    pub fn sync(&self) -> Option<(PathId, SyncHow)> {
        match *self {
            Op::Sync { path, how } => Some((path, how)),
            Op::Write { path, how: WriteHow::Dsync, .. } => Some((path, SyncHow::Fdatasync)),
            Op::Write { path, how: WriteHow::Sync, .. } => Some((path, SyncHow::Fsync)),
            _ => None,
        }
    }
}
