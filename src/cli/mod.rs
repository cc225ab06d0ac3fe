//! The command line: what was typed, and what it means.

mod agree;
mod args;
mod audit;
mod bench;
mod explore;
mod log;
mod mutants;
mod progress;
mod scenarios;
mod shrink;
mod trial;

use args::{Args, Command};
use clap::Parser;
use std::process::ExitCode;

/// Bad usage, bad input, or a trial that could not be run to its end.
const FAILED: u8 = 2;

/// Runs the command line.
pub fn run() -> ExitCode {
    let result = match Args::parse().command {
        Command::Trial(args) => trial::run(args),
        Command::Agree(args) => agree::run(args),
        Command::Audit(args) => audit::run(args),
        Command::Explore(args) => explore::run(args),
        Command::Mutants(args) => mutants::run(args),
        Command::Bench(args) => bench::run(args.what),
        Command::Log(args) => log::run(args),
        Command::Judge(args) => trial::judge(args),
        Command::Shrink(args) => shrink::run(args),
        Command::Scenarios(args) => scenarios::run(args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            progress::say(&format!("plugpull: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}
