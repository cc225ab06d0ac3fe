//! What was read back, in the form that an oracle walks: by path and by file.

use crate::script::model::content::ZEROS;
use crate::script::model::names::Names;
use crate::script::op::{PathId, WORD_BYTES};
use crate::script::tree::{FileSeen, Node, NodeKind, ObservedTree, Run, RunWhat};
use crate::units::Seq;
use crate::verify::outcome::Outcome;
use std::collections::HashMap;
use std::ops::Range;

/// A word that is no operation's: no model ever has it.
pub const ODD: Seq = Seq(u64::MAX);
/// A word that could not be read.
pub const UNREADABLE: Seq = Seq(u64::MAX - 1);

/// What a path was seen to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenEntry {
    /// A folder.
    Dir,
    /// A symbolic link to this path.
    Symlink(PathId),
    /// A file, by its place in [`SeenTree::files`].
    File(u32),
    /// Something that no script makes, or that could not be read.
    Broken,
}

/// A file that was seen.
#[derive(Debug, Clone)]
pub struct SeenFile<'a> {
    /// As it was read under its first name.
    pub file: &'a FileSeen,
    /// Its names.
    pub names: Vec<PathId>,
    /// Words behind each run, and what the run's words are.
    runs: Vec<(u64, Seq)>,
}

/// Something that no state of any script has.
#[derive(Debug, Clone)]
pub struct Broken {
    /// Where.
    pub path: PathId,
    /// Its class.
    pub outcome: Outcome,
    /// In words.
    pub text: String,
}

/// A whole tree.
#[derive(Debug, Clone, Default)]
pub struct SeenTree<'a> {
    /// By path.
    at: Vec<Option<SeenEntry>>,
    /// The files.
    pub files: Vec<SeenFile<'a>>,
    /// What no state has.
    pub broken: Vec<Broken>,
}

impl<'a> SeenTree<'a> {
    /// Takes an observation; `names` learns its paths.
    pub fn new(found: &'a ObservedTree, names: &mut Names) -> SeenTree<'a> {
        let mut seen = SeenTree::default();
        let root = names.root();
        if found.exists {
            seen.put(root, SeenEntry::Dir);
        } else {
            let text = "the stream's own folder is not there".to_owned();
            seen.broken.push(Broken { path: root, outcome: Outcome::Hole, text });
        }
        let mut files = HashMap::new();
        for node in &found.nodes {
            let path = names.intern(&node.path);
            let entry = seen.entry_of(node, path, names, &mut files);
            seen.put(path, entry);
        }
        for file in &seen.files {
            let told = file.file.runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.len));
            if told != file.file.size {
                let text = format!("{told} of its {} bytes were told", file.file.size);
                let path = file.names[0];
                seen.broken.push(Broken { path, outcome: Outcome::Unreadable, text });
            }
            if file.file.nlink != file.names.len() as u64 {
                let text = format!(
                    "its link count is {}, and {} of its names are there",
                    file.file.nlink,
                    file.names.len()
                );
                let path = file.names[0];
                seen.broken.push(Broken { path, outcome: Outcome::Garbage, text });
            }
        }
        seen
    }

    fn entry_of(
        &mut self,
        node: &'a Node,
        path: PathId,
        names: &mut Names,
        files: &mut HashMap<u64, u32>,
    ) -> SeenEntry {
        let (outcome, text) = match &node.kind {
            NodeKind::Dir => return SeenEntry::Dir,
            NodeKind::Symlink(target) => return SeenEntry::Symlink(names.intern(target)),
            NodeKind::File(file) => return self.file(file, path, files),
            NodeKind::Other(mode) => {
                (Outcome::Garbage, format!("no script makes a file of mode {mode:#o}"))
            }
            NodeKind::Unreadable { call, errno } => {
                (Outcome::Unreadable, format!("{call:?} failed with errno {errno}"))
            }
        };
        self.broken.push(Broken { path, outcome, text });
        SeenEntry::Broken
    }

    fn file(
        &mut self,
        file: &'a FileSeen,
        path: PathId,
        files: &mut HashMap<u64, u32>,
    ) -> SeenEntry {
        let at = *files.entry(file.ino).or_insert(self.files.len() as u32);
        match self.files.get_mut(at as usize) {
            Some(known) => {
                if known.file != file {
                    let text = "two names of one file show different contents".to_owned();
                    self.broken.push(Broken { path, outcome: Outcome::Garbage, text });
                }
                known.names.push(path);
            }
            None => self.files.push(SeenFile { file, names: vec![path], runs: runs(&file.runs) }),
        }
        SeenEntry::File(at)
    }

    fn put(&mut self, path: PathId, entry: SeenEntry) {
        let at = path.0 as usize;
        if self.at.len() <= at {
            self.at.resize(at + 1, None);
        }
        self.at[at] = Some(entry);
    }

    /// What a path names.
    pub fn entry(&self, path: PathId) -> Option<SeenEntry> {
        self.at.get(path.0 as usize).copied().flatten()
    }

    /// Every path at which something was seen.
    pub fn entries(&self) -> impl Iterator<Item = (PathId, SeenEntry)> + '_ {
        let all = (0..).zip(&self.at);
        all.filter_map(|(path, entry)| entry.map(|entry| (PathId(path), entry)))
    }

    /// The newest operation whose words were seen.
    pub fn newest_word(&self) -> Seq {
        let words = self.files.iter().flat_map(|file| &file.runs).map(|(_, by)| *by);
        words.filter(|by| *by < UNREADABLE).max().unwrap_or(ZEROS)
    }
}

fn runs(runs: &[Run]) -> Vec<(u64, Seq)> {
    let mut bytes = 0u64;
    let run = |run: &Run| {
        bytes = bytes.saturating_add(run.len);
        let by = match &run.what {
            RunWhat::Zeros => ZEROS,
            RunWhat::Of(seq) if *seq > ZEROS && *seq < UNREADABLE => *seq,
            RunWhat::Of(_) | RunWhat::Odd(_) => ODD,
            RunWhat::Unreadable(_) => UNREADABLE,
        };
        (bytes.div_ceil(WORD_BYTES), by)
    };
    runs.iter().map(run).collect()
}

impl SeenFile<'_> {
    /// Words in it, an odd last one included.
    pub fn words(&self) -> u64 {
        self.runs.last().map_or(0, |(end, _)| *end)
    }

    /// Its size in words, if it has whole words.
    pub fn size(&self) -> Option<u64> {
        self.file.size.is_multiple_of(WORD_BYTES).then_some(self.file.size / WORD_BYTES)
    }

    /// What these words are, in order and without gaps; zeros behind the end.
    pub fn pieces(&self, words: Range<u64>) -> impl Iterator<Item = (Range<u64>, Seq)> + '_ {
        let mut run = self.runs.partition_point(|(end, _)| *end <= words.start);
        let mut at = words.start;
        std::iter::from_fn(move || {
            if at >= words.end {
                return None;
            }
            let (end, by) = self.runs.get(run).copied().unwrap_or((u64::MAX, ZEROS));
            run += 1;
            let piece = at..end.min(words.end);
            at = piece.end;
            Some((piece, by))
        })
    }

    /// The bytes of the odd run that holds a word, from that word on.
    pub fn odd_bytes(&self, place: u64) -> Option<&[u8]> {
        let at = self.runs.partition_point(|(end, _)| *end <= place);
        let start = at.checked_sub(1).map_or(0, |before| self.runs[before].0);
        match &self.file.runs.get(at)?.what {
            RunWhat::Odd(bytes) => bytes.get(((place - start) * WORD_BYTES) as usize..),
            _ => None,
        }
    }
}
