//! `atomic`: a file that was durable as a whole and was renamed over another is one whole version,
//! under one of its names.

use super::survey::StreamSurvey;
use super::verdict::{Judgement, Verdict};

/// Judges the streams of a dataset, or all.
pub fn judge(streams: &[&StreamSurvey]) -> Judgement {
    let broken = streams.iter().flat_map(|survey| &survey.renamed.broken);
    let broken: Vec<_> = broken.cloned().collect();
    if let Some(first) = broken.first() {
        let because = format!(
            "stream {} at byte {}: {} ({})",
            first.stream, first.location, first.outcome, first.text
        );
        return Judgement::new(Verdict::Violated, because).with_findings(broken);
    }
    let checked: u64 = streams.iter().map(|survey| survey.renamed.checked).sum();
    match checked {
        0 => Judgement::new(
            Verdict::NotMeasured,
            "no rename of a durable file could be looked at, so none could have been torn",
        ),
        _ => Judgement::new(
            Verdict::Held,
            format!("each of {checked} renames left one whole version under one name"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{Finding, Outcome};
    use super::super::survey::Renamed;
    use super::super::survey::test_support::stream;
    use super::*;
    use crate::units::StreamId;

    #[test]
    fn one_broken_rename_violates_and_none_looked_at_is_no_pass() {
        let (mut survey, _) = stream(1, &[(1, 2, 3)], 1);
        let verdict = |survey: &StreamSurvey| judge(&[survey]).verdict;
        assert_eq!(verdict(&survey), Verdict::NotMeasured);
        survey.renamed = Renamed { checked: 3, broken: Vec::new() };
        assert_eq!(verdict(&survey), Verdict::Held);
        survey.renamed.broken.push(Finding {
            outcome: Outcome::Hole,
            stream: StreamId(1),
            seq: None,
            location: 0,
            text: "under neither name".to_owned(),
        });
        assert_eq!(verdict(&survey), Verdict::Violated);
    }
}
