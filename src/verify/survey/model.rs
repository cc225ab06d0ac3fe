//! The survey against a model that applies operations one after another, and against random damage.

use super::sample::*;
use super::*;
use crate::record::layout::Digest;
use crate::record::ring::body;
use crate::units::{RunId, SECTOR_BYTES};
use crate::verify::intact;
use crate::verify::verdict::Verdict;
use Outcome::*;
use proptest::prelude::*;

/// The disk by the definition: operations applied in order, the next one in part.
#[derive(Debug, Clone, Copy)]
struct Crash {
    stream: usize,
    written: u64,
    acked: u64,
    kept: u64,
    /// Sectors of operation `kept + 1` that are there, one bit each; 0 for none of it.
    sectors: u8,
}

fn crashes() -> impl Strategy<Value = Crash> {
    let torn = prop_oneof![Just(0u8), 1u8..=254];
    (0usize..2, 1u64..=24, 0u64..=24, 0u64..=24, torn).prop_map(|(stream, written, a, k, torn)| {
        let (acked, kept) = (a.min(written), k.min(written));
        let sectors = if kept < written { torn } else { 0 };
        Crash { stream, written, acked, kept, sectors }
    })
}

impl Crash {
    fn run(&self) -> Run {
        Run::new(self.stream, self.written, self.acked)
    }

    fn blocks(&self, run: &Run) -> Blocks {
        let mut blocks = run.file(self.kept);
        if self.sectors != 0 {
            let next = self.kept + 1;
            let before = blocks.get(run.slot(next)).cloned().unwrap_or(vec![0; BLOCK]);
            let there = |n: usize| self.sectors >> n & 1 == 1;
            run.put(&mut blocks, next, &mixed(&run.record(next), &before, there));
        }
        blocks
    }

    fn expected_counts(&self, fill: u64) -> BTreeMap<Outcome, u64> {
        let mut counts = BTreeMap::new();
        for seq in 1..=self.written {
            let class = match (seq <= self.kept, seq <= self.acked) {
                (true, true) => Survived,
                (true, false) => UnackedSurvived,
                (false, false) => UnackedGone,
                (false, true) if seq <= fill => LostThoughDurable,
                (false, true) => LostInWindow,
            };
            *counts.entry(class).or_insert(0) += 1;
        }
        counts
    }

    /// How the place of the operation that is there in part should be called.
    fn torn_class(&self) -> Outcome {
        let prefix = self.sectors.trailing_ones() + self.sectors.leading_zeros() == 8;
        match (self.kept + 1 > self.acked, prefix) {
            (true, _) => InFlightInPart,
            (false, true) => TornAtTransaction,
            (false, false) => TornInSector,
        }
    }
}

/// Damage to one place.
#[derive(Debug, Clone)]
enum Damage {
    Flip { byte: usize, bit: u8 },
    Zeros,
    Older,
    OtherPlace,
    OtherRun,
    Noise,
    SwappedSectors { one: usize, two: usize },
    Shortened,
}

fn damages() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0..BLOCK, 0u8..8).prop_map(|(byte, bit)| Damage::Flip { byte, bit }),
        Just(Damage::Zeros),
        Just(Damage::Older),
        Just(Damage::OtherPlace),
        Just(Damage::OtherRun),
        Just(Damage::Noise),
        (0usize..8, 1usize..8)
            .prop_map(|(one, by)| Damage::SwappedSectors { one, two: (one + by) % 8 }),
        Just(Damage::Shortened),
    ]
}

impl Damage {
    /// Does it to the place of operation `seq`, the newest of its place.
    fn to(&self, run: &Run, blocks: &mut Blocks, seq: u64) {
        let slot = run.slot(seq);
        let older = (1..seq).rev().find(|n| run.slot(*n) == slot);
        let other_run = Plan { run: RunId([9; 16]), ..run.plan.clone() };
        let block = &mut blocks[slot];
        match *self {
            Damage::Flip { byte, bit } => *block = flipped(block, byte, bit),
            Damage::Zeros => block.fill(0),
            Damage::Older => *block = older.map_or(vec![0; BLOCK], |seq| run.record(seq)),
            Damage::OtherPlace => {
                let other = (1..=run.records.len() as u64).find(|n| run.slot(*n) != slot);
                *block = other.map_or(vec![0; BLOCK], |seq| run.record(seq));
            }
            Damage::OtherRun => {
                *block = sealed(&other_run, &run.stream, Seq(seq), Digest::default()).0;
            }
            Damage::Noise => *block = [body(99, 3).to_vec(), body(99, 4).to_vec()].concat(),
            Damage::SwappedSectors { one, two } => {
                let order = |n| {
                    if n == one {
                        two
                    } else if n == two {
                        one
                    } else {
                        n
                    }
                };
                let sector = |n: usize| &block[n * SECTOR_BYTES..(n + 1) * SECTOR_BYTES];
                *block = (0..8).flat_map(|n| sector(order(n)).to_vec()).collect();
            }
            Damage::Shortened => blocks.truncate(slot),
        }
        if let Some(block) = blocks.get_mut(slot) {
            block.truncate(BLOCK);
        }
    }
}

/// Zeros at the end of a file and its end are one.
fn trimmed(mut blocks: Blocks) -> Blocks {
    while blocks.last().is_some_and(|block| block.iter().all(|byte| *byte == 0)) {
        blocks.pop();
    }
    blocks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_crash_is_surveyed_as_the_model_that_applies_operations_in_order_says(
        crash in crashes(),
    ) {
        let run = crash.run();
        // An acked operation torn over the newest that was there leaves neither: it has a test of its own.
        let over_newest = crash.kept > 0 && run.slot(crash.kept + 1) == run.slot(crash.kept);
        prop_assume!(crash.sectors == 0 || crash.kept >= crash.acked || !over_newest);
        let survey = run.survey(&crash.blocks(&run));
        let lost = crash.acked.saturating_sub(crash.kept);
        prop_assert_eq!(survey.newest.map_or(0, |newest| newest.seq.0), crash.kept);
        prop_assert_eq!(survey.load_survived(), crash.kept > run.stream.fill());
        let mut counts = crash.expected_counts(run.stream.fill());
        let torn = (crash.sectors != 0).then(|| crash.torn_class());
        let placed = torn.map(|class| (class, run.slot(crash.kept + 1)));
        let found: Vec<_> = places(&survey).iter().map(|(class, _, slot)| (*class, *slot)).collect();
        prop_assert_eq!(found, Vec::from_iter(placed));
        let before = (1..=crash.kept).rev().find(|n| run.slot(*n) == run.slot(crash.kept + 1));
        let mut first_gone = crash.kept + 1;
        let mut missing = lost;
        if let Some(class) = torn {
            *counts.entry(class).or_insert(0) += 1;
            // What an acked operation left in part of an older one's place is gone too.
            if let (true, Some(before)) = (class.is_damage(), before) {
                *counts.entry(Survived).or_insert(0) -= 1;
                (first_gone, missing) = (before, lost + 1);
            }
        }
        counts.retain(|_, count| *count > 0);
        prop_assert_eq!(&survey.counts, &counts);
        let first = if missing > 0 { Missing::From(Seq(first_gone)) } else { Missing::None };
        prop_assert_eq!((survey.missing, survey.missing_count), (first, missing));
    }

    #[test]
    fn damage_to_any_place_is_found_there_or_is_the_state_of_an_earlier_instant(
        crash in crashes(), damage in damages(), which in any::<prop::sample::Index>(),
    ) {
        let crash = Crash { sectors: 0, kept: crash.kept.max(1), ..crash };
        let run = crash.run();
        let whole = run.file(crash.kept);
        let slot = which.index(whole.len());
        let newest_here = (1..=crash.kept).rev().find(|n| run.slot(*n) == slot);
        let mut blocks = whole.clone();
        damage.to(&run, &mut blocks, newest_here.expect("a file has no gaps"));
        prop_assume!(blocks != whole);
        let earlier = (0..crash.kept).find(|kept| run.file(*kept) == trimmed(blocks.clone()));
        let survey = run.survey(&blocks);
        match earlier {
            Some(kept) => {
                prop_assert_eq!(survey.newest.map_or(0, |newest| newest.seq.0), kept);
                let lost = crash.acked.saturating_sub(kept);
                prop_assert_eq!(survey.missing_count, lost);
                prop_assert_eq!(places(&survey), []);
            }
            None => {
                let here = |finding: &&Finding| finding.location == slot as u64 * RECORD_BYTES;
                let found = survey.findings.iter().find(here);
                prop_assert!(found.is_some_and(|f| f.outcome.is_damage()), "{:?}", survey);
                prop_assert_eq!(intact::judge(&[&survey]).verdict, Verdict::Violated);
            }
        }
    }
}
