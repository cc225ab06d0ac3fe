//! `plugpull explore`.

use super::args::ExploreArgs;
use super::args::InArg;
use super::progress::{self, print};
use super::trial;
use crate::disk::CrashModel;
use crate::explore::options::{ExploreOptions, From, In};
use crate::explore::{render, run};
use anyhow::{Result, bail};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

/// Explores and prints. Returns the exit code.
pub fn run(args: ExploreArgs) -> Result<u8> {
    let json = args.trial.json;
    let options = options(args)?;
    let watch = progress::watch(progress::cancel_on_signals()?);
    if let From::Record(trial) = &options.from {
        watch.note(format!("seed {}", trial.seed));
    }
    let explored = match run::run(&options, &watch) {
        Ok(explored) => explored,
        Err(error) => return progress::interrupted_or(error),
    };
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(&explored.report)?),
        false => {
            let folder = explored.folder.display().to_string();
            format!("\n{}", render::summary(&explored.report, &folder))
        }
    };
    print(&text)?;
    Ok(explored.report.exit_code)
}

fn options(args: ExploreArgs) -> Result<ExploreOptions> {
    let path = Path::new(&args.trial.scenario);
    let is_run = path.join("facts.json").exists();
    if path.is_dir() && !is_run {
        bail!(
            "{} is a folder without facts.json, so it is no finished run; give a scenario's name, \
             its file, or the folder of a run",
            path.display()
        );
    }
    let model = args.trial.crash_model;
    if args.recovery_cuts > 0 && matches!(model, Some(CrashModel::Unsafe { .. })) {
        bail!(
            "a recovery has no load from which on an unsafe disk would ignore flushes: leave out \
             --recovery-cuts, or take another crash model"
        );
    }
    let from = match is_run {
        true => {
            refuse_for_a_run(&args)?;
            From::Run(path.to_owned())
        }
        false => From::Record(trial::options(args.trial)),
    };
    let place = match args.place {
        InArg::Guest => In::Guest,
        InArg::Host => In::Host,
    };
    Ok(ExploreOptions {
        from,
        place,
        workers: args.workers.unwrap_or_else(|| suiting(place)),
        model,
        which: args.cuts,
        budget: args.budget.0,
        recovery_cuts: args.recovery_cuts,
    })
}

/// Two emulated guests on two cores gain nothing over one; mounts of this machine's wait enough for
/// a second to pay.
fn suiting(place: In) -> NonZeroUsize {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    match place {
        In::Guest => NonZeroUsize::new(cores.get() / 4).unwrap_or(NonZeroUsize::MIN),
        In::Host => cores,
    }
}

/// What was recorded cannot be varied any more.
fn refuse_for_a_run(args: &ExploreArgs) -> Result<()> {
    let trial = &args.trial;
    let given = [
        ("--set", !trial.sets.is_empty()),
        ("--seed", trial.seed.is_some()),
        ("--load-seconds", trial.load_seconds.is_some()),
        ("--cut", trial.cut.is_some()),
        ("--accel", trial.accel.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => bail!(
            "{flag} would vary the recording, but {} is recorded already; leave it out, or give a \
             scenario",
            trial.scenario
        ),
        None => Ok(()),
    }
}

/// `--budget`: a time, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget(pub Option<Duration>);

impl std::str::FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Budget, String> {
        if text == "none" {
            return Ok(Budget(None));
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "s" | "" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => f64::NAN,
        };
        let seconds = digits.parse::<f64>().map_or(f64::NAN, |n| n * unit);
        match Duration::try_from_secs_f64(seconds) {
            Ok(budget) => Ok(Budget(Some(budget))),
            Err(_) => Err("give a time such as 90s, 10m or 2h, or none".to_owned()),
        }
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(budget) => write!(f, "{}s", budget.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_time_with_a_unit_or_none() {
        let budget = |text: &str| text.parse::<Budget>().map(|budget| budget.0);
        let seconds = |n| Ok(Some(Duration::from_secs(n)));
        assert_eq!(budget("90"), seconds(90));
        assert_eq!(budget("90s"), seconds(90));
        assert_eq!(budget("1.5m"), seconds(90));
        assert_eq!(budget("2h"), seconds(7200));
        assert_eq!(budget("none"), Ok(None));
        for bad in ["", "m", "-1s", "10d", "1e30h", "NaN"] {
            assert!(budget(bad).is_err(), "{bad}");
        }
    }
}
