//! What it costs to make the crash states of a trace one after another.

use crate::disk::crash::{CrashError, CrashModel, StateCursor};
use crate::disk::log::{DiskLog, LogError};
use crate::disk::{Image, ImageError, LOAD_BEGINS};
use crate::trace::{Command, EntryNo, Recorder, Request, RequestNo, TraceError, TraceHeader};
use crate::units::{RunId, SECTOR_BYTES};
use crate::workload::plan::splitmix64;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Sectors of a synthetic write: 4 KiB.
const WRITE_SECTORS: u64 = 8;

/// What the states of one trace cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PrepareCost {
    /// Writes of the trace.
    pub writes: u64,
    /// States that were made.
    pub states: u64,
    /// For all of them, in ns, without what comes once a trace.
    pub total_ns: u64,
    /// For the median state, in ns.
    pub median_ns: u64,
    /// For the median of the last tenth of them, behind which most of the trace lies, in ns.
    pub late_median_ns: u64,
    /// For the dearest state, in ns.
    pub max_ns: u64,
    /// Once a trace: opening it and putting its requests in the order of durability, in ns.
    pub start_ns: u64,
    /// Sectors that were laid down for all states.
    pub changed_sectors: u64,
    /// Bytes of memory that log and cursor hold at the end.
    pub memory_bytes: u64,
}

/// Measures a cursor over the cuts of a trace, which ascend.
pub fn prepare_cost(
    log: &DiskLog,
    base: &Image,
    model: CrashModel,
    cuts: &[EntryNo],
) -> Result<PrepareCost, CrashError> {
    let ns = |since: Instant| u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let start = Instant::now();
    let mut cursor = StateCursor::new(log, base, model)?;
    let start_ns = ns(start);
    let mut each = Vec::with_capacity(cuts.len());
    for (seed, cut) in cuts.iter().enumerate() {
        let start = Instant::now();
        // Dropping it counts too: what a state shares has to be let go of again.
        drop(cursor.at(*cut, seed as u64)?);
        each.push(ns(start));
    }
    let total_ns = each.iter().sum();
    let late_median_ns = median(each[each.len() - each.len().div_ceil(10)..].to_vec());
    let writes = log.requests.iter().filter(|request| request.command().changes_data()).count();
    Ok(PrepareCost {
        writes: writes as u64,
        states: each.len() as u64,
        total_ns,
        max_ns: each.iter().copied().max().unwrap_or(0),
        median_ns: median(each),
        late_median_ns,
        start_ns,
        changed_sectors: cursor.laid_sectors(),
        memory_bytes: (log.heap_bytes() + cursor.heap_bytes()) as u64,
    })
}

fn median(mut ns: Vec<u64>) -> u64 {
    ns.sort_unstable();
    ns.get(ns.len() / 2).copied().unwrap_or(0)
}

/// A trace of writes of 4 KiB at places that a seed draws, with flushes among them.
#[derive(Debug, Clone, Copy)]
pub struct Synthetic {
    /// How many writes.
    pub writes: u64,
    /// A flush after each so many writes, at least one.
    pub flush_every: u64,
    /// Size of the disk, a multiple of 4 KiB.
    pub disk_bytes: u64,
    /// Where the writes go.
    pub seed: u64,
}

impl Synthetic {
    /// Records it, each request answered at once.
    pub fn record(&self, path: &Path) -> Result<(), TraceError> {
        let recorder = Recorder::create(path, &TraceHeader::now(RunId([0; 16]), self.disk_bytes))?;
        recorder.mark(LOAD_BEGINS)?;
        let ask = |command, offset, length, payload: &[u8]| {
            let request = Request { no: RequestNo(0), command, fua: false, offset, length };
            let no = recorder.request(request, payload)?.no;
            recorder.reply(no, 0)
        };
        let payload = [0x5a; WRITE_SECTORS as usize * SECTOR_BYTES];
        let places = (self.disk_bytes / payload.len() as u64).max(1);
        for n in 1..=self.writes {
            let place = splitmix64(self.seed.wrapping_add(n)) % places;
            let offset = place * payload.len() as u64;
            ask(Command::Write, offset, payload.len() as u32, &payload)?;
            if n.is_multiple_of(self.flush_every.max(1)) {
                ask(Command::Flush, 0, 0, &[])?;
            }
        }
        recorder.sync()
    }
}

/// Why the cost cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// No folder for the traces.
    #[error("cannot make a folder for the traces in {}: {source}", path.display())]
    Folder {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A trace cannot be read back.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The disk cannot be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A state cannot be made.
    #[error(transparent)]
    Crash(#[from] CrashError),
}

/// The cost for traces of several lengths.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrepareReport {
    /// Under this model.
    pub model: CrashModel,
    /// One a trace.
    pub costs: Vec<PrepareCost>,
}

/// Records traces of these numbers of writes, a flush after each 100, on disks of twice as many
/// places, and makes the state behind each flush.
///
/// The traces need 4.2 KiB a write in `folder`, one at a time; they are removed.
pub fn prepare(
    folder: &Path,
    model: CrashModel,
    sizes: &[u64],
) -> Result<PrepareReport, PrepareError> {
    let mut costs = Vec::with_capacity(sizes.len());
    for writes in sizes.iter().copied() {
        let inside = tempfile::Builder::new()
            .prefix("plugpull-bench-")
            .tempdir_in(folder)
            .map_err(|source| PrepareError::Folder { path: folder.to_owned(), source })?;
        let trace = inside.path().join("trace");
        let disk_bytes = 2 * writes.max(1) * WRITE_SECTORS * SECTOR_BYTES as u64;
        Synthetic { writes, flush_every: 100, disk_bytes, seed: 1 }.record(&trace)?;
        let log = DiskLog::read(&trace, |_, _| {})?;
        let replies = log
            .requests
            .iter()
            .filter(|request| request.command() == Command::Flush)
            .filter_map(|flush| flush.reply());
        let cuts: Vec<EntryNo> = replies.map(|reply| EntryNo(reply.entry.0 + 1)).collect();
        costs.push(prepare_cost(&log, &Image::blank(disk_bytes)?, model, &cuts)?);
    }
    Ok(PrepareReport { model, costs })
}

impl fmt::Display for PrepareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "crash states under {}, one flush of 100 writes of 4 KiB apart", self.model)?;
        let head = ["writes", "states", "median us", "late us", "max us", "start ms", "bytes each"];
        head.iter().try_for_each(|name| write!(f, "{name:>11}"))?;
        writeln!(f)?;
        for cost in &self.costs {
            write!(f, "{:>11}{:>11}", cost.writes, cost.states)?;
            for ns in [cost.median_ns, cost.late_median_ns, cost.max_ns] {
                write!(f, "{:>11.1}", ns as f64 / 1e3)?;
            }
            let bytes_each = cost.memory_bytes as f64 / cost.writes.max(1) as f64;
            writeln!(f, "{:>11.1}{bytes_each:>11.1}", cost.start_ns as f64 / 1e6)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_trace_makes_more_states_of_the_same_changes_in_bounded_memory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let model = CrashModel::DropUnflushed;
        let report = prepare(folder.path(), model, &[1000, 10_000]).expect("figures");
        for (cost, writes) in report.costs.iter().zip([1000, 10_000]) {
            assert_eq!((cost.writes, cost.states), (writes, writes / 100));
            assert_eq!(cost.changed_sectors, WRITE_SECTORS * writes);
            assert!(cost.memory_bytes <= 64 * writes, "{} bytes", cost.memory_bytes);
            assert!(cost.median_ns <= cost.max_ns && cost.max_ns <= cost.total_ns);
        }
        assert_eq!(report.to_string().lines().count(), 4, "{report}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "left behind");
    }
}
