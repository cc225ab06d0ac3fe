//! What stands in a place that is not the record one hoped for.
//!
//! Pure: bytes and plan in, class out; bodies are derived one at a time when a tag names them. What
//! always holds: a sector is `Of` an operation only if every one of its bytes is what that operation
//! must have written there, and a place is `Whole` only if it is a whole record of its own place. A
//! claim that the bytes do not bear out (a tag alone) is never believed.

use crate::record::layout::{self, Header, RecordBytes, SECTORS, Tag, VERSION};
use crate::record::observed::Summary;
use crate::record::place::{Place, is_zero, planned_location, stream_of};
use crate::record::ring;
use crate::units::{RunId, SECTOR_BYTES, Seq, StreamId};

/// What a place holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A whole record of this place; whether it is the newest is not said here.
    Whole(Summary),
    /// Nothing but zero bytes.
    Zeros,
    /// A whole record of this run that belongs to another place or stream, or whose own location is
    /// not the one that the plan gives its sequence.
    Misdirected {
        /// The stream that its header names.
        stream: StreamId,
        /// Its place in that stream.
        seq: Seq,
        /// The byte offset that its header names.
        location: u64,
    },
    /// A whole record of another run.
    Foreign {
        /// Which.
        run: RunId,
    },
    /// Not one record, but at least one of its sectors is recognised.
    Torn(Vec<SectorSeen>),
    /// Nothing in it is recognised.
    Garbage,
}

/// What a sector holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectorSeen {
    /// Nothing but zero bytes.
    Zeros,
    /// Exactly what this operation of this stream writes to this sector of this place.
    Of(Seq),
    /// The tag is this operation's and belongs here, but other bytes differ.
    Damaged(Seq),
    /// Exactly a sector of this run that belongs elsewhere: another stream, place or sector.
    Misdirected {
        /// The stream it is of.
        stream: StreamId,
        /// The operation it is of.
        seq: Seq,
        /// Which sector of that operation's record it is, from 0.
        sector: u8,
    },
    /// Tagged by another run.
    Foreign,
    /// Not recognised.
    Garbage,
}

/// A record cut between two sectors, as an interrupted transaction leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    /// The operation whose sectors stand first.
    pub newer: Seq,
    /// How many of them there are.
    pub sectors: usize,
    /// The operation that all the others are of; `None` when they are zeros or behind the file's end.
    pub older: Option<Seq>,
}

/// Says what a place holds. `bytes` is shorter than a record only at the end of a file.
pub fn classify(place: &Place, bytes: &[u8]) -> Seen {
    if is_zero(bytes) {
        return Seen::Zeros;
    }
    if let Some(seen) = bytes.try_into().ok().and_then(|record| whole(place, record)) {
        return seen;
    }
    let sectors: Vec<SectorSeen> = bytes
        .chunks(SECTOR_BYTES)
        .take(SECTORS)
        .enumerate()
        .map(|(at, sector)| match sector.try_into() {
            Ok(sector) => classify_sector(place, at, sector),
            Err(_) if is_zero(sector) => SectorSeen::Zeros,
            Err(_) => SectorSeen::Garbage,
        })
        .collect();
    let unknown = |seen: &SectorSeen| matches!(seen, SectorSeen::Zeros | SectorSeen::Garbage);
    if sectors.iter().all(unknown) { Seen::Garbage } else { Seen::Torn(sectors) }
}

/// The shape that an interrupted transaction leaves: a prefix of whole sectors of one operation,
/// followed only by whole sectors of one older operation, or only by zeros or the file's end.
/// `None` for any other mix: that one was torn below a sector, or not in order.
pub fn transaction_boundary(seen: &[SectorSeen]) -> Option<Boundary> {
    let &SectorSeen::Of(newer) = seen.first()? else { return None };
    let sectors = seen.iter().take_while(|&&sector| sector == SectorSeen::Of(newer)).count();
    let rest = &seen[sectors..];
    let older = match rest.first() {
        None if sectors < SECTORS => None,
        Some(SectorSeen::Zeros) => None,
        Some(&SectorSeen::Of(older)) if older < newer => Some(older),
        _ => return None,
    };
    let of_one_kind = rest.iter().all(|sector| *sector == rest[0]);
    of_one_kind.then_some(Boundary { newer, sectors, older })
}

/// The class of bytes that are one whole record of any run; `None` when they are not, or when the
/// record belongs here but its body is not the plan's.
fn whole(place: &Place, record: &RecordBytes) -> Option<Seen> {
    let (header, digest) = layout::open(record).ok()?;
    layout::check_body(&header, record).ok()?;
    if header.run != place.plan.run {
        return Some(Seen::Foreign { run: header.run });
    }
    let is_here = header.stream == place.stream.id
        && header.location == place.location
        && place.is_of(header.seq);
    if !is_here {
        let Header { stream, seq, location, .. } = header;
        return Some(Seen::Misdirected { stream, seq, location });
    }
    let whole =
        place.fits(&header) && layout::has_body(record, &ring::body(place.plan.seed, header.body));
    whole.then(|| Seen::Whole(header.summary(digest)))
}

fn classify_sector(place: &Place, at: usize, bytes: &[u8; SECTOR_BYTES]) -> SectorSeen {
    if is_zero(bytes) {
        return SectorSeen::Zeros;
    }
    let tag = Tag::read(bytes);
    if u16::from(tag.version) != VERSION || usize::from(tag.sector) >= SECTORS {
        return SectorSeen::Garbage;
    }
    if tag.run != Tag::of(&place.plan.run, tag.stream, tag.seq, at).run {
        return foreign_or_garbage(&tag, at);
    }
    let is_here =
        tag.stream == place.stream.id && usize::from(tag.sector) == at && place.is_of(tag.seq);
    match (bears_out(place, &tag, bytes), is_here) {
        (true, true) => SectorSeen::Of(tag.seq),
        (false, true) => SectorSeen::Damaged(tag.seq),
        (true, false) => {
            SectorSeen::Misdirected { stream: tag.stream, seq: tag.seq, sector: tag.sector }
        }
        (false, false) => SectorSeen::Garbage,
    }
}

/// Another run's tag is believed if version, sector and a sequence that a run can reach all fit:
/// chance gives that to one in 2^40 sectors of arbitrary bytes.
fn foreign_or_garbage(tag: &Tag, at: usize) -> SectorSeen {
    let can_be = usize::from(tag.sector) == at && tag.seq.0 != 0 && tag.seq.0 < 1 << 40;
    if can_be { SectorSeen::Foreign } else { SectorSeen::Garbage }
}

/// Whether a sector's bytes are what the operation that its tag names writes to that sector.
fn bears_out(place: &Place, tag: &Tag, bytes: &[u8; SECTOR_BYTES]) -> bool {
    let plan = place.plan;
    let Some(stream) = stream_of(plan, tag.stream) else { return false };
    let Some(location) = planned_location(plan, stream, tag.seq) else { return false };
    let sector = usize::from(tag.sector);
    let index = stream.body(plan, tag.seq);
    let body = ring::body(plan.seed, index);
    let (in_record, in_body) = layout::body_part(sector);
    let start = sector * SECTOR_BYTES;
    if bytes[in_record.start - start..in_record.end - start] != body[in_body] {
        return false;
    }
    let own_place = Place { plan, stream, location };
    sector != 0
        || layout::open_first_sector(bytes).is_ok_and(|header| {
            own_place.fits(&header)
                && header.seq == tag.seq
                && header.body_digest == layout::Digest::of(&body)
        })
}

#[cfg(test)]
mod tests;
