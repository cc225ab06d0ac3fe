//! Which requests an honest disk had made durable when the power went.

use crate::disk::log::{DiskLog, DiskRequest};
use crate::trace::{Command, EntryNo};

/// Tells for each request of a trace whether an honest disk had made it durable by some instant.
///
/// A flush covers the writes whose reply was sent before the flush arrived, and promises it when it
/// is itself answered. So the latest arrival among the answered flushes decides for all: what was
/// answered before it is durable. FUA promises a request's own data when it is answered.
#[derive(Debug, Clone, Copy)]
pub struct Durable {
    until: EntryNo,
    /// Arrival of the latest flush that was answered.
    horizon: Option<EntryNo>,
}

/// What was durable at the entry `until`.
pub fn durable_requests(log: &DiskLog, until: EntryNo) -> Durable {
    let answered = log
        .requests
        .iter()
        .filter(|request| request.command() == Command::Flush && request.succeeded_before(until));
    Durable { until, horizon: answered.map(|flush| flush.arrival).max() }
}

impl Durable {
    /// Whether this request's data was durable.
    pub fn holds(&self, request: &DiskRequest) -> bool {
        if !request.succeeded_before(self.until) {
            return false;
        }
        let covered = self.horizon.is_some_and(|horizon| request.succeeded_before(horizon));
        request.fua() || covered
    }
}
