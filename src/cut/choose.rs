//! The instant of a cut, from the scenario and the seed.

use crate::stack::scenario::{CutSpec, CutWhen};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// Sets the cut's draws apart from everything else that a seed decides.
const LANE: u64 = 0x6375_7400;
/// Periods (of a txg's timer, where there is one) over which a uniform cut is drawn, so that it is not locked to the
/// phase of the load's start.
const PERIODS: f64 = 3.0;
/// No cut before this, in seconds: there must be a load.
const EARLIEST_S: f64 = 0.5;

/// When to cut, in nanoseconds from the load's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "when")]
pub enum CutPlan {
    /// Just before the nth commit after an instant becomes durable.
    Worst {
        /// Commits before this do not count.
        after_ns: u64,
        /// Which commit from then, counted from 1.
        commit: u32,
    },
    /// At an instant.
    Uniform {
        /// Which.
        at_ns: u64,
    },
}

/// Draws the cut. `load_seconds` is the middle of what may be drawn: half of three periods (see
/// `Scenario::cut_period_s`) before it to half of three after it.
pub fn choose(spec: &CutSpec, period_s: f64, seed: u64) -> CutPlan {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ LANE);
    let from = (spec.load_seconds - PERIODS / 2.0 * period_s).max(EARLIEST_S);
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    match spec.when {
        CutWhen::Worst => CutPlan::Worst { after_ns: ns(from), commit: rng.random_range(1..=2) },
        CutWhen::Uniform => {
            let until = spec.load_seconds + PERIODS / 2.0 * period_s;
            CutPlan::Uniform { at_ns: ns(rng.random_range(from..until)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::crash::CrashModel;

    fn spec(when: CutWhen, load_seconds: f64) -> CutSpec {
        CutSpec {
            when,
            script: "cut-qemu-kill".to_owned(),
            load_seconds,
            crash_model: CrashModel::DropUnflushed,
        }
    }

    #[test]
    fn uniform_cuts_fill_three_periods_around_the_load_time_and_follow_the_seed() {
        let at = |seed| match choose(&spec(CutWhen::Uniform, 15.0), 5.0, seed) {
            CutPlan::Uniform { at_ns } => at_ns as f64 / 1e9,
            CutPlan::Worst { .. } => panic!("not asked for"),
        };
        let all: Vec<f64> = (0..400).map(at).collect();
        assert!(all.iter().all(|s| (7.5..22.5).contains(s)));
        for third in 0..3 {
            let from = 7.5 + 5.0 * f64::from(third);
            let here = all.iter().filter(|s| (from..from + 5.0).contains(*s)).count();
            assert!((90..=180).contains(&here), "{here} of 400 in one of three periods");
        }
        assert_eq!(at(3), at(3));
    }

    #[test]
    fn worst_cuts_wait_for_enough_load_and_the_seed_picks_the_commit() {
        let picks: Vec<CutPlan> =
            (0..64).map(|seed| choose(&spec(CutWhen::Worst, 15.0), 5.0, seed)).collect();
        for commit in 1..=2 {
            assert!(picks.contains(&CutPlan::Worst { after_ns: 7_500_000_000, commit }));
        }
        let short = choose(&spec(CutWhen::Worst, 1.0), 5.0, 1);
        assert!(matches!(short, CutPlan::Worst { after_ns: 500_000_000, .. }));
    }
}
