//! Runs the loads in turn and makes the table.

use super::programs::{BenchError, Load, QemuNbd, Rate, fio, io};
use crate::disk::{DiskConfig, DiskLog, DiskServer, Timing};
use crate::guest::progress::Watch;
use crate::trace::{Recorder, TraceHeader};
use crate::units::RunId;
use std::fmt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// What to measure.
#[derive(Debug, Clone)]
pub struct BenchConfig {
    /// Where the files go, in a folder of their own that is removed.
    pub folder: PathBuf,
    /// Pairs of runs a load.
    pub pairs: u32,
    /// Bytes that each run with blocks of 4 KiB moves; larger blocks move four times as many.
    pub bytes: u64,
}

impl Default for BenchConfig {
    fn default() -> BenchConfig {
        BenchConfig { folder: std::env::temp_dir(), pairs: 5, bytes: 256 * MIB }
    }
}

/// One load's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseReport {
    /// Such as `4k randwrite`.
    pub name: String,
    /// Bytes a second of the disk, in the order of the pairs.
    pub ours: Vec<f64>,
    /// Bytes a second of qemu-nbd, in the order of the pairs.
    pub theirs: Vec<f64>,
    /// Writes that fio did on the disk, over all pairs.
    pub writes: u64,
    /// Writes that the traces hold, over all pairs.
    pub recorded: u64,
}

impl CaseReport {
    /// The median over the pairs of the disk's rate by qemu-nbd's.
    pub fn ratio(&self) -> f64 {
        let ratios = self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs);
        median(ratios.collect())
    }
}

/// What the memory of a recorded write is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryReport {
    /// Recorded writes, all of one sector at different places: the most extents a byte.
    pub writes: u64,
    /// Growth of the process's resident memory while the disk ran, in bytes.
    pub live_bytes: u64,
    /// Growth while the trace was then read into a [`DiskLog`] beside it, in bytes.
    pub log_bytes: u64,
}

impl MemoryReport {
    /// Bytes of memory a recorded write.
    pub fn per_write(&self) -> f64 {
        (self.live_bytes + self.log_bytes) as f64 / self.writes as f64
    }
}

/// All figures.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchReport {
    /// One a load.
    pub cases: Vec<CaseReport>,
    /// Memory.
    pub memory: MemoryReport,
}

/// Measures the disk against qemu-nbd, and its memory.
pub fn compare(config: &BenchConfig, watch: &Watch) -> Result<BenchReport, BenchError> {
    watch.stage("memory for each recorded write");
    // First, while the process's memory holds nothing else that could be used again.
    let memory = memory(config)?;
    let mut cases = Vec::new();
    for (block_bytes, bytes) in [(4 << 10, config.bytes), (128 << 10, 4 * config.bytes)] {
        for pattern in ["randwrite", "write", "randrw"] {
            cases.push(case(config, &Load { block_bytes, pattern, bytes }, watch)?);
        }
    }
    Ok(BenchReport { cases, memory })
}

fn case(config: &BenchConfig, load: &Load, watch: &Watch) -> Result<CaseReport, BenchError> {
    let mut report = CaseReport {
        name: format!("{}k {}", load.block_bytes >> 10, load.pattern),
        ours: Vec::new(),
        theirs: Vec::new(),
        writes: 0,
        recorded: 0,
    };
    watch.stage(format!("{}: the disk and qemu-nbd in turn", report.name));
    for _ in 0..config.pairs.max(1) {
        watch.check()?;
        let folder = folder(config)?;
        let (rate, log) = record(folder.path(), load)?;
        report.ours.push(rate.bytes_per_s);
        report.writes += rate.writes;
        report.recorded +=
            log.requests.iter().filter(|r| r.command().changes_data()).count() as u64;
        drop(folder);
        let folder = self::folder(config)?;
        let server = QemuNbd::start(folder.path(), load.bytes)?;
        report.theirs.push(fio(&server.socket, load)?.bytes_per_s);
    }
    Ok(report)
}

fn memory(config: &BenchConfig) -> Result<MemoryReport, BenchError> {
    let folder = folder(config)?;
    let load = Load { block_bytes: 512, pattern: "randwrite", bytes: 256 * MIB };
    let before = resident_bytes()?;
    let disk = start(folder.path(), load.bytes)?;
    fio(disk.server.socket(), &load)?;
    let after = resident_bytes()?;
    disk.recorder.sync()?;
    let log = DiskLog::read(&disk.trace, |_, _| {})?;
    let writes = log.requests.iter().filter(|request| request.command().changes_data()).count();
    Ok(MemoryReport {
        writes: writes as u64,
        live_bytes: after.saturating_sub(before),
        log_bytes: resident_bytes()?.saturating_sub(after),
    })
}

fn folder(config: &BenchConfig) -> Result<tempfile::TempDir, BenchError> {
    tempfile::Builder::new()
        .prefix("plugpull-bench-")
        .tempdir_in(&config.folder)
        .map_err(io("make the bench's folder"))
}

struct Disk {
    server: DiskServer,
    recorder: Recorder,
    trace: PathBuf,
}

fn start(folder: &Path, disk_bytes: u64) -> Result<Disk, BenchError> {
    let trace = folder.join("trace");
    let recorder = Recorder::create(&trace, &TraceHeader::now(RunId([0; 16]), disk_bytes))?;
    let socket = folder.join("disk.sock");
    let config = DiskConfig { socket, base: None, timing: Timing::default() };
    let (server, _) = DiskServer::start(config, recorder.clone())?;
    Ok(Disk { server, recorder, trace })
}

/// Runs a load on a new disk; then reads what was recorded.
fn record(folder: &Path, load: &Load) -> Result<(Rate, DiskLog), BenchError> {
    let disk = start(folder, load.bytes)?;
    let rate = fio(disk.server.socket(), load)?;
    drop(disk.server);
    drop(disk.recorder);
    Ok((rate, DiskLog::read(&disk.trace, |_, _| {})?))
}

/// Resident memory of this process.
fn resident_bytes() -> Result<u64, BenchError> {
    let what = "read this process's memory from /proc/self/status";
    let status = std::fs::read_to_string("/proc/self/status").map_err(io(what))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io(what)(std::io::ErrorKind::InvalidData.into()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => f64::NAN,
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>12} {:>12} {:>7} {:>7} {:>7}  {:>9} {:>9}",
            "load", "disk MiB/s", "qemu MiB/s", "ratio", "lowest", "highest", "writes", "recorded"
        )?;
        for case in &self.cases {
            let mib = |rates: &[f64]| median(rates.to_vec()) / MIB as f64;
            let ratios = case.ours.iter().zip(&case.theirs).map(|(ours, theirs)| ours / theirs);
            let lowest = ratios.clone().fold(f64::INFINITY, f64::min);
            let highest = ratios.fold(0.0, f64::max);
            writeln!(
                f,
                "{:<16} {:>12.0} {:>12.0} {:>7.2} {:>7.2} {:>7.2}  {:>9} {:>9}",
                case.name,
                mib(&case.ours),
                mib(&case.theirs),
                case.ratio(),
                lowest,
                highest,
                case.writes,
                case.recorded
            )?;
        }
        let MemoryReport { writes, live_bytes, log_bytes } = self.memory;
        let each = |bytes: u64| bytes as f64 / writes as f64;
        writeln!(
            f,
            "memory a recorded write: {:.1} bytes ({:.1} while the disk runs, {:.1} to judge it), \
             over {writes} writes of one sector",
            self.memory.per_write(),
            each(live_bytes),
            each(log_bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_pairs_is_what_counts() {
        let case = CaseReport {
            name: "4k write".into(),
            ours: vec![2.0, 9.0, 1.0, 1.0],
            theirs: vec![2.0, 1.0, 2.0, 0.5],
            writes: 1,
            recorded: 1,
        };
        assert_eq!(case.ratio(), 1.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn the_memory_of_this_process_can_be_read() {
        assert!(resident_bytes().expect("a figure") > 1 << 20);
    }
}
