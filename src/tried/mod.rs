//! Every scenario tried once: the table of scenarios, claims, and what was found.

pub mod options;
pub mod render;
pub mod report;
pub mod run;
