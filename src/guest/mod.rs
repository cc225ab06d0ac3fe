//! The guest, seen from the lab: what it is made of, how it starts, and how to talk to it.
//!
//! [`Lab::prepare`] finds or makes everything once (host packages, image, acceleration);
//! [`Lab::start`] gives a [`Guest`] whose agent answers. Three things always hold: every wait has an
//! end and also ends when QEMU does; dropping a guest kills it; and what a killed tool leaves behind
//! is removed by [`sweep`].

pub mod acceleration;
pub mod arguments;
pub mod build_script;
pub mod cache;
pub mod config;
pub mod control;
pub mod disk;
pub mod error;
pub mod full_root;
pub mod host;
pub mod image;
pub mod initrd;
pub mod lab;
pub mod link;
pub mod machine;
pub mod process;
pub mod progress;
pub mod qmp;
pub mod recipe;
pub mod run_folder;
pub mod running;
pub mod saved;

pub use cache::cache_folder;
pub use config::{Accel, GuestConfig, Suite};
pub use control::Control;
pub use disk::{AddedDisk, DiskBus, DiskSource};
pub use error::GuestError;
pub use full_root::FullRoot;
pub use lab::{Lab, Start};
pub use progress::{Progress, Watch};
pub use run_folder::sweep;
pub use running::Guest;
