//! Plans against every cut of a trace: each entry is tried, and its state built from the start.

use super::*;
use crate::disk::LOAD_BEGINS;
use crate::disk::crash::plain::{Plain, Sectors};
use crate::disk::crash::script::{
    Recorded, Step, any_script, flush, fua, record, record_payloads, reply, write,
};
use crate::trace::TraceReader;
use proptest::prelude::*;

/// A trace with the mark, and the time of each entry.
struct Load {
    recorded: Recorded,
    times: Vec<LabNs>,
}

impl Load {
    fn of(recorded: Recorded) -> Load {
        let mut reader = TraceReader::open(&recorded.log.path).expect("a trace");
        let mut times = Vec::new();
        while let Some((at, _)) = reader.next_entry().expect("reads") {
            times.push(at.time);
        }
        Load { recorded, times }
    }

    fn log(&self) -> &DiskLog {
        &self.recorded.log
    }

    fn plain(&self, cut: u32) -> Plain<'_> {
        let (log, base) = (&self.recorded.log, &self.recorded.base);
        Plain { log, base, cut: EntryNo(cut), fault: None }
    }

    fn state(&self, cut: u32, model: CrashModel, seed: u64) -> Sectors {
        self.plain(cut).state(model, seed).expect("behind load-begins")
    }

    fn begins(&self) -> u32 {
        self.log().mark(LOAD_BEGINS).expect("the mark").entry.0
    }

    /// All cuts of the load.
    fn cuts(&self) -> std::ops::RangeInclusive<u32> {
        self.begins() + 1..=self.log().cut_entry().0
    }

    fn plan(&self, model: CrashModel, which: Which, seed: u64) -> Vec<PlannedCut> {
        plan_cuts(self.log(), &[], model, which, seed).expect("a plan")
    }
}

/// A load of any requests, some of which began before it.
fn loads() -> impl Strategy<Value = Vec<Step>> {
    any_script(70).prop_map(|mut steps| {
        if !steps.contains(&Step::Begin) {
            steps.push(Step::Begin);
        }
        steps
    })
}

fn number(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("not zero")
}

const BY_TRACE: [CrashModel; 4] = [
    CrashModel::DropUnflushed,
    CrashModel::KeepAll,
    CrashModel::Unsafe { mib: 0 },
    CrashModel::Unsafe { mib: 1 },
];
const BY_SEED: [CrashModel; 2] = [CrashModel::Subset, CrashModel::Torn { unit_sectors: 1 }];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_cut_of_the_load_leaves_the_planned_state_that_stands_for_its_time(steps in loads()) {
        let load = Load::of(record(&steps, 1));
        for model in BY_TRACE {
            let planned = load.plan(model, Which::Every, 0);
            for cut in load.cuts() {
                let next = planned.partition_point(|planned| planned.cut.0 < cut);
                let tile = planned[next];
                let time = load.times[cut as usize - 1];
                prop_assert!(tile.from <= time && time <= tile.until, "{tile:?}, {cut}");
                let (here, told) = (load.state(cut, model, 0), load.state(tile.cut.0, model, 0));
                prop_assert_eq!(here, told, "{} cut at {}", model, cut);
            }
        }
    }

    #[test]
    fn every_state_stands_for_a_time_of_its_own_and_together_they_are_the_load(steps in loads()) {
        let load = Load::of(record(&steps, 1));
        for model in BY_TRACE {
            let planned = load.plan(model, Which::Every, 0);
            prop_assert_eq!(planned[0].from, load.times[load.begins() as usize]);
            prop_assert_eq!(planned[planned.len() - 1].until, load.log().last);
            prop_assert_eq!(planned[planned.len() - 1].cut, load.log().cut_entry());
            for pair in planned.windows(2) {
                prop_assert_eq!(pair[0].until, pair[1].from);
                prop_assert!(pair[0].cut < pair[1].cut);
            }
        }
    }

    #[test]
    fn a_plan_has_no_more_states_than_changes_of_what_is_there(steps in loads()) {
        let load = Load::of(record(&steps, 1));
        let requests = &load.log().requests;
        let durable = |cut: u32| -> Vec<usize> {
            let all = 0..requests.len();
            let changing = all.filter(|index| requests[*index].command().changes_data());
            changing.filter(|index| load.plain(cut).durable(*index, EntryNo(cut))).collect()
        };
        let arrived = |cut: u32| -> usize {
            let before = |r: &&crate::disk::DiskRequest| r.arrival.0 < cut;
            requests.iter().filter(before).filter(|r| r.command().changes_data()).count()
        };
        let cuts: Vec<u32> = load.cuts().collect();
        let changes = cuts.windows(2).filter(|pair| durable(pair[0]) != durable(pair[1])).count();
        prop_assert_eq!(load.plan(CrashModel::DropUnflushed, Which::Every, 0).len(), changes + 1);
        let changes = cuts.windows(2).filter(|pair| arrived(pair[0]) != arrived(pair[1])).count();
        prop_assert_eq!(load.plan(CrashModel::KeepAll, Which::Every, 0).len(), changes + 1);
    }

    #[test]
    fn a_sample_is_so_many_of_all_states(steps in loads(), states in 1u32..20, seed: u64) {
        let load = Load::of(record(&steps, 1));
        for model in BY_TRACE {
            let all = load.plan(model, Which::Every, seed);
            let sample = load.plan(model, Which::Sample { states: number(states) }, seed);
            prop_assert_eq!(sample.len(), all.len().min(states as usize));
            prop_assert!(sample.windows(2).all(|pair| pair[0].cut < pair[1].cut));
            for one in sample {
                let found = all.iter().find(|planned| planned.cut == one.cut);
                let told = found.map(|found| (found.from, found.until));
                prop_assert_eq!(told, Some((one.from, one.until)));
            }
        }
    }

    #[test]
    fn so_many_seeds_are_in_each_epoch_half_of_them_at_its_end(
        steps in loads(), per_epoch in 1u32..6, seed: u64,
    ) {
        let load = Load::of(record(&steps, 1));
        let ends: Vec<EntryNo> =
            load.plan(CrashModel::DropUnflushed, Which::Every, 0).iter().map(|p| p.cut).collect();
        for model in BY_SEED {
            let which = Which::Seeds { per_epoch: number(per_epoch) };
            let planned = load.plan(model, which, seed);
            prop_assert_eq!(&planned, &load.plan(model, which, seed));
            prop_assert_eq!(planned.len(), ends.len() * per_epoch as usize);
            let mut lo = EntryNo(load.begins());
            for hi in &ends {
                let here = || planned.iter().filter(|p| lo < p.cut && p.cut <= *hi);
                prop_assert_eq!(here().count(), per_epoch as usize);
                let at_end = here().filter(|p| p.why == Why::EpochEnd);
                prop_assert!(at_end.clone().all(|p| p.cut == *hi));
                prop_assert_eq!(at_end.count(), per_epoch.div_ceil(2) as usize);
                lo = *hi;
            }
        }
    }

    #[test]
    fn a_seeds_state_is_the_same_at_all_instants_that_it_stands_for(steps in loads(), seed: u64) {
        let load = Load::of(record(&steps, 1));
        for model in BY_SEED {
            for planned in load.plan(model, Which::Seeds { per_epoch: number(2) }, seed) {
                let told = load.state(planned.cut.0, model, planned.seed);
                for cut in load.cuts() {
                    let time = load.times[cut as usize - 1];
                    if planned.from < time && time < planned.until {
                        prop_assert_eq!(&load.state(cut, model, planned.seed), &told, "{}", cut);
                    }
                }
            }
        }
    }
}

#[test]
fn drop_unflushed_has_a_state_for_each_reply_that_made_something_durable() {
    let steps = [
        write(0, 1),
        reply(0),
        flush(),
        Step::Begin,
        reply(2), // 4: durable
        write(1, 1),
        flush(),
        reply(6),
        reply(5), // 7: nothing new
        fua(2, 1),
        reply(9), // 10: durable
        flush(),
        reply(11), // 12: the write of step 5
        write(3, 1),
    ];
    let load = Load::of(record(&steps, 1));
    let planned = load.plan(CrashModel::DropUnflushed, Which::Every, 0);
    let cuts: Vec<(u32, Why)> = planned.iter().map(|p| (p.cut.0, p.why)).collect();
    let durable = Why::Durable;
    assert_eq!(cuts, [(4, Why::LoadBegins), (10, durable), (12, durable), (14, durable)]);
    let from: Vec<LabNs> = planned.iter().map(|p| p.from).collect();
    assert_eq!(from, [3, 4, 10, 12].map(|entry| load.times[entry]));
}

#[test]
fn another_seed_draws_other_cuts() {
    let mut steps = vec![Step::Begin];
    steps.extend((0..200).map(|n| write(n % 32, 1)));
    let load = Load::of(record(&steps, 1));
    let which = Which::Seeds { per_epoch: number(6) };
    let (a, b) = (load.plan(CrashModel::Subset, which, 1), load.plan(CrashModel::Subset, which, 2));
    assert_ne!(a, b);
    let seeds: std::collections::BTreeSet<u64> = a.iter().map(|planned| planned.seed).collect();
    assert_eq!(seeds.len(), 6, "each cut has a seed of its own");
}

#[test]
fn a_list_that_makes_no_sense_is_refused_with_the_way_out() {
    let load = Load::of(record(&[write(0, 1), reply(0)], 1));
    let error = |load: &Load, model, which| {
        plan_cuts(load.log(), &[], model, which, 0).expect_err("refused").to_string()
    };
    let seeds = Which::Seeds { per_epoch: number(2) };
    assert!(error(&load, CrashModel::KeepAll, Which::Every).contains("load-begins"));
    let load = Load::of(record(&[Step::Begin, write(0, 1)], 1));
    assert!(error(&load, CrashModel::Subset, Which::Every).contains("number of seeds"));
    assert!(error(&load, CrashModel::KeepAll, seeds).contains("every state"));
    let at = Which::At { place: Place::InJournalCommit, states: number(3) };
    assert!(error(&load, CrashModel::KeepAll, at).contains("in-journal-commit"));
}

/// The cuts that a place may draw, over many seeds.
fn drawn(load: &Load, acks: &[u32], place: Place, model: CrashModel) -> Vec<u32> {
    let acks: Vec<EntryNo> = acks.iter().map(|ack| EntryNo(*ack)).collect();
    let which = Which::At { place, states: number(100) };
    let cuts = (0..400).flat_map(|seed| {
        let planned = plan_cuts(load.log(), &acks, model, which, seed).expect("a plan");
        assert!(planned.iter().all(|planned| planned.why == Why::At(place)));
        planned.into_iter().map(|planned| planned.cut.0)
    });
    cuts.collect::<std::collections::BTreeSet<u32>>().into_iter().collect()
}

#[test]
fn right_after_an_ack_is_the_next_entry_and_acks_outside_the_load_do_not_count() {
    let load = Load::of(record(&[write(0, 1), Step::Begin, reply(0), write(1, 1), reply(3)], 1));
    let cuts = drawn(&load, &[0, 2, 3, 5, 900], Place::AfterAck, CrashModel::DropUnflushed);
    assert_eq!(cuts, [3, 4]);
}

#[test]
fn in_a_txg_sync_is_from_its_first_uberblock_to_the_reply_that_makes_one_durable() {
    let steps = [
        Step::Begin,
        write(0, 4),
        reply(1), // 1: txg 10
        write(4, 4),
        write(8, 4),
        write(12, 4), // 3, 5: txg 11; 4: no uberblock
        reply(3),
        reply(4),
        reply(5),
        flush(),
        reply(9),
        write(16, 4), // 11: txg 10 again
    ];
    let payload = |at: usize, length: usize| {
        let mut payload = vec![0xa5; length];
        let txg = match at {
            1 | 11 => 10,
            3 | 5 => 11,
            _ => return payload,
        };
        for (field, value) in [0x00ba_b10c_u64, 5000, txg].into_iter().enumerate() {
            payload[8 * field..8 * field + 8].copy_from_slice(&value.to_le_bytes());
        }
        payload
    };
    let load = Load::of(record_payloads(&steps, 1, payload));
    let sync = drawn(&load, &[], Place::InTxgSync, CrashModel::KeepAll);
    assert_eq!(sync, (2..=10).collect::<Vec<u32>>());
    let labels = drawn(&load, &[], Place::BetweenLabels, CrashModel::KeepAll);
    assert_eq!(labels, [4, 5]);
}

#[test]
fn in_a_journal_commit_is_from_its_first_block_to_the_reply_that_makes_its_commit_durable() {
    let steps = [
        Step::Begin,
        write(0, 2),
        reply(1), // 1: descriptor of 7
        write(2, 2),
        reply(3),    // 3: commit of 7
        write(4, 2), // 5: descriptor of 8, which has no commit
        flush(),
        reply(6),
        write(8, 2),
    ];
    let payload = |at: usize, length: usize| {
        let mut payload = vec![0xa5; length];
        let (kind, sequence) = match at {
            1 => (1, 7),
            3 => (2, 7),
            5 => (1, 8),
            _ => return payload,
        };
        for (field, value) in [0xc03b_3998_u32, kind, sequence].into_iter().enumerate() {
            payload[4 * field..4 * field + 4].copy_from_slice(&value.to_be_bytes());
        }
        payload
    };
    let load = Load::of(record_payloads(&steps, 1, payload));
    let cuts = drawn(&load, &[], Place::InJournalCommit, CrashModel::KeepAll);
    assert_eq!(cuts, (2..=7).collect::<Vec<u32>>());
}

#[test]
fn every_place_survives_its_name_and_other_text_is_refused() {
    for name in ["after-ack", "in-txg-sync", "between-labels", "in-journal-commit"] {
        assert_eq!(name.parse::<Place>().expect(name).to_string(), name);
    }
    let error = "mid-txg".parse::<Place>().expect_err("no place");
    assert!(error.to_string().contains("in-txg-sync"), "{error}");
}
