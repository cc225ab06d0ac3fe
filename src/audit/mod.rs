//! Does a live pool have the `sync` that its owner's policy says, on every dataset and on those to come?

pub mod judge;
pub mod live;
pub mod pattern;
pub mod policy;
pub mod render;
