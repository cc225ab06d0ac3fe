//! The oracles: pure functions from history, observation and claim to a verdict.
//!
//! **Invariant**: when the data do not prove a claim, the verdict is `not measured`; when they
//! contradict themselves, `harness broken`. Neither is ever a pass.

pub mod atomic;
pub mod case;
pub mod consistent;
pub mod curve;
pub mod durable;
pub mod intact;
pub mod load;
pub mod max_loss;
pub mod outcome;
pub mod point_in_time;
pub mod predict;
pub mod prefix;
pub mod rows;
pub mod survey;
pub mod tree;
pub mod txgs;
pub mod verdict;
pub mod window;
