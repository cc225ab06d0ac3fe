//! What an exploration found: the document behind explore.json and `--json`.

use super::state::Place;
use crate::disk::CrashModel;
use crate::stack::scenario::ClaimKind;
use crate::trial::report::Versions;
use crate::units::RunId;
use crate::verify::verdict::Verdict;
use crate::verify::window::Seconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this document.
pub const FORMAT: u32 = 1;

/// A whole exploration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExploreReport {
    /// Version of this document.
    pub format: u32,
    /// One verdict for all claims.
    pub verdict: Verdict,
    /// The exit code that says it.
    pub exit_code: u8,
    /// The scenario's name.
    pub scenario: String,
    /// What it tries, in a line.
    pub tries: String,
    /// The recording's seed.
    pub seed: u64,
    /// The recording's run.
    pub run: RunId,
    /// Under which crash model.
    pub crash_model: CrashModel,
    /// Which states, in words of the command line.
    pub cuts: String,
    /// How far it came.
    pub states: StateCounts,
    /// One for each claim of the scenario.
    pub claims: Vec<ExploredClaim>,
    /// The loss over all instants, by dataset; only for models without chance.
    pub curves: BTreeMap<String, CurveNumbers>,
    /// Seconds of load that the recording covers.
    pub load_s: f64,
    /// What it took.
    pub cost: Cost,
    /// What ran.
    pub versions: Versions,
}

/// How far an exploration came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCounts {
    /// States of the list.
    pub planned: u32,
    /// Outcomes known, those of equal states included.
    pub known: u32,
    /// Of these, states that hold the same bytes as another and were not given to a kernel again.
    pub equal: u32,
    /// States not looked at that lie between two which lost the same.
    pub implied: u32,
    /// Cuts during a recovery.
    pub recovery_cuts: u32,
}

/// A claim over all states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExploredClaim {
    /// Which oracle judged it.
    pub kind: ClaimKind,
    /// The dataset it is about.
    pub dataset: Option<String>,
    /// D of `max-loss`.
    pub seconds: Option<f64>,
    /// The claim in its maker's words.
    pub says: String,
    /// The verdict over all states.
    pub verdict: Verdict,
    /// Why, the deciding sentence first.
    pub because: Vec<String>,
    /// States in which it held.
    pub held: u32,
    /// States in which it was violated.
    pub violated: u32,
    /// States in which it was not measured.
    pub not_measured: u32,
    /// States in which nothing of the load was durable yet, so that there was nothing to judge.
    pub before_load: u32,
    /// States in which the harness was broken.
    pub harness_broken: u32,
    /// The first state that decided against it.
    pub first: Option<FirstState>,
}

/// A state that decided against a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirstState {
    /// Its place in the list.
    pub index: u32,
    /// What it is.
    pub place: Place,
    /// Why the claim was judged so.
    pub because: Vec<String>,
}

/// The loss of one dataset over all instants.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurveNumbers {
    /// Its largest value.
    pub maximum_s: Option<Seconds>,
    /// Where that was, in seconds of load.
    pub maximum_at_s: Option<f64>,
    /// Its mean over time.
    pub mean_s: Option<Seconds>,
    /// Half of the instants lose at most this.
    pub p50_s: Option<Seconds>,
    /// 90 of 100 instants lose at most this.
    pub p90_s: Option<Seconds>,
    /// 99 of 100 instants lose at most this.
    pub p99_s: Option<Seconds>,
    /// Seconds of load for which it is known.
    pub known_s: f64,
    /// Seconds for which it is not.
    pub unknown_s: f64,
}

/// What an exploration took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds in this call.
    pub took_s: f64,
    /// Kernels started in this call.
    pub starts: u32,
    /// Milliseconds for a state, the median over all that were looked at.
    pub state_ms_median: Option<u64>,
}
