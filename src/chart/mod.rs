//! Charts as SVG text: pure functions from numbers to one self-contained file.
//!
//! What always holds: same numbers, same bytes; no script, no font file, nothing fetched; readable on
//! a light and on a dark page, in print and without telling colours apart; the size is bounded
//! however many points there are, and no peak is thinned away.

mod axis;
mod labels;
mod loss_curve;
mod svg;
#[cfg(test)]
mod tests;
mod thin;

pub use loss_curve::{LossChart, loss_curve_svg};
