//! Process 1 of the guest.

pub mod init;
pub mod load;
pub mod observe;
pub mod protocol;
pub mod txgs;
