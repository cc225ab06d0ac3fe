//! An axis: round ticks, and where a value lies in pixels.

/// A linear axis from 0 to at least the largest value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    /// Value at the axis's end.
    pub end: f64,
    /// Value between two ticks: 1, 2 or 5 times a power of ten.
    step: f64,
    /// Pixels at 0 and at the end.
    pixels: (f64, f64),
}

impl Axis {
    /// An axis that ends at `largest`, with at most about `ticks` of them.
    pub fn exact(largest: f64, ticks: u32, pixels: (f64, f64)) -> Axis {
        let end = if largest.is_finite() && largest > 0.0 { largest } else { 1.0 };
        Axis { end, step: nice_step(end, ticks), pixels }
    }

    /// The same, ending at a tick at or above `largest`.
    pub fn rounded(largest: f64, ticks: u32, pixels: (f64, f64)) -> Axis {
        let exact = Axis::exact(largest, ticks, pixels);
        let steps = (exact.end / exact.step - 1e-9).ceil().max(1.0);
        Axis { end: steps * exact.step, ..exact }
    }

    /// Where a value lies, in pixels; what lies outside the axis, at its nearer end.
    pub fn place(&self, value: f64) -> f64 {
        let share = (value / self.end).clamp(0.0, 1.0);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// Ticks with their labels, ascending from 0.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        let count = (self.end / self.step + 1e-9) as u32;
        (0..=count).map(move |n| {
            let value = f64::from(n) * self.step;
            (value, format!("{value:.decimals$}"))
        })
    }
}

/// The smallest of 1, 2, 5 times a power of ten that divides `end` into at most `ticks` parts.
fn nice_step(end: f64, ticks: u32) -> f64 {
    let least = end / f64::from(ticks.max(1));
    let power = 10f64.powf(least.log10().floor());
    let nice = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least * (1.0 - 1e-9));
    nice.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_show_no_more_digits_than_they_need() {
        let axis = |largest| Axis::rounded(largest, 6, (0.0, 100.0));
        assert_eq!(labels(&axis(6.9)), ["0", "2", "4", "6", "8"]);
        assert_eq!(labels(&axis(0.3)), ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"]);
        assert_eq!(labels(&axis(50.0)), ["0", "10", "20", "30", "40", "50"]);
        let exact = Axis::exact(10.4, 10, (0.0, 100.0));
        assert_eq!(labels(&exact).last().map(String::as_str), Some("10"));
        assert_eq!((exact.place(10.4), exact.place(99.0)), (100.0, 100.0));
    }

    proptest! {
        #[test]
        fn any_largest_value_gets_a_few_ticks_within_the_axis(
            largest in prop_oneof![any::<f64>(), 1e-9f64..1e9], ticks in 2u32..12,
        ) {
            for axis in [Axis::exact(largest, ticks, (0.0, 1.0)), Axis::rounded(largest, ticks, (0.0, 1.0))] {
                prop_assert!(axis.end > 0.0 && axis.end.is_finite() || largest > 1e300);
                let ticks_made = axis.ticks().count();
                prop_assert!(ticks_made <= ticks as usize + 2, "{axis:?} {ticks_made}");
            }
        }
    }
}
