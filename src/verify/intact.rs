//! `intact`: what is there, and what it implies, is whole; nothing else is there.

use super::outcome::Outcome;
use super::survey::StreamSurvey;
use super::verdict::{Judgement, Verdict};

/// Judges every stream of a run.
pub fn judge(streams: &[&StreamSurvey]) -> Judgement {
    let damage: Vec<_> = streams
        .iter()
        .flat_map(|survey| &survey.findings)
        .filter(|finding| finding.outcome.is_damage())
        .cloned()
        .collect();
    if let Some(worst) = damage.iter().max_by_key(|finding| finding.outcome) {
        let because = format!(
            "{} damaged {}; {}: {} ({})",
            damage.len(),
            if damage.len() == 1 { "place" } else { "places" },
            worst.place(),
            worst.outcome,
            worst.text
        );
        return Judgement::new(Verdict::Violated, because).with_findings(damage);
    }
    let count = |outcome| streams.iter().map(|survey| survey.count(outcome)).sum::<u64>();
    let whole = count(Outcome::Survived) + count(Outcome::UnackedSurvived);
    if whole == 0 {
        return Judgement::new(Verdict::NotMeasured, "no record survived that could be damaged");
    }
    let because = format!(
        "{whole} operations are there, each whole, where it belongs and as it was acknowledged ({} of them un-acked)",
        count(Outcome::UnackedSurvived)
    );
    Judgement::new(Verdict::Held, because)
}
