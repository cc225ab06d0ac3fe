//! The tool's own speed, as ratios to the tools that people trust, measured in one run.

pub mod workload;
