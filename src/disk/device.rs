//! The disk behind all connections: recorder, timing, store, and the watch for the worst cut.
//!
//! What always holds: requests take the lock of this module before they are recorded, so that the
//! store's order is the trace's; a request that was not recorded is not acted on, and an answer
//! that was not recorded is not sent.

use super::commits::{CommitWatch, CutRule};
use super::extents::{ExtentMap, Piece};
use super::image::{Image, ImageError};
use super::live_store::{Heard, LiveStore};
use super::nbd::{DiskAsk, NbdError};
use super::server::DiskError;
use super::timing::{Channels, Timing};
use super::uberblock;
use crate::trace::{Command, Recorder, Request, RequestNo, TraceError};
use crate::units::{LabNs, SECTOR_BYTES, Txg};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a running disk tells its trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEvent {
    /// A write with the uberblock of a new txg arrived.
    Commit {
        /// The txg.
        txg: Txg,
        /// When.
        at: LabNs,
    },
    /// The disk's own rule cut the power.
    Cut {
        /// The txg that did not become durable.
        txg: Txg,
        /// When.
        at: LabNs,
    },
    /// The trace cannot be written any more: the disk went silent, the trial cannot be judged.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Why a disk failed, if it told that it did: then what its clients saw says nothing about what was
/// on it.
pub fn failure(events: &Receiver<DiskEvent>) -> Option<String> {
    events.try_iter().find_map(|event| match event {
        DiskEvent::Failed { reason } => Some(reason),
        DiskEvent::Commit { .. } | DiskEvent::Cut { .. } => None,
    })
}

/// The disk does nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Silent;

/// A request that arrived and is not answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub no: RequestNo,
    pub cookie: [u8; 8],
    pub ask: DiskAsk,
    /// When it is to be answered; `None` for at once.
    pub due: Option<LabNs>,
}

/// The disk.
#[derive(Debug)]
pub(super) struct Device {
    recorder: Recorder,
    /// What lies below this trace; its extents are in `live`.
    base: Image,
    timing: Timing,
    events: Sender<DiskEvent>,
    live: Mutex<Live>,
}

#[derive(Debug)]
struct Live {
    extents: ExtentMap,
    channels: Channels,
    commits: CommitWatch,
    next: RequestNo,
    /// Requests that arrived and were not answered.
    open: u64,
    /// A disk that hears the same.
    beside: Option<LiveStore>,
}

impl Device {
    /// A device of the size that the recorder's header says, on `base`, or on zeros.
    pub fn on(
        base: Option<Image>,
        timing: Timing,
        recorder: Recorder,
    ) -> Result<(Device, Receiver<DiskEvent>), DiskError> {
        let trace = recorder.header().disk_bytes;
        let mut base = match base {
            Some(base) => base,
            None => Image::blank(trace)?,
        };
        if base.disk_bytes() != trace {
            return Err(DiskError::Size { trace, base: base.disk_bytes() });
        }
        let live = Live {
            extents: base.take_extents(),
            channels: Channels::default(),
            commits: CommitWatch::default(),
            next: RequestNo(0),
            open: 0,
            beside: None,
        };
        let (events, receiver) = channel();
        Ok((Device { recorder, base, timing, events, live: Mutex::new(live) }, receiver))
    }

    pub fn disk_bytes(&self) -> u64 {
        self.base.disk_bytes()
    }

    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    pub fn arm(&self, rule: CutRule) {
        self.lock().commits.arm(rule);
    }

    /// From now on another disk hears every request and every answer, in their order.
    pub fn tell_too(&self, other: LiveStore) {
        self.lock().beside = Some(other);
    }

    /// The byte ranges that hold data, ascending; a gap of at most `gap_bytes` counts as data.
    pub fn data_ranges(&self, gap_bytes: u64) -> Vec<Range<u64>> {
        let sector_bytes = SECTOR_BYTES as u64;
        let live = self.lock();
        let pieces = live.extents.pieces(0, self.base.disk_bytes() / sector_bytes);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for piece in pieces.filter(|piece| piece.position.is_some()) {
            let (from, to) = (piece.sector, piece.sector + piece.sectors);
            let (from, to) = (from * sector_bytes, to * sector_bytes);
            match ranges.last_mut() {
                Some(last) if from <= last.end + gap_bytes => last.end = to,
                _ => ranges.push(from..to),
            }
        }
        ranges
    }

    /// Bytes of memory that the store's map holds.
    pub fn map_bytes(&self) -> usize {
        self.lock().extents.heap_bytes()
    }

    /// Requests that arrived and were not answered. One that is never answered, since the power was
    /// cut or its client is gone, counts for ever.
    pub fn open_requests(&self) -> u64 {
        self.lock().open
    }

    /// Whether the disk answers nothing any more.
    pub fn silent(&self) -> bool {
        self.recorder.frozen()
    }

    /// Records a request that arrived whole and acts on it.
    pub fn arrive(&self, ask: DiskAsk, cookie: [u8; 8], payload: &[u8]) -> Result<Job, Silent> {
        let DiskAsk { command, fua, offset, length } = ask;
        let txg = match command {
            Command::Write => uberblock::highest_txg(offset, payload),
            _ => None,
        };
        let mut live = self.lock();
        let request = Request { no: RequestNo(0), command, fua, offset, length };
        let arrived = self.recorder.request(request, payload).map_err(|e| self.stop(e))?;
        live.next = RequestNo(arrived.no.0 + 1);
        live.open += 1;
        if let Some(beside) = &live.beside {
            beside.arrived(Heard { no: arrived.no, command, fua, offset, length, payload });
        }
        let (sector, sectors) = in_sectors(&ask);
        match command {
            Command::Write => {
                live.extents.set(sector, sectors, self.base.next_start() + arrived.payload_at);
            }
            Command::Trim | Command::WriteZeroes => live.extents.clear(sector, sectors),
            Command::Read | Command::Flush => {}
        }
        if let Some(txg) = txg
            && live.commits.wrote(arrived.no, txg)
        {
            self.tell(DiskEvent::Commit { txg, at: arrived.at });
        }
        let due = (!self.timing.is_none())
            .then(|| live.channels.due(&self.timing, arrived.at, command, fua, length))
            .filter(|due| *due > arrived.at);
        Ok(Job { no: arrived.no, cookie, ask, due })
    }

    /// Records the answer to a request, which is then sent; or cuts the power instead.
    pub fn answer(&self, job: &Job, error: Option<NbdError>) -> Result<(), Silent> {
        let mut live = self.lock();
        let next = live.next;
        if let Some(txg) = live.commits.answers(job.no, job.ask.command, job.ask.fua, next) {
            let how = format!("before the flush that would make txg {txg} durable");
            match self.recorder.cut(&how) {
                Ok(at) => self.tell(DiskEvent::Cut { txg, at }),
                Err(error) => drop(self.stop(error)),
            }
            return Err(Silent);
        }
        let code = error.map_or(0, |error| error as u32);
        self.recorder.reply(job.no, code).map_err(|error| self.stop(error))?;
        live.open -= 1;
        if let (Some(beside), None) = (&live.beside, error) {
            beside.answered(job.no);
        }
        Ok(())
    }

    /// Reads what a range shows now. `scratch` is reused from call to call.
    pub fn read(
        &self,
        ask: &DiskAsk,
        scratch: &mut Vec<Piece>,
        out: &mut [u8],
    ) -> Result<(), NbdError> {
        let (sector, sectors) = in_sectors(ask);
        scratch.clear();
        // Positions stay good for ever: both the trace and what lies below only grow.
        scratch.extend(self.lock().extents.pieces(sector, sectors));
        let mut rest = out;
        for piece in scratch.iter() {
            let (now, later) = rest.split_at_mut(piece.sectors as usize * SECTOR_BYTES);
            self.read_piece(piece.position, now).map_err(|error| {
                self.tell(DiskEvent::Failed { reason: error.to_string() });
                NbdError::Io
            })?;
            rest = later;
        }
        Ok(())
    }

    fn read_piece(&self, position: Option<u64>, out: &mut [u8]) -> Result<(), ReadError> {
        let start = self.base.next_start();
        match position {
            None => out.fill(0),
            Some(position) if position < start => self.base.read_position(position, out)?,
            Some(position) => self.recorder.read_at(position - start, out)?,
        }
        Ok(())
    }

    fn stop(&self, error: TraceError) -> Silent {
        if !matches!(error, TraceError::Frozen) {
            self.tell(DiskEvent::Failed { reason: error.to_string() });
        }
        Silent
    }

    fn tell(&self, event: DiskEvent) {
        // A trial that does not listen any more needs no event.
        let _ = self.events.send(event);
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Base(#[from] ImageError),
    #[error(transparent)]
    Trace(#[from] TraceError),
}

fn in_sectors(ask: &DiskAsk) -> (u64, u64) {
    (ask.offset / SECTOR_BYTES as u64, u64::from(ask.length) / SECTOR_BYTES as u64)
}
