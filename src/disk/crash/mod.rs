//! Crash models: what the medium holds after the power went, as a function of the trace.
//!
//! What always holds: same trace, cut, model and seed give the same bytes. Nothing here reads a
//! clock or draws from anything but the seed, and a payload is never altered, only shown or not.

mod durable;
mod medium;
mod model;
#[cfg(test)]
mod reference;
#[cfg(test)]
pub(super) mod script;

pub use durable::{Durable, durable_requests};
pub use medium::{CrashError, crash_state};
pub use model::{CrashModel, ModelError};
