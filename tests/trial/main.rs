//! Real power cuts of a real ZFS in a real guest, from the command line. Names of tests that need
//! the guest start with `guest_`.
//!
//! The first of these tests to run builds the guest image if the cache has none (some ten minutes),
//! and saves the guest. They take turns: two emulated guests on two cores gain nothing.

mod cuts;
mod killed;
mod plain;
mod planted;
mod stacks;
mod support;
mod usage;
