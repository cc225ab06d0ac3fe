//! Frames on the control port, for both of its ends.
//!
//! A frame is a 16-byte head (magic, kind, length, CRC-32C of the payload; little-endian) and its
//! payload. Bytes that are not a frame are an error with its place, never a panic, and no head makes
//! the reader reserve memory for bytes that have not arrived.

/// First bytes of every frame ("PC" and the version of the format).
const MAGIC: u32 = 0x0001_4350;
/// Bytes before a frame's payload.
pub const HEAD_BYTES: usize = 16;
/// No payload is longer: a larger length is damage, not data.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A numbered request or reply, as JSON.
    Json,
    /// Raw bytes that belong to the reply that follows.
    Blob,
}

/// One frame's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub kind: Kind,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Why bytes are not a frame, or cannot become one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not the start of a frame.
    #[error("no frame starts at byte {at} of the control port (found {found:#010x})")]
    Magic {
        /// Bytes before it on this stream.
        at: u64,
        /// What stands there.
        found: u32,
    },
    /// A kind that this version does not know.
    #[error("the frame at byte {at} of the control port has the unknown kind {kind}")]
    Kind {
        /// Bytes before it on this stream.
        at: u64,
        /// The kind it claims.
        kind: u32,
    },
    /// A length that no frame has.
    #[error("the frame at byte {at} of the control port claims {len} bytes, more than {max}", max = PAYLOAD_BYTES_MAX)]
    TooLong {
        /// Bytes before it on this stream.
        at: u64,
        /// The length it claims.
        len: u64,
    },
    /// The payload is not what was sent.
    #[error("the frame at byte {at} of the control port is damaged (CRC-32C differs)")]
    Checksum {
        /// Bytes before it on this stream.
        at: u64,
    },
    /// A payload that this version cannot read.
    #[error(
        "the frame that ends at byte {at} of the control port is not one of this version's: {why}"
    )]
    Content {
        /// Bytes up to its end on this stream.
        at: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// The head of a frame with this payload, to be sent right before it.
pub fn head(kind: Kind, payload: &[u8]) -> Result<[u8; HEAD_BYTES], FrameError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(FrameError::TooLong { at: 0, len: payload.len() as u64 });
    }
    let kind: u32 = match kind {
        Kind::Json => 0,
        Kind::Blob => 1,
    };
    let mut head = [0; HEAD_BYTES];
    let words = [MAGIC, kind, payload.len() as u32, crc32c::crc32c(payload)];
    for (slot, word) in words.into_iter().enumerate() {
        head[4 * slot..4 * slot + 4].copy_from_slice(&word.to_le_bytes());
    }
    Ok(head)
}

/// Cuts a byte stream into frames. Feed it what arrives, then take frames until there is none.
#[derive(Debug, Default)]
pub struct FrameReader {
    pending: Vec<u8>,
    /// Bytes of whole frames before `pending`.
    at: u64,
}

impl FrameReader {
    /// Adds bytes that arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Bytes of whole frames taken so far.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next whole frame, or `None` until more bytes arrive. After an error the stream cannot be
    /// trusted any more: the same error comes again.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((head, rest)) = self.pending.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let word = |slot: usize| {
            u32::from_le_bytes([head[slot], head[slot + 1], head[slot + 2], head[slot + 3]])
        };
        let (magic, kind, len, sum) = (word(0), word(4), word(8), word(12));
        if magic != MAGIC {
            return Err(FrameError::Magic { at: self.at, found: magic });
        }
        let kind = match kind {
            0 => Kind::Json,
            1 => Kind::Blob,
            _ => return Err(FrameError::Kind { at: self.at, kind }),
        };
        let len = len as usize;
        if len > PAYLOAD_BYTES_MAX {
            return Err(FrameError::TooLong { at: self.at, len: len as u64 });
        }
        let Some(payload) = rest.get(..len) else { return Ok(None) };
        if crc32c::crc32c(payload) != sum {
            return Err(FrameError::Checksum { at: self.at });
        }
        let payload = payload.to_vec();
        self.pending.drain(..HEAD_BYTES + len);
        self.at += (HEAD_BYTES + len) as u64;
        Ok(Some(Frame { kind, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame_bytes(kind: Kind, payload: &[u8]) -> Vec<u8> {
        [&head(kind, payload).expect("short enough")[..], payload].concat()
    }

    #[test]
    fn a_head_that_claims_too_much_is_refused_before_its_payload_arrives() {
        let mut bytes = frame_bytes(Kind::Blob, b"x");
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut reader = FrameReader::default();
        reader.feed(&bytes[..HEAD_BYTES]);
        assert_eq!(
            reader.next_frame(),
            Err(FrameError::TooLong { at: 0, len: u64::from(u32::MAX) })
        );
    }

    #[test]
    fn an_error_names_the_place_behind_the_frames_before_it() {
        let mut reader = FrameReader::default();
        reader.feed(&frame_bytes(Kind::Json, b"{}"));
        reader.feed(&[0xff; HEAD_BYTES]);
        assert!(matches!(reader.next_frame(), Ok(Some(_))));
        let error = FrameError::Magic { at: 18, found: u32::MAX };
        assert_eq!(reader.next_frame(), Err(error.clone()));
        assert_eq!(reader.next_frame(), Err(error));
    }

    #[test]
    fn a_changed_payload_is_noticed() {
        let mut bytes = frame_bytes(Kind::Json, b"{\"number\":1}");
        bytes[HEAD_BYTES + 3] ^= 1;
        let mut reader = FrameReader::default();
        reader.feed(&bytes);
        assert_eq!(reader.next_frame(), Err(FrameError::Checksum { at: 0 }));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), good_start: bool) {
            let mut reader = FrameReader::default();
            if good_start {
                reader.feed(&MAGIC.to_le_bytes());
            }
            reader.feed(&bytes);
            while let Ok(Some(_)) = reader.next_frame() {}
        }

        #[test]
        fn frames_survive_any_cutting_of_the_stream(
            payloads in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..50)), 0..6),
            step in 1usize..40,
        ) {
            let sent: Vec<Frame> = payloads
                .into_iter()
                .map(|(blob, payload)| Frame { kind: if blob { Kind::Blob } else { Kind::Json }, payload })
                .collect();
            let bytes: Vec<u8> =
                sent.iter().flat_map(|frame| frame_bytes(frame.kind, &frame.payload)).collect();
            let (mut reader, mut got) = (FrameReader::default(), Vec::new());
            for part in bytes.chunks(step) {
                reader.feed(part);
                while let Some(frame) = reader.next_frame().expect("whole frames") {
                    got.push(frame);
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert_eq!(reader.at(), bytes.len() as u64);
        }
    }
}
