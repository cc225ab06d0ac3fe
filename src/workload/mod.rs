//! What the guest writes: pure plans, and the threads that carry them out in the guest.

pub mod account;
pub mod check;
pub mod clock;
pub mod exec_lines;
pub mod exec_stream;
pub mod ledger;
pub mod outbox;
pub mod pace;
pub mod plan;
pub mod reporter;
pub mod runner;
pub mod script_calls;
pub mod script_writer;
pub mod sqlite;
pub mod stream;
pub mod target;
#[cfg(test)]
pub(crate) mod testing;
pub mod writer;
