//! What was read back of a script's folder: every name, and every word of every file.

use crate::units::{Seq, StreamId};
use serde::{Deserialize, Serialize};

/// A stream's folder as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedTree {
    /// The stream whose folder it is.
    pub stream: StreamId,
    /// Whether the folder itself is there.
    pub exists: bool,
    /// Everything below it, ascending by path, a folder before what it holds.
    pub nodes: Vec<Node>,
}

/// One name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its path, relative to the stream's folder.
    pub path: String,
    /// What it names.
    pub kind: NodeKind,
}

/// What a name names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// A folder that could be read.
    Dir,
    /// A symbolic link to this target, as readlink(2) gives it.
    Symlink(String),
    /// A regular file.
    File(FileSeen),
    /// Something that no script makes, with its st_mode.
    Other(u32),
    /// It is there, but this call on it failed with this errno.
    Unreadable {
        /// The call.
        call: Call,
        /// What it said.
        errno: i32,
    },
}

/// Calls of a reader on a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// lstat(2).
    Stat,
    /// open(2) or getdents(2) of a folder.
    ReadDir,
    /// readlink(2).
    ReadLink,
    /// open(2) of a file.
    Open,
}

/// A file with its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// Its inode's number: names with the same number are names of one file.
    pub ino: u64,
    /// Its link count.
    pub nlink: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its contents from byte 0 on, without a gap; together they have its size.
    pub runs: Vec<Run>,
}

/// A range of a file whose words are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Bytes: whole words, but for a last odd run that may end within one.
    pub len: u64,
    /// What they hold.
    pub what: RunWhat,
}

/// What a range holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunWhat {
    /// Zero bytes.
    Zeros,
    /// Exactly the words that this operation writes at these places. The operation may be one that
    /// was never announced: then it is chance or damage, and the lab says so.
    Of(Seq),
    /// Anything else, as it was read.
    Odd(Box<[u8]>),
    /// Reading failed with this errno.
    Unreadable(i32),
}

impl ObservedTree {
    /// The node of a path.
    pub fn find(&self, path: &str) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| node.path.as_str().cmp(path)).ok()?;
        self.nodes.get(at)
    }
}
