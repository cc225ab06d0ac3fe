//! The package install's rate against a plain loop of the same calls, in the same guest, on
//! sync=disabled, in turn: what intents, event numbers, acks and their messages cost.

use super::turns::{self, Rates, Turns};
use crate::guest::GuestConfig;
use crate::guest::progress::Watch;
use crate::stack::scenario::{PatternName, Scenario};
use crate::stack::settings;
use crate::workload::plan::Plan;
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::time::Duration;

/// The scenario that is measured, with fewer files: each run begins with their old versions.
const SCENARIO: &str = "package-install";
const FILES: u32 = 1_000;

/// What is measured unless told otherwise.
pub const TURNS: Turns = Turns { pairs: 5, run: Duration::from_secs(5) };

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
        // Each run has a folder of its own: removing thousands of files would be most of the time.
        let plan = |pair: u32, who: &str| -> Result<Plan> {
            let (mut plan, _) = turns::plan_of(&scenario, dataset, u64::from(pair))?;
            plan.streams.iter_mut().for_each(|s| s.path = format!("{}-{pair}-{who}", s.path));
            Ok(plan)
        };
        let ours = |pair| turns::load(&mut guest.borrow_mut(), plan(pair, "ours")?, turns.run);
        let plain =
            |pair| turns::plain_loop(&mut guest.borrow_mut(), plan(pair, "plain")?, turns.run);
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
