//! The table for a person: Markdown that also reads well as it is, ready for a README.

use super::report::{Tried, TriedClaim, TriedScenario};
use std::fmt::Write;

/// What is kept of a sentence.
const WORDS_MAX: usize = 200;

/// Scenario, claim, what a trial says, what its other cuts say, and what was found.
pub fn markdown(tried: &Tried) -> String {
    let mut text = String::from(
        "| scenario | claim | one cut | its other cuts | what was found |\n| --- | --- | --- | --- | --- |\n",
    );
    for scenario in &tried.scenarios {
        scenario_rows(&mut text, scenario);
    }
    let _ = writeln!(text, "\n`{}`, seed {}, {:.0} s.", tried.command, tried.seed, tried.took_s);
    text
}

fn scenario_rows(text: &mut String, scenario: &TriedScenario) {
    for claim in &scenario.claims {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            scenario.name,
            claim.title,
            claim.trial,
            explored(claim, scenario.states),
            cell(found(claim))
        );
    }
    if let Some(error) = &scenario.error {
        let _ = writeln!(text, "| {} | | could not be tried | | {} |", scenario.name, cell(error));
    }
}

/// `held in 24 of 1218`, or what was found against it.
fn explored(claim: &TriedClaim, states: Option<(u32, u32)>) -> String {
    match (&claim.explored, states) {
        (Some(words), Some((_, planned))) if words.violated > 0 => {
            format!("violated in {} of {planned}", words.violated)
        }
        (Some(words), Some((known, planned))) if words.held > 0 => {
            format!("held in {} ({known} of {planned} looked at)", words.held)
        }
        (Some(words), Some(_)) => words.verdict.to_string(),
        _ => String::new(),
    }
}

/// What decided: the exploration's sentence where that found something against the claim.
fn found(claim: &TriedClaim) -> &str {
    match &claim.explored {
        Some(words) if words.violated > 0 => &words.because,
        _ => &claim.because,
    }
}

/// One cell: no line breaks, no bars, not too long.
fn cell(text: &str) -> String {
    let one_line = text.replace('\n', " ").replace('|', "\\|");
    match one_line.char_indices().nth(WORDS_MAX) {
        Some((at, _)) => format!("{}...", &one_line[..at]),
        None => one_line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tried::report::{ExploredWords, FORMAT};
    use crate::verify::verdict::Verdict;

    #[test]
    fn a_row_says_what_one_cut_and_the_others_found_and_a_failure_has_one_too() {
        let claim = |explored| TriedClaim {
            title: "durable billing".to_owned(),
            says: String::new(),
            trial: Verdict::Held,
            because: "all 5 | acked\nare there".to_owned(),
            explored,
        };
        let words = |verdict, held, violated| {
            Some(ExploredWords { verdict, held, violated, because: "it lost 3".to_owned() })
        };
        let failed = TriedScenario::failed("odd", &anyhow::anyhow!("no such disk"));
        let scenario = TriedScenario {
            name: "zfs".to_owned(),
            claims: vec![
                claim(words(Verdict::Violated, 3, 2)),
                claim(words(Verdict::NotMeasured, 4, 0)),
                claim(None),
            ],
            error: None,
            states: Some((5, 90)),
            ..failed.clone()
        };
        let tried = Tried {
            format: FORMAT,
            command: "plugpull scenarios --try".to_owned(),
            seed: 7,
            scenarios: vec![scenario, failed],
            exit_code: 2,
            took_s: 12.3,
        };
        let text = markdown(&tried);
        for row in [
            "| zfs | durable billing | held | violated in 2 of 90 | it lost 3 |",
            "| zfs | durable billing | held | held in 4 (5 of 90 looked at) | all 5 \\| acked are there |",
            "| zfs | durable billing | held |  | all 5 \\| acked are there |",
            "| odd | | could not be tried | | no such disk |",
        ] {
            assert!(text.contains(row), "{row} is missing in\n{text}");
        }
    }
}
