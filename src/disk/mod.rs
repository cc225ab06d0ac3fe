//! The lab's disk: an NBD server, or calls within this process, whose every request is in the trace,
//! and the crash models that say what its medium holds after the power went.
//!
//! The way of a request: [`nbd`] reads it off a connection, or [`LocalDisk`] is called; the recorder logs it; timing says when
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
pub mod jbd2;
mod live_store;
mod local;
mod log;
pub mod log_writes;
pub mod nbd;
mod queue;
mod replies;
mod server;
mod shown;
mod timing;
pub mod uberblock;

pub use commit_times::{Commit, commit_times};
pub use commits::CutRule;
pub use crash::{
    CrashError, CrashModel, CrashState, DiskFault, DurableAt, FaultError, StateCursor, StateId,
    VisibleWrite, crash_state, crash_state_with, durable_requests, visible_writes,
};
pub use device::{DiskEvent, failure};
pub use extents::{ExtentMap, Piece};
pub use image::{DISK_BYTES_MAX, Image, ImageError};
pub use live_store::LiveStore;
pub use local::{LocalDisk, LocalError};
pub use log::{
    DiskLog, DiskReply, DiskRequest, JournalSighting, LOAD_BEGINS, LogError, Mark,
    UberblockSighting,
};
pub use nbd::NO_FLUSH_EXPORT;
pub use server::{DiskConfig, DiskError, DiskServer};
pub use timing::Timing;
