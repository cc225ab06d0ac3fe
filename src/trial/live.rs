//! The first half of a trial: set-up, load and cut, until the power is off.

use crate::agent::protocol::Request;
use crate::cut::choose::{CutPlan, choose};
use crate::cut::script::{CutScript, Victim};
use crate::disk::{CutRule, DiskEvent, DiskServer, LOAD_BEGINS};
use crate::guest::disk::DiskSource;
use crate::guest::process::ProcessId;
use crate::guest::progress::{Progress, Watch};
use crate::guest::running::Guest;
use crate::history::message::Frames;
use crate::stack::build::{build, settle, versions};
use crate::stack::full_root;
use crate::stack::scenario::Scenario;
use crate::trace::{ClockSample, Recorder, lab_now};
use crate::units::{GuestNs, LabNs};
use crate::verify::txgs::TxgLimits;
use crate::workload::plan::Plan;
use anyhow::{Context, Result, bail};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The mark behind the set-up's last write: a commit between it and the load's begin makes the set-up
/// durable.
pub const SET_UP_WRITTEN: &str = "set-up-written";
/// Between two clock samples during the load.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// Clock samples taken at once before the load: the quickest answer counts.
const SAMPLES_BEFORE: usize = 20;
/// Between two looks at the txgs kstat in the guest.
const TXG_LOOK_MS: u64 = 100;
/// Filling files and hashing bodies takes seconds in emulation.
const PREPARE: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_secs(30);
/// A commit that was waited for this much longer than three timers need will not come.
const COMMIT_PATIENCE: Duration = Duration::from_secs(60);
/// Messages that QEMU had taken before it died are read until its socket ends.
const DRAIN: Duration = Duration::from_secs(10);

/// What the live half leaves behind, beside the trace.
#[derive(Debug)]
pub struct Live {
    /// Under which limits the pool closed its groups, where there is one.
    pub limits: Option<TxgLimits>,
    /// What the seed drew.
    pub plan: CutPlan,
    /// Until the power was off, from the cut.
    pub power_off: Duration,
    /// Time of a fixed computation in the guest over the same here.
    pub cpu_slowdown: f64,
    /// Versions of the stack's tools, as they print them.
    pub stack: String,
    /// The guest's kernel.
    pub kernel: String,
}

/// The lab's disk with its trace and what it reports.
pub struct Disk {
    /// The server.
    pub server: DiskServer,
    /// What it reports while it runs.
    pub events: Receiver<DiskEvent>,
    /// Where everything is recorded.
    pub recorder: Recorder,
}

/// Loads the guest and cuts its power.
pub fn run(
    mut guest: Guest,
    disk: &Disk,
    scenario: &Scenario,
    plan: &Plan,
    watch: &Watch,
) -> Result<Live> {
    let recorder = &disk.recorder;
    let script = CutScript::find(&scenario.cut.script)?;
    let (bus, cache) = (scenario.disk.bus, scenario.disk.cache);
    let source = DiskSource::lab(disk.server.socket(), cache);
    let added = guest.add_cached_disk(&source, bus, cache)?;
    let limits = build(&mut guest.control, scenario, &added.device, watch)?;
    full_root::show_all(&mut guest.control, scenario, plan)?;
    let stack = versions(&mut guest.control, scenario)?;
    let cpu_slowdown = super::slowdown::measure(&mut guest.control)?;

    let messages = guest.take_messages().context("the messages port was taken twice")?;
    let collector = Collector::start(messages, recorder.clone())?;
    watch.stage("making the bodies and filling the files");
    guest.control.call(Request::Prepare(plan.clone()), PREPARE)?;
    recorder.mark(SET_UP_WRITTEN)?;
    if let Some(zfs) = scenario.stack.zfs() {
        let (pool, interval_ms) = (zfs.pool.clone(), TXG_LOOK_MS);
        guest.control.call(Request::WatchTxgs { pool, interval_ms }, SHORT)?;
    }
    sample_clock(&mut guest, recorder, SAMPLES_BEFORE)?;
    watch.stage("bringing the set-up to the disk");
    settle(&mut guest.control, scenario, &added.device)?;
    watch.stage("load, until the power goes");
    recorder.mark(LOAD_BEGINS)?;
    let begin = lab_now();
    guest.control.call(Request::StartLoad, SHORT)?;

    let period = Duration::from_secs_f64(scenario.cut_period_s());
    let cut_plan = choose(&scenario.cut, scenario.cut_period_s(), plan.seed);
    let cut_at = wait_for_cut(&mut guest, disk, cut_plan, period, begin, watch)?;
    let id = ProcessId::of(guest.pid()).context("QEMU was gone before the script could cut it")?;
    script.cut(Victim { pid: id.pid, starttime: id.start })?;
    let power_off = Duration::from_nanos(lab_now().0 - cut_at.0);
    guest.wait_end(SHORT)?;
    collector.finish()?;
    recorder.sync()?;
    Ok(Live {
        limits,
        plan: cut_plan,
        power_off,
        cpu_slowdown,
        stack,
        kernel: guest.hello.kernel.clone(),
    })
}

fn sample_clock(guest: &mut Guest, recorder: &Recorder, times: usize) -> Result<()> {
    (0..times).try_for_each(|_| sample(recorder, || Ok(guest.control.clock()?)))
}

/// Asks a clock between two readings of the lab's.
pub(super) fn sample(recorder: &Recorder, ask: impl FnOnce() -> Result<GuestNs>) -> Result<()> {
    let before = lab_now();
    let guest = ask()?;
    Ok(recorder.clock_sample(ClockSample { before, after: lab_now(), guest })?)
}

/// Samples the clocks until the cut. Returns its instant; nothing of the disk happens after it.
fn wait_for_cut(
    guest: &mut Guest,
    disk: &Disk,
    plan: CutPlan,
    timeout: Duration,
    begin: LabNs,
    watch: &Watch,
) -> Result<LabNs> {
    let recorder = &disk.recorder;
    let mut meter = Meter { begin, plan, shown: Instant::now() - Duration::from_secs(9) };
    let due = begin.0
        + match plan {
            CutPlan::Worst { after_ns, .. } => after_ns,
            CutPlan::Uniform { at_ns } => at_ns,
        };
    while lab_now().0 < due {
        watch.check()?;
        meter.show(watch, recorder);
        let left = Duration::from_nanos(due.saturating_sub(lab_now().0));
        let slice = left.min(SAMPLE_EVERY);
        // A sample takes a few milliseconds; a uniform cut must not wait for one.
        if slice == SAMPLE_EVERY {
            sample_clock(guest, recorder, 1)?;
        }
        std::thread::sleep(Duration::from_nanos(due.saturating_sub(lab_now().0)).min(slice));
    }
    match plan {
        CutPlan::Uniform { .. } => Ok(recorder.cut("at an instant drawn from the seed")?),
        CutPlan::Worst { commit, .. } => {
            disk.server.arm(CutRule::AtCommit { nth: commit });
            wait_for_commit(guest, disk, commit, timeout, meter, watch)
        }
    }
}

fn wait_for_commit(
    guest: &mut Guest,
    disk: &Disk,
    commit: u32,
    timeout: Duration,
    mut meter: Meter,
    watch: &Watch,
) -> Result<LabNs> {
    let patience = Instant::now() + COMMIT_PATIENCE + 3 * timeout;
    loop {
        watch.check()?;
        meter.show(watch, &disk.recorder);
        match disk.events.recv_timeout(SAMPLE_EVERY) {
            Ok(DiskEvent::Cut { at, .. }) => return Ok(at),
            Ok(DiskEvent::Failed { reason }) => bail!("the disk failed: {reason}"),
            Ok(DiskEvent::Commit { .. }) => continue,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("the disk ended before the cut"),
        }
        if Instant::now() > patience {
            bail!(
                "commit {commit} of the pool did not reach the disk within {} s of waiting for it",
                (COMMIT_PATIENCE + 3 * timeout).as_secs()
            );
        }
        // The cut may come while the guest is asked: then its answer, if any, is of no use.
        if !disk.recorder.frozen() {
            sample_clock(guest, &disk.recorder, 1)?;
        }
    }
}

/// Shows how far the load is.
struct Meter {
    begin: LabNs,
    plan: CutPlan,
    shown: Instant,
}

impl Meter {
    fn show(&mut self, watch: &Watch, recorder: &Recorder) {
        if self.shown.elapsed() < Duration::from_millis(900) {
            return;
        }
        self.shown = Instant::now();
        let seconds = (lab_now().0 - self.begin.0) / 1_000_000_000;
        let (total, what) = match self.plan {
            CutPlan::Worst { after_ns, commit } => {
                (after_ns / 1_000_000_000, format!("then the power goes at commit {commit}"))
            }
            CutPlan::Uniform { at_ns } => (at_ns / 1_000_000_000, "then the power goes".to_owned()),
        };
        let text = format!("{} entries in the trace; {what}", recorder.next_entry().0);
        let stage = "load".to_owned();
        watch.tell(Progress::Part { stage, done: seconds, total: total.max(seconds), text });
    }
}

/// Reads the messages port into the trace until QEMU ends.
#[derive(Debug)]
pub struct Collector {
    thread: JoinHandle<Result<()>>,
}

impl Collector {
    /// Starts reading.
    pub fn start(mut port: UnixStream, recorder: Recorder) -> Result<Collector> {
        port.set_nonblocking(false)?;
        let work = move || -> Result<()> {
            let (mut frames, mut buffer) = (Frames::default(), vec![0; 256 << 10]);
            loop {
                let count = match port.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(count) => count,
                    Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(why) if why.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
                    Err(why) => return Err(why).context("cannot read the guest's messages"),
                };
                frames.feed(&buffer[..count]);
                while let Some((frame, _)) = frames.next_frame()? {
                    recorder.message(frame)?;
                }
            }
        };
        let thread = std::thread::Builder::new().name("collector".to_owned()).spawn(work)?;
        Ok(Collector { thread })
    }

    /// Waits until everything that QEMU had taken is in the trace.
    pub fn finish(self) -> Result<()> {
        let deadline = Instant::now() + DRAIN;
        while !self.thread.is_finished() {
            if Instant::now() > deadline {
                bail!("the messages port did not end within {} s of the cut", DRAIN.as_secs());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => bail!("the collector of messages panicked"),
        }
    }
}
