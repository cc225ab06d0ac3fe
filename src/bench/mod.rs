//! The tool's own speed, as ratios to the tools that people trust, measured in one run.

pub mod explore;
pub mod host_states;
pub mod package;
pub mod turns;
pub mod workload;
pub mod zfs_states;
