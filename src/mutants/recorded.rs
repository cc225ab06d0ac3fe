//! A recorded run of the table, and the kernel that looks at its states.

use super::fua::force_commits;
use super::mutant::Base;
use super::options::MutantsOptions;
use crate::disk::{CrashModel, CrashState, DiskLog};
use crate::explore::cuts::{PlannedCut, Why};
use crate::explore::guest_site::GuestSite;
use crate::explore::host_site::HostSite;
use crate::explore::site::Site;
use crate::explore::source::EitherSite;
use crate::explore::state::StateOutcome;
use crate::guest::Lab;
use crate::guest::progress::Watch;
use crate::trial::evidence::{self, EvidenceError, Recording};
use crate::trial::facts::RunFacts;
use crate::trial::folder::RunDir;
use crate::trial::host::record_in_host;
use crate::trial::inspect::Observation;
use crate::trial::options::TrialOptions;
use crate::trial::run::record;
use crate::units::LabNs;
use anyhow::{Context, Result};
use std::path::Path;

/// A recorded run.
pub struct Recorded {
    /// Its folder.
    pub folder: RunDir,
    /// What it was.
    pub facts: RunFacts,
    lab: Option<Lab>,
}

impl Recorded {
    /// Records a scenario with its base's `--set`s and others.
    pub fn new(
        base: &Base,
        sets: &[&str],
        seed: u64,
        options: &MutantsOptions,
        scratch: &Path,
        watch: &Watch,
    ) -> Result<Recorded> {
        let sets = base.sets.iter().chain(sets).map(|set| (*set).to_owned()).collect();
        let trial = TrialOptions {
            scenario: base.scenario.to_owned(),
            sets,
            seed,
            suite: options.suite,
            accel: options.accel,
            runs: scratch.to_owned(),
        };
        match base.in_guest {
            false => {
                let (folder, facts) = record_in_host(&trial, watch)?;
                if base.fua {
                    force_commits(&folder.trace())?;
                }
                Ok(Recorded { folder, facts, lab: None })
            }
            true => {
                let (setting, facts) = record(&trial, watch)?;
                Ok(Recorded { folder: setting.folder, facts, lab: Some(setting.lab) })
            }
        }
    }

    /// Its evidence, to be judged under a model.
    pub fn evidence(&self, model: CrashModel) -> Result<Recording, EvidenceError> {
        evidence::of_run(&self.folder, &self.facts, model)
    }

    /// Its facts, with the crash model under which a state is judged.
    pub fn facts_under(&self, model: CrashModel) -> RunFacts {
        let mut facts = self.facts.clone();
        facts.scenario.cut.crash_model = model;
        facts
    }

    /// A kernel for its states.
    pub fn kernel<'a>(&'a self, scratch: &Path, watch: &Watch) -> Result<Kernel<'a>> {
        let (scenario, plan) = (&self.facts.scenario, &self.facts.plan);
        let site = match &self.lab {
            None => EitherSite::Host(HostSite::new(scenario, plan)?),
            Some(lab) => {
                let console = self.folder.recovery_console();
                EitherSite::Guest(GuestSite::new(lab, scenario, plan, console, watch))
            }
        };
        Ok(Kernel { site, overlay: scratch.join("overlay") })
    }
}

/// A kernel that looks at a run's states.
pub struct Kernel<'a> {
    site: EitherSite<'a>,
    overlay: std::path::PathBuf,
}

impl Kernel<'_> {
    /// Looks at a state and judges it.
    pub fn look(
        &mut self,
        facts: &RunFacts,
        recording: &Recording,
        (index, planned): (u32, &PlannedCut),
        state: &CrashState,
    ) -> Result<(StateOutcome, Observation)> {
        let observed = self.site.look(state.image.clone(), &self.overlay)?;
        std::fs::remove_file(&self.overlay).context("cannot remove the trace of a recovery")?;
        let evidence = recording.at(planned.cut, planned.until)?;
        let outcome = StateOutcome::judge((index, planned, state.id), facts, &evidence, &observed);
        Ok((outcome, observed))
    }
}

/// The cut at an instant of a trace: before the first request that arrived then or later.
pub fn cut_at(log: &DiskLog, instant: LabNs, seed: u64) -> PlannedCut {
    let end = log.cut.as_ref().map_or(log.last, |cut| cut.at);
    let next = log.requests.partition_point(|request| request.arrived < instant);
    let cut = log.requests.get(next).map_or(log.cut_entry(), |request| request.arrival);
    let until = log.requests.get(next).map_or(end, |request| request.arrived.min(end));
    PlannedCut {
        cut: cut.min(log.cut_entry()),
        seed,
        from: instant.min(until),
        until,
        why: Why::Drawn,
    }
}
