//! The disk's speed and memory, measured against qemu-nbd with the same client.
//!
//! What always holds: both serve the same requests to the same fio, in turn, each time from nothing
//! and on the same file system; the disk records everything, as in a trial.

mod compare;
mod programs;

pub use compare::{BenchConfig, BenchReport, CaseReport, MemoryReport, compare};
pub use programs::BenchError;
