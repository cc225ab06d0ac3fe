//! How many crash states a second this machine verifies, and what each step of one takes.
//!
//! What is measured is a real verification, with its answers held against what must be there: a load
//! is recorded through the host side, then states of its trace are mounted, checked and read.

use super::disk::HostDisk;
use super::tools::{check, make};
use crate::disk::{CrashModel, DiskLog, Image, LOAD_BEGINS, LocalDisk, Timing, crash_state};
use crate::trace::{EntryNo, Recorder, TraceHeader};
use crate::units::RunId;
use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of each file.
const FILE_BYTES: usize = 4096;
/// What a file holds before the load, and after its turn in it.
const VERSIONS: [u8; 2] = [b'0', b'1'];
/// Each step may take this long.
const LIMIT: Duration = Duration::from_secs(60);

/// What is mounted when, for one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence {
    /// Mount, read, unmount, check. The check sees what the replay and the reading left.
    OneMount,
    /// Mount, unmount, check, mount, read, unmount. The check sees the replay alone.
    TwoMounts,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct StatesBench {
    /// ext4, xfs or btrfs.
    pub fstype: String,
    /// Size of the disk.
    pub disk_bytes: u64,
    /// Files of 4 KiB on it.
    pub files: usize,
    /// States to verify in each run.
    pub states: usize,
    /// How many workers, run by run.
    pub workers: Vec<usize>,
    /// How each state is verified.
    pub sequence: Sequence,
}

impl Default for StatesBench {
    fn default() -> StatesBench {
        StatesBench {
            fstype: "ext4".into(),
            disk_bytes: 256 << 20,
            files: 200,
            states: 200,
            workers: vec![1, 2, 4],
            sequence: Sequence::OneMount,
        }
    }
}

/// Time spent in each step, over all states and workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepTimes {
    /// Computing the crash state and opening a trace for what is written to it.
    pub prepare: Duration,
    /// Putting it into the device.
    pub insert: Duration,
    /// Mounting, with the replay of the log.
    pub mount: Duration,
    /// Reading every file.
    pub read: Duration,
    /// Unmounting.
    pub unmount: Duration,
    /// The file system's checker.
    pub check: Duration,
}

/// One run.
#[derive(Debug, Clone)]
pub struct StatesRate {
    /// File system.
    pub fstype: String,
    /// Workers.
    pub workers: usize,
    /// States that were verified.
    pub states: usize,
    /// From the first to the last, without the start of the workers' devices.
    pub took: Duration,
    /// What each step took.
    pub steps: StepTimes,
}

impl fmt::Display for StatesRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3 / self.states.max(1) as f64;
        let StepTimes { prepare, insert, mount, read, unmount, check } = self.steps;
        write!(
            f,
            "{}, {} workers: {:.1} states a second ({} states; ms a state: prepare {:.2}, insert \
             {:.2}, mount {:.2}, read {:.2}, unmount {:.2}, check {:.2})",
            self.fstype,
            self.workers,
            self.states as f64 / self.took.as_secs_f64(),
            self.states,
            ms(prepare),
            ms(insert),
            ms(mount),
            ms(read),
            ms(unmount),
            ms(check)
        )
    }
}

/// A recorded load: every file is overwritten and synced once, one after the other.
struct Load {
    log: DiskLog,
    blank: Image,
    /// The position in the trace at which each file's sync had returned.
    acks: Vec<EntryNo>,
    /// Where to cut: behind the answer to each flush of the load.
    cuts: Vec<EntryNo>,
}

/// Records a load in `folder` (empty, better in memory), then measures once for each number of
/// workers. Needs root and the file system's tools.
pub fn measure_states(folder: &Path, bench: &StatesBench) -> Result<Vec<StatesRate>> {
    let load = record(&folder.join("trace"), bench).context("recording the load")?;
    bench.workers.iter().map(|&workers| run(folder, bench, &load, workers)).collect()
}

fn record(trace: &Path, bench: &StatesBench) -> Result<Load> {
    let header = TraceHeader::now(RunId([0; 16]), bench.disk_bytes);
    let recorder = Recorder::create(trace, &header)?;
    let (disk, _events) = LocalDisk::new(None, Timing::default(), recorder.clone())?;
    let mut host = HostDisk::start(bench.disk_bytes, LIMIT)?;
    host.insert(Arc::new(disk))?;
    make(&host, &bench.fstype)?;
    let mounted = host.mount(&bench.fstype, "")?;
    for number in 0..bench.files {
        fs::write(file(mounted.path(), number), [VERSIONS[0]; FILE_BYTES])?;
    }
    rustix::fs::syncfs(fs::File::open(mounted.path())?)?;
    recorder.mark(LOAD_BEGINS)?;
    let mut acks = Vec::new();
    for number in 0..bench.files {
        let path = file(mounted.path(), number);
        let mut file = fs::File::options().write(true).open(path)?;
        file.write_all(&[VERSIONS[1]; FILE_BYTES])?;
        file.sync_all()?;
        acks.push(recorder.next_entry());
    }
    recorder.cut("the load is over")?;
    // Its last writes fail, as they must behind the cut.
    let _ = mounted.unmount();
    drop(host);
    let log = DiskLog::read(trace, |_, _| {})?;
    let begins = log.mark(LOAD_BEGINS).context("no mark")?.entry;
    let flushes = log.requests.iter().filter(|request| request.sectors() == 0);
    let answers = flushes.filter_map(|flush| Some(flush.reply()?.entry));
    let cuts: Vec<EntryNo> =
        answers.filter(|entry| *entry > begins).map(|entry| EntryNo(entry.0 + 1)).collect();
    ensure!(cuts.len() >= bench.files, "{} syncs made {} flushes", bench.files, cuts.len());
    Ok(Load { log, blank: Image::blank(bench.disk_bytes)?, acks, cuts })
}

fn file(root: &Path, number: usize) -> PathBuf {
    root.join(format!("file-{number}"))
}

fn run(folder: &Path, bench: &StatesBench, load: &Load, workers: usize) -> Result<StatesRate> {
    let next = AtomicUsize::new(0);
    let mut hosts = (0..workers)
        .map(|_| HostDisk::start(bench.disk_bytes, LIMIT))
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let work = |worker: usize, host: &mut HostDisk| -> Result<StepTimes> {
        let trace = folder.join(format!("worker-{worker}"));
        let mut steps = StepTimes::default();
        loop {
            let state = next.fetch_add(1, Ordering::Relaxed);
            if state >= bench.states {
                return Ok(steps);
            }
            let cut = load.cuts[state * load.cuts.len() / bench.states];
            verify(host, &trace, bench, load, cut, &mut steps)
                .with_context(|| format!("the state behind entry {}", cut.0))?;
        }
    };
    let all = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = hosts
            .iter_mut()
            .enumerate()
            .map(|(worker, host)| scope.spawn(move || work(worker, host)))
            .collect();
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let took = start.elapsed();
    let steps = all.into_iter().fold(StepTimes::default(), sum);
    Ok(StatesRate { fstype: bench.fstype.clone(), workers, states: bench.states, took, steps })
}

fn join(thread: std::thread::ScopedJoinHandle<'_, Result<StepTimes>>) -> Result<StepTimes> {
    thread.join().unwrap_or_else(|_| bail!("a worker panicked"))
}

fn sum(a: StepTimes, b: StepTimes) -> StepTimes {
    StepTimes {
        prepare: a.prepare + b.prepare,
        insert: a.insert + b.insert,
        mount: a.mount + b.mount,
        read: a.read + b.read,
        unmount: a.unmount + b.unmount,
        check: a.check + b.check,
    }
}

fn verify(
    host: &mut HostDisk,
    trace: &Path,
    bench: &StatesBench,
    load: &Load,
    cut: EntryNo,
    steps: &mut StepTimes,
) -> Result<()> {
    let mut lap = Instant::now();
    let mut took = |step: &mut Duration| {
        *step += lap.elapsed();
        lap = Instant::now();
    };
    let image = crash_state(&load.log, &load.blank, cut, CrashModel::DropUnflushed, 0)?;
    let recorder = Recorder::create(trace, &TraceHeader::now(RunId([0; 16]), bench.disk_bytes))?;
    let (disk, _events) = LocalDisk::new(Some(image), Timing::default(), recorder)?;
    // Open descriptors keep what is read from it.
    fs::remove_file(trace)?;
    took(&mut steps.prepare);
    host.insert(Arc::new(disk))?;
    took(&mut steps.insert);
    let mut mounted = host.mount(&bench.fstype, "")?;
    took(&mut steps.mount);
    if bench.sequence == Sequence::TwoMounts {
        mounted.unmount()?;
        took(&mut steps.unmount);
        checked(host, bench)?;
        took(&mut steps.check);
        mounted = host.mount(&bench.fstype, "")?;
        took(&mut steps.mount);
    }
    read_all(mounted.path(), load, cut)?;
    took(&mut steps.read);
    mounted.unmount()?;
    took(&mut steps.unmount);
    if bench.sequence == Sequence::OneMount {
        checked(host, bench)?;
        took(&mut steps.check);
    }
    Ok(())
}

fn checked(host: &HostDisk, bench: &StatesBench) -> Result<()> {
    let result = check(host, &bench.fstype)?;
    ensure!(result.code == Some(0), "the check says: {}{}", result.stdout, result.stderr);
    Ok(())
}

/// A file whose sync had returned must be new; each must be whole, old or new.
fn read_all(root: &Path, load: &Load, cut: EntryNo) -> Result<()> {
    let open = |number| {
        let path = file(root, number);
        let open = fs::File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        // All are asked for before the first is waited for: a wait for each would be most of it.
        posix_fadvise(&open, 0, 0, PosixFadviseAdvice::POSIX_FADV_WILLNEED)?;
        Ok(open)
    };
    let files = (0..load.acks.len()).map(open).collect::<Result<Vec<_>>>()?;
    for (number, (mut file, ack)) in files.into_iter().zip(&load.acks).enumerate() {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("reading file {number}"))?;
        let version = bytes.first().copied().unwrap_or_default();
        let is_whole = bytes.len() == FILE_BYTES && bytes.iter().all(|byte| *byte == version);
        ensure!(is_whole && VERSIONS.contains(&version), "file {number} is not whole");
        ensure!(*ack > cut || version == VERSIONS[1], "file {number} was synced and is old");
    }
    Ok(())
}
