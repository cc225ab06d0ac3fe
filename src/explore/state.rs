//! One state: what it stands for, and what was found in it.

use super::cuts::PlannedCut;
use crate::disk::StateId;
use crate::history::clock::LabInterval;
use crate::stack::scenario::{ClaimKind, ClaimSpec, Scenario};
use crate::trial::compose;
use crate::trial::evidence::Evidence;
use crate::trial::facts::RunFacts;
use crate::trial::inspect::Observation;
use crate::units::{LabNs, Txg};
use crate::verify::case::{DatasetFate, Judged};
use crate::verify::outcome::Outcome;
use crate::verify::verdict::{Judgement, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sentences that are kept of a judgement.
const BECAUSE_MAX: usize = 3;

/// Where in the trace a state is, and for which instants it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The power goes at this entry: arrivals and replies before it count.
    pub cut: u32,
    /// The crash model's seed.
    pub seed: u64,
    /// From this instant on a cut gives this state.
    pub from: LabNs,
    /// From this instant on it gives another.
    pub until: LabNs,
    /// Why it was looked at.
    pub why: String,
}

impl From<&PlannedCut> for Place {
    fn from(planned: &PlannedCut) -> Place {
        let PlannedCut { cut, seed, from, until, why } = *planned;
        Place { cut: cut.0, seed, from, until, why: why.to_string() }
    }
}

/// What was found in one state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateOutcome {
    /// Its place in the list of states.
    pub index: u32,
    /// What it is.
    pub place: Place,
    /// States with the same id hold the same bytes.
    pub id: String,
    /// The state whose bytes were looked at instead, being the same.
    pub same_as: Option<u32>,
    /// The cut during the recovery from it, if this is what such a cut left.
    pub recovery_cut: Option<Place>,
    /// One for each claim of the scenario, in its order.
    pub claims: Vec<StateClaim>,
    /// What was lost of each dataset.
    pub datasets: BTreeMap<String, StateFate>,
    /// Whether the files could be read back at all.
    pub was_read: bool,
    /// The txg that the import used.
    pub used_txg: Option<Txg>,
    /// Milliseconds that it took to look at it.
    pub took_ms: u64,
}

/// A claim, judged on one state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateClaim {
    /// What was judged.
    pub verdict: Verdict,
    /// Why, the deciding sentence first.
    pub because: Vec<String>,
}

/// What a state takes from a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateFate {
    /// Acks of the oldest acked operation that is gone, on the lab's clock.
    pub oldest_gone: Option<LabInterval>,
    /// Acked operations that are gone.
    pub lost_operations: u64,
    /// Whether anything of the load was acked by then.
    pub load_acked: bool,
    /// Whether anything of the load survived.
    pub load_survived: bool,
    /// Operations and places by class.
    pub outcomes: BTreeMap<Outcome, u64>,
}

impl StateOutcome {
    /// Judges a state as if the power had gone at the last instant for which it stands.
    pub fn judge(
        (index, planned, id): (u32, &PlannedCut, StateId),
        facts: &RunFacts,
        evidence: &Evidence,
        observed: &Observation,
    ) -> StateOutcome {
        let judged = compose::judge(facts, evidence, observed);
        let fate = |(name, fate): (&String, &DatasetFate)| {
            let set_up = facts.plan.streams.iter().filter(|stream| stream.dataset == *name);
            let set_up = set_up.map(|stream| stream.fill()).sum();
            (name.clone(), StateFate::of(fate, set_up, evidence.cut))
        };
        StateOutcome {
            index,
            place: planned.into(),
            id: id.to_string(),
            same_as: None,
            recovery_cut: None,
            datasets: judged.datasets.iter().map(fate).collect(),
            claims: claims(judged),
            was_read: observed.recovery.was_read(),
            used_txg: observed.recovery.used_txg(),
            took_ms: 0,
        }
    }

    /// The outcome of a state that could not be looked at, for this reason: nothing was measured.
    pub fn not_looked_at(
        (index, planned, id): (u32, &PlannedCut, StateId),
        facts: &RunFacts,
        because: &str,
    ) -> StateOutcome {
        let because = vec![format!("the state could not be looked at: {because}")];
        let claim = StateClaim { verdict: Verdict::NotMeasured, because };
        StateOutcome {
            index,
            place: planned.into(),
            id: id.to_string(),
            same_as: None,
            recovery_cut: None,
            claims: vec![claim; facts.scenario.claim.len()],
            datasets: BTreeMap::new(),
            was_read: false,
            used_txg: None,
            took_ms: 0,
        }
    }

    /// Whether a kernel looked at it, or at one with the same bytes.
    pub fn was_looked_at(&self) -> bool {
        !self.datasets.is_empty() || self.was_read
    }

    /// Whether nothing of the load was acked, or nothing of it durable, in this dataset or in all:
    /// then there was nothing to judge in what it holds.
    pub fn is_before_load(&self, dataset: Option<&str>) -> bool {
        let about = |name: &str| dataset.is_none_or(|dataset| dataset == name);
        let mut fates = self.datasets.iter().filter(|(name, _)| about(name));
        self.was_read && !fates.any(|(_, fate)| fate.load_acked && fate.load_survived)
    }

    /// One verdict for the state. `max-loss` is a claim about all of them, so here it only tells
    /// when the tool's data contradict themselves.
    pub fn verdict(&self, scenario: &Scenario) -> Verdict {
        let of = |(claim, spec): (&StateClaim, &ClaimSpec)| {
            let counts = spec.kind != ClaimKind::MaxLoss || claim.verdict == Verdict::HarnessBroken;
            counts.then_some(claim.verdict)
        };
        Verdict::of_all(self.claims.iter().zip(&scenario.claim).filter_map(of))
    }
}

impl StateFate {
    fn of(fate: &DatasetFate, set_up: u64, cut: LabNs) -> StateFate {
        let window = fate.window.seconds;
        let before = |seconds: f64| LabNs(cut.0.saturating_sub((seconds * 1e9).round() as u64));
        let gone = LabInterval { lo: before(window.hi), hi: before(window.lo) };
        StateFate {
            // What was found may also fit a loss that it does not show.
            oldest_gone: (fate.window.operations > 0 || window.hi > 0.0).then_some(gone),
            lost_operations: fate.window.operations,
            load_acked: fate.acked > set_up,
            load_survived: fate.window.load_survived,
            outcomes: fate.outcomes.clone(),
        }
    }
}

fn claims(judged: Judged) -> Vec<StateClaim> {
    let of = |judgement: Judgement| {
        let mut because = judgement.because;
        because.truncate(BECAUSE_MAX);
        StateClaim { verdict: judgement.verdict, because }
    };
    judged.claims.into_iter().map(|(_, judgement)| of(judgement)).collect()
}
