//! What the guest told the lab, in the order of its event numbers.

pub mod clock;
pub mod log;
pub mod message;
