//! What was read back from a stream's file, block by block.

use crate::units::{EventNo, GuestNs, Seq, StreamId};

/// One stream's file as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedFile {
    /// The stream whose file it is.
    pub stream: StreamId,
    /// The file's size in bytes; `None` when the file is not there.
    pub size: Option<u64>,
    /// Block n was read at byte offset n * 4096. There are ceil(size / 4096) of them.
    pub blocks: Vec<ObservedBlock>,
}

/// One record-sized place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedBlock {
    /// Nothing but zero bytes.
    Zeros,
    /// A whole record of this run, in its own place, with exactly the body that the plan names for
    /// its sequence. Nothing less is a `Record`.
    Record(Summary),
    /// Anything else, as it was read (shorter than a record only at the end of the file).
    Odd(Box<[u8]>),
    /// The read failed with this errno.
    Unreadable(i32),
}

/// What a whole record says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Place in the stream.
    pub seq: Seq,
    /// Its operation's first event number.
    pub start: EventNo,
    /// The guest's clock when it was made.
    pub stamp: GuestNs,
    /// First 8 bytes of its digest.
    pub digest: [u8; 8],
    /// First 8 bytes of the digest of the stream's previous record.
    pub previous: [u8; 8],
}
