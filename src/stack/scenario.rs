//! A scenario: stack, disk, workload, cut and claims, as a TOML file states them.
//!
//! Every field is checked (in [`super::check`]) before anything starts; an error names the file and
//! the field.

pub use super::check::Unsound;
pub use super::pattern::{PatternName, StreamSpec};
pub use super::spec::{
    DISK_MOUNT, Discard, Holds, PlainFs, PlainSpec, Pool, Stack, StackSpec, Vdev, ZfsSpec,
};
use crate::disk::crash::CrashModel;
use crate::guest::disk::{CacheMode, DiskBus};
use crate::units::{RunId, StreamId};
use crate::workload::plan::{Plan, StreamPlan, WriterFault};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Bodies made before the load.
const BODIES: u32 = 4096;
/// Messages that streams of a sync=disabled dataset may hold back when unpaced.
const BATCH: u32 = 8;
/// The same of unpaced scripts, whose operations are cheaper. On sync=standard too: there the ack of a
/// sync that took its time is sent at once, with all before it.
const SCRIPT_BATCH: u32 = 32;

/// A whole scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, as on the command line.
    pub name: String,
    /// One line: what it tries.
    pub tries: String,
    /// The machine whose power is cut.
    pub guest: GuestSpec,
    /// The lab's disk.
    pub disk: DiskSpec,
    /// What stands on it.
    pub stack: StackSpec,
    /// The datasets with their streams, by name.
    pub dataset: BTreeMap<String, DatasetSpec>,
    /// How the power is cut.
    pub cut: CutSpec,
    /// What is claimed.
    pub claim: Vec<ClaimSpec>,
}

/// The guest's size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory sizes in MiB at which dirty bytes may close transaction groups: the scenario is
    /// about them. Elsewhere they hide the loss window.
    #[serde(default)]
    pub dirty_bytes_close_at_mib: Vec<u32>,
}

/// The lab's disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// Its size in MiB.
    pub size_mib: u64,
    /// How long a flush takes.
    #[serde(default)]
    pub flush_ms: f64,
    /// Transfer rate; 0 is unlimited.
    #[serde(default)]
    pub bandwidth_mib_s: f64,
    /// How the guest sees it.
    #[serde(default)]
    pub bus: DiskBus,
    /// What QEMU does with the guest's flushes.
    #[serde(default)]
    pub cache: CacheMode,
}

/// ZFS's `sync` property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// fsync waits for the intent log.
    Standard,
    /// Every write waits for the intent log.
    Always,
    /// Nothing waits.
    Disabled,
}

impl Sync {
    /// The property's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Sync::Standard => "standard",
            Sync::Always => "always",
            Sync::Disabled => "disabled",
        }
    }
}

/// A dataset and the streams that write to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetSpec {
    /// Its `sync` property.
    pub sync: Sync,
    /// Its `recordsize` in KiB, or `volblocksize` if it is a volume, if not the default.
    #[serde(default)]
    pub recordsize_kib: Option<u32>,
    /// Its `compression`, if not the default.
    #[serde(default)]
    pub compression: Option<String>,
    /// Its `logbias`, if not the default.
    #[serde(default)]
    pub logbias: Option<String>,
    /// A planted fault of all its writers.
    #[serde(default)]
    pub fault: Option<WriterFault>,
    /// Its streams.
    #[serde(default)]
    pub stream: Vec<StreamSpec>,
}

/// How the power is cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CutSpec {
    /// At which instant.
    pub when: CutWhen,
    /// A script in vm-scripts/, or a path.
    pub script: String,
    /// About how long the load runs before it.
    pub load_seconds: f64,
    /// What the disk's volatile cache does.
    pub crash_model: CrashModel,
}

/// Ways to choose the instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutWhen {
    /// Just before a commit becomes durable: when most is at risk.
    Worst,
    /// Uniformly over three periods around the load time: see `Scenario::cut_period_s`.
    Uniform,
}

/// A claim about the stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    /// Which oracle judges it.
    pub kind: ClaimKind,
    /// The dataset it is about, where it is about one.
    #[serde(default)]
    pub dataset: Option<String>,
    /// D of `max-loss`.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// The claim in its maker's words.
    pub says: String,
}

/// The oracles by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimKind {
    /// The file system's own tools find nothing.
    Consistent,
    /// What is there is whole.
    Intact,
    /// Nothing older than D is gone, at any instant.
    MaxLoss,
    /// One earlier instant.
    PointInTime,
    /// Nothing acked is gone.
    Durable,
    /// The software's own checks pass, and the operations that survived are all up to one.
    Prefix,
    /// A renamed-over file is one whole version.
    Atomic,
}

impl ClaimKind {
    /// Its name in scenarios and reports.
    pub fn name(self) -> &'static str {
        match self {
            ClaimKind::Consistent => "consistent",
            ClaimKind::Intact => "intact",
            ClaimKind::MaxLoss => "max-loss",
            ClaimKind::PointInTime => "point-in-time",
            ClaimKind::Durable => "durable",
            ClaimKind::Prefix => "prefix",
            ClaimKind::Atomic => "atomic",
        }
    }

    pub(super) fn needs_dataset(self) -> bool {
        !matches!(self, ClaimKind::Consistent | ClaimKind::Intact)
    }
}

impl Scenario {
    /// Whether a stream has this pattern.
    pub fn has(&self, pattern: PatternName) -> bool {
        let mut streams = self.dataset.values().flat_map(|dataset| &dataset.stream);
        streams.any(|stream| stream.pattern == pattern)
    }

    /// Where a dataset's files are in the guest.
    pub fn mountpoint(&self, dataset: &str) -> String {
        self.mountpoint_at(Path::new(DISK_MOUNT), dataset)
    }

    /// Where a dataset's files are if a plain stack is mounted at `root`. A pool mounts its datasets
    /// by its own name, wherever its file is.
    fn mountpoint_at(&self, root: &Path, dataset: &str) -> String {
        match self.stack.get() {
            Stack::Zfs(Pool { spec, .. }) => format!("/{}/{dataset}", spec.pool),
            Stack::Plain(..) => format!("{}/{dataset}", root.display()),
        }
    }

    /// The period, in seconds, that a uniform cut must not be locked to: a txg's timer. A plain file
    /// system commits with each fsync, so there a third of the load time stands for it.
    pub fn cut_period_s(&self) -> f64 {
        match self.stack.get() {
            Stack::Zfs(Pool { spec, .. }) => f64::from(spec.txg_timeout_s),
            Stack::Plain(..) => self.cut.load_seconds / 3.0,
        }
    }

    /// The plan: the same for the same scenario, seed and run.
    pub fn plan(&self, run: RunId, seed: u64) -> Plan {
        self.plan_at(Path::new(DISK_MOUNT), run, seed)
    }

    /// The plan with a plain stack mounted at `root`, as the host's own kernel does it.
    pub fn plan_at(&self, root: &Path, run: RunId, seed: u64) -> Plan {
        let mut streams = Vec::new();
        for (name, dataset) in &self.dataset {
            for spec in &dataset.stream {
                for _ in 0..spec.count {
                    let id = StreamId(streams.len() as u16);
                    let path = format!("{}/stream-{id}", self.mountpoint_at(root, name));
                    let pattern = spec.pattern();
                    let batch = match (dataset.sync, spec.pace_hz) {
                        (_, Some(_)) => 1,
                        _ if pattern.is_of_scripts() => SCRIPT_BATCH,
                        (Sync::Disabled, None) => BATCH,
                        (Sync::Standard | Sync::Always, None) => 1,
                    };
                    streams.push(StreamPlan {
                        id,
                        dataset: name.clone(),
                        path,
                        pattern,
                        pace_hz: spec.pace_hz,
                        batch,
                        fault: dataset.fault,
                    });
                }
            }
        }
        // Only records have bodies.
        let has_records = streams.iter().any(|stream| stream.pattern.is_of_records());
        Plan { run, seed, bodies: if has_records { BODIES } else { 1 }, streams }
    }
}
