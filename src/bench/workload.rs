//! The workload's rate against fio's, in the same guest, on the same datasets, in turn.
//!
//! Both write 4 KiB and fsync, one job, one file, as fast as they go; ours also makes a record,
//! takes event numbers and sends an ack for each operation to the lab, which records it.

use crate::agent::protocol::{Reply, Request};
use crate::disk::{DiskConfig, DiskServer, Timing};
use crate::guest::disk::{DiskBus, DiskSource};
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use crate::guest::{Guest, GuestConfig, Lab, Start};
use crate::stack::build::build;
use crate::stack::scenario::{PatternName, Scenario, StreamSpec};
use crate::stack::settings;
use crate::trial::live::Collector;
use crate::trial::run::new_trace;
use crate::units::RunId;
use crate::workload::plan::Plan;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::time::Duration;

const PREPARE: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadBench {
    /// Pairs of runs on each dataset.
    pub pairs: u32,
    /// Length of each run.
    pub run: Duration,
}

impl Default for WorkloadBench {
    fn default() -> WorkloadBench {
        WorkloadBench { pairs: 5, run: Duration::from_secs(8) }
    }
}

/// Forced writes a second on one dataset, pair by pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// `sync=disabled` or `sync=standard`.
    pub dataset: String,
    /// Ours.
    pub ours: Vec<f64>,
    /// fio's.
    pub fio: Vec<f64>,
}

impl Rates {
    /// The median over the pairs of ours by fio's.
    pub fn ratio(&self) -> f64 {
        let mut ratios: Vec<f64> = self.ours.iter().zip(&self.fio).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |rates: &[f64]| {
            let text: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
            text.join(" ")
        };
        write!(
            f,
            "{:14} ratio {:.2}   ours {}   fio {}  (forced 4 KiB writes/s, pair by pair)",
            self.dataset,
            self.ratio(),
            list(&self.ours),
            list(&self.fio)
        )
    }
}

/// Measures both datasets of the default scenario.
pub fn compare(bench: WorkloadBench, watch: &Watch) -> Result<Vec<Rates>> {
    let scenario = one_stream_each()?;
    let config = GuestConfig { bench: true, ..GuestConfig::default() };
    let lab = Lab::prepare(config, watch)?;
    let folder = RunFolder::new()?;
    let trace = folder.path().join("trace");
    let recorder = new_trace(&trace, RunId([0; 16]), scenario.disk.size_mib << 20)?;
    let timing = Timing::default();
    let disk = DiskConfig { socket: folder.path().join("disk"), base: None, timing };
    let (disk, _events) = DiskServer::start(disk, recorder.clone())?;
    let mut guest = lab.start(Start::Saved, None)?;
    let added = guest.add_disk(&DiskSource::nbd(disk.socket()), DiskBus::VirtioBlk)?;
    build(&mut guest.control, &scenario, &added.device, watch)?;
    let messages = guest.take_messages().context("the messages port was taken twice")?;
    let collector = Collector::start(messages, recorder.clone())?;
    let all = rates(&mut guest, &scenario, bench, watch);
    guest.kill();
    collector.finish()?;
    all
}

fn one_stream_each() -> Result<Scenario> {
    let mut scenario = settings::load(settings::DEFAULT, &[])?;
    let append = StreamSpec::of(PatternName::Append);
    for dataset in scenario.dataset.values_mut() {
        dataset.stream = vec![append.clone()];
    }
    Ok(scenario)
}

fn rates(
    guest: &mut Guest,
    scenario: &Scenario,
    bench: WorkloadBench,
    watch: &Watch,
) -> Result<Vec<Rates>> {
    let mut all = Vec::new();
    for (name, spec) in &scenario.dataset {
        let dataset = format!("sync={}", spec.sync.as_str());
        let mut rates = Rates { dataset, ours: Vec::new(), fio: Vec::new() };
        let mountpoint = scenario.mountpoint(name);
        // The pool's file is sparse: until its blocks are there, each fsync also waits for ext4's
        // journal. The first pair is for that and does not count; who goes first alternates.
        for pair in 0..=bench.pairs {
            watch.check()?;
            watch.tell(Progress::Part {
                stage: rates.dataset.clone(),
                done: u64::from(pair),
                total: u64::from(bench.pairs) + 1,
                text: format!("ours and fio in turn, {} s each", bench.run.as_secs()),
            });
            let (own, other) = if pair % 2 == 0 {
                let own = ours(guest, scenario, name, u64::from(pair), bench.run)?;
                (own, fio(guest, &mountpoint, bench.run)?)
            } else {
                let other = fio(guest, &mountpoint, bench.run)?;
                (ours(guest, scenario, name, u64::from(pair), bench.run)?, other)
            };
            if pair > 0 {
                rates.ours.push(own);
                rates.fio.push(other);
            }
        }
        all.push(rates);
    }
    Ok(all)
}

/// Acked operations a second of one stream, alone.
fn ours(
    guest: &mut Guest,
    scenario: &Scenario,
    dataset: &str,
    seed: u64,
    run: Duration,
) -> Result<f64> {
    let mut plan: Plan = scenario.plan(RunId([seed as u8; 16]), seed);
    plan.streams.retain(|stream| stream.dataset == dataset);
    let file = plan.streams.first().context("no stream writes to the dataset")?.path.clone();
    guest.control.call(Request::Prepare(plan), PREPARE)?;
    guest.control.call(Request::StartLoad, SHORT)?;
    std::thread::sleep(run);
    let ended = guest.control.call(Request::StopLoad, SHORT)?;
    guest.control.run(&["busybox", "rm", "-f", &file], SHORT)?;
    match ended {
        Reply::Rates(rates) if rates.len() == 1 && rates[0].elapsed_ns > 0 => {
            Ok(rates[0].acked as f64 * 1e9 / rates[0].elapsed_ns as f64)
        }
        other => bail!("the load ended with {other:?}"),
    }
}

/// fio's own figure for the same calls on the same dataset.
fn fio(guest: &mut Guest, folder: &str, run: Duration) -> Result<f64> {
    let (file, runtime) =
        (format!("--filename={folder}/fio"), format!("--runtime={}", run.as_secs()));
    let argv = [
        "fio",
        "--name=forced",
        &file,
        "--rw=write",
        "--bs=4k",
        "--fsync=1",
        "--ioengine=psync",
        "--size=256m",
        "--time_based",
        &runtime,
        "--numjobs=1",
        "--output-format=json",
        "--thread",
        "--fallocate=none",
    ];
    let output = guest.control.run(&argv, run + SHORT)?.stdout;
    let json: serde_json::Value = serde_json::from_str(&output[output.find('{').unwrap_or(0)..])
        .with_context(|| format!("fio's JSON cannot be read: {output:.200}"))?;
    guest.control.run(&["busybox", "rm", "-f", &format!("{folder}/fio")], SHORT)?;
    json["jobs"][0]["write"]["iops"].as_f64().context("fio's JSON has no jobs[0].write.iops")
}
