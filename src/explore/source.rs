//! The recording of an exploration, and the kernel that looks at its states.

use super::guest_site::GuestSite;
use super::host_site::HostSite;
use super::options::{ExploreOptions, From, In};
use super::site::Site;
use crate::disk::Image;
use crate::guest::Lab;
use crate::guest::host::{FOR_HOST, ensure_programs};
use crate::guest::progress::Watch;
use crate::trial::facts::RunFacts;
use crate::trial::folder::RunDir;
use crate::trial::host::record_in_host;
use crate::trial::inspect::Observation;
use crate::trial::run::{guest_config_of, record};
use anyhow::Result;
use std::path::Path;

/// A recorded run, and where its states are looked at.
pub struct Source {
    /// The run's folder.
    pub folder: RunDir,
    /// What it was.
    pub facts: RunFacts,
    /// Where guests come from; without it this machine's kernel looks.
    lab: Option<Lab>,
}

impl Source {
    /// Records a run, or opens one, and prepares what its states are looked at with.
    pub fn open(options: &ExploreOptions, watch: &Watch) -> Result<Source> {
        match (&options.from, options.place) {
            (From::Record(trial), In::Guest) => {
                let (setting, facts) = record(trial, watch)?;
                Ok(Source { folder: setting.folder, facts, lab: Some(setting.lab) })
            }
            (From::Record(trial), In::Host) => {
                let (folder, facts) = record_in_host(trial, watch)?;
                Ok(Source { folder, facts, lab: None })
            }
            (From::Run(path), place) => {
                let folder = RunDir::open(path);
                let facts = RunFacts::load(&folder)?;
                let lab = match place {
                    In::Guest => Some(Lab::prepare(guest_config_of(&facts), watch)?),
                    In::Host => {
                        ensure_programs(&FOR_HOST, watch)?;
                        None
                    }
                };
                Ok(Source { folder, facts, lab })
            }
        }
    }

    /// A kernel that looks at states of this recording.
    pub fn site<'a>(
        &'a self,
        facts: &'a RunFacts,
        console: &Path,
        watch: &Watch,
    ) -> Result<EitherSite<'a>> {
        let (scenario, plan) = (&facts.scenario, &facts.plan);
        Ok(match &self.lab {
            Some(lab) => {
                EitherSite::Guest(GuestSite::new(lab, scenario, plan, console.to_owned(), watch))
            }
            None => EitherSite::Host(HostSite::new(scenario, plan)?),
        })
    }
}

/// A guest, or this machine's own kernel.
pub enum EitherSite<'a> {
    /// A guest.
    Guest(GuestSite<'a>),
    /// This machine's own kernel.
    Host(HostSite<'a>),
}

impl Site for EitherSite<'_> {
    fn look(&mut self, state: Image, overlay: &Path) -> Result<Observation> {
        match self {
            EitherSite::Guest(guest) => guest.look(state, overlay),
            EitherSite::Host(host) => host.look(state, overlay),
        }
    }

    fn starts(&self) -> u32 {
        match self {
            EitherSite::Guest(guest) => guest.starts(),
            EitherSite::Host(host) => host.starts(),
        }
    }
}
