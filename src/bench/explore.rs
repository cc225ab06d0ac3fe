//! What looking at a crash state costs, in the three places where it costs: in a guest, on this
//! machine's own kernel, and in making the state.

use super::host_states::{self, HostStates};
use super::zfs_states::{self, ZfsStates};
use crate::disk::CrashModel;
use crate::disk::bench::{PrepareReport, prepare};
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::num::NonZeroU32;

/// Writes of the traces whose states are made.
const TRACES: [u64; 3] = [10_000, 100_000, 1_000_000];

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct ExploreBench {
    /// A pool's states in a guest, against a cut the usual way.
    pub zfs: bool,
    /// ext4's states on this machine's own kernel.
    pub ext4: bool,
    /// Making states of short and long traces.
    pub prepare: bool,
    /// A pool's states.
    pub states: NonZeroU32,
}

/// What was measured.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ExploreReport {
    /// A pool's states in a guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zfs: Option<ZfsStates>,
    /// ext4's states on this machine's own kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ext4: Option<HostStates>,
    /// Making states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare: Option<PrepareReport>,
}

impl fmt::Display for ExploreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(zfs) = &self.zfs {
            writeln!(f, "{zfs}")?;
        }
        if let Some(ext4) = &self.ext4 {
            writeln!(f, "{ext4}")?;
        }
        match &self.prepare {
            Some(prepare) => write!(f, "{prepare}"),
            None => Ok(()),
        }
    }
}

/// Measures one after the other, in folders that go with it.
pub fn measure(bench: ExploreBench, watch: &Watch) -> Result<ExploreReport> {
    let folder = RunFolder::new()?;
    let mut report = ExploreReport::default();
    if bench.zfs {
        report.zfs = Some(zfs_states::measure(folder.path(), bench.states, watch)?);
    }
    if bench.ext4 {
        report.ext4 = Some(host_states::measure(folder.path(), watch)?);
    }
    if bench.prepare {
        report.prepare = Some(prepared(&folder, watch)?);
    }
    Ok(report)
}

fn prepared(folder: &RunFolder, watch: &Watch) -> Result<PrepareReport> {
    let model = CrashModel::DropUnflushed;
    let mut all = PrepareReport { model, costs: Vec::new() };
    for (number, writes) in TRACES.into_iter().enumerate() {
        watch.check()?;
        watch.tell(Progress::Part {
            stage: "making states".to_owned(),
            done: number as u64,
            total: TRACES.len() as u64,
            text: format!("of a trace of {writes} writes"),
        });
        all.costs.extend(prepare(folder.path(), model, &[writes])?.costs);
    }
    Ok(all)
}
