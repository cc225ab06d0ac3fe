//! The loss curve: how much acknowledged work a cut at each instant of a load takes.
//!
//! Between two changes of what is durable, a cut at any instant leaves the same crash state, so one
//! verified state stands for a stretch of time. In it the curve is 0 until an acked operation is not
//! in the state; from there it grows with the clock, nanosecond for nanosecond, until the next
//! state. So value, maximum, mean and quantiles follow exactly from the states.
//!
//! What always holds: the pieces are in order, do not overlap and lie within begin and cut; what no
//! state stands for is unknown and never counted as 0. Acks are placed on the lab's clock as
//! intervals, so every answer is one too: its lower bound takes each ack as late as it may have been,
//! its upper bound as early.

mod distribution;
#[cfg(test)]
mod tests;

use super::verdict::{Judgement, Verdict};
use super::window::{Seconds, Span};
use crate::history::clock::LabInterval;
use crate::units::LabNs;
use distribution::Distribution;
use serde::{Deserialize, Serialize};

/// What one crash state means for the instants it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLoss {
    /// First instant at which a cut leaves this state.
    pub from: LabNs,
    /// First instant at which it does not any more.
    pub until: LabNs,
    /// When the oldest operation acked before `until` that is not in the state was acked, on the
    /// lab's clock; none if every such operation is there.
    pub oldest_gone: Option<LabInterval>,
}

/// Which bound of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// At least this much is lost.
    Lo,
    /// At most this much.
    Hi,
}

impl StateLoss {
    /// From when on this bound of the curve grows.
    fn grows_from(&self, bound: Bound) -> Option<LabNs> {
        self.oldest_gone.map(|ack| match bound {
            Bound::Lo => ack.hi,
            Bound::Hi => ack.lo,
        })
    }

    /// The loss of a cut at `at`, an instant of this state.
    fn window(&self, at: LabNs) -> Span {
        let age = |bound| {
            let ns = self.grows_from(bound).map_or(0, |ack| at.0.saturating_sub(ack.0));
            i64::try_from(ns).unwrap_or(i64::MAX)
        };
        Span { lo_ns: age(Bound::Lo), hi_ns: age(Bound::Hi) }
    }

    fn ns(&self) -> u64 {
        self.until.0 - self.from.0
    }
}

/// Why states make no curve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// The load ends before it begins.
    #[error("the cut at {cut} ns lies before the load's begin at {begin} ns")]
    CutBeforeBegin {
        /// The load's begin.
        begin: LabNs,
        /// The cut.
        cut: LabNs,
    },
    /// A state or the ack in it ends before it begins.
    #[error(
        "the state from {from} ns until {until} ns has an end before its begin, or its ack has"
    )]
    Reversed {
        /// Its begin.
        from: LabNs,
        /// Its end.
        until: LabNs,
    },
    /// Two states for one instant.
    #[error(
        "two crash states stand for the instant {at} ns: one until {until} ns, one from it on; a cut leaves one state"
    )]
    Overlap {
        /// Where the later state begins.
        at: LabNs,
        /// Where the earlier one ends.
        until: LabNs,
    },
}

/// The curve's highest point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// The instant just before which a cut takes the most: the next state begins here.
    pub at: LabNs,
    /// The least upper bound of the curve. Where acks are uncertain, its upper bound may belong to
    /// another instant than `at`.
    pub window: Span,
}

/// The loss window at every instant of a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct LossCurve {
    begin: LabNs,
    cut: LabNs,
    /// Ascending; two that touch differ in their oldest gone.
    pieces: Vec<StateLoss>,
}

/// The curve as JSON; reading it checks it again.
#[derive(Serialize, Deserialize)]
struct Stored {
    begin: LabNs,
    cut: LabNs,
    states: Vec<StateLoss>,
}

impl From<LossCurve> for Stored {
    fn from(curve: LossCurve) -> Stored {
        Stored { begin: curve.begin, cut: curve.cut, states: curve.pieces }
    }
}

impl TryFrom<Stored> for LossCurve {
    type Error = CurveError;

    fn try_from(stored: Stored) -> Result<LossCurve, CurveError> {
        LossCurve::new(stored.begin, stored.cut, stored.states)
    }
}

impl LossCurve {
    /// From the states of a load, in any order. What lies outside the load is left out; what no
    /// state stands for stays unknown.
    ///
    /// # Errors
    /// If two states stand for one instant, or something ends before it begins.
    pub fn new(
        begin: LabNs,
        cut: LabNs,
        states: impl IntoIterator<Item = StateLoss>,
    ) -> Result<LossCurve, CurveError> {
        if cut < begin {
            return Err(CurveError::CutBeforeBegin { begin, cut });
        }
        let mut states: Vec<StateLoss> = states.into_iter().collect();
        states.sort_unstable_by_key(|state| (state.from, state.until));
        let mut curve = LossCurve { begin, cut, pieces: Vec::new() };
        let mut until = LabNs(0);
        for state in states {
            let reversed = state.oldest_gone.is_some_and(|ack| ack.hi < ack.lo);
            if state.until < state.from || reversed {
                return Err(CurveError::Reversed { from: state.from, until: state.until });
            }
            if state.from < until && state.from < state.until {
                return Err(CurveError::Overlap { at: state.from, until });
            }
            until = until.max(state.until);
            curve.append(state);
        }
        Ok(curve)
    }

    /// Adds the part of a state that lies within the load.
    fn append(&mut self, state: StateLoss) {
        let (from, until) = (state.from.max(self.begin), state.until.min(self.cut));
        if from >= until {
            return;
        }
        match self.pieces.last_mut() {
            Some(last) if last.until == from && last.oldest_gone == state.oldest_gone => {
                last.until = until;
            }
            _ => self.pieces.push(StateLoss { from, until, ..state }),
        }
    }

    /// The load's first instant.
    pub fn begin(&self) -> LabNs {
        self.begin
    }

    /// The load's last instant.
    pub fn cut(&self) -> LabNs {
        self.cut
    }

    /// What is known, in order: neighbours with the same oldest gone are one, and none is empty.
    pub fn pieces(&self) -> &[StateLoss] {
        &self.pieces
    }

    /// What no state stands for, in order, as (from, until).
    pub fn unknown(&self) -> impl Iterator<Item = (LabNs, LabNs)> + '_ {
        let starts = std::iter::once(self.begin).chain(self.pieces.iter().map(|piece| piece.until));
        let ends = self.pieces.iter().map(|piece| piece.from).chain([self.cut]);
        starts.zip(ends).filter(|(from, until)| from < until)
    }

    /// The loss of a cut at this instant; `None` outside the load and where nothing is known. At the
    /// load's last instant it is that of the state before it.
    pub fn value_at(&self, at: LabNs) -> Option<Span> {
        let after = self.pieces.partition_point(|piece| piece.from <= at);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        let inside = at < piece.until || at == piece.until && at == self.cut;
        inside.then(|| piece.window(at))
    }

    /// The worst instant; `None` if nothing is known.
    pub fn maximum(&self) -> Option<Peak> {
        let ends = self.pieces.iter().map(|piece| (piece.until, piece.window(piece.until)));
        let window = ends.clone().map(|(_, window)| window).reduce(Span::max)?;
        let (at, _) = ends.reduce(|worst, end| {
            let height = |span: Span| (span.lo_ns, span.hi_ns);
            if height(end.1) > height(worst.1) { end } else { worst }
        })?;
        Some(Peak { at, window })
    }

    /// The mean over all known instants; `None` if there is none.
    pub fn mean(&self) -> Option<Seconds> {
        self.over_time(|distribution| distribution.mean_ns())
    }

    /// The loss that a cut at a random known instant stays within with probability `q` (0 to 1);
    /// `None` for another `q` and if nothing is known.
    pub fn quantile(&self, q: f64) -> Option<Seconds> {
        self.over_time(|distribution| distribution.quantile_ns(q))
    }

    fn over_time(&self, of: impl Fn(&Distribution) -> Option<f64>) -> Option<Seconds> {
        let seconds = |bound| of(&Distribution::new(&self.pieces, bound)).map(|ns| ns / 1e9);
        Some(Seconds { lo: seconds(Bound::Lo)?, hi: seconds(Bound::Hi)? })
    }

    /// Time for which the loss is known, in nanoseconds.
    pub fn known_ns(&self) -> u64 {
        self.pieces.iter().map(StateLoss::ns).sum()
    }

    /// Time for which it is not, in nanoseconds.
    pub fn unknown_ns(&self) -> u64 {
        self.cut.0 - self.begin.0 - self.known_ns()
    }

    /// Whether the loss is known at every instant of a load that is not empty.
    pub fn is_complete(&self) -> bool {
        self.unknown_ns() == 0 && !self.pieces.is_empty()
    }

    /// Judges "no instant of this load loses more than `claimed_ns`". It is held only if every
    /// instant is known.
    pub fn judge_at_most(&self, claimed_ns: u64) -> Judgement {
        let Some(peak) = self.maximum() else {
            return Judgement::new(
                Verdict::NotMeasured,
                "the loss is not known at any instant of this load",
            );
        };
        let (claim_ns, claimed) =
            (i64::try_from(claimed_ns).unwrap_or(i64::MAX), claimed_ns as f64 / 1e9);
        let Seconds { lo, hi } = Seconds::from(peak.window);
        let at = (peak.at.0 - self.begin.0) as f64 / 1e9;
        if peak.window.lo_ns > claim_ns {
            return Judgement::new(
                Verdict::Violated,
                format!(
                    "a cut just before {at:.3} s of load loses at least {lo:.3} s of acked writes, more than {claimed} s"
                ),
            );
        }
        if peak.window.hi_ns > claim_ns {
            return Judgement::new(
                Verdict::NotMeasured,
                format!("the worst window [{lo:.3}, {hi:.3}] s has {claimed} s inside its error"),
            );
        }
        let within = Judgement::new(
            Verdict::Held,
            format!("no known instant of this load loses more than {hi:.3} s of acked writes"),
        );
        if self.is_complete() {
            return within;
        }
        let (unknown, all) =
            (self.unknown_ns() as f64 / 1e9, (self.cut.0 - self.begin.0) as f64 / 1e9);
        within.bar_pass(format!(
            "the loss is not known for {unknown:.3} s of {all:.3} s of load: verify the states of these instants too"
        ))
    }
}
