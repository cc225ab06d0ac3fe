//! What the guest writes: pure plans, and the threads that carry them out in the guest.

pub mod check;
pub mod clock;
pub mod outbox;
pub mod pace;
pub mod plan;
pub mod reporter;
pub mod runner;
pub mod script_calls;
pub mod script_writer;
pub mod stream;
pub mod target;
pub mod writer;
