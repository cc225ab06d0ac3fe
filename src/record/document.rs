//! An observation that is no file of records, on the control port: a JSON document in parts.
//!
//! A part is a 16-byte head (magic, stream, flags, part number, kind) and up to 1 MiB of the document.
//! Little-endian, fixed widths. What always holds: whatever the bytes are, decoding holds no more than
//! [`DOCUMENT_BYTES_MAX`], and a document is handed out only whole.

use crate::record::wire::{PART_BYTES, Sink};
use crate::units::StreamId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// No document is longer.
pub const DOCUMENT_BYTES_MAX: usize = 256 << 20;

/// First bytes of a part ("PD" and the version of the format).
const MAGIC: u32 = 0x0001_4450;
const HEAD_BYTES: usize = 16;
const LAST: u16 = 1;

/// What a document describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An [`crate::script::tree::ObservedTree`].
    Tree,
    /// An [`crate::record::rows::ObservedRows`].
    Rows,
}

/// Why bytes are not a part of a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Its head is short, or says what no head says.
    #[error("part {part} of a document of an observation has no head like one")]
    Head {
        /// The part that was due.
        part: u32,
    },
    /// It is not the part that had to come.
    #[error("stream {stream}'s document: part {found} came, part {part} was due")]
    Order {
        /// Of which stream.
        stream: StreamId,
        /// The part that was due.
        part: u32,
        /// The part that came.
        found: u32,
    },
    /// It grows beyond all bounds.
    #[error("stream {stream}'s document is longer than {DOCUMENT_BYTES_MAX} bytes")]
    TooLong {
        /// Of which stream.
        stream: StreamId,
    },
    /// It is whole, and not what its kind has.
    #[error("stream {stream}'s document cannot be read")]
    Content {
        /// Of which stream.
        stream: StreamId,
        /// The parser's words.
        source: serde_json::Error,
    },
}

/// A whole document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Of which stream.
    pub stream: StreamId,
    /// What it describes.
    pub kind: Kind,
    /// Its JSON.
    pub json: Vec<u8>,
}

impl Document {
    /// Reads it as what its kind has.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, DocumentError> {
        let stream = self.stream;
        serde_json::from_slice(&self.json)
            .map_err(|source| DocumentError::Content { stream, source })
    }
}

/// Whether these bytes begin as a part of a document does.
pub fn is_document(part: &[u8]) -> bool {
    part.starts_with(&MAGIC.to_le_bytes())
}

/// Sends a document in parts.
pub fn encode(
    stream: StreamId,
    kind: Kind,
    document: &impl Serialize,
    sink: &mut Sink,
) -> io::Result<()> {
    let json = serde_json::to_vec(document)?;
    let chunks: Vec<&[u8]> = json.chunks(PART_BYTES).collect();
    for (number, chunk) in chunks.iter().enumerate() {
        let flags = if number + 1 == chunks.len() { LAST } else { 0 };
        let mut part = Vec::with_capacity(HEAD_BYTES + chunk.len());
        part.extend_from_slice(&MAGIC.to_le_bytes());
        part.extend_from_slice(&stream.0.to_le_bytes());
        part.extend_from_slice(&flags.to_le_bytes());
        part.extend_from_slice(&(number as u32).to_le_bytes());
        part.extend_from_slice(&(kind as u32).to_le_bytes());
        part.extend_from_slice(chunk);
        sink(&part)?;
    }
    Ok(())
}

/// Puts parts together again, one document after another.
#[derive(Debug, Default)]
pub struct DocumentDecoder {
    open: Option<Document>,
    part: u32,
}

impl DocumentDecoder {
    /// Takes the next part; hands the document out with its last. After an error the observation is
    /// lost.
    pub fn part(&mut self, bytes: &[u8]) -> Result<Option<Document>, DocumentError> {
        let part = self.part;
        let head = read_head(bytes).ok_or(DocumentError::Head { part })?;
        let (stream, kind) = (head.stream, head.kind);
        let mut open = self.open.take().unwrap_or(Document { stream, kind, json: Vec::new() });
        if head.part != part || (open.stream, open.kind) != (stream, kind) {
            return Err(DocumentError::Order { stream, part, found: head.part });
        }
        let rest = &bytes[HEAD_BYTES..];
        if open.json.len() + rest.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLong { stream });
        }
        open.json.extend_from_slice(rest);
        if head.last {
            self.part = 0;
            return Ok(Some(open));
        }
        self.part += 1;
        self.open = Some(open);
        Ok(None)
    }

    /// Whether a document has begun and not ended.
    pub fn is_within_one(&self) -> bool {
        self.open.is_some()
    }
}

struct Head {
    stream: StreamId,
    last: bool,
    part: u32,
    kind: Kind,
}

fn read_head(bytes: &[u8]) -> Option<Head> {
    let head = bytes.first_chunk::<HEAD_BYTES>()?;
    let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let word = |at: usize| u32::from(short(at)) | (u32::from(short(at + 2)) << 16);
    let kind = match word(12) {
        0 => Kind::Tree,
        1 => Kind::Rows,
        _ => return None,
    };
    let flags = short(6);
    (word(0) == MAGIC && flags <= LAST).then_some(Head {
        stream: StreamId(short(4)),
        last: flags == LAST,
        part: word(8),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(document: &[u64]) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        let mut keep = |part: &[u8]| {
            parts.push(part.to_vec());
            Ok(())
        };
        encode(StreamId(3), Kind::Rows, &document, &mut keep).expect("encoded");
        parts
    }

    #[test]
    fn a_document_of_several_parts_comes_back_whole() {
        let document: Vec<u64> = (0..300_000).collect();
        let parts = parts(&document);
        assert!(parts.len() > 1);
        let mut decoder = DocumentDecoder::default();
        let mut last = None;
        for part in &parts {
            assert!(last.is_none(), "only the last part ends it");
            last = decoder.part(part).expect("a part");
        }
        let whole = last.expect("the last part ends it");
        assert_eq!((whole.stream, whole.kind), (StreamId(3), Kind::Rows));
        assert_eq!(whole.read::<Vec<u64>>().expect("its numbers"), document);
    }

    #[test]
    fn a_part_that_is_missing_damaged_or_anothers_is_an_error() {
        let parts = parts(&(0..300_000).collect::<Vec<_>>());
        let mut decoder = DocumentDecoder::default();
        assert!(matches!(decoder.part(&parts[1]), Err(DocumentError::Order { found: 1, .. })));
        assert!(matches!(decoder.part(&parts[0][..9]), Err(DocumentError::Head { part: 0 })));
        let mut other = parts[1].clone();
        other[4] ^= 1;
        decoder.part(&parts[0]).expect("control");
        assert!(decoder.is_within_one());
        assert!(matches!(decoder.part(&other), Err(DocumentError::Order { .. })));
        let cut = Document { stream: StreamId(1), kind: Kind::Tree, json: b"[1,2".to_vec() };
        assert!(matches!(cut.read::<Vec<u64>>(), Err(DocumentError::Content { .. })));
    }
}
