//! `plugpull agree`.

use super::args::AgreeArgs;
use super::progress::{self, print};
use super::trial;
use crate::agree::run;
use crate::stack::settings;
use anyhow::{Result, bail};

/// Compares and prints. Returns the exit code.
pub fn run(args: AgreeArgs) -> Result<u8> {
    let (json, count) = (args.trial.json, args.count.get());
    let mut options = trial::options(args.trial);
    // Cuts spread over the load, unless something else is asked for; a smaller disk is hashed faster.
    let scenario = settings::load(&options.scenario, &options.sets)?;
    if scenario.stack.zfs().is_none() {
        bail!(
            "{} has no pool: survivors are predicted from transaction groups, so give a scenario on ZFS",
            scenario.name
        );
    }
    if scenario.stack.has_volumes() {
        bail!(
            "{} has another file system on its pool's volumes, which may hold back what returned: \
             survivors are predicted for datasets of ZFS's own only",
            scenario.name
        );
    }
    let defaults = ["cut.when=uniform", "disk.size_mib=1536", "stack.pool_mib=1280"];
    options.sets.splice(0..0, defaults.map(str::to_owned));
    let watch = progress::watch(progress::cancel_on_signals()?);
    watch.note(format!("seeds from {}", options.seed));
    match run::run(&options, count, &watch) {
        Ok(report) => {
            let text = match json {
                true => serde_json::to_string_pretty(&report)?,
                false => report.to_string(),
            };
            print(&format!("{text}\n"))?;
            Ok(report.exit_code())
        }
        Err(error) => progress::interrupted_or(error),
    }
}
