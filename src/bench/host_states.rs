//! How many crash states of ext4 a second this machine's own kernel verifies.
//!
//! Measured twice with the same size and number of files: by the very code of `plugpull explore --in
//! host`, and on the device alone, with a bench's own reading and no oracle. What lies between them
//! is what the tool adds; what the device alone takes is the kernel's, its tools' and the way to them.

use crate::explore::cuts::Which;
use crate::explore::options::{ExploreOptions, From, In};
use crate::explore::run::run;
use crate::guest::Suite;
use crate::guest::progress::Watch;
use crate::host::bench::{StatesBench, StatesRate, measure_states};
use crate::stack::scenario::ClaimKind;
use crate::trial::host::record_in_host;
use crate::trial::options::TrialOptions;
use crate::verify::verdict::Verdict;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;

/// 200 files on 256 MiB, each appended to once a second and forced to disk.
const SCENARIO: &str = include_str!("ext4-200-files.toml");
/// Workers, run by run.
const WORKERS: [usize; 3] = [1, 2, 4];
/// States of each run.
const STATES: NonZeroU32 = NonZeroU32::new(200).unwrap();

/// States a second with so many workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostRate {
    /// Workers.
    pub workers: usize,
    /// States that were looked at and judged.
    pub states: usize,
    /// A second, from opening the recording to its report.
    pub per_s: f64,
    /// Milliseconds for a state, the median.
    pub state_ms_median: Option<u64>,
    /// A second, on the device alone.
    pub device_per_s: f64,
    /// What each step took on the device alone, in ms a state.
    pub device_steps_ms: Vec<(&'static str, f64)>,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostStates {
    /// One for each number of workers.
    pub rates: Vec<HostRate>,
}

impl fmt::Display for HostStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ext4, 256 MiB, 200 files, on this machine's own kernel:")?;
        for rate in &self.rates {
            let steps: Vec<String> =
                rate.device_steps_ms.iter().map(|(name, ms)| format!("{name} {ms:.1}")).collect();
            writeln!(
                f,
                "  {} workers: {:.1} states a second ({}, judged); the device alone {:.1} (ms a \
                 state: {})",
                rate.workers,
                rate.per_s,
                rate.states,
                rate.device_per_s,
                steps.join(", ")
            )?;
        }
        Ok(())
    }
}

/// Measures; runs are kept in `folder`.
pub fn measure(folder: &Path, watch: &Watch) -> Result<HostStates> {
    let scenario = folder.join("ext4-200-files.toml");
    fs::write(&scenario, SCENARIO)
        .with_context(|| format!("cannot write {}", scenario.display()))?;
    let options = TrialOptions {
        scenario: scenario.display().to_string(),
        sets: Vec::new(),
        seed: 7,
        suite: Suite::default(),
        accel: None,
        runs: folder.join("ext4"),
    };
    let (recorded, _) = record_in_host(&options, watch)?;
    watch.stage("the device alone");
    let alone = folder.join("device");
    fs::create_dir(&alone).with_context(|| format!("cannot make {}", alone.display()))?;
    let states = STATES.get() as usize;
    let bench = StatesBench { workers: WORKERS.to_vec(), states, ..StatesBench::default() };
    let device = measure_states(&alone, &bench)?;
    let rates = device.iter().map(|device| rate(recorded.path(), device, watch));
    Ok(HostStates { rates: rates.collect::<Result<_>>()? })
}

fn rate(recorded: &Path, device: &StatesRate, watch: &Watch) -> Result<HostRate> {
    watch.check()?;
    let options = ExploreOptions {
        from: From::Run(recorded.to_owned()),
        place: In::Host,
        model: None,
        which: Some(Which::Sample { states: STATES }),
        budget: None,
        recovery_cuts: 0,
        workers: NonZeroUsize::new(device.workers).unwrap_or(NonZeroUsize::MIN),
    };
    let explored = run(&options, watch)?;
    let report = &explored.report;
    let looked = report.states.known - report.states.equal;
    // The next number of workers must not find the states known.
    fs::remove_dir_all(&explored.folder)
        .with_context(|| format!("cannot remove {}", explored.folder.display()))?;
    let consistent = report.claims.iter().find(|claim| claim.kind == ClaimKind::Consistent);
    ensure!(
        consistent.is_some_and(|claim| claim.verdict == Verdict::Held),
        "states that are not consistent cannot be compared: {:?}",
        consistent.map(|claim| &claim.because)
    );
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3 / device.states.max(1) as f64;
    let steps = &device.steps;
    Ok(HostRate {
        workers: device.workers,
        states: looked as usize,
        per_s: f64::from(looked) / report.cost.took_s,
        state_ms_median: report.cost.state_ms_median,
        device_per_s: device.states as f64 / device.took.as_secs_f64(),
        device_steps_ms: vec![
            ("prepare", ms(steps.prepare)),
            ("insert", ms(steps.insert)),
            ("mount", ms(steps.mount)),
            ("read", ms(steps.read)),
            ("unmount", ms(steps.unmount)),
            ("check", ms(steps.check)),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::settings::parse;

    #[test]
    fn the_scenario_is_sound_and_as_large_as_it_says() {
        let scenario = parse("ext4-200-files.toml", SCENARIO, &[]).expect("sound");
        let files: u32 =
            scenario.dataset.values().flat_map(|d| &d.stream).map(|stream| stream.count).sum();
        assert_eq!((scenario.disk.size_mib, files), (256, 200));
    }
}
