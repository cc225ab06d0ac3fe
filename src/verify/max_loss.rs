//! `max-loss`: no cut at any instant of the load takes more than D of acknowledged operations.
//!
//! A trial judges its own cut and the largest window that its trace shows for any instant. `held`
//! needs both within D at their upper bounds and a load that could have shown more; `violated`
//! needs one lower bound beyond D; anything else is `not measured`.

use super::load::Pause;
use super::predict::LargestWindow;
use super::verdict::{Judgement, Verdict};
use super::window::{LossWindow, Span};

/// What a dataset's trial showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What the claim allows, in nanoseconds.
    pub claimed_ns: u64,
    /// The window of the trial's own cut, as found on the disk.
    pub own: Span,
    /// The same for the report.
    pub window: LossWindow,
    /// What the import's txg predicts for the same cut.
    pub predicted: Prediction,
    /// Whether the dataset came back to one instant. If not, the prediction does not apply.
    pub one_instant: bool,
    /// The largest window at any instant of the load.
    pub largest: LargestWindow,
    /// Streams that paused too long.
    pub pauses: Vec<Pause>,
    /// Load before the cut, in nanoseconds.
    pub load_ns: u64,
    /// The slowest sync of a transaction group, in nanoseconds.
    pub slowest_sync_ns: u64,
    /// Transaction groups of the load that dirty bytes closed, or may have, at a memory size not
    /// declared for it.
    pub closed_by_dirty_bytes: u64,
}

/// The window of a cut, told from transaction groups alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prediction {
    /// It should lie within this.
    Window(Span),
    /// The birth of the first lost group was not reported.
    Unknown,
    /// The dataset waits for the intent log, so groups do not bound its loss, or its stamps are
    /// taken from a program's words, too late to hold them against a group's birth.
    NotByTxgs,
}

/// Judges one dataset.
pub fn judge(evidence: &Evidence) -> Judgement {
    let mut judgement = match contradiction(evidence) {
        Some(because) => Judgement::new(Verdict::HarnessBroken, because),
        None => bars(evidence).into_iter().fold(by_windows(evidence), Judgement::bar_pass),
    };
    judgement.window = Some(evidence.window);
    judgement
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// Measured and predicted further apart than their errors.
fn contradiction(evidence: &Evidence) -> Option<String> {
    let predicted = match evidence.predicted {
        Prediction::Window(span) if evidence.one_instant => span,
        _ => return None,
    };
    (!predicted.meets(evidence.own)).then(|| {
        format!(
            "the records say [{:.3}, {:.3}] s, the txg that the import used says [{:.3}, {:.3}] s: the tool's data contradict each other",
            seconds(evidence.own.lo_ns),
            seconds(evidence.own.hi_ns),
            seconds(predicted.lo_ns),
            seconds(predicted.hi_ns)
        )
    })
}

fn by_windows(evidence: &Evidence) -> Judgement {
    let claimed = seconds(evidence.claimed_ns as i64);
    let worst = evidence.own.max(evidence.largest.span);
    let which = if worst.lo_ns > evidence.own.lo_ns {
        "the worst instant of this load"
    } else {
        "this cut"
    };
    let (lo, hi) = (seconds(worst.lo_ns), seconds(worst.hi_ns));
    if worst.lo_ns > evidence.claimed_ns as i64 {
        Judgement::new(
            Verdict::Violated,
            format!("{which} loses at least {lo:.3} s of acked writes, more than {claimed} s"),
        )
    } else if worst.hi_ns <= evidence.claimed_ns as i64 {
        Judgement::new(
            Verdict::Held,
            format!("no instant of this load loses more than {hi:.3} s of acked writes"),
        )
    } else {
        Judgement::new(
            Verdict::NotMeasured,
            format!("the window [{lo:.3}, {hi:.3}] s has {claimed} s inside its error"),
        )
    }
}

/// Reasons for which a run could not have shown a violation.
fn bars(evidence: &Evidence) -> Vec<String> {
    let mut bars = Vec::new();
    if !evidence.window.load_survived {
        bars.push("nothing of the load survived: the load's start cut the window short".to_owned());
    }
    for pause in &evidence.pauses {
        bars.push(format!(
            "stream {} completed nothing for {:.3} s after operation {} ({:.3} s are allowed)",
            pause.stream,
            seconds(pause.ns as i64),
            pause.after,
            seconds(pause.allowed_ns as i64)
        ));
    }
    let needed = evidence.claimed_ns.saturating_add(evidence.slowest_sync_ns.saturating_mul(2));
    if evidence.load_ns < needed {
        bars.push(format!(
            "only {:.1} s of load came before the cut; the claim and two sync times need {:.1} s",
            seconds(evidence.load_ns as i64),
            seconds(needed as i64)
        ));
    }
    if evidence.closed_by_dirty_bytes > 0 {
        bars.push(format!(
            "dirty bytes, or what the rows do not tell, closed {} transaction groups at a memory size that the scenario does not declare for it: that hides the window",
            evidence.closed_by_dirty_bytes
        ));
    }
    if evidence.largest.commits == 0 || evidence.largest.untold > 0 {
        bars.push(format!(
            "the window could be told at {} instants of the load and not at {}",
            evidence.largest.commits, evidence.largest.untold
        ));
    }
    if evidence.predicted == Prediction::Unknown {
        bars.push("the birth of the first lost transaction group was not reported".to_owned());
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::super::window::Seconds;
    use super::*;
    use crate::units::{Seq, StreamId};

    const S: i64 = 1_000_000_000;

    fn span(lo: f64, hi: f64) -> Span {
        Span { lo_ns: (lo * S as f64) as i64, hi_ns: (hi * S as f64) as i64 }
    }

    fn evidence(own: Span, largest: Span) -> Evidence {
        Evidence {
            claimed_ns: 5 * S as u64,
            own,
            window: LossWindow {
                seconds: Seconds::from(own),
                operations: 10,
                bytes: 40_960,
                newest_survivor_age: None,
                load_survived: true,
            },
            predicted: Prediction::Window(own),
            one_instant: true,
            largest: LargestWindow { span: largest, commits: 2, untold: 0 },
            pauses: Vec::new(),
            load_ns: 15 * S as u64,
            slowest_sync_ns: S as u64 / 5,
            closed_by_dirty_bytes: 0,
        }
    }

    fn verdict(evidence: &Evidence) -> Verdict {
        judge(evidence).verdict
    }

    #[test]
    fn both_windows_decide_and_an_interval_around_the_claim_decides_nothing() {
        assert_eq!(verdict(&evidence(span(1.0, 1.1), span(4.8, 4.9))), Verdict::Held);
        assert_eq!(verdict(&evidence(span(5.1, 5.2), span(4.8, 4.9))), Verdict::Violated);
        assert_eq!(verdict(&evidence(span(1.0, 1.1), span(5.1, 5.2))), Verdict::Violated);
        assert_eq!(verdict(&evidence(span(1.0, 1.1), span(4.9, 5.1))), Verdict::NotMeasured);
    }

    #[test]
    fn a_run_that_could_not_have_shown_a_violation_never_passes() {
        let good = || evidence(span(1.0, 1.1), span(4.8, 4.9));
        let pause =
            Pause { stream: StreamId(1), ns: 200_000_000, allowed_ns: 100_000_000, after: Seq(3) };
        let not_survived = LossWindow { load_survived: false, ..good().window };
        let barred = [
            Evidence { window: not_survived, ..good() },
            Evidence { pauses: vec![pause], ..good() },
            Evidence { load_ns: 5 * S as u64, ..good() },
            Evidence { closed_by_dirty_bytes: 1, ..good() },
            Evidence { largest: LargestWindow { commits: 0, ..good().largest }, ..good() },
            Evidence { largest: LargestWindow { untold: 1, ..good().largest }, ..good() },
            Evidence { predicted: Prediction::Unknown, ..good() },
        ];
        for evidence in barred {
            assert_eq!(verdict(&evidence), Verdict::NotMeasured, "{evidence:?}");
        }
    }

    #[test]
    fn a_loss_beyond_the_claim_stays_a_violation_however_poor_the_load() {
        let poor = Evidence {
            load_ns: 5 * S as u64,
            closed_by_dirty_bytes: 3,
            ..evidence(span(5.1, 5.2), span(5.1, 5.2))
        };
        assert_eq!(verdict(&poor), Verdict::Violated);
    }

    #[test]
    fn records_and_births_that_disagree_are_a_broken_harness() {
        let apart = Evidence {
            predicted: Prediction::Window(span(3.0, 3.1)),
            ..evidence(span(1.0, 1.1), span(4.8, 4.9))
        };
        assert_eq!(verdict(&apart), Verdict::HarnessBroken);
        assert_eq!(verdict(&Evidence { one_instant: false, ..apart }), Verdict::Held);
    }
}
