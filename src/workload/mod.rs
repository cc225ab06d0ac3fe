//! What the guest writes: pure plans, and the threads that carry them out in the guest.

pub mod check;
pub mod clock;
pub mod outbox;
pub mod pace;
pub mod plan;
pub mod runner;
pub mod stream;
pub mod target;
pub mod writer;
