//! The kill table: faults are planted in disk, stack, writer and evidence, and it is shown which
//! crash model let which oracle catch which.
//!
//! What always holds: what a fault must be caught by is written down in [`table`] before anything
//! runs, and [`rule`] alone decides whether it was. A control that raises an alarm fails the whole.

pub mod controls;
pub mod finding;
pub mod fua;
pub mod mutant;
pub mod options;
pub mod recorded;
pub mod render;
pub mod report;
pub mod rule;
pub mod run;
pub mod table;
pub mod tamper;
pub mod targets;
