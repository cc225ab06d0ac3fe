//! What became of an operation, or of a place: classes, not pass or fail.

use crate::units::{Seq, StreamId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The class of one operation's fate, or of one place's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Acked and there, or overwritten by a later operation that is there.
    Survived,
    /// Announced, not acked, not there.
    UnackedGone,
    /// Not acked and there, whole.
    UnackedSurvived,
    /// In flight at the cut and there in part, as its stack allows.
    InFlightInPart,
    /// Acked and gone where only recent loss was claimed.
    LostInWindow,
    /// Acked and gone where durability was promised.
    LostThoughDurable,
    /// Zeros where a survivor implies a record.
    Hole,
    /// An older version where a survivor implies a newer one.
    Stale,
    /// The first sectors of a newer operation before the rest of an older one: a write that was
    /// split over two transactions.
    TornAtTransaction,
    /// Any other mix of operations, or damage inside a sector.
    TornInSector,
    /// A whole record of this run in a place that is not its own.
    Misdirected,
    /// A record of another run.
    Foreign,
    /// Nothing that anyone wrote.
    Garbage,
    /// The read failed.
    Unreadable,
    /// An operation is gone that a later one, which is there, implies.
    Gap,
    /// An operation that is there in part, or with other contents than it wrote.
    Broken,
    /// The software's own check of what it finds.
    FailedCheck,
}

impl Outcome {
    /// Whether a place with this content is damage, whatever was claimed about loss.
    pub fn is_damage(self) -> bool {
        use Outcome::*;
        match self {
            Survived | UnackedGone | UnackedSurvived | InFlightInPart | LostInWindow
            | LostThoughDurable => false,
            Hole | Stale | TornAtTransaction | TornInSector | Misdirected | Foreign | Garbage
            | Unreadable | Gap | Broken | FailedCheck => true,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Survived => "survived",
            Outcome::UnackedGone => "un-acked and gone",
            Outcome::UnackedSurvived => "un-acked and survived",
            Outcome::InFlightInPart => "in flight, there in part",
            Outcome::LostInWindow => "lost within the window",
            Outcome::LostThoughDurable => "lost though durable was promised",
            Outcome::Hole => "hole",
            Outcome::Stale => "stale",
            Outcome::TornAtTransaction => "torn at a transaction boundary",
            Outcome::TornInSector => "torn in a sector",
            Outcome::Misdirected => "misdirected",
            Outcome::Foreign => "foreign",
            Outcome::Garbage => "garbage",
            Outcome::Unreadable => "unreadable",
            Outcome::Gap => "a gap",
            Outcome::Broken => "broken",
            Outcome::FailedCheck => "failed its own check",
        })
    }
}

/// One outcome at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its class.
    pub outcome: Outcome,
    /// The stream whose file it is.
    pub stream: StreamId,
    /// The operation concerned, where one can be named.
    pub seq: Option<Seq>,
    /// Byte offset in the stream's file.
    pub location: u64,
    /// What was expected and what was found.
    pub text: String,
}

impl Finding {
    /// Where it is, in words: operations and checks have no place in a file.
    pub fn place(&self) -> String {
        let stream = self.stream;
        match (self.outcome, self.seq) {
            (Outcome::FailedCheck, _) => format!("stream {stream}"),
            (Outcome::Gap | Outcome::Broken, Some(seq)) => {
                format!("stream {stream} at operation {seq}")
            }
            (Outcome::Gap | Outcome::Broken, None) => format!("stream {stream}"),
            _ => format!("stream {stream} at byte {}", self.location),
        }
    }
}
