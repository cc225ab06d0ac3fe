//! `plugpull scenarios`.

use super::args::ScenariosArgs;
use super::progress::{self, print};
use super::trial::drawn_seed;
use crate::stack::settings;
use crate::tried::options::TriedOptions;
use crate::tried::{render, run};
use anyhow::{Context, Result};

/// Lists the scenarios, or tries them. Returns the exit code.
pub fn run(args: ScenariosArgs) -> Result<u8> {
    if !args.try_them {
        return list(args.json).map(|()| 0);
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = TriedOptions {
        scenarios: args.scenarios,
        seed: args.seed.unwrap_or_else(drawn_seed),
        explore: args.explore.0.context("--explore none has no end; give a time")?,
        suite: args.suite.into(),
        accel: args.accel.map(Into::into),
        runs: args.runs,
    };
    let watch = progress::watch(progress::cancel_on_signals()?);
    watch.note(format!("seed {}", options.seed));
    let command = format!("plugpull {}", words.join(" "));
    let tried = match run::run(&options, command, &watch) {
        Ok(tried) => tried,
        Err(error) => return progress::interrupted_or(error),
    };
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&tried)?),
        false => format!("\n{}", render::markdown(&tried)),
    };
    print(&text)?;
    Ok(tried.exit_code)
}

/// A line for each scenario that comes with the tool.
fn list(json: bool) -> Result<()> {
    let mut lines = Vec::new();
    for name in settings::names() {
        lines.push((name, settings::load(name, &[])?.tries));
    }
    if json {
        let list: Vec<_> = lines
            .iter()
            .map(|(name, tries)| serde_json::json!({ "name": name, "tries": tries }))
            .collect();
        return print(&format!("{}\n", serde_json::to_string_pretty(&list)?));
    }
    lines.iter().try_for_each(|(name, tries)| print(&format!("{name:26} {tries}\n")))
}
