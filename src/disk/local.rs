//! The disk for clients in this process: the same device as behind [`super::DiskServer`], without a
//! socket.
//!
//! What always holds: a request is recorded when it arrives and its answer when it is due, before
//! the caller gets it. After the cut every call ends with [`LocalError::Silent`], and no data come
//! with it: whoever serves others from here must answer with an error then.

use super::device::{Device, DiskEvent, Job, Silent};
use super::extents::Piece;
use super::image::Image;
use super::nbd::{DiskAsk, NbdError, PAYLOAD_MAX};
use super::server::DiskError;
use super::timing::Timing;
use crate::trace::{Command, Recorder, lab_now};
use crate::units::SECTOR_BYTES;
use std::ops::Range;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// A range that changes no data by itself is passed on in parts of at most this many bytes.
const RANGE_MAX: u64 = 1 << 30;

/// Why a request was not answered with success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The power is gone, or the trace cannot be written any more.
    #[error("the disk is silent: it was cut, or its trace cannot be written any more")]
    Silent,
    /// What a read asked for could not be read from its trace.
    #[error("the disk's data cannot be read from their trace")]
    Io,
    /// Not whole sectors of this disk, or more at once than a disk takes. Nothing was recorded.
    #[error(
        "{length} bytes from {offset} are not whole sectors of a disk of {disk_bytes} bytes, or \
         more than {PAYLOAD_MAX} with data"
    )]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Size of the disk.
        disk_bytes: u64,
    },
}

impl From<Silent> for LocalError {
    fn from(Silent: Silent) -> LocalError {
        LocalError::Silent
    }
}

/// A running disk. Calls from several threads overlap as requests on a real disk do; each waits
/// until its answer is due.
#[derive(Debug)]
pub struct LocalDisk {
    device: Device,
}

impl LocalDisk {
    /// A disk whose trace is `recorder`'s, of the size that its header says, on `base`, or on zeros.
    /// Its events come out of the receiver.
    pub fn new(
        base: Option<Image>,
        timing: Timing,
        recorder: Recorder,
    ) -> Result<(LocalDisk, Receiver<DiskEvent>), DiskError> {
        let (device, events) = Device::on(base, timing, recorder)?;
        Ok((LocalDisk { device }, events))
    }

    /// The byte ranges that hold data, ascending; a gap of at most `gap_bytes` counts as data.
    pub fn data_ranges(&self, gap_bytes: u64) -> Vec<Range<u64>> {
        self.device.data_ranges(gap_bytes)
    }

    /// Size of the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.device.disk_bytes()
    }

    /// Reads whole sectors. After an error nothing in `out` may be used.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), LocalError> {
        let length = self.payload_length(offset, out.len())?;
        let job = self.arrive(Command::Read, offset, length, &[])?;
        let mut pieces: Vec<Piece> = Vec::new();
        let read = self.device.read(&job.ask, &mut pieces, out);
        self.answer(&job, read.err())
    }

    /// Writes whole sectors; durable only once a flush that came after it was answered.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), LocalError> {
        let length = self.payload_length(offset, data.len())?;
        let job = self.arrive(Command::Write, offset, length, data)?;
        self.answer(&job, None)
    }

    /// Makes durable what was answered before.
    pub fn flush(&self) -> Result<(), LocalError> {
        let job = self.arrive(Command::Flush, 0, 0, &[])?;
        self.answer(&job, None)
    }

    /// Whole sectors whose content is not needed any more; they read as zeros from now on.
    pub fn trim(&self, offset: u64, length: u64) -> Result<(), LocalError> {
        self.clear(Command::Trim, offset, length)
    }

    /// Whole sectors that must read as zeros.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), LocalError> {
        self.clear(Command::WriteZeroes, offset, length)
    }

    fn clear(&self, command: Command, offset: u64, length: u64) -> Result<(), LocalError> {
        self.check(offset, length)?;
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let part = (end - at).min(RANGE_MAX);
            let job = self.arrive(command, at, part as u32, &[])?;
            self.answer(&job, None)?;
            at += part;
        }
        Ok(())
    }

    fn payload_length(&self, offset: u64, length: usize) -> Result<u32, LocalError> {
        self.check(offset, length as u64)?;
        match u32::try_from(length) {
            Ok(length) if length <= PAYLOAD_MAX => Ok(length),
            _ => Err(self.range_error(offset, length as u64)),
        }
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), LocalError> {
        let sector = SECTOR_BYTES as u64;
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.disk_bytes());
        let whole = offset.is_multiple_of(sector) && length.is_multiple_of(sector);
        if inside && whole && length > 0 { Ok(()) } else { Err(self.range_error(offset, length)) }
    }

    fn range_error(&self, offset: u64, length: u64) -> LocalError {
        LocalError::Range { offset, length, disk_bytes: self.disk_bytes() }
    }

    fn arrive(
        &self,
        command: Command,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> Result<Job, Silent> {
        let ask = DiskAsk { command, fua: false, offset, length };
        // The cookie names a request to a client on a socket; here the call itself waits.
        self.device.arrive(ask, [0; 8], payload)
    }

    /// Waits until the answer is due and records it.
    fn answer(&self, job: &Job, error: Option<NbdError>) -> Result<(), LocalError> {
        if let Some(due) = job.due {
            std::thread::sleep(Duration::from_nanos(due.0.saturating_sub(lab_now().0)));
        }
        self.device.answer(job, error)?;
        error.map_or(Ok(()), |_| Err(LocalError::Io))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{CrashModel, DiskLog, crash_state};
    use crate::trace::TraceHeader;
    use crate::units::RunId;
    use proptest::prelude::*;
    use std::time::Instant;

    const DISK: u64 = 64 * SECTOR_BYTES as u64;

    struct Lab {
        folder: tempfile::TempDir,
        recorder: Recorder,
        disk: LocalDisk,
    }

    fn lab(timing: Timing) -> Lab {
        let folder = tempfile::tempdir().expect("a folder");
        let header = TraceHeader::now(RunId([3; 16]), DISK);
        let recorder = Recorder::create(&folder.path().join("trace"), &header).expect("a trace");
        let (disk, _) = LocalDisk::new(None, timing, recorder.clone()).expect("a disk");
        Lab { folder, recorder, disk }
    }

    impl Lab {
        fn log(&self) -> DiskLog {
            self.recorder.sync().expect("written");
            DiskLog::read(&self.folder.path().join("trace"), |_, _| {}).expect("a log")
        }
    }

    #[test]
    fn a_request_is_recorded_and_answered_and_after_the_cut_neither() {
        let lab = lab(Timing::default());
        lab.disk.write_at(512, &[7; 1024]).expect("written");
        lab.disk.flush().expect("flushed");
        lab.recorder.cut("by the test").expect("a cut");
        let mut out = [1; 512];
        assert_eq!(lab.disk.read_at(512, &mut out), Err(LocalError::Silent));
        assert_eq!(out, [1; 512], "no data come with silence");
        assert_eq!(lab.disk.write_at(0, &[1; 512]), Err(LocalError::Silent));
        assert_eq!(lab.disk.flush(), Err(LocalError::Silent));
        assert_eq!(lab.disk.trim(0, 512), Err(LocalError::Silent));
        let log = lab.log();
        assert_eq!(log.requests.len(), 2);
        assert!(log.requests.iter().all(|request| request.succeeded_before(log.cut_entry())));
        assert_eq!(log.reads, 0);
    }

    #[test]
    fn a_range_that_no_disk_takes_is_refused_and_not_recorded() {
        let lab = lab(Timing::default());
        for (offset, length) in [(1, 512), (0, 100), (0, 0), (DISK, 512), (u64::MAX - 511, 512)] {
            let error = lab.disk.trim(offset, length).expect_err("refused");
            assert!(matches!(error, LocalError::Range { .. }), "{error}");
        }
        assert!(lab.disk.write_at(DISK - 512, &[0; 1024]).is_err());
        assert!(lab.disk.read_at(0, &mut vec![0; PAYLOAD_MAX as usize + 512]).is_err());
        assert!(lab.log().requests.is_empty());
    }

    #[test]
    fn a_flush_takes_its_time_and_its_answer_is_recorded_when_due() {
        let flush = Duration::from_millis(30);
        let lab = lab(Timing { flush, ..Timing::default() });
        let start = Instant::now();
        lab.disk.write_at(0, &[1; 512]).expect("written");
        lab.disk.flush().expect("flushed");
        assert!(start.elapsed() >= flush);
        let log = lab.log();
        let reply = log.requests[1].reply().expect("answered");
        assert!(reply.at.0 - log.requests[1].arrived.0 >= flush.as_nanos() as u64);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Write(u64, u64, u8),
        Trim(u64, u64),
        Zero(u64, u64),
        Flush,
    }

    fn act() -> impl Strategy<Value = Act> {
        let range = (0u64..63).prop_flat_map(|at| (Just(at), 1..=(64 - at)));
        prop_oneof![
            (range.clone(), 1u8..=255).prop_map(|((at, count), fill)| Act::Write(at, count, fill)),
            range.clone().prop_map(|(at, count)| Act::Trim(at, count)),
            range.prop_map(|(at, count)| Act::Zero(at, count)),
            Just(Act::Flush),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_is_read_is_what_a_plain_array_would_hold_live_and_from_the_trace(
            acts in proptest::collection::vec(act(), 1..40),
        ) {
            let lab = lab(Timing::default());
            let mut plain = vec![0u8; DISK as usize];
            let sector = SECTOR_BYTES as u64;
            for act in acts {
                let done = match act {
                    Act::Write(at, count, fill) => {
                        let range = (at * sector) as usize..((at + count) * sector) as usize;
                        plain[range.clone()].fill(fill);
                        lab.disk.write_at(at * sector, &plain[range])
                    }
                    Act::Trim(at, count) | Act::Zero(at, count) => {
                        plain[(at * sector) as usize..((at + count) * sector) as usize].fill(0);
                        match act {
                            Act::Trim(..) => lab.disk.trim(at * sector, count * sector),
                            _ => lab.disk.write_zeroes(at * sector, count * sector),
                        }
                    }
                    Act::Flush => lab.disk.flush(),
                };
                prop_assert_eq!(done, Ok(()));
            }
            let mut shown = vec![1u8; DISK as usize];
            lab.disk.read_at(0, &mut shown).expect("read");
            prop_assert!(shown == plain);
            let log = lab.log();
            let blank = Image::blank(DISK).expect("a size");
            let state = crash_state(&log, &blank, log.entries, CrashModel::KeepAll, 0);
            state.expect("a state").read_at(0, &mut shown).expect("read");
            prop_assert!(shown == plain);
        }
    }
}
