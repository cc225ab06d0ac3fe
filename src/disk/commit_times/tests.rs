//! Commit times against the crash states themselves: the trace is cut at every entry, and a group
//! must be in the state exactly from the instant on that was told for it.

use super::*;
use crate::disk::crash::crash_state;
use crate::disk::crash::script::{
    Recorded, Step, UNITS, any_script, flush, fua, record_payloads, reply, write,
};
use crate::disk::uberblock;
use crate::trace::{EntryNo, TraceReader};
use crate::units::SECTOR_BYTES;
use proptest::prelude::*;

const SLOT: usize = 1024;

/// An uberblock of this group, and noise behind it.
fn payload(txg: u64, length: usize) -> Vec<u8> {
    let mut payload = vec![0xa5; length];
    for (at, field) in [0x00ba_b10c_u64, 5000, txg].into_iter().enumerate() {
        payload[8 * at..8 * at + 8].copy_from_slice(&field.to_le_bytes());
    }
    payload
}

/// A trace whose write at step `at` carries the uberblock of `txg_of(at)`, and its entries' times.
struct Traced {
    recorded: Recorded,
    unit_bytes: u64,
    times: Vec<LabNs>,
}

impl Traced {
    fn new(steps: &[Step], unit_sectors: u64, txg_of: impl Fn(usize) -> u64) -> Traced {
        let of_step = |at, length| payload(txg_of(at), length);
        let recorded = record_payloads(steps, unit_sectors, of_step);
        let mut reader = TraceReader::open(&recorded.log.path).expect("a trace");
        let mut times = Vec::new();
        while let Some((at, _)) = reader.next_entry().expect("reads") {
            times.push(at.time);
        }
        Traced { recorded, unit_bytes: unit_sectors * SECTOR_BYTES as u64, times }
    }

    fn commits(&self, model: CrashModel) -> Vec<(u64, LabNs)> {
        let commits = commit_times(&self.recorded.log, model);
        commits.iter().map(|commit| (commit.txg.0, commit.durable)).collect()
    }

    /// The newest group by what was told, if the power goes at the entry `cut`.
    fn told(&self, commits: &[(u64, LabNs)], cut: usize) -> Option<u64> {
        let before = *self.times[..cut].last()?;
        commits.iter().filter(|(_, durable)| *durable <= before).map(|(txg, _)| *txg).max()
    }

    /// The groups whose uberblocks the crash state holds.
    fn shown(&self, cut: usize, model: CrashModel, seed: u64) -> Vec<u64> {
        let (log, base) = (&self.recorded.log, &self.recorded.base);
        let state = crash_state(log, base, EntryNo(cut as u32), model, seed).expect("a state");
        let mut slot = [0; SLOT];
        let mut txg = |unit: u64| {
            state.read_at(unit * self.unit_bytes, &mut slot).expect("reads");
            uberblock::highest_txg(0, &slot).map(|txg| txg.0)
        };
        (0..UNITS).filter_map(&mut txg).collect()
    }

    /// The first entry at which the unsafe model is defined.
    fn begins(&self) -> Option<usize> {
        self.recorded.log.mark(LOAD_BEGINS).map(|mark| mark.entry.0 as usize)
    }
}

/// The script with each write in a unit of its own, so that no uberblock is written over; what
/// trims and zeroes goes to unit 0. `None` if there are more writes than units.
fn apart(steps: Vec<Step>) -> Option<Vec<Step>> {
    let mut next = 0;
    let placed: Vec<Step> = steps
        .into_iter()
        .map(|step| match step {
            Step::Ask { command: Command::Write, fua, .. } => {
                next += 1;
                Step::Ask { command: Command::Write, fua, unit: next, units: 1 }
            }
            Step::Ask { command, fua, units, .. } if units > 0 => {
                Step::Ask { command, fua, unit: 0, units: 1 }
            }
            other => other,
        })
        .collect();
    (next < UNITS).then_some(placed)
}

fn scripts() -> impl Strategy<Value = Vec<Step>> {
    any_script(60).prop_filter_map("more writes than units", apart)
}

/// Groups mostly in order, several writes of each, some late.
fn txg_of(at: usize) -> u64 {
    10 + at as u64 / 3 - if at % 5 == 4 { 2.min(at as u64 / 3) } else { 0 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn a_crash_state_holds_a_group_exactly_from_the_time_that_is_told(steps in scripts()) {
        let traced = Traced::new(&steps, 8, txg_of);
        for model in [CrashModel::KeepAll, CrashModel::DropUnflushed] {
            let commits = traced.commits(model);
            for cut in 0..=steps.len() {
                let shown = traced.shown(cut, model, 0).into_iter().max();
                prop_assert_eq!(shown, traced.told(&commits, cut), "{} cut at {}", model, cut);
            }
        }
    }

    #[test]
    fn a_state_that_chance_chose_from_holds_at_least_the_groups_that_are_told(
        steps in scripts(), seed: u64,
    ) {
        let traced = Traced::new(&steps, 8, txg_of);
        for model in [CrashModel::Subset, CrashModel::Torn { unit_sectors: 1 }] {
            let commits = traced.commits(model);
            prop_assert_eq!(&commits, &traced.commits(CrashModel::DropUnflushed));
            for cut in 0..=steps.len() {
                let shown = traced.shown(cut, model, seed).into_iter().max();
                prop_assert!(shown >= traced.told(&commits, cut), "{} cut at {}", model, cut);
            }
        }
    }

    #[test]
    fn an_unsafe_disk_holds_a_group_exactly_from_the_time_that_is_told(
        steps in scripts(), mib in 0u32..3,
    ) {
        // A unit is 128 KiB, so that one MiB holds eight.
        let traced = Traced::new(&steps, 256, txg_of);
        let model = CrashModel::Unsafe { mib };
        let commits = traced.commits(model);
        let Some(begins) = traced.begins() else { return Ok(()) };
        for cut in begins + 1..=steps.len() {
            let shown = traced.shown(cut, model, 0).into_iter().max();
            prop_assert_eq!(shown, traced.told(&commits, cut), "{} MiB, cut at {}", mib, cut);
        }
    }

    #[test]
    fn commits_ascend_in_group_and_in_time(steps in scripts()) {
        let traced = Traced::new(&steps, 8, txg_of);
        for model in [CrashModel::KeepAll, CrashModel::DropUnflushed, CrashModel::Unsafe { mib: 0 }] {
            let commits = traced.commits(model);
            let ascending = |pair: &[(u64, LabNs)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
            prop_assert!(commits.windows(2).all(ascending), "{:?}", commits);
        }
    }
}

/// The commits of a script under a model, each with the step at which it is told.
fn by_step(steps: &[Step], model: CrashModel) -> Vec<(u64, usize)> {
    let traced = Traced::new(steps, 256, |at| 10 + at as u64);
    let step = |(txg, durable)| {
        let at = traced.times.iter().position(|time| *time == durable);
        (txg, at.expect("the time of an entry"))
    };
    traced.commits(model).into_iter().map(step).collect()
}

#[test]
fn a_group_is_durable_with_the_reply_of_the_first_flush_that_arrived_after_its_own() {
    let early_flush = [write(1, 1), flush(), reply(0), reply(1), flush(), reply(4)];
    assert_eq!(by_step(&early_flush, CrashModel::DropUnflushed), [(10, 5)]);
    assert_eq!(by_step(&early_flush[..5], CrashModel::DropUnflushed), []);
    assert_eq!(by_step(&early_flush, CrashModel::KeepAll), [(10, 0)]);
}

#[test]
fn a_failed_flush_or_write_makes_nothing_durable_and_fua_its_own_write() {
    let failed = Step::Reply { to: 2, error: 5 };
    assert_eq!(by_step(&[write(1, 1), reply(0), flush(), failed], CrashModel::DropUnflushed), []);
    let failed = Step::Reply { to: 0, error: 5 };
    let steps = [write(1, 1), failed, flush(), reply(2)];
    assert_eq!(by_step(&steps, CrashModel::DropUnflushed), []);
    let steps = [write(1, 1), reply(0), fua(2, 1), reply(2)];
    assert_eq!(by_step(&steps, CrashModel::DropUnflushed), [(12, 3)]);
}

#[test]
fn an_unsafe_disk_holds_a_group_when_its_cache_is_full_of_later_writes() {
    let model = CrashModel::Unsafe { mib: 1 };
    let mut steps = vec![Step::Begin, write(1, 1), reply(1), flush(), reply(3)];
    assert_eq!(by_step(&steps, model), [], "the flush is answered and ignored");
    steps.extend((2..9).map(|unit| write(unit, 1)));
    assert_eq!(by_step(&steps, model), [], "eight units fit");
    steps.push(write(9, 1));
    assert_eq!(by_step(&steps, model), [(11, 12)]);
    let honest = [write(1, 1), reply(0), flush(), reply(2), Step::Begin];
    assert_eq!(by_step(&honest, model), [(10, 3)], "before the load the disk was honest");
}

#[test]
fn what_was_durable_before_the_load_takes_no_room_in_an_unsafe_disks_cache() {
    // Step 0 is not covered; the nine units of step 1 are forced out, and hold no cache.
    let steps = [write(1, 1), fua(2, 9), reply(1), Step::Begin, write(12, 1)];
    let traced = Traced::new(&steps, 256, |at| 10 + at as u64);
    let model = CrashModel::Unsafe { mib: 1 };
    assert_eq!(traced.shown(steps.len(), model, 0), [11], "control: the state itself");
    assert_eq!(by_step(&steps, model), [(11, 2)]);
}
