//! The lab's disk: an NBD server whose every request is in the trace, and the crash models that say
//! what its medium holds after the power went.
//!
//! The way of a request: [`nbd`] reads it off a connection; the recorder logs it; timing says when
//! it is answered; the store shows its data; the recorder logs the reply, and only then it is sent.
//! What always holds: data live in the trace and nowhere else, and a fault never alters them.

pub mod bench;
mod commit_times;
mod commits;
mod connection;
pub mod crash;
mod device;
mod extents;
mod image;
mod inbox;
mod log;
pub mod log_writes;
pub mod nbd;
mod queue;
mod replies;
mod server;
mod timing;
pub mod uberblock;

pub use commit_times::{Commit, commit_times};
pub use commits::CutRule;
pub use crash::{CrashError, CrashModel, crash_state, durable_requests};
pub use device::DiskEvent;
pub use extents::{ExtentMap, Piece};
pub use image::{DISK_BYTES_MAX, Image, ImageError};
pub use log::{DiskLog, DiskReply, DiskRequest, LOAD_BEGINS, LogError, Mark, UberblockSighting};
pub use server::{DiskConfig, DiskError, DiskServer};
pub use timing::Timing;
