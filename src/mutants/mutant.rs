//! What a planted fault is, and what must catch it.

use crate::disk::CrashModel;
use crate::stack::scenario::ClaimKind;
use crate::verify::outcome::Outcome;
use crate::verify::verdict::Verdict;
use serde::{Serialize, Serializer};
use std::fmt;

/// The columns of the table. The `unsafe` disk's cache is small, so that some of a short load
/// survives it.
pub const COLUMNS: [CrashModel; 5] = [
    CrashModel::KeepAll,
    CrashModel::DropUnflushed,
    CrashModel::Subset,
    CrashModel::Torn { unit_sectors: 1 },
    CrashModel::Unsafe { mib: 1 },
];

/// A fault, where it is planted, and what must report it.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// What it does, in one line.
    pub does: &'static str,
    /// On what it is planted; the same without it is its control.
    pub base: Base,
    /// How it is planted.
    pub plant: Plant,
    /// What must report it, named in advance.
    pub expected: Expected,
    /// The crash models under which it is tried.
    pub models: &'static [CrashModel],
    /// Why it is not tried under the others.
    pub untried: &'static str,
}

/// A scenario, varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// Its name.
    pub scenario: &'static str,
    /// Its `--set`s.
    pub sets: &'static [&'static str],
    /// Whether it needs a guest; else this machine's own kernel runs it.
    pub in_guest: bool,
    /// Whether its trace is written again as a disk with FUA would have seen it.
    pub fua: bool,
}

/// How a fault is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// In the crash states of the control's own recording.
    Disk(DiskKind),
    /// In what lies between program and disk: `--set`s beside the base's.
    Stack(&'static [&'static str]),
    /// In the program: the same way.
    Workload(&'static [&'static str]),
    /// In what the control's run left behind.
    Evidence(Tampering),
}

/// Faults of a disk; their request is chosen in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    /// Each flush does the work of the one before it.
    FlushAnsweredEarly,
    /// Flushes and FUA do nothing.
    FlushIgnored,
    /// FUA does nothing.
    FuaDropped,
    /// A record's write never reaches the medium.
    WriteLost,
    /// One sector of it does not.
    StaleSector,
    /// It lands on an older record.
    Misdirected,
    /// It lands in its place and on an older record.
    Duplicated,
    /// One bit of it is flipped.
    BitFlipped,
    /// Its first four sectors reach the medium.
    TornAt512,
    /// The first blocks of a write of many records reach the medium.
    TornAt4096,
    /// A record's write becomes durable only when a later one should.
    SwappedAcrossFlush,
    /// A record's place reads as zeros.
    Zeroed,
    /// A trim clears a record behind its end.
    TrimTooLong,
    /// The commit block of one of the journal's last transactions reads as zeros.
    JournalZeroed,
    /// A bit of a directory's block is flipped.
    DirectoryFlipped,
}

/// What is done to the evidence of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tampering {
    /// The trace ends in the middle.
    TraceCutShort,
    /// Some messages of the guest are not in it.
    MessagesLost,
    /// The guest's clock jumps between two samples.
    ClockSkewed,
    /// It is another run's.
    ForeignTrace,
    /// What was read back is another run's.
    ForeignFiles,
}

/// What must report a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Which claim.
    pub claim: ClaimKind,
    /// About which dataset, where the claim is about one.
    pub dataset: Option<&'static str>,
    /// As what.
    pub class: Class,
}

/// The class of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The claim is violated, and this is what became of some operation or place.
    Outcome(Outcome),
    /// The claim is violated: the kernel or the checker says so.
    Checker,
    /// Nothing is claimed any more: the run ends with this verdict, which is no pass.
    Ends(Verdict),
}

/// The layers, from the medium up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The disk.
    Disk,
    /// File system, pool, QEMU.
    Stack,
    /// The program.
    Workload,
    /// The tool's own data.
    Evidence,
}

impl Mutant {
    /// Where it is planted.
    pub fn layer(&self) -> Layer {
        match self.plant {
            Plant::Disk(_) => Layer::Disk,
            Plant::Stack(_) => Layer::Stack,
            Plant::Workload(_) => Layer::Workload,
            Plant::Evidence(_) => Layer::Evidence,
        }
    }

    /// The `--set`s that plant it; a fault of disk or evidence has none.
    pub fn sets(&self) -> &'static [&'static str] {
        match self.plant {
            Plant::Stack(sets) | Plant::Workload(sets) => sets,
            Plant::Disk(_) | Plant::Evidence(_) => &[],
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Layer::Disk => "disk",
            Layer::Stack => "stack",
            Layer::Workload => "workload",
            Layer::Evidence => "evidence",
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Class::Outcome(outcome) => f.pad(&word(*outcome)),
            Class::Checker => f.pad("what-the-tools-say"),
            Class::Ends(verdict) => f.pad(&format!("ends: {verdict}")),
        }
    }
}

/// An outcome's one word, as the documents have it.
fn word(outcome: Outcome) -> String {
    // It is a word without data, so it always has a JSON form.
    let json = serde_json::to_value(outcome).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Class::Ends(_) => return self.class.fmt(f),
            _ => f.write_str(self.claim.name())?,
        }
        if let Some(dataset) = self.dataset {
            write!(f, " {dataset}")?;
        }
        write!(f, " {}", self.class)
    }
}
