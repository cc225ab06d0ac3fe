//! What is asked of a round over the scenarios.

use crate::guest::{Accel, Suite};
use std::path::PathBuf;
use std::time::Duration;

/// A whole round.
#[derive(Debug, Clone)]
pub struct TriedOptions {
    /// Names or paths of scenarios; all that come with the tool if there is none.
    pub scenarios: Vec<String>,
    /// Everything random follows from it.
    pub seed: u64,
    /// How long each run's other cuts are looked at; none are with no time.
    pub explore: Duration,
    /// What guests are made of.
    pub suite: Suite,
    /// How their CPU is run; `None` finds out.
    pub accel: Option<Accel>,
    /// Where run folders are made.
    pub runs: PathBuf,
}
