//! When a disk made each request durable, told once for a whole trace.

use crate::disk::log::{DiskLog, DiskRequest};
use crate::trace::{Command, EntryNo};
use crate::units::LabNs;

/// The reply with which a request became durable: it is part of every later state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Durable {
    /// The reply's entry.
    pub by: EntryNo,
    /// When it was about to be sent.
    pub at: LabNs,
}

/// Which promises a disk keeps. Each fault holds for what arrives at or behind its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Promises {
    /// All.
    #[default]
    Kept,
    /// A flush is answered before its work is done: that is done with the next answer to a flush.
    FlushLate(EntryNo),
    /// Flushes and FUA are answered and ignored.
    AllIgnored(EntryNo),
    /// FUA is answered and ignored.
    FuaIgnored(EntryNo),
}

/// Tells for each request of a trace when it became durable.
///
/// A flush covers the writes whose reply was sent before the flush arrived, and promises it when it
/// is itself answered. FUA promises a request's own data when it is answered. What was answered
/// with an error is promised by nothing.
#[derive(Debug, Clone)]
pub struct DurableAt {
    /// For each answered flush, ascending: what was answered before this entry is covered, and the
    /// earliest answer among this flush and those that arrived later.
    flushes: Vec<(EntryNo, Durable)>,
    /// FUA of requests that arrive here or later is ignored.
    fua_until: EntryNo,
}

impl DurableAt {
    /// On an honest disk.
    pub fn new(log: &DiskLog) -> DurableAt {
        DurableAt::with(log, Promises::Kept)
    }

    pub(super) fn with(log: &DiskLog, promises: Promises) -> DurableAt {
        let flushes = log.requests.iter().filter(|request| request.command() == Command::Flush);
        let mut answered: Vec<(EntryNo, Durable)> = flushes
            .filter_map(|flush| {
                let reply = flush.reply().filter(|reply| reply.error == 0)?;
                Some((flush.arrival, Durable { by: reply.entry, at: reply.at }))
            })
            .collect();
        match promises {
            Promises::Kept | Promises::FuaIgnored(_) => {}
            Promises::AllIgnored(from) => answered.retain(|(arrival, _)| *arrival < from),
            Promises::FlushLate(from) => delay(&mut answered, from),
        }
        let mut earliest = Durable { by: EntryNo(u32::MAX), at: LabNs(u64::MAX) };
        for (_, durable) in answered.iter_mut().rev() {
            earliest = earliest.min(*durable);
            *durable = earliest;
        }
        let fua_until = match promises {
            Promises::Kept | Promises::FlushLate(_) => EntryNo(u32::MAX),
            Promises::AllIgnored(from) | Promises::FuaIgnored(from) => from,
        };
        DurableAt { flushes: answered, fua_until }
    }

    /// When this request of the trace became durable, if it did.
    pub fn of(&self, request: &DiskRequest) -> Option<Durable> {
        let reply = request.reply().filter(|reply| reply.error == 0)?;
        if request.fua() && request.arrival < self.fua_until {
            return Some(Durable { by: reply.entry, at: reply.at });
        }
        let first = self.flushes.partition_point(|(covers, _)| *covers <= reply.entry);
        self.flushes.get(first).map(|(_, durable)| *durable)
    }
}

/// Lets each flush from an entry on do the work of the one before it.
fn delay(flushes: &mut Vec<(EntryNo, Durable)>, from: EntryNo) {
    for at in (0..flushes.len()).rev() {
        if flushes[at].0 < from {
            break;
        }
        match at.checked_sub(1) {
            Some(before) => flushes[at].0 = flushes[before].0,
            None => drop(flushes.remove(0)),
        }
    }
}

/// Which requests were durable at one instant.
#[derive(Debug, Clone)]
pub struct DurableBefore {
    durable_at: DurableAt,
    until: EntryNo,
}

/// What an honest disk had made durable at the entry `until`.
pub fn durable_requests(log: &DiskLog, until: EntryNo) -> DurableBefore {
    DurableBefore { durable_at: DurableAt::new(log), until }
}

impl DurableBefore {
    /// Whether this request's data was durable.
    pub fn holds(&self, request: &DiskRequest) -> bool {
        self.durable_at.of(request).is_some_and(|durable| durable.by < self.until)
    }
}
