//! Paths as places in a tree: which folder each lies in, and what lies below each.
//!
//! What always holds: the stream's own folder is the empty path; every other path has a parent in
//! the table, and is in the list of what lies in it.

use crate::script::op::{PathId, Paths};

/// A table of paths that knows who lies in whom.
#[derive(Debug, Clone)]
pub struct Names {
    paths: Paths,
    /// By path; the root is its own.
    parents: Vec<PathId>,
    /// By path: paths in it, there or not.
    children: Vec<Vec<PathId>>,
    root: PathId,
}

impl Names {
    /// The paths of a script, with their parents.
    pub fn new(paths: &Paths) -> Names {
        let mut paths = paths.clone();
        let known = paths.len() as u32;
        let root = paths.intern("");
        let mut names = Names { paths, parents: Vec::new(), children: Vec::new(), root };
        (0..known).for_each(|id| names.place(PathId(id)));
        names.place(root);
        names
    }

    /// The number of a path, new or not.
    pub fn intern(&mut self, path: &str) -> PathId {
        let id = self.paths.intern(path);
        self.place(id);
        id
    }

    /// Gives a path its parent, and so on upwards, unless it has one.
    fn place(&mut self, id: PathId) {
        let at = id.0 as usize;
        if self.parents.len() <= at {
            self.parents.resize(at + 1, PathId(u32::MAX));
            self.children.resize(at + 1, Vec::new());
        }
        if self.parents[at] != PathId(u32::MAX) {
            return;
        }
        let above = match self.paths.name(id).rsplit_once('/') {
            Some((above, _)) => above.to_owned(),
            None => String::new(),
        };
        let above = self.paths.intern(&above);
        self.parents[at] = above;
        if id != above {
            self.place(above);
            self.children[above.0 as usize].push(id);
        }
    }

    /// The stream's own folder.
    pub fn root(&self) -> PathId {
        self.root
    }

    /// The folder that a path lies in; the root's is itself.
    pub fn parent(&self, id: PathId) -> PathId {
        self.parents.get(id.0 as usize).copied().unwrap_or(self.root)
    }

    /// The paths that lie in one, whether anything is there or not.
    pub fn children(&self, id: PathId) -> &[PathId] {
        self.children.get(id.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether one path is another, or lies below it.
    pub fn is_within(&self, path: PathId, folder: PathId) -> bool {
        let mut at = path;
        loop {
            match self.parent(at) {
                _ if at == folder => return true,
                above if above == at => return false,
                above => at = above,
            }
        }
    }

    /// The path of `path`, which lies within `from`, once `from` is called `to`.
    pub fn moved(&mut self, path: PathId, from: PathId, to: PathId) -> PathId {
        let rest = self.paths.name(path)[self.paths.name(from).len()..].to_owned();
        let moved = format!("{}{rest}", self.paths.name(to));
        self.intern(&moved)
    }

    /// A path in words.
    pub fn name(&self, id: PathId) -> &str {
        self.paths.name(id)
    }

    /// The last part of a path.
    pub fn last(&self, id: PathId) -> &str {
        let name = self.paths.name(id);
        name.rsplit_once('/').map_or(name, |(_, last)| last)
    }

    /// A path's number, if the table has it.
    pub fn find(&self, path: &str) -> Option<PathId> {
        self.paths.find(path)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there is none; there always is the root.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_parent_and_moves_with_it() {
        let mut paths = Paths::default();
        let deep = paths.intern("a/b/c");
        let mut names = Names::new(&paths);
        let (a, ab) = (names.find("a").expect("a"), names.find("a/b").expect("a/b"));
        assert_eq!((names.parent(deep), names.parent(ab), names.parent(a)), (ab, a, names.root()));
        assert_eq!(names.parent(names.root()), names.root());
        assert_eq!((names.children(a), names.children(names.root())), (&[ab][..], &[a][..]));
        assert!(names.is_within(deep, a) && names.is_within(a, a) && !names.is_within(a, deep));
        let z = names.intern("z");
        let moved = names.moved(deep, a, z);
        assert_eq!((names.name(moved), names.last(moved)), ("z/b/c", "c"));
        assert!(names.is_within(moved, z));
    }
}
