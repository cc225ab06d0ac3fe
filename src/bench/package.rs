//! The package install's rate against a plain loop of the same calls, in the same guest, on
//! sync=disabled, in turn: what intents, event numbers, acks and their messages cost.

use super::turns::{self, Rates, Turns};
use crate::guest::GuestConfig;
use crate::guest::progress::Watch;
use crate::stack::scenario::{PatternName, Scenario};
use crate::stack::settings;
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::time::Duration;

/// The scenario that is measured, with fewer files: each run begins with their old versions.
const SCENARIO: &str = "package-install";
const FILES: u32 = 1_000;

/// What is measured unless told otherwise.
pub const TURNS: Turns = Turns { pairs: 5, run: Duration::from_secs(6) };

/// Measures.
pub fn compare(turns: Turns, watch: &Watch) -> Result<Rates> {
    let scenario = settings::load(SCENARIO, &[])?;
    let config = GuestConfig {
        memory_mib: scenario.guest.memory_mib,
        cpus: scenario.guest.cpus,
        ..GuestConfig::default()
    };
    turns::in_guest(&scenario, config, watch, |guest| {
        let scenario = fewer_files(&scenario);
        let dataset = scenario.dataset.keys().next().context("no dataset")?;
        let mut rates = Rates {
            what: "sync=disabled".to_owned(),
            ours: Vec::new(),
            other: Vec::new(),
            other_name: "plain loop",
            unit: "calls of a package install/s",
        };
        let guest = RefCell::new(guest);
        let ours = |pair: u32| {
            let (plan, path) = turns::plan_of(&scenario, dataset, u64::from(pair))?;
            let mut guest = guest.borrow_mut();
            let rate = turns::load(&mut guest, plan, turns.run)?;
            turns::remove(&mut guest, &path).map(|()| rate)
        };
        let plain = |pair: u32| {
            let (plan, path) = turns::plan_of(&scenario, dataset, u64::from(pair))?;
            let mut guest = guest.borrow_mut();
            let rate = turns::plain_loop(&mut guest, plan, turns.run)?;
            turns::remove(&mut guest, &path).map(|()| rate)
        };
        rates.take(turns, watch, ours, plain)?;
        Ok(rates)
    })
}

fn fewer_files(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    let streams = scenario.dataset.values_mut().flat_map(|dataset| &mut dataset.stream);
    for stream in streams.filter(|stream| stream.pattern == PatternName::PackageInstall) {
        stream.files = Some(FILES);
    }
    scenario
}
