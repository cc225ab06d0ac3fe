//! `plugpull mutants`.

use super::args::MutantsArgs;
use super::progress::{self, print};
use crate::mutants::options::MutantsOptions;
use crate::mutants::{finding, render, run};
use anyhow::{Context, Result};

/// Plants every fault and prints the table. Returns the exit code.
pub fn run(args: MutantsArgs) -> Result<u8> {
    if args.list {
        print(&render::list())?;
        return Ok(0);
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = format!("plugpull {}", words.join(" "));
    let options = MutantsOptions {
        only: args.only,
        seed: args.seed,
        host_only: args.host_only,
        controls: args.controls,
        suite: args.suite.into(),
        accel: args.accel.map(Into::into),
        runs: args.runs,
    };
    let watch = progress::watch(progress::cancel_on_signals()?);
    let table = match run::run(&options, command, &watch) {
        Ok(table) => table,
        Err(error) => return progress::interrupted_or(error),
    };
    if let Some(findings) = &args.write_finding {
        let folder = finding::write(findings, &table)
            .with_context(|| format!("cannot write the finding in {}", findings.display()))?;
        watch.note(format!("the finding is in {}", folder.display()));
    }
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&table)?),
        false => format!("\n{}", render::terminal(&table)),
    };
    print(&text)?;
    Ok(table.exit_code)
}
