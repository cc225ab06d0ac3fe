//! Recognises ext4's journal in what is written to the disk.
//!
//! A transaction of the journal is one or more descriptor blocks, each followed by the blocks that
//! it lists, and then a commit block (Linux, include/linux/jbd2.h): each starts with the magic, a
//! type and the transaction's sequence, 32 bits big-endian. The journal replays a transaction only
//! if its commit block is there. A data block never starts with the magic inside a journal, but may
//! anywhere else: a sighting is a hint where to cut, never evidence.

/// `JBD2_MAGIC_NUMBER`.
const MAGIC: u32 = 0xc03b_3998;
/// `JBD2_DESCRIPTOR_BLOCK`.
const DESCRIPTOR: u32 = 1;
/// `JBD2_COMMIT_BLOCK`.
const COMMIT: u32 = 2;
/// ext4's smallest block; larger ones lie on multiples of it too.
const BLOCK_BYTES: usize = 1024;

/// Which block of a transaction it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalBlock {
    /// It lists blocks of the transaction.
    Descriptor,
    /// It ends the transaction.
    Commit,
}

/// The last descriptor or commit block in `payload`, which is written at byte `offset` of the disk,
/// with its transaction's sequence.
pub fn last_block(offset: u64, payload: &[u8]) -> Option<(JournalBlock, u32)> {
    let skip = (BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize) % BLOCK_BYTES;
    payload.get(skip..)?.chunks(BLOCK_BYTES).rev().find_map(block_of)
}

fn block_of(block: &[u8]) -> Option<(JournalBlock, u32)> {
    let fields = block.first_chunk::<12>()?;
    let field = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&fields[at..at + 4]);
        u32::from_be_bytes(bytes)
    };
    let kind = match field(4) {
        DESCRIPTOR => JournalBlock::Descriptor,
        COMMIT => JournalBlock::Commit,
        _ => return None,
    };
    (field(0) == MAGIC).then(|| (kind, field(8)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(kind: u32, sequence: u32) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        for (at, value) in [MAGIC, kind, sequence].into_iter().enumerate() {
            block[4 * at..4 * at + 4].copy_from_slice(&value.to_be_bytes());
        }
        block
    }

    #[test]
    fn the_last_block_of_a_transaction_counts_and_other_kinds_do_not() {
        let payload = [block(1, 7), vec![0xa5; 1024], block(2, 7), block(4, 8)].concat();
        assert_eq!(last_block(4096, &payload), Some((JournalBlock::Commit, 7)));
        assert_eq!(last_block(4096, &payload[..2048]), Some((JournalBlock::Descriptor, 7)));
        assert_eq!(last_block(4096, &payload[1024..2048]), None);
        assert_eq!(last_block(4096, &block(5, 7)), None, "a revoke block");
    }

    #[test]
    fn only_block_starts_are_looked_at() {
        let payload = [vec![0; 512], block(2, 7)].concat();
        assert_eq!(last_block(512, &payload), Some((JournalBlock::Commit, 7)));
        assert_eq!(last_block(0, &payload), None);
        assert_eq!(last_block(0, &block(2, 7)[..11]), None);
    }

    proptest! {
        #[test]
        fn any_payload_is_looked_through(offset: u64,
            payload in prop::collection::vec(any::<u8>(), 0..5000)) {
            let _ = last_block(offset, &payload);
        }
    }
}
