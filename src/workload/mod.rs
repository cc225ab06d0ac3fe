//! What the guest writes: pure plans, and the threads that carry them out in the guest.

pub mod plan;
