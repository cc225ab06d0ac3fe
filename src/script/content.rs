//! What a script writes: every aligned word of eight bytes says which operation wrote it and where.
//!
//! The word at byte offset 8 n of a file, written by operation s of a stream, is a bijection of (s, n)
//! under a key that follows from the plan's seed and the stream. So any eight bytes that were read back
//! are decoded without knowing what should be there; a word that was changed, misplaced, or written by
//! another stream decodes to an operation or a place that does not fit (a random word fits one of a
//! million operations of the stream with probability 2^-44). Bytes look random: no compression or
//! deduplication changes what is written.

use super::op::WORD_BYTES;
use crate::units::{Seq, StreamId};
use crate::workload::plan::splitmix64;

/// Bits of a word's place: files are at most 2^24 words, 128 MiB.
const PLACE_BITS: u32 = 24;
/// No file of a script is longer.
pub const FILE_BYTES_MAX: u64 = WORD_BYTES << PLACE_BITS;
/// No script has more operations.
pub const OPS_MAX: u64 = 1 << (64 - PLACE_BITS);

/// Sets the words apart from every other use of a seed.
const PURPOSE: u64 = u64::from_le_bytes(*b"words v1");

/// What makes a stream's words its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of a stream of a plan.
    pub fn new(seed: u64, stream: StreamId) -> Key {
        Key(splitmix64(splitmix64(seed ^ PURPOSE) ^ u64::from(stream.0)))
    }

    /// The word that operation `seq` writes at word `place` of a file.
    pub fn word(self, seq: Seq, place: u64) -> u64 {
        let plain = (seq.0 << PLACE_BITS) | (place & ((1 << PLACE_BITS) - 1));
        mix(plain ^ self.0)
    }

    /// The operation and the place that a word names.
    pub fn decode(self, word: u64) -> (Seq, u64) {
        let plain = unmix(word) ^ self.0;
        (Seq(plain >> PLACE_BITS), plain & ((1 << PLACE_BITS) - 1))
    }

    /// Fills `bytes` (whole words) as operation `seq` does from byte `offset` of a file on.
    pub fn fill(self, seq: Seq, offset: u64, bytes: &mut [u8]) {
        let first = offset / WORD_BYTES;
        for (place, word) in (first..).zip(bytes.chunks_exact_mut(WORD_BYTES as usize)) {
            word.copy_from_slice(&self.word(seq, place).to_le_bytes());
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Its inverse: the multipliers' inverses modulo 2^64, and each shift undone.
fn unmix(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_says_who_wrote_it_and_where(
            seed: u64, stream: u16, seq in 0..OPS_MAX, place in 0..1u64 << PLACE_BITS,
        ) {
            let key = Key::new(seed, StreamId(stream));
            prop_assert_eq!(key.decode(key.word(Seq(seq), place)), (Seq(seq), place));
        }

        #[test]
        fn a_word_of_another_stream_or_with_a_changed_bit_names_no_operation(
            seed: u64, seq in 1..1_000_000u64, place in 0..1u64 << 20, bit in 0..64u32,
        ) {
            let (key, other) = (Key::new(seed, StreamId(1)), Key::new(seed, StreamId(2)));
            let fits = |(seq, at): (Seq, u64)| seq.0 <= 1_000_000 && at == place;
            prop_assert!(!fits(other.decode(key.word(Seq(seq), place))));
            prop_assert!(!fits(key.decode(key.word(Seq(seq), place) ^ (1 << bit))));
        }
    }

    #[test]
    fn filled_bytes_are_the_words_of_their_places() {
        let key = Key::new(7, StreamId(3));
        let mut bytes = [0; 32];
        key.fill(Seq(9), 4096, &mut bytes);
        for (n, word) in bytes.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            assert_eq!(key.decode(word), (Seq(9), 512 + n as u64));
        }
    }
}
