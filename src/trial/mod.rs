//! One trial: load, cut, observation, verdicts, and the run folder that keeps them.

pub mod compose;
pub mod evidence;
pub mod facts;
pub mod folder;
pub mod host;
pub mod import;
pub mod inspect;
pub mod live;
pub mod options;
pub mod render;
pub mod report;
pub mod run;
pub mod slowdown;
pub mod stages;
