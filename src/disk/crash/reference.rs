//! The crash models against a reference that replays events and enumerates outcomes, and against
//! examples written by hand.

use super::script::{Recorded, Step, UNITS, any_script, flush, fua, record, reply, trim, write};
use super::{CrashError, CrashModel, crash_state};
use crate::trace::{Command, EntryNo};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

/// One change of data: its step, what it shows, where, and whether it is promised to stay.
#[derive(Debug, Clone)]
struct Change {
    step: usize,
    shows: u8,
    units: std::ops::Range<usize>,
    replied: bool,
    durable: bool,
}

/// Replays the steps before the cut: each flush remembers whom it covers when it arrives, and makes
/// them durable when it is answered. Flushes and FUA count only before `honest_until`.
fn replay(steps: &[Step], cut: usize, honest_until: usize) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let mut covered: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, step) in steps[..cut].iter().enumerate() {
        match *step {
            Step::Ask { command: Command::Flush, .. } => {
                let replied = changes.iter().filter(|change| change.replied);
                covered.push((at, replied.map(|change| change.step).collect()));
            }
            Step::Ask { command, unit, units, .. } => changes.push(Change {
                step: at,
                shows: if command == Command::Write { at as u8 + 1 } else { 0 },
                units: unit as usize..(unit + units) as usize,
                replied: false,
                durable: false,
            }),
            Step::Reply { to, error: 0 } => {
                let whom = covered.iter().find(|(flush, _)| *flush == to);
                let honest = at < honest_until;
                for change in &mut changes {
                    change.replied |= change.step == to;
                    let forced = matches!(steps[to], Step::Ask { fua: true, .. });
                    let own = change.step == to && forced;
                    let flushed = whom.is_some_and(|(_, steps)| steps.contains(&change.step));
                    change.durable |= honest && (own || flushed);
                }
            }
            Step::Reply { .. } | Step::Begin => {}
        }
    }
    changes
}

/// The disk after these changes, in order.
fn lay_down<'a>(changes: impl Iterator<Item = &'a Change>) -> Vec<u8> {
    let mut disk = vec![0; UNITS as usize];
    changes.for_each(|change| disk[change.units.clone()].fill(change.shows));
    disk
}

/// Every disk that some choice of un-flushed changes leaves, seen only through `window`.
fn outcomes(changes: &[Change], window: std::ops::Range<usize>) -> BTreeSet<Vec<u8>> {
    let touches =
        |change: &Change| change.units.start < window.end && window.start < change.units.end;
    let here: Vec<&Change> = changes.iter().filter(|change| touches(change)).collect();
    let open = here.iter().filter(|change| !change.durable).count();
    (0u32..1 << open)
        .map(|choice| {
            let mut bit = 0;
            let chosen = here.iter().copied().filter(|change| {
                let drawn = choice >> bit & 1 == 1;
                bit += u32::from(!change.durable);
                change.durable || drawn
            });
            lay_down(chosen)[window.clone()].to_vec()
        })
        .collect()
}

fn shown(recorded: &Recorded, cut: usize, model: CrashModel, seed: u64) -> Vec<u8> {
    let cut = EntryNo(cut as u32);
    let state = crash_state(&recorded.log, &recorded.base, cut, model, seed);
    recorded.units(&state.expect("a state"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn keep_all_and_drop_unflushed_are_what_the_replay_says(
        steps in any_script(80), cut in any::<prop::sample::Index>(),
    ) {
        let recorded = record(&steps, 1);
        let cut = cut.index(steps.len() + 1);
        let changes = replay(&steps, cut, cut);
        prop_assert_eq!(shown(&recorded, cut, CrashModel::KeepAll, 0), lay_down(changes.iter()));
        let durable = lay_down(changes.iter().filter(|change| change.durable));
        prop_assert_eq!(shown(&recorded, cut, CrashModel::DropUnflushed, 0), durable);
    }

    #[test]
    fn subset_and_torn_show_one_of_the_outcomes_that_the_replay_allows(
        steps in any_script(36), cut in any::<prop::sample::Index>(), seed: u64,
    ) {
        let recorded = record(&steps, 1);
        let cut = cut.index(steps.len() + 1);
        let changes = replay(&steps, cut, cut);
        let whole = UNITS as usize;
        for (model, window) in [
            (CrashModel::Subset, whole),
            (CrashModel::Torn { unit_sectors: 8 }, 8),
            (CrashModel::Torn { unit_sectors: 1 }, 1),
        ] {
            let disk = shown(&recorded, cut, model, seed);
            prop_assert_eq!(&disk, &shown(&recorded, cut, model, seed), "not repeatable");
            for from in (0..whole).step_by(window) {
                let window = from..from + window;
                prop_assert!(
                    outcomes(&changes, window.clone()).contains(&disk[window.clone()]),
                    "{model} shows {disk:?} in {window:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn unsafe_loses_what_a_queue_of_its_size_still_held(
        steps in any_script(60), cut in any::<prop::sample::Index>(), mib in 0u32..3,
    ) {
        // A unit is 128 KiB, so that one MiB holds eight.
        let recorded = record(&steps, 256);
        let cut = cut.index(steps.len() + 1);
        let model = CrashModel::Unsafe { mib };
        let Some(begin) = steps[..cut].iter().position(|step| *step == Step::Begin) else {
            let state = crash_state(&recorded.log, &recorded.base, EntryNo(cut as u32), model, 0);
            let refused = matches!(state, Err(CrashError::NoLoadBegins { .. }));
            prop_assert!(refused);
            return Ok(());
        };
        let changes = replay(&steps, cut, begin);
        let mut queue: VecDeque<&Change> = VecDeque::new();
        let mut gone = BTreeSet::new();
        let size = |change: &Change| if change.shows == 0 { 0 } else { change.units.len() };
        for change in changes.iter().filter(|change| !change.durable) {
            queue.push_back(change);
            while queue.iter().map(|change| size(change)).sum::<usize>() > 8 * mib as usize {
                queue.pop_front();
            }
        }
        gone.extend(queue.iter().map(|change| change.step));
        let kept = lay_down(changes.iter().filter(|change| !gone.contains(&change.step)));
        prop_assert_eq!(shown(&recorded, cut, model, 0), kept);
    }
}

/// What each of the first units shows at the end of a script.
fn after(steps: &[Step], model: CrashModel, seed: u64, units: usize) -> Vec<u8> {
    let recorded = record(steps, 1);
    shown(&recorded, steps.len(), model, seed)[..units].to_vec()
}

fn dropped(steps: &[Step], units: usize) -> Vec<u8> {
    after(steps, CrashModel::DropUnflushed, 0, units)
}

#[test]
fn a_flush_covers_what_was_answered_before_it_arrived_and_only_if_it_is_answered() {
    let covered = [write(0, 1), reply(0), flush(), reply(2)];
    assert_eq!(dropped(&covered, 1), [1]);
    assert_eq!(dropped(&covered[..3], 1), [0], "the flush was not answered");
    let late = [write(0, 1), flush(), reply(0), reply(1)];
    assert_eq!(dropped(&late, 1), [0], "answered after the flush arrived");
    let failed = [write(0, 1), reply(0), flush(), Step::Reply { to: 2, error: 5 }];
    assert_eq!(dropped(&failed, 1), [0], "the flush failed");
}

#[test]
fn fua_makes_its_own_write_durable_when_it_is_answered_and_nothing_else() {
    let steps = [write(0, 1), reply(0), fua(1, 1), reply(2)];
    assert_eq!(dropped(&steps, 2), [0, 3]);
    assert_eq!(dropped(&steps[..3], 2), [0, 0]);
}

#[test]
fn a_durable_write_stays_over_an_earlier_one_that_is_not() {
    let steps = [write(0, 2), fua(1, 1), reply(1), reply(0)];
    assert_eq!(dropped(&steps, 2), [0, 2]);
    for seed in 0..50 {
        let disk = after(&steps, CrashModel::Subset, seed, 2);
        assert!(disk == [0, 2] || disk == [1, 2], "{disk:?}");
    }
}

#[test]
fn a_trim_is_volatile_like_a_write() {
    let steps = [write(0, 2), reply(0), flush(), reply(2), trim(0, 1), reply(4)];
    assert_eq!(dropped(&steps, 2), [1, 1]);
    assert_eq!(after(&steps, CrashModel::KeepAll, 0, 2), [0, 1]);
    let flushed = [&steps[..], &[flush(), reply(6)]].concat();
    assert_eq!(dropped(&flushed, 2), [0, 1]);
}

#[test]
fn the_seeds_of_subset_and_torn_reach_every_outcome_and_no_other() {
    // Two overlapping writes that no flush covers.
    let steps = [write(0, 2), reply(0), write(1, 2), reply(2)];
    let recorded = record(&steps, 1);
    let seen = |model| -> BTreeSet<Vec<u8>> {
        (0..400).map(|seed| shown(&recorded, 4, model, seed)[..3].to_vec()).collect()
    };
    let whole = [vec![0, 0, 0], vec![1, 1, 0], vec![0, 3, 3], vec![1, 3, 3]];
    assert_eq!(seen(CrashModel::Subset), BTreeSet::from(whole));
    let torn = seen(CrashModel::Torn { unit_sectors: 1 });
    assert_eq!(torn.len(), 2 * 3 * 2, "each sector by itself");
}

#[test]
fn torn_4k_tears_at_multiples_of_4_kib_of_the_disk() {
    let recorded = record(&[write(4, 8)], 1);
    let model = CrashModel::Torn { unit_sectors: 8 };
    let seen: BTreeSet<Vec<u8>> =
        (0..200).map(|seed| shown(&recorded, 1, model, seed)[..16].to_vec()).collect();
    let half = |kept: bool| vec![u8::from(kept); 4];
    let disk = |a, b| [half(false), half(a), half(b), half(false)].concat();
    let all = [(false, false), (false, true), (true, false), (true, true)];
    assert_eq!(seen, BTreeSet::from(all.map(|(a, b)| disk(a, b))));
}

#[test]
fn one_seed_is_one_state_for_ever() {
    // If this fails, states of earlier findings cannot be made again.
    let steps: Vec<Step> = (0..UNITS).map(|unit| write(unit, 1)).collect();
    let disk = after(&steps, CrashModel::Subset, 7, UNITS as usize);
    let kept: String = disk.iter().map(|shows| if *shows == 0 { '.' } else { 'x' }).collect();
    assert_eq!(kept, "xx.xxxx.xxx.xx.xxxxxx..xxxxxxxx.");
}
