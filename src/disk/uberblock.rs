//! Recognises ZFS's uberblocks in what is written to the disk.
//!
//! An uberblock makes a transaction group the pool's newest (OpenZFS, include/sys/uberblock_impl.h):
//! magic, version and txg are its first three 64-bit fields, in the byte order of the machine that
//! wrote it; here that is a little-endian guest. Its slots are multiples of 1 KiB, and a file that
//! holds a pool lies on whole blocks, so it starts at a multiple of 1 KiB of the disk too.

use crate::units::Txg;

/// `UBERBLOCK_MAGIC`, "oo-ba-bloc!".
const MAGIC: u64 = 0x00ba_b10c;
/// Uberblocks start at multiples of this.
const SLOT_BYTES: usize = 1024;

/// The highest txg of the uberblocks in `payload`, which is written at byte `offset` of the disk.
pub fn highest_txg(offset: u64, payload: &[u8]) -> Option<Txg> {
    let skip = (SLOT_BYTES - (offset % SLOT_BYTES as u64) as usize) % SLOT_BYTES;
    payload.get(skip..)?.chunks(SLOT_BYTES).filter_map(txg_of).max()
}

fn txg_of(slot: &[u8]) -> Option<Txg> {
    let fields = slot.first_chunk::<24>()?;
    let field = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&fields[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    // Pool versions 1 to 28, and 5000 for feature flags, are all that exist.
    let version_known = matches!(field(8), 1..=28 | 5000);
    (field(0) == MAGIC && version_known).then(|| Txg(field(16)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(version: u64, txg: u64) -> Vec<u8> {
        let mut slot = vec![0xa5; SLOT_BYTES];
        for (at, value) in [MAGIC, version, txg].into_iter().enumerate() {
            slot[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
        }
        slot
    }

    #[test]
    fn the_highest_of_several_uberblocks_counts() {
        let payload = [slot(5000, 7), slot(5000, 9), vec![0; 1024], slot(28, 8)].concat();
        assert_eq!(highest_txg(4096, &payload), Some(Txg(9)));
    }

    #[test]
    fn only_multiples_of_1_kib_of_the_disk_are_looked_at() {
        let payload = [vec![0; 512], slot(5000, 7)].concat();
        assert_eq!(highest_txg(512, &payload), Some(Txg(7)));
        assert_eq!(highest_txg(1024, &payload), None);
    }

    #[test]
    fn an_unknown_version_and_a_cut_off_slot_are_not_uberblocks() {
        assert_eq!(highest_txg(0, &slot(29, 7)), None);
        assert_eq!(highest_txg(0, &slot(5000, 7)[..23]), None);
    }

    proptest! {
        #[test]
        fn any_payload_is_looked_through(offset: u64,
            payload in prop::collection::vec(any::<u8>(), 0..5000)) {
            let _ = highest_txg(offset, &payload);
        }
    }
}
