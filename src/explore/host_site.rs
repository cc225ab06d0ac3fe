//! This machine's own kernel looks at one crash state after the other, through a loop device.
//!
//! What always holds: a device on which a step took too long is never given another state.

use super::site::Site;
use crate::agent::load::Load;
use crate::agent::protocol::Request;
use crate::disk::{Image, LocalDisk, Timing, failure};
use crate::host::{HostDisk, MountError, Mounted, check};
use crate::record::found::Found;
use crate::stack::scenario::{PlainFs, PlainSpec, Scenario, Stack};
use crate::trial::host::{refuse_programs, safe_options};
use crate::trial::inspect::{Observation, ReadBack};
use crate::trial::run::new_trace;
use crate::verify::consistent::{PlainRecovery, Recovery, Step};
use crate::workload::plan::Plan;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Each step of looking at a state; a healthy one takes milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

/// One loop device, replaced when it is not healthy any more.
pub struct HostSite<'a> {
    scenario: &'a Scenario,
    plan: &'a Plan,
    fs: PlainFs,
    spec: &'a PlainSpec,
    /// Reads files back, as the agent does in a guest.
    reader: Load,
    disk: Option<HostDisk>,
    starts: u32,
}

impl<'a> HostSite<'a> {
    /// For states of this scenario and plan.
    pub fn new(scenario: &'a Scenario, plan: &'a Plan) -> Result<HostSite<'a>> {
        let Stack::Plain(fs, spec) = scenario.stack.get() else {
            bail!(
                "{} stands on ZFS: this machine's kernel can only look at plain file systems, so \
                   leave out `--in host`",
                scenario.name
            );
        };
        refuse_programs(scenario)?;
        // Reading back sends no messages.
        let nowhere = File::options().write(true).open("/dev/null")?;
        let reader = Load::without_locked_memory(nowhere);
        Ok(HostSite { scenario, plan, fs, spec, reader, disk: None, starts: 0 })
    }

    fn look_once(&mut self, disk: &HostDisk) -> Result<Observation> {
        let mut recovery = PlainRecovery::of_nothing(self.fs);
        let mut found = Found::default();
        let options = safe_options(self.fs, self.spec);
        let mounted = match disk.mount(self.fs.name(), &options) {
            Ok(mounted) => mounted,
            Err(error @ MountError::Refused { .. }) => {
                recovery.mount = Step::Failed(error.to_string());
                return Ok(Observation { recovery: Recovery::Plain(recovery), found });
            }
            Err(MountError::Host(error)) => return Err(error.into()),
        };
        recovery.mount = Step::Done;
        if !self.plan.streams.is_empty() {
            found = self.read_back(disk, &mounted)?;
        }
        recovery.mount_read = Step::Done;
        mounted.unmount()?;
        recovery.unmount = Step::Done;
        recovery.check = Some(check(disk, self.fs.name())?);
        Ok(Observation { recovery: Recovery::Plain(recovery), found })
    }

    fn read_back(&mut self, disk: &HostDisk, mounted: &Mounted) -> Result<Found> {
        let plan = self.scenario.plan_at(mounted.path(), self.plan.run, self.plan.seed);
        let mut back = ReadBack::default();
        let mut take = |part: &[u8]| {
            back.take(part);
            Ok(())
        };
        let step = disk.limited("read every record back");
        let read = self.reader.handle(Request::Observe(plan), &mut take);
        drop(step);
        read.map_err(anyhow::Error::msg).context("the files could not be read back")?;
        back.finish(self.plan)
    }
}

impl Site for HostSite<'_> {
    /// A state on which a step takes too long is given to another device; if that hangs too, it is
    /// the state.
    fn look(&mut self, state: Image, overlay: &Path) -> Result<Observation> {
        let mut hung = None;
        for _ in 0..2 {
            let recorder = new_trace(overlay, self.plan.run, state.disk_bytes())?;
            let (local, events) =
                LocalDisk::new(Some(state.clone()), Timing::default(), recorder.clone())?;
            let mut disk = match self.disk.take() {
                Some(disk) => disk,
                None => {
                    self.starts += 1;
                    HostDisk::start(state.disk_bytes(), LIMIT)?
                }
            };
            disk.insert(Arc::new(local))?;
            let looked = self.look_once(&disk);
            // What a disk of the lab's own failed to show is nothing of the state.
            recorder.hand_over()?;
            if let Some(reason) = failure(&events) {
                bail!("the lab's disk failed: {reason}");
            }
            match disk.check() {
                Ok(()) => {
                    let observed = looked?;
                    self.disk = Some(disk);
                    return Ok(observed);
                }
                Err(error) => hung = Some(error.to_string()),
            }
            std::fs::remove_file(overlay)?;
        }
        let words = hung.map(|words| format!("it hung twice: {words}"));
        let recovery = Recovery::of_dead_guest(&self.scenario.stack, words);
        Ok(Observation { recovery, found: Found::default() })
    }

    fn starts(&self) -> u32 {
        self.starts
    }
}
