//! What a fault does to the requests of one trace.

use super::durable::{Durable, DurableAt, Promises};
use super::fault::DiskFault;
use super::medium::Part;
use crate::disk::log::{DiskLog, DiskRequest, LOAD_BEGINS};
use crate::trace::{Command, EntryNo};
use crate::units::SECTOR_BYTES;

const BLOCK_SECTORS: u64 = 4096 / SECTOR_BYTES as u64;

/// Why a fault cannot be planted in a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the fault {fault} cannot be planted in this trace: {why}")]
pub struct FaultError {
    /// The fault.
    pub fault: DiskFault,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A trace's requests as a disk with one fault, or none, carries them out.
#[derive(Debug)]
pub(super) struct Planted<'a> {
    log: &'a DiskLog,
    fault: Option<DiskFault>,
    durable_at: DurableAt,
    /// The position of the trace's first byte.
    start: u64,
}

impl<'a> Planted<'a> {
    pub fn new(
        log: &'a DiskLog,
        fault: Option<DiskFault>,
        start: u64,
    ) -> Result<Planted<'a>, FaultError> {
        if let Some(fault) = fault {
            possible(log, fault).map_err(|why| FaultError { fault, why })?;
        }
        let from = log.mark(LOAD_BEGINS).map_or(EntryNo(0), |mark| mark.entry);
        let promises = match fault {
            Some(DiskFault::FlushAnsweredEarly) => Promises::FlushLate(from),
            Some(DiskFault::FlushIgnored) => Promises::AllIgnored(from),
            Some(DiskFault::FuaDropped) => Promises::FuaIgnored(from),
            _ => Promises::Kept,
        };
        Ok(Planted { log, fault, durable_at: DurableAt::with(log, promises), start })
    }

    pub fn log(&self) -> &'a DiskLog {
        self.log
    }

    /// When a request became durable on this disk.
    pub fn durable(&self, index: u32) -> Option<Durable> {
        let of = |index: u32| self.durable_at.of(&self.log.requests[index as usize]);
        match self.fault {
            Some(DiskFault::SwappedAcrossFlush { first, second }) if index == first => of(second),
            Some(DiskFault::SwappedAcrossFlush { first, second }) if index == second => {
                let arrival = &self.log.requests[second as usize];
                of(first).map(|d| d.max(Durable { by: arrival.arrival, at: arrival.arrived }))
            }
            _ => of(index),
        }
    }

    /// The byte that reads differently, as a position of the traces, and which bits of it.
    pub fn flip(&self) -> Option<(u64, u8)> {
        let Some(DiskFault::BitFlipped { request, bit }) = self.fault else { return None };
        let payload_at = self.log.requests[request as usize].payload_at();
        Some((self.start + payload_at + u64::from(bit / 8), 1 << (bit % 8)))
    }

    /// The sector that reads differently, as a position of the traces.
    pub fn altered_sector(&self) -> Option<u64> {
        let (byte, _) = self.flip()?;
        let payload = self.start + self.log.requests[self.fault?.request()? as usize].payload_at();
        Some(byte - (byte - payload) % SECTOR_BYTES as u64)
    }

    /// All of a request as it reaches the medium.
    pub fn whole(&self, index: u32) -> impl Iterator<Item = Part> + use<> {
        self.parts(index, 0, u64::from(self.log.requests[index as usize].sectors()))
    }

    /// The sectors `from..to` of a request as they reach the medium: what changes where.
    pub fn parts(&self, index: u32, from: u64, to: u64) -> impl Iterator<Item = Part> + use<> {
        let request = &self.log.requests[index as usize];
        let part = |from: u64, to: u64| self.honest(request, from, to);
        let parts = match self.fault.filter(|fault| fault.request() == Some(index)) {
            Some(DiskFault::WriteLost { .. }) => [None, None],
            Some(DiskFault::StaleSector { sector, .. }) => {
                let stale = u64::from(sector);
                let behind = part(from.max(stale + 1), to);
                [Some(part(from, to.min(stale))), Some(behind)]
            }
            Some(DiskFault::Misdirected { by_sectors, .. }) => {
                [Some(shifted(part(from, to), by_sectors)), None]
            }
            Some(DiskFault::DuplicatedTo { by_sectors, .. }) => {
                [Some(part(from, to)), Some(shifted(part(from, to), by_sectors))]
            }
            Some(DiskFault::TornAt512 { sectors_kept, .. }) => {
                [Some(part(from, to.min(u64::from(sectors_kept)))), None]
            }
            Some(DiskFault::TornAt4096 { blocks_kept, .. }) => {
                [Some(part(from, to.min(u64::from(blocks_kept) * BLOCK_SECTORS))), None]
            }
            Some(DiskFault::Zeroed { .. }) => [Some(Part { shows: None, ..part(from, to) }), None],
            Some(DiskFault::TrimTooLong { extra_sectors, .. })
                if to == u64::from(request.sectors()) =>
            {
                [Some(part(from, to + u64::from(extra_sectors))), None]
            }
            _ => [Some(part(from, to)), None],
        };
        parts.into_iter().flatten().filter(|part| part.sectors > 0)
    }

    fn honest(&self, request: &DiskRequest, from: u64, to: u64) -> Part {
        let order = self.start + request.payload_at();
        let writes = request.command() == Command::Write;
        Part {
            sector: u64::from(request.sector) + from,
            sectors: to.saturating_sub(from),
            order,
            shows: writes.then_some(order + from * SECTOR_BYTES as u64),
        }
    }
}

fn shifted(part: Part, by_sectors: i64) -> Part {
    Part { sector: part.sector.saturating_add_signed(by_sectors), ..part }
}

/// Whether a fault alters something in this trace's requests, and stays on its disk.
fn possible(log: &DiskLog, fault: DiskFault) -> Result<(), &'static str> {
    let Some(index) = fault.request() else { return Ok(()) };
    let find = |index: u32| log.requests.get(index as usize).ok_or("it has no such request");
    let request = find(index)?;
    let is_trim = matches!(request.command(), Command::Trim | Command::WriteZeroes);
    match fault {
        DiskFault::TrimTooLong { .. } if !is_trim => return Err("the request clears nothing"),
        DiskFault::TrimTooLong { .. } => {}
        _ if request.command() != Command::Write => return Err("the request is not a write"),
        _ => {}
    }
    let (first, sectors) = (i64::from(request.sector), i64::from(request.sectors()));
    let disk_sectors = (log.header.disk_bytes / SECTOR_BYTES as u64) as i64;
    let on_disk = |by: i64, sectors: i64| {
        let start = first.checked_add(by).filter(|start| *start >= 0);
        start.and_then(|start| start.checked_add(sectors)).is_some_and(|end| end <= disk_sectors)
    };
    let fits = match fault {
        DiskFault::StaleSector { sector, .. } => i64::from(sector) < sectors,
        DiskFault::BitFlipped { bit, .. } => u64::from(bit / 8) < request.bytes(),
        DiskFault::TornAt512 { sectors_kept, .. } => i64::from(sectors_kept) < sectors,
        DiskFault::TornAt4096 { blocks_kept, .. } => {
            i64::from(blocks_kept) * (BLOCK_SECTORS as i64) < sectors
        }
        DiskFault::Misdirected { by_sectors, .. } => {
            by_sectors != 0 && on_disk(by_sectors, sectors)
        }
        DiskFault::DuplicatedTo { by_sectors, .. } => {
            by_sectors.unsigned_abs() >= sectors as u64 && on_disk(by_sectors, sectors)
        }
        DiskFault::TrimTooLong { extra_sectors, .. } => {
            extra_sectors > 0 && on_disk(0, sectors + i64::from(extra_sectors))
        }
        DiskFault::SwappedAcrossFlush { first, second } => {
            if find(second)?.command() != Command::Write {
                return Err("the second request is not a write");
            }
            first < second
        }
        _ => true,
    };
    if fits { Ok(()) } else { Err("its numbers do not fit the request, or leave the disk") }
}
