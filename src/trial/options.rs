//! What a trial is asked to be.

use crate::guest::config::{Accel, Suite};
use serde::Serialize;
use std::path::PathBuf;

/// A trial's options, after the command line was understood.
#[derive(Debug, Clone, Serialize)]
pub struct TrialOptions {
    /// Name or path of the scenario.
    pub scenario: String,
    /// `--set`s, in their order; flags that stand for one come last.
    pub sets: Vec<String>,
    /// Everything random but the run id follows from it.
    pub seed: u64,
    /// What the guest is made of.
    pub suite: Suite,
    /// How its CPU is run; `None` finds out.
    pub accel: Option<Accel>,
    /// The folder in which the run's folder is made.
    pub runs: PathBuf,
}
