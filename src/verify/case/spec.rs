//! What a simulated run is like, and from it what its guest, its pool and its clocks do.

use super::*;
use crate::agent::protocol::ExecResult;
use crate::trace::ClockSample;
use crate::verify::consistent::{ScrubReport, ZfsRecovery};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;
pub const BILLING: StreamId = StreamId(0);
/// Two that append and two that overwrite.
pub const CUSTOMERS: [StreamId; 4] = [StreamId(1), StreamId(2), StreamId(3), StreamId(4)];
/// When the load begins on the guest's clock.
pub const BEGIN: u64 = 100 * S;
/// The lab's clock minus the guest's.
pub const OFFSET: u64 = 7_000 * S;
/// From the set-up's last commit to the load's begin, nearly.
pub const SETTLED: u64 = 30 * MS;
/// From an ack to its place in the trace.
pub const DELIVERY: u64 = MS / 2;
pub const FIRST_TXG: u64 = 10;

/// Where an instant of the guest's clock lies on the lab's.
pub fn lab(guest: u64) -> LabNs {
    LabNs(guest + OFFSET)
}

/// What a run is like. Times in nanoseconds of the guest, from the load's begin.
#[derive(Debug, Clone)]
pub struct Spec {
    pub seed: u64,
    /// How long each group of the load is open, in turn.
    pub open: Vec<u64>,
    /// From a group's end to its commit.
    pub sync: u64,
    /// When the power goes.
    pub cut: u64,
    /// How far off each bound of a clock sample may be.
    pub clock_error: u64,
    /// A stream that does nothing for some time.
    pub stall: Option<(StreamId, std::ops::Range<u64>)>,
    /// Billing acknowledges before its flush.
    pub ack_before_flush: bool,
    /// Changes to the scenario, as on the command line.
    pub sets: Vec<String>,
}

impl Spec {
    /// Groups of that many milliseconds; cut just before the commit of the third.
    pub fn steady(open_ms: u64) -> Spec {
        let (open, sync) = (open_ms * MS, 80 * MS);
        Spec {
            seed: 1,
            open: vec![open],
            sync,
            cut: 3 * open + sync - SETTLED - MS,
            clock_error: 100_000,
            stall: None,
            ack_before_flush: false,
            sets: Vec::new(),
        }
    }
}

/// An operation, on the guest's clock.
#[derive(Debug, Clone, Copy)]
pub struct Op {
    pub start: u64,
    pub done: u64,
    pub end: u64,
    /// When its transaction was assigned to the group open then.
    pub assigned: u64,
    /// When its intent log record was durable, if it waits for that.
    pub logged: Option<u64>,
}

/// A transaction group, on the guest's clock.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    pub txg: Txg,
    pub birth: u64,
    pub end: u64,
    pub durable: u64,
}

/// Groups from before the load to beyond the cut. The set-up's was closed just before the load.
pub fn groups(spec: &Spec) -> Vec<Group> {
    let (mut at, mut opens) = (BEGIN - SETTLED, spec.open.iter().cycle());
    let setup = Group { txg: Txg(FIRST_TXG), birth: BEGIN - 6 * S, end: at, durable: at + 20 * MS };
    let mut groups = vec![setup];
    while at < BEGIN + spec.cut + 10 * S {
        let (txg, birth) = (Txg(FIRST_TXG + groups.len() as u64), at);
        at += opens.next().expect("at least one");
        groups.push(Group { txg, birth, end: at, durable: at + spec.sync });
    }
    groups
}

pub fn operations(
    spec: &Spec,
    stream: &StreamPlan,
    logs: bool,
    chance: &mut ChaCha8Rng,
) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..stream.fill()).map(|n| fill(BEGIN - 2 * S + n * MS)).collect();
    let mut at = BEGIN + u64::from(stream.id.0) * 2 * MS;
    while at < BEGIN + spec.cut + 100 * MS {
        let stalled = spec.stall.iter().find(|(id, _)| *id == stream.id).map(|(_, when)| when);
        if let Some(when) = stalled.filter(|when| when.contains(&(at - BEGIN))) {
            at = BEGIN + when.end;
        }
        let start = at + chance.random_range(0..300_000);
        let done = start + chance.random_range(100_000..1_000_000);
        let assigned = chance.random_range(start..=done);
        let mut op = Op { start, done, end: done + 50_000, assigned, logged: None };
        if logs {
            op.logged = Some(done + 10 * MS);
            op.end = done + if spec.ack_before_flush { MS } else { 11 * MS };
        }
        at = if stream.id == BILLING { done + 12 * MS } else { at + 10 * MS };
        ops.push(op);
    }
    ops
}

pub fn fill(start: u64) -> Op {
    Op { start, done: start + 1_000, end: start + 2_000, assigned: start + 500, logged: None }
}

pub fn samples(spec: &Spec, chance: &mut ChaCha8Rng) -> Vec<ClockSample> {
    let mut error = || chance.random_range(0..=spec.clock_error);
    let instants = (BEGIN - S..BEGIN + spec.cut).step_by(200 * MS as usize);
    instants
        .map(|guest| ClockSample {
            before: LabNs(lab(guest).0 - error()),
            after: LabNs(lab(guest).0 + error()),
            guest: GuestNs(guest),
        })
        .collect()
}

/// A tool that ended well with these words.
pub fn ran(stdout: &str) -> ExecResult {
    ExecResult {
        code: Some(0),
        timed_out: false,
        stdout: stdout.to_owned(),
        stderr: String::new(),
        took_ns: 1,
    }
}

pub fn clean_recovery() -> ZfsRecovery {
    ZfsRecovery {
        leak_check: ran("No leaks (block sum matches space maps exactly)"),
        import: ran(""),
        used: None,
        status: Some(ran("errors: No known data errors")),
        scrub: Some(ScrubReport { repaired_nothing: true, errors: 0, no_known_data_errors: true }),
        panic: None,
    }
}
