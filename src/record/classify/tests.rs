//! Every fault that can be planted in a record, and the controls.

use super::*;
use crate::record::testing::{plan, write_record, write_record_at};
use crate::workload::plan::Plan;
use proptest::prelude::*;

const APPEND: StreamId = StreamId(1);
const OVERWRITE: StreamId = StreamId(2);

fn place(plan: &Plan, stream: StreamId, location: u64) -> Place<'_> {
    Place { plan, stream: stream_of(plan, stream).expect("a stream"), location }
}

/// The place of operation `seq`, and its record.
fn home(plan: &Plan, stream: StreamId, seq: u64) -> (Place<'_>, RecordBytes) {
    let location = planned_location(plan, stream_of(plan, stream).expect("a stream"), Seq(seq));
    let place = place(plan, stream, location.expect("a place"));
    (place, write_record(plan, stream, Seq(seq)))
}

/// Two operations of the overwrite stream that write the same place, older first.
fn two_versions(plan: &Plan) -> (Place<'_>, Seq, Seq) {
    let (place, _) = home(plan, OVERWRITE, 3);
    let newer = (9..).map(Seq).find(|&seq| place.is_of(seq)).expect("some later one");
    (place, Seq(3), newer)
}

fn sectors(seen: Seen) -> Vec<SectorSeen> {
    match seen {
        Seen::Torn(sectors) => sectors,
        other => panic!("expected sectors, found {other:?}"),
    }
}

fn mixed(plan: &Plan, front: Seq, back: &[u8], at: usize) -> RecordBytes {
    let mut record = write_record(plan, OVERWRITE, front);
    record[at * SECTOR_BYTES..].copy_from_slice(&back[at * SECTOR_BYTES..]);
    record
}

#[test]
fn a_whole_record_in_its_place_is_whole_old_or_new() {
    let plan = plan();
    let (place, older, newer) = two_versions(&plan);
    for seq in [older, newer] {
        let seen = classify(&place, &write_record(&plan, OVERWRITE, seq));
        assert!(matches!(seen, Seen::Whole(summary) if summary.seq == seq), "{seen:?}");
    }
    let (place, record) = home(&plan, APPEND, 5);
    assert!(matches!(classify(&place, &record), Seen::Whole(Summary { seq: Seq(5), .. })));
}

#[test]
fn zeros_are_zeros_and_noise_is_garbage() {
    let plan = plan();
    let (place, _) = home(&plan, APPEND, 5);
    assert_eq!(classify(&place, &[0; 4096]), Seen::Zeros);
    assert_eq!(classify(&place, &[0; 700]), Seen::Zeros);
    assert_eq!(classify(&place, &[0xa5; 4096]), Seen::Garbage);
    assert_eq!(classify(&place, &ring::body(99, 3)), Seen::Garbage);
    assert_eq!(classify(&place, &[1; 3]), Seen::Garbage);
}

#[test]
fn a_record_of_another_stream_is_misdirected_even_at_the_same_offset() {
    let plan = plan();
    let (_, record) = home(&plan, OVERWRITE, 5);
    let seen = classify(&place(&plan, APPEND, 4 * 4096), &record);
    assert_eq!(seen, Seen::Misdirected { stream: OVERWRITE, seq: Seq(5), location: 4 * 4096 });
}

#[test]
fn a_record_of_another_place_is_misdirected() {
    let plan = plan();
    let (_, record) = home(&plan, APPEND, 5);
    let seen = classify(&place(&plan, APPEND, 5 * 4096), &record);
    assert_eq!(seen, Seen::Misdirected { stream: APPEND, seq: Seq(5), location: 4 * 4096 });
}

#[test]
fn a_record_whose_own_location_is_not_its_sequences_is_misdirected() {
    let plan = plan();
    let record = write_record_at(&plan, APPEND, Seq(5), 9 * 4096);
    for location in [4 * 4096, 9 * 4096] {
        let seen = classify(&place(&plan, APPEND, location), &record);
        assert_eq!(seen, Seen::Misdirected { stream: APPEND, seq: Seq(5), location: 9 * 4096 });
    }
}

#[test]
fn a_record_of_another_run_is_foreign_though_its_bodies_are_the_same() {
    let plan = plan();
    let other = Plan { run: RunId(*b"another test's.."), ..plan.clone() };
    let (place, _) = home(&plan, APPEND, 5);
    let (_, record) = home(&other, APPEND, 5);
    assert_eq!(classify(&place, &record), Seen::Foreign { run: other.run });
}

#[test]
fn a_run_that_shares_only_the_tags_four_bytes_is_foreign_too() {
    let plan = plan();
    let other = Plan { run: RunId(*b"a ruN of a test."), ..plan.clone() };
    let (place, _) = home(&plan, APPEND, 5);
    let (_, record) = home(&other, APPEND, 5);
    assert_eq!(classify(&place, &record), Seen::Foreign { run: other.run });
}

#[test]
fn a_whole_record_with_another_body_than_the_plans_is_damaged_throughout() {
    let plan = plan();
    let other = Plan { seed: 8, ..plan.clone() };
    let (place, _) = home(&plan, APPEND, 5);
    let (_, record) = home(&other, APPEND, 5);
    assert_eq!(sectors(classify(&place, &record)), [SectorSeen::Damaged(Seq(5)); 8]);
}

#[test]
fn a_tear_at_each_sector_boundary_is_a_transaction_boundary() {
    let plan = plan();
    let (place, older, newer) = two_versions(&plan);
    let old = write_record(&plan, OVERWRITE, older);
    for at in 1..SECTORS {
        let seen = sectors(classify(&place, &mixed(&plan, newer, &old, at)));
        assert_eq!(seen[..at], vec![SectorSeen::Of(newer); at]);
        assert_eq!(seen[at..], vec![SectorSeen::Of(older); SECTORS - at]);
        let boundary = Boundary { newer, sectors: at, older: Some(older) };
        assert_eq!(transaction_boundary(&seen), Some(boundary));

        let extended = sectors(classify(&place, &mixed(&plan, newer, &[0; 4096], at)));
        let boundary = Boundary { newer, sectors: at, older: None };
        assert_eq!(transaction_boundary(&extended), Some(boundary));

        let short = &write_record(&plan, OVERWRITE, newer)[..at * SECTOR_BYTES];
        assert_eq!(transaction_boundary(&sectors(classify(&place, short))), Some(boundary));
    }
}

#[test]
fn other_mixes_are_no_transaction_boundary() {
    let plan = plan();
    let (place, older, newer) = two_versions(&plan);
    let old = write_record(&plan, OVERWRITE, older);
    let backwards = mixed(&plan, older, &write_record(&plan, OVERWRITE, newer), 3);
    let seen = sectors(classify(&place, &backwards));
    assert_eq!(transaction_boundary(&seen), None, "the older one first");

    let mut sandwich = mixed(&plan, newer, &old, 5);
    sandwich[512..1024].copy_from_slice(&old[512..1024]);
    assert_eq!(transaction_boundary(&sectors(classify(&place, &sandwich))), None);

    let mut holed = mixed(&plan, newer, &old, 5);
    holed[7 * 512..].fill(0);
    assert_eq!(transaction_boundary(&sectors(classify(&place, &holed))), None);

    let mut below = mixed(&plan, newer, &old, 5);
    below[3 * 512 + 100..4 * 512].copy_from_slice(&old[3 * 512 + 100..4 * 512]);
    assert_eq!(transaction_boundary(&sectors(classify(&place, &below))), None);
    let all_damaged = [SectorSeen::Damaged(newer); 8];
    assert_eq!(transaction_boundary(&all_damaged), None);
    assert_eq!(transaction_boundary(&[]), None);
}

#[test]
fn a_zeroed_sector_is_seen_where_it_is() {
    let plan = plan();
    let (place, record) = home(&plan, APPEND, 5);
    for at in 0..SECTORS {
        let mut holed = record;
        holed[at * SECTOR_BYTES..(at + 1) * SECTOR_BYTES].fill(0);
        let mut expected = [SectorSeen::Of(Seq(5)); 8];
        expected[at] = SectorSeen::Zeros;
        assert_eq!(sectors(classify(&place, &holed)), expected);
    }
}

#[test]
fn swapped_sectors_are_misdirected() {
    let plan = plan();
    let (place, record) = home(&plan, APPEND, 5);
    for (a, b) in [(2, 6), (0, 1)] {
        let mut swapped = record;
        swapped[a * 512..(a + 1) * 512].copy_from_slice(&record[b * 512..(b + 1) * 512]);
        swapped[b * 512..(b + 1) * 512].copy_from_slice(&record[a * 512..(a + 1) * 512]);
        let moved = |sector: usize| SectorSeen::Misdirected {
            stream: APPEND,
            seq: Seq(5),
            sector: sector as u8,
        };
        let mut expected = [SectorSeen::Of(Seq(5)); 8];
        (expected[a], expected[b]) = (moved(b), moved(a));
        assert_eq!(sectors(classify(&place, &swapped)), expected);
    }
}

#[test]
fn a_sector_of_another_place_stream_or_run_is_told_apart() {
    let plan = plan();
    let foreign = Plan { run: RunId(*b"another test's.."), ..plan.clone() };
    let (place, record) = home(&plan, APPEND, 5);
    let elsewhere = |stream, seq| SectorSeen::Misdirected { stream, seq, sector: 4 };
    let cases = [
        (write_record(&plan, APPEND, Seq(6)), elsewhere(APPEND, Seq(6))),
        (write_record(&plan, OVERWRITE, Seq(5)), elsewhere(OVERWRITE, Seq(5))),
        (write_record(&foreign, APPEND, Seq(5)), SectorSeen::Foreign),
        ([0x77; 4096], SectorSeen::Garbage),
    ];
    for (other, class) in cases {
        let mut mixed = record;
        mixed[4 * 512..5 * 512].copy_from_slice(&other[4 * 512..5 * 512]);
        let mut expected = [SectorSeen::Of(Seq(5)); 8];
        expected[4] = class;
        assert_eq!(sectors(classify(&place, &mixed)), expected);
    }
}

#[test]
fn a_tag_that_claims_what_its_bytes_are_not_is_not_believed() {
    let plan = plan();
    let (place, record) = home(&plan, APPEND, 5);
    let mut lying = record;
    let tag = Tag::of(&plan.run, APPEND, Seq(9), 4);
    lying[5 * 512 - 16..5 * 512].copy_from_slice(&tag.to_bytes());
    assert_eq!(sectors(classify(&place, &lying))[4], SectorSeen::Garbage);
}

#[test]
fn every_bit_flip_is_never_whole_and_spoils_one_sector_only() {
    let plan = plan();
    let (place, record) = home(&plan, APPEND, 5);
    for bit in 0..record.len() * 8 {
        let mut flipped = record;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let seen = sectors(classify(&place, &flipped));
        let spoilt = bit / 8 / SECTOR_BYTES;
        for (at, sector) in seen.iter().enumerate() {
            assert_eq!(*sector == SectorSeen::Of(Seq(5)), at != spoilt, "bit {bit}, sector {at}");
        }
        let in_tag = bit / 8 % SECTOR_BYTES >= SECTOR_BYTES - 16;
        if !in_tag {
            assert_eq!(seen[spoilt], SectorSeen::Damaged(Seq(5)), "bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn no_change_of_one_byte_leaves_a_record_whole(
        stream in 1u16..3, seq in 1u64..40, at in 0usize..4096, change in 1u8..,
    ) {
        let plan = plan();
        let (place, mut record) = home(&plan, StreamId(stream), seq);
        prop_assert!(matches!(classify(&place, &record), Seen::Whole(_)));
        record[at] ^= change;
        prop_assert!(matches!(classify(&place, &record), Seen::Torn(_)));
    }

    #[test]
    fn arbitrary_bytes_are_classed_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..4097),
        tags in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u64>()), 8),
    ) {
        let plan = plan();
        let mut bytes = bytes;
        for (sector, (stream, index, seq)) in bytes.chunks_exact_mut(512).zip(tags) {
            let stream = StreamId(stream % 4);
            let tag = Tag::of(&plan.run, stream, Seq(seq), usize::from(index));
            sector[496..].copy_from_slice(&tag.to_bytes());
        }
        let (place, _) = home(&plan, APPEND, 5);
        prop_assert!(!matches!(classify(&place, &bytes), Seen::Whole(_)));
    }

    #[test]
    fn any_mix_of_two_versions_is_read_sector_by_sector(picks in proptest::collection::vec(0..3, 8)) {
        let plan = plan();
        let (place, older, newer) = two_versions(&plan);
        let sources =
            [[0; 4096], write_record(&plan, OVERWRITE, older), write_record(&plan, OVERWRITE, newer)];
        let mut mix = [0; 4096];
        for (at, &pick) in picks.iter().enumerate() {
            let sector = at * 512..(at + 1) * 512;
            mix[sector.clone()].copy_from_slice(&sources[pick as usize][sector]);
        }
        let class = [SectorSeen::Zeros, SectorSeen::Of(older), SectorSeen::Of(newer)];
        let expected: Vec<_> = picks.iter().map(|&pick| class[pick as usize]).collect();
        match classify(&place, &mix) {
            Seen::Zeros => prop_assert!(picks.iter().all(|&pick| pick == 0)),
            Seen::Whole(_) => prop_assert!(picks.iter().all(|&pick| pick == picks[0])),
            Seen::Torn(sectors) => prop_assert_eq!(sectors, expected),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
