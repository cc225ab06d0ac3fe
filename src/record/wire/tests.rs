//! Observations that go over, and parts that must be refused.

use super::*;
use proptest::prelude::*;

fn parts(file: &ObservedFile) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    let sent = encode(file, &mut |part| {
        parts.push(part.to_vec());
        Ok(())
    });
    sent.expect("a vector takes all");
    parts
}

fn decode(parts: &[Vec<u8>]) -> Result<Option<ObservedFile>, WireError> {
    let mut decoder = Decoder::default();
    let mut file = None;
    for part in parts {
        assert!(file.is_none(), "handed out before its last part");
        file = decoder.part(part)?;
    }
    Ok(file)
}

fn summary(n: u64) -> Summary {
    let (digest, previous) = (n.to_be_bytes(), (n ^ 1).to_be_bytes());
    Summary { seq: Seq(n), start: EventNo(2 * n), stamp: GuestNs(3 * n), digest, previous }
}

fn block() -> impl Strategy<Value = ObservedBlock> {
    prop_oneof![
        Just(ObservedBlock::Zeros),
        (1i32..4).prop_map(ObservedBlock::Unreadable),
        any::<u64>().prop_map(|n| ObservedBlock::Record(summary(n >> 2))),
        any::<u8>().prop_map(|byte| ObservedBlock::Odd([byte; RECORD_BYTES].into())),
    ]
}

fn file() -> impl Strategy<Value = ObservedFile> {
    let blocks = proptest::collection::vec(block(), 0..40);
    (any::<u16>(), any::<bool>(), blocks, 0u64..4096).prop_map(|(id, exists, blocks, tail)| {
        let stream = StreamId(id);
        if !exists {
            return ObservedFile { stream, size: None, blocks: Vec::new() };
        }
        let mut blocks = blocks;
        let size = blocks.len() as u64 * 4096 + tail;
        if tail > 0 {
            blocks.push(ObservedBlock::Odd(vec![7; tail as usize].into()));
        }
        ObservedFile { stream, size: Some(size), blocks }
    })
}

#[test]
fn a_large_file_goes_over_in_bounded_parts() {
    let blocks: Vec<_> = (0..60_000).map(|n| ObservedBlock::Record(summary(n))).collect();
    let size = Some(blocks.len() as u64 * 4096);
    let file = ObservedFile { stream: StreamId(3), size, blocks };
    let parts = parts(&file);
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|part| part.len() <= PART_BYTES_MAX));
    let sent: usize = parts.iter().map(Vec::len).sum();
    assert_eq!(sent, 60_000 * SUMMARY_BYTES + 3 * (HEAD_BYTES + 5));
    assert_eq!(decode(&parts), Ok(Some(file)));
}

#[test]
fn a_hole_of_any_length_is_a_few_bytes() {
    let blocks = vec![ObservedBlock::Zeros; 100_000];
    let file = ObservedFile { stream: StreamId(3), size: Some(100_000 * 4096 - 5), blocks };
    let parts = parts(&file);
    assert_eq!((parts.len(), parts[0].len()), (1, HEAD_BYTES + 5));
    assert_eq!(decode(&parts), Ok(Some(file)));
}

#[test]
fn parts_that_are_missing_or_claim_too_much_are_refused() {
    let blocks = vec![ObservedBlock::Odd([9; RECORD_BYTES].into()); 600];
    let file = ObservedFile { stream: StreamId(3), size: Some(600 * 4096), blocks };
    let parts = parts(&file);
    assert_eq!(parts.len(), 3);
    let skipped = [parts[0].clone(), parts[2].clone()];
    assert!(matches!(decode(&skipped), Err(WireError::Order { part: 1, found: 2, .. })));

    let mut early = parts[..1].to_vec();
    early[0][6] |= LAST as u8;
    assert!(matches!(decode(&early), Err(WireError::Incomplete { due: 600, .. })));

    let mut huge = parts[..1].to_vec();
    huge[0][24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(decode(&huge), Err(WireError::Value { what: "size", .. })));

    let mut many = parts[..1].to_vec();
    many[0][33..37].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(decode(&many), Err(WireError::Value { .. })));
}

proptest! {
    #[test]
    fn any_observation_comes_back_as_it_was_sent(file in file()) {
        prop_assert_eq!(decode(&parts(&file)), Ok(Some(file)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Decoder::default().part(&bytes).is_err());
    }

    #[test]
    fn damaged_parts_never_panic(file in file(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut parts = parts(&file);
        let at = at.index(parts[0].len());
        parts[0][at] = to;
        if let Ok(Some(decoded)) = decode(&parts) {
            let due = decoded.size.unwrap_or(0).div_ceil(4096);
            prop_assert_eq!(decoded.blocks.len() as u64, due);
        }
    }

    #[test]
    fn truncated_parts_are_refused(file in file(), at in any::<prop::sample::Index>()) {
        let mut parts = parts(&file);
        let at = at.index(parts[0].len());
        parts[0].truncate(at);
        prop_assert!(!matches!(decode(&parts), Ok(Some(decoded)) if decoded == file));
    }
}
