//! What was found of a stream whose operations are transactions, or a program's own: which of them
//! survived, and what the software's own checks said.

use crate::units::StreamId;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// What survived of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedRows {
    /// Which stream.
    pub stream: StreamId,
    /// What the software's own tools said, in the order in which they were asked.
    pub checks: Vec<Check>,
    /// Operations that are there, each whole: ascending, apart from each other.
    pub survived: Vec<RangeInclusive<u64>>,
    /// Places that are neither whole nor absent.
    pub broken: Vec<Broken>,
}

/// One check of the software's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name, for example `integrity_check`.
    pub name: String,
    /// Whether it found nothing.
    pub passed: bool,
    /// Its own words.
    pub words: String,
}

/// A place that is not as any operation left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// The operation, where one can be named.
    pub id: Option<u64>,
    /// What was expected and what was found.
    pub words: String,
}
