//! The trace that a disk with FUA would have seen.
//!
//! A block device without FUA gets a forced write as a write and a flush behind it; one with FUA
//! gets the one request (Linux, `blk-flush.c`). The host's loop device has none, and QEMU's NVMe
//! does not pass it on, so the trace of a load is written again: the flush behind each commit block
//! of ext4's journal goes, and the block is forced. What always holds: nothing else differs.

use super::tamper::TamperError;
use crate::disk::jbd2::JournalBlock;
use crate::disk::{DiskLog, LogError};
use crate::trace::{Command, Entry, EntryNo, Request, RequestNo, TraceReader};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Why a trace cannot be written again.
#[derive(Debug, thiserror::Error)]
pub enum FuaError {
    /// The disk's side of it cannot be told.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A file.
    #[error(transparent)]
    Copy(#[from] TamperError),
    /// There is nothing to force.
    #[error("the trace {0} holds no commit block of a journal with a flush behind it")]
    None(String),
}

/// Entries of commit blocks, and of the flushes that only force them.
struct Forced {
    writes: BTreeSet<EntryNo>,
    flushes: BTreeSet<EntryNo>,
}

/// Writes the trace at `path` again. Returns how many writes are forced now.
pub fn force_commits(path: &Path) -> Result<usize, FuaError> {
    let log = DiskLog::read(path, |_, _| {})?;
    let forced = forced(&log);
    if forced.writes.is_empty() {
        return Err(FuaError::None(path.display().to_string()));
    }
    let copy = |source| TamperError::Copy { path: path.display().to_string(), source };
    let again = path.with_extension("fua");
    let mut reader = TraceReader::open(path).map_err(TamperError::from)?;
    let mut out = BufWriter::new(File::create(&again).map_err(copy)?);
    out.write_all(&reader.header().encode()).map_err(copy)?;
    let mut numbers: HashMap<RequestNo, RequestNo> = HashMap::new();
    while let Some((at, entry)) = reader.next_entry().map_err(TamperError::from)? {
        let entry = match entry {
            Entry::Request(..) if forced.flushes.contains(&at.no) => continue,
            Entry::Request(request, payload) => {
                let no = RequestNo(numbers.len() as u64);
                numbers.insert(request.no, no);
                let fua = request.fua || forced.writes.contains(&at.no);
                Entry::Request(Request { no, fua, ..request }, payload)
            }
            // The reply to a flush that is gone answers nothing.
            Entry::Reply(no, error) => match numbers.get(&no) {
                Some(no) => Entry::Reply(*no, error),
                None => continue,
            },
            entry => entry,
        };
        if let Some((head, payload)) = entry.encode(at.time) {
            out.write_all(&head).and_then(|()| out.write_all(payload)).map_err(copy)?;
        }
    }
    out.flush().map_err(copy)?;
    fs::rename(again, path).map_err(copy)?;
    Ok(forced.writes.len())
}

/// The commit blocks behind which the next request is a flush that arrived after their answer.
fn forced(log: &DiskLog) -> Forced {
    let mut forced = Forced { writes: BTreeSet::new(), flushes: BTreeSet::new() };
    for sighting in log.journal.iter().filter(|s| s.block == JournalBlock::Commit) {
        let index = sighting.request as usize;
        let (write, next) = (&log.requests[index], log.requests.get(index + 1));
        let answered = write.reply().filter(|reply| reply.error == 0);
        let (Some(reply), Some(flush)) = (answered, next) else { continue };
        let behind = flush.command() == Command::Flush && flush.arrival > reply.entry;
        if behind && flush.reply().is_some_and(|reply| reply.error == 0) {
            forced.writes.insert(write.arrival);
            forced.flushes.insert(flush.arrival);
        }
    }
    forced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Recorder, TraceHeader};
    use crate::units::RunId;

    /// A block of ext4's journal: magic, kind and sequence, big-endian.
    fn journal_block(kind: u32, sequence: u32) -> Vec<u8> {
        let mut block = vec![0; 4096];
        for (at, field) in [0xc03b_3998_u32, kind, sequence].into_iter().enumerate() {
            block[4 * at..4 * at + 4].copy_from_slice(&field.to_be_bytes());
        }
        block
    }

    fn write_again(steps: &[(Command, &[u8])]) -> Result<Vec<(Command, bool)>, FuaError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace");
        let header = TraceHeader::now(RunId([1; 16]), 1 << 20);
        let recorder = Recorder::create(&path, &header).expect("a trace");
        for (command, payload) in steps {
            let length = payload.len() as u32;
            let no = RequestNo(0);
            let request = Request { no, command: *command, fua: false, offset: 0, length };
            let arrived = recorder.request(request, payload).expect("recorded");
            recorder.reply(arrived.no, 0).expect("recorded");
        }
        recorder.cut("test").expect("recorded");
        recorder.sync().expect("synced");
        force_commits(&path)?;
        let log = DiskLog::read(&path, |_, _| {}).expect("a whole trace");
        assert!(log.requests.iter().all(|request| request.reply().is_some()));
        Ok(log.requests.iter().map(|request| (request.command(), request.fua())).collect())
    }

    #[test]
    fn a_commit_block_is_forced_and_only_the_flush_behind_it_goes() {
        use Command::{Flush, Write};
        let (descriptor, commit, data) = (journal_block(1, 7), journal_block(2, 7), vec![1; 4096]);
        let steps: [(Command, &[u8]); 6] = [
            (Write, &data),
            (Write, &descriptor),
            (Flush, &[]),
            (Write, &commit),
            (Flush, &[]),
            (Flush, &[]),
        ];
        let again = write_again(&steps).expect("written again");
        let expected =
            [(Write, false), (Write, false), (Flush, false), (Write, true), (Flush, false)];
        assert_eq!(again, expected);
    }

    #[test]
    fn a_trace_without_a_journal_is_refused() {
        let steps: [(Command, &[u8]); 2] = [(Command::Write, &[1; 4096]), (Command::Flush, &[])];
        let refused = write_again(&steps).expect_err("nothing to force");
        assert!(refused.to_string().contains("no commit block"), "{refused}");
    }
}
