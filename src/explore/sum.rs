//! From the outcomes of states to one report. Pure.

use super::cuts::{PlannedCut, Which};
use super::order::losses;
use super::report::{
    Cost, CurveNumbers, ExploreReport, ExploredClaim, FORMAT, FirstState, StateCounts,
};
use super::state::{StateClaim, StateOutcome};
use crate::disk::CrashModel;
use crate::stack::scenario::{ClaimKind, ClaimSpec};
use crate::trial::facts::RunFacts;
use crate::units::LabNs;
use crate::verify::curve::{CurveError, LossCurve, StateLoss};
use crate::verify::verdict::{Judgement, Verdict};
use std::collections::BTreeMap;

/// Everything that a report is made of.
pub struct Known<'a> {
    /// The run.
    pub facts: &'a RunFacts,
    /// Which states.
    pub which: Which,
    /// The list.
    pub planned: &'a [PlannedCut],
    /// What was found so far: of the list's states, by their place.
    pub outcomes: &'a BTreeMap<u32, StateOutcome>,
    /// What was found after cuts during a recovery.
    pub recoveries: &'a [StateOutcome],
    /// The mark `load-begins`.
    pub begin: LabNs,
    /// The recorded cut.
    pub cut: LabNs,
    /// What it took.
    pub cost: Cost,
}

/// The report with the curves behind its numbers.
pub struct Summed {
    /// The report.
    pub report: ExploreReport,
    /// The loss over all instants, by dataset.
    pub curves: BTreeMap<String, LossCurve>,
}

/// Whether the loss at every instant follows from the states: chance decides nothing, and each state
/// is cut at the last of the instants for which it stands, when most had been acked.
pub fn has_curve(model: CrashModel, which: Which) -> bool {
    matches!(model, CrashModel::DropUnflushed | CrashModel::KeepAll)
        && matches!(which, Which::Every | Which::Sample { .. })
}

/// Makes the report.
pub fn sum(known: &Known) -> Result<Summed, CurveError> {
    let (facts, scenario) = (known.facts, &known.facts.scenario);
    let (curves, implied) = match has_curve(scenario.cut.crash_model, known.which) {
        true => curves(known)?,
        false => (BTreeMap::new(), 0),
    };
    let claims: Vec<ExploredClaim> =
        (0..scenario.claim.len()).map(|at| claim(known, at, &curves, implied)).collect();
    let verdict = Verdict::of_all(claims.iter().map(|claim| claim.verdict));
    let outcomes = known.outcomes.values();
    let report = ExploreReport {
        format: FORMAT,
        verdict,
        exit_code: verdict.exit_code(),
        scenario: scenario.name.clone(),
        tries: scenario.tries.clone(),
        seed: facts.seed,
        run: facts.plan.run,
        crash_model: scenario.cut.crash_model,
        cuts: known.which.to_string(),
        states: StateCounts {
            planned: known.planned.len() as u32,
            known: known.outcomes.len() as u32,
            equal: outcomes.filter(|outcome| outcome.same_as.is_some()).count() as u32,
            implied,
            recovery_cuts: known.recoveries.len() as u32,
        },
        claims,
        curves: curves
            .iter()
            .map(|(name, curve)| (name.clone(), numbers(curve, known.begin)))
            .collect(),
        load_s: (known.cut.0.saturating_sub(known.begin.0)) as f64 / 1e9,
        cost: known.cost,
        versions: facts.versions.clone(),
    };
    Ok(Summed { report, curves })
}

/// The curves, and how many states lie between two that lost the same of every dataset.
fn curves(known: &Known) -> Result<(BTreeMap<String, LossCurve>, u32), CurveError> {
    let mut pieces: BTreeMap<String, Vec<StateLoss>> = BTreeMap::new();
    let mut add = |outcome: &StateOutcome, (from, until): (LabNs, LabNs), all: bool| {
        for (name, fate) in &outcome.datasets {
            if all || fate.oldest_gone.is_some() {
                let piece = StateLoss { from, until, oldest_gone: fate.oldest_gone };
                pieces.entry(name.clone()).or_default().push(piece);
            }
        }
    };
    let mut implied = 0;
    let mut before: Option<&StateOutcome> = None;
    for outcome in known.outcomes.values().filter(|outcome| outcome.was_read) {
        if let Some(before) = before {
            let between = before.index + 1..outcome.index;
            let unknown = between.filter(|index| !known.outcomes.contains_key(index));
            if losses(before) == losses(outcome) {
                for index in unknown {
                    let place = &known.planned[index as usize];
                    add(before, (place.from, place.until), false);
                    implied += 1;
                }
            }
        }
        add(outcome, (outcome.place.from, outcome.place.until), true);
        before = Some(outcome);
    }
    let made = pieces
        .into_iter()
        .map(|(name, pieces)| Ok((name, LossCurve::new(known.begin, known.cut, pieces)?)));
    Ok((made.collect::<Result<_, CurveError>>()?, implied))
}

fn numbers(curve: &LossCurve, begin: LabNs) -> CurveNumbers {
    let peak = curve.maximum();
    CurveNumbers {
        maximum_s: peak.map(|peak| peak.window.into()),
        maximum_at_s: peak.map(|peak| peak.at.0.saturating_sub(begin.0) as f64 / 1e9),
        mean_s: curve.mean(),
        p50_s: curve.quantile(0.5),
        p90_s: curve.quantile(0.9),
        p99_s: curve.quantile(0.99),
        known_s: curve.known_ns() as f64 / 1e9,
        unknown_s: curve.unknown_ns() as f64 / 1e9,
    }
}

fn claim(
    known: &Known,
    at: usize,
    curves: &BTreeMap<String, LossCurve>,
    implied: u32,
) -> ExploredClaim {
    let spec = &known.facts.scenario.claim[at];
    let mut summed = counted(known, at, spec);
    let all_known = known.outcomes.len() == known.planned.len();
    let judgement = match spec.kind {
        ClaimKind::MaxLoss => {
            let curve = spec.dataset.as_ref().and_then(|dataset| curves.get(dataset));
            let at_the_cut = known.outcomes.get(&(known.planned.len() as u32).wrapping_sub(1));
            max_loss(spec, curve, at_the_cut.and_then(|last| last.claims.get(at)), implied)
        }
        _ => over_all(&summed, all_known, known.which),
    };
    let broken = summed.harness_broken > 0;
    (summed.verdict, summed.because) = match broken {
        true => (Verdict::HarnessBroken, vec!["in some state the data disagree".to_owned()]),
        false => (judgement.verdict, judgement.because),
    };
    if let Some(first) = &summed.first
        && (broken || summed.verdict == Verdict::Violated && spec.kind != ClaimKind::MaxLoss)
    {
        summed.because.extend(first.because.iter().cloned());
    }
    summed
}

fn counted(known: &Known, at: usize, spec: &ClaimSpec) -> ExploredClaim {
    let mut summed = ExploredClaim {
        kind: spec.kind,
        dataset: spec.dataset.clone(),
        seconds: spec.seconds,
        says: spec.says.clone(),
        verdict: Verdict::NotMeasured,
        because: Vec::new(),
        held: 0,
        violated: 0,
        not_measured: 0,
        before_load: 0,
        harness_broken: 0,
        first: None,
    };
    for outcome in known.outcomes.values().chain(known.recoveries) {
        let Some(claim) = outcome.claims.get(at) else { continue };
        let count = match claim.verdict {
            Verdict::Held => &mut summed.held,
            Verdict::Violated => &mut summed.violated,
            // Whether the file system is consistent can always be told.
            Verdict::NotMeasured
                if spec.kind != ClaimKind::Consistent
                    && outcome.is_before_load(spec.dataset.as_deref()) =>
            {
                &mut summed.before_load
            }
            Verdict::NotMeasured => &mut summed.not_measured,
            Verdict::HarnessBroken => &mut summed.harness_broken,
        };
        *count += 1;
        let against = matches!(claim.verdict, Verdict::Violated | Verdict::HarnessBroken);
        if against && summed.first.is_none() {
            summed.first = Some(FirstState {
                index: outcome.index,
                place: outcome.place.clone(),
                because: claim.because.clone(),
            });
        }
    }
    summed
}

fn over_all(summed: &ExploredClaim, all_known: bool, which: Which) -> Judgement {
    let states = |n: u32| if n == 1 { "1 state".to_owned() } else { format!("{n} states") };
    if summed.violated > 0 {
        let looked = summed.held + summed.violated;
        let text = format!("violated in {} of {looked} judged", states(summed.violated));
        return Judgement::new(Verdict::Violated, text);
    }
    if summed.not_measured > 0 {
        let text = format!("{} could not be judged", states(summed.not_measured));
        return Judgement::new(Verdict::NotMeasured, text);
    }
    if summed.held == 0 {
        return Judgement::new(Verdict::NotMeasured, "in no state was there anything to judge");
    }
    let some = match which {
        Which::Every => "",
        Which::Sample { .. } => " (a sample of all that there are)",
        Which::Seeds { .. } => " (of those that chance may leave)",
        Which::At { .. } => " (in chosen places)",
    };
    let held = Judgement::new(Verdict::Held, format!("held in {}{some}", states(summed.held)));
    match all_known {
        true => held,
        false => held.bar_pass("not every state of the list was looked at yet"),
    }
}

/// The curve decides; what bars a pass at the recorded cut (too short a load, a stall) bars it here.
fn max_loss(
    spec: &ClaimSpec,
    curve: Option<&LossCurve>,
    at_the_cut: Option<&StateClaim>,
    implied: u32,
) -> Judgement {
    let Some(curve) = curve else {
        let because =
            "there is no curve: the crash model leaves states to chance, or none was read";
        return Judgement::new(Verdict::NotMeasured, because);
    };
    let claimed_ns = (spec.seconds.unwrap_or_default() * 1e9) as u64;
    let mut judgement = curve.judge_at_most(claimed_ns);
    if judgement.verdict != Verdict::Held {
        return judgement;
    }
    if implied > 0 {
        judgement = judgement.bar_pass(format!("{implied} states were not looked at themselves"));
    }
    match at_the_cut {
        Some(at_cut) if at_cut.verdict == Verdict::Held => judgement,
        Some(at_cut) => {
            let why = at_cut.because.first().cloned().unwrap_or_default();
            judgement.bar_pass(format!("the recording could not show a pass: {why}"))
        }
        None => judgement.bar_pass("the recorded cut itself was not looked at"),
    }
}

#[cfg(test)]
mod tests;
