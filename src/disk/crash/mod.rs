//! Crash models: what the medium holds after the power went, as a function of the trace.
//!
//! What always holds: same trace, cut, model and seed give the same bytes. Nothing here reads a
//! clock or draws from anything but the seed, and a payload is never altered, only shown or not.

mod chance;
mod cursor;
mod durable;
mod fault;
mod medium;
mod model;
#[cfg(test)]
pub(crate) mod plain;
mod planted;
#[cfg(test)]
mod reference;
#[cfg(test)]
pub(crate) mod script;
mod state_id;
mod visible;

pub use cursor::{CrashError, CrashState, StateCursor, crash_state, crash_state_with};
pub use durable::{Durable, DurableAt, DurableBefore, durable_requests};
pub use fault::{DiskFault, FaultTextError};
pub use model::{CrashModel, ModelError};
pub use planted::FaultError;
pub use state_id::StateId;
pub use visible::{VisibleWrite, visible_writes};
