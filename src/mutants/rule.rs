//! When a fault counts as caught. Pure.
//!
//! Only if the same scenario, seed and cut without it pass the claim, and the claim and the class
//! that were named for it in advance report it. `max-loss` never counts: it is a claim about every
//! instant, and on sync=disabled it fails without any fault.

use super::mutant::{Class, Expected};
use crate::explore::state::StateOutcome;
use crate::stack::scenario::{ClaimKind, Scenario};
use crate::verify::verdict::Verdict;
use serde::Serialize;

/// What one state says of the claim and class that were named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    /// The verdict on the claim.
    pub verdict: Verdict,
    /// How many operations or places are of the class.
    pub of_class: u64,
}

/// What a pair of states shows of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// It was caught as was named.
    Caught,
    /// The claim is not violated, and nothing passed that must not.
    Missed,
    /// The claim is violated, but not as was named: that may be something else.
    OtherClass,
    /// The same without the fault does not pass either, so nothing is shown.
    ControlFails,
    /// What had to end without a pass passed.
    Passed,
}

/// How often a fault was caught under one crash model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Cell {
    /// Pairs of states that were looked at.
    pub states: u32,
    /// Of these, caught.
    pub caught: u32,
    /// Of these, violated in another class than the one named.
    pub other_class: u32,
    /// Of these, those whose control does not pass.
    pub control_fails: u32,
    /// Of these, passed though they had to end without a pass.
    pub passed: u32,
}

impl Reported {
    /// What a judged state says. A claim that the scenario does not make is not measured.
    pub fn of(outcome: &StateOutcome, scenario: &Scenario, expected: &Expected) -> Reported {
        if let Class::Ends(_) = expected.class {
            return Reported { verdict: outcome.verdict(scenario), of_class: 0 };
        }
        let is_it = |claim: &crate::stack::scenario::ClaimSpec| {
            claim.kind == expected.claim && claim.dataset.as_deref() == expected.dataset
        };
        let claim = scenario.claim.iter().position(is_it).and_then(|at| outcome.claims.get(at));
        let verdict = claim.map_or(Verdict::NotMeasured, |claim| claim.verdict);
        let of_class = match expected.class {
            Class::Outcome(class) => {
                let about = |name: &str| expected.dataset.is_none_or(|dataset| dataset == name);
                let fates = outcome.datasets.iter().filter(|(name, _)| about(name));
                fates.map(|(_, fate)| fate.outcomes.get(&class).copied().unwrap_or(0)).sum()
            }
            Class::Checker | Class::Ends(_) => u64::from(verdict == Verdict::Violated),
        };
        Reported { verdict, of_class }
    }
}

/// The rule.
pub fn shown(expected: &Expected, control: Reported, mutant: Reported) -> Shown {
    if let (Class::Ends(_), Verdict::Held) = (expected.class, mutant.verdict) {
        return Shown::Passed;
    }
    if control.verdict != Verdict::Held {
        return Shown::ControlFails;
    }
    match expected.class {
        Class::Ends(verdict) if mutant.verdict == verdict => Shown::Caught,
        Class::Ends(_) => Shown::OtherClass,
        _ if expected.claim == ClaimKind::MaxLoss => Shown::Missed,
        _ if mutant.verdict != Verdict::Violated => Shown::Missed,
        _ if mutant.of_class > control.of_class => Shown::Caught,
        _ => Shown::OtherClass,
    }
}

impl Cell {
    /// Counts one pair.
    pub fn count(&mut self, shown: Shown) {
        self.states += 1;
        match shown {
            Shown::Caught => self.caught += 1,
            Shown::OtherClass => self.other_class += 1,
            Shown::ControlFails => self.control_fails += 1,
            Shown::Passed => self.passed += 1,
            Shown::Missed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::outcome::Outcome;
    use Verdict::*;

    const STALE: Expected =
        Expected { claim: ClaimKind::Intact, dataset: None, class: Class::Outcome(Outcome::Stale) };
    const ENDS: Expected = Expected { class: Class::Ends(NotMeasured), ..STALE };

    fn said(verdict: Verdict, of_class: u64) -> Reported {
        Reported { verdict, of_class }
    }

    #[test]
    fn what_was_named_is_caught_where_the_control_passes() {
        assert_eq!(shown(&STALE, said(Held, 0), said(Violated, 1)), Shown::Caught);
        let checker = Expected { claim: ClaimKind::Consistent, class: Class::Checker, ..STALE };
        assert_eq!(shown(&checker, said(Held, 0), said(Violated, 1)), Shown::Caught);
    }

    #[test]
    fn a_control_that_does_not_pass_shows_nothing() {
        for verdict in [Violated, NotMeasured, HarnessBroken] {
            assert_eq!(shown(&STALE, said(verdict, 0), said(Violated, 1)), Shown::ControlFails);
            assert_eq!(shown(&ENDS, said(verdict, 0), said(NotMeasured, 0)), Shown::ControlFails);
        }
    }

    #[test]
    fn the_right_claim_in_another_class_is_not_caught() {
        assert_eq!(shown(&STALE, said(Held, 0), said(Violated, 0)), Shown::OtherClass);
        assert_eq!(shown(&STALE, said(Held, 2), said(Violated, 2)), Shown::OtherClass);
        assert_eq!(shown(&ENDS, said(Held, 0), said(HarnessBroken, 0)), Shown::OtherClass);
        assert_eq!(shown(&ENDS, said(Held, 0), said(Violated, 0)), Shown::OtherClass);
    }

    #[test]
    fn a_fault_that_changes_nothing_is_missed() {
        for verdict in [Held, NotMeasured, HarnessBroken] {
            assert_eq!(shown(&STALE, said(Held, 0), said(verdict, 0)), Shown::Missed);
        }
    }

    #[test]
    fn max_loss_never_counts() {
        let loss = Expected { claim: ClaimKind::MaxLoss, dataset: Some("customer"), ..STALE };
        assert_eq!(shown(&loss, said(Held, 0), said(Violated, 1)), Shown::Missed);
    }

    #[test]
    fn evidence_that_passes_is_worse_than_missed_whatever_the_control_says() {
        for control in [Held, Violated, NotMeasured] {
            assert_eq!(shown(&ENDS, said(control, 0), said(Held, 0)), Shown::Passed);
        }
    }

    #[test]
    fn a_cell_counts_each_pair_once() {
        let mut cell = Cell::default();
        for shown in [Shown::Caught, Shown::Caught, Shown::Missed, Shown::OtherClass] {
            cell.count(shown);
        }
        cell.count(Shown::ControlFails);
        cell.count(Shown::Passed);
        let expected = Cell { states: 6, caught: 2, other_class: 1, control_fails: 1, passed: 1 };
        assert_eq!(cell, expected);
    }
}
