//! Which names a script has at an instant, so that no operation is made that would fail.
//!
//! Light: names, kinds, sizes and links, no contents. Only for making scripts; what survives a crash is
//! judged by a model of its own, so that a mistake here cannot hide one there.

use crate::script::content::FILE_BYTES_MAX;
use crate::script::op::{FallocateHow, Op, PathId, Paths, SyncHow, WORD_BYTES, WriteHow};
use std::collections::{BTreeMap, HashMap};

/// O_DIRECT wants offset and length in blocks of the disk; OpenZFS 2.3 wants whole pages and says
/// EINVAL else (zfs_setup_direct() in module/zfs/zfs_vnops.c).
pub const DIRECT_BYTES: u64 = 4096;

/// What a name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A folder.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A file, by its number.
    File(u64),
}

#[derive(Debug, Clone, Copy)]
struct File {
    size: u64,
    links: u32,
}

/// The names of a stream's folder.
#[derive(Debug, Clone, Default)]
pub struct Names {
    entries: BTreeMap<String, Entry>,
    files: HashMap<u64, File>,
    made: u64,
    bytes: u64,
}

impl Names {
    /// What a path names; the stream's own folder is the empty path.
    pub fn entry(&self, path: &str) -> Option<Entry> {
        match path {
            "" => Some(Entry::Dir),
            path => self.entries.get(path).copied(),
        }
    }

    /// All names, ascending.
    pub fn all(&self) -> impl Iterator<Item = (&str, Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), *entry))
    }

    /// A file's size; 0 for what is none.
    pub fn size(&self, path: &str) -> u64 {
        match self.entry(path) {
            Some(Entry::File(file)) => self.files.get(&file).map_or(0, |file| file.size),
            _ => 0,
        }
    }

    /// The sum of all files' sizes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Why an operation would fail, or mean different things on different file systems.
    pub fn check(&self, op: &Op, paths: &Paths) -> Result<(), &'static str> {
        let name = |id| paths.name(id);
        match *op {
            Op::Mkdir(path) | Op::Create(path) => self.is_free(name(path)),
            Op::Rmdir(path) => self.is_empty_dir(name(path)),
            Op::Write { path, offset, len, how } => {
                self.is_file(name(path))?;
                fits(offset, len)?;
                let aligned = (offset | len).is_multiple_of(DIRECT_BYTES);
                ensure(how != WriteHow::Direct || aligned, "a direct write is of 4096-byte blocks")
            }
            Op::Truncate { path, size } => {
                self.is_file(name(path))?;
                ensure(size <= FILE_BYTES_MAX, "files are at most 128 MiB")?;
                ensure(size.is_multiple_of(WORD_BYTES), "sizes are multiples of 8")
            }
            Op::Fallocate { path, offset, len, how } => {
                self.is_file(name(path))?;
                fits(offset, len)?;
                // ZFS does not grow the file there: zfs_free_range() in module/os/linux/zfs/zfs_znode_os.c.
                let within =
                    how != FallocateHow::ZeroRange || offset + len <= self.size(name(path));
                ensure(within, "zero-range must end within the file")
            }
            Op::Rename { from, to } => self.check_rename(name(from), name(to)),
            Op::Link { from, to } => {
                self.is_file(name(from))?;
                self.is_free(name(to))
            }
            Op::Symlink { target, at } => {
                ensure(!name(target).is_empty(), "a symlink needs a target")?;
                self.is_free(name(at))
            }
            Op::Unlink(path) => match self.entry(name(path)) {
                Some(Entry::Symlink | Entry::File(_)) => Ok(()),
                Some(Entry::Dir) => Err("it is a folder; rmdir removes those"),
                None => Err("there is no such name"),
            },
            Op::Copy { from, to, offset, len } => {
                self.is_file(name(from))?;
                self.is_file(name(to))?;
                fits(offset, len)?;
                let other = self.entry(name(from)) != self.entry(name(to));
                ensure(other, "both names are of one file")?;
                ensure(offset + len <= self.size(name(from)), "it must end within the file")
            }
            Op::Sync { path, how: SyncHow::FsyncDir | SyncHow::Syncfs } => {
                ensure(self.entry(name(path)) == Some(Entry::Dir), "there is no such folder")
            }
            Op::Sync { path, .. } => self.is_file(name(path)),
        }
    }

    /// Takes an operation that passed [`Names::check`].
    pub fn apply(&mut self, op: &Op, paths: &Paths) {
        let name = |id: PathId| paths.name(id).to_owned();
        match *op {
            Op::Mkdir(path) => drop(self.entries.insert(name(path), Entry::Dir)),
            Op::Rmdir(path) | Op::Unlink(path) => self.remove(&name(path)),
            Op::Create(path) => {
                self.made += 1;
                self.files.insert(self.made, File { size: 0, links: 1 });
                self.entries.insert(name(path), Entry::File(self.made));
            }
            Op::Write { path, offset, len, .. }
            | Op::Fallocate {
                path,
                offset,
                len,
                how: FallocateHow::Allocate | FallocateHow::ZeroRange,
            }
            | Op::Copy { to: path, offset, len, .. } => {
                let size = self.size(paths.name(path)).max(offset + len);
                self.resize(paths.name(path), size);
            }
            Op::Truncate { path, size } => self.resize(paths.name(path), size),
            Op::Fallocate { .. } | Op::Sync { .. } => {}
            Op::Rename { from, to } => self.rename(&name(from), &name(to)),
            Op::Link { from, to } => {
                let Some(Entry::File(file)) = self.entry(paths.name(from)) else { return };
                self.files.entry(file).and_modify(|file| file.links += 1);
                self.entries.insert(name(to), Entry::File(file));
            }
            Op::Symlink { at, .. } => drop(self.entries.insert(name(at), Entry::Symlink)),
        }
    }

    fn is_free(&self, path: &str) -> Result<(), &'static str> {
        ensure(self.entry(path).is_none(), "the name is taken")?;
        self.has_parent(path)
    }

    fn has_parent(&self, path: &str) -> Result<(), &'static str> {
        let parent = self.entry(parent(path));
        ensure(parent == Some(Entry::Dir), "the folder that would hold it is not there")
    }

    fn is_file(&self, path: &str) -> Result<(), &'static str> {
        ensure(matches!(self.entry(path), Some(Entry::File(_))), "there is no such file")
    }

    fn is_empty_dir(&self, path: &str) -> Result<(), &'static str> {
        let is_dir = !path.is_empty() && self.entry(path) == Some(Entry::Dir);
        ensure(is_dir, "there is no such folder")?;
        ensure(self.below(path).next().is_none(), "the folder is not empty")
    }

    fn below(&self, folder: &str) -> impl Iterator<Item = &String> {
        let begin = format!("{folder}/");
        let end = begin.clone();
        self.entries.range(begin..).map(|(path, _)| path).take_while(move |p| p.starts_with(&end))
    }

    fn check_rename(&self, from: &str, to: &str) -> Result<(), &'static str> {
        ensure(from != to && !from.is_empty(), "both names are the same")?;
        self.has_parent(to)?;
        match (self.entry(from), self.entry(to)) {
            (None, _) => Err("there is no such name"),
            (Some(Entry::Dir), None) => {
                ensure(!to.starts_with(&format!("{from}/")), "a folder cannot go into itself")
            }
            (Some(Entry::Dir), Some(Entry::Dir)) => {
                ensure(!to.starts_with(&format!("{from}/")), "a folder cannot go into itself")?;
                self.is_empty_dir(to)
            }
            (Some(Entry::Dir), Some(_)) | (Some(_), Some(Entry::Dir)) => {
                Err("one is a folder, the other is none")
            }
            (Some(_), None) => Ok(()),
            // rename(2): "If oldpath and newpath are existing hard links referring to the same file,
            // then rename() does nothing".
            (Some(from), Some(to)) => {
                ensure(from == Entry::Symlink || from != to, "both names are of one file")
            }
        }
    }

    fn remove(&mut self, path: &str) {
        let Some(Entry::File(number)) = self.entries.remove(path) else { return };
        let Some(file) = self.files.get_mut(&number) else { return };
        file.links -= 1;
        if file.links == 0 {
            self.bytes -= file.size;
            self.files.remove(&number);
        }
    }

    fn resize(&mut self, path: &str, size: u64) {
        let Some(Entry::File(number)) = self.entry(path) else { return };
        let Some(file) = self.files.get_mut(&number) else { return };
        self.bytes = self.bytes - file.size + size;
        file.size = size;
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.remove(to);
        let moved: Vec<String> = self.below(from).cloned().collect();
        for old in moved {
            let new = format!("{to}{}", &old[from.len()..]);
            if let Some(entry) = self.entries.remove(&old) {
                self.entries.insert(new, entry);
            }
        }
        if let Some(entry) = self.entries.remove(from) {
            self.entries.insert(to.to_owned(), entry);
        }
    }
}

/// The folder that holds a name.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn fits(offset: u64, len: u64) -> Result<(), &'static str> {
    ensure(len > 0, "0 bytes are none")?;
    ensure((offset | len).is_multiple_of(WORD_BYTES), "offsets and lengths are multiples of 8")?;
    let end = offset.checked_add(len);
    ensure(end.is_some_and(|end| end <= FILE_BYTES_MAX), "files are at most 128 MiB")
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::text::parse_op;

    fn run(lines: &[&str]) -> Result<Names, &'static str> {
        let (mut names, mut paths) = (Names::default(), Paths::default());
        for line in lines {
            let op = parse_op(line, &mut paths).expect("an operation");
            names.check(&op, &paths)?;
            names.apply(&op, &paths);
        }
        Ok(names)
    }

    #[test]
    fn sizes_links_and_moved_folders_are_known() {
        let lines = ["mkdir a", "mkdir a/b", "create a/b/f", "write a/b/f 0 64", "link a/b/f g"];
        let names = run(&lines).expect("all can be done");
        assert_eq!((names.size("g"), names.bytes()), (64, 64));
        let moved = run(&[&lines[..], &["rename a z", "unlink g", "truncate z/b/f 8"]].concat());
        let moved = moved.expect("all can be done");
        assert_eq!(moved.all().map(|(path, _)| path).collect::<Vec<_>>(), ["z", "z/b", "z/b/f"]);
        assert_eq!((moved.size("z/b/f"), moved.bytes()), (8, 8));
    }

    #[test]
    fn what_would_fail_is_refused() {
        for line in [
            "mkdir a",
            "create f",
            "create x/y",
            "unlink a",
            "unlink nosuch",
            "rmdir a",
            "rmdir f",
            "rename f f",
            "rename f g",
            "rename a a/b/c",
            "rename a f",
            "rename f a",
            "link a x",
            "link f g",
            "fsync a",
            "fsync-dir f",
            "copy f g 0 8",
            "copy f e 8 64",
            "write f 0 0",
            "write f 4 8",
            "write f 8 8 direct",
            "truncate f 7",
            "fallocate f 8 64 zero-range",
            "symlink x g",
        ] {
            let before =
                ["mkdir a", "mkdir a/b", "create f", "write f 0 64", "link f g", "create e"];
            run(&before).expect("control");
            assert!(run(&[&before[..], &[line]].concat()).is_err(), "{line}");
        }
    }
}
