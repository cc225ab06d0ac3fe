//! Faults of the evidence: a run's trace, written again with something wrong in it.
//!
//! What always holds: the original is only read; every entry of the copy is a whole one, with its
//! own time, so that nothing but the planted fault is wrong with it.

use super::mutant::Tampering;
use crate::trace::{ClockSample, Entry, HEADER_BYTES, TraceError, TraceReader};
use crate::units::GuestNs;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// How far the guest's clock jumps: far beyond any error of a clock map.
const JUMP_NS: u64 = 2_000_000_000;
/// Of this many messages one is lost.
const ONE_LOST_OF: u64 = 50;

/// Why a trace cannot be tampered with.
#[derive(Debug, thiserror::Error)]
pub enum TamperError {
    /// The original cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file cannot be copied.
    #[error("cannot copy the trace {path} to plant a fault in it: {source}")]
    Copy {
        /// The original.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes a copy of the trace at `from` with a fault in it; `other` is another run's trace.
pub fn tampered(kind: Tampering, from: &Path, other: &Path, to: &Path) -> Result<(), TamperError> {
    let copy = |source| TamperError::Copy { path: from.display().to_string(), source };
    match kind {
        Tampering::ForeignTrace => fs::copy(other, to).map(drop).map_err(copy),
        Tampering::ForeignFiles => fs::copy(from, to).map(drop).map_err(copy),
        Tampering::TraceCutShort => {
            let bytes = fs::read(from).map_err(copy)?;
            fs::write(to, &bytes[..bytes.len() / 3 * 2]).map_err(copy)
        }
        Tampering::MessagesLost | Tampering::ClockSkewed => rewrite(kind, from, to),
    }
}

fn rewrite(kind: Tampering, from: &Path, to: &Path) -> Result<(), TamperError> {
    let copy = |source| TamperError::Copy { path: from.display().to_string(), source };
    let samples = count(from, |entry| matches!(entry, Entry::ClockSample(_)))?;
    let mut reader = TraceReader::open(from)?;
    let mut out = BufWriter::new(File::create(to).map_err(copy)?);
    let head = reader.header().encode();
    debug_assert_eq!(head.len(), HEADER_BYTES);
    out.write_all(&head).map_err(copy)?;
    let (mut messages, mut sampled) = (0, 0);
    while let Some((at, entry)) = reader.next_entry()? {
        let entry = match entry {
            Entry::Message(_) if kind == Tampering::MessagesLost => {
                messages += 1;
                if messages % ONE_LOST_OF == 0 {
                    continue;
                }
                entry
            }
            Entry::ClockSample(sample) if kind == Tampering::ClockSkewed => {
                sampled += 1;
                let ahead = if sampled * 2 > samples { JUMP_NS } else { 0 };
                let guest = GuestNs(sample.guest.0.saturating_add(ahead));
                Entry::ClockSample(ClockSample { guest, ..sample })
            }
            entry => entry,
        };
        // What was read as an entry always has a form as one.
        if let Some((head, payload)) = entry.encode(at.time) {
            out.write_all(&head).and_then(|()| out.write_all(payload)).map_err(copy)?;
        }
    }
    out.flush().map_err(copy)
}

fn count(path: &Path, wanted: impl Fn(&Entry<'_>) -> bool) -> Result<u64, TamperError> {
    let mut reader = TraceReader::open(path)?;
    let mut found = 0;
    while let Some((_, entry)) = reader.next_entry()? {
        found += u64::from(wanted(&entry));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Recorder, TraceEnd, TraceHeader, lab_now};
    use crate::units::RunId;

    fn recorded(run: u8, path: &Path) {
        let recorder =
            Recorder::create(path, &TraceHeader::now(RunId([run; 16]), 1 << 20)).expect("a trace");
        for n in 0..200_u8 {
            recorder.message(&[n; 24]).expect("recorded");
            let sample =
                ClockSample { before: lab_now(), after: lab_now(), guest: GuestNs(u64::from(n)) };
            recorder.clock_sample(sample).expect("recorded");
        }
        recorder.cut("test").expect("recorded");
        recorder.sync().expect("synced");
    }

    /// Messages, clock readings and the end of a tampered trace.
    fn read(kind: Tampering) -> (usize, Vec<u64>, TraceEnd, RunId) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        recorded(1, &path("a"));
        recorded(2, &path("b"));
        tampered(kind, &path("a"), &path("b"), &path("c")).expect("tampered");
        let mut reader = TraceReader::open(&path("c")).expect("a trace");
        let (mut messages, mut readings) = (0, Vec::new());
        while let Some((_, entry)) = reader.next_entry().expect("read") {
            match entry {
                Entry::Message(_) => messages += 1,
                Entry::ClockSample(sample) => readings.push(sample.guest.0),
                _ => {}
            }
        }
        (messages, readings, reader.end().expect("the end"), reader.header().run)
    }

    #[test]
    fn each_fault_changes_what_it_says_and_leaves_whole_entries() {
        let (messages, readings, end, run) = read(Tampering::MessagesLost);
        assert_eq!((messages, readings.len(), run), (196, 200, RunId([1; 16])));
        assert!(matches!(end, TraceEnd::Clean { .. }));
        let (messages, readings, end, _) = read(Tampering::ClockSkewed);
        assert_eq!((messages, readings[99], readings[100]), (200, 99, 100 + JUMP_NS));
        assert!(matches!(end, TraceEnd::Clean { .. }));
        assert_eq!(read(Tampering::ForeignTrace).3, RunId([2; 16]));
        assert!(read(Tampering::TraceCutShort).0 < 200);
        let (messages, readings, ..) = read(Tampering::ForeignFiles);
        assert_eq!((messages, readings[199]), (200, 199), "control: the trace is untouched");
    }
}
