//! One trial of each scenario, and a look at the other cuts of its recording.

use super::options::TriedOptions;
use super::report::{FORMAT, Tried, TriedScenario};
use crate::explore::options::{ExploreOptions, From, In};
use crate::guest::progress::Watch;
use crate::stack::settings;
use crate::trial::options::TrialOptions;
use crate::trial::run::Trial;
use crate::verify::verdict::Verdict;
use crate::{explore, trial};
use anyhow::Result;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

/// Bad usage, or a scenario that could not be tried.
const FAILED: u8 = 2;

/// Tries each scenario. One that cannot be tried does not cost the others.
pub fn run(options: &TriedOptions, command: String, watch: &Watch) -> Result<Tried> {
    let started = Instant::now();
    let names = match options.scenarios.is_empty() {
        true => settings::names().into_iter().map(str::to_owned).collect(),
        false => options.scenarios.clone(),
    };
    // A name that is not one is known before the first guest is started.
    names.iter().try_for_each(|name| settings::load(name, &[]).map(drop))?;
    let mut scenarios = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        watch.note(format!("scenario {} of {}: {name}", nth + 1, names.len()));
        let tried = try_one(name, options, watch);
        watch.check()?;
        scenarios.push(tried.unwrap_or_else(|error| TriedScenario::failed(name, &error)));
    }
    Ok(Tried {
        format: FORMAT,
        command,
        seed: options.seed,
        exit_code: exit_code(&scenarios),
        scenarios,
        took_s: started.elapsed().as_secs_f64(),
    })
}

fn try_one(name: &str, options: &TriedOptions, watch: &Watch) -> Result<TriedScenario> {
    let started = Instant::now();
    let asked = TrialOptions {
        scenario: name.to_owned(),
        sets: Vec::new(),
        seed: options.seed,
        suite: options.suite,
        accel: options.accel,
        runs: options.runs.clone(),
    };
    let Trial { report, folder } = trial::run::run(&asked, watch)?;
    let place = folder.path().display().to_string();
    let mut tried = TriedScenario::of(&report, place, started.elapsed().as_secs_f64());
    if !options.explore.is_zero() {
        match explore_run(folder.path(), options, watch) {
            Ok(explored) => tried.and_explored(&explored.report),
            Err(error) => tried.error = Some(format!("its states: {error:#}")),
        }
    }
    Ok(tried)
}

fn explore_run(
    run: &Path,
    options: &TriedOptions,
    watch: &Watch,
) -> Result<explore::run::Explored> {
    let options = ExploreOptions {
        from: From::Run(run.to_owned()),
        place: In::Guest,
        model: None,
        which: None,
        budget: Some(options.explore),
        recovery_cuts: 0,
        workers: NonZeroUsize::MIN,
    };
    explore::run::run(&options, watch)
}

/// A harness that broke outranks a scenario that could not be tried, which outranks the verdicts.
fn exit_code(scenarios: &[TriedScenario]) -> u8 {
    let verdict = Verdict::of_all(scenarios.iter().map(TriedScenario::verdict));
    match scenarios.iter().any(|scenario| scenario.error.is_some()) {
        true if verdict != Verdict::HarnessBroken => FAILED,
        _ => verdict.exit_code(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tried::report::{ExploredWords, TriedClaim};

    fn tried(trial: Verdict, explored: Verdict) -> TriedScenario {
        let because = String::new();
        let explored = ExploredWords { verdict: explored, held: 1, violated: 0, because };
        let claim = TriedClaim {
            title: "durable x".to_owned(),
            says: String::new(),
            trial,
            because: String::new(),
            explored: Some(explored),
        };
        let failed = TriedScenario::failed("x", &anyhow::anyhow!("no"));
        TriedScenario { claims: vec![claim], error: None, ..failed }
    }

    #[test]
    fn states_that_were_not_all_looked_at_do_not_undo_a_pass_but_a_violation_does() {
        use Verdict::*;
        assert_eq!(exit_code(&[tried(Held, NotMeasured)]), 0);
        assert_eq!(exit_code(&[tried(Held, NotMeasured), tried(Held, Violated)]), 1);
        assert_eq!(exit_code(&[tried(NotMeasured, Held)]), 3);
        assert_eq!(exit_code(&[tried(Held, HarnessBroken)]), 4);
    }

    #[test]
    fn a_scenario_that_could_not_be_tried_is_no_pass_of_the_round() {
        let failed = TriedScenario::failed("x", &anyhow::anyhow!("no room"));
        assert_eq!(exit_code(&[tried(Verdict::Held, Verdict::Held), failed.clone()]), FAILED);
        assert_eq!(exit_code(&[tried(Verdict::HarnessBroken, Verdict::Held), failed]), 4);
        assert_eq!(exit_code(&[]), 3, "nothing tried is nothing measured");
    }
}
