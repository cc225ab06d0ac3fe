//! `prefix`: the software's own checks pass, and what survived of each of its streams is all
//! operations up to one. How many of the newest are gone is `max-loss`'s and `durable`'s to say.

use super::outcome::Outcome;
use super::survey::StreamSurvey;
use super::verdict::{Judgement, Verdict};

/// Judges the streams of one dataset.
pub fn judge(streams: &[&StreamSurvey]) -> Judgement {
    let all = streams.iter().flat_map(|survey| &survey.findings);
    let damage: Vec<_> = all.filter(|finding| finding.outcome.is_damage()).cloned().collect();
    if let Some(worst) = damage.iter().max_by_key(|finding| finding.outcome) {
        let because = format!("{}: {} ({})", worst.place(), worst.outcome, worst.text);
        return Judgement::new(Verdict::Violated, because).with_findings(damage);
    }
    if streams.iter().all(|survey| survey.newest.is_none()) {
        return Judgement::new(Verdict::NotMeasured, "no operation survived, so no prefix did");
    }
    let ends: Vec<String> = streams.iter().map(|survey| end(survey)).collect();
    let because = format!("every check passed, and what survived is a prefix: {}", ends.join(", "));
    Judgement::new(Verdict::Held, because)
}

fn end(survey: &StreamSurvey) -> String {
    let unacked = match survey.count(Outcome::UnackedSurvived) {
        0 => String::new(),
        count => format!(" ({count} un-acked)"),
    };
    match survey.newest {
        Some(newest) => format!("stream {} up to operation {}{unacked}", survey.stream, newest.seq),
        None => format!("stream {} without any", survey.stream),
    }
}
