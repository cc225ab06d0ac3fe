//! The lists of states in words of the command line.

use super::cuts::Which;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// States in chosen places unless a number is given.
const PLACES: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// Text that names no list of states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not one of every, sample:N, seeds:N, after-ack, in-txg-sync, between-labels, \
     in-journal-commit (each of these four also with :N)"
)]
pub struct WhichError(String);

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Every => f.write_str("every"),
            Which::Sample { states } => write!(f, "sample:{states}"),
            Which::Seeds { per_epoch } => write!(f, "seeds:{per_epoch}"),
            Which::At { place, states } if *states == PLACES => write!(f, "{place}"),
            Which::At { place, states } => write!(f, "{place}:{states}"),
        }
    }
}

impl FromStr for Which {
    type Err = WhichError;

    fn from_str(text: &str) -> Result<Which, WhichError> {
        let bad = || WhichError(text.to_owned());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        match (name, number) {
            ("every", None) => Ok(Which::Every),
            ("sample", Some(states)) => Ok(Which::Sample { states }),
            ("seeds", Some(per_epoch)) => Ok(Which::Seeds { per_epoch }),
            (place, number) => {
                let place = place.parse().map_err(|_| bad())?;
                Ok(Which::At { place, states: number.unwrap_or(PLACES) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_and_other_text_is_refused() {
        for name in ["every", "sample:7", "seeds:2", "after-ack", "in-txg-sync:3", "between-labels"]
        {
            assert_eq!(name.parse::<Which>().expect(name).to_string(), name);
        }
        for bad in ["", "every:3", "sample", "sample:0", "seeds:x", "seeds:-1", "after"] {
            assert!(bad.parse::<Which>().is_err(), "{bad}");
        }
    }
}
