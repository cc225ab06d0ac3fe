//! What became of a script's operations where no one instant is promised: each name and each word is
//! at least as new as what an acknowledged sync made durable, and at most as new as what may have
//! run.

use super::damage::{Findings, Words};
use super::differ::{Difference, both};
use super::instants::Instants;
use super::seen::{SeenEntry, SeenFile, SeenTree};
use super::survey::Held;
use crate::script::model::content::ZEROS;
use crate::script::model::promises::Family;
use crate::script::model::tree::{Entry, Inode};
use crate::script::model::versions::{Covered, File, Name, Rename, Slot, Versions};
use crate::script::op::{PathId, WORD_BYTES};
use crate::units::{Seq, StreamId};
use crate::verify::outcome::{Finding, Outcome};
use crate::verify::survey::{Missing, Proofs, Renamed, StreamSurvey, SyncProof};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// The syncs that a flush must stand behind.
pub fn proofs(versions: &Versions) -> Proofs {
    let proof = |covered: &Covered| SyncProof { sync: covered.sync, since: covered.newest };
    Proofs::Syncs(versions.covered.iter().map(proof).collect())
}

/// Every version of a script's names and files, as far as it may have run.
pub fn versions(held: &Held, family: Family) -> Versions {
    let mut versions = Versions::new(&held.script.paths, family);
    versions.run(&held.script.ops, held.said.newest_acked());
    versions
}

/// Holds a tree against its script.
pub fn in_pieces(held: &Held, family: Family) -> StreamSurvey {
    let mut versions = versions(held, family);
    let seen = SeenTree::new(held.found, versions.paths_mut());
    let judged = Judge::new(&versions, &seen, held.words()).judge();
    sum_up(held, &versions, &seen, judged)
}

fn sum_up(held: &Held, versions: &Versions, seen: &SeenTree, judged: Judged) -> StreamSurvey {
    let acked = held.said.newest_acked();
    let missing = judged.owed.iter().next().copied();
    let missing = missing.map_or(Missing::None, Missing::From);
    let missing_count = judged.owed.len() as u64;
    let promised = versions.covered.iter().map(|covered| covered.newest).max();
    let is_ours = |seq: &Seq| seq.0 <= held.script.ops.len() as u64;
    let newest = Some(seen.newest_word()).filter(is_ours).unwrap_or_default();
    // What was promised may have been done away with since: a tree without a word of the load is no
    // witness of it.
    let is_of_load = newest.0 > held.script.fill;
    let promised = promised.filter(|_| judged.owed.is_empty() && is_of_load).unwrap_or_default();
    let newest = newest.max(promised);
    let there = held.changing(Seq(0), newest.min(acked)).count() as u64;
    let mut counts = BTreeMap::new();
    for (outcome, count) in [
        (Outcome::Survived, there.saturating_sub(missing_count)),
        (Outcome::UnackedSurvived, u64::from(newest > acked)),
        (Outcome::LostThoughDurable, missing_count),
    ] {
        if count > 0 {
            counts.insert(outcome, count);
        }
    }
    for finding in &judged.findings {
        *counts.entry(finding.outcome).or_insert(0) += 1;
    }
    StreamSurvey {
        stream: held.stream,
        newest: held.survivor(newest),
        missing,
        missing_at_most: missing,
        missing_count,
        findings: judged.findings,
        counts,
        fill: held.script.fill,
        proofs: proofs(versions),
        instants: Instants::one(newest),
        renamed: judged.renamed,
    }
}

struct Judged {
    findings: Vec<Finding>,
    /// Operations whose effects were promised and are not there.
    owed: BTreeSet<Seq>,
    renamed: Renamed,
}

impl Judged {
    /// How much does not fit.
    fn odd(&self) -> usize {
        self.findings.len() + self.renamed.broken.len()
    }
}

/// What was found of some names, before it is known which files they name.
#[derive(Debug, Clone)]
struct Part {
    findings: Findings,
    owed: BTreeSet<Seq>,
    /// Which files a file that was seen may be, by one of its names, and the operation that gave it
    /// that name for good.
    files: Vec<(u32, Vec<Inode>, Seq)>,
    /// Where names were seen.
    places: Vec<(Slot, PathId)>,
    /// Folders that may be one of so many.
    unclear: Vec<(PathId, usize)>,
    /// Folders that can be no other.
    certain: BTreeSet<Inode>,
}

impl Part {
    fn of(stream: StreamId) -> Part {
        Part {
            findings: Findings::of(stream),
            owed: BTreeSet::new(),
            files: Vec::new(),
            places: Vec::new(),
            unclear: Vec::new(),
            certain: BTreeSet::new(),
        }
    }

    fn add(&mut self, other: Part) {
        for finding in other.findings.list {
            let (outcome, seq) = (finding.outcome, finding.seq);
            self.findings.add(outcome, seq, finding.location / WORD_BYTES, finding.text);
        }
        self.owed.extend(other.owed);
        self.files.extend(other.files);
        self.places.extend(other.places);
        self.unclear.extend(other.unclear);
        self.certain.extend(other.certain);
    }

    /// A promised effect that is not there.
    fn owe(&mut self, outcome: Outcome, seq: Seq, word: u64, text: String) {
        let named = (seq > ZEROS).then_some(seq);
        self.owed.extend(named);
        self.findings.add(outcome, named, word, text);
    }
}

struct Judge<'a> {
    versions: &'a Versions,
    seen: &'a SeenTree<'a>,
    words: Words<'a>,
    /// By folder.
    names: HashMap<Inode, Vec<(&'a str, &'a Name)>>,
    /// Which of the folders that one may be it is taken for.
    taken_for: HashMap<PathId, usize>,
}

/// Other folders are tried so often where something does not fit.
const TRIES: u32 = 64;

impl<'a> Judge<'a> {
    fn new(versions: &'a Versions, seen: &'a SeenTree<'a>, words: Words<'a>) -> Judge<'a> {
        let mut names: HashMap<Inode, Vec<(&str, &Name)>> = HashMap::new();
        for ((folder, last), name) in &versions.names {
            names.entry(*folder).or_default().push((last, name));
        }
        names.values_mut().for_each(|list| list.sort_unstable_by_key(|(last, _)| *last));
        Judge { versions, seen, words, names, taken_for: HashMap::new() }
    }

    /// A folder has nothing of its own that tells which it is, and what lies in it may fit several: those
    /// that leave the fewest findings are taken.
    fn judge(mut self) -> Judged {
        let (mut best, mut unclear) = self.judge_once();
        let mut tries = 0;
        while best.odd() > 0 {
            let mut better = None;
            for (path, count) in &unclear {
                for choice in 0..*count {
                    if tries >= TRIES || better.is_some() {
                        break;
                    }
                    tries += 1;
                    let before = self.taken_for.insert(*path, choice);
                    let (judged, others) = self.judge_once();
                    match judged.odd() < best.odd() {
                        true => better = Some((judged, others)),
                        false => match before {
                            Some(before) => drop(self.taken_for.insert(*path, before)),
                            None => drop(self.taken_for.remove(path)),
                        },
                    }
                }
            }
            match better {
                Some(found) => (best, unclear) = found,
                None => break,
            }
        }
        best
    }

    fn judge_once(&self) -> (Judged, Vec<(PathId, usize)>) {
        let paths = self.versions.paths();
        let mut part = Part::of(self.words.stream);
        for broken in &self.seen.broken {
            let text = format!("{:?}: {}", paths.name(broken.path), broken.text);
            part.findings.add(broken.outcome, None, 0, text);
        }
        part.add(self.folder(self.versions.root(), paths.root()));
        let mut broken = Vec::new();
        let fits = self.resolve(&mut part);
        let checked = self.judge_renames(&part, &fits, &mut broken);
        let renamed = Renamed { checked, broken };
        (Judged { findings: part.findings.list, owed: part.owed, renamed }, part.unclear)
    }

    /// Everything in a folder, if it is `folder`.
    fn folder(&self, folder: Inode, path: PathId) -> Part {
        let (mut part, paths) = (Part::of(self.words.stream), self.versions.paths());
        part.certain.insert(folder);
        let known: &[(&str, &Name)] = self.names.get(&folder).map_or(&[], Vec::as_slice);
        let seen = paths.children(path).iter().copied();
        let seen: BTreeMap<&str, PathId> = seen
            .filter(|path| self.seen.entry(*path).is_some())
            .map(|path| (paths.last(path), path))
            .collect();
        for (last, path) in &seen {
            if known.binary_search_by_key(last, |(last, _)| *last).is_err() {
                let text = format!("{:?} is a name that no operation gives", paths.name(*path));
                part.findings.add(Outcome::Garbage, None, 0, text);
            }
        }
        for (last, name) in known {
            match seen.get(last) {
                Some(child) => {
                    part.places.push(((folder, (*last).to_owned()), *child));
                    self.there(&mut part, *child, name);
                }
                None if name.versions().any(|entry| entry.is_none()) => {}
                None => {
                    let at = paths.name(path);
                    let text = format!("{last:?} in {at:?} is not there, and was made durable");
                    part.owe(Outcome::Hole, name.durable.seq, 0, text);
                }
            }
        }
        part
    }

    /// A name that was seen: it must name what one of its versions did.
    fn there(&self, part: &mut Part, path: PathId, name: &Name) {
        let versions = || name.versions().flatten();
        let seen = self.seen.entry(path);
        match seen {
            None | Some(SeenEntry::Broken) => return,
            Some(SeenEntry::Symlink(to)) if versions().any(|is| is == Entry::Symlink(to)) => return,
            Some(SeenEntry::Symlink(_)) => {}
            Some(SeenEntry::Dir) => {
                let folders = versions().filter_map(|entry| match entry {
                    Entry::Dir(folder) => Some(folder),
                    _ => None,
                });
                let folders: BTreeSet<Inode> = folders.collect();
                let count = folders.len();
                let mut parts: Vec<Part> =
                    folders.into_iter().map(|folder| self.folder(folder, path)).collect();
                let best = (0..count).min_by_key(|at| self.cost(&parts[*at]));
                let best = self.taken_for.get(&path).copied().filter(|at| *at < count).or(best);
                if count > 1 {
                    part.unclear.push((path, count));
                    parts.iter_mut().for_each(|part| part.certain.clear());
                }
                if let Some(best) = best {
                    return part.add(parts.swap_remove(best));
                }
            }
            Some(SeenEntry::File(at)) => {
                let files = versions().filter_map(|entry| match entry {
                    Entry::File(file) => Some(file),
                    _ => None,
                });
                let files: BTreeSet<Inode> = files.collect();
                if !files.is_empty() {
                    let files = files.into_iter().collect();
                    return part.files.push((at, files, name.durable.seq));
                }
            }
        }
        let text = format!(
            "{:?} is there as something that it was not since it was made durable",
            self.versions.paths().name(path)
        );
        part.owe(Outcome::Stale, name.durable.seq, 0, text);
    }

    /// How much does not fit: findings, and files that are none of those that they may be.
    fn cost(&self, part: &Part) -> usize {
        let fits = |at: &u32, file: &Inode| {
            self.file(*file, &self.seen.files[*at as usize]).findings.list.is_empty()
        };
        let odd =
            part.files.iter().filter(|(at, files, _)| !files.iter().any(|file| fits(at, file)));
        part.findings.list.len() + odd.count()
    }

    /// Which files each one that was seen may be; judges its contents. By file that was seen.
    fn resolve(&self, part: &mut Part) -> BTreeMap<u32, Vec<Inode>> {
        let mut may_be: BTreeMap<u32, (Vec<Inode>, Seq)> = BTreeMap::new();
        for (at, files, seq) in std::mem::take(&mut part.files) {
            match may_be.get_mut(&at) {
                Some((known, _)) => known.retain(|file| files.contains(file)),
                None => drop(may_be.insert(at, (files, seq))),
            }
        }
        let mut fits: BTreeMap<u32, Vec<Inode>> = BTreeMap::new();
        for (at, (files, named)) in may_be {
            let seen = &self.seen.files[at as usize];
            let name = self.versions.paths().name(seen.names[0]);
            let parts: Vec<(Inode, Part)> =
                files.iter().map(|file| (*file, self.file(*file, seen))).collect();
            let whole = parts.iter().filter(|(_, part)| part.findings.list.is_empty());
            let whole: Vec<Inode> = whole.map(|(file, _)| *file).collect();
            let best = parts.into_iter().min_by_key(|(_, part)| part.findings.list.len());
            match best {
                _ if !whole.is_empty() => drop(fits.insert(at, whole)),
                Some((file, best)) if self.shares_a_word(file, seen) => part.add(best),
                Some(_) => {
                    let text = format!("{name:?} is another file than since it was made durable");
                    part.owe(Outcome::Stale, named, 0, text);
                }
                None => {
                    let text = format!("{name:?} and its other names never named one file");
                    part.findings.add(Outcome::Misdirected, None, 0, text);
                }
            }
        }
        let mut taken = HashMap::new();
        for at in fits.keys() {
            if !take(*at, &fits, &mut taken, &mut BTreeSet::new()) {
                let name = self.versions.paths().name(self.seen.files[*at as usize].names[0]);
                let text = format!("{name:?} is a second file where there was one");
                part.findings.add(Outcome::Misdirected, None, 0, text);
            }
        }
        fits
    }

    /// Whether a file that was seen holds a word of `file`, or none of any other: then it is that one,
    /// damaged.
    fn shares_a_word(&self, file: Inode, seen: &SeenFile) -> bool {
        let Some(file) = self.versions.files.get(&file) else { return true };
        let all = 0..seen.words();
        let is_word = |by: Seq| by != ZEROS && self.words.is_known(by);
        let words = || both(file.durable.pieces(all.clone()), seen.pieces(all.clone()));
        let shared = |words: &Range<u64>, ours: Seq, by: Seq| {
            let touches = |range: &Range<u64>| range.start < words.end && words.start < range.end;
            ours == by || file.since.iter().any(|(range, is)| *is == by && touches(range))
        };
        let mut known = words().filter(|(_, _, by)| is_word(*by)).peekable();
        known.peek().is_none() || known.any(|(words, ours, by)| shared(&words, ours, by))
    }

    /// The words and the size of a file, if it is `file`.
    fn file(&self, file: Inode, seen: &SeenFile) -> Part {
        let mut part = Part::of(self.words.stream);
        let never = File::default();
        let file = self.versions.files.get(&file).unwrap_or(&never);
        let name = self.versions.paths().name(seen.names[0]);
        let mut since: HashMap<Seq, Vec<Range<u64>>> = HashMap::new();
        for (words, by) in &file.since {
            since.entry(*by).or_default().push(words.clone());
        }
        since.values_mut().for_each(|list| list.sort_unstable_by_key(|words| words.start));
        let all = 0..seen.words();
        for (words, ours, by) in both(file.durable.pieces(all.clone()), seen.pieces(all)) {
            let later = since.get(&by).is_some_and(|list| covers(list, &words));
            if ours == by || later {
                continue;
            }
            let piece = Difference { words, ours, seen: by };
            let (outcome, text) = match self.words.class(seen, &piece) {
                (Outcome::TornAtTransaction, text) => (Outcome::Misdirected, text),
                other => other,
            };
            let text = format!("{name:?}: {text}");
            part.owe(outcome, ours, piece.words.start, text);
        }
        let (least, most) = file.sizes;
        match seen.size() {
            Some(size) if (least..=most).contains(&size) => {}
            _ => {
                let (is, least, most) = (seen.file.size, least * WORD_BYTES, most * WORD_BYTES);
                let text = format!("{name:?} has {is} bytes, and was to have {least} to {most}");
                match is < least {
                    true => part.owe(Outcome::Hole, file.synced, is / WORD_BYTES, text),
                    false => part.owe(Outcome::Stale, file.synced, most / WORD_BYTES, text),
                }
            }
        }
        part
    }

    /// A file that was durable as a whole under its old name is so under that or the new one, never
    /// under both or neither. Returns how many renames could be looked at: those that nothing later
    /// did away with, in folders that can be no other.
    fn judge_renames(
        &self,
        part: &Part,
        fits: &BTreeMap<u32, Vec<Inode>>,
        broken: &mut Vec<Finding>,
    ) -> u64 {
        let mut checked = 0;
        let at: HashMap<&Slot, PathId> =
            part.places.iter().map(|(slot, path)| (slot, *path)).collect();
        let seen = |slot: &Slot| match at.get(slot).and_then(|at| self.seen.entry(*at)) {
            Some(SeenEntry::File(seen)) => Some(seen),
            _ => None,
        };
        for Rename { seq, file, from, to } in &self.versions.renames {
            let newest = |slot| self.versions.names.get(slot).map(|name: &Name| name.last().seq);
            let is_last = newest(from) == Some(*seq) && newest(to) == Some(*seq);
            let are_certain = [from, to].iter().all(|slot| part.certain.contains(&slot.0));
            if !is_last || !are_certain {
                continue;
            }
            checked += 1;
            // A file that was seen may be one of several that look alike.
            let may_be =
                |slot| seen(slot).map(|seen| fits.get(&seen).map(|all| all.contains(file)));
            let text = match (may_be(from), may_be(to)) {
                // What is whole is one of the two, or the version before.
                (Some(Some(true)), _) if seen(from) != seen(to) => continue,
                (None, Some(Some(true))) => continue,
                (Some(Some(true)), _) => "is there under its old name and its new one",
                (_, Some(None)) => "is in part what was to be whole",
                (None, _) => "is there under neither its old name nor its new one",
                _ => "is not whole under its old name",
            };
            let text = format!("the file renamed from {:?} to {:?} {text}", from.1, to.1);
            let (stream, location, seq) = (self.words.stream, 0, Some(*seq));
            broken.push(Finding { outcome: Outcome::Hole, stream, seq, location, text });
        }
        checked
    }
}

/// Gives a file that was seen one of those that it fits, none of them twice: whoever has it already
/// takes another one, if it can.
fn take(
    at: u32,
    fits: &BTreeMap<u32, Vec<Inode>>,
    taken: &mut HashMap<Inode, u32>,
    asked: &mut BTreeSet<Inode>,
) -> bool {
    for file in fits.get(&at).into_iter().flatten() {
        if !asked.insert(*file) {
            continue;
        }
        let free = match taken.get(file).copied() {
            None => true,
            Some(other) => take(other, fits, taken, asked),
        };
        if free {
            taken.insert(*file, at);
            return true;
        }
    }
    false
}

/// Whether ranges, ascending by their begin, cover one.
fn covers(list: &[Range<u64>], words: &Range<u64>) -> bool {
    let mut at = words.start;
    for range in list {
        if at >= words.end || range.start > at {
            break;
        }
        at = at.max(range.end);
    }
    at >= words.end
}

#[cfg(test)]
mod tests;
