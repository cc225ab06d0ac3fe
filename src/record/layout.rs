//! The 4,096 bytes of a record: how they are made and what proves them whole.
//!
//! A 192-byte header, a body spread over eight sectors, and a 16-byte tag at the end of each sector.
//! Everything is little-endian with fixed widths. What always holds: the header's SHA-256 covers the
//! header before it and all eight tags, and the header carries the body's SHA-256, so no byte of a
//! whole record can change unseen; and each tag names run, stream, sequence and sector, so that a
//! sector can be recognised without its neighbours.

use crate::record::observed::Summary;
use crate::units::{EventNo, GuestNs, RunId, SECTOR_BYTES, Seq, StreamId};
use crate::workload::plan;
use sha2::{Digest as _, Sha256};
use std::ops::Range;

/// Bytes of a record.
pub const RECORD_BYTES: usize = plan::RECORD_BYTES as usize;
/// Sectors of a record.
pub const SECTORS: usize = 8;
/// Bytes of the header, at the front of sector 0.
pub const HEADER_BYTES: usize = 192;
/// Bytes of the tag that ends each sector.
pub const TAG_BYTES: usize = 16;
/// Bytes of a body, all sectors together.
pub const BODY_BYTES: usize = RECORD_BYTES - HEADER_BYTES - SECTORS * TAG_BYTES;
/// The format's version.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"PLUGPULL";
const VERSION_AT: usize = 8;
const SECTORS_AT: usize = 10;
const STREAM_AT: usize = 12;
const RESERVED_AT: usize = 14;
const RUN_AT: usize = 16;
const START_AT: usize = 32;
const SEQ_AT: usize = 40;
const LOCATION_AT: usize = 48;
const STAMP_AT: usize = 56;
const PREVIOUS_AT: usize = 64;
const BODY_INDEX_AT: usize = 96;
const BODY_LEN_AT: usize = 100;
const BODY_DIGEST_AT: usize = 104;
const PADDING_AT: usize = 136;
const SEAL_AT: usize = 160;

const _: () = assert!(RECORD_BYTES == SECTORS * SECTOR_BYTES);
const _: () = assert!(BODY_BYTES == 304 + 7 * 496);
const _: () = assert!(SEAL_AT + 32 == HEADER_BYTES);
const _: () = assert!(PADDING_AT + 24 == SEAL_AT);
const _: () = assert!(BODY_DIGEST_AT + 32 == PADDING_AT);
const _: () = assert!(VERSION <= u8::MAX as u16, "a tag has one byte for the version");

/// The bytes of a record.
pub type RecordBytes = [u8; RECORD_BYTES];
/// The bytes of a body.
pub type Body = [u8; BODY_BYTES];

/// A SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The SHA-256 of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Its first 8 bytes, which stand for it in messages and summaries.
    pub fn short(&self) -> [u8; 8] {
        head(&self.0)
    }
}

/// What a record says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The run that wrote it.
    pub run: RunId,
    /// Its stream.
    pub stream: StreamId,
    /// Its operation's first event number.
    pub start: EventNo,
    /// Place in the stream.
    pub seq: Seq,
    /// Byte offset in the stream's file.
    pub location: u64,
    /// The guest's clock when it was made.
    pub stamp: GuestNs,
    /// Digest of the stream's previous record; zeros in a stream's first.
    pub previous: Digest,
    /// Which of the plan's bodies it carries.
    pub body: u32,
    /// SHA-256 of that body.
    pub body_digest: Digest,
}

impl Header {
    /// The short form for observations; `digest` is the record's own.
    pub fn summary(&self, digest: Digest) -> Summary {
        Summary {
            seq: self.seq,
            start: self.start,
            stamp: self.stamp,
            digest: digest.short(),
            previous: self.previous.short(),
        }
    }
}

/// Why bytes are not a whole record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotARecord {
    /// It does not start like one.
    #[error("the record does not start with its magic")]
    Magic,
    /// A format that this version does not write.
    #[error("the record's version is {0}, this tool reads {VERSION} (use the tool that wrote it)")]
    Version(u16),
    /// A field that has one possible value has another.
    #[error("the record's {0} is not what this version writes")]
    Fixed(&'static str),
    /// A sector's tag is not the header's.
    #[error("the tag of sector {sector} does not fit the record's header")]
    Tag {
        /// Which, from 0.
        sector: usize,
    },
    /// Header or tags are not what was sealed.
    #[error("header and tags do not have the digest that the record carries")]
    Seal,
    /// The body is not what the header names.
    #[error("the body does not have the digest that the record's header carries")]
    Body,
}

/// What the tag at the end of a sector says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// First 4 bytes of the run's id.
    pub run: [u8; 4],
    /// The record's stream.
    pub stream: StreamId,
    /// Which sector of the record, from 0.
    pub sector: u8,
    /// The format's version.
    pub version: u8,
    /// The record's place in its stream.
    pub seq: Seq,
}

impl Tag {
    /// The tag of one sector of a record.
    pub fn of(run: &RunId, stream: StreamId, seq: Seq, sector: usize) -> Tag {
        Tag { run: head(&run.0), stream, sector: sector as u8, version: VERSION as u8, seq }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; TAG_BYTES] {
        let mut bytes = [0; TAG_BYTES];
        bytes[..4].copy_from_slice(&self.run);
        bytes[4..6].copy_from_slice(&self.stream.0.to_le_bytes());
        bytes[6] = self.sector;
        bytes[7] = self.version;
        bytes[8..].copy_from_slice(&self.seq.0.to_le_bytes());
        bytes
    }

    /// Reads the tag of a sector, whatever stands there.
    pub fn read(sector: &[u8; SECTOR_BYTES]) -> Tag {
        let tag = &sector[SECTOR_BYTES - TAG_BYTES..];
        Tag {
            run: head(tag),
            stream: StreamId(u16::from_le_bytes(head(&tag[4..]))),
            sector: tag[6],
            version: tag[7],
            seq: Seq(u64::from_le_bytes(head(&tag[8..]))),
        }
    }
}

/// Where sector `sector` of a body lies: in the record, and in the body.
pub fn body_part(sector: usize) -> (Range<usize>, Range<usize>) {
    let first = SECTOR_BYTES - TAG_BYTES - HEADER_BYTES;
    let rest = SECTOR_BYTES - TAG_BYTES;
    if sector == 0 {
        return (HEADER_BYTES..HEADER_BYTES + first, 0..first);
    }
    let (record, body) = (sector * SECTOR_BYTES, first + (sector - 1) * rest);
    (record..record + rest, body..body + rest)
}

/// Copies a body into a record's place, sector by sector.
pub fn put_body(record: &mut RecordBytes, body: &Body) {
    for sector in 0..SECTORS {
        let (there, here) = body_part(sector);
        record[there].copy_from_slice(&body[here]);
    }
}

/// Takes the body out of a record's bytes.
pub fn take_body(record: &RecordBytes) -> Body {
    let mut body = [0; BODY_BYTES];
    for sector in 0..SECTORS {
        let (here, there) = body_part(sector);
        body[there].copy_from_slice(&record[here]);
    }
    body
}

/// Whether a record's bytes carry exactly this body.
pub fn has_body(record: &RecordBytes, body: &Body) -> bool {
    (0..SECTORS).all(|sector| {
        let (there, here) = body_part(sector);
        record[there] == body[here]
    })
}

/// Writes header and tags around the body that is already in place, and returns the record's
/// digest. Allocates nothing.
pub fn seal(header: &Header, record: &mut RecordBytes) -> Digest {
    put_header(header, record);
    for sector in 0..SECTORS {
        let end = (sector + 1) * SECTOR_BYTES;
        let tag = Tag::of(&header.run, header.stream, header.seq, sector);
        record[end - TAG_BYTES..end].copy_from_slice(&tag.to_bytes());
    }
    let digest = sealed_digest(&record[..SEAL_AT], |sector| tag_bytes(record, sector));
    record[SEAL_AT..HEADER_BYTES].copy_from_slice(&digest.0);
    digest
}

/// Reads header and tags and checks all but the body: the caller compares that with the plan's
/// body, or hashes it with [`check_body`].
pub fn open(record: &RecordBytes) -> Result<(Header, Digest), NotARecord> {
    let (header, digest) = read_header(&head(record))?;
    let tag = |sector| tag_bytes(record, sector);
    let strange = (0..SECTORS).find(|&sector| {
        tag(sector) != Tag::of(&header.run, header.stream, header.seq, sector).to_bytes()
    });
    if let Some(sector) = strange {
        return Err(NotARecord::Tag { sector });
    }
    if sealed_digest(&record[..SEAL_AT], tag) != digest {
        return Err(NotARecord::Seal);
    }
    Ok((header, digest))
}

/// Hashes the body and compares it with what the header names.
pub fn check_body(header: &Header, record: &RecordBytes) -> Result<(), NotARecord> {
    if Digest::of(&take_body(record)) == header.body_digest {
        Ok(())
    } else {
        Err(NotARecord::Body)
    }
}

/// Reads the header of a first sector whose neighbours may be another record's: the seal is checked
/// against the tags that the neighbours ought to have.
pub fn open_first_sector(sector: &[u8; SECTOR_BYTES]) -> Result<Header, NotARecord> {
    let (header, digest) = read_header(&head(sector))?;
    let tag = |n| Tag::of(&header.run, header.stream, header.seq, n).to_bytes();
    if Tag::read(sector).to_bytes() != tag(0) {
        return Err(NotARecord::Tag { sector: 0 });
    }
    if sealed_digest(&sector[..SEAL_AT], tag) != digest {
        return Err(NotARecord::Seal);
    }
    Ok(header)
}

fn put_header(header: &Header, record: &mut RecordBytes) {
    record[..HEADER_BYTES].fill(0);
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC);
    put(VERSION_AT, &VERSION.to_le_bytes());
    put(SECTORS_AT, &(SECTORS as u16).to_le_bytes());
    put(STREAM_AT, &header.stream.0.to_le_bytes());
    put(RUN_AT, &header.run.0);
    put(START_AT, &header.start.0.to_le_bytes());
    put(SEQ_AT, &header.seq.0.to_le_bytes());
    put(LOCATION_AT, &header.location.to_le_bytes());
    put(STAMP_AT, &header.stamp.0.to_le_bytes());
    put(PREVIOUS_AT, &header.previous.0);
    put(BODY_INDEX_AT, &header.body.to_le_bytes());
    put(BODY_LEN_AT, &(BODY_BYTES as u32).to_le_bytes());
    put(BODY_DIGEST_AT, &header.body_digest.0);
}

/// Reads a header's fields and the digest it carries; the digest is not checked here.
fn read_header(bytes: &[u8; HEADER_BYTES]) -> Result<(Header, Digest), NotARecord> {
    if bytes[..MAGIC.len()] != MAGIC {
        return Err(NotARecord::Magic);
    }
    let u16_at = |at: usize| u16::from_le_bytes(head(&bytes[at..]));
    let u32_at = |at: usize| u32::from_le_bytes(head(&bytes[at..]));
    let u64_at = |at: usize| u64::from_le_bytes(head(&bytes[at..]));
    if u16_at(VERSION_AT) != VERSION {
        return Err(NotARecord::Version(u16_at(VERSION_AT)));
    }
    if usize::from(u16_at(SECTORS_AT)) != SECTORS {
        return Err(NotARecord::Fixed("number of sectors"));
    }
    if u32_at(BODY_LEN_AT) as usize != BODY_BYTES {
        return Err(NotARecord::Fixed("body length"));
    }
    if u16_at(RESERVED_AT) != 0 || bytes[PADDING_AT..SEAL_AT].iter().any(|&byte| byte != 0) {
        return Err(NotARecord::Fixed("reserved part"));
    }
    let header = Header {
        run: RunId(head(&bytes[RUN_AT..])),
        stream: StreamId(u16_at(STREAM_AT)),
        start: EventNo(u64_at(START_AT)),
        seq: Seq(u64_at(SEQ_AT)),
        location: u64_at(LOCATION_AT),
        stamp: GuestNs(u64_at(STAMP_AT)),
        previous: Digest(head(&bytes[PREVIOUS_AT..])),
        body: u32_at(BODY_INDEX_AT),
        body_digest: Digest(head(&bytes[BODY_DIGEST_AT..])),
    };
    Ok((header, Digest(head(&bytes[SEAL_AT..]))))
}

/// SHA-256 over the header before the seal and the eight tags, in one piece on the stack.
fn sealed_digest(header: &[u8], tag: impl Fn(usize) -> [u8; TAG_BYTES]) -> Digest {
    let mut sealed = [0; SEAL_AT + SECTORS * TAG_BYTES];
    sealed[..SEAL_AT].copy_from_slice(header);
    for sector in 0..SECTORS {
        let at = SEAL_AT + sector * TAG_BYTES;
        sealed[at..at + TAG_BYTES].copy_from_slice(&tag(sector));
    }
    Digest::of(&sealed)
}

fn tag_bytes(record: &RecordBytes, sector: usize) -> [u8; TAG_BYTES] {
    head(&record[(sector + 1) * SECTOR_BYTES - TAG_BYTES..])
}

/// The first N bytes of a slice that has at least as many.
fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

#[cfg(test)]
mod tests;
