//! What a round over the scenarios found: the document behind `--json` and the table.

use crate::explore::report::ExploreReport;
use crate::trial::report::{TrialReport, Versions};
use crate::verify::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// Version of this document.
pub const FORMAT: u32 = 1;

/// A whole round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Version of this document.
    pub format: u32,
    /// The command that made it.
    pub command: String,
    /// The seed of every trial.
    pub seed: u64,
    /// One for each scenario, in the order in which they were tried.
    pub scenarios: Vec<TriedScenario>,
    /// One exit code for all of them.
    pub exit_code: u8,
    /// Seconds that it took.
    pub took_s: f64,
}

/// One scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriedScenario {
    /// Its name.
    pub name: String,
    /// What it tries, in a line.
    pub tries: String,
    /// One for each of its claims; empty if it could not be tried.
    pub claims: Vec<TriedClaim>,
    /// Why it could not be tried, or explored.
    pub error: Option<String>,
    /// Seconds of its trial.
    pub trial_s: f64,
    /// States that were looked at, of so many; nothing if none were to be.
    pub states: Option<(u32, u32)>,
    /// What ran.
    pub versions: Option<Versions>,
    /// The run's folder.
    pub folder: Option<String>,
}

/// One claim of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriedClaim {
    /// The claim in a word or two.
    pub title: String,
    /// In its maker's words.
    pub says: String,
    /// What a trial says of its own cut.
    pub trial: Verdict,
    /// Why.
    pub because: String,
    /// What the other cuts of its recording say, where they were looked at.
    pub explored: Option<ExploredWords>,
}

/// What an exploration says of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExploredWords {
    /// Over all states.
    pub verdict: Verdict,
    /// States in which it held.
    pub held: u32,
    /// States in which it was violated.
    pub violated: u32,
    /// Why, the deciding sentence.
    pub because: String,
}

impl TriedScenario {
    /// A scenario that could not be tried.
    pub fn failed(name: &str, error: &anyhow::Error) -> TriedScenario {
        TriedScenario {
            name: name.to_owned(),
            tries: String::new(),
            claims: Vec::new(),
            error: Some(format!("{error:#}")),
            trial_s: 0.0,
            states: None,
            versions: None,
            folder: None,
        }
    }

    /// What a trial found.
    pub fn of(report: &TrialReport, folder: String, trial_s: f64) -> TriedScenario {
        let claim = |claim: &crate::trial::report::ClaimReport| TriedClaim {
            title: claim.title(),
            says: claim.says.clone(),
            trial: claim.verdict,
            because: claim.because.first().cloned().unwrap_or_default(),
            explored: None,
        };
        TriedScenario {
            name: report.scenario.name.clone(),
            tries: report.scenario.tries.clone(),
            claims: report.claims.iter().map(claim).collect(),
            error: None,
            trial_s,
            states: None,
            versions: Some(report.versions.clone()),
            folder: Some(folder),
        }
    }

    /// Adds what an exploration of the same run found. Its claims come in the same order.
    pub fn and_explored(&mut self, report: &ExploreReport) {
        self.states = Some((report.states.known, report.states.planned));
        for (claim, explored) in self.claims.iter_mut().zip(&report.claims) {
            claim.explored = Some(ExploredWords {
                verdict: explored.verdict,
                held: explored.held,
                violated: explored.violated,
                because: explored.because.first().cloned().unwrap_or_default(),
            });
        }
    }

    /// One verdict for the scenario: what explored states say is worse, or as good. A list of which
    /// only a part was looked at says nothing against a trial that held.
    pub fn verdict(&self) -> Verdict {
        let explored = self.claims.iter().filter_map(|claim| claim.explored.as_ref());
        let against = explored
            .map(|words| words.verdict)
            .filter(|verdict| matches!(verdict, Verdict::Violated | Verdict::HarnessBroken));
        Verdict::of_all(self.claims.iter().map(|claim| claim.trial).chain(against))
    }
}
