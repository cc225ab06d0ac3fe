//! The disk's speed and memory, measured against qemu-nbd with the same client; and what a crash
//! state costs.
//!
//! What always holds: disk and qemu-nbd serve the same requests to the same fio, in turn, each time
//! from nothing and on the same file system; the disk records everything, as in a trial.

mod compare;
mod prepare;
mod programs;

pub use compare::{BenchConfig, BenchReport, CaseReport, MemoryReport, compare};
pub use prepare::{PrepareCost, PrepareError, PrepareReport, Synthetic, prepare, prepare_cost};
pub use programs::BenchError;
