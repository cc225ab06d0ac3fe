//! Scenarios, and what lies between a program and the medium.

pub mod build;
pub mod check;
pub mod debian;
pub mod full_root;
pub mod light;
pub mod pattern;
pub mod plain;
pub mod pool;
pub mod recover;
pub mod release;
pub mod scenario;
pub mod settings;
pub mod spec;
pub mod vdev;
pub mod volumes;
pub mod zfs;
