//! Where crash states are looked at.

use crate::disk::Image;
use crate::trial::inspect::Observation;
use anyhow::Result;
use std::path::Path;

/// A kernel that looks at one crash state after the other.
pub trait Site {
    /// Gives the state to the kernel, has it recovered, checked and read, and lets go of it. What
    /// recovery writes goes to a new trace at `overlay`. A kernel that dies of the state is an
    /// outcome; an error says that the state could not be looked at.
    fn look(&mut self, state: Image, overlay: &Path) -> Result<Observation>;

    /// How many kernels were started.
    fn starts(&self) -> u32;
}
