//! The loss curves of a run: when the power goes against how much of what was acked is gone.

use super::axis::Axis;
use super::labels::{Area, Labels};
use super::svg::{Escaped, fit, width};
use super::thin::{self, Point};
use crate::units::LabNs;
use crate::verify::curve::{LossCurve, Peak};
use std::fmt::Write;

/// What stands beside the curves.
#[derive(Debug, Clone, Copy)]
pub struct LossChart<'a> {
    /// First line.
    pub title: &'a str,
    /// Second line, smaller.
    pub subtitle: &'a str,
    /// When commits became durable.
    pub commits: &'a [LabNs],
    /// The longest window that was claimed, in seconds.
    pub claim_s: Option<f64>,
    /// The instant at which the horizontal axis starts: the load's begin.
    pub begin: LabNs,
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 460.0;
const PLOT: Area = Area { left: 64.0, top: 104.0, right: 940.0, bottom: 404.0 };
const FONT_PX: f64 = 13.0;
/// A dataset's longer name is cut.
const NAME_PX: f64 = 180.0;
/// Above this share of the highest curve a claim would flatten the curves, and stays off the chart.
const CLAIM_SHARE_MAX: f64 = 4.0;

/// Colours from Okabe and Ito's palette, which colour-blind readers can tell apart, lightened for
/// dark pages; dashes tell them apart in print.
const LINES: [(&str, &str, &str); 6] = [
    ("#0072b2", "#56b4e9", "none"),
    ("#d55e00", "#ff9a4d", "9 3"),
    ("#009e73", "#2fd6a5", "3 2"),
    ("#a8487f", "#e6a0c8", "12 3 2 3"),
    ("#a87400", "#f0c040", "6 2 2 2 2 2"),
    ("#444444", "#cccccc", "2 4"),
];

/// Draws the upper bounds of the curves, each with its name and its maximum.
pub fn loss_curve_svg(curves: &[(&str, &LossCurve)], chart: &LossChart) -> String {
    let mut drawing = Drawing::new(curves, chart);
    drawing.head();
    drawing.axes();
    drawing.unknown();
    drawing.commits();
    drawing.curves();
    drawing.claim();
    drawing.peaks();
    drawing.legend();
    drawing.out.push_str("</svg>\n");
    drawing.out
}

struct Drawing<'a> {
    curves: &'a [(&'a str, &'a LossCurve)],
    chart: &'a LossChart<'a>,
    x: Axis,
    y: Axis,
    labels: Labels,
    out: String,
}

/// Appends a line of SVG.
macro_rules! put {
    ($drawing:expr, $($text:tt)*) => {
        // Writing to a String cannot fail.
        let _ = writeln!($drawing.out, $($text)*);
    };
}

impl<'a> Drawing<'a> {
    fn new(curves: &'a [(&'a str, &'a LossCurve)], chart: &'a LossChart<'a>) -> Drawing<'a> {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let ends = curves.iter().map(|(_, curve)| curve.cut().0.saturating_sub(chart.begin.0));
        let peaks = curves.iter().filter_map(|(_, curve)| curve.maximum());
        let highest = peaks.map(|peak| peak.window.hi_ns as f64 / 1e9).fold(0.0, f64::max);
        let claim = chart.claim_s.filter(|claim| shows(*claim, highest)).unwrap_or(0.0);
        // Room for the labels above the highest point.
        let top = highest.max(claim) * 1.08;
        Drawing {
            curves,
            chart,
            x: Axis::exact(seconds(ends.max().unwrap_or(0)), 10, (PLOT.left, PLOT.right)),
            y: Axis::rounded(top, 6, (PLOT.bottom, PLOT.top)),
            labels: Labels::new(PLOT, FONT_PX),
            out: String::new(),
        }
    }

    /// Pixels of an instant.
    fn at(&self, at: LabNs) -> f64 {
        self.x.place(at.0.saturating_sub(self.chart.begin.0) as f64 / 1e9)
    }

    fn head(&mut self) {
        let chart = self.chart;
        put!(
            self,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"{FONT_PX}\">"
        );
        put!(self, "<title>{}</title>", Escaped(chart.title));
        put!(self, "<desc>{}</desc>", Escaped(&self.description()));
        self.style();
        put!(
            self,
            "<rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n<text class=\"ink\" x=\"16\" y=\"28\" font-size=\"17\" font-weight=\"600\">{}</text>\n<text class=\"soft\" x=\"16\" y=\"50\">{}</text>",
            Escaped(&fit(chart.title, 17.0, WIDTH - 32.0)),
            Escaped(&fit(chart.subtitle, FONT_PX, WIDTH - 32.0))
        );
    }

    /// The chart in words, for those who do not see it.
    fn description(&self) -> String {
        let mut words = String::from("Loss window at most, against the instant of the cut.");
        for (name, curve) in self.curves {
            let _ = match curve.maximum() {
                Some(peak) => write!(words, " {name}: {}.", self.peak_words(&peak, curve)),
                None => write!(words, " {name}: not known."),
            };
        }
        words
    }

    fn peak_words(&self, peak: &Peak, curve: &LossCurve) -> String {
        let (lo, hi) = (peak.window.lo_ns as f64 / 1e9, peak.window.hi_ns as f64 / 1e9);
        if peak.window.hi_ns == 0 {
            let all = curve.unknown_ns() == 0;
            return if all { "loses nothing" } else { "loses nothing where known" }.to_owned();
        }
        let at = peak.at.0.saturating_sub(self.chart.begin.0) as f64 / 1e9;
        let (low, high) = (format!("{lo:.3}"), format!("{hi:.3}"));
        let window = if low == high { high } else { format!("{low} to {high}") };
        format!("max {window} s at {at:.1} s")
    }

    fn style(&mut self) {
        let colours = |dark: bool| {
            LINES.iter().enumerate().fold(String::new(), |mut css, (n, (on_light, on_dark, _))| {
                let colour = if dark { on_dark } else { on_light };
                let _ = write!(css, ".l{n}{{stroke:{colour}}}.d{n}{{fill:{colour}}}");
                css
            })
        };
        put!(
            self,
            "<style>.page{{fill:#fff}}.ink{{fill:#1b1f24}}.soft{{fill:#57606a}}.grid{{stroke:#d8dee4}}.axis{{stroke:#57606a}}.tick{{stroke:#8c959f}}.hatch{{stroke:#8c959f}}.claim{{stroke:#1b1f24}}.halo{{stroke:#fff;stroke-width:4;stroke-linejoin:round;paint-order:stroke}}{}",
            colours(false)
        );
        put!(
            self,
            "@media(prefers-color-scheme:dark){{.page{{fill:#14171c}}.ink{{fill:#e6edf3}}.soft{{fill:#a2acb8}}.grid{{stroke:#2d333b}}.axis{{stroke:#a2acb8}}.tick{{stroke:#768390}}.hatch{{stroke:#768390}}.claim{{stroke:#e6edf3}}.halo{{stroke:#14171c}}{}}}</style>",
            colours(true)
        );
        put!(
            self,
            "<defs><pattern id=\"unknown\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0V6\" stroke-width=\"2\" opacity=\".55\"/></pattern></defs>"
        );
    }

    fn axes(&mut self) {
        let Area { left, right, top, bottom } = PLOT;
        let mut grid = String::new();
        let mut texts = String::new();
        for (value, label) in self.y.ticks() {
            let y = self.y.place(value);
            let _ = write!(grid, "M{left} {y:.1}H{right}");
            let _ = writeln!(
                texts,
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 8.0,
                y + 4.5
            );
        }
        let mut ticks = String::new();
        for (value, label) in self.x.ticks() {
            let x = self.x.place(value);
            let _ = write!(ticks, "M{x:.1} {bottom}v5");
            let _ = writeln!(
                texts,
                "<text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{label}</text>",
                bottom + 20.0
            );
        }
        put!(self, "<path class=\"grid\" d=\"{grid}\"/>");
        put!(
            self,
            "<path class=\"axis\" fill=\"none\" d=\"M{left} {top}V{bottom}H{right}{ticks}\"/>"
        );
        put!(self, "<g class=\"soft\">\n{texts}</g>");
        put!(
            self,
            "<text class=\"soft\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">cut after this much load (s)</text>",
            (left + right) / 2.0,
            bottom + 42.0
        );
        put!(
            self,
            "<text class=\"soft\" transform=\"translate(18 {:.0})rotate(-90)\" text-anchor=\"middle\">loss window at most (s)</text>",
            (top + bottom) / 2.0
        );
    }

    fn unknown(&mut self) {
        let mut gaps: Vec<(f64, f64)> = unknown(self.curves)
            .into_iter()
            .map(|(from, until)| (self.at(from), self.at(until)))
            .collect();
        gaps.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        let mut bands = String::new();
        for (from, until) in thin::merge(gaps, 1.0) {
            // A gap too narrow to see is still a gap.
            let wide = (until - from).max(1.0);
            let _ = write!(bands, "M{from:.1} {}h{wide:.1}V{}h-{wide:.1}z", PLOT.top, PLOT.bottom);
        }
        if !bands.is_empty() {
            put!(self, "<path class=\"unknown\" fill=\"url(#unknown)\" d=\"{bands}\"/>");
        }
        if self.curves.iter().all(|(_, curve)| curve.pieces().is_empty()) {
            let (x, y) = ((PLOT.left + PLOT.right) / 2.0, (PLOT.top + PLOT.bottom) / 2.0);
            put!(
                self,
                "<text class=\"ink halo\" x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"middle\">nothing is known</text>"
            );
        }
    }

    fn commits(&mut self) {
        let mut places: Vec<f64> = (self.chart.commits.iter())
            .filter(|commit| **commit >= self.chart.begin)
            .map(|commit| commit.0.saturating_sub(self.chart.begin.0) as f64 / 1e9)
            .filter(|seconds| *seconds <= self.x.end)
            .map(|seconds| self.x.place(seconds))
            .collect();
        places.sort_unstable_by(f64::total_cmp);
        let ticks = thin::merge(places.into_iter().map(|x| (x, x)), 1.5);
        let path = ticks.iter().fold(String::new(), |mut path, (x, _)| {
            let _ = write!(path, "M{x:.1} {}v-9", PLOT.bottom);
            path
        });
        if !path.is_empty() {
            put!(self, "<path class=\"tick commits\" stroke-width=\"1.5\" d=\"{path}\"/>");
        }
    }

    fn curves(&mut self) {
        // With many curves the columns are wider, so that the file stays small.
        let column_px = (self.curves.len() as f64 / 3.0).max(1.0);
        for (n, (_, curve)) in self.curves.iter().enumerate() {
            let offset = curve.begin().0 as f64 - self.chart.begin.0 as f64;
            let place = |since: u64, ns: i64| {
                let seconds = (since as f64 + offset) / 1e9;
                (self.x.place(seconds), self.y.place(ns as f64 / 1e9))
            };
            let points = thin::thin(thin::corners(curve, place), column_px);
            let (line, (_, _, dashes)) = (n % LINES.len(), LINES[n % LINES.len()]);
            put!(
                self,
                "<path class=\"curve l{line}\" fill=\"none\" stroke-width=\"1.8\" stroke-linejoin=\"round\" stroke-dasharray=\"{dashes}\" d=\"{}\"/>",
                path(&points)
            );
        }
    }

    fn claim(&mut self) {
        let Some(claim) = self.chart.claim_s else { return };
        let y = self.y.place(claim);
        let fits = claim <= self.y.end;
        let text = format!("claim: at most {claim} s{}", if fits { "" } else { " (above this)" });
        if fits {
            put!(
                self,
                "<path class=\"claim\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\" d=\"M{} {y:.1}H{}\"/>",
                PLOT.left,
                PLOT.right
            );
            let line = Area { left: PLOT.left, top: y - 1.0, right: PLOT.right, bottom: y + 1.0 };
            self.labels.keep_off(line);
        }
        self.label("claim-label", &text, PLOT.left - 2.0, y);
    }

    fn label(&mut self, class: &str, text: &str, x: f64, y: f64) {
        let (left, baseline) = self.labels.place(text, x, y);
        put!(
            self,
            "<text class=\"ink halo {class}\" x=\"{left:.1}\" y=\"{baseline:.1}\">{}</text>",
            Escaped(text)
        );
    }

    fn peaks(&mut self) {
        for (n, (name, curve)) in self.curves.iter().enumerate() {
            let Some(peak) = curve.maximum() else { continue };
            let (x, y) = (self.at(peak.at), self.y.place(peak.window.hi_ns as f64 / 1e9));
            put!(
                self,
                "<circle class=\"peak d{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>",
                n % LINES.len()
            );
            self.labels.keep_off(Area {
                left: x - 5.0,
                top: y - 5.0,
                right: x + 5.0,
                bottom: y + 5.0,
            });
            let mut words = self.peak_words(&peak, curve);
            if self.curves.len() > 1 {
                words = format!("{}: {words}", fit(name, FONT_PX, NAME_PX));
            }
            self.label("peak-label", &words, x, y);
        }
    }

    fn legend(&mut self) {
        let mut x = 16.0;
        let y = 76.0;
        let mut entries: Vec<(String, String)> = Vec::new();
        for (n, (name, _)) in self.curves.iter().enumerate() {
            let (line, (_, _, dashes)) = (n % LINES.len(), LINES[n % LINES.len()]);
            let mark = format!(
                "class=\"l{line}\" fill=\"none\" stroke-width=\"2.5\" stroke-dasharray=\"{dashes}\" d=\"M0 0h26\""
            );
            entries.push((mark, fit(name, FONT_PX, NAME_PX)));
        }
        if !self.chart.commits.is_empty() {
            let mark = "class=\"tick\" stroke-width=\"1.5\" d=\"M9 5v-9M17 5v-9\"".to_owned();
            entries.push((mark, "commit durable".to_owned()));
        }
        if !unknown(self.curves).is_empty() {
            let mark = "fill=\"url(#unknown)\" d=\"M0 -6h26v12h-26z\"".to_owned();
            entries.push((mark, "not known".to_owned()));
        }
        let mut rows = String::new();
        let mut row = 0.0;
        for (mark, text) in entries {
            let wide = 34.0 + width(&text, FONT_PX) + 18.0;
            if x + wide > WIDTH && x > 16.0 {
                (x, row) = (16.0, row + 17.0);
            }
            let _ = writeln!(
                rows,
                "<g transform=\"translate({x:.0} {:.0})\"><path {mark}/><text class=\"ink\" x=\"34\" y=\"4.5\">{}</text></g>",
                y + row,
                Escaped(&text)
            );
            x += wide;
        }
        put!(self, "<g class=\"legend\">\n{rows}</g>");
    }
}

/// Stretches that a reader would miss in the curves: those of which a curve that loses something says
/// nothing, or any, if none loses.
fn unknown(curves: &[(&str, &LossCurve)]) -> Vec<(LabNs, LabNs)> {
    let loses = |curve: &LossCurve| curve.maximum().is_some_and(|peak| peak.window.hi_ns > 0);
    let any_loses = curves.iter().any(|(_, curve)| loses(curve));
    let shown = curves.iter().filter(|(_, curve)| !any_loses || loses(curve));
    shown.flat_map(|(_, curve)| curve.unknown()).collect()
}

/// Whether a claim is drawn as a line.
fn shows(claim: f64, highest: f64) -> bool {
    claim.is_finite() && claim >= 0.0 && (highest == 0.0 || claim <= CLAIM_SHARE_MAX * highest)
}

/// Path data of a polyline with gaps, a tenth of a pixel exact.
fn path(points: &[Point]) -> String {
    points.iter().fold(String::new(), |mut path, point| {
        let command = if point.joined && !path.is_empty() { 'L' } else { 'M' };
        let _ = write!(path, "{command}{:.1} {:.1}", point.x, point.y);
        path
    })
}
