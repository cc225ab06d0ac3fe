//! A warm guest that looks at one crash state after the other.
//!
//! Its disks stay plugged in: while nothing in the guest uses them, the lab's servers behind them go
//! over to the next state. What always holds: a guest that died, hung, or did not let go of a state
//! is never given another.

use super::site::Site;
use crate::disk::{DiskConfig, DiskEvent, DiskServer, Image, Timing, failure};
use crate::guest::disk::{AddedDisk, DiskSource};
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::guest::run_folder::RunFolder;
use crate::guest::running::Guest;
use crate::guest::{Lab, Start};
use crate::record::found::Found;
use crate::stack::full_root;
use crate::stack::light::lighten;
use crate::stack::recover::StateDisks;
use crate::stack::release::release;
use crate::stack::scenario::Scenario;
use crate::trace::Recorder;
use crate::trial::inspect::{self, Observation, guest_error};
use crate::trial::run::new_trace;
use crate::verify::consistent::Recovery;
use crate::workload::plan::Plan;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

/// One guest, replaced when it is not healthy any more.
pub struct GuestSite<'a> {
    lab: &'a Lab,
    scenario: &'a Scenario,
    plan: &'a Plan,
    /// Where the guests' consoles go.
    console: PathBuf,
    /// Hears nothing of a state's stages, but is told to stop.
    watch: Watch,
    warm: Option<Warm>,
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
        GuestSite { lab, scenario, plan, console, watch, warm: None, starts: 0 }
    }

    /// What was found, or the words of a guest that hung over it. One that does not start, or cannot
    /// be given the state, is an error.
    fn try_once(&mut self, state: Image, overlay: &Path) -> Result<Result<Observation, String>> {
        let overlays = self.overlays(&state, overlay)?;
        let written = overlays.clone();
        let mut warm = match self.warm.take() {
            Some(warm) => warm.show(&state, overlays)?,
            None => self.start(&state, overlays)?,
        };
        let (scenario, plan) = (self.scenario, self.plan);
        let disks = StateDisks {
            recovered: &warm.added[0].device,
            untouched: warm.added.get(1).map(|disk| disk.device.as_str()),
        };
        let looked = inspect::look(&mut warm.guest, disks, scenario, plan, &self.watch);
        // What a disk of the lab's own failed to show is nothing of the state.
        written.iter().try_for_each(Recorder::hand_over)?;
        if let Some(reason) = warm.events.iter().find_map(failure) {
            bail!("the lab's disk failed: {reason}");
        }
        let observed = match looked {
            Err(error) => return Ok(Err(hung(error)?)),
            Ok(observed) => observed,
        };
        if release(&mut warm.guest.control, scenario).is_ok() && warm.is_idle() {
            self.warm = Some(warm);
        }
        self.watch.check()?;
        Ok(Ok(observed))
    }

    /// A trace for what is written to each disk. A pool's leak check has a disk of its own.
    fn overlays(&self, state: &Image, overlay: &Path) -> Result<Vec<Recorder>> {
        let mut all = vec![new_trace(overlay, self.plan.run, state.disk_bytes())?];
        if self.scenario.stack.zfs().is_some() {
            let path = overlay.with_extension("of-check");
            all.push(new_trace(&path, self.plan.run, state.disk_bytes())?);
            // Nobody asks what a check's mount wrote. Open descriptors keep it while it is shown.
            std::fs::remove_file(&path)?;
        }
        Ok(all)
    }

    fn start(&mut self, state: &Image, overlays: Vec<Recorder>) -> Result<Warm> {
        self.starts += 1;
        let mut guest = self.lab.start(Start::Saved, Some(&self.console))?;
        lighten(&mut guest.control)?;
        full_root::attach_for(&mut guest, self.lab, self.plan)?;
        let sockets = RunFolder::new()?;
        let (mut servers, mut added, mut events) = (Vec::new(), Vec::new(), Vec::new());
        for (number, overlay) in overlays.into_iter().enumerate() {
            let socket = sockets.path().join(format!("disk-{number}"));
            let base = Some(state.clone());
            let config = DiskConfig { socket, base, timing: Timing::default() };
            let (server, told) = DiskServer::start(config, overlay)?;
            events.push(told);
            added.push(guest.add_disk(&DiskSource::nbd(server.socket()), self.scenario.disk.bus)?);
            servers.push(server);
        }
        Ok(Warm { guest, added, servers, events, _sockets: sockets })
    }
}

/// A guest with its disks. In the order in which they must go.
struct Warm {
    guest: Guest,
    added: Vec<AddedDisk>,
    servers: Vec<DiskServer>,
    /// What the disks tell.
    events: Vec<Receiver<DiskEvent>>,
    _sockets: RunFolder,
}

impl Warm {
    /// From now on its disks show this state.
    fn show(mut self, state: &Image, overlays: Vec<Recorder>) -> Result<Warm> {
        self.events.clear();
        for (server, overlay) in self.servers.iter().zip(overlays) {
            self.events.push(server.insert(state.clone(), overlay)?);
        }
        Ok(self)
    }

    fn is_idle(&self) -> bool {
        self.servers.iter().all(DiskServer::is_idle)
    }
}

impl Site for GuestSite<'_> {
    /// A state on which a guest hangs is given to another; if that hangs too, it is the state.
    fn look(&mut self, state: Image, overlay: &Path) -> Result<Observation> {
        if let Ok(observed) = self.try_once(state.clone(), overlay)? {
            return Ok(observed);
        }
        std::fs::remove_file(overlay)?;
        Ok(self.try_once(state, overlay)?.unwrap_or_else(|words| {
            let words = Some(format!("it hung twice: {words}"));
            let recovery = Recovery::of_dead_guest(&self.scenario.stack, words);
            Observation { recovery, found: Found::default() }
        }))
    }

    fn starts(&self) -> u32 {
        self.starts
    }
}

/// The words of a guest that did not answer in time, though QEMU lives. Any other error stays one.
fn hung(error: anyhow::Error) -> Result<String> {
    match guest_error(&error) {
        Some(timed_out @ GuestError::TimedOut { .. }) => Ok(timed_out.to_string()),
        _ => Err(error),
    }
}
