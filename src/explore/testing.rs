//! Facts and outcomes made by hand, for tests.

use super::cuts::{PlannedCut, Why};
use super::state::{Place, StateClaim, StateFate, StateOutcome};
use crate::cut::choose::CutPlan;
use crate::guest::{Accel, Suite};
use crate::history::clock::LabInterval;
use crate::stack::settings;
use crate::trace::EntryNo;
use crate::trial::facts::RunFacts;
use crate::trial::report::Versions;
use crate::units::{LabNs, RunId};
use crate::verify::verdict::Verdict;
use std::collections::BTreeMap;

/// A run of the default scenario.
pub fn facts() -> RunFacts {
    let scenario = settings::load(settings::DEFAULT, &[]).expect("the default");
    RunFacts {
        format: 1,
        sha256: BTreeMap::new(),
        seed: 7,
        asked: settings::DEFAULT.to_owned(),
        sets: Vec::new(),
        plan: scenario.plan(RunId([1; 16]), 7),
        scenario,
        versions: Versions {
            plugpull: String::new(),
            qemu: String::new(),
            suite: Suite::Trixie,
            kernel: String::new(),
            stack: String::new(),
            image_sha256: String::new(),
            full_root_sha256: None,
        },
        acceleration: Some(Accel::Tcg),
        limits: None,
        cut: CutPlan::Uniform { at_ns: 0 },
        power_off_s: 0.0,
        guest_cpu_slowdown: 1.0,
        begins_at: None,
        notes: Vec::new(),
        stages: Vec::new(),
    }
}

/// State n stands for the second that begins n seconds after the load.
pub fn planned(count: u32) -> Vec<PlannedCut> {
    let second = |n: u32| LabNs(u64::from(n) * 1_000_000_000);
    let state = |n| PlannedCut {
        cut: EntryNo(n + 1),
        seed: 7,
        from: second(n),
        until: second(n + 1),
        why: Why::Durable,
    };
    (0..count).map(state).collect()
}

/// An outcome of the default's five claims in which the customer lost what was acked from `gone_s`.
pub fn outcome(place: &PlannedCut, verdicts: [Verdict; 5], gone_s: Option<u64>) -> StateOutcome {
    let claim = |verdict| StateClaim { verdict, because: vec![format!("{verdict}")] };
    let ack = |s: u64| LabInterval::exact(LabNs(s * 1_000_000_000));
    let fate = |oldest_gone: Option<LabInterval>| StateFate {
        oldest_gone,
        lost_operations: u64::from(oldest_gone.is_some()),
        load_acked: true,
        load_survived: true,
        outcomes: BTreeMap::new(),
    };
    let datasets = [("billing", None), ("customer", gone_s.map(ack))];
    StateOutcome {
        index: place.cut.0 - 1,
        place: Place::from(place),
        id: String::new(),
        same_as: None,
        recovery_cut: None,
        claims: verdicts.map(claim).into(),
        datasets: datasets.map(|(name, gone)| (name.to_owned(), fate(gone))).into(),
        was_read: true,
        used_txg: None,
        took_ms: 1,
    }
}
