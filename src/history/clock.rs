//! Where an instant of the guest's clock lies on the lab's.
//!
//! Each sample asks the guest for its clock between two readings of the lab's, so it bounds the
//! distance between the clocks from both sides. Between samples the bounds widen by the largest
//! drift allowed. The answer is always an interval; samples that contradict each other give none.

use crate::trace::ClockSample;
use crate::units::{GuestNs, LabNs};
use serde::{Deserialize, Serialize};

/// Largest drift between the clocks that is believed, in nanoseconds a second (100 ppm). A crystal
/// keeps within 50; an emulated guest was measured within 10.
const DRIFT_NS_PER_S: i128 = 100_000;
const NS_PER_S: i128 = 1_000_000_000;

/// An interval on the lab's clock that holds an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabInterval {
    /// Not before.
    pub lo: LabNs,
    /// Not after.
    pub hi: LabNs,
}

impl LabInterval {
    /// An instant known exactly.
    pub fn exact(at: LabNs) -> LabInterval {
        LabInterval { lo: at, hi: at }
    }
}

/// Why guest instants cannot be placed on the lab's clock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// There is nothing to go by.
    #[error("the trace holds no clock sample, so no guest time can be placed on the lab's clock")]
    NoSample,
    /// No drift within the limit explains the samples.
    #[error(
        "the clock samples contradict each other near guest time {near}: one clock stepped, or they drift by more than 100 ppm"
    )]
    Contradiction {
        /// Where on the guest's clock.
        near: GuestNs,
    },
}

/// Bounds on lab minus guest at one guest instant, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Knot {
    guest: i128,
    lo: i128,
    hi: i128,
}

impl Knot {
    /// What this knot says of a guest instant some way off.
    fn seen_from(self, guest: i128) -> (i128, i128) {
        let slack = (guest - self.guest).abs() * DRIFT_NS_PER_S / NS_PER_S + 1;
        (self.lo - slack, self.hi + slack)
    }

    /// Narrows this knot by what another says of its instant.
    fn narrow(&mut self, other: Knot) -> Result<(), ClockError> {
        let (lo, hi) = other.seen_from(self.guest);
        self.lo = self.lo.max(lo);
        self.hi = self.hi.min(hi);
        if self.lo > self.hi {
            return Err(ClockError::Contradiction { near: GuestNs(self.guest.max(0) as u64) });
        }
        Ok(())
    }
}

/// Maps the guest's clock to the lab's.
#[derive(Debug, Clone)]
pub struct ClockMap {
    /// Ascending on the guest's clock, each narrowed by all the others.
    knots: Vec<Knot>,
}

impl ClockMap {
    /// Fits all samples, in any order.
    pub fn new(samples: &[ClockSample]) -> Result<ClockMap, ClockError> {
        let mut knots: Vec<Knot> = samples
            .iter()
            .map(|sample| Knot {
                guest: i128::from(sample.guest.0),
                lo: i128::from(sample.before.0) - i128::from(sample.guest.0),
                hi: i128::from(sample.after.0) - i128::from(sample.guest.0),
            })
            .collect();
        if knots.is_empty() {
            return Err(ClockError::NoSample);
        }
        knots.sort_by_key(|knot| knot.guest);
        for at in 1..knots.len() {
            let left = knots[at - 1];
            knots[at].narrow(left)?;
        }
        for at in (1..knots.len()).rev() {
            let right = knots[at];
            knots[at - 1].narrow(right)?;
        }
        Ok(ClockMap { knots })
    }

    /// The interval of the lab's clock in which a guest instant lies.
    pub fn lab(&self, at: GuestNs) -> LabInterval {
        let guest = i128::from(at.0);
        let next = self.knots.partition_point(|knot| knot.guest < guest);
        let neighbours = &self.knots[next.saturating_sub(1)..(next + 1).min(self.knots.len())];
        let (lo, hi) = neighbours
            .iter()
            .map(|knot| knot.seen_from(guest))
            .fold((i128::MIN, i128::MAX), |(lo, hi), (l, h)| (lo.max(l), hi.min(h)));
        let place = |offset: i128| LabNs((guest + offset).clamp(0, i128::from(u64::MAX)) as u64);
        LabInterval { lo: place(lo), hi: place(hi) }
    }

    /// The widest interval at any sample: the map's error, in nanoseconds.
    pub fn error_ns_max(&self) -> u64 {
        self.knots.iter().map(|knot| (knot.hi - knot.lo) as u64).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(before: u64, after: u64, guest: u64) -> ClockSample {
        ClockSample { before: LabNs(before), after: LabNs(after), guest: GuestNs(guest) }
    }

    #[test]
    fn a_slow_answer_is_narrowed_by_quick_ones_beside_it() {
        let map = ClockMap::new(&[
            sample(1_000_000, 1_001_000, 500_500),
            sample(2_000_000, 9_000_000, 1_500_500),
            sample(10_000_000, 10_001_000, 9_500_500),
        ])
        .unwrap();
        let at = map.lab(GuestNs(1_500_500));
        assert!(at.hi.0 - at.lo.0 < 1_500, "{at:?}");
    }

    #[test]
    fn a_stepped_clock_is_a_contradiction() {
        let step = [sample(0, 1_000, 500), sample(1_000_000_000, 1_000_001_000, 1_050_000_500)];
        assert!(matches!(ClockMap::new(&step), Err(ClockError::Contradiction { .. })));
        assert_eq!(ClockMap::new(&[]).unwrap_err(), ClockError::NoSample);
    }

    proptest! {
        #[test]
        fn the_true_instant_always_lies_in_the_interval(
            offset in 0u64..1_000_000_000_000,
            ppm in -50i64..=50,
            delays in prop::collection::vec((0u64..5_000_000, 0u64..5_000_000), 1..40),
            asked in 0u64..20_000_000_000,
        ) {
            let lab_of = |guest: u64| {
                (i128::from(offset + guest) + i128::from(guest) * i128::from(ppm) / 1_000_000) as u64
            };
            let samples: Vec<_> = delays
                .iter()
                .enumerate()
                .map(|(n, (out, back))| {
                    let guest = 1_000_000_000 + n as u64 * 250_000_000;
                    sample(lab_of(guest) - out.min(&offset), lab_of(guest) + back, guest)
                })
                .collect();
            let at = ClockMap::new(&samples).unwrap().lab(GuestNs(asked));
            let truth = lab_of(asked);
            prop_assert!(at.lo.0 <= truth + 1 && truth <= at.hi.0 + 1, "{:?} {}", at, truth);
        }
    }
}
