//! The reference for crash states: sector by sector, in the order of arrival, all from the start
//! for each state, with and without a fault. Slow and simple.

use super::chance::Chance;
use super::{CrashModel, DiskFault};
use crate::disk::Image;
use crate::disk::log::{DiskLog, DiskRequest, LOAD_BEGINS};
use crate::trace::{Command, EntryNo};
use crate::units::SECTOR_BYTES;

/// What each sector shows: a position of the traces, or zeros.
pub type Sectors = Vec<Option<u64>>;

/// What an image shows.
pub fn shown(image: &Image) -> Sectors {
    let sectors = image.disk_bytes() / SECTOR_BYTES as u64;
    let of_piece = |piece: crate::disk::Piece| {
        (0..piece.sectors).map(move |n| piece.position.map(|at| at + n * SECTOR_BYTES as u64))
    };
    image.extents().pieces(0, sectors).flat_map(of_piece).collect()
}

/// One state to build.
#[derive(Clone, Copy)]
pub struct Plain<'a> {
    pub log: &'a DiskLog,
    pub base: &'a Image,
    pub cut: EntryNo,
    pub fault: Option<DiskFault>,
}

impl Plain<'_> {
    /// What the disk shows; `None` for an unsafe disk before it began to lie.
    pub fn state(&self, model: CrashModel, seed: u64) -> Option<Sectors> {
        let mut disk = shown(self.base);
        let mut chance = Chance::new(seed);
        let lost_from = match model {
            CrashModel::Unsafe { mib } => self.lost_from(u64::from(mib) << 20)?,
            _ => EntryNo(0),
        };
        for (index, request) in self.log.requests.iter().enumerate() {
            if request.arrival >= self.cut || !request.command().changes_data() {
                continue;
            }
            let all = vec![(0, u64::from(request.sectors()))];
            let durable = self.durable(index, self.cut);
            let kept = match model {
                CrashModel::KeepAll => all,
                CrashModel::Unsafe { .. } => {
                    let kept = request.arrival < lost_from || self.durable(index, self.begins()?);
                    if kept { all } else { Vec::new() }
                }
                _ if durable => all,
                CrashModel::DropUnflushed => Vec::new(),
                CrashModel::Subset if chance.keeps() => all,
                CrashModel::Subset => Vec::new(),
                CrashModel::Torn { unit_sectors } => {
                    let (first, sectors) = (request.sector, request.sectors());
                    chance.kept_runs(u64::from(first), u64::from(sectors), unit_sectors)
                }
            };
            for (from, to) in kept {
                (from..to).for_each(|n| self.show(&mut disk, index, n));
            }
        }
        Some(disk)
    }

    fn begins(&self) -> Option<EntryNo> {
        self.log.mark(LOAD_BEGINS).map(|mark| mark.entry)
    }

    /// Lays down the n-th sector of a request.
    fn show(&self, disk: &mut Sectors, index: usize, n: u64) {
        let request = &self.log.requests[index];
        let at = request.sector as usize + n as usize;
        let skipped = n * SECTOR_BYTES as u64;
        let position = self.base.next_start() + request.payload_at() + skipped;
        let shows = (request.command() == Command::Write).then_some(position);
        let fault = self.fault.filter(|fault| fault.request() == Some(index as u32));
        match fault {
            Some(DiskFault::WriteLost { .. }) => {}
            Some(DiskFault::StaleSector { sector, .. }) if u64::from(sector) == n => {}
            Some(DiskFault::Misdirected { by_sectors, .. }) => {
                disk[(at as i64 + by_sectors) as usize] = shows;
            }
            Some(DiskFault::DuplicatedTo { by_sectors, .. }) => {
                disk[at] = shows;
                disk[(at as i64 + by_sectors) as usize] = shows;
            }
            Some(DiskFault::TornAt512 { sectors_kept, .. }) if n >= u64::from(sectors_kept) => {}
            Some(DiskFault::TornAt4096 { blocks_kept, .. }) if n / 8 >= u64::from(blocks_kept) => {}
            Some(DiskFault::Zeroed { .. }) => disk[at] = None,
            Some(DiskFault::TrimTooLong { extra_sectors, .. })
                if n + 1 == u64::from(request.sectors()) =>
            {
                disk[at..=at + extra_sectors as usize].fill(None);
            }
            _ => disk[at] = shows,
        }
    }

    /// Whether the disk had made a request durable at an entry.
    pub fn durable(&self, index: usize, until: EntryNo) -> bool {
        let asked = match self.fault {
            Some(DiskFault::SwappedAcrossFlush { first, second }) if index == first as usize => {
                second as usize
            }
            Some(DiskFault::SwappedAcrossFlush { first, second }) if index == second as usize => {
                if self.log.requests[index].arrival >= until {
                    return false;
                }
                first as usize
            }
            _ => index,
        };
        let request = &self.log.requests[asked];
        let lies = self.begins().unwrap_or(EntryNo(0));
        let fua_counts = match self.fault {
            Some(DiskFault::FlushIgnored | DiskFault::FuaDropped) => request.arrival < lies,
            _ => true,
        };
        let flushes: Vec<&DiskRequest> = self
            .log
            .requests
            .iter()
            .filter(|flush| flush.command() == Command::Flush)
            .filter(|flush| flush.succeeded_before(EntryNo(u32::MAX)))
            .collect();
        let flushed = flushes.iter().enumerate().any(|(at, flush)| {
            let promise = match self.fault {
                Some(DiskFault::FlushIgnored) if flush.arrival >= lies => return false,
                // A flush that was answered early is done with the next one, if there is one; the
                // last one before the disk began to lie was honest, and also done by itself.
                Some(DiskFault::FlushAnsweredEarly) => {
                    let next = flushes.get(at + 1).is_some_and(|n| n.succeeded_before(until));
                    next || (flush.arrival < lies && flush.succeeded_before(until))
                }
                _ => flush.succeeded_before(until),
            };
            promise && request.succeeded_before(flush.arrival)
        });
        request.succeeded_before(until) && ((request.fua() && fua_counts) || flushed)
    }

    /// The arrival of the oldest request that an `unsafe` disk's cache still held.
    fn lost_from(&self, cache_bytes: u64) -> Option<EntryNo> {
        let begins = self.begins().filter(|begins| *begins < self.cut)?;
        let (mut held, mut from) = (0, self.cut);
        for (index, request) in self.log.requests.iter().enumerate().rev() {
            if request.arrival >= self.cut || self.durable(index, begins) {
                continue;
            }
            if request.command() == Command::Write {
                held += request.bytes();
            }
            if held > cache_bytes {
                break;
            }
            from = request.arrival;
        }
        Some(from)
    }
}
