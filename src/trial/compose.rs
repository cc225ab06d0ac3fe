//! From a run's facts, evidence and observation to its report. Pure.

use super::evidence::{Evidence, EvidenceError};
use super::facts::RunFacts;
use super::inspect::Observation;
use super::report::{
    ClaimReport, CutReport, DiskReport, FORMAT, PoolReport, TrialReport, WindowParts,
};
use crate::disk::{CrashModel, DiskLog, durable_requests};
use crate::guest::Accel;
use crate::guest::cache::hex;
use crate::history::log::StreamHistory;
use crate::history::message::TxgState;
use crate::record::classify::classify;
use crate::record::place::Place;
use crate::stack::scenario::ClaimSpec;
use crate::trace::Command;
use crate::units::{LabNs, RunId, StreamId, Txg};
use crate::verify::case::{Case, Judged};
use crate::verify::verdict::{Judgement, Verdict};
use crate::verify::window::Span;
use crate::workload::plan::{Plan, StreamPlan};
use nix::errno::Errno;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Judges a run from its facts, trace and observation. The same run gives the same report.
pub fn judged(facts: &RunFacts, evidence: &Evidence, observed: &Observation) -> TrialReport {
    let recording = evidence.recording;
    let mut report = frame(facts, judge(facts, evidence, observed));
    report.cut.at = evidence.cut;
    report.cut.how = recording.log.cut.as_ref().map(|cut| cut.name.clone()).unwrap_or_default();
    report.cut.after_load_s = seconds(evidence.cut.0.saturating_sub(recording.begin.0));
    report.cut.late_messages = evidence.history.late;
    report.clock_error_s = seconds(recording.clock.error_ns_max());
    report.disk = disk_report(&recording.log);
    if let Some(pool) = &mut report.pool {
        pool.used_txg = observed.recovery.used_txg();
        pool.durable_txg = evidence.commits.iter().map(|commit| commit.txg).max();
        pool.written_txg = evidence.written;
        pool.committed_txg = evidence.history.newest_committed();
        pool.first_lost = first_lost(evidence, pool.used_txg);
    }
    report.hints = failed_streams(evidence);
    report.hints.extend(what_emulation_hides(&report));
    report
}

/// Holds what was found against what was said, claim by claim.
pub fn judge(facts: &RunFacts, evidence: &Evidence, observed: &Observation) -> Judged {
    let classify = |bytes: &[u8], stream: &StreamPlan, location| {
        classify(&Place { plan: &facts.plan, stream, location }, bytes)
    };
    let case = Case {
        scenario: &facts.scenario,
        plan: &facts.plan,
        history: &evidence.history,
        clock: &evidence.recording.clock,
        classify: &classify,
        scripts: &evidence.recording.scripts,
        found: &observed.found,
        recovery: &observed.recovery,
        flushes: &evidence.recording.flushes,
        commits: &evidence.commits,
        written: evidence.written,
        limits: facts.limits,
        begin: evidence.recording.begin,
        cut: evidence.cut_interval(),
    };
    case.judge()
        .unwrap_or_else(|error| all_claims(facts, Verdict::HarnessBroken, &error.to_string()))
}

/// A stream whose call failed acks nothing after it; a reader must know why it stopped.
fn failed_streams(evidence: &Evidence) -> Vec<String> {
    let failed = |(id, said): (&StreamId, &StreamHistory)| {
        let errno = Errno::from_raw(said.failure()?);
        let newest = said.newest_acked();
        Some(format!("stream {id} stopped after operation {newest}: a call failed with {errno}"))
    };
    evidence.history.streams.iter().filter_map(failed).collect()
}

/// The report of a run whose trace cannot be judged: every claim gets that verdict.
pub fn unjudged(facts: &RunFacts, error: &EvidenceError) -> TrialReport {
    frame(facts, all_claims(facts, error.verdict(), &error.to_string()))
}

fn all_claims(facts: &RunFacts, verdict: Verdict, because: &str) -> Judged {
    let judge = |claim: &ClaimSpec| (claim.clone(), Judgement::new(verdict, because));
    let claims = facts.scenario.claim.iter().map(judge).collect();
    Judged { claims, datasets: BTreeMap::new(), txgs: Vec::new() }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Everything that does not depend on the evidence.
fn frame(facts: &RunFacts, judged: Judged) -> TrialReport {
    let verdict = Verdict::of_all(judged.claims.iter().map(|(_, judgement)| judgement.verdict));
    let under = under(facts.scenario.cut.crash_model, facts.acceleration);
    TrialReport {
        format: FORMAT,
        verdict,
        exit_code: verdict.exit_code(),
        claims: judged.claims.into_iter().map(|pair| claim_report(pair, &under)).collect(),
        datasets: judged.datasets,
        seed: facts.seed,
        run: facts.plan.run,
        scenario: facts.scenario.clone(),
        asked: facts.asked.clone(),
        sets: facts.sets.clone(),
        plan_sha256: plan_digest(&facts.plan),
        cut: CutReport {
            plan: facts.cut,
            how: "unknown".to_owned(),
            at: LabNs(0),
            after_load_s: 0.0,
            power_off_s: facts.power_off_s,
            late_messages: 0,
        },
        versions: facts.versions.clone(),
        acceleration: facts.acceleration,
        guest_cpu_slowdown: facts.guest_cpu_slowdown,
        pool: facts.scenario.stack.zfs().map(|_| PoolReport {
            used_txg: None,
            durable_txg: None,
            written_txg: None,
            committed_txg: None,
            txgs: judged.txgs,
            first_lost: None,
        }),
        disk: DiskReport { writes: 0, written_bytes: 0, flushes: 0, unflushed_writes: 0 },
        clock_error_s: 0.0,
        hints: Vec::new(),
        notes: facts.notes.clone(),
        stages: facts.stages.clone(),
    }
}

fn claim_report((claim, judgement): (ClaimSpec, Judgement), under: &str) -> ClaimReport {
    ClaimReport {
        kind: claim.kind,
        dataset: claim.dataset,
        seconds: claim.seconds,
        says: claim.says,
        verdict: judgement.verdict,
        under: under.to_owned(),
        because: judgement.because,
        findings: judgement.findings,
        window: judgement.window,
    }
}

/// Under what the verdicts stand. A VM kill is not a power cut, and it is not called one.
fn under(model: CrashModel, accel: Option<Accel>) -> String {
    let accel = match accel {
        Some(Accel::Kvm) => "on the host's own CPU",
        None => "on this machine's own kernel",
        Some(Accel::Tcg) => "on an emulated CPU",
    };
    match model {
        CrashModel::KeepAll => format!(
            "tried against a VM kill, not against power loss (crash model keep-all), {accel}"
        ),
        model => format!("tried under crash model {model}, {accel}"),
    }
}

/// SHA-256 of the plan with its run id blanked: the same scenario and seed give the same digest.
fn plan_digest(plan: &Plan) -> String {
    let plan = Plan { run: RunId([0; 16]), ..plan.clone() };
    // A plan is numbers and text; it always has a JSON form.
    let json = serde_json::to_vec(&plan).unwrap_or_default();
    hex(&Sha256::digest(json))
}

fn disk_report(log: &DiskLog) -> DiskReport {
    let durable = durable_requests(log, log.cut_entry());
    let changing = || log.requests.iter().filter(|request| request.command().changes_data());
    let writes = || log.requests.iter().filter(|request| request.command() == Command::Write);
    let flushes = log.requests.iter().filter(|request| request.command() == Command::Flush);
    DiskReport {
        writes: changing().count() as u64,
        written_bytes: writes().map(|request| request.bytes()).sum(),
        flushes: flushes.count() as u64,
        unflushed_writes: changing().filter(|request| !durable.holds(request)).count() as u64,
    }
}

/// The parts of the window of the first lost group, from its row and the cut.
fn first_lost(evidence: &Evidence, used: Option<Txg>) -> Option<WindowParts> {
    // A group without changes commits without an uberblock: it holds nothing that could be lost.
    let is_on_disk =
        |txg| evidence.recording.log.uberblocks.iter().any(|sighting| sighting.txg == txg);
    let (_, row) = evidence
        .history
        .txgs
        .range(Txg(used?.0.saturating_add(1))..)
        .find(|(txg, row)| row.state != TxgState::Committed || is_on_disk(**txg))?;
    let total = Span::since(&evidence.recording.clock, row.birth, evidence.cut_interval());
    // The numbers come from messages, so their sums are bounded.
    let before_sync = row.open_ns.saturating_add(row.quiesce_ns).saturating_add(row.wait_ns);
    let syncing = row.state == TxgState::Syncing;
    let sync_ns = syncing.then(|| (total.hi_ns.max(0) as u64).saturating_sub(before_sync));
    Some(WindowParts {
        txg: row.txg,
        open_s: seconds(row.open_ns),
        quiesce_s: seconds(row.quiesce_ns),
        wait_s: seconds(row.wait_ns),
        sync_s: sync_ns.map(seconds),
        total: total.into(),
    })
}

/// A violation that half the sync time would undo rests on how slow this guest is.
fn what_emulation_hides(report: &TrialReport) -> Vec<String> {
    let mut hints = Vec::new();
    let first_lost = report.pool.as_ref().and_then(|pool| pool.first_lost);
    let Some(parts) = first_lost else { return hints };
    for claim in &report.claims {
        let (Some(allowed), Some(window)) = (claim.seconds, claim.window) else { continue };
        let Some(sync_s) = parts.sync_s else { continue };
        let beyond = window.seconds.lo > allowed;
        if beyond && window.seconds.lo - sync_s / 2.0 <= allowed {
            hints.push(format!(
                "{}: with half the sync time of txg {} ({:.3} s) this cut would be within the claim; a faster disk or CPU decides",
                claim.title(),
                parts.txg,
                sync_s
            ));
        }
    }
    hints
}
