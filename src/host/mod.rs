//! A disk of the lab given to this machine's own kernel, without a guest: it records a load, and it
//! verifies crash states, tens a second. A bad image then meets *your* kernel.
//!
//! The way of a request: file system -> loop device (direct I/O) -> FUSE file -> [`LocalDisk`] ->
//! trace. Three things always hold. Nothing is cached between file system and trace. Nothing has a
//! place in any folder: every mount is detached and known by its descriptor alone, so it ends with
//! the tool, however that ends. And no wait is for ever: when a limit passes, or the tool dies, the
//! FUSE connection is aborted (see [`guard`]), and every request on it ends with an error.
//!
//! [`LocalDisk`]: crate::disk::LocalDisk

pub mod bench;
mod connections;
mod disk;
mod error;
mod export;
pub mod guard;
mod kernel_log;
mod loop_device;
mod mount;
mod tools;

pub use disk::{HostDisk, Mounted};
pub use error::{HostError, MountError};
pub use tools::{check, make};
