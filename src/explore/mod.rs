//! Every cut of one recording: which crash states there are, what a kernel finds in each, and the
//! loss at every instant that follows.
//!
//! The way of the data: [`cuts`] lists the states of a recording; [`site`] gives one after the other
//! to a kernel; [`state`] judges each with the oracles of a trial, as if the power had gone at the
//! last instant for which it stands; [`store`] keeps each outcome when it is known, so that an
//! interrupted exploration goes on; [`sum`] makes one report of them.
//!
//! **Invariant**: a claim is `held` only if every state of the list was looked at.

pub mod cuts;
pub mod guest_site;
pub mod host_site;
pub mod options;
pub mod order;
pub mod render;
pub mod report;
pub mod run;
pub mod site;
pub mod source;
pub mod state;
pub mod store;
pub mod sum;
#[cfg(test)]
mod testing;
pub mod which;
pub mod worker;
