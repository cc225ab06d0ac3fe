//! How long a curve stays at or below each value.
//!
//! Each piece first stays at 0, then takes every value between its first and its last one for one
//! nanosecond a nanosecond. So the time spent at or below a value is a sum of ramps of slope 1, and
//! mean and quantiles need no sampling.

use super::{Bound, StateLoss};

/// The values of one bound of a curve, weighed by time.
pub(super) struct Distribution {
    /// Time spent at 0, in nanoseconds.
    flat_ns: u128,
    /// First and last value of each growing part, in nanoseconds.
    ramps: Vec<(u64, u64)>,
}

impl Distribution {
    pub fn new(pieces: &[StateLoss], bound: Bound) -> Distribution {
        let mut distribution = Distribution { flat_ns: 0, ramps: Vec::new() };
        for piece in pieces {
            let ack = piece.grows_from(bound).map_or(piece.until, |ack| ack.min(piece.until));
            let start = ack.max(piece.from);
            distribution.flat_ns += u128::from(start.0 - piece.from.0);
            if start < piece.until {
                distribution.ramps.push((start.0 - ack.0, piece.until.0 - ack.0));
            }
        }
        distribution
    }

    /// All time, in nanoseconds.
    fn total_ns(&self) -> u128 {
        self.flat_ns + self.ramps.iter().map(|(lo, hi)| u128::from(hi - lo)).sum::<u128>()
    }

    /// The mean value, in nanoseconds; `None` without any time.
    pub fn mean_ns(&self) -> Option<f64> {
        let total = self.total_ns();
        // Twice the area under a ramp: its length times the sum of its ends. Saturates only where
        // clocks are centuries apart.
        let twice = self.ramps.iter().fold(0u128, |sum, (lo, hi)| {
            let ends = u128::from(*lo) + u128::from(*hi);
            sum.saturating_add(u128::from(hi - lo).saturating_mul(ends))
        });
        (total > 0).then(|| twice as f64 / 2.0 / total as f64)
    }

    /// The smallest value that is not exceeded for the share `q` of the time, in nanoseconds.
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        let total = self.total_ns();
        if !(0.0..=1.0).contains(&q) || total == 0 {
            return None;
        }
        let wanted = q * total as f64;
        if self.flat_ns > 0 && wanted <= self.flat_ns as f64 {
            return Some(0.0);
        }
        // Between two ends of ramps the time grows by the number of ramps there, a nanosecond each.
        let mut ends: Vec<(u64, i64)> =
            self.ramps.iter().flat_map(|(lo, hi)| [(*lo, 1), (*hi, -1)]).collect();
        ends.sort_unstable();
        let (mut here, mut value, mut below) = (0i64, 0u64, self.flat_ns);
        for (end, step) in ends {
            let added = u128::from(end - value) * here as u128;
            if here > 0 && (below + added) as f64 >= wanted {
                let rest = (wanted - below as f64) / here as f64;
                return Some((value as f64 + rest).min(end as f64));
            }
            below += added;
            (here, value) = (here + step, end);
        }
        Some(value as f64)
    }
}
