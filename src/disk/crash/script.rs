//! Test traces: a script of requests and replies, recorded as the disk records them.

use crate::disk::{DiskLog, Image, LOAD_BEGINS};
use crate::trace::{Command, Recorder, Request, RequestNo, TraceHeader};
use crate::units::{LabNs, RunId, SECTOR_BYTES};
use proptest::prelude::*;
use tempfile::TempDir;

/// Units of the test's disk.
pub const UNITS: u64 = 32;

/// One entry of the trace, in the order of truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A request over some units; for a write, they hold the number of this step, from 1.
    Ask { command: Command, fua: bool, unit: u64, units: u64 },
    /// The answer to the request of an earlier step, which has none yet.
    Reply { to: usize, error: u32 },
    /// `load-begins`.
    Begin,
}

pub fn write(unit: u64, units: u64) -> Step {
    Step::Ask { command: Command::Write, fua: false, unit, units }
}

pub fn fua(unit: u64, units: u64) -> Step {
    Step::Ask { command: Command::Write, fua: true, unit, units }
}

pub fn trim(unit: u64, units: u64) -> Step {
    Step::Ask { command: Command::Trim, fua: false, unit, units }
}

pub fn flush() -> Step {
    Step::Ask { command: Command::Flush, fua: false, unit: 0, units: 0 }
}

pub fn reply(to: usize) -> Step {
    Step::Reply { to, error: 0 }
}

/// Scripts in which requests overlap in time and place, some without answers, some failing.
pub fn any_script(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let raw = (0u8..16, any::<bool>(), 0..UNITS, 1u64..20, any::<prop::sample::Index>());
    prop::collection::vec(raw, 1..longest).prop_map(|raws| {
        let (mut steps, mut open, mut begun) = (Vec::new(), Vec::new(), false);
        for (kind, fua, unit, units, which) in raws {
            let ask = |command| {
                let units = if command == Command::Flush { 0 } else { units.min(UNITS - unit) };
                let (unit, fua) = if units == 0 { (0, false) } else { (unit, fua && kind == 0) };
                Step::Ask { command, fua, unit, units }
            };
            let step = match kind {
                0..=3 => ask(Command::Write),
                4 => ask(Command::Trim),
                5 => ask(Command::WriteZeroes),
                6 | 7 => ask(Command::Flush),
                8 if !begun => Step::Begin,
                _ if open.is_empty() => continue,
                _ => Step::Reply {
                    to: open.swap_remove(which.index(open.len())),
                    error: if units == 9 && fua { 5 } else { 0 },
                },
            };
            match step {
                Step::Ask { .. } => open.push(steps.len()),
                Step::Begin => begun = true,
                Step::Reply { .. } => {}
            }
            steps.push(step);
        }
        steps
    })
}

/// A script as a trace on disk; entry n is step n.
pub struct Recorded {
    _folder: TempDir,
    pub log: DiskLog,
    pub base: Image,
    unit_sectors: u64,
}

/// Records a script on a disk of units of `unit_sectors` sectors.
pub fn record(steps: &[Step], unit_sectors: u64) -> Recorded {
    record_payloads(steps, unit_sectors, |at, length| vec![at as u8 + 1; length])
}

/// The same with the payload that a write of step `at` has.
pub fn record_payloads(
    steps: &[Step],
    unit_sectors: u64,
    payload: impl Fn(usize, usize) -> Vec<u8>,
) -> Recorded {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("trace");
    let unit_bytes = unit_sectors * SECTOR_BYTES as u64;
    let disk_bytes = UNITS * unit_bytes;
    let run = RunId([3; 16]);
    let header = TraceHeader { run, disk_bytes, realtime_ns: 0, monotonic: LabNs(0) };
    let recorder = Recorder::create(&path, &header).expect("a trace");
    let mut numbers = vec![RequestNo(u64::MAX); steps.len()];
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Ask { command, fua, unit, units } => {
                let (offset, length) = (unit * unit_bytes, (units * unit_bytes) as u32);
                let request = Request { no: RequestNo(0), command, fua, offset, length };
                let payload = match command {
                    Command::Write => payload(at, length as usize),
                    _ => Vec::new(),
                };
                numbers[at] = recorder.request(request, &payload).expect("recorded").no;
            }
            Step::Reply { to, error } => recorder.reply(numbers[to], error).expect("recorded"),
            Step::Begin => recorder.mark(LOAD_BEGINS).expect("recorded"),
        }
    }
    recorder.sync().expect("written");
    let log = DiskLog::read(&path, |_, _| {}).expect("a trace");
    let base = Image::blank(disk_bytes).expect("a size");
    Recorded { _folder: folder, log, base, unit_sectors }
}

impl Recorded {
    /// The number that each unit of a state shows; every byte of it must agree.
    pub fn units(&self, state: &Image) -> Vec<u8> {
        let unit_bytes = self.unit_sectors as usize * SECTOR_BYTES;
        let mut bytes = vec![0xff; UNITS as usize * unit_bytes];
        state.read_at(0, &mut bytes).expect("reads");
        let mut units = Vec::new();
        for unit in bytes.chunks(unit_bytes) {
            assert!(unit.iter().all(|byte| *byte == unit[0]), "a unit is mixed");
            units.push(unit[0]);
        }
        units
    }
}
