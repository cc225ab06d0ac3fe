//! Seeded choices: the same seed, the same choices, on every machine.

use crate::units::StreamId;
use crate::workload::plan::splitmix64;

/// A sequence of numbers that follows from a purpose, a seed and a stream.
#[derive(Debug, Clone)]
pub struct Dice {
    lane: u64,
    drawn: u64,
}

impl Dice {
    /// The sequence of a stream. Purposes keep uses of one seed apart.
    pub fn new(purpose: u64, seed: u64, stream: StreamId) -> Dice {
        Dice { lane: splitmix64(splitmix64(seed ^ purpose) ^ u64::from(stream.0)), drawn: 0 }
    }

    /// The next of them, below `end` (0 counts as 1).
    pub fn below(&mut self, end: u64) -> u64 {
        self.drawn += 1;
        splitmix64(self.lane.wrapping_add(self.drawn)) % end.max(1)
    }

    /// One of these, which are not none.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.below(of.len() as u64) as usize).copied()
    }

    /// True `times` times out of `of`.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_stream_choose_the_same_and_others_do_not() {
        let draw = |seed, stream| {
            let mut dice = Dice::new(1, seed, StreamId(stream));
            (0..32).map(|_| dice.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(8, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        let mut dice = Dice::new(1, 7, StreamId(1));
        assert_eq!(dice.one::<u8>(&[]), None);
        assert!((0..100).all(|_| dice.chance(1, 1) && !dice.chance(0, 9)));
    }
}
