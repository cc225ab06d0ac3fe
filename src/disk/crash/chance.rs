//! Draws from the seed which un-flushed writes are there: ChaCha8, four bits a draw.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};

/// The draws of one state.
///
/// The seed first draws how likely one is kept, from 1/16 to 15/16: with a fixed half, a cache of a
/// hundred writes would never be seen nearly empty or nearly full.
pub(super) struct Chance {
    generator: ChaCha8Rng,
    kept_of_16: u64,
    bits: u64,
    bits_left: u32,
}

impl Chance {
    pub fn new(seed: u64) -> Chance {
        // Not seed_from_u64: how that spreads a number is the crate's choice, and may change.
        let mut key = *b"plugpull crash model\0\0\0\0\0\0\0\0\0\0\0\0";
        key[24..].copy_from_slice(&seed.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        let kept_of_16 = 1 + generator.next_u64() % 15;
        Chance { generator, kept_of_16, bits: 0, bits_left: 0 }
    }

    /// Whether the next one is there.
    pub fn keeps(&mut self) -> bool {
        if self.bits_left == 0 {
            (self.bits, self.bits_left) = (self.generator.next_u64(), 64);
        }
        let draw = self.bits & 15;
        self.bits >>= 4;
        self.bits_left -= 4;
        draw < self.kept_of_16
    }

    /// Draws for each unit of `sectors` sectors from `first` on, and tells the runs that are there,
    /// counted from the first. Units lie on multiples of their size of the disk.
    pub fn kept_runs(&mut self, first: u64, sectors: u64, unit_sectors: u32) -> Vec<(u64, u64)> {
        let unit = u64::from(unit_sectors.max(1));
        let (mut runs, mut from, mut run_start) = (Vec::new(), 0, None);
        while from < sectors {
            if self.keeps() {
                run_start.get_or_insert(from);
            } else if let Some(start) = run_start.take() {
                runs.push((start, from));
            }
            from += unit - (first + from) % unit;
        }
        runs.extend(run_start.map(|start| (start, sectors)));
        runs
    }
}
