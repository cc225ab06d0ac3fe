//! Every short sequence of operations on a fixed small tree, each in a folder of its own, with every
//! choice of syncs between and behind (as ACE does it: Mohan et al., OSDI 2018).
//!
//! The tree is `A/foo` (8 KiB), `B/foo` (4 KiB) and the free names `A/bar`, `B/bar`, made and forced to
//! disk in `sNNNN/` as part of the script. The bounds: the operations of [`STEPS`], each on one fixed
//! range; between two of them nothing, an fsync of what was touched, or a syncfs; behind the last an
//! fsync of it, of its folder, or a syncfs. Sequences in which an operation would fail are left out.
//! That makes 84 sequences of one operation and 6,116 of two (a test counts them). What always holds:
//! each sequence comes once, and the script ends.

use super::names::{Names, parent};
use crate::script::op::{Op, Paths, SyncHow};
use crate::script::spec::Generator;
use crate::script::text::parse_op;
use std::collections::VecDeque;

/// Makes the tree that each sequence begins with.
const TREE: [&str; 7] = [
    "mkdir .",
    "mkdir A",
    "mkdir B",
    "create A/foo",
    "write A/foo 0 8192",
    "create B/foo",
    "write B/foo 0 4096",
];

/// The operations that sequences are made of.
pub const STEPS: [&str; 33] = [
    "create A/foo",
    "create A/bar",
    "create B/bar",
    "mkdir A/C",
    "write A/foo 0 4096",
    "write A/foo 8192 4096",
    "write A/foo 16384 4096",
    "write A/foo 0 4096 dsync",
    "write A/foo 8192 4096 sync",
    "write A/foo 0 4096 direct",
    "write A/foo 4096 4096 mapped",
    "write A/bar 0 4096",
    "truncate A/foo 0",
    "truncate A/foo 2504",
    "truncate A/foo 16384",
    "fallocate A/foo 8192 8192 allocate",
    "fallocate A/foo 8192 8192 keep-size",
    "fallocate A/foo 4096 4096 punch-hole",
    "fallocate A/foo 0 4096 zero-range",
    "rename A/foo A/bar",
    "rename A/bar A/foo",
    "rename A/foo B/foo",
    "rename A/foo B/bar",
    "rename B/foo A/foo",
    "rename B A/C",
    "link A/foo A/bar",
    "link A/foo B/bar",
    "symlink foo A/bar",
    "unlink A/foo",
    "unlink A/bar",
    "unlink B/foo",
    "copy B/foo A/foo 0 4096",
    "copy A/foo B/foo 0 8192",
];

/// What is synced after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Choice {
    Nothing,
    Touched,
    Folder,
    All,
}

const BETWEEN: [Choice; 3] = [Choice::Nothing, Choice::Touched, Choice::All];
const LAST: [Choice; 3] = [Choice::Touched, Choice::Folder, Choice::All];

/// All sequences of up to so many operations.
#[derive(Debug)]
pub struct Exhaustive {
    paths: Paths,
    /// Which sequences are still to come: the steps and syncs of each, as one number.
    next: u64,
    end: u64,
    /// Sequences that came.
    made: u64,
    due: VecDeque<Op>,
}

impl Exhaustive {
    /// 1 or 2 operations a sequence; what is beyond is taken for 2.
    pub fn new(operations: u32) -> Exhaustive {
        let (one, two) = (ones(), ones() * STEPS.len() as u64 * BETWEEN.len() as u64);
        let end = if operations <= 1 { one } else { one + two };
        Exhaustive { paths: Paths::default(), next: 0, end, made: 0, due: VecDeque::new() }
    }

    /// The sequence of a number: its steps, each with the sync behind it.
    fn sequence(number: u64) -> Vec<(&'static str, Choice)> {
        let mut rest = number.checked_sub(ones()).unwrap_or(number);
        let mut digit = |base: usize| {
            let digit = rest % base as u64;
            rest /= base as u64;
            digit as usize
        };
        let last = (STEPS[digit(STEPS.len())], LAST[digit(LAST.len())]);
        match number < ones() {
            true => vec![last],
            false => vec![(STEPS[digit(STEPS.len())], BETWEEN[digit(BETWEEN.len())]), last],
        }
    }

    /// A sequence in its own folder; `None` if an operation of it would fail.
    fn operations(&mut self, number: u64) -> Option<Vec<Op>> {
        let folder = format!("s{:04}", self.made);
        let mut names = Names::default();
        let mut ops = Vec::new();
        let mut take = |op: Op, paths: &Paths| {
            names.check(&op, paths).ok()?;
            names.apply(&op, paths);
            ops.push(op);
            Some(names.clone())
        };
        for line in TREE {
            take(self.read(line, &folder)?, &self.paths)?;
        }
        let all = Op::Sync { path: self.paths.intern(""), how: SyncHow::Syncfs };
        take(all, &self.paths)?;
        for (step, choice) in Exhaustive::sequence(number) {
            let op = self.read(step, &folder)?;
            let after = take(op, &self.paths)?;
            if choice != Choice::Nothing {
                let sync = self.sync(&op, choice, &after)?;
                take(sync, &self.paths)?;
            }
        }
        Some(ops)
    }

    /// A line of the tables, below a folder.
    fn read(&mut self, line: &str, folder: &str) -> Option<Op> {
        let below = line.split(' ').enumerate().map(|(at, word)| match word {
            "." => folder.to_owned(),
            // A symlink's target is what it says, wherever the link is.
            _ if line.starts_with("symlink") && at == 1 => word.to_owned(),
            _ if word.starts_with(['A', 'B']) => format!("{folder}/{word}"),
            word => word.to_owned(),
        });
        let line: Vec<String> = below.collect();
        parse_op(&line.join(" "), &mut self.paths).ok()
    }

    /// The sync of a choice; `None` where it would be the same as another's or has nothing to sync.
    fn sync(&mut self, op: &Op, choice: Choice, names: &Names) -> Option<Op> {
        let touched = match *op {
            Op::Mkdir(path) | Op::Rmdir(path) | Op::Create(path) | Op::Unlink(path) => path,
            Op::Write { path, .. } | Op::Truncate { path, .. } => path,
            Op::Fallocate { path, .. } | Op::Sync { path, .. } => path,
            Op::Rename { to, .. } | Op::Link { to, .. } | Op::Copy { to, .. } => to,
            Op::Symlink { at, .. } => at,
        };
        let folder = parent(self.paths.name(touched)).to_owned();
        let folder = self.paths.intern(&folder);
        let sync = |path, how| Some(Op::Sync { path, how });
        match choice {
            Choice::Nothing => None,
            Choice::All => sync(self.paths.intern(""), SyncHow::Syncfs),
            Choice::Folder => sync(folder, SyncHow::FsyncDir),
            Choice::Touched => {
                let fsyncs = [SyncHow::Fsync, SyncHow::FsyncDir];
                let ops = fsyncs.map(|how| Op::Sync { path: touched, how });
                ops.into_iter().find(|op| names.check(op, &self.paths).is_ok())
            }
        }
    }
}

/// Sequences of one operation, before those that would fail are left out.
fn ones() -> u64 {
    (STEPS.len() * LAST.len()) as u64
}

impl Generator for Exhaustive {
    fn next_op(&mut self) -> Option<Op> {
        while self.due.is_empty() && self.next < self.end {
            let ops = self.operations(self.next);
            self.next += 1;
            if let Some(ops) = ops {
                self.made += 1;
                self.due.extend(ops);
            }
        }
        self.due.pop_front()
    }

    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn fill(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::spec::{Script, ScriptSpec};
    use crate::script::text::text;
    use crate::units::StreamId;
    use std::collections::HashSet;

    fn script(operations: u32) -> Script {
        ScriptSpec::Exhaustive { operations }.script(7, StreamId(1), 1_000_000)
    }

    /// The sequences as text, without their folders' names.
    fn sequences(script: &Script) -> Vec<Vec<String>> {
        let mut all: Vec<Vec<String>> = Vec::new();
        for op in &script.ops {
            let line = text(op, &script.paths);
            let folder = format!("s{:04}", all.len());
            if line == format!("mkdir {folder}") {
                all.push(Vec::new());
            }
            let folder = format!("s{:04}", all.len() - 1);
            all.last_mut().expect("each begins with its folder").push(line.replace(&folder, "S"));
        }
        all
    }

    #[test]
    fn each_sequence_comes_once_and_ends_in_a_sync() {
        for (operations, count) in [(1, 84), (2, 84 + 6_116)] {
            let script = script(operations);
            let all = sequences(&script);
            assert_eq!(all.len(), count);
            assert_eq!(all.iter().collect::<HashSet<_>>().len(), count);
            for sequence in &all {
                assert_eq!(sequence[TREE.len()], "syncfs");
                assert!(sequence.last().is_some_and(|last| last.contains("sync")));
            }
        }
    }

    #[test]
    fn no_operation_would_fail_and_every_step_is_tried() {
        let script = script(2);
        let (mut names, mut seen) = (Names::default(), HashSet::new());
        for op in &script.ops {
            assert_eq!(names.check(op, &script.paths), Ok(()), "{}", text(op, &script.paths));
            names.apply(op, &script.paths);
        }
        for sequence in sequences(&script) {
            seen.extend(sequence.iter().map(|line| line.replace("S/", "")));
        }
        let missing: Vec<_> = STEPS.iter().filter(|step| !seen.contains(**step)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
