//! The instants of a stream that what was found fits: after which of its operations.

use crate::units::Seq;
use std::ops::RangeInclusive;

/// One instant: the first `whole` operations are there, and no other but, where it is so, a part of
/// the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// The newest operation that is there as a whole; 0 if none is.
    pub whole: Seq,
    /// Whether the one behind it is there in part.
    pub part: bool,
}

impl Instant {
    /// The newest operation of which anything is there.
    pub fn newest(self) -> Seq {
        Seq(self.whole.0 + u64::from(self.part))
    }
}

/// All instants that fit, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instants {
    /// Ascending and apart.
    whole: Vec<RangeInclusive<u64>>,
    /// Ascending.
    parts: Vec<u64>,
}

impl Instants {
    /// Only the instant behind this operation.
    pub fn one(newest: Seq) -> Instants {
        Instants { whole: vec![newest.0..=newest.0], parts: Vec::new() }
    }

    /// Adds an instant behind all that it has.
    pub fn push(&mut self, instant: Instant) {
        let at = instant.whole.0;
        if instant.part {
            self.parts.push(at);
            return;
        }
        match self.whole.last_mut() {
            Some(last) if *last.end() + 1 == at => *last = *last.start()..=at,
            _ => self.whole.push(at..=at),
        }
    }

    /// Whether none fits.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.parts.is_empty()
    }

    /// The first instant at which at least the operations up to `least` are there.
    pub fn first_from(&self, least: Seq) -> Option<Instant> {
        let range = self.whole.iter().find(|range| *range.end() >= least.0);
        let whole = range.map(|range| (*range.start()).max(least.0));
        let part = self.parts.iter().copied().find(|at| *at >= least.0);
        let whole = whole.map(|at| Instant { whole: Seq(at), part: false });
        let part = part.map(|at| Instant { whole: Seq(at), part: true });
        match (whole, part) {
            (Some(whole), Some(part)) => Some(whole.min(part)),
            (one, other) => one.or(other),
        }
    }

    /// The earliest.
    pub fn first(&self) -> Option<Instant> {
        self.first_from(Seq(0))
    }

    /// The latest.
    pub fn last(&self) -> Option<Instant> {
        let whole =
            self.whole.last().map(|range| Instant { whole: Seq(*range.end()), part: false });
        let part = self.parts.last().map(|at| Instant { whole: Seq(*at), part: true });
        whole.max(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_instant_from_an_operation_on_is_found_among_ranges_and_parts() {
        let mut instants = Instants::default();
        for (at, part) in [(2, false), (3, false), (5, true), (8, false)] {
            instants.push(Instant { whole: Seq(at), part });
        }
        let from = |least| instants.first_from(Seq(least)).map(|at| (at.whole.0, at.part));
        assert_eq!(from(0), Some((2, false)));
        assert_eq!(from(3), Some((3, false)));
        assert_eq!(from(4), Some((5, true)));
        assert_eq!(from(6), Some((8, false)));
        assert_eq!(from(9), None);
        assert_eq!(instants.last().map(Instant::newest), Some(Seq(8)));
        assert!(Instants::default().is_empty() && Instants::default().first().is_none());
    }
}
