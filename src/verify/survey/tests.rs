//! Every class of outcome from real record bytes, each beside a control.

use super::sample::*;
use super::*;
use crate::record::layout::Digest;
use crate::units::{RunId, SECTOR_BYTES};
use Outcome::*;

#[test]
fn a_file_with_every_acked_operation_is_whole() {
    for stream in [APPEND, OVERWRITE] {
        let run = Run::new(stream, 20, 20);
        let survey = run.expect_whole(&run.file(20), &[(Survived, 20)]);
        assert_eq!((survey.missing, survey.missing_count), (Missing::None, 0));
        let newest = survey.newest.expect("a survivor");
        assert_eq!((newest.seq, newest.start, newest.at), (Seq(20), EventNo(58), GuestNs(20_200)));
        assert!(survey.load_survived());
    }
}

#[test]
fn operations_that_were_not_acked_may_be_there_or_not() {
    for stream in [APPEND, OVERWRITE] {
        let run = Run::new(stream, 12, 10);
        let there = run.expect_whole(&run.file(12), &[(Survived, 10), (UnackedSurvived, 2)]);
        assert_eq!(there.newest.map(|newest| newest.at), Some(GuestNs(12_000)), "its own stamp");
        let gone = run.expect_whole(&run.file(10), &[(Survived, 10), (UnackedGone, 2)]);
        assert_eq!((there.missing, gone.missing), (Missing::None, Missing::None));
    }
}

#[test]
fn acked_operations_at_the_end_are_lost_by_what_was_promised() {
    for stream in [APPEND, OVERWRITE] {
        let run = Run::new(stream, 20, 20);
        let file = run.observed(&run.file(17));
        for (promise, class) in
            [(Promise::AllButRecent, LostInWindow), (Promise::Everything, LostThoughDurable)]
        {
            let survey = run.survey_file(&file, promise);
            assert_eq!(survey.counts, BTreeMap::from([(Survived, 17), (class, 3)]));
            assert_eq!((survey.missing, survey.missing_count), (Missing::From(Seq(18)), 3));
            assert_eq!(places(&survey), [], "a loss is no damage");
        }
    }
}

#[test]
fn what_filled_the_file_before_the_load_was_durable_whatever_is_promised() {
    let run = Run::new(OVERWRITE, 10, 10);
    let survey = run.survey(&run.file(5));
    let lost = [(Survived, 5), (LostThoughDurable, 3), (LostInWindow, 2)];
    assert_eq!(survey.counts, BTreeMap::from(lost));
    assert_eq!(survey.missing, Missing::From(Seq(6)));
    assert!(!survey.load_survived());
}

#[test]
fn a_file_that_is_gone_is_a_loss_of_all_that_was_acked() {
    let run = Run::new(OVERWRITE, 20, 20);
    let gone = ObservedFile { stream: run.stream.id, size: None, blocks: Vec::new() };
    let survey = run.survey_file(&gone, Promise::AllButRecent);
    assert_eq!(survey.counts, BTreeMap::from([(LostThoughDurable, 8), (LostInWindow, 12)]));
    assert_eq!((survey.newest, survey.missing), (None, Missing::From(Seq(1))));
    assert_eq!(survey.missing_count, 20);
}

#[test]
fn zeros_where_a_survivor_implies_a_record_are_a_hole() {
    let run = Run::new(APPEND, 20, 20);
    run.expect_damage(&run.file_but(20, 7, &[0; BLOCK]), Hole, Some(7), 6);
    let survey = run.survey(&run.file_but(20, 7, &[0; BLOCK]));
    assert_eq!((survey.missing, survey.missing_count), (Missing::From(Seq(7)), 1));
    assert_eq!(survey.count(Survived), 19);
    let run = Run::new(OVERWRITE, 8, 8);
    run.expect_damage(&run.file_but(8, 3, &[0; BLOCK]), Hole, Some(3), 2);
}

#[test]
fn a_file_that_ends_before_a_place_that_a_survivor_implies_has_a_hole_there() {
    let run = Run::new(OVERWRITE, 30, 30);
    // The newest lies below the last slot, so cutting the last slot off leaves it.
    let last = (1..=30).rev().find(|n| run.slot(*n) == 7).expect("the fill wrote it");
    assert!(last < 30);
    let mut blocks = run.file(30);
    blocks.truncate(7);
    run.expect_damage(&blocks, Hole, Some(last), 7);
}

#[test]
fn an_older_version_where_a_survivor_implies_a_newer_one_is_stale() {
    let run = Run::new(OVERWRITE, 40, 40);
    let newer = run.next_onto(3);
    let kept = newer + 1;
    assert!(run.slot(kept) != run.slot(3) && kept <= 40);
    run.expect_whole(&run.file(kept), &[(Survived, kept), (LostInWindow, 40 - kept)]);
    run.expect_damage(&run.file_but(kept, 3, &run.record(3)), Stale, Some(newer), 2);
}

#[test]
fn a_write_split_over_two_transactions_is_torn_there() {
    let run = Run::new(APPEND, 20, 20);
    let torn = mixed(&run.record(9), &[0; BLOCK], |n| n < 3);
    run.expect_damage(&run.file_but(20, 9, &torn), TornAtTransaction, Some(9), 8);
    let run = Run::new(OVERWRITE, 40, 40);
    let newer = run.next_onto(3);
    let torn = mixed(&run.record(newer), &run.record(3), |n| n < 5);
    run.expect_damage(&run.file_but(newer + 1, 3, &torn), TornAtTransaction, Some(newer), 2);
}

#[test]
fn a_flipped_bit_or_swapped_sectors_are_torn_in_a_sector() {
    for stream in [APPEND, OVERWRITE] {
        let run = Run::new(stream, 8, 8);
        for byte in [20, 300, 505, 600, 4095] {
            let damaged = flipped(&run.record(4), byte, 3);
            run.expect_damage(&run.file_but(8, 4, &damaged), TornInSector, Some(4), 3);
        }
        let mut swapped = run.record(4);
        let (one, two) = swapped.split_at_mut(3 * SECTOR_BYTES);
        one[SECTOR_BYTES..2 * SECTOR_BYTES].swap_with_slice(&mut two[..SECTOR_BYTES]);
        run.expect_damage(&run.file_but(8, 4, &swapped), TornInSector, Some(4), 3);
    }
    let run = Run::new(OVERWRITE, 40, 40);
    let newer = run.next_onto(3);
    let mix = mixed(&run.record(newer), &run.record(3), |n| n == 2);
    run.expect_damage(&run.file_but(newer + 1, 3, &mix), TornInSector, Some(newer), 2);
}

#[test]
fn an_operation_in_flight_may_be_there_in_part() {
    let run = Run::new(APPEND, 11, 10);
    let torn = mixed(&run.record(11), &[0; BLOCK], |n| n % 3 == 1);
    let counts = [(Survived, 10), (UnackedGone, 1), (InFlightInPart, 1)];
    let survey = run.expect_whole(&run.file_but(10, 11, &torn), &counts);
    assert_eq!(places(&survey), [(InFlightInPart, None, 10)]);
    let newer = Run::new(OVERWRITE, 40, 40).next_onto(3);
    let run = Run::new(OVERWRITE, newer, newer - 1);
    let torn = mixed(&run.record(newer), &run.record(3), |n| n % 2 == 0);
    let survey = run.survey(&run.file_but(newer - 1, 3, &torn));
    assert_eq!(places(&survey), [(InFlightInPart, Some(3), 2)]);
    assert_eq!((survey.missing, survey.count(Survived)), (Missing::None, newer - 1));
}

#[test]
fn an_acked_operation_that_is_there_in_part_was_not_in_flight() {
    let run = Run::new(APPEND, 11, 11);
    let torn = mixed(&run.record(11), &[0; BLOCK], |n| n < 4);
    run.expect_damage(&run.file_but(10, 11, &torn), TornAtTransaction, None, 10);
    let survey = run.survey(&run.file_but(10, 11, &torn));
    assert_eq!((survey.missing, survey.count(LostInWindow)), (Missing::From(Seq(11)), 1));
}

/// An operation of the overwrite stream whose successor writes the same place, and the one after
/// that another.
fn overwritten_at_once() -> u64 {
    let run = Run::new(OVERWRITE, 8, 8);
    let found =
        (9..200).find(|n| run.slot(*n) == run.slot(n + 1) && run.slot(n + 1) != run.slot(n + 2));
    found.expect("some place is written twice in a row")
}

#[test]
fn an_operation_in_flight_over_the_newest_does_not_hide_it() {
    let newest = overwritten_at_once();
    for acked in [newest, newest - 2] {
        let run = Run::new(OVERWRITE, newest + 1, acked);
        let torn = mixed(&run.record(newest + 1), &run.record(newest), |n| n > 5);
        let survey = run.survey(&run.file_but(newest, newest, &torn));
        let place = (InFlightInPart, Some(newest), run.slot(newest));
        assert_eq!(places(&survey), [place]);
        assert_eq!(survey.newest.map(|survivor| survivor.seq), Some(Seq(newest)));
        assert_eq!((survey.missing, survey.count(Survived)), (Missing::None, acked));
    }
    let run = Run::new(OVERWRITE, newest + 1, newest + 1);
    let torn = mixed(&run.record(newest + 1), &run.record(newest), |n| n > 5);
    let survey = run.survey(&run.file_but(newest, newest, &torn));
    assert_eq!(survey.count(TornInSector), 1, "an acked one was not in flight");
    assert_eq!(survey.newest.map(|survivor| survivor.seq), Some(Seq(newest - 1)));
}

#[test]
fn an_unacked_operation_that_a_survivor_implies_was_not_in_flight() {
    // Two un-acked operations of one place, torn, and a third that began when both had returned.
    let older = overwritten_at_once();
    let run = Run::new(OVERWRITE, older + 2, older - 1);
    let torn = mixed(&run.record(older + 1), &run.record(older), |n| n < 4);
    let file = run.file_but(older + 2, older, &torn);
    run.expect_damage(&file, TornAtTransaction, Some(older + 1), run.slot(older));
}

#[test]
fn a_part_of_an_unacked_operation_beyond_lost_acked_ones_was_not_in_flight() {
    let run = Run::new(APPEND, 11, 10);
    let torn = mixed(&run.record(11), &[0; BLOCK], |n| n < 4);
    run.expect_damage(&run.file_but(8, 11, &torn), TornAtTransaction, None, 10);
}

#[test]
fn a_record_in_a_place_or_file_that_is_not_its_own_is_misdirected() {
    let run = Run::new(APPEND, 20, 20);
    run.expect_damage(&run.file_but(20, 5, &run.record(9)), Misdirected, Some(5), 4);
    let other = Run::new(OVERWRITE, 8, 8).record(5);
    run.expect_damage(&run.file_but(20, 5, &other), Misdirected, Some(5), 4);
    run.expect_damage(&run.file_but(20, 25, &run.record(9)), Misdirected, None, 24);
}

#[test]
fn a_record_of_another_run_is_foreign_and_noise_is_garbage() {
    let run = Run::new(APPEND, 20, 20);
    let elsewhere = Plan { run: RunId([9; 16]), ..run.plan.clone() };
    let foreign = records(&elsewhere, &run.stream, 5).remove(4);
    run.expect_damage(&run.file_but(20, 5, &foreign), Foreign, Some(5), 4);
    run.expect_damage(&run.file_but(20, 5, &[0xa5; BLOCK]), Garbage, Some(5), 4);
    let behind_the_end = run.file_but(20, 21, &[0xa5; BLOCK]);
    run.expect_damage(&behind_the_end, Garbage, None, 20);
}

#[test]
fn a_place_that_cannot_be_read_is_unreadable() {
    let run = Run::new(OVERWRITE, 8, 8);
    let mut file = run.observed(&run.file(8));
    file.blocks[2] = ObservedBlock::Unreadable(5);
    run.expect_damage_in(&file, Unreadable, Some(3), 2);
}

#[test]
fn a_whole_record_that_is_not_the_acknowledged_one_is_the_tools_own_contradiction() {
    let run = Run::new(APPEND, 20, 20);
    let file = run.observed(&run.file(20));
    let not_as_acked = |change: &dyn Fn(&mut Ack)| {
        let mut other = Run::new(APPEND, 20, 20);
        change(&mut other.said.acked[6].ack);
        other.try_survey(&file, Promise::AllButRecent).map(|_| ())
    };
    let (stream, location, seq) = (StreamId(1), 6 * RECORD_BYTES, Seq(7));
    let contradiction = Err(ReadersDisagree::NotAsAcked { stream, location, seq });
    assert_eq!(not_as_acked(&|ack| ack.digest = [1; 8]), contradiction);
    assert_eq!(not_as_acked(&|ack| ack.start = EventNo(1_000)), contradiction);
    assert_eq!(not_as_acked(&|_| {}), Ok(()), "control");
}

#[test]
fn a_record_that_names_another_one_before_it_is_garbage() {
    for acked in [19, 3] {
        let run = Run::new(APPEND, 20, acked);
        let (unchained, _) = sealed(&run.plan, &run.stream, Seq(20), Digest([7; 32]));
        run.expect_damage(&run.file_but(20, 20, &unchained), Garbage, Some(20), 19);
    }
}

#[test]
fn a_record_far_beyond_what_was_acked_is_garbage_and_not_a_survivor() {
    let mut run = Run::new(OVERWRITE, 20, 20);
    let slot = (0..8).find(|slot| run.slot(20) != *slot).expect("eight slots");
    let far = (2 << 20..).find(|n| run.slot(*n) == slot).expect("slots repeat");
    let (record, _) = sealed(&run.plan, &run.stream, Seq(far), Digest([7; 32]));
    let blocks = run.file_but(20, slot as u64 + 1, &record);
    let found = places(&run.survey(&blocks));
    assert_eq!(found, [(Garbage, Some(far), slot)]);
    assert_eq!(run.survey(&blocks).newest.map(|newest| newest.seq), Some(Seq(20)));
    // An intent may be crafted too; only what was acked says how far a stream has come.
    run.said.announced = Some(Seq(far));
    assert_eq!(run.survey(&blocks).newest.map(|newest| newest.seq), Some(Seq(20)));
}

#[test]
fn two_readers_that_disagree_are_an_error_with_its_place() {
    let run = Run::new(APPEND, 8, 8);
    let mut file = run.observed(&run.file(8));
    file.blocks[3] = ObservedBlock::Odd(run.record(4).into());
    let found = run.try_survey(&file, Promise::AllButRecent).map(|_| ());
    assert_eq!(
        found,
        Err(ReadersDisagree::OddOrWhole { stream: StreamId(1), location: 3 * RECORD_BYTES })
    );
}
