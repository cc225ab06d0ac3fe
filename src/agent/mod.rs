//! Process 1 of the guest, and the protocol that it shares with the lab.

pub mod beside;
pub mod boot;
pub mod exec;
pub mod files;
pub mod frame;
pub mod init;
pub mod load;
pub mod observe;
pub mod observe_rows;
pub mod observe_tree;
pub mod ports;
pub mod program;
pub mod protocol;
pub mod serve;
pub mod txgs;
pub mod volumes;
pub mod wake;
