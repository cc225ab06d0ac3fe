//! In which order states are looked at. Pure.
//!
//! Under a model without chance a state holds everything that an earlier one held, for what is
//! durable stays so. So where two states have lost the same oldest operation, all between them have
//! too; looking first where neighbours differ finds the whole curve's shape, and its worst instant,
//! after a few states. The others follow, for the claims that each state is judged by.

use super::state::StateOutcome;
use crate::history::clock::LabInterval;
use std::collections::BTreeMap;

/// How to go through a list of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// First where neighbours differ, then the widest gap.
    Bisect,
    /// One after the other: consecutive states cost least to prepare.
    Ascending,
}

/// The oldest acked operation that is gone of each dataset: what the curve follows.
pub type Losses = Vec<Option<LabInterval>>;

/// The losses of a state.
pub fn losses(outcome: &StateOutcome) -> Losses {
    outcome.datasets.values().map(|fate| fate.oldest_gone).collect()
}

impl Order {
    /// The next of `count` states to look at; `None` when all were.
    pub fn next(self, count: u32, done: &BTreeMap<u32, Losses>) -> Option<u32> {
        let dense = done.last_key_value().is_none_or(|(last, _)| *last as usize + 1 == done.len());
        let first_missing = match dense {
            true => Some(done.len() as u32).filter(|next| *next < count)?,
            false => (0..count).find(|index| !done.contains_key(index))?,
        };
        if self == Order::Ascending {
            return Some(first_missing);
        }
        let ends = [count - 1, 0].into_iter().find(|end| !done.contains_key(end));
        ends.or_else(|| {
            let pairs = done.iter().zip(done.iter().skip(1));
            let gaps = pairs.filter(|((a, _), (b, _))| *b - *a > 1);
            let widest = gaps.max_by_key(|((a, before), (b, after))| (before != after, *b - *a));
            widest.map(|((a, _), (b, _))| a + (b - a) / 2)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::LabNs;
    use proptest::prelude::*;

    fn gone(at: u64) -> Losses {
        vec![Some(LabInterval::exact(LabNs(at)))]
    }

    /// Walks a list whose losses are known, until the order says that it is done.
    fn walk(order: Order, losses: &[u64]) -> Vec<u32> {
        let (mut done, mut walked) = (BTreeMap::new(), Vec::new());
        while let Some(next) = order.next(losses.len() as u32, &done) {
            done.insert(next, gone(losses[next as usize]));
            walked.push(next);
        }
        walked
    }

    proptest! {
        #[test]
        fn every_state_comes_once(mut losses in prop::collection::vec(0u64..6, 0..60)) {
            losses.sort_unstable();
            for order in [Order::Bisect, Order::Ascending] {
                let mut walked = walk(order, &losses);
                walked.sort_unstable();
                prop_assert_eq!(walked, (0..losses.len() as u32).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_change_between_a_thousand_states_is_pinned_down_first() {
        let losses: Vec<u64> = (0..1000).map(|n| u64::from(n >= 617)).collect();
        let walked = walk(Order::Bisect, &losses);
        let both = |walked: &[u32]| walked.contains(&616) && walked.contains(&617);
        let after = (1..=walked.len()).find(|&n| both(&walked[..n]));
        assert!(after.is_some_and(|n| n <= 13), "{after:?}");
    }

    #[test]
    fn a_list_of_no_states_is_done() {
        assert_eq!(Order::Bisect.next(0, &BTreeMap::new()), None);
        assert_eq!(Order::Ascending.next(0, &BTreeMap::new()), None);
    }
}
