//! Where labels go: next to what they name, within the plot, and not over one another.

use super::svg;

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Area {
    fn overlaps(&self, other: &Area) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn contains(&self, other: &Area) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }
}

/// The labels of a plot as they are placed.
#[derive(Debug)]
pub(super) struct Labels {
    plot: Area,
    font_px: f64,
    taken: Vec<Area>,
}

/// Distance between a label and its point.
const GAP_PX: f64 = 8.0;

impl Labels {
    pub fn new(plot: Area, font_px: f64) -> Labels {
        Labels { plot, font_px, taken: Vec::new() }
    }

    /// Keeps labels off an area.
    pub fn keep_off(&mut self, area: Area) {
        self.taken.push(area);
    }

    /// A place for `text` near the point (x, y): left end and baseline of the text. If all places
    /// are taken, further and further below.
    pub fn place(&mut self, text: &str, x: f64, y: f64) -> (f64, f64) {
        let (wide, high) = (svg::width(text, self.font_px), self.font_px * 1.25);
        let most_left = (self.plot.right - wide).max(self.plot.left);
        let lefts = [x + GAP_PX, x - GAP_PX - wide, x - wide / 2.0]
            .map(|left| left.clamp(self.plot.left, most_left));
        let tops = [y - GAP_PX - high, y - high / 2.0, y + GAP_PX];
        let near = tops.iter().flat_map(|top| lefts.iter().map(|left| (*left, *top)));
        let far = (1..40).map(|n| (lefts[0], y + GAP_PX + f64::from(n) * high));
        let area =
            |(left, top): (f64, f64)| Area { left, top, right: left + wide, bottom: top + high };
        let free = |area: &Area| {
            self.plot.contains(area) && !self.taken.iter().any(|taken| taken.overlaps(area))
        };
        let fallback = area((lefts[0], self.plot.top));
        let chosen = near.chain(far).map(area).find(free).unwrap_or(fallback);
        self.taken.push(chosen);
        (chosen.left, chosen.bottom - self.font_px * 0.3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_one_corner_lie_side_by_side_within_the_plot() {
        let plot = Area { left: 0.0, top: 0.0, right: 300.0, bottom: 200.0 };
        let mut labels = Labels::new(plot, 12.0);
        labels.keep_off(Area { left: 200.0, top: 0.0, right: 300.0, bottom: 20.0 });
        for _ in 0..8 {
            labels.place("a label", 298.0, 1.0);
        }
        let placed = &labels.taken;
        assert_eq!(placed.len(), 9);
        for (at, area) in placed.iter().enumerate() {
            assert!(plot.contains(area), "{area:?}");
            assert!(placed[..at].iter().all(|other| !other.overlaps(area)), "{area:?}");
        }
    }
}
