//! Whether the load was one that could have shown a loss: long enough and never paused.

use super::window::Span;
use crate::history::clock::{ClockMap, LabInterval};
use crate::history::log::StreamHistory;
use crate::units::{GuestNs, LabNs, Seq, StreamId};
use crate::workload::plan::StreamPlan;

/// After the load's start its pauses do not count for this long.
pub const WARM_UP_NS: u64 = 1_000_000_000;
const PAUSE_MIN_NS: u64 = 100_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// The longest time that a stream completed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Which stream.
    pub stream: StreamId,
    /// How long, in nanoseconds.
    pub ns: u64,
    /// The longest that is allowed, in nanoseconds.
    pub allowed_ns: u64,
    /// The last operation before it.
    pub after: Seq,
}

/// The longest pause that a stream may make: max(100 ms, 3 pacing intervals).
pub fn allowed_pause_ns(stream: &StreamPlan) -> u64 {
    let interval = stream.pace_hz.map_or(0, |hz| NS_PER_S / u64::from(hz.max(1)));
    PAUSE_MIN_NS.max(3 * interval)
}

/// The longest pause of a stream between warm-up and cut, if it is longer than allowed. One that
/// began in the warm-up, or with the load, counts from the warm-up's end; the last one ends at the
/// cut; the clocks' error counts against the stream.
pub fn too_long_a_pause(
    stream: &StreamPlan,
    said: &StreamHistory,
    clock: &ClockMap,
    begin: LabNs,
    cut: LabInterval,
) -> Option<Pause> {
    let warm = LabNs(begin.0.saturating_add(WARM_UP_NS));
    let load = said.acked.iter().filter(|acked| acked.ack.seq.0 > stream.fill());
    let mut last: Option<(GuestNs, Seq)> = None;
    let mut longest = (0u64, Seq(0));
    for acked in load {
        let end = acked.ack.end_ns;
        let (ns, after) = match last {
            Some((before, seq)) if clock.lab(before).lo >= warm => {
                (end.0.saturating_sub(before.0), seq)
            }
            _ => {
                let since_warm = clock.lab(end).hi.0.saturating_sub(warm.0);
                (since_warm, last.map_or(Seq(0), |(_, seq)| seq))
            }
        };
        longest = longest.max((ns, after));
        last = Some((end, acked.ack.seq));
    }
    let tail = match last {
        Some((end, seq)) => (Span::since(clock, end, cut).hi_ns.max(0) as u64, seq),
        None => (cut.hi.0.saturating_sub(begin.0), Seq(0)),
    };
    let (ns, after) = longest.max(tail);
    let allowed_ns = allowed_pause_ns(stream);
    (ns > allowed_ns).then_some(Pause { stream: stream.id, ns, allowed_ns, after })
}

#[cfg(test)]
mod tests {
    use super::super::survey::test_support::stream as small_stream;
    use super::*;
    use crate::trace::ClockSample;
    use crate::workload::plan::Pattern;

    const MS: u64 = 1_000_000;

    fn plan(pace_hz: u32) -> StreamPlan {
        StreamPlan {
            id: StreamId(1),
            dataset: "customer".into(),
            path: String::new(),
            pattern: Pattern::Append,
            pace_hz: Some(pace_hz),
            batch: 1,
            fault: None,
        }
    }

    fn clock() -> ClockMap {
        let at = |ms| ClockSample {
            before: LabNs(ms * MS),
            after: LabNs(ms * MS),
            guest: GuestNs(ms * MS),
        };
        ClockMap::new(&[at(0), at(5_000), at(10_000)]).unwrap()
    }

    /// Operations that end at these milliseconds.
    fn said(ends: &[u64]) -> StreamHistory {
        let ops: Vec<_> = ends.iter().map(|end| (end - 2, end - 1, *end)).collect();
        small_stream(1, &ops, 0).1
    }

    fn pause(ends: &[u64], cut_ms: u64) -> Option<u64> {
        let cut = LabInterval::exact(LabNs(cut_ms * MS));
        too_long_a_pause(&plan(100), &said(ends), &clock(), LabNs(0), cut).map(|p| p.ns / MS)
    }

    #[test]
    fn a_steady_stream_has_no_pause_and_a_stalled_one_has() {
        let steady: Vec<u64> = (1..300).map(|n| n * 10).collect();
        assert_eq!(pause(&steady, 3_000), None);
        let stalled: Vec<u64> =
            steady.iter().copied().filter(|t| !(1_500..1_700).contains(t)).collect();
        assert_eq!(pause(&stalled, 3_000), Some(210));
        let early: Vec<u64> = steady.iter().copied().filter(|t| !(300..600).contains(t)).collect();
        assert_eq!(pause(&early, 3_000), None, "a pause in the warm-up does not count");
    }

    #[test]
    fn a_pause_that_began_in_the_warm_up_or_with_the_load_counts_from_the_warm_ups_end() {
        let steady: Vec<u64> = (1..300).map(|n| n * 10).collect();
        let without = |gone: std::ops::Range<u64>| -> Vec<u64> {
            steady.iter().copied().filter(|t| !gone.contains(t)).collect()
        };
        assert_eq!(pause(&without(500..1_500), 3_000), Some(500));
        assert_eq!(pause(&without(0..2_000), 3_000), Some(1_000));
        assert_eq!(pause(&without(0..900), 3_000), None, "it ended before the warm-up did");
    }

    #[test]
    fn a_stream_that_stopped_before_the_cut_or_never_acked_is_stalled() {
        let steady: Vec<u64> = (1..300).map(|n| n * 10).collect();
        assert_eq!(pause(&steady, 3_200), Some(210));
        assert_eq!(pause(&[], 3_000), Some(3_000));
    }

    #[test]
    fn a_slow_pace_is_allowed_three_intervals() {
        assert_eq!(allowed_pause_ns(&plan(100)), 100 * MS);
        assert_eq!(allowed_pause_ns(&plan(10)), 300 * MS);
    }
}
