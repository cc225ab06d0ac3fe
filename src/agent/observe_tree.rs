//! Reading a script's folder back: every name, and every word of every file.
//!
//! What always holds: no symbolic link is followed; every byte of every file is read, or told as
//! unreadable with the errno of its own 4 KiB; nothing is judged here. A file longer than any script's
//! is told as one that does not open (EFBIG); what is neither zeros nor a word in its own place is kept
//! as it is, up to [`ODD_BYTES_MAX`] in all, and beyond that told as unreadable with
//! [`ODD_BEYOND_BOUND`].

use crate::agent::observe::{ObserveError, Read, Source, read};
use crate::record::document::{self, Kind};
use crate::record::place::is_zero;
use crate::record::wire::Sink;
use crate::script::content::{FILE_BYTES_MAX, Key};
use crate::script::op::WORD_BYTES;
use crate::script::tree::{Call, FileSeen, Node, NodeKind, ObservedTree, Run, RunWhat};
use crate::units::Seq;
use crate::workload::plan::{Plan, StreamPlan};
use nix::errno::Errno;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;

/// Names of one folder tree; no script makes so many.
const NODES_MAX: usize = 1 << 20;
/// Odd bytes of one tree that are sent; as JSON they take up to four times as much.
pub const ODD_BYTES_MAX: usize = 16 << 20;
/// Stands for odd bytes beyond them; no read gives it.
pub const ODD_BEYOND_BOUND: i32 = Errno::ENOBUFS as i32;
/// No operation of a stream has a higher number than this; more would be a word by chance.
const SEQ_MAX: u64 = u32::MAX as u64;

/// Bytes of one read; a failed one is repeated page by page.
const READ_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// Reads a stream's folder back and sends it.
pub fn observe(plan: &Plan, stream: &StreamPlan, sink: &mut Sink) -> Result<(), ObserveError> {
    let tree = read_tree(plan, stream)?;
    Ok(document::encode(stream.id, Kind::Tree, &tree, sink)?)
}

fn read_tree(plan: &Plan, stream: &StreamPlan) -> Result<ObservedTree, ObserveError> {
    let mut walk = Walk {
        stream,
        key: Key::new(plan.seed, stream.id),
        nodes: Vec::new(),
        odd_left: ODD_BYTES_MAX,
        buffer: vec![0; READ_BYTES],
    };
    let exists = match open(CWD, stream.path.as_str(), OFlags::DIRECTORY) {
        Ok(folder) => {
            walk.folder(&folder, "")?;
            true
        }
        Err(rustix::io::Errno::NOENT) => false,
        Err(error) => {
            walk.push("", unreadable(Call::ReadDir, error))?;
            true
        }
    };
    let mut nodes = walk.nodes;
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(ObservedTree { stream: stream.id, exists, nodes })
}

fn open<P: rustix::path::Arg>(
    folder: impl std::os::fd::AsFd,
    name: P,
    more: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | more;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

fn unreadable(call: Call, error: rustix::io::Errno) -> NodeKind {
    NodeKind::Unreadable { call, errno: error.raw_os_error() }
}

struct Walk<'a> {
    stream: &'a StreamPlan,
    key: Key,
    nodes: Vec<Node>,
    odd_left: usize,
    buffer: Vec<u8>,
}

impl Walk<'_> {
    fn push(&mut self, path: &str, kind: NodeKind) -> Result<(), ObserveError> {
        if self.nodes.len() == NODES_MAX {
            let (stream, path) = (self.stream.id, self.stream.path.clone());
            return Err(ObserveError::Names { stream, path, most: NODES_MAX });
        }
        self.nodes.push(Node { path: path.to_owned(), kind });
        Ok(())
    }

    /// What is in a folder. Names that are not UTF-8, which no script makes, are shown as near as can
    /// be.
    fn folder(&mut self, folder: &OwnedFd, path: &str) -> Result<(), ObserveError> {
        let mut names: Vec<CString> = Vec::new();
        let listed = Dir::read_from(folder).and_then(|entries| {
            for entry in entries {
                names.push(entry?.file_name().to_owned());
            }
            Ok(())
        });
        if let Err(error) = listed {
            let kind = unreadable(Call::ReadDir, error);
            let own = self.nodes.iter_mut().rfind(|node| node.path == path);
            match own {
                Some(node) => node.kind = kind,
                None => self.push(path, kind)?,
            }
        }
        for name in names.iter().filter(|name| !matches!(name.to_bytes(), b"." | b"..")) {
            let dash = if path.is_empty() { "" } else { "/" };
            self.name(folder, name, &format!("{path}{dash}{}", name.to_string_lossy()))?;
        }
        Ok(())
    }

    fn name(&mut self, folder: &OwnedFd, name: &CString, path: &str) -> Result<(), ObserveError> {
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => return self.push(path, unreadable(Call::Stat, error)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => match open(folder, name, OFlags::DIRECTORY) {
                Ok(below) => {
                    self.push(path, NodeKind::Dir)?;
                    self.folder(&below, path)
                }
                Err(error) => self.push(path, unreadable(Call::ReadDir, error)),
            },
            FileType::Symlink => {
                let kind = match rustix::fs::readlinkat(folder, name, Vec::new()) {
                    Ok(target) => NodeKind::Symlink(target.to_string_lossy().into_owned()),
                    Err(error) => unreadable(Call::ReadLink, error),
                };
                self.push(path, kind)
            }
            FileType::RegularFile => {
                let size = stat.st_size as u64;
                let kind = match open(folder, name, OFlags::empty()) {
                    _ if size > FILE_BYTES_MAX => unreadable(Call::Open, rustix::io::Errno::FBIG),
                    Ok(file) => {
                        let runs = self.runs(&File::from(file), size, path)?;
                        let (ino, nlink) = (stat.st_ino, stat.st_nlink as u64);
                        NodeKind::File(FileSeen { ino, nlink, size, runs })
                    }
                    Err(error) => unreadable(Call::Open, error),
                };
                self.push(path, kind)
            }
            _ => self.push(path, NodeKind::Other(stat.st_mode)),
        }
    }

    fn runs(
        &mut self,
        file: &impl Source,
        size: u64,
        path: &str,
    ) -> Result<Vec<Run>, ObserveError> {
        let (all, odd) = (Vec::new(), Vec::new());
        let mut runs = Runs { key: self.key, all, odd, odd_left: &mut self.odd_left };
        for start in (0..size).step_by(READ_BYTES) {
            let part = &mut self.buffer[..(size - start).min(READ_BYTES as u64) as usize];
            let whole = read(file, part, start);
            for (rank, bytes) in part.chunks_mut(PAGE_BYTES).enumerate() {
                let at = start + (rank * PAGE_BYTES) as u64;
                let outcome = match whole {
                    Read::Failed(_) => read(file, bytes, at),
                    Read::Whole | Read::EndedAt(_) => whole,
                };
                match outcome {
                    Read::Whole => runs.page(at, bytes),
                    Read::Failed(errno) => {
                        runs.push(bytes.len(), RunWhat::Unreadable(errno as i32));
                    }
                    Read::EndedAt(at) => {
                        let path = format!("{}/{path}", self.stream.path);
                        return Err(ObserveError::Shrank {
                            stream: self.stream.id,
                            path,
                            at,
                            size,
                        });
                    }
                }
            }
        }
        Ok(runs.finish())
    }
}

/// A file's contents so far, like words together.
struct Runs<'a> {
    key: Key,
    all: Vec<Run>,
    /// Odd bytes behind them.
    odd: Vec<u8>,
    odd_left: &'a mut usize,
}

impl Runs<'_> {
    /// A page that was read; only the last one of a file is short.
    fn page(&mut self, at: u64, bytes: &[u8]) {
        let words = bytes.chunks_exact(WORD_BYTES as usize);
        let rest = words.remainder();
        if rest.is_empty() && is_zero(bytes) {
            return self.push(bytes.len(), RunWhat::Zeros);
        }
        for (place, word) in (at / WORD_BYTES..).zip(words) {
            match word.try_into().map(u64::from_le_bytes) {
                Ok(0) => self.push(word.len(), RunWhat::Zeros),
                Ok(value) => match self.key.decode(value) {
                    (Seq(seq @ 1..=SEQ_MAX), named) if named == place => {
                        self.push(word.len(), RunWhat::Of(Seq(seq)));
                    }
                    _ => self.odd(word),
                },
                Err(_) => self.odd(word),
            }
        }
        if !rest.is_empty() {
            self.odd(rest);
        }
    }

    fn push(&mut self, len: usize, what: RunWhat) {
        self.end_odd();
        let len = len as u64;
        match self.all.last_mut() {
            Some(last) if last.what == what => last.len += len,
            _ => self.all.push(Run { len, what }),
        }
    }

    fn odd(&mut self, bytes: &[u8]) {
        match self.odd_left.checked_sub(bytes.len()) {
            None => self.push(bytes.len(), RunWhat::Unreadable(ODD_BEYOND_BOUND)),
            Some(left) => {
                *self.odd_left = left;
                self.odd.extend_from_slice(bytes);
            }
        }
    }

    fn end_odd(&mut self) {
        if !self.odd.is_empty() {
            let odd = std::mem::take(&mut self.odd);
            self.all.push(Run { len: odd.len() as u64, what: RunWhat::Odd(odd.into()) });
        }
    }

    fn finish(mut self) -> Vec<Run> {
        self.end_odd();
        self.all
    }
}

#[cfg(test)]
mod tests;
