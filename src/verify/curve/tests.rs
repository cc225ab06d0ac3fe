//! The loss curve against sampling every nanosecond, and against curves drawn by hand.

use super::*;
use proptest::prelude::*;

fn gone(lo: u64, hi: u64) -> Option<LabInterval> {
    Some(LabInterval { lo: LabNs(lo), hi: LabNs(hi) })
}

fn state(from: u64, until: u64, oldest_gone: Option<LabInterval>) -> StateLoss {
    StateLoss { from: LabNs(from), until: LabNs(until), oldest_gone }
}

fn curve(begin: u64, cut: u64, states: &[StateLoss]) -> LossCurve {
    LossCurve::new(LabNs(begin), LabNs(cut), states.iter().copied()).expect("a curve")
}

const S: u64 = 1_000_000_000;

/// Two states of five seconds; the first loses what was acked from second 2 on, give or take 0.1.
fn two_states() -> [StateLoss; 2] {
    let ack = |at: u64| gone(at - S / 10, at + S / 10);
    [state(10 * S, 15 * S, ack(12 * S)), state(15 * S, 20 * S, ack(14 * S))]
}

#[test]
fn the_curve_is_zero_until_the_first_ack_that_is_gone_and_then_grows_with_the_clock() {
    let curve = curve(10 * S, 20 * S, &two_states());
    let at = |ns: u64| curve.value_at(LabNs(ns)).map(|span| (span.lo_ns, span.hi_ns));
    assert_eq!(at(10 * S), Some((0, 0)));
    assert_eq!(at(12 * S), Some((0, S as i64 / 10)), "the ack may have been a little earlier");
    assert_eq!(at(13 * S), Some((9 * S as i64 / 10, 11 * S as i64 / 10)));
    assert_eq!(at(15 * S), Some((9 * S as i64 / 10, 11 * S as i64 / 10)), "the next state");
    assert_eq!(at(20 * S), Some((59 * S as i64 / 10, 61 * S as i64 / 10)), "the cut itself");
    assert_eq!((at(10 * S - 1), at(20 * S + 1)), (None, None));
    let peak = curve.maximum().expect("known");
    assert_eq!(peak.at, LabNs(20 * S));
    assert_eq!(peak.window, Span { lo_ns: 5_900_000_000, hi_ns: 6_100_000_000 });
}

#[test]
fn a_gap_stays_unknown_and_is_not_counted_as_zero() {
    let [first, second] = two_states();
    let late = StateLoss { from: LabNs(16 * S), ..second };
    let curve = curve(9 * S, 20 * S, &[late, first]);
    let unknown: Vec<_> = curve.unknown().map(|(from, until)| (from.0 / S, until.0 / S)).collect();
    assert_eq!(unknown, [(9, 10), (15, 16)]);
    assert_eq!((curve.known_ns(), curve.unknown_ns()), (9 * S, 2 * S));
    assert!(!curve.is_complete());
    assert_eq!(curve.value_at(LabNs(15 * S)), None);
}

#[test]
fn a_claim_is_held_only_if_every_instant_is_known_and_within_it() {
    let [first, second] = two_states();
    let whole = curve(10 * S, 20 * S, &[first, second]);
    let verdict = |curve: &LossCurve, claim: u64| curve.judge_at_most(claim).verdict;
    assert_eq!(verdict(&whole, 6_100_000_000), Verdict::Held);
    assert_eq!(verdict(&whole, 6_099_999_999), Verdict::NotMeasured, "inside the error");
    assert_eq!(verdict(&whole, 5_900_000_000), Verdict::NotMeasured);
    assert_eq!(verdict(&whole, 5_899_999_999), Verdict::Violated);
    assert_eq!(verdict(&whole, u64::MAX), Verdict::Held);
    let gap = curve(9 * S, 20 * S, &[first, second]);
    let judged = gap.judge_at_most(7 * S);
    assert_eq!(judged.verdict, Verdict::NotMeasured);
    assert!(judged.because[0].contains("1.000 s of 11.000 s"), "{judged:?}");
    assert_eq!(verdict(&gap, 5 * S), Verdict::Violated, "a gap hides no violation");
    let said = &whole.judge_at_most(5 * S).because[0];
    assert!(said.contains("10.000 s of load") && said.contains("5.900 s"), "{said}");
}

#[test]
fn a_load_without_a_state_or_without_length_proves_nothing() {
    for empty in [curve(10, 20, &[]), curve(10, 10, &[state(0, 30, None)])] {
        assert_eq!(empty.judge_at_most(u64::MAX).verdict, Verdict::NotMeasured);
        assert!(empty.maximum().is_none() && empty.mean().is_none());
        assert!(empty.quantile(0.5).is_none() && !empty.is_complete());
    }
}

#[test]
fn states_that_contradict_each_other_are_refused() {
    let new = |begin, cut, states: &[StateLoss]| {
        LossCurve::new(LabNs(begin), LabNs(cut), states.iter().copied())
    };
    let overlap = new(0, 30, &[state(12, 20, None), state(10, 13, None)]);
    assert_eq!(overlap, Err(CurveError::Overlap { at: LabNs(12), until: LabNs(13) }));
    let outside = new(0, 5, &[state(12, 20, None), state(10, 13, None)]);
    assert!(outside.is_err(), "also where the load does not reach");
    let inside = new(0, 30, &[state(10, 20, None), state(12, 13, None), state(15, 16, None)]);
    assert_eq!(inside, Err(CurveError::Overlap { at: LabNs(12), until: LabNs(20) }));
    assert!(matches!(new(0, 30, &[state(5, 4, None)]), Err(CurveError::Reversed { .. })));
    assert!(matches!(new(0, 30, &[state(4, 5, gone(3, 2))]), Err(CurveError::Reversed { .. })));
    assert!(matches!(new(3, 2, &[]), Err(CurveError::CutBeforeBegin { .. })));
    let touching = new(0, 30, &[state(10, 20, None), state(20, 20, None), state(20, 30, None)]);
    assert_eq!(touching.expect("no overlap").pieces(), [state(10, 30, None)]);
}

#[test]
fn json_keeps_the_curve_and_a_contradiction_in_it_is_refused() {
    let curve = curve(10 * S, 20 * S, &two_states());
    let json = serde_json::to_string(&curve).expect("JSON");
    assert_eq!(serde_json::from_str::<LossCurve>(&json).expect("a curve"), curve);
    let bad = json.replace("\"until\":15000000000", "\"until\":16000000000");
    assert!(bad != json && serde_json::from_str::<LossCurve>(&bad).is_err());
}

/// States in a row, some left out, with acks anywhere before their ends or nothing gone.
fn any_states() -> impl Strategy<Value = (u64, u64, Vec<StateLoss>)> {
    let one = (0u64..12, prop::bool::weighted(0.8), 0u64..30, 0u64..4, prop::bool::weighted(0.7));
    (20u64..60, prop::collection::vec(one, 0..8), 0u64..6, 0u64..6).prop_map(
        |(begin, raws, early, late)| {
            let (mut at, mut states) = (begin - early, Vec::new());
            for (length, known, age, error, lost) in raws {
                let until = at + length;
                let ack = until.saturating_sub(age);
                if known {
                    states.push(state(at, until, lost.then(|| gone(ack, ack + error)).flatten()));
                }
                at = until;
            }
            (begin, (at + late).max(begin + 6) - 5, states)
        },
    )
}

/// What the definition says of an instant, given in half nanoseconds.
fn by_definition(states: &[StateLoss], half_ns: u64, bound: Bound) -> Option<f64> {
    let inside = |state: &&StateLoss| (2 * state.from.0..2 * state.until.0).contains(&half_ns);
    let state = states.iter().find(inside)?;
    let age = |ack: u64| (half_ns as f64 / 2.0 - ack as f64).max(0.0);
    Some(state.oldest_gone.map_or(0.0, |ack| match bound {
        Bound::Lo => age(ack.hi.0),
        Bound::Hi => age(ack.lo.0),
    }))
}

/// The curve in the middle of each nanosecond of the load: over one, it is 0 or grows by one.
fn middles(begin: u64, cut: u64, states: &[StateLoss], bound: Bound) -> Vec<f64> {
    (begin..cut).filter_map(|at| by_definition(states, 2 * at + 1, bound)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn value_maximum_and_mean_are_those_of_every_nanosecond(case in any_states()) {
        let (begin, cut, states) = case;
        let curve = curve(begin, cut, &states);
        for at in begin..cut {
            let value = curve.value_at(LabNs(at)).map(|span| (span.lo_ns as f64, span.hi_ns as f64));
            let by = |bound| by_definition(&states, 2 * at, bound);
            prop_assert_eq!(value, by(Bound::Lo).zip(by(Bound::Hi)));
        }
        let (lows, highs) = (
            middles(begin, cut, &states, Bound::Lo),
            middles(begin, cut, &states, Bound::Hi),
        );
        prop_assert_eq!(curve.known_ns(), lows.len() as u64);
        prop_assert_eq!(curve.known_ns() + curve.unknown_ns(), cut - begin);
        prop_assert_eq!(curve.is_complete(), lows.len() as u64 == cut - begin && cut > begin);
        // Where the curve grows, its value at the end of a nanosecond is half of one more.
        let top = |middles: &[f64]| middles.iter().map(|middle| middle.ceil() as i64).max();
        let peak = curve.maximum().map(|peak| (peak.window.lo_ns, peak.window.hi_ns));
        prop_assert_eq!(peak, top(&lows).zip(top(&highs)));
        if let (Some(mean), count) = (curve.mean(), lows.len() as f64) {
            prop_assert!((mean.lo * 1e9 - lows.iter().sum::<f64>() / count).abs() < 1e-6);
            prop_assert!((mean.hi * 1e9 - highs.iter().sum::<f64>() / count).abs() < 1e-6);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_samples_and_grow(
        case in any_states(), mut qs in prop::collection::vec(0.0f64..=1.0, 1..8),
    ) {
        let (begin, cut, states) = case;
        let curve = curve(begin, cut, &states);
        for bound in [Bound::Lo, Bound::Hi] {
            let mut sorted = middles(begin, cut, &states, bound);
            sorted.sort_unstable_by(f64::total_cmp);
            for &q in &qs {
                let Some(quantile) = curve.quantile(q) else {
                    prop_assert!(sorted.is_empty());
                    continue;
                };
                let found = 1e9 * if bound == Bound::Lo { quantile.lo } else { quantile.hi };
                // Each sample stands for a nanosecond of time and at most one of value.
                let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize - 1;
                prop_assert!((found - sorted[rank]).abs() <= 0.5 + 1e-6, "{q}: {found} {sorted:?}");
            }
        }
        qs.sort_unstable_by(f64::total_cmp);
        let all: Vec<Seconds> = qs.iter().filter_map(|q| curve.quantile(*q)).collect();
        prop_assert!(all.windows(2).all(|two| two[0].lo <= two[1].lo && two[0].hi <= two[1].hi));
        prop_assert!(all.iter().all(|quantile| quantile.lo <= quantile.hi));
        if let (Some(all), Some(peak)) = (curve.quantile(1.0), curve.maximum()) {
            prop_assert_eq!(all, Seconds::from(peak.window));
        }
    }

    #[test]
    fn later_acks_lose_less_and_a_later_run_loses_the_same(
        case in any_states(), later in 0u64..9, shift in 0u64..1_000,
    ) {
        let (begin, cut, states) = case;
        let moved = |states: &[StateLoss], by: u64, acks: u64| -> Vec<StateLoss> {
            let ack = |ack: LabInterval| gone(ack.lo.0 + acks, ack.hi.0 + acks);
            states
                .iter()
                .map(|s| state(s.from.0 + by, s.until.0 + by, s.oldest_gone.and_then(ack)))
                .collect()
        };
        let numbers = |curve: &LossCurve| {
            let peak = curve.maximum().map(|peak| peak.window);
            (peak, curve.mean(), curve.quantile(0.3), curve.quantile(0.9))
        };
        let here = curve(begin, cut, &states);
        let shifted = curve(begin + shift, cut + shift, &moved(&states, shift, shift));
        prop_assert_eq!(numbers(&here), numbers(&shifted));
        let less = curve(begin, cut, &moved(&states, 0, later));
        if let (Some(more), Some(less)) = (here.mean(), less.mean()) {
            prop_assert!(less.lo <= more.lo && less.hi <= more.hi);
        }
        if let (Some(more), Some(less)) = (here.quantile(0.6), less.quantile(0.6)) {
            prop_assert!(less.lo <= more.lo && less.hi <= more.hi);
        }
    }
}
