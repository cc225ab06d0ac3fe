//! Ours and another's rate in one guest, in turn, as pairs.

use crate::agent::protocol::{Reply, Request};
use crate::disk::{DiskConfig, DiskServer, Timing};
use crate::guest::disk::{DiskBus, DiskSource};
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use crate::guest::{Guest, GuestConfig, Lab, Start};
use crate::stack::build::build;
use crate::stack::scenario::Scenario;
use crate::trial::live::Collector;
use crate::trial::run::new_trace;
use crate::units::RunId;
use crate::workload::plan::Plan;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::time::Duration;

const PREPARE: Duration = Duration::from_secs(120);
/// For what takes no time.
pub const SHORT: Duration = Duration::from_secs(60);

/// How often and how long.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    /// Pairs of runs.
    pub pairs: u32,
    /// Length of each run.
    pub run: Duration,
}

/// Operations a second, pair by pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// What was measured.
    pub what: String,
    /// Ours.
    pub ours: Vec<f64>,
    /// The other's.
    pub other: Vec<f64>,
    /// The other's name.
    pub other_name: &'static str,
    /// What is counted.
    pub unit: &'static str,
}

impl Rates {
    /// The median over the pairs of ours by the other's.
    pub fn ratio(&self) -> f64 {
        let mut ratios: Vec<f64> = self.ours.iter().zip(&self.other).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Runs both in turn. The first pair does not count: the pool's file is sparse, and until its
    /// blocks are there, each fsync also waits for ext4's journal. Who goes first alternates.
    pub fn take(
        &mut self,
        turns: Turns,
        watch: &Watch,
        mut ours: impl FnMut(u32) -> Result<f64>,
        mut other: impl FnMut(u32) -> Result<f64>,
    ) -> Result<()> {
        for pair in 0..=turns.pairs {
            watch.check()?;
            watch.tell(Progress::Part {
                stage: self.what.clone(),
                done: u64::from(pair),
                total: u64::from(turns.pairs) + 1,
                text: format!(
                    "ours and {} in turn, {} s each",
                    self.other_name,
                    turns.run.as_secs()
                ),
            });
            let (own, others) = if pair % 2 == 0 {
                let own = ours(pair)?;
                (own, other(pair)?)
            } else {
                let others = other(pair)?;
                (ours(pair)?, others)
            };
            if pair > 0 {
                self.ours.push(own);
                self.other.push(others);
            }
        }
        Ok(())
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |rates: &[f64]| {
            let text: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
            text.join(" ")
        };
        write!(
            f,
            "{:14} ratio {:.2}   ours {}   {} {}  ({}, pair by pair)",
            self.what,
            self.ratio(),
            list(&self.ours),
            self.other_name,
            list(&self.other),
            self.unit
        )
    }
}

/// A guest with this scenario's stack, whose messages are recorded as in a trial.
pub fn in_guest<T>(
    scenario: &Scenario,
    config: GuestConfig,
    watch: &Watch,
    act: impl FnOnce(&mut Guest) -> Result<T>,
) -> Result<T> {
    let lab = Lab::prepare(config, watch)?;
    let folder = RunFolder::new()?;
    let trace = folder.path().join("trace");
    let recorder = new_trace(&trace, RunId([0; 16]), scenario.disk.size_mib << 20)?;
    let timing = Timing::default();
    let disk = DiskConfig { socket: folder.path().join("disk"), base: None, timing };
    let (disk, _events) = DiskServer::start(disk, recorder.clone())?;
    let mut guest = lab.start(Start::Saved, None)?;
    let added = guest.add_disk(&DiskSource::nbd(disk.socket()), DiskBus::VirtioBlk)?;
    build(&mut guest.control, scenario, &added.device, watch)?;
    let messages = guest.take_messages().context("the messages port was taken twice")?;
    let collector = Collector::start(messages, recorder.clone())?;
    let all = act(&mut guest);
    guest.kill();
    collector.finish()?;
    all
}

/// The plan of a scenario's only stream on a dataset, and its path in the guest.
pub fn plan_of(scenario: &Scenario, dataset: &str, seed: u64) -> Result<(Plan, String)> {
    let mut plan: Plan = scenario.plan(RunId([seed as u8; 16]), seed);
    plan.streams.retain(|stream| stream.dataset == dataset);
    let path = plan.streams.first().context("no stream writes to the dataset")?.path.clone();
    Ok((plan, path))
}

/// Acked operations a second of a plan's only stream.
pub fn load(guest: &mut Guest, plan: Plan, run: Duration) -> Result<f64> {
    guest.control.call(Request::Prepare(plan), PREPARE)?;
    guest.control.call(Request::StartLoad, SHORT)?;
    std::thread::sleep(run);
    rate(guest.control.call(Request::StopLoad, SHORT)?)
}

/// The same calls in a plain loop.
pub fn plain_loop(guest: &mut Guest, plan: Plan, run: Duration) -> Result<f64> {
    let request = Request::PlainLoop { plan, run_ms: run.as_millis() as u64 };
    rate(guest.control.call(request, PREPARE + run)?)
}

/// Removes the file that a run made.
pub fn remove(guest: &mut Guest, path: &str) -> Result<()> {
    guest.control.run(&["busybox", "rm", "-f", path], SHORT)?;
    Ok(())
}

fn rate(reply: Reply) -> Result<f64> {
    match reply {
        Reply::Rates(rates) if rates.len() == 1 && rates[0].elapsed_ns > 0 => {
            Ok(rates[0].acked as f64 * 1e9 / rates[0].elapsed_ns as f64)
        }
        other => bail!("the load ended with {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_over_the_pairs() {
        let rates = Rates {
            what: "x".to_owned(),
            ours: vec![9.0, 1.0, 5.0],
            other: vec![10.0, 10.0, 10.0],
            other_name: "y",
            unit: "z",
        };
        assert_eq!(rates.ratio(), 0.5);
        assert!(rates.to_string().contains("ratio 0.50   ours 9 1 5   y 10 10 10  (z"));
    }
}
