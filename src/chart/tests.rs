//! The loss chart: well-formed, bounded, deterministic, and honest about its peaks and gaps.

use super::*;
use crate::history::clock::LabInterval;
use crate::units::LabNs;
use crate::verify::curve::{LossCurve, StateLoss};

const S: u64 = 1_000_000_000;

fn lab(seconds: f64) -> LabNs {
    LabNs(7 * S + (seconds * S as f64) as u64)
}

/// A state by the seconds of load at which it begins and ends and the oldest gone was acked.
fn state(from: f64, until: f64, acked: Option<f64>) -> StateLoss {
    let oldest_gone = acked.map(|at| LabInterval::exact(lab(at)));
    StateLoss { from: lab(from), until: lab(until), oldest_gone }
}

fn curve(until: f64, states: &[StateLoss]) -> LossCurve {
    LossCurve::new(lab(0.0), lab(until), states.iter().copied()).expect("a curve")
}

/// A transaction group every five seconds beside an intent log.
fn customer() -> LossCurve {
    curve(
        18.0,
        &[
            state(0.0, 5.4, Some(0.1)),
            state(5.4, 10.9, Some(5.05)),
            state(10.9, 13.0, Some(10.1)),
            state(14.0, 18.0, Some(11.1)),
        ],
    )
}

fn billing() -> LossCurve {
    curve(18.0, &[state(0.0, 18.0, None)])
}

fn chart<'a>(commits: &'a [LabNs], claim_s: Option<f64>) -> LossChart<'a> {
    let subtitle = "seed 7, drop-unflushed, on an emulated CPU";
    LossChart { title: "zfs <sync=disabled> & \"co\"", subtitle, commits, claim_s, begin: lab(0.0) }
}

/// Parses it, and gives the texts in order.
fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).expect("well-formed XML");
    let is_text = |node: &roxmltree::Node| node.has_tag_name("text");
    let texts = document.descendants().filter(is_text);
    texts.filter_map(|node| node.text()).map(str::to_owned).collect()
}

/// The points of each curve's path.
fn lines(svg: &str) -> Vec<Vec<(f64, f64)>> {
    let document = roxmltree::Document::parse(svg).expect("well-formed XML");
    let is_curve = |node: &roxmltree::Node| {
        node.attribute("class").is_some_and(|class| class.starts_with("curve"))
    };
    let number = |text: &str| text.parse::<f64>().expect("a number");
    let point = |text: &str| {
        let (x, y) = text.split_once(' ').expect("two numbers");
        (number(x), number(y))
    };
    let points = |data: &str| data.split(['M', 'L']).skip(1).map(point).collect();
    document
        .descendants()
        .filter(is_curve)
        .filter_map(|node| node.attribute("d"))
        .map(points)
        .collect()
}

#[test]
fn title_claim_maximum_names_and_gaps_are_there_and_the_text_is_escaped() {
    let (customer, billing) = (customer(), billing());
    let commits = [lab(5.4), lab(10.9)];
    let svg = loss_curve_svg(
        &[("customer", &customer), ("billing", &billing)],
        &chart(&commits, Some(5.0)),
    );
    let texts = texts(&svg);
    for expected in [
        "zfs <sync=disabled> & \"co\"",
        "claim: at most 5 s",
        "customer: max 6.900 s at 18.0 s",
        "billing: loses nothing",
        "customer",
        "billing",
        "commit durable",
        "not known",
    ] {
        assert!(texts.iter().any(|text| text == expected), "{expected} is not in {texts:?}");
    }
    assert!(svg.contains("class=\"unknown\"") && svg.contains("class=\"tick commits\""));
    for banned in ["<script", "href", "@import", "@font-face", "<image"] {
        assert!(!svg.contains(banned), "{banned}");
    }
    assert_eq!(lines(&svg)[0].len(), 4 * 2 + 1, "two ends a state, and a bend in the first");
}

#[test]
fn the_same_numbers_give_the_same_bytes() {
    let draw = || loss_curve_svg(&[("customer", &customer())], &chart(&[lab(5.4)], Some(5.0)));
    assert_eq!(draw(), draw());
}

#[test]
fn a_claim_far_above_the_curves_is_said_and_does_not_flatten_them() {
    let svg = loss_curve_svg(&[("customer", &customer())], &chart(&[], Some(3_600.0)));
    assert!(texts(&svg).contains(&"claim: at most 3600 s (above this)".to_owned()));
    let highest = lines(&svg)[0].iter().map(|(_, y)| *y).fold(f64::MAX, f64::min);
    assert!(highest < 200.0, "the curve uses the chart's height: {highest}");
}

#[test]
fn extremes_are_drawn_without_a_panic() {
    let nothing = curve(18.0, &[]);
    let empty = curve(0.0, &[]);
    let zero = billing();
    let one = curve(1e-9, &[state(0.0, 1e-9, None)]);
    let old = curve(
        18.0,
        &[StateLoss {
            oldest_gone: Some(LabInterval { lo: LabNs(0), hi: LabNs(u64::MAX) }),
            ..state(0.0, 18.0, None)
        }],
    );
    let far = LossCurve::new(
        LabNs(0),
        LabNs(u64::MAX),
        [StateLoss {
            from: LabNs(0),
            until: LabNs(u64::MAX),
            oldest_gone: Some(LabInterval::exact(LabNs(0))),
        }],
    )
    .expect("a curve");
    for curves in [
        &[][..],
        &[("nothing", &nothing)],
        &[("empty", &empty)],
        &[("zero", &zero)],
        &[("one", &one), ("old", &old), ("far", &far)],
    ] {
        for claim in [None, Some(0.0), Some(5.0), Some(f64::NAN), Some(f64::INFINITY), Some(-1.0)] {
            let svg = loss_curve_svg(curves, &chart(&[LabNs(0), LabNs(u64::MAX)], claim));
            let texts = texts(&svg);
            let known = curves.iter().any(|(_, curve)| !curve.pieces().is_empty());
            assert_eq!(!known, texts.iter().any(|text| text == "nothing is known"), "{texts:?}");
            assert!(!svg.contains("NaN") || claim.is_some_and(f64::is_nan), "{svg}");
        }
    }
}

/// A curve of very many states of uneven height, with gaps.
fn crowded(states: u32) -> LossCurve {
    let length = 20.0 / f64::from(states);
    let all: Vec<StateLoss> = (0..states)
        .filter(|n| n % 17 != 3)
        .map(|n| {
            let (from, until) = (f64::from(n) * length, f64::from(n + 1) * length);
            let height = f64::from(n.wrapping_mul(2_654_435_761) % 1_000) / 200.0;
            state(from, until, Some((until - height).max(0.0)))
        })
        .collect();
    curve(20.0, &all)
}

#[test]
fn a_hundred_thousand_states_make_a_small_chart_that_loses_no_local_maximum() {
    let crowded = crowded(100_000);
    let commits: Vec<LabNs> = (0..100_000).map(|n| lab(f64::from(n) * 0.0002)).collect();
    let chart = chart(&commits, Some(5.0));
    let curves = [("a", &crowded), ("b", &crowded), ("c", &crowded)];
    let svg = loss_curve_svg(&curves, &chart);
    assert!(svg.len() < 200_000, "{} bytes", svg.len());
    let many = loss_curve_svg(&[("a", &crowded); 12], &chart);
    assert!(many.len() < 220_000, "{} bytes", many.len());

    let line = &lines(&svg)[0];
    let (left, right, bottom) = (64.0, 940.0, 404.0);
    let peak = crowded.maximum().expect("known").window.hi_ns as f64;
    let top = line.iter().map(|(_, y)| *y).fold(f64::MAX, f64::min);
    let mut highest = [f64::MAX; 1_000];
    for (x, y) in line {
        let column = x.floor() as usize;
        highest[column] = highest[column].min(*y);
        // A tenth of a pixel may round a point over the edge of its column.
        highest[(x - 0.051).floor() as usize] = highest[(x - 0.051).floor() as usize].min(*y);
    }
    for piece in crowded.pieces() {
        let since = (piece.until.0 - crowded.begin().0) as f64 / 20e9;
        let age = piece.oldest_gone.map_or(0, |ack| piece.until.0 - ack.lo.0) as f64;
        let (x, y) = (left + since * (right - left), bottom - (bottom - top) * age / peak);
        assert!(highest[x as usize] <= y + 0.2, "the maximum at {x:.2} {y:.2} is lost");
    }
}
