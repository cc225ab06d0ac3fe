//! Cursors, honest and faulty, against the reference that builds each state from the start.

use super::super::plain::{Plain, Sectors, shown};
use super::super::script::{Recorded, Step, any_script, flush, fua, record, reply, trim, write};
use super::super::state_id::StateId;
use super::*;
use crate::units::SECTOR_BYTES;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MODELS: [CrashModel; 7] = [
    CrashModel::KeepAll,
    CrashModel::DropUnflushed,
    CrashModel::Subset,
    CrashModel::Torn { unit_sectors: 1 },
    CrashModel::Torn { unit_sectors: 8 },
    CrashModel::Unsafe { mib: 0 },
    CrashModel::Unsafe { mib: 1 },
];

/// Compares every state of a cursor with the reference, and its id with what it shows.
fn check(
    log: &DiskLog,
    base: &Image,
    cuts: &[u32],
    fault: Option<DiskFault>,
) -> Result<(), TestCaseError> {
    for model in MODELS {
        let mut cursor = StateCursor::with_fault(log, base, model, fault).expect("a cursor");
        let mut ids: BTreeMap<StateId, Sectors> = BTreeMap::new();
        for (seed, cut) in cuts.iter().enumerate() {
            let cut = EntryNo(*cut);
            let plain = Plain { log, base, cut, fault }.state(model, seed as u64);
            let Some(plain) = plain else {
                let refused = cursor.at(cut, seed as u64);
                let refused = matches!(refused, Err(CrashError::NoLoadBegins { .. }));
                prop_assert!(refused);
                continue;
            };
            let state = cursor.at(cut, seed as u64).expect("a state");
            prop_assert_eq!(&shown(&state.image), &plain, "{} cut at {:?}", model, cut);
            let altered = cursor.planted.altered_sector();
            prop_assert_eq!(state.id, StateId::of(state.image.extents(), altered));
            let same = ids.entry(state.id).or_insert_with(|| plain.clone());
            prop_assert_eq!(same, &plain, "one id of two states");
        }
        let distinct: std::collections::BTreeSet<&Sectors> = ids.values().collect();
        prop_assert_eq!(distinct.len(), ids.len(), "two ids of one state");
    }
    Ok(())
}

fn cuts(steps: &[Step], picks: &[prop::sample::Index]) -> Vec<u32> {
    let mut cuts: Vec<u32> = picks.iter().map(|at| at.index(steps.len() + 1) as u32).collect();
    cuts.sort_unstable();
    // One that goes back, and the same cut twice.
    cuts.extend([cuts[0], cuts[0], steps.len() as u32]);
    cuts
}

fn picks() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 1..12)
}

/// Any fault of any request of the log that can be planted in it.
fn fault_of(log: &DiskLog, kind: usize, request: u32, detail: u32, by: i64) -> Option<DiskFault> {
    let request = request.checked_rem(log.requests.len() as u32)?;
    let second = request + 1 + detail % 8;
    let fault = match kind {
        0 => DiskFault::FlushAnsweredEarly,
        1 => DiskFault::FlushIgnored,
        2 => DiskFault::FuaDropped,
        3 => DiskFault::WriteLost { request },
        4 => DiskFault::StaleSector { request, sector: detail },
        5 => DiskFault::Misdirected { request, by_sectors: by },
        6 => DiskFault::DuplicatedTo { request, by_sectors: by },
        7 => DiskFault::BitFlipped { request, bit: detail * 977 },
        8 => DiskFault::TornAt512 { request, sectors_kept: detail },
        9 => DiskFault::TornAt4096 { request, blocks_kept: detail % 3 },
        10 => DiskFault::SwappedAcrossFlush { first: request, second },
        11 => DiskFault::Zeroed { request },
        _ => DiskFault::TrimTooLong { request, extra_sectors: detail },
    };
    Planted::new(log, Some(fault), 0).is_ok().then_some(fault)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_cursors_states_are_those_that_are_built_from_the_start(
        steps in any_script(90), picks in picks(),
    ) {
        let recorded = record(&steps, 1);
        check(&recorded.log, &recorded.base, &cuts(&steps, &picks), None)?;
    }

    #[test]
    fn a_faulty_disks_states_differ_exactly_as_the_fault_says(
        steps in any_script(90), picks in picks(),
        kind in 0usize..13, request: u32, detail in 0u32..12, by in -20i64..20,
    ) {
        let recorded = record(&steps, 1);
        let Some(fault) = fault_of(&recorded.log, kind, request, detail, by) else {
            return Err(TestCaseError::reject("it does not fit"));
        };
        check(&recorded.log, &recorded.base, &cuts(&steps, &picks), Some(fault))?;
    }

    #[test]
    fn a_trace_that_continues_a_state_is_laid_over_it(
        before in any_script(40), steps in any_script(60), picks in picks(),
    ) {
        let below = record(&before, 1);
        let cut = below.log.cut_entry();
        let base = crash_state(&below.log, &below.base, cut, CrashModel::Subset, 7).expect("a state");
        let recorded = record(&steps, 1);
        check(&recorded.log, &base, &cuts(&steps, &picks), None)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn an_unsafe_disks_cache_of_some_requests_slides_over_the_trace(
        steps in any_script(60), picks in picks(),
    ) {
        // A unit is 128 KiB, so that one MiB holds eight.
        let recorded = record(&steps, 256);
        check(&recorded.log, &recorded.base, &cuts(&steps, &picks), None)?;
    }
}

/// Two disks' bytes after the same cut, and the sectors in which they differ.
fn differing(recorded: &Recorded, fault: DiskFault, model: CrashModel) -> Vec<usize> {
    let cut = recorded.log.cut_entry();
    let bytes = |fault| {
        let state = crash_state_with(&recorded.log, &recorded.base, cut, model, 0, fault);
        let state = state.expect("a state");
        let mut bytes = vec![0; state.disk_bytes() as usize];
        state.read_at(0, &mut bytes).expect("reads");
        bytes
    };
    let (honest, faulty) = (bytes(None), bytes(Some(fault)));
    let pairs = honest.chunks(SECTOR_BYTES).zip(faulty.chunks(SECTOR_BYTES));
    pairs.enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect()
}

/// The same under the default model, of a trace of these steps.
fn altered(steps: &[Step], fault: &str) -> Vec<usize> {
    let fault = fault.parse().expect(fault);
    differing(&record(steps, 1), fault, CrashModel::DropUnflushed)
}

#[test]
fn each_fault_of_a_write_alters_the_sectors_of_its_definition() {
    let steps = [write(0, 32), reply(0), write(4, 16), reply(2), flush(), reply(4)];
    let range = |from, to| (from..to).collect::<Vec<usize>>();
    assert_eq!(altered(&steps, "write-lost:1"), range(4, 20));
    assert_eq!(altered(&steps, "stale-sector:1:15"), [19]);
    assert_eq!(altered(&steps, "misdirected:1:-2"), [2, 3, 18, 19]);
    assert_eq!(altered(&steps, "torn-at-512:1:15"), [19]);
    assert_eq!(altered(&steps, "torn-at-4096:1:1"), range(12, 20));
    assert_eq!(altered(&steps, "zeroed:1"), range(4, 20));
    assert_eq!(altered(&steps, "bit-flipped:1:4099"), [5]);
    assert_eq!(altered(&steps, "bit-flipped:0:20000"), [] as [usize; 0], "written over");
    let small = [write(0, 32), reply(0), write(4, 2), reply(2), flush(), reply(4)];
    assert_eq!(altered(&small, "duplicated-to:1:-4"), [0, 1]);
}

#[test]
fn a_flush_that_is_answered_early_holds_once_the_next_one_is_answered() {
    let one = [write(0, 1), reply(0), flush(), reply(2)];
    assert_eq!(altered(&one, "flush-answered-early"), [0]);
    let two = [&one[..], &[write(1, 1), reply(4), flush(), reply(6)]].concat();
    assert_eq!(altered(&two, "flush-answered-early"), [1]);
    assert_eq!(altered(&two[..7], "flush-answered-early"), [0], "not answered yet");
}

#[test]
fn flushes_and_fua_are_ignored_from_the_loads_begin_on_and_only_by_their_own_fault() {
    let steps = [
        write(0, 1),
        reply(0),
        flush(),
        reply(2),
        Step::Begin,
        fua(1, 1),
        reply(5),
        write(2, 1),
        reply(7),
        flush(),
        reply(9),
        fua(3, 1),
        reply(11),
    ];
    assert_eq!(altered(&steps, "flush-ignored"), [1, 2, 3]);
    assert_eq!(altered(&steps, "fua-dropped"), [3], "the flush covers the other");
    assert_eq!(altered(&steps, "flush-answered-early"), [2]);
    let recorded = record(&steps, 1);
    for fault in [DiskFault::FlushIgnored, DiskFault::FuaDropped, DiskFault::FlushAnsweredEarly] {
        assert_eq!(differing(&recorded, fault, CrashModel::KeepAll), [] as [usize; 0], "{fault}");
    }
}

#[test]
fn of_two_writes_swapped_across_a_flush_the_earlier_is_missing_and_the_later_is_there() {
    let steps =
        [write(0, 1), reply(0), flush(), reply(2), write(1, 1), reply(4), flush(), reply(6)];
    assert_eq!(altered(&steps[..6], "swapped-across-flush:0:2"), [0, 1]);
    assert_eq!(altered(&steps, "swapped-across-flush:0:2"), [] as [usize; 0], "both are there");
}

#[test]
fn a_trim_that_is_too_long_clears_what_lies_behind_it() {
    let steps = [write(0, 8), reply(0), trim(2, 2), reply(2), flush(), reply(4)];
    assert_eq!(altered(&steps, "trim-too-long:1:3"), [4, 5, 6]);
}

#[test]
fn a_fault_that_does_not_fit_is_refused_with_the_reason() {
    let recorded = record(&[write(0, 8), trim(0, 1), flush()], 1);
    for (fault, why) in [
        ("write-lost:3", "no such request"),
        ("write-lost:2", "not a write"),
        ("trim-too-long:0:1", "clears nothing"),
        ("trim-too-long:1:32", "leave the disk"),
        ("stale-sector:0:8", "do not fit"),
        ("torn-at-512:0:8", "do not fit"),
        ("torn-at-4096:0:1", "do not fit"),
        ("bit-flipped:0:32768", "do not fit"),
        ("misdirected:0:-1", "leave the disk"),
        ("misdirected:0:25", "leave the disk"),
        ("misdirected:0:9223372036854775807", "leave the disk"),
        ("duplicated-to:0:7", "do not fit"),
        ("swapped-across-flush:0:1", "second request is not a write"),
    ] {
        let fault = fault.parse().expect(fault);
        let model = CrashModel::DropUnflushed;
        let refused = StateCursor::with_fault(&recorded.log, &recorded.base, model, Some(fault));
        let message = refused.expect_err("does not fit").to_string();
        assert!(message.contains(why) && message.contains(&fault.to_string()), "{message}");
    }
}
