//! `plugpull shrink`.

use super::args::{InArg, ShrinkArgs};
use super::progress::{self, print};
use crate::explore::options::In;
use crate::shrink::run::{self, ShrinkOptions};
use crate::units::StreamId;
use anyhow::Result;
use std::fmt::Write;

/// Shrinks a failing script and prints what is left of it. Returns the exit code: a script that fails was
/// found.
pub fn run(args: ShrinkArgs) -> Result<u8> {
    let options = ShrinkOptions {
        run: args.run,
        claim: args.claim,
        stream: args.stream.map(StreamId),
        place: match args.place {
            InArg::Guest => In::Guest,
            InArg::Host => In::Host,
        },
        budget: args.budget.0,
    };
    let watch = progress::watch(progress::cancel_on_signals()?);
    let shrunk = match run::run(&options, &watch) {
        Ok(shrunk) => shrunk,
        Err(error) => return progress::interrupted_or(error),
    };
    let path = run::write(&shrunk.scenario, &options.run)?;
    let mut text = String::new();
    for line in &shrunk.lines {
        let _ = writeln!(text, "{line}");
    }
    let how = match shrunk.is_cut_short {
        true => "the budget ended the search: it may not be minimal",
        false => "leaving out any one of them, it passes",
    };
    let _ = writeln!(
        text,
        "\n{} of {} operations still violate {} ({} scripts tried; {how})\n{}",
        shrunk.lines.len(),
        shrunk.from,
        options.claim.name(),
        shrunk.tried,
        path.display()
    );
    print(&text)?;
    Ok(1)
}
