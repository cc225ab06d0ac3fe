//! `plugpull bench`.

use super::args::{BenchWhat, ExploreBenchArg, ExploreBenchArgs};
use super::progress::{self, print};
use crate::bench::{explore, package, workload};
use crate::disk::bench as disk;
use crate::guest::host::{FOR_CLIENTS, ensure_programs};
use crate::guest::run_folder::RunFolder;
use anyhow::Result;

/// Measures and prints. Returns the exit code.
pub fn run(what: BenchWhat) -> Result<u8> {
    let watch = progress::watch(progress::cancel_on_signals()?);
    match what {
        BenchWhat::Explore(args) => match explore::measure(asked(args), &watch) {
            Ok(report) if args.json => {
                print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
            }
            Ok(report) => print(&report.to_string())?,
            Err(error) => return progress::interrupted_or(error),
        },
        BenchWhat::Disk => {
            ensure_programs(&FOR_CLIENTS, &watch)?;
            // A folder that the next start sweeps, should this be killed.
            let folder = RunFolder::new()?;
            let config =
                disk::BenchConfig { folder: folder.path().to_owned(), ..Default::default() };
            match disk::compare(&config, &watch) {
                Ok(report) => print(&format!("{report}\n"))?,
                Err(error) => return progress::interrupted_or(error.into()),
            }
        }
        BenchWhat::Workload => match workload::compare(workload::TURNS, &watch) {
            Ok(all) => all.iter().try_for_each(|rates| print(&format!("{rates}\n")))?,
            Err(error) => return progress::interrupted_or(error),
        },
        BenchWhat::Package => match package::compare(package::TURNS, &watch) {
            Ok(rates) => print(&format!("{rates}\n"))?,
            Err(error) => return progress::interrupted_or(error),
        },
    }
    Ok(0)
}

fn asked(args: ExploreBenchArgs) -> explore::ExploreBench {
    let has = |what| args.what == what || args.what == ExploreBenchArg::All;
    explore::ExploreBench {
        zfs: has(ExploreBenchArg::Zfs),
        ext4: has(ExploreBenchArg::Ext4),
        prepare: has(ExploreBenchArg::Prepare),
        states: args.states,
    }
}
