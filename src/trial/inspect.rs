//! The second half of a trial: a restored guest looks at the crash state.

use crate::agent::protocol::Request;
use crate::disk::DiskServer;
use crate::guest::disk::DiskSource;
use crate::guest::error::GuestError;
use crate::guest::progress::Watch;
use crate::guest::running::Guest;
use crate::record::found::{Found, FoundDecoder, FoundError};
use crate::stack::build::StackError;
use crate::stack::full_root;
use crate::stack::recover::{StateDisks, recover};
use crate::stack::scenario::Scenario;
use crate::verify::consistent::Recovery;
use crate::workload::plan::Plan;
use anyhow::{Context, Result};
use std::time::Duration;

/// Reading everything back is slow in emulation.
const READ_BACK: Duration = Duration::from_secs(600);
/// Words of a kernel that died of what it found, not of the lab.
const DEATH: [&str; 4] = ["Kernel panic", "VERIFY", "PANIC at", "BUG:"];

/// What was found in a crash state.
#[derive(Debug)]
pub struct Observation {
    /// What the tools said.
    pub recovery: Recovery,
    /// What was read back; empty if nothing could be.
    pub found: Found,
}

/// Plugs the crash state behind `disk` in, and looks at it.
pub fn run(
    guest: &mut Guest,
    disk: &DiskServer,
    scenario: &Scenario,
    plan: &Plan,
    watch: &Watch,
) -> Result<Observation> {
    let added = guest.add_disk(&DiskSource::nbd(disk.socket()), scenario.disk.bus)?;
    look(guest, StateDisks::one(&added.device), scenario, plan, watch)
}

/// Checks, imports, scrubs and reads the crash state on these disks. That a kernel dies of it is an
/// outcome.
pub fn look(
    guest: &mut Guest,
    disks: StateDisks,
    scenario: &Scenario,
    plan: &Plan,
    watch: &Watch,
) -> Result<Observation> {
    check_and_read(guest, disks, scenario, plan, watch).or_else(|error| died(error, scenario))
}

fn check_and_read(
    guest: &mut Guest,
    disks: StateDisks,
    scenario: &Scenario,
    plan: &Plan,
    watch: &Watch,
) -> Result<Observation> {
    let recovery = recover(&mut guest.control, scenario, disks, watch)?;
    let mut found = Found::default();
    if recovery.was_read() {
        watch.stage("reading everything back");
        full_root::show_all(&mut guest.control, scenario, plan)?;
        found = read_back(guest, plan)?;
        full_root::hide_all(&mut guest.control, plan)?;
    }
    Ok(Observation { recovery, found })
}

fn read_back(guest: &mut Guest, plan: &Plan) -> Result<Found> {
    let mut read = ReadBack::default();
    let mut take = |part: Vec<u8>| read.take(&part);
    guest.control.call_with_blobs(Request::Observe(plan.clone()), READ_BACK, &mut take)?;
    read.finish(plan)
}

/// Gathers what a reader sends of the streams' files.
#[derive(Debug, Default)]
pub struct ReadBack {
    decoder: FoundDecoder,
    bad: Option<FoundError>,
}

impl ReadBack {
    /// Takes the next part.
    pub fn take(&mut self, part: &[u8]) {
        if let Err(error) = self.decoder.part(part) {
            self.bad = self.bad.take().or(Some(error));
        }
    }

    /// What was found of each of the plan's streams, whole, or none can be judged.
    pub fn finish(self, plan: &Plan) -> Result<Found> {
        match self.bad {
            Some(error) => Err(error).context("what was read back cannot be decoded"),
            None => Ok(self.decoder.finish(plan)?),
        }
    }
}

/// What went wrong with the guest itself, if that is what an error says.
pub fn guest_error(error: &anyhow::Error) -> Option<&GuestError> {
    match error.downcast_ref() {
        Some(StackError::Guest(guest)) => Some(guest),
        _ => error.downcast_ref::<GuestError>(),
    }
}

/// A kernel that dies over a state is an outcome of that state; a guest that was lost otherwise is
/// an error of the trial.
fn died(error: anyhow::Error, scenario: &Scenario) -> Result<Observation> {
    match guest_error(&error) {
        Some(GuestError::Ended { console, .. })
            if DEATH.iter().any(|word| console.contains(word)) =>
        {
            let panic = Some(console.clone());
            let recovery = Recovery::of_dead_guest(&scenario.stack, panic);
            Ok(Observation { recovery, found: Found::default() })
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::observed::ObservedFile;
    use crate::record::testing::plan;
    use crate::record::wire::encode;

    /// What a reader sends of the first `count` files of a plan, in parts.
    fn parts(plan: &Plan, count: usize) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        for stream in &plan.streams[..count] {
            let file = ObservedFile { stream: stream.id, size: None, blocks: Vec::new() };
            let mut keep = |part: &[u8]| {
                parts.push(part.to_vec());
                Ok(())
            };
            encode(&file, &mut keep).expect("encoded");
        }
        parts
    }

    #[test]
    fn files_that_did_not_all_come_are_no_observation() {
        let plan = plan();
        let read = |parts: &[Vec<u8>]| {
            let mut read = ReadBack::default();
            parts.iter().for_each(|part| read.take(part));
            read.finish(&plan)
        };
        let all = plan.streams.len();
        assert_eq!(read(&parts(&plan, all)).expect("control").files.len(), all);
        let error = read(&parts(&plan, all - 1)).expect_err("one is missing").to_string();
        assert!(error.contains(&format!("{} of {all} files", all - 1)), "{error}");
        assert!(read(&[vec![0xff; 3]]).is_err(), "not a part");
    }
}
