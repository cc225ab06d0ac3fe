//! `plugpull trial` and `plugpull judge`.

use super::args::{CutArg, JudgeArgs, TrialArgs};
use super::progress::{self, print};
use crate::trial::folder::RunDir;
use crate::trial::options::TrialOptions;
use crate::trial::report::TrialReport;
use crate::trial::{render, run};
use anyhow::Result;
use rand::RngExt;

/// Seeds that are drawn stay short enough to be typed.
const SEED_MAX: u64 = 1_000_000;

/// Runs a trial and prints it. Returns the exit code.
pub fn run(args: TrialArgs) -> Result<u8> {
    let json = args.json;
    let options = options(args);
    let watch = progress::watch(progress::cancel_on_signals()?);
    watch.note(format!("seed {}", options.seed));
    let trial = match run::run(&options, &watch) {
        Ok(trial) => trial,
        Err(error) => return progress::interrupted_or(error),
    };
    show(&trial.report, &trial.folder, json)
}

/// Judges a finished run again. Returns the exit code.
pub fn judge(args: JudgeArgs) -> Result<u8> {
    let folder = RunDir::open(&args.run);
    show(&run::judge_run(&folder)?, &folder, args.json)
}

fn show(report: &TrialReport, folder: &RunDir, json: bool) -> Result<u8> {
    let text = if json {
        format!("{}\n", serde_json::to_string_pretty(report)?)
    } else {
        let place = folder.path().join("report.md");
        format!("\n{}", render::summary(report, &place.display().to_string()))
    };
    print(&text)?;
    Ok(report.exit_code)
}

/// Flags that stand for a field of the scenario come after the `--set`s, so that they win.
pub fn options(args: TrialArgs) -> TrialOptions {
    let mut sets = args.sets;
    sets.extend(args.load_seconds.map(|s| format!("cut.load_seconds={s:?}")));
    sets.extend(args.crash_model.map(|model| format!("cut.crash_model={model}")));
    sets.extend(args.cut.map(|cut| match cut {
        CutArg::Worst => "cut.when=worst".to_owned(),
        CutArg::Uniform => "cut.when=uniform".to_owned(),
    }));
    TrialOptions {
        scenario: args.scenario,
        sets,
        seed: args.seed.unwrap_or_else(drawn_seed),
        suite: args.suite.into(),
        accel: args.accel.map(Into::into),
        runs: args.runs,
    }
}

/// A seed, where none is given.
pub fn drawn_seed() -> u64 {
    rand::rng().random_range(1..SEED_MAX)
}
