//! What a record is, and every way of not being one.

use super::*;
use proptest::prelude::*;

fn header() -> Header {
    Header {
        run: RunId(*b"run-0123456789ab"),
        stream: StreamId(3),
        start: EventNo(0x0102_0304_0506_0708),
        seq: Seq(42),
        location: 41 * 4096,
        stamp: GuestNs(1_000_000_007),
        previous: Digest([0x5a; 32]),
        body: 17,
        body_digest: Digest::of(&body()),
    }
}

fn body() -> Body {
    std::array::from_fn(|at| (at % 251) as u8)
}

fn record() -> (RecordBytes, Digest) {
    let mut record = [0xff; RECORD_BYTES];
    put_body(&mut record, &body());
    let digest = seal(&header(), &mut record);
    (record, digest)
}

fn is_whole(record: &RecordBytes) -> bool {
    open(record).is_ok_and(|(header, _)| check_body(&header, record).is_ok())
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let (record, digest) = record();
    assert_eq!(open(&record), Ok((header(), digest)));
    assert!(is_whole(&record) && has_body(&record, &body()));
    assert_eq!(take_body(&record), body());
}

#[test]
fn the_format_of_version_1_stays_for_ever() {
    // The two digests were computed apart from this code, from the layout in words.
    let (record, digest) = record();
    assert_eq!(&record[..16], b"PLUGPULL\x01\0\x08\0\x03\0\0\0");
    assert_eq!(record[32..40], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(&record[4080..], b"run-\x03\0\x07\x01\x2a\0\0\0\0\0\0\0");
    let whole = Digest::of(&record);
    assert_eq!(hex(&digest), "6807429b325f689db03184f3c133468dcb7e31fe3cf3c9c994cfb230e205f1b1");
    assert_eq!(hex(&whole), "d44dd36d3f2115ac7ddb07b60bb2748bf865fccbf1d7ce6bee7a2469146c9720");
}

fn hex(digest: &Digest) -> String {
    digest.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn each_way_of_not_being_a_record_is_named() {
    let (good, _) = record();
    let broken = |at: usize| {
        let mut record = good;
        record[at] ^= 1;
        open(&record).map(|_| ())
    };
    assert_eq!(broken(0), Err(NotARecord::Magic));
    assert_eq!(broken(9), Err(NotARecord::Version(VERSION ^ 0x100)));
    assert_eq!(broken(10), Err(NotARecord::Fixed("number of sectors")));
    assert_eq!(broken(140), Err(NotARecord::Fixed("reserved part")));
    assert_eq!(broken(48), Err(NotARecord::Seal));
    assert_eq!(broken(4095), Err(NotARecord::Tag { sector: 7 }));
    assert_eq!(broken(600), Ok(()), "the body is checked apart");
}

#[test]
fn a_first_sector_proves_itself_without_its_neighbours() {
    let (mut record, _) = record();
    record[SECTOR_BYTES..].fill(0);
    assert_eq!(open_first_sector(&head(&record)), Ok(header()));
    record[LOCATION_AT] ^= 1;
    assert_eq!(open_first_sector(&head(&record)), Err(NotARecord::Seal));
}

#[test]
fn every_single_bit_flip_is_seen() {
    let (good, _) = record();
    for bit in 0..RECORD_BYTES * 8 {
        let mut record = good;
        record[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_whole(&record), "bit {bit}");
    }
}

proptest! {
    #[test]
    fn any_change_of_one_byte_is_seen(at in 0..RECORD_BYTES, change in 1u8..) {
        let (mut record, _) = record();
        record[at] ^= change;
        prop_assert!(!is_whole(&record));
    }

    #[test]
    fn arbitrary_bytes_are_no_record(bytes in proptest::collection::vec(any::<u8>(), RECORD_BYTES)) {
        prop_assert!(open(&head(&bytes)).is_err());
    }
}
