//! The messages of a guest, and their frames on a byte stream.
//!
//! A frame is an 16-byte head (magic, kind, length, CRC-32C of the payload) and its payload, all
//! little-endian with fixed widths. Frames may be batched and may arrive in any order; nothing in
//! here depends on when they arrive. Bytes that are not a frame are an error with its place, never
//! a panic.

use crate::units::{EventNo, GuestNs, Seq, StreamId, Txg};

/// First bytes of every frame ("PM" and the version of the format).
const MAGIC: u32 = 0x0001_4d50;
/// Bytes before a frame's payload.
pub const HEAD_BYTES: usize = 16;
/// No payload is longer: a larger length is damage, not data.
pub const PAYLOAD_BYTES_MAX: usize = 4096;

/// One message of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The end of one operation and the announcement of the stream's next.
    Op(OpMessage),
    /// A row of the pool's txgs kstat, sent each time its state changed.
    Txg(TxgRow),
    /// A stream started, ended, or failed.
    Stream(StreamNote),
}

/// One message an operation: the ack of one carries the intent of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpMessage {
    /// The stream both parts belong to.
    pub stream: StreamId,
    /// Event number taken when this message was made.
    pub event: EventNo,
    /// The operation that just returned, if any.
    pub ack: Option<Ack>,
    /// The next operation, if there will be one.
    pub intent: Option<Intent>,
}

/// An operation whose durability call has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Place in the stream.
    pub seq: Seq,
    /// Taken just before its first call; the record on disk carries it.
    pub start: EventNo,
    /// Taken after the write returned: visible, nothing promised.
    pub done: EventNo,
    /// Taken after the call that makes it durable returned.
    pub end: EventNo,
    /// Clock just before its first call.
    pub start_ns: GuestNs,
    /// Clock after the write returned.
    pub done_ns: GuestNs,
    /// Clock after the call that makes it durable returned: the ack instant.
    pub end_ns: GuestNs,
    /// First 8 bytes of the record's digest: what was acknowledged, not only where.
    pub digest: [u8; 8],
}

/// An operation that is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intent {
    /// Place in the stream.
    pub seq: Seq,
    /// Byte offset in the stream's file.
    pub location: u64,
}

impl Intent {
    /// Of an operation that writes no record.
    pub fn without_place(seq: Seq) -> Intent {
        Intent { seq, location: 0 }
    }
}

/// The states of a transaction group, as the kstat names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TxgState {
    /// `O`: takes new transactions.
    Open,
    /// `Q`: closed, its transactions still end.
    Quiescing,
    /// `W`: waits for the sync thread.
    Waiting,
    /// `S`: being written.
    Syncing,
    /// `C`: its uberblock was written and flushed, as far as the guest knows.
    Committed,
}

/// One row of `/proc/spl/kstat/zfs/<pool>/txgs`. Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxgRow {
    /// Event number taken just after the row was read.
    pub event: EventNo,
    /// Clock just after the row was read.
    pub seen_ns: GuestNs,
    /// Which transaction group.
    pub txg: Txg,
    /// When it opened.
    pub birth: GuestNs,
    /// How far it has come.
    pub state: TxgState,
    /// Dirty bytes when it was synced.
    pub dirty_bytes: u64,
    /// Time open.
    pub open_ns: u64,
    /// Time quiescing.
    pub quiesce_ns: u64,
    /// Time waiting for the sync thread.
    pub wait_ns: u64,
    /// Time syncing.
    pub sync_ns: u64,
}

/// What became of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent {
    /// Its load begins.
    Started,
    /// It ended as asked.
    Ended,
    /// A call failed with this errno; the stream acks nothing after it.
    Failed(i32),
}

/// A stream started, ended, or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamNote {
    /// Which stream.
    pub stream: StreamId,
    /// Event number taken when it happened.
    pub event: EventNo,
    /// Clock when it happened.
    pub at: GuestNs,
    /// What happened.
    pub what: StreamEvent,
}

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not the start of a frame.
    #[error("no frame starts at byte {at} of the guest's messages (found {found:#010x})")]
    Magic {
        /// Bytes before it on this stream.
        at: u64,
        /// What stands there.
        found: u32,
    },
    /// The head names a length that no message has.
    #[error(
        "the frame at byte {at} of the guest's messages claims {len} bytes, more than {PAYLOAD_BYTES_MAX}"
    )]
    TooLong {
        /// Bytes before it on this stream.
        at: u64,
        /// The length it claims.
        len: u32,
    },
    /// The payload is not what was sent.
    #[error("the frame at byte {at} of the guest's messages is damaged (CRC-32C differs)")]
    Checksum {
        /// Bytes before it on this stream.
        at: u64,
    },
    /// A payload that this version cannot read.
    #[error("a message of kind {kind} with {len} bytes is not one of this version's")]
    Payload {
        /// The frame's kind.
        kind: u32,
        /// Its payload's length.
        len: usize,
    },
}

impl Message {
    /// Appends this message's frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head_at = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        let kind: u32 = match self {
            Message::Op(op) => {
                put_op(out, op);
                1
            }
            Message::Txg(row) => {
                put_txg(out, row);
                2
            }
            Message::Stream(note) => {
                put_note(out, note);
                3
            }
        };
        let payload = &out[head_at + HEAD_BYTES..];
        let (len, sum) = (payload.len() as u32, crc32c::crc32c(payload));
        for (slot, value) in [MAGIC, kind, len, sum].into_iter().enumerate() {
            let at = head_at + 4 * slot;
            out[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }

    fn decode(kind: u32, payload: &[u8]) -> Result<Message, FrameError> {
        let mut fields = Fields(payload);
        let message = match kind {
            1 => take_op(&mut fields).map(Message::Op),
            2 => take_txg(&mut fields).map(Message::Txg),
            3 => take_note(&mut fields).map(Message::Stream),
            _ => None,
        };
        match message {
            Some(message) if fields.0.is_empty() => Ok(message),
            _ => Err(FrameError::Payload { kind, len: payload.len() }),
        }
    }
}

/// Cuts a byte stream into messages. Feed it what arrives, then take messages until there is none.
#[derive(Debug, Default)]
pub struct Frames {
    pending: Vec<u8>,
    taken: usize,
    /// Bytes of whole frames before `pending[taken]`.
    at: u64,
}

impl Frames {
    /// Adds bytes that arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.drain(..self.taken);
        self.taken = 0;
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole frame and its message, or `None` until more bytes arrive. After an error the
    /// stream cannot be trusted any more: the same error comes again.
    pub fn next_frame(&mut self) -> Result<Option<(&[u8], Message)>, FrameError> {
        let rest = &self.pending[self.taken..];
        if rest.len() < HEAD_BYTES {
            return Ok(None);
        }
        let word = |slot: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&rest[4 * slot..4 * slot + 4]);
            u32::from_le_bytes(bytes)
        };
        let (magic, kind, len, sum) = (word(0), word(1), word(2), word(3));
        if magic != MAGIC {
            return Err(FrameError::Magic { at: self.at, found: magic });
        }
        if len as usize > PAYLOAD_BYTES_MAX {
            return Err(FrameError::TooLong { at: self.at, len });
        }
        let total = HEAD_BYTES + len as usize;
        if rest.len() < total {
            return Ok(None);
        }
        let payload = &rest[HEAD_BYTES..total];
        if crc32c::crc32c(payload) != sum {
            return Err(FrameError::Checksum { at: self.at });
        }
        let message = Message::decode(kind, payload)?;
        let start = self.taken;
        self.taken += total;
        self.at += total as u64;
        Ok(Some((&self.pending[start..start + total], message)))
    }
}

/// Reads fixed-width little-endian fields off the front of a payload.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }
}

fn put_u64s(out: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn put_op(out: &mut Vec<u8>, op: &OpMessage) {
    out.extend_from_slice(&op.stream.0.to_le_bytes());
    out.push(u8::from(op.ack.is_some()));
    out.push(u8::from(op.intent.is_some()));
    put_u64s(out, &[op.event.0]);
    if let Some(ack) = &op.ack {
        put_u64s(out, &[ack.seq.0, ack.start.0, ack.done.0, ack.end.0]);
        put_u64s(out, &[ack.start_ns.0, ack.done_ns.0, ack.end_ns.0]);
        out.extend_from_slice(&ack.digest);
    }
    if let Some(intent) = &op.intent {
        put_u64s(out, &[intent.seq.0, intent.location]);
    }
}

fn take_op(fields: &mut Fields) -> Option<OpMessage> {
    let stream = StreamId(fields.u16()?);
    let flag = |byte| match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let has_ack = flag(fields.byte()?)?;
    let has_intent = flag(fields.byte()?)?;
    let event = EventNo(fields.u64()?);
    let ack = if has_ack { Some(take_ack(fields)?) } else { None };
    let intent = if has_intent {
        Some(Intent { seq: Seq(fields.u64()?), location: fields.u64()? })
    } else {
        None
    };
    Some(OpMessage { stream, event, ack, intent })
}

fn take_ack(fields: &mut Fields) -> Option<Ack> {
    Some(Ack {
        seq: Seq(fields.u64()?),
        start: EventNo(fields.u64()?),
        done: EventNo(fields.u64()?),
        end: EventNo(fields.u64()?),
        start_ns: GuestNs(fields.u64()?),
        done_ns: GuestNs(fields.u64()?),
        end_ns: GuestNs(fields.u64()?),
        digest: fields.array()?,
    })
}

fn put_txg(out: &mut Vec<u8>, row: &TxgRow) {
    let state = match row.state {
        TxgState::Open => b'O',
        TxgState::Quiescing => b'Q',
        TxgState::Waiting => b'W',
        TxgState::Syncing => b'S',
        TxgState::Committed => b'C',
    };
    out.push(state);
    put_u64s(out, &[row.event.0, row.seen_ns.0, row.txg.0, row.birth.0, row.dirty_bytes]);
    put_u64s(out, &[row.open_ns, row.quiesce_ns, row.wait_ns, row.sync_ns]);
}

fn take_txg(fields: &mut Fields) -> Option<TxgRow> {
    let state = TxgState::from_letter(fields.byte()?)?;
    Some(TxgRow {
        state,
        event: EventNo(fields.u64()?),
        seen_ns: GuestNs(fields.u64()?),
        txg: Txg(fields.u64()?),
        birth: GuestNs(fields.u64()?),
        dirty_bytes: fields.u64()?,
        open_ns: fields.u64()?,
        quiesce_ns: fields.u64()?,
        wait_ns: fields.u64()?,
        sync_ns: fields.u64()?,
    })
}

impl TxgState {
    /// The state behind a letter of the kstat's `state` column.
    pub fn from_letter(letter: u8) -> Option<TxgState> {
        Some(match letter {
            b'O' => TxgState::Open,
            b'Q' => TxgState::Quiescing,
            b'W' => TxgState::Waiting,
            b'S' => TxgState::Syncing,
            b'C' => TxgState::Committed,
            _ => return None,
        })
    }
}

fn put_note(out: &mut Vec<u8>, note: &StreamNote) {
    let (what, errno) = match note.what {
        StreamEvent::Started => (0u8, 0),
        StreamEvent::Ended => (1, 0),
        StreamEvent::Failed(errno) => (2, errno),
    };
    out.extend_from_slice(&note.stream.0.to_le_bytes());
    out.push(what);
    out.extend_from_slice(&errno.to_le_bytes());
    put_u64s(out, &[note.event.0, note.at.0]);
}

fn take_note(fields: &mut Fields) -> Option<StreamNote> {
    let stream = StreamId(fields.u16()?);
    let what = fields.byte()?;
    let errno = fields.i32()?;
    let what = match what {
        0 => StreamEvent::Started,
        1 => StreamEvent::Ended,
        2 => StreamEvent::Failed(errno),
        _ => return None,
    };
    Some(StreamNote { stream, what, event: EventNo(fields.u64()?), at: GuestNs(fields.u64()?) })
}
