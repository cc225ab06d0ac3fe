//! The survey against a walk over every operation, and each fault with its control.

use super::super::{intact, prefix, verdict::Verdict};
use super::*;
use crate::history::log::Acked;
use crate::history::message::Ack;
use crate::record::rows::{Broken, Check};
use crate::workload::plan::{Journal, Pattern, SqliteSpec, Synchronous};
use nix::time::{ClockId, clock_gettime};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

fn plan() -> StreamPlan {
    let spec = SqliteSpec { journal: Journal::Wal, synchronous: Synchronous::Full };
    StreamPlan {
        id: StreamId(3),
        dataset: "shop".into(),
        path: "/tank/shop/stream-3".into(),
        pattern: Pattern::Sqlite(spec),
        pace_hz: None,
        batch: 1,
        fault: None,
    }
}

fn said(acked: u64, announced: u64) -> StreamHistory {
    let ack = |n: u64| Acked {
        entry: n,
        ack: Ack {
            seq: Seq(n),
            start: EventNo(10 * n),
            done: EventNo(10 * n + 1),
            end: EventNo(10 * n + 2),
            start_ns: GuestNs(1_000 * n),
            done_ns: GuestNs(1_000 * n + 1),
            end_ns: GuestNs(1_000 * n + 2),
            digest: [0; 8],
        },
    };
    let announced = Some(Seq(announced));
    StreamHistory { acked: (1..=acked).map(ack).collect(), announced, ..StreamHistory::default() }
}

fn rows(survived: Vec<RangeInclusive<u64>>) -> ObservedRows {
    let passed = Check { name: "integrity_check".into(), passed: true, words: "ok".into() };
    ObservedRows { stream: StreamId(3), checks: vec![passed], survived, broken: Vec::new() }
}

fn surveyed(said: &StreamHistory, rows: &ObservedRows, promise: Promise) -> StreamSurvey {
    survey(&plan(), said, Some(rows), promise)
}

#[test]
fn a_prefix_is_held_and_what_is_behind_it_is_lost_within_the_window_or_not_owed() {
    let recent = surveyed(&said(100, 101), &rows(vec![1..=90]), Promise::AllButRecent);
    assert_eq!(recent.missing, Missing::From(Seq(91)));
    assert_eq!((recent.missing_count, recent.count(Outcome::LostInWindow)), (10, 10));
    assert_eq!((recent.count(Outcome::Survived), recent.count(Outcome::UnackedGone)), (90, 1));
    let newest = recent.newest.expect("a survivor");
    assert_eq!((newest.seq, newest.start, newest.at), (Seq(90), EventNo(900), GuestNs(90_002)));
    assert!(recent.load_survived());
    for judged in [prefix::judge(&[&recent]), intact::judge(&[&recent])] {
        assert_eq!(judged.verdict, Verdict::Held, "{:?}", judged.because);
    }
    let beyond = surveyed(&said(100, 101), &rows(vec![1..=101]), Promise::Everything);
    assert_eq!((beyond.missing, beyond.missing_count), (Missing::None, 0));
    assert_eq!(beyond.count(Outcome::UnackedSurvived), 1);
    assert_eq!(prefix::judge(&[&beyond]).verdict, Verdict::Held);
    let lost = surveyed(&said(100, 101), &rows(vec![1..=99]), Promise::Everything);
    assert_eq!(lost.count(Outcome::LostThoughDurable), 1);
    assert_eq!(lost.missing, Missing::From(Seq(100)), "what `durable` counts");
    assert_eq!(prefix::judge(&[&lost]).verdict, Verdict::Held, "a loss, and no damage");
}

#[test]
fn a_gap_a_broken_transaction_and_a_failed_check_are_each_a_violation() {
    let all = || rows(vec![1..=101]);
    let gap = rows(vec![1..=40, 42..=101]);
    let late = rows(vec![2..=101]);
    let mut broken = rows(vec![1..=40, 42..=101]);
    broken.broken.push(Broken { id: Some(41), words: "its lines: in part".into() });
    let mut failed = all();
    failed.checks.push(Check { name: "close".into(), passed: false, words: "no".into() });
    let unchecked = ObservedRows { checks: Vec::new(), ..all() };
    let unordered = rows(vec![50..=101, 1..=49]);
    let beyond = rows(vec![1..=(1 << 40)]);
    let expected = [
        (gap, Outcome::Gap, 1),
        (late, Outcome::Gap, 1),
        (broken, Outcome::Broken, 1),
        (failed, Outcome::FailedCheck, 0),
        (unchecked, Outcome::FailedCheck, 0),
        (unordered, Outcome::Broken, 49),
        (beyond, Outcome::Broken, 0),
    ];
    for (rows, outcome, missing) in expected {
        let survey = surveyed(&said(100, 101), &rows, Promise::Everything);
        assert_eq!(survey.count(outcome), 1, "{outcome}: {survey:?}");
        assert_eq!(survey.missing_count, missing, "{outcome}: {survey:?}");
        for judged in [prefix::judge(&[&survey]), intact::judge(&[&survey])] {
            assert_eq!(judged.verdict, Verdict::Violated, "{outcome}: {:?}", judged.because);
            assert!(!judged.because[0].contains("byte"), "{:?}", judged.because);
        }
    }
    let control = surveyed(&said(100, 101), &all(), Promise::Everything);
    assert_eq!(prefix::judge(&[&control]).verdict, Verdict::Held);
}

#[test]
fn a_database_that_is_gone_is_damage_and_all_of_it_lost() {
    let mut gone = rows(Vec::new());
    gone.checks[0] =
        Check { name: "open".into(), passed: false, words: "unable to open database file".into() };
    let survey = surveyed(&said(5, 6), &gone, Promise::AllButRecent);
    assert_eq!((survey.newest, survey.missing_count), (None, 5));
    assert_eq!(survey.count(Outcome::LostThoughDurable), 1, "the set-up was durable");
    assert_eq!(prefix::judge(&[&survey]).verdict, Verdict::Violated);
    let unread = super::survey(&plan(), &said(5, 6), None, Promise::AllButRecent);
    assert_eq!(prefix::judge(&[&unread]).verdict, Verdict::NotMeasured);
}

#[test]
fn an_unacked_survivor_began_no_earlier_than_what_was_acked_before_it() {
    let survey = surveyed(&said(5, 6), &rows(vec![1..=6]), Promise::Everything);
    assert_eq!(survey.newest.map(|newest| newest.start), Some(EventNo(50)));
    let nothing = surveyed(&StreamHistory::default(), &rows(vec![1..=1]), Promise::Everything);
    assert_eq!(nothing.newest.map(|newest| newest.start), Some(EventNo(0)));
}

#[test]
fn a_million_transactions_are_judged_within_two_seconds() {
    let said = said(1_000_000, 1_000_001);
    let every_second: Vec<_> = (1..=500_000).map(|n| 2 * n..=2 * n).collect();
    let begun = cpu_time();
    let whole = surveyed(&said, &rows(vec![1..=999_000]), Promise::AllButRecent);
    let full_of_gaps = surveyed(&said, &rows(every_second), Promise::AllButRecent);
    let judged = [prefix::judge(&[&whole]), prefix::judge(&[&full_of_gaps])];
    let took = cpu_time() - begun;
    println!("two times a million transactions took {took:?}");
    assert_eq!(judged.map(|judged| judged.verdict), [Verdict::Held, Verdict::Violated]);
    assert_eq!(full_of_gaps.missing_count, 500_000);
    assert!(full_of_gaps.findings.len() <= GAPS_MAX + 1);
    assert!(took.as_secs() < 2, "{took:?}");
}

/// Of this thread: other work of the machine does not count.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it").into()
}

fn ranges(ids: &BTreeSet<u64>) -> Vec<RangeInclusive<u64>> {
    let mut all: Vec<RangeInclusive<u64>> = Vec::new();
    for id in ids {
        match all.last_mut() {
            Some(last) if last.end() + 1 == *id => *last = *last.start()..=*id,
            _ => all.push(*id..=*id),
        }
    }
    all
}

proptest! {
    #[test]
    fn the_survey_agrees_with_looking_at_every_operation(
        ids in prop::collection::btree_set(1u64..20, 0..20),
        acked in 0u64..18,
        in_flight in 0u64..2,
    ) {
        let announced = acked + in_flight;
        let survey = surveyed(&said(acked, announced), &rows(ranges(&ids)), Promise::AllButRecent);
        let newest = ids.last().copied().unwrap_or(0);
        let gone: Vec<u64> = (1..=acked).filter(|id| !ids.contains(id)).collect();
        prop_assert_eq!(survey.missing_count, gone.len() as u64);
        let first = gone.first().map_or(Missing::None, |id| Missing::From(Seq(*id)));
        prop_assert_eq!(survey.missing, first);
        prop_assert_eq!(survey.newest.map_or(0, |newest| newest.seq.0), newest);
        let of = |wanted: &dyn Fn(u64) -> bool| ids.iter().filter(|id| wanted(**id)).count() as u64;
        prop_assert_eq!(survey.count(Outcome::Survived), of(&|id| id <= acked));
        prop_assert_eq!(survey.count(Outcome::UnackedSurvived), of(&|id| id > acked));
        let is_prefix = newest == ids.len() as u64;
        let expected = match (newest, is_prefix) {
            (0, _) => Verdict::NotMeasured,
            (_, true) => Verdict::Held,
            (_, false) => Verdict::Violated,
        };
        prop_assert_eq!(prefix::judge(&[&survey]).verdict, expected);
    }
}
