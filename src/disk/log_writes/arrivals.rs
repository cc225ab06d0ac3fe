//! When a request of a trace stands in a log, and how much of it.
//!
//! What always holds: laid down in the order in which they come out, the pieces show at every answer
//! to a flush or a FUA write what the order of arrival shows of all requests that are durable then.

use crate::trace::{Command, EntryAt, EntryNo, Request, RequestNo};
use crate::units::SECTOR_BYTES;
use std::collections::{BTreeMap, HashMap};

/// A part of a request that goes into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub command: Command,
    pub fua: bool,
    pub range: Range,
    /// Byte of the trace at which a write's data for this piece start.
    pub payload_at: u64,
}

/// Sectors of the disk, from the first to before the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub from: u64,
    pub until: u64,
}

impl Range {
    /// What of this range lies outside another one.
    fn without(self, other: Range) -> impl Iterator<Item = Range> {
        let left = Range { from: self.from, until: self.until.min(other.from) };
        let right = Range { from: self.from.max(other.until), until: self.until };
        [left, right].into_iter().filter(|range| range.from < range.until)
    }
}

/// A request without an answer.
#[derive(Debug)]
enum Open {
    Read,
    Flush { arrival: EntryNo },
    Change,
}

/// A write, trim or zeroing that is not in the log.
#[derive(Debug, Clone, Copy)]
struct Change {
    piece: Piece,
    answered: Option<EntryNo>,
}

/// The requests of a trace as they come and are answered. Keeps those that are not durable.
#[derive(Debug)]
pub(super) struct Arrivals {
    disk_bytes: u64,
    next: u64,
    open: HashMap<RequestNo, Open>,
    waiting: BTreeMap<RequestNo, Change>,
    /// Requests in the log that arrived after one that waits.
    overtook: BTreeMap<RequestNo, Range>,
}

impl Arrivals {
    pub fn new(disk_bytes: u64) -> Arrivals {
        Arrivals {
            disk_bytes,
            next: 0,
            open: HashMap::new(),
            waiting: BTreeMap::new(),
            overtook: BTreeMap::new(),
        }
    }

    /// Takes a request.
    ///
    /// # Errors
    /// If no disk could have taken it here.
    pub fn arrive(&mut self, at: &EntryAt, request: &Request) -> Result<(), &'static str> {
        if request.no.0 != self.next {
            return Err("its request number does not follow the last one");
        }
        self.next += 1;
        let sector = SECTOR_BYTES as u64;
        let end = request.offset.checked_add(u64::from(request.length));
        let whole = request.offset.is_multiple_of(sector)
            && u64::from(request.length).is_multiple_of(sector);
        let Some(end) = end.filter(|end| whole && *end <= self.disk_bytes) else {
            return Err("its range is not one of whole sectors of the disk");
        };
        let open = match request.command {
            Command::Read => Open::Read,
            Command::Flush => Open::Flush { arrival: at.no },
            Command::Write | Command::Trim | Command::WriteZeroes => {
                let piece = Piece {
                    command: request.command,
                    fua: request.fua,
                    range: Range { from: request.offset / sector, until: end / sector },
                    payload_at: at.payload_at,
                };
                self.waiting.insert(request.no, Change { piece, answered: None });
                Open::Change
            }
        };
        self.open.insert(request.no, open);
        Ok(())
    }

    /// Takes an answer: appends what it makes durable to `out`, and tells whether a flush follows.
    ///
    /// # Errors
    /// If nothing waits for it.
    pub fn answer(
        &mut self,
        at: EntryNo,
        no: RequestNo,
        error: u32,
        out: &mut Vec<Piece>,
    ) -> Result<bool, &'static str> {
        let Some(open) = self.open.remove(&no) else {
            return Err("it answers no open request");
        };
        match open {
            _ if error != 0 => Ok(false),
            Open::Read => Ok(false),
            Open::Flush { arrival } => {
                let covered = |change: &Change| change.answered.is_some_and(|at| at < arrival);
                let durable = self.waiting.iter().filter(|(_, change)| covered(change));
                let durable: Vec<RequestNo> = durable.map(|(no, _)| *no).collect();
                durable.into_iter().for_each(|no| self.log(no, out));
                Ok(true)
            }
            Open::Change => {
                let change = self.waiting.get_mut(&no);
                let fua = change.is_some_and(|change| {
                    change.answered = Some(at);
                    change.piece.fua
                });
                if fua {
                    self.log(no, out);
                }
                Ok(false)
            }
        }
    }

    /// Appends what was never durable, in the order of arrival.
    pub fn rest(&mut self, out: &mut Vec<Piece>) {
        let waiting: Vec<RequestNo> = self.waiting.keys().copied().collect();
        let from = out.len();
        waiting.into_iter().for_each(|no| self.log(no, out));
        out[from..].iter_mut().for_each(|piece| piece.fua = false);
    }

    /// Moves a request to the log, without what later arrivals cover that are there already.
    fn log(&mut self, no: RequestNo, out: &mut Vec<Piece>) {
        let Some(Change { piece, .. }) = self.waiting.remove(&no) else { return };
        let mut left = vec![piece.range];
        for (_, later) in self.overtook.range(no..) {
            left = left.into_iter().flat_map(|range| range.without(*later)).collect();
        }
        out.extend(left.into_iter().map(|range| {
            let skipped = (range.from - piece.range.from) * SECTOR_BYTES as u64;
            Piece { range, payload_at: piece.payload_at + skipped, ..piece }
        }));
        match self.waiting.first_key_value() {
            Some((first, _)) => {
                self.overtook.insert(no, piece.range);
                while self.overtook.first_key_value().is_some_and(|(no, _)| no < first) {
                    self.overtook.pop_first();
                }
            }
            None => self.overtook.clear(),
        }
    }
}
