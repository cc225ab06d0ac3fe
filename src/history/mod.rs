//! What the guest told the lab, in the order of its event numbers.

pub mod message;
