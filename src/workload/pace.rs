//! When a paced stream's operations are due.
//!
//! Pure. The schedule is absolute, so a late operation does not make the later ones late. Slots that
//! passed during a stall are skipped, but for the last: a burst after a stall would hide how old the
//! oldest un-synced write is.

/// A grid of slots, one operation each.
#[derive(Debug, Clone)]
pub struct Pace {
    next_ns: u64,
    interval_ns: u64,
}

impl Pace {
    /// `hz` operations a second, the first at `first_ns`.
    pub fn new(first_ns: u64, hz: u32) -> Pace {
        Pace { next_ns: first_ns, interval_ns: interval_ns(hz) }
    }

    /// When the next operation is due: in the future, or in the past by less than an interval.
    pub fn next_due(&mut self, now_ns: u64) -> u64 {
        let missed = now_ns.saturating_sub(self.next_ns) / self.interval_ns;
        let due = self.next_ns + missed * self.interval_ns;
        self.next_ns = due + self.interval_ns;
        due
    }
}

/// Nanoseconds between two operations.
pub fn interval_ns(hz: u32) -> u64 {
    1_000_000_000 / u64::from(hz.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_on_a_grid_however_late_each_operation_is() {
        let mut pace = Pace::new(1_000, 100_000_000);
        let due: Vec<u64> = [0, 1_003, 1_019, 1_025].map(|now| pace.next_due(now)).to_vec();
        assert_eq!(due, [1_000, 1_010, 1_020, 1_030]);
    }

    #[test]
    fn a_stall_is_followed_by_one_late_operation_and_then_by_the_grid() {
        let mut pace = Pace::new(0, 100_000_000);
        assert_eq!(pace.next_due(0), 0);
        assert_eq!(pace.next_due(95), 90, "the last missed slot, at once");
        assert_eq!(pace.next_due(96), 100);
        assert_eq!(pace.next_due(101), 110);
    }
}
