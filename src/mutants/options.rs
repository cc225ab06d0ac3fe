//! What is asked of the kill table.

use crate::guest::config::{Accel, Suite};
use std::path::PathBuf;

/// A whole call.
#[derive(Debug, Clone)]
pub struct MutantsOptions {
    /// The faults by name; all if none is named.
    pub only: Vec<String>,
    /// Everything random follows from it.
    pub seed: u64,
    /// Whether faults that need a guest are left out.
    pub host_only: bool,
    /// States of honest stacks that must raise no alarm.
    pub controls: u32,
    /// What a guest is made of.
    pub suite: Suite,
    /// How its CPU is run; `None` finds out.
    pub accel: Option<Accel>,
    /// Where a control's state is kept that raised an alarm.
    pub runs: PathBuf,
}
