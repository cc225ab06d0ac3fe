//! Where a disk's fault is planted: in what the verification reads from the control's state. Pure
//! but for reading payloads.
//!
//! What always holds: the request chosen carries a record that was acknowledged before the cut and
//! that the control's state shows, or a block of the file system that its tools read.

use super::mutant::DiskKind;
use crate::disk::jbd2::JournalBlock;
use crate::disk::{DiskFault, DiskLog, DurableAt, Image, ImageError, visible_writes};
use crate::history::log::History;
use crate::record::layout::{self, Header, RECORD_BYTES, RecordBytes};
use crate::trace::{Command, EntryNo};
use crate::units::SECTOR_BYTES;
use crate::workload::plan::{Pattern, Plan, splitmix64};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const RECORD_SECTORS: u32 = (RECORD_BYTES / SECTOR_BYTES) as u32;
/// The newest operations of a stream may be excused by what was in flight, so they are left alone.
const NEWEST: u64 = 4;
/// A transaction of the journal so far before the last is gone with all that came after it.
const TRANSACTIONS_BACK: usize = 12;
/// The smallest block of ext4: a larger one starts where one of these does.
const FS_BLOCK_BYTES: usize = 1024;
/// A bit in the middle of a record's body.
const BODY_BIT: u32 = (RECORD_BYTES as u32 / 2 + 100) * 8 + 3;
/// How ext4's first directory that is never written again begins: lost+found, inode 11, its own
/// name of one letter in a place of 12 bytes.
const LOST_AND_FOUND: [u8; 9] = [11, 0, 0, 0, 12, 0, 1, 2, b'.'];

/// Why there is no place for a fault.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A payload cannot be read again.
    #[error("cannot read the payload of request {request} of the trace: {source}")]
    Payload {
        /// Which.
        request: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The state cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// There is nothing to plant it in.
    #[error("the control's state shows {0}, so the fault would alter nothing that is read")]
    None(&'static str),
}

/// A record that a state shows, and the request that brought it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownRecord {
    /// Its index in the log.
    pub request: u32,
    /// Which 4-KiB block of the request it is.
    pub block: u32,
    /// What it says.
    pub header: Header,
}

/// A control's state, and what is said of it.
pub struct Control<'a> {
    /// Its trace.
    pub log: &'a DiskLog,
    /// What the records must be.
    pub plan: &'a Plan,
    /// What was acknowledged.
    pub history: &'a History,
    /// What the disk holds.
    pub image: &'a Image,
    /// The cut.
    pub cut: EntryNo,
    /// Decides among the places.
    pub seed: u64,
}

impl Control<'_> {
    /// A fault of this kind, planted where it is read.
    pub fn fault(&self, kind: DiskKind) -> Result<DiskFault, TargetError> {
        Ok(match kind {
            DiskKind::FlushAnsweredEarly => DiskFault::FlushAnsweredEarly,
            DiskKind::FlushIgnored => DiskFault::FlushIgnored,
            DiskKind::FuaDropped => DiskFault::FuaDropped,
            DiskKind::JournalZeroed => self.journal()?,
            DiskKind::DirectoryFlipped => self.directory()?,
            kind => self.in_records(kind, &self.shown_records()?)?,
        })
    }

    fn in_records(&self, kind: DiskKind, shown: &[ShownRecord]) -> Result<DiskFault, TargetError> {
        let own = |record: &&ShownRecord| {
            let request = &self.log.requests[record.request as usize];
            request.sectors() == RECORD_SECTORS && self.is_overwritten(record)
        };
        let overwrites: Vec<&ShownRecord> = shown.iter().filter(own).collect();
        let pick = || match overwrites.len() as u64 {
            0 => Err(TargetError::None("no record that overwrote another")),
            n => Ok(overwrites[(splitmix64(self.seed) % n) as usize].request),
        };
        Ok(match kind {
            DiskKind::WriteLost => DiskFault::WriteLost { request: pick()? },
            DiskKind::StaleSector => DiskFault::StaleSector { request: pick()?, sector: 3 },
            DiskKind::BitFlipped => DiskFault::BitFlipped { request: pick()?, bit: BODY_BIT },
            DiskKind::TornAt512 => DiskFault::TornAt512 { request: pick()?, sectors_kept: 4 },
            DiskKind::Zeroed => DiskFault::Zeroed { request: pick()? },
            DiskKind::Misdirected => {
                let (request, by_sectors) = self.pair(&overwrites)?;
                DiskFault::Misdirected { request, by_sectors }
            }
            DiskKind::Duplicated => {
                let (request, by_sectors) = self.pair(&overwrites)?;
                DiskFault::DuplicatedTo { request, by_sectors }
            }
            DiskKind::SwappedAcrossFlush => self.swapped(&overwrites)?,
            DiskKind::TrimTooLong => self.trim(shown)?,
            _ => {
                let behind = shown.iter().find(|record| record.block > 0);
                let none = TargetError::None("no record behind the first block of a write");
                let ShownRecord { request, block, .. } = *behind.ok_or(none)?;
                DiskFault::TornAt4096 { request, blocks_kept: block }
            }
        })
    }

    /// The acknowledged records that the state shows, in the order of their requests.
    pub fn shown_records(&self) -> Result<Vec<ShownRecord>, TargetError> {
        let trace = File::open(&self.log.path)
            .map_err(|source| TargetError::Payload { request: 0, source })?;
        let mut shown = Vec::new();
        for visible in visible_writes(self.log, self.image) {
            let request = &self.log.requests[visible.request as usize];
            let blocks = request.sectors() / RECORD_SECTORS;
            for block in 0..blocks {
                let within = u64::from(block) * RECORD_BYTES as u64;
                let (mut sent, mut found) = ([0; RECORD_BYTES], [0; RECORD_BYTES]);
                let payload = request.payload_at() + within;
                trace
                    .read_exact_at(&mut sent, payload)
                    .map_err(|source| TargetError::Payload { request: visible.request, source })?;
                self.image.read_at(request.offset() + within, &mut found)?;
                if let Some(header) = self.acked(&sent).filter(|_| sent == found) {
                    shown.push(ShownRecord { request: visible.request, block, header });
                }
            }
        }
        Ok(shown)
    }

    /// The header of a record of this run that was acknowledged.
    fn acked(&self, bytes: &RecordBytes) -> Option<Header> {
        let (header, _) = layout::open(bytes).ok()?;
        let said = self.history.streams.get(&header.stream)?;
        let old = header.seq.0.saturating_add(NEWEST) < said.newest_acked().0;
        (header.run == self.plan.run && old).then_some(header)
    }

    /// Whether it stands in the place of an earlier record of its stream.
    fn is_overwritten(&self, record: &ShownRecord) -> bool {
        let stream = self.plan.streams.iter().find(|stream| stream.id == record.header.stream);
        stream.is_some_and(|stream| {
            matches!(stream.pattern, Pattern::Overwrite { slots }
                if record.header.seq.0 > u64::from(slots))
        })
    }

    /// A record's write, and how far from it an older record lies.
    fn pair(&self, records: &[&ShownRecord]) -> Result<(u32, i64), TargetError> {
        let (Some(victim), Some(last)) = (records.first(), records.last()) else {
            return Err(TargetError::None("no two records that overwrote others"));
        };
        let sector =
            |record: &ShownRecord| i64::from(self.log.requests[record.request as usize].sector);
        match sector(victim) - sector(last) {
            0 => Err(TargetError::None("no two records that overwrote others")),
            by => Ok((last.request, by)),
        }
    }

    /// A record's write, and one behind the flush that made it durable that is not durable yet.
    fn swapped(&self, records: &[&ShownRecord]) -> Result<DiskFault, TargetError> {
        let durable_at = DurableAt::new(self.log);
        let requests = &self.log.requests;
        for record in records.iter().rev() {
            let first = record.request;
            let Some(durable) = durable_at.of(&requests[first as usize]) else { continue };
            let later = requests.iter().zip(0u32..).skip(first as usize + 1).find(|(later, _)| {
                later.command() == Command::Write
                    && later.arrival > durable.by
                    && durable_at.of(later).is_none_or(|later| later.by >= self.cut)
            });
            if let (Some((_, second)), true) = (later, durable.by < self.cut) {
                return Ok(DiskFault::SwappedAcrossFlush { first, second });
            }
        }
        Err(TargetError::None("no durable record with a write behind its flush"))
    }

    /// The trim with the nearest older record behind its end.
    fn trim(&self, records: &[ShownRecord]) -> Result<DiskFault, TargetError> {
        let durable_at = DurableAt::new(self.log);
        let mut nearest: Option<(u32, u32)> = None;
        for (trim, request) in self.log.requests.iter().zip(0u32..) {
            let is_trim = matches!(trim.command(), Command::Trim | Command::WriteZeroes);
            let durable = durable_at.of(trim).is_some_and(|durable| durable.by < self.cut);
            if !is_trim || !durable {
                continue;
            }
            let end = trim.sector + trim.sectors();
            let behind = records.iter().filter(|record| record.request < request);
            let first = behind.map(|record| {
                self.log.requests[record.request as usize].sector + record.block * RECORD_SECTORS
            });
            let first = first.filter(|sector| *sector >= end).min();
            let extra = first.map(|sector| sector - end + RECORD_SECTORS);
            if let Some(extra) = extra.filter(|extra| nearest.is_none_or(|(_, n)| *extra < n)) {
                nearest = Some((request, extra));
            }
        }
        let none = TargetError::None("no older record behind the end of a trim");
        let (request, extra_sectors) = nearest.ok_or(none)?;
        Ok(DiskFault::TrimTooLong { request, extra_sectors })
    }

    /// A commit block of the journal that was durable, some transactions before the last.
    fn journal(&self) -> Result<DiskFault, TargetError> {
        let durable_at = DurableAt::new(self.log);
        let commits = self.log.journal.iter().filter(|sighting| {
            let request = &self.log.requests[sighting.request as usize];
            let durable = durable_at.of(request).is_some_and(|durable| durable.by < self.cut);
            sighting.block == JournalBlock::Commit && durable
        });
        let commit = commits.rev().nth(TRANSACTIONS_BACK);
        let none = TargetError::None("too few transactions of a journal");
        Ok(DiskFault::Zeroed { request: commit.ok_or(none)?.request })
    }

    /// The block of a directory that is read by the checker and never written again.
    fn directory(&self) -> Result<DiskFault, TargetError> {
        for visible in visible_writes(self.log, self.image) {
            let request = &self.log.requests[visible.request as usize];
            let mut found = vec![0; request.bytes() as usize];
            self.image.read_at(request.offset(), &mut found)?;
            let begins = |block: &[u8]| block.starts_with(&LOST_AND_FOUND);
            if let Some(block) = found.chunks(FS_BLOCK_BYTES).position(begins) {
                // The lowest bit of the directory's own inode number.
                let bit = (block * FS_BLOCK_BYTES * 8) as u32;
                return Ok(DiskFault::BitFlipped { request: visible.request, bit });
            }
        }
        Err(TargetError::None("no block of the directory lost+found"))
    }
}

#[cfg(test)]
mod tests;
