//! The workload's rate against fio's, in the same guest, on the same datasets, in turn.
//!
//! Both write 4 KiB and fsync, one job, one file, as fast as they go; ours also makes a record,
//! takes event numbers and sends an ack for each operation to the lab, which records it.

use super::turns::{self, Rates, SHORT, Turns};
use crate::guest::progress::Watch;
use crate::guest::{Guest, GuestConfig};
use crate::stack::scenario::{PatternName, Scenario, StreamSpec};
use crate::stack::settings;
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::time::Duration;

/// What is measured unless told otherwise, on each dataset.
pub const TURNS: Turns = Turns { pairs: 5, run: Duration::from_secs(8) };

/// Measures both datasets of the default scenario.
pub fn compare(turns: Turns, watch: &Watch) -> Result<Vec<Rates>> {
    let scenario = one_stream_each()?;
    let config = GuestConfig { bench: true, ..GuestConfig::default() };
    turns::in_guest(&scenario, config, watch, |guest| rates(guest, &scenario, turns, watch))
}

fn one_stream_each() -> Result<Scenario> {
    let mut scenario = settings::load(settings::DEFAULT, &[])?;
    let append = StreamSpec::of(PatternName::Append);
    for dataset in scenario.dataset.values_mut() {
        dataset.stream = vec![append.clone()];
    }
    Ok(scenario)
}

fn rates(
    guest: &mut Guest,
    scenario: &Scenario,
    turns: Turns,
    watch: &Watch,
) -> Result<Vec<Rates>> {
    let guest = RefCell::new(guest);
    let mut all = Vec::new();
    for (name, spec) in &scenario.dataset {
        let mut rates = Rates {
            what: format!("sync={}", spec.sync.as_str()),
            ours: Vec::new(),
            other: Vec::new(),
            other_name: "fio",
            unit: "forced 4 KiB writes/s",
        };
        let mountpoint = scenario.mountpoint(name);
        let ours = |pair: u32| {
            let (plan, path) = turns::plan_of(scenario, name, u64::from(pair))?;
            let mut guest = guest.borrow_mut();
            let rate = turns::load(&mut guest, plan, turns.run)?;
            turns::remove(&mut guest, &path).map(|()| rate)
        };
        let fio = |_| fio(&mut guest.borrow_mut(), &mountpoint, turns.run);
        rates.take(turns, watch, ours, fio)?;
        all.push(rates);
    }
    Ok(all)
}

/// fio's own figure for the same calls on the same dataset.
fn fio(guest: &mut Guest, folder: &str, run: Duration) -> Result<f64> {
    let (file, runtime) =
        (format!("--filename={folder}/fio"), format!("--runtime={}", run.as_secs()));
    let argv = [
        "fio",
        "--name=forced",
        &file,
        "--rw=write",
        "--bs=4k",
        "--fsync=1",
        "--ioengine=psync",
        "--size=256m",
        "--time_based",
        &runtime,
        "--numjobs=1",
        "--output-format=json",
        "--thread",
        "--fallocate=none",
    ];
    let output = guest.control.run(&argv, run + SHORT)?.stdout;
    let json: serde_json::Value = serde_json::from_str(&output[output.find('{').unwrap_or(0)..])
        .with_context(|| format!("fio's JSON cannot be read: {output:.200}"))?;
    guest.control.run(&["busybox", "rm", "-f", &format!("{folder}/fio")], SHORT)?;
    json["jobs"][0]["write"]["iops"].as_f64().context("fio's JSON has no jobs[0].write.iops")
}
