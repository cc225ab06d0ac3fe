//! A curve's outline with no more points than a chart can show.
//!
//! What always holds: in every column of the chart the thinned line reaches the highest and the
//! lowest point that the curve has there, and it enters and leaves the column where the curve does.

use crate::verify::curve::LossCurve;

/// A point of an outline, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
    /// Whether a line leads here from the point before.
    pub joined: bool,
}

/// All corners of the curve's upper bound: `place` maps (ns since the load's begin, ns lost).
pub(super) fn corners<'a>(
    curve: &'a LossCurve,
    place: impl Fn(u64, i64) -> (f64, f64) + 'a,
) -> impl Iterator<Item = Point> + 'a {
    let mut reached = None;
    curve.pieces().iter().flat_map(move |piece| {
        let gone = piece.oldest_gone.map(|ack| ack.lo);
        let bend = gone.filter(|ack| (piece.from..piece.until).contains(ack));
        let joined = reached == Some(piece.from);
        reached = Some(piece.until);
        let corner = |at: crate::units::LabNs, joined| {
            let ns = gone.map_or(0, |ack| at.0.saturating_sub(ack.0));
            let since = at.0.saturating_sub(curve.begin().0);
            let (x, y) = place(since, i64::try_from(ns).unwrap_or(i64::MAX));
            Point { x, y, joined }
        };
        let first = Some(corner(piece.from, joined));
        let corners = [first, bend.map(|at| corner(at, true)), Some(corner(piece.until, true))];
        corners.into_iter().flatten()
    })
}

/// The points of one column, as far as they show.
struct Column {
    index: i64,
    first: Point,
    low: (usize, Point),
    high: (usize, Point),
    last: Point,
    count: usize,
}

impl Column {
    fn new(index: i64, point: Point) -> Column {
        Column { index, first: point, low: (0, point), high: (0, point), last: point, count: 1 }
    }

    fn add(&mut self, point: Point) {
        if point.y < self.low.1.y {
            self.low = (self.count, point);
        }
        if point.y > self.high.1.y {
            self.high = (self.count, point);
        }
        self.last = point;
        self.count += 1;
    }

    fn put(&self, out: &mut Vec<Point>) {
        let mut inside = [self.low, self.high];
        inside.sort_unstable_by_key(|(at, _)| *at);
        out.push(self.first);
        let between = |(at, _): &&(usize, Point)| *at > 0;
        out.extend(inside.iter().filter(between).map(|(_, p)| Point { joined: true, ..*p }));
        if self.count > 1 {
            out.push(Point { joined: true, ..self.last });
        }
    }
}

/// At most four points for each column of `column_px` pixels. A gap within a column closes.
pub(super) fn thin(points: impl Iterator<Item = Point>, column_px: f64) -> Vec<Point> {
    let mut out = Vec::new();
    let mut column: Option<Column> = None;
    for point in points {
        let index = (point.x / column_px).floor() as i64;
        match &mut column {
            Some(here) if here.index == index => here.add(point),
            _ => {
                if let Some(done) = column.replace(Column::new(index, point)) {
                    done.put(&mut out);
                }
            }
        }
    }
    if let Some(done) = column {
        done.put(&mut out);
    }
    out.dedup_by(|later, earlier| later.joined && (later.x, later.y) == (earlier.x, earlier.y));
    out
}

/// Stretches of pixels, ascending, of which those closer than `gap_px` are one.
pub(super) fn merge(
    stretches: impl IntoIterator<Item = (f64, f64)>,
    gap_px: f64,
) -> Vec<(f64, f64)> {
    let mut merged: Vec<(f64, f64)> = Vec::new();
    for (from, until) in stretches {
        match merged.last_mut() {
            Some(last) if from - last.1 < gap_px => last.1 = last.1.max(until),
            _ => merged.push((from, until)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_column_keeps_its_extremes_its_ends_and_the_order(
            raws in prop::collection::vec((0.0f64..3.0, -50.0f64..50.0, any::<bool>()), 1..300),
        ) {
            let mut x = 0.0;
            let points: Vec<Point> = raws
                .into_iter()
                .map(|(step, y, joined)| {
                    x += step * step / 3.0;
                    Point { x, y, joined }
                })
                .collect();
            let thinned = thin(points.iter().copied(), 1.0);
            prop_assert!(thinned.windows(2).all(|two| two[0].x <= two[1].x));
            let ys = |all: &[Point], column: f64| -> Vec<f64> {
                all.iter().filter(|p| p.x.floor() == column).map(|point| point.y).collect()
            };
            let top = |ys: &[f64]| ys.iter().copied().fold(f64::MIN, f64::max);
            let bottom = |ys: &[f64]| ys.iter().copied().fold(f64::MAX, f64::min);
            for column in 0..=x as u32 {
                let (all, kept) = (ys(&points, column.into()), ys(&thinned, column.into()));
                prop_assert!(kept.len() <= 4);
                prop_assert_eq!((top(&all), bottom(&all)), (top(&kept), bottom(&kept)));
                prop_assert_eq!((all.first(), all.last()), (kept.first(), kept.last()));
            }
        }
    }

    #[test]
    fn stretches_closer_than_a_pixel_are_one() {
        let merged = merge([(0.0, 1.0), (1.5, 1.6), (4.0, 5.0), (4.5, 4.6), (5.0, 6.0)], 1.0);
        assert_eq!(merged, [(0.0, 1.6), (4.0, 6.0)]);
    }
}
