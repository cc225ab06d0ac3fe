//! One append-only file of a run, on one clock: disk requests and replies, messages, marks, the cut.
//!
//! What always holds: the order of the entries is the order of truth, because every entry is
//! appended under one lock; a request stands before it was acted on and a reply before it was sent;
//! no request and no reply stands behind the cut. The file is a sequence of whole entries up to the
//! place where the tool was killed, wherever that was, and reading it never trusts a length.

mod entry;
mod header;
mod reader;
mod recorder;
mod tail;

pub use entry::{
    ClockSample, Command, Damage, ENTRY_HEAD_BYTES, Entry, EntryNo, PAYLOAD_BYTES_MAX, Request,
    RequestNo,
};
pub use header::{HEADER_BYTES, HeaderError, TraceHeader};
pub use reader::{EntryAt, TraceEnd, TraceReader};
pub use recorder::{Recorder, TraceError, lab_now};
