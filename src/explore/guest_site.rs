//! A warm guest that looks at one crash state after the other.
//!
//! What always holds: a guest that died, hung, or did not let go of a state is never given another.

use super::site::Site;
use crate::disk::{DiskConfig, DiskServer, Image, Timing};
use crate::guest::disk::{AddedDisk, DiskSource};
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::guest::run_folder::RunFolder;
use crate::guest::running::Guest;
use crate::guest::{Lab, Start};
use crate::stack::build::StackError;
use crate::stack::release::release;
use crate::stack::scenario::Scenario;
use crate::trial::inspect::{self, Observation};
use crate::trial::run::new_trace;
use crate::verify::consistent::Recovery;
use crate::workload::plan::Plan;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// One guest, replaced when it is not healthy any more.
pub struct GuestSite<'a> {
    lab: &'a Lab,
    scenario: &'a Scenario,
    plan: &'a Plan,
    /// Where the guests' consoles go.
    console: PathBuf,
    /// Hears nothing of a state's stages, but is told to stop.
    watch: Watch,
    guest: Option<Guest>,
    starts: u32,
}

impl<'a> GuestSite<'a> {
    /// Guests of this lab, for states of this scenario and plan.
    pub fn new(
        lab: &'a Lab,
        scenario: &'a Scenario,
        plan: &'a Plan,
        console: PathBuf,
        watch: &Watch,
    ) -> GuestSite<'a> {
        let watch = watch.with_listener(|_| {});
        GuestSite { lab, scenario, plan, console, watch, guest: None, starts: 0 }
    }

    fn try_once(&mut self, state: Image, overlay: &Path) -> Result<Observation> {
        let mut guest = match self.guest.take() {
            Some(guest) => guest,
            None => {
                self.starts += 1;
                self.lab.start(Start::Saved, Some(&self.console))?
            }
        };
        let recorder = new_trace(overlay, self.plan.run, state.disk_bytes())?;
        let sockets = RunFolder::new()?;
        let socket = sockets.path().join("disk");
        let config = DiskConfig { socket, base: Some(state), timing: Timing::default() };
        let (disk, _events) = DiskServer::start(config, recorder)?;
        let added = guest.add_disk(&DiskSource::nbd(disk.socket()), self.scenario.disk.bus)?;
        let (scenario, plan) = (self.scenario, self.plan);
        let observed = inspect::look(&mut guest, &added.device, scenario, plan, &self.watch)?;
        if self.let_go(&mut guest, &added).is_ok() {
            self.guest = Some(guest);
        }
        self.watch.check()?;
        Ok(observed)
    }

    fn let_go(&self, guest: &mut Guest, disk: &AddedDisk) -> Result<(), StackError> {
        release(&mut guest.control, self.scenario)?;
        Ok(guest.remove_disk(disk)?)
    }
}

impl Site for GuestSite<'_> {
    /// A state on which a guest hangs is given to another; if that hangs too, it is the state.
    fn look(&mut self, state: Image, overlay: &Path) -> Result<Observation> {
        match self.try_once(state.clone(), overlay) {
            Err(error) if hung(&error).is_some() => {}
            done => return done,
        }
        std::fs::remove_file(overlay)?;
        self.try_once(state, overlay).or_else(|error| match hung(&error) {
            Some(words) => {
                let words = Some(format!("it hung twice: {words}"));
                let recovery = Recovery::of_dead_guest(&self.scenario.stack, words);
                Ok(Observation { recovery, files: Vec::new() })
            }
            None => Err(error),
        })
    }

    fn starts(&self) -> u32 {
        self.starts
    }
}

/// The words of a guest that did not answer in time, though QEMU lives.
fn hung(error: &anyhow::Error) -> Option<String> {
    let of_guest = match error.downcast_ref() {
        Some(StackError::Guest(guest)) => Some(guest),
        _ => error.downcast_ref::<GuestError>(),
    };
    match of_guest {
        Some(error @ GuestError::TimedOut { .. }) => Some(error.to_string()),
        _ => None,
    }
}
