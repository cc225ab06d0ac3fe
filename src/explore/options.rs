//! What is asked of an exploration.

use super::cuts::Which;
use crate::disk::CrashModel;
use crate::trial::options::TrialOptions;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Where the recording comes from.
#[derive(Debug, Clone)]
pub enum From {
    /// It is made now.
    Record(TrialOptions),
    /// The folder of a run.
    Run(PathBuf),
}

/// Whose kernel records, and looks at states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum In {
    /// A guest's.
    Guest,
    /// This machine's own.
    Host,
}

/// A whole exploration.
#[derive(Debug, Clone)]
pub struct ExploreOptions {
    /// Where the recording comes from.
    pub from: From,
    /// Whose kernel.
    pub place: In,
    /// What the disk's volatile cache does; the scenario's model if none is named.
    pub model: Option<CrashModel>,
    /// Which states; what suits the model if nothing is named.
    pub which: Option<Which>,
    /// How long states may be looked at; as long as it takes without one.
    pub budget: Option<Duration>,
    /// Second cuts, during the recovery from each state.
    pub recovery_cuts: u32,
    /// Kernels, or mounts of this machine's, at once.
    pub workers: NonZeroUsize,
}
