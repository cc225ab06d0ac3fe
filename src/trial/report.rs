//! What a trial found: the document behind trial.json, `--json`, the summary and report.md.

use crate::cut::choose::CutPlan;
use crate::guest::config::{Accel, Suite};
use crate::stack::scenario::{ClaimKind, Scenario};
use crate::units::{LabNs, RunId, Txg};
use crate::verify::case::DatasetFate;
use crate::verify::outcome::Finding;
use crate::verify::txgs::TxgStory;
use crate::verify::verdict::Verdict;
use crate::verify::window::{LossWindow, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this document.
pub const FORMAT: u32 = 2;

/// A whole trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialReport {
    /// Version of this document.
    pub format: u32,
    /// One verdict for all claims.
    pub verdict: Verdict,
    /// The exit code that says it.
    pub exit_code: u8,
    /// One for each claim, in the scenario's order.
    pub claims: Vec<ClaimReport>,
    /// What became of each dataset.
    pub datasets: BTreeMap<String, DatasetFate>,
    /// Everything random but the run id follows from it.
    pub seed: u64,
    /// Marks this run's records.
    pub run: RunId,
    /// The scenario as it was run, every `--set` applied.
    pub scenario: Scenario,
    /// Name or path of the scenario, as it was asked for.
    pub asked: String,
    /// The `--set`s.
    pub sets: Vec<String>,
    /// SHA-256 of the plan without its run id: the same for the same scenario and seed.
    pub plan_sha256: String,
    /// How the power was cut.
    pub cut: CutReport,
    /// What ran.
    pub versions: Versions,
    /// How the guest's CPU was run; none where this machine's own kernel ran the load.
    pub acceleration: Option<Accel>,
    /// Time of a fixed computation in the guest over the same on the lab's CPU.
    pub guest_cpu_slowdown: f64,
    /// What became of the pool, where there is one.
    pub pool: Option<PoolReport>,
    /// What the disk saw until the cut.
    pub disk: DiskReport,
    /// How precisely the guest's clock is known on the lab's, in seconds.
    pub clock_error_s: f64,
    /// What a reader should make of the numbers.
    pub hints: Vec<String>,
    /// Things worth knowing, as they came up.
    pub notes: Vec<String>,
    /// Stages with their seconds.
    pub stages: Vec<(String, f64)>,
}

/// The verdict on a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimReport {
    /// Which oracle judged it.
    pub kind: ClaimKind,
    /// The dataset it is about.
    pub dataset: Option<String>,
    /// D of `max-loss`.
    pub seconds: Option<f64>,
    /// The claim in its maker's words.
    pub says: String,
    /// What is said of it.
    pub verdict: Verdict,
    /// Under what it was tried: the crash model in words and the acceleration.
    pub under: String,
    /// Why.
    pub because: Vec<String>,
    /// What was found where.
    pub findings: Vec<Finding>,
    /// The loss window it rests on.
    #[serde(flatten)]
    pub window: Option<LossWindow>,
}

impl ClaimReport {
    /// The claim as a word or two: `max-loss 5 s customer`.
    pub fn title(&self) -> String {
        let seconds = self.seconds.map(|s| format!(" {s} s")).unwrap_or_default();
        let dataset = self.dataset.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
        format!("{}{seconds}{dataset}", self.kind.name())
    }
}

/// How the power was cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CutReport {
    /// What the seed drew.
    pub plan: CutPlan,
    /// How it came about, as the trace says.
    pub how: String,
    /// On the lab's clock.
    pub at: LabNs,
    /// Load before it, in seconds.
    pub after_load_s: f64,
    /// Until the script had returned, in seconds: by then nothing of the guest ran.
    pub power_off_s: f64,
    /// Messages that were read after it; they count as un-acked.
    pub late_messages: u64,
}

/// What ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// This tool.
    pub plugpull: String,
    /// QEMU.
    pub qemu: String,
    /// The guest's Debian.
    pub suite: Suite,
    /// The guest's kernel.
    pub kernel: String,
    /// The stack's own tools in the guest, as they print their versions.
    pub stack: String,
    /// SHA-256 of the image's guest.json, which names every package.
    pub image_sha256: String,
    /// SHA-256 of the fuller root's full-root.json, where programs ran in it.
    #[serde(default)]
    pub full_root_sha256: Option<String>,
}

/// The pool's transaction groups around the cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolReport {
    /// The txg that the import used.
    pub used_txg: Option<Txg>,
    /// The highest whose uberblock was durable under the crash model.
    pub durable_txg: Option<Txg>,
    /// The highest whose uberblock reached the disk.
    pub written_txg: Option<Txg>,
    /// The highest that the guest reported committed.
    pub committed_txg: Option<Txg>,
    /// The groups of the load.
    pub txgs: Vec<TxgStory>,
    /// The first lost group's time up to the cut, in its parts.
    pub first_lost: Option<WindowParts>,
}

/// A window as its parts. Only the open part does not depend on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WindowParts {
    /// Which group.
    pub txg: Txg,
    /// Seconds open.
    pub open_s: f64,
    /// Seconds quiescing.
    pub quiesce_s: f64,
    /// Seconds waiting for the sync thread.
    pub wait_s: f64,
    /// Seconds syncing until the cut; none if it was not syncing when last seen.
    pub sync_s: Option<f64>,
    /// From its birth to the cut.
    pub total: Seconds,
}

/// What the disk saw until the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Writes, trims and zeroings.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes that the crash model could drop at the cut.
    pub unflushed_writes: u64,
}
