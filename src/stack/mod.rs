//! Scenarios, and what lies between a program and the medium.

pub mod build;
pub mod recover;
pub mod scenario;
pub mod settings;
pub mod zfs;
