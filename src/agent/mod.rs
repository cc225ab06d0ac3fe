//! Process 1 of the guest.

pub mod init;
pub mod protocol;
