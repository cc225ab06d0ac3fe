//! Sums of outcomes made by hand: what must and what must not make a pass.

use super::*;
use crate::explore::testing::{facts, outcome, planned};
use Verdict::{HarnessBroken, Held, NotMeasured, Violated};

fn summed(planned: &[PlannedCut], outcomes: Vec<StateOutcome>) -> Summed {
    let outcomes = outcomes.into_iter().map(|outcome| (outcome.index, outcome)).collect();
    let known = Known {
        facts: &facts(),
        which: Which::Every,
        planned,
        outcomes: &outcomes,
        recoveries: &[],
        begin: LabNs(0),
        cut: planned.last().expect("a state").until,
        cost: Cost::default(),
    };
    sum(&known).expect("a report")
}

fn verdicts(summed: &Summed) -> Vec<Verdict> {
    summed.report.claims.iter().map(|claim| claim.verdict).collect()
}

#[test]
fn a_claim_is_held_only_if_every_state_was_looked_at_and_held() {
    let planned = planned(4);
    let all: Vec<_> = planned.iter().map(|place| outcome(place, [Held; 5], Some(0))).collect();
    let whole = summed(&planned, all.clone());
    assert_eq!(verdicts(&whole), [Held; 5]);
    assert_eq!((whole.report.exit_code, whole.report.states.known), (0, 4));
    for missing in 0..4 {
        let mut some = all.clone();
        some.remove(missing);
        assert_eq!(verdicts(&summed(&planned, some)), [NotMeasured; 5], "without {missing}");
    }
}

#[test]
fn one_violated_state_violates_the_claim_and_is_named() {
    let planned = planned(3);
    let at = |n: usize, verdicts| outcome(&planned[n], verdicts, Some(0));
    let bad = [Held, Violated, Held, Held, HarnessBroken];
    let found = summed(&planned, vec![at(0, [Held; 5]), at(2, bad)]);
    assert_eq!(verdicts(&found)[1], Violated, "also while states are missing");
    let first = found.report.claims[1].first.as_ref().expect("a state");
    assert_eq!(first.index, 2);
    assert_eq!((verdicts(&found)[4], found.report.exit_code), (HarnessBroken, 4));
}

#[test]
fn a_state_that_could_not_be_judged_bars_a_pass_and_one_before_the_load_does_not() {
    let planned = planned(2);
    let unknown = [NotMeasured, NotMeasured, Held, NotMeasured, Held];
    let both = |first: StateOutcome| {
        verdicts(&summed(&planned, vec![first, outcome(&planned[1], [Held; 5], Some(0))]))
    };
    let first = outcome(&planned[0], unknown, Some(0));
    assert_eq!(both(first.clone()), [NotMeasured, NotMeasured, Held, NotMeasured, Held]);
    let mut before = first;
    before.datasets.values_mut().for_each(|fate| fate.load_survived = false);
    let expected = [NotMeasured, Held, Held, Held, Held];
    assert_eq!(both(before.clone()), expected, "that it is consistent can always be told");
    before.was_read = false;
    assert_eq!(both(before)[1], NotMeasured, "not read is not before the load");
}

#[test]
fn what_lies_between_two_states_that_lost_the_same_is_implied_but_no_pass() {
    let planned = planned(10);
    let at = |n: usize, gone| outcome(&planned[n], [Held; 5], gone);
    let ends = summed(&planned, vec![at(0, Some(0)), at(9, Some(0))]);
    assert_eq!(ends.report.states.implied, 8);
    let customer = &ends.report.curves["customer"];
    assert_eq!((customer.known_s, customer.maximum_s.map(|s| s.hi)), (10.0, Some(10.0)));
    assert_eq!(ends.report.claims[2].verdict, Violated, "ten seconds were lost for certain");
    assert_eq!(ends.report.curves["billing"].known_s, 2.0, "that nothing is lost is not implied");

    let differing = summed(&planned, vec![at(0, Some(0)), at(9, Some(5))]);
    assert_eq!(
        (differing.report.states.implied, differing.report.curves["customer"].known_s),
        (0, 2.0)
    );
    let short = &planned[..4];
    let at = |n: usize| outcome(&short[n], [Held; 5], Some(0));
    let implied = summed(short, vec![at(0), at(3)]);
    assert_eq!(
        implied.report.claims[2].verdict, NotMeasured,
        "four seconds, but two states implied"
    );
    assert_eq!(summed(short, (0..4).map(at).collect()).report.claims[2].verdict, Held);
}
