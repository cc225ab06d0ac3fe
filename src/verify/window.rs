//! The loss window: how old was the oldest acknowledged operation that is gone.

use crate::history::clock::{ClockMap, LabInterval};
use crate::units::{GuestNs, LabNs};
use serde::{Deserialize, Serialize};

/// An interval that holds a duration, in nanoseconds. Negative only by the clocks' error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Not shorter.
    pub lo_ns: i64,
    /// Not longer.
    pub hi_ns: i64,
}

impl Span {
    /// From a guest instant to an instant of the lab.
    pub fn since(clock: &ClockMap, from: GuestNs, to: LabInterval) -> Span {
        let from = clock.lab(from);
        // Stamps come from messages: an absurd one must not wrap around.
        let minus = |a: LabNs, b: LabNs| {
            let ns = i128::from(a.0) - i128::from(b.0);
            ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
        };
        Span { lo_ns: minus(to.lo, from.hi), hi_ns: minus(to.hi, from.lo) }
    }

    /// Whether two intervals have an instant in common.
    pub fn meets(self, other: Span) -> bool {
        self.lo_ns <= other.hi_ns && other.lo_ns <= self.hi_ns
    }

    /// The longer of two, bound by bound.
    pub fn max(self, other: Span) -> Span {
        Span { lo_ns: self.lo_ns.max(other.lo_ns), hi_ns: self.hi_ns.max(other.hi_ns) }
    }
}

/// Seconds and nanoseconds, for people and JSON.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Not shorter.
    pub lo: f64,
    /// Not longer.
    pub hi: f64,
}

impl From<Span> for Seconds {
    fn from(span: Span) -> Seconds {
        Seconds { lo: span.lo_ns as f64 / 1e9, hi: span.hi_ns as f64 / 1e9 }
    }
}

/// What a cut took from one dataset.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossWindow {
    /// Cut minus the ack of the oldest acked operation that is gone; 0 if none is gone.
    #[serde(rename = "loss_window_s")]
    pub seconds: Seconds,
    /// Acked operations that are gone.
    #[serde(rename = "lost_operations")]
    pub operations: u64,
    /// Bytes of those that are records.
    #[serde(rename = "lost_bytes")]
    pub bytes: u64,
    /// Cut minus the ack of the newest operation that is there; none if none is.
    #[serde(rename = "newest_survivor_age_s")]
    pub newest_survivor_age: Option<Seconds>,
    /// Whether the newest survivor belongs to the load, not to the set-up.
    pub load_survived: bool,
}
