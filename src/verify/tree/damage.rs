//! What is wrong with a tree that fits no instant: path, offset and operation of each difference to
//! the instant that comes nearest.

use super::differ::{Difference, differences};
use super::seen::{ODD, SeenEntry, SeenFile, SeenTree, UNREADABLE};
use crate::script::content::Key;
use crate::script::model::content::{Content, ZEROS};
use crate::script::model::effect::Effect;
use crate::script::model::tree::{Entry, Inode, Tree};
use crate::script::op::{Op, PathId, WORD_BYTES};
use crate::units::{Seq, StreamId};
use crate::verify::outcome::{Finding, Outcome};
use crate::workload::plan::Plan;

/// Findings of one stream that are kept.
const FINDINGS_MAX: usize = 64;

/// Whose words odd bytes may be.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    /// The run's plan.
    pub plan: &'a Plan,
    /// The stream whose tree it is.
    pub stream: StreamId,
    /// Its operations.
    pub ops: &'a [Op],
}

/// Findings, as many as are kept.
#[derive(Debug, Clone)]
pub struct Findings {
    stream: StreamId,
    /// What was found.
    pub list: Vec<Finding>,
}

impl Findings {
    /// None yet.
    pub fn of(stream: StreamId) -> Findings {
        Findings { stream, list: Vec::new() }
    }

    /// Adds one.
    pub fn add(&mut self, outcome: Outcome, seq: Option<Seq>, word: u64, text: String) {
        if self.list.len() < FINDINGS_MAX {
            let (stream, location) = (self.stream, word * WORD_BYTES);
            self.list.push(Finding { outcome, stream, seq, location, text });
        }
    }

    /// What no state of any script has.
    pub fn broken(&mut self, tree: &Tree, seen: &SeenTree) {
        for broken in &seen.broken {
            let text = format!("{:?}: {}", tree.names().name(broken.path), broken.text);
            self.add(broken.outcome, None, 0, text);
        }
    }
}

impl Words<'_> {
    /// What words that are not what they should be are: their class, and that in words.
    pub fn class(&self, seen: &SeenFile, piece: &Difference) -> (Outcome, String) {
        let Difference { words, ours, seen: by } = piece;
        let should = match *ours {
            ZEROS => "zeros were to be".to_owned(),
            ours => format!("the words of operation {ours} were to be"),
        };
        match *by {
            ZEROS => (Outcome::Hole, format!("zeros where {should}")),
            UNREADABLE => (Outcome::Unreadable, format!("reading failed where {should}")),
            ODD => self.odd(seen.odd_bytes(words.start), words.start, &should),
            by if !self.writes(by, words.start) => {
                (Outcome::Garbage, format!("words that operation {by} does not write here"))
            }
            by if by < *ours || *ours == ZEROS => {
                (Outcome::Stale, format!("the words of operation {by} where {should}"))
            }
            by => {
                let text = format!("the words of operation {by}, without all before it");
                (Outcome::TornAtTransaction, text)
            }
        }
    }

    /// Whether there is such an operation.
    pub fn is_known(&self, seq: Seq) -> bool {
        seq > ZEROS && seq.0 <= self.ops.len() as u64
    }

    /// Whether an operation writes this word of some file.
    pub fn writes(&self, seq: Seq, place: u64) -> bool {
        let at = (seq.0 as usize).checked_sub(1);
        match at.and_then(|at| self.ops.get(at)) {
            Some(Op::Write { offset, len, .. }) => {
                (offset / WORD_BYTES..(offset + len) / WORD_BYTES).contains(&place)
            }
            _ => false,
        }
    }

    fn odd(&self, bytes: Option<&[u8]>, place: u64, should: &str) -> (Outcome, String) {
        let word = bytes.and_then(|bytes| bytes.first_chunk::<8>());
        let Some(word) = word.map(|word| u64::from_le_bytes(*word)) else {
            return (Outcome::Garbage, format!("a part of a word where {should}"));
        };
        for stream in &self.plan.streams {
            let (seq, at) = Key::new(self.plan.seed, stream.id).decode(word);
            let fits = match stream.id == self.stream {
                true => self.writes(seq, at),
                false => at == place && seq > ZEROS && seq.0 < 1 << 30,
            };
            if fits {
                let of = format!("operation {seq} of stream {} for byte {}", stream.id, at * 8);
                return (Outcome::Misdirected, format!("the words of {of} where {should}"));
            }
        }
        (Outcome::Garbage, format!("no operation's words where {should}"))
    }
}

/// Everything in which `seen` differs from the tree after the first `upto` operations. `tree` is
/// before the first.
pub fn against(mut tree: Tree, words: &Words, seen: &SeenTree, upto: Seq) -> Vec<Finding> {
    let mut found = Findings::of(words.stream);
    let mut touched: Vec<Seq> = Vec::new();
    for (seq, op) in (1..=upto.0).map(Seq).zip(words.ops) {
        let Ok(effect) = tree.run(seq, op) else { break };
        let Effect::Names(changes) = effect else { continue };
        for change in changes {
            let at = change.path.0 as usize;
            touched.resize(touched.len().max(at + 1), ZEROS);
            touched[at] = seq;
        }
    }
    found.broken(&tree, seen);
    let touched = |path: PathId| touched.get(path.0 as usize).copied().filter(|seq| *seq > ZEROS);
    for path in paths(&tree, seen) {
        let (ours, theirs) = (tree.entry(path), seen.entry(path));
        let name = tree.names().name(path);
        if let (Some(Entry::File(file)), Some(SeenEntry::File(at))) = (ours, theirs) {
            let same = SameName { file, at, name };
            file_against(&mut found, &tree, words, seen, same);
            continue;
        }
        if let Some((outcome, text)) = name_against(&tree, ours, theirs, name) {
            found.add(outcome, touched(path), 0, text);
        }
    }
    found.list
}

/// Every path at which either has something.
pub fn paths(tree: &Tree, seen: &SeenTree) -> Vec<PathId> {
    let ours = tree.entries().map(|(path, _)| path);
    let mut paths: Vec<PathId> = ours.chain(seen.entries().map(|(path, _)| path)).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn name_against(
    tree: &Tree,
    ours: Option<Entry>,
    seen: Option<SeenEntry>,
    name: &str,
) -> Option<(Outcome, String)> {
    let what = |entry: Entry| match entry {
        Entry::Dir(_) => "a folder".to_owned(),
        Entry::File(_) => "a file".to_owned(),
        Entry::Symlink(to) => format!("a link to {:?}", tree.names().name(to)),
    };
    match (ours, seen) {
        (None, None) | (_, Some(SeenEntry::Broken)) => None,
        (Some(Entry::Dir(_)), Some(SeenEntry::Dir)) => None,
        (Some(Entry::Symlink(to)), Some(SeenEntry::Symlink(seen))) if to == seen => None,
        (Some(ours), None) => {
            Some((Outcome::Hole, format!("{name:?} is not there, and was to be {}", what(ours))))
        }
        (None, Some(_)) => Some((Outcome::Stale, format!("{name:?} is there, and was not to be"))),
        (Some(ours), Some(_)) => {
            Some((Outcome::Misdirected, format!("{name:?} was to be {}", what(ours))))
        }
    }
}

struct SameName<'a> {
    file: Inode,
    at: u32,
    name: &'a str,
}

fn file_against(found: &mut Findings, tree: &Tree, words: &Words, seen: &SeenTree, same: SameName) {
    let SameName { file, at, name } = same;
    let other = &seen.files[at as usize];
    let empty = Content::default();
    let content = tree.content(file).unwrap_or(&empty);
    for piece in differences(content, other, 0..content.size().max(other.words())) {
        let (outcome, text) = words.class(other, &piece);
        let seq = (piece.ours > ZEROS).then_some(piece.ours);
        let bytes = (piece.words.end - piece.words.start) * WORD_BYTES;
        found.add(outcome, seq, piece.words.start, format!("{name:?}, {bytes} bytes: {text}"));
    }
    if other.size() != Some(content.size()) {
        let (is, was) = (other.file.size, content.size() * WORD_BYTES);
        let outcome = if is < was { Outcome::Hole } else { Outcome::Stale };
        let text = format!("{name:?} has {is} bytes, and was to have {was}");
        found.add(outcome, None, content.size(), text);
    }
    // Names of one file on one side only.
    let crossed = other.names.iter().find(|path| tree.entry(**path) != Some(Entry::File(file)));
    let together = other.names.len() as u32;
    if let Some(path) = crossed {
        let other = tree.names().name(*path);
        let text = format!("{name:?} and {other:?} are names of one file, and were not to be");
        found.add(Outcome::Misdirected, None, 0, text);
    } else if together < tree.links(file) {
        let text = format!("{name:?} and another name were to be names of one file");
        found.add(Outcome::Misdirected, None, 0, text);
    }
}
