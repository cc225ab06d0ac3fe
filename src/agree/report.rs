//! What the cuts showed.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One real cut held against the trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    /// Its seed.
    pub seed: u64,
    /// Seconds of load before it.
    pub load_s: f64,
    /// SHA-256 of the medium that the cut left.
    pub medium_sha256: String,
    /// SHA-256 of the trace's crash state.
    pub trace_sha256: String,
    /// Records read back from the medium.
    pub records: u64,
    /// Streams whose survivors follow from transaction groups alone.
    pub predicted_streams: u32,
    /// What did not agree, if anything did not.
    pub disagreement: Option<String>,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgreeReport {
    /// The scenario's name.
    pub scenario: String,
    /// The cuts.
    pub cuts: Vec<Cut>,
    /// How many agree in everything.
    pub agreeing: u32,
}

impl AgreeReport {
    /// A report of these cuts.
    pub fn new(scenario: &str, cuts: Vec<Cut>) -> AgreeReport {
        let agreeing = cuts.iter().filter(|cut| cut.disagreement.is_none()).count() as u32;
        AgreeReport { scenario: scenario.to_owned(), cuts, agreeing }
    }

    /// 0 if all agree, 4 (the tool's own data do not agree) otherwise.
    pub fn exit_code(&self) -> u8 {
        if self.agreeing as usize == self.cuts.len() && !self.cuts.is_empty() { 0 } else { 4 }
    }
}

impl fmt::Display for AgreeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: real cuts, and what the trace says of each", self.scenario)?;
        writeln!(f, "  seed     load s  image SHA-256     records  predicted")?;
        for cut in &self.cuts {
            let digest = cut.medium_sha256.get(..16).unwrap_or(&cut.medium_sha256);
            let Cut { seed, load_s, records, predicted_streams, .. } = cut;
            write!(f, "  {seed:<8} {load_s:6.3}  {digest}  {records:7}  ")?;
            match &cut.disagreement {
                None => writeln!(f, "{predicted_streams} streams")?,
                Some(words) => writeln!(f, "DISAGREES: {words}")?,
            }
        }
        write!(
            f,
            "  {} of {} agree in image, records and prediction",
            self.agreeing,
            self.cuts.len()
        )
    }
}
