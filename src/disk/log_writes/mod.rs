//! The log of the kernel's dm-log-writes, which xfstests' replay-log lays onto a disk: traces are
//! exported to it and such logs are imported as traces.
//!
//! It lies in `disk` and not beside the trace because what an export must keep are crash states.
//!
//! What always holds: replaying an exported log up to a flush, a FUA write or a mark gives what
//! `drop-unflushed` gives for a cut at that place of the trace, and replaying all of it what
//! `keep-all` gives at its end. A log that was exported, imported and exported again is the same,
//! byte for byte.
//!
//! # What goes where
//!
//! The kernel logs a write not when it comes but when it is durable: those that were answered before
//! a flush arrived stand before the flush's entry, which is written when the flush is answered; a FUA
//! write stands where it was answered. So does an export, with two differences, both because the
//! order of *arrival* decides which of two overlapping writes a disk shows, and a log is replayed in
//! its own order: writes made durable by one flush stand in the order of arrival, not of their
//! answers, and of a write that became durable after a later one, only what that did not cover.
//!
//! Messages, marks, notes and the cut are mark entries (see `marks`): an ack's says which stream and
//! operation, so that `replay-log --end-mark` stops at what was durable when it came. What was never
//! durable comes last, behind the mark `plugpull:unflushed:`, without FUA.
//!
//! # What an export loses
//!
//! Times, and so loss windows in seconds: an imported trace has those of the import, and clock
//! samples are left out so that nothing can be computed from old stamps by accident. Reads, failed
//! flushes, and whether a write that never became durable was answered. Zeroing is a write of zeros
//! (holes in the log's file), a write of zeros is imported as zeroing. Requests may be split: data at
//! 32 MiB, trims at 128 MiB, because replay-log skips longer ones where it has to write zeros.

mod arrivals;
mod export;
mod import;
mod layout;
mod marks;
mod reader;
#[cfg(test)]
mod tests;

pub use export::{ExportError, Exported, export};
pub use import::{ImportError, Imported, import};
pub use layout::LayoutError;
pub use marks::MarkError;
