//! The disk that a server shows: it can be replaced while clients stay connected.
//!
//! What always holds: a disk is replaced only when each of its requests was answered, so an answer
//! is always recorded where its request was, and the trace of the disk before is complete.

use super::device::{Device, Job, Silent};
use super::nbd::DiskAsk;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The disk that is shown now.
#[derive(Debug)]
pub(super) struct Shown(RwLock<Arc<Device>>);

/// So many requests are not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unanswered(pub u64);

impl Shown {
    /// Shows this disk.
    pub fn new(device: Arc<Device>) -> Shown {
        Shown(RwLock::new(device))
    }

    /// The disk that is shown now, for everything but a request that arrives.
    pub fn now(&self) -> Arc<Device> {
        self.read().clone()
    }

    /// Records a request that arrived whole, and acts on it. Until it is answered no other disk is
    /// shown.
    pub fn arrive(&self, ask: DiskAsk, cookie: [u8; 8], payload: &[u8]) -> Result<Job, Silent> {
        // Held until the request counts as open: no other disk can come between.
        self.read().arrive(ask, cookie, payload)
    }

    /// From now on shows another disk.
    pub fn replace(&self, device: Arc<Device>) -> Result<(), Unanswered> {
        let mut shown = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match shown.open_requests() {
            0 => {
                *shown = device;
                Ok(())
            }
            open => Err(Unanswered(open)),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Arc<Device>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskLog, Image, Timing};
    use crate::trace::{Command, Recorder, TraceHeader};
    use crate::units::RunId;
    use std::path::Path;

    const DISK: u64 = 64 << 10;
    const WRITE: DiskAsk =
        DiskAsk { command: Command::Write, fua: false, offset: 512, length: 512 };

    fn device(trace: &Path) -> Arc<Device> {
        let header = TraceHeader::now(RunId([4; 16]), DISK);
        let recorder = Recorder::create(trace, &header).expect("a trace");
        let base = Image::blank(DISK).expect("a size");
        Arc::new(Device::on(Some(base), Timing::default(), recorder).expect("a disk").0)
    }

    fn requests(trace: &Path) -> usize {
        let log = DiskLog::read(trace, |_, _| {}).expect("a log");
        assert!(log.requests.iter().all(|request| request.reply().is_some()));
        log.requests.len()
    }

    #[test]
    fn a_disk_is_replaced_only_when_all_is_answered_and_each_trace_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let shown = Shown::new(device(&one));
        let next = device(&two);
        let first = shown.arrive(WRITE, [0; 8], &[1; 512]).expect("recorded");
        assert_eq!(shown.replace(next.clone()), Err(Unanswered(1)));
        shown.now().answer(&first, None).expect("recorded");
        assert_eq!(shown.replace(next), Ok(()));
        let second = shown.arrive(WRITE, [0; 8], &[2; 512]).expect("recorded");
        let third = shown.arrive(WRITE, [0; 8], &[2; 512]).expect("recorded");
        for job in [second, third] {
            shown.now().answer(&job, None).expect("recorded");
        }
        drop(shown);
        assert_eq!((requests(&one), requests(&two)), (1, 2));
    }
}
