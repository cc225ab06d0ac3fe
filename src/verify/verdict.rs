//! Verdicts, and how several make one exit code.

use super::outcome::Finding;
use super::window::LossWindow;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is said of a claim. Only `Held` is a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The data show that the claim held in this run.
    Held,
    /// The data show that the claim did not hold.
    Violated,
    /// The plumbing could not be proven, or the run could not have shown a violation.
    NotMeasured,
    /// The tool's own data do not agree with themselves.
    HarnessBroken,
}

impl Verdict {
    /// The exit code that says this verdict.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Held => 0,
            Verdict::Violated => 1,
            Verdict::NotMeasured => 3,
            Verdict::HarnessBroken => 4,
        }
    }

    /// One verdict for several claims: a broken harness outranks a violation, which outranks what
    /// was not measured. No claim at all was not measured.
    pub fn of_all(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Held => 0,
            Verdict::NotMeasured => 1,
            Verdict::Violated => 2,
            Verdict::HarnessBroken => 3,
        };
        verdicts.into_iter().max_by_key(rank).unwrap_or(Verdict::NotMeasured)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Held => "held",
            Verdict::Violated => "violated",
            Verdict::NotMeasured => "not measured",
            Verdict::HarnessBroken => "harness broken",
        })
    }
}

/// The verdict on one claim with its grounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// What was judged.
    pub verdict: Verdict,
    /// Sentences that say why, the deciding one first.
    pub because: Vec<String>,
    /// What was found at which place, worst first; long lists are cut.
    pub findings: Vec<Finding>,
    /// The loss window that this verdict rests on, where there is one.
    pub window: Option<LossWindow>,
}

/// Findings kept for each claim.
const FINDINGS_MAX: usize = 20;

impl Judgement {
    /// A verdict with its deciding sentence.
    pub fn new(verdict: Verdict, because: impl Into<String>) -> Judgement {
        let because = vec![because.into()];
        Judgement { verdict, because, findings: Vec::new(), window: None }
    }

    /// Adds a sentence.
    pub fn and(mut self, because: impl Into<String>) -> Judgement {
        self.because.push(because.into());
        self
    }

    /// Adds what was found, as far as the list goes.
    pub fn with_findings(mut self, findings: impl IntoIterator<Item = Finding>) -> Judgement {
        self.findings.extend(findings);
        self.findings.truncate(FINDINGS_MAX);
        self
    }

    /// Bars a pass: a claim that would have held was not measured, for this reason.
    pub fn bar_pass(self, reason: impl Into<String>) -> Judgement {
        self.overrule(Verdict::Held, Verdict::NotMeasured, reason)
    }

    fn overrule(mut self, from: Verdict, to: Verdict, reason: impl Into<String>) -> Judgement {
        if self.verdict == from {
            self.verdict = to;
            self.because.insert(0, reason.into());
        } else {
            self.because.push(reason.into());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_several_verdicts_apply_four_comes_before_one_before_three_before_zero() {
        use Verdict::*;
        let code = |all: &[Verdict]| Verdict::of_all(all.iter().copied()).exit_code();
        assert_eq!(code(&[Held, Violated, NotMeasured, HarnessBroken]), 4);
        assert_eq!(code(&[Held, Violated, NotMeasured]), 1);
        assert_eq!(code(&[Held, NotMeasured]), 3);
        assert_eq!(code(&[Held, Held]), 0);
        assert_eq!(code(&[]), 3);
    }

    #[test]
    fn a_barred_pass_is_not_measured_and_a_violation_stays_one() {
        let barred = |verdict| Judgement::new(verdict, "x").bar_pass("stalled").verdict;
        assert_eq!(barred(Verdict::Held), Verdict::NotMeasured);
        assert_eq!(barred(Verdict::Violated), Verdict::Violated);
        assert_eq!(barred(Verdict::HarnessBroken), Verdict::HarnessBroken);
    }
}
