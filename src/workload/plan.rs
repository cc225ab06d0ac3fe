//! The plan of a workload: what each stream writes where, from the seed alone.
//!
//! Every operation's location and body follow from (seed, stream, sequence) without a state, so the
//! lab can say what any operation, acked or not, must have written.

use crate::script::spec::ScriptSpec;
use crate::units::{RunId, Seq, StreamId};
use serde::{Deserialize, Serialize};

/// Bytes of one record.
pub const RECORD_BYTES: u64 = 4096;

/// A whole workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Marks every record of this run.
    pub run: RunId,
    /// Everything random in the workload follows from it.
    pub seed: u64,
    /// Bodies made and hashed before the load.
    pub bodies: u32,
    /// The streams.
    pub streams: Vec<StreamPlan>,
}

/// One stream: one thread, one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPlan {
    /// Its number.
    pub id: StreamId,
    /// The dataset it writes to, as the scenario names it.
    pub dataset: String,
    /// Its file in the guest.
    pub path: String,
    /// Where its operations go.
    pub pattern: Pattern,
    /// Operations a second, or as fast as it goes.
    pub pace_hz: Option<u32>,
    /// Messages that may be held back and sent together; 1 sends each at once.
    pub batch: u32,
    /// A planted fault of the writer.
    pub fault: Option<WriterFault>,
}

/// What a stream's operations are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Pattern {
    /// Operation n goes behind operation n - 1.
    Append,
    /// The first `slots` operations fill the file before the load; each later one overwrites a
    /// slot that the seed picks.
    Overwrite {
        /// Records in the file.
        slots: u32,
    },
    /// Each operation writes a new file of one record and renames it over the stream's. The first
    /// does so before the load.
    Replace,
    /// Not records but system calls of every kind, in a folder of the stream's own.
    Script(ScriptSpec),
    /// Transactions of a SQLite database in a folder of the stream's own.
    Sqlite(SqliteSpec),
    /// A program of the user's own, and another that says what survived.
    Exec(ExecSpec),
}

/// How a SQLite database is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqliteSpec {
    /// `PRAGMA journal_mode`.
    pub journal: Journal,
    /// `PRAGMA synchronous`.
    pub synchronous: Synchronous,
}

/// SQLite's journal modes that are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Journal {
    /// A write-ahead log.
    Wal,
    /// A rollback journal that is deleted at each commit.
    Delete,
}

/// SQLite's degrees of durability that are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Synchronous {
    /// As full, and the folder is forced to disk after a rollback journal was deleted.
    Extra,
    /// With a write-ahead log, a commit is durable before it returns. With a rollback journal the
    /// last one is durable only when the folder is, which nothing forces.
    Full,
    /// With a write-ahead log, a commit may be lost; the database stays whole.
    Normal,
}

impl Journal {
    /// The pragma's value.
    pub fn name(self) -> &'static str {
        match self {
            Journal::Wal => "wal",
            Journal::Delete => "delete",
        }
    }
}

impl Synchronous {
    /// The pragma's value.
    pub fn name(self) -> &'static str {
        match self {
            Synchronous::Extra => "extra",
            Synchronous::Full => "full",
            Synchronous::Normal => "normal",
        }
    }
}

/// A program that writes, and one that reads back: docs/exec.md is their contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Runs before the load, to its end.
    pub set_up: Vec<String>,
    /// The load: prints `intent ID`, `done ID`, `ack ID`, one a line.
    pub run: Vec<String>,
    /// After the cut: prints `check NAME ok|failed WORDS`, `survived ID` and `broken ID WORDS`.
    pub survivors: Vec<String>,
    /// Whether the commands run in the fuller guest root.
    pub full_root: bool,
}

/// Faults that a writer can have; planted to see whether the verdicts notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriterFault {
    /// It acknowledges before the call that makes the operation durable.
    AckBeforeFsync,
    /// It completes nothing for a second after each 150th operation.
    Stall,
    /// It renames a new file over the old one without forcing the new file's bytes to disk.
    RenameWithoutFsync,
    /// It does not force the folder to disk after the rename.
    NoDirectoryFsync,
    /// It acknowledges a script's syncs without carrying them out.
    SkipSync,
    /// It tells SQLite to force nothing to disk.
    NoSync,
}

impl WriterFault {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            WriterFault::AckBeforeFsync => "ack-before-fsync",
            WriterFault::Stall => "stall",
            WriterFault::RenameWithoutFsync => "rename-without-fsync",
            WriterFault::NoDirectoryFsync => "no-directory-fsync",
            WriterFault::SkipSync => "skip-sync",
            WriterFault::NoSync => "no-sync",
        }
    }

    /// Whether a stream of this pattern has the step that the fault is in.
    pub fn fits(self, pattern: &Pattern) -> bool {
        match self {
            WriterFault::Stall => !pattern.is_of_rows(),
            WriterFault::AckBeforeFsync => pattern.is_of_records(),
            WriterFault::SkipSync => pattern.is_of_scripts(),
            WriterFault::NoSync => matches!(pattern, Pattern::Sqlite(_)),
            WriterFault::RenameWithoutFsync | WriterFault::NoDirectoryFsync => {
                *pattern == Pattern::Replace
            }
        }
    }
}

impl Plan {
    /// The datasets whose programs run in the fuller guest root, each once.
    pub fn datasets_in_full_root(&self) -> std::collections::BTreeSet<&str> {
        let in_it = |stream: &&StreamPlan| match &stream.pattern {
            Pattern::Exec(exec) => exec.full_root,
            _ => false,
        };
        self.streams.iter().filter(in_it).map(|stream| stream.dataset.as_str()).collect()
    }
}

impl Pattern {
    /// Whether its operations are records in one file.
    pub fn is_of_records(&self) -> bool {
        matches!(self, Pattern::Append | Pattern::Overwrite { .. } | Pattern::Replace)
    }

    /// Whether its operations are a script's.
    pub fn is_of_scripts(&self) -> bool {
        matches!(self, Pattern::Script(_))
    }

    /// Whether its operations are transactions, or a program's own.
    pub fn is_of_rows(&self) -> bool {
        matches!(self, Pattern::Sqlite(_) | Pattern::Exec(_))
    }

    /// Whether its event numbers and stamps are taken where its calls are made. A program's are taken
    /// when its words are read, so they put nothing of other streams before or after it.
    pub fn tells_order(&self) -> bool {
        !matches!(self, Pattern::Exec(_))
    }
}

impl StreamPlan {
    /// Operations that belong to the set-up: they fill the file before the load.
    pub fn fill(&self) -> u64 {
        match &self.pattern {
            Pattern::Append => 0,
            Pattern::Overwrite { slots } => u64::from(*slots),
            Pattern::Replace | Pattern::Sqlite(_) => 1,
            Pattern::Script(script) => script.fill(),
            Pattern::Exec(_) => 0,
        }
    }

    /// The slot (record-sized place in the file, from 0) that an operation writes.
    pub fn slot(&self, seed: u64, seq: Seq) -> u64 {
        match self.pattern {
            Pattern::Append => seq.0 - 1,
            Pattern::Overwrite { slots } if seq.0 <= u64::from(slots) => seq.0 - 1,
            Pattern::Overwrite { slots } => {
                mix(seed, self.id, seq, Purpose::Slot) % u64::from(slots.max(1))
            }
            Pattern::Replace | Pattern::Script(_) | Pattern::Sqlite(_) | Pattern::Exec(_) => 0,
        }
    }

    /// Byte offset in the file of an operation's record.
    pub fn location(&self, seed: u64, seq: Seq) -> u64 {
        self.slot(seed, seq) * RECORD_BYTES
    }

    /// Which of the plan's bodies an operation writes.
    pub fn body(&self, plan: &Plan, seq: Seq) -> u32 {
        (mix(plan.seed, self.id, seq, Purpose::Body) % u64::from(plan.bodies.max(1))) as u32
    }
}

enum Purpose {
    Slot = 1,
    Body = 2,
}

/// SplitMix64 over the operation's coordinates: random access, no state.
fn mix(seed: u64, stream: StreamId, seq: Seq, purpose: Purpose) -> u64 {
    let lane = (u64::from(stream.0) << 8) | purpose as u64;
    splitmix64(splitmix64(splitmix64(seed).wrapping_add(lane)).wrapping_add(seq.0))
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014): a number for a state.
pub fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pattern: Pattern) -> StreamPlan {
        StreamPlan {
            id: StreamId(3),
            dataset: "customer".into(),
            path: "/tank/customer/3".into(),
            pattern,
            pace_hz: None,
            batch: 1,
            fault: None,
        }
    }

    #[test]
    fn an_append_stream_never_writes_a_place_twice() {
        let plan = stream(Pattern::Append);
        assert_eq!(plan.location(7, Seq(1)), 0);
        assert_eq!(plan.location(7, Seq(5)), 4 * RECORD_BYTES);
        assert_eq!(plan.fill(), 0);
    }

    #[test]
    fn an_overwrite_stream_fills_its_file_first_and_then_stays_inside_it() {
        let plan = stream(Pattern::Overwrite { slots: 16 });
        let filled: Vec<u64> = (1..=16).map(|n| plan.slot(7, Seq(n))).collect();
        assert_eq!(filled, (0..16).collect::<Vec<_>>());
        let mut hit = [false; 16];
        (17..1000).for_each(|n| hit[plan.slot(7, Seq(n)) as usize] = true);
        assert_eq!(hit, [true; 16]);
    }

    #[test]
    fn a_replace_stream_is_one_record_whose_first_version_belongs_to_the_set_up() {
        let plan = stream(Pattern::Replace);
        assert_eq!(plan.fill(), 1);
        assert!((1..100).all(|n| plan.location(7, Seq(n)) == 0));
    }

    #[test]
    fn faults_are_named_as_scenarios_name_them() {
        use WriterFault::*;
        for fault in [AckBeforeFsync, Stall, RenameWithoutFsync, NoDirectoryFsync, SkipSync, NoSync]
        {
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.name());
        }
    }

    #[test]
    fn the_seed_alone_decides_and_another_seed_decides_differently() {
        let plan = stream(Pattern::Overwrite { slots: 1 << 20 });
        let slots = |seed| (1 << 20..(1 << 20) + 64).map(|n| plan.slot(seed, Seq(n + 1))).collect();
        let (first, again, other): (Vec<_>, Vec<_>, Vec<_>) = (slots(7), slots(7), slots(8));
        assert_eq!(first, again);
        assert_ne!(first, other);
    }
}
