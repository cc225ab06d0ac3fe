//! Watches the disk for new transaction groups, and chooses the worst instant for a cut.
//!
//! The uberblock of a new txg takes everything acknowledged since the last one with it as long as
//! it is not durable. So the worst cut comes when it was written, and the first flush that would
//! make it durable is about to be answered: then that answer never comes.

use crate::trace::{Command, RequestNo};
use crate::units::Txg;

/// When the disk itself cuts the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutRule {
    /// Before the flush that would make a new txg durable.
    AtCommit {
        /// Which of the new txgs from now on, from 1.
        nth: u32,
    },
}

/// How far a chosen txg has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    /// Its uberblock was written and not answered.
    Written { write: RequestNo, txg: Txg },
    /// Its uberblock was answered; flushes from this number on cover it.
    Answered { from: RequestNo, txg: Txg },
}

/// The watch over one disk.
#[derive(Debug, Default)]
pub(super) struct CommitWatch {
    highest: Option<Txg>,
    /// New txgs until the one that is cut.
    left: Option<u32>,
    chosen: Option<Chosen>,
}

impl CommitWatch {
    /// Takes a rule; it replaces an earlier one.
    pub fn arm(&mut self, rule: CutRule) {
        let CutRule::AtCommit { nth } = rule;
        self.left = Some(nth.max(1));
        self.chosen = None;
    }

    /// A write with the uberblock of `txg` arrived. Tells whether that is a new txg.
    pub fn wrote(&mut self, write: RequestNo, txg: Txg) -> bool {
        if self.highest.is_some_and(|highest| txg <= highest) {
            return false;
        }
        self.highest = Some(txg);
        if let Some(left) = &mut self.left {
            *left -= 1;
            if *left == 0 {
                self.left = None;
                self.chosen = Some(Chosen::Written { write, txg });
            }
        }
        true
    }

    /// A request is about to be answered, and `next` is the number that the next one will get. The
    /// txg whose commit that would be is told if the power must go instead.
    pub fn answers(
        &mut self,
        no: RequestNo,
        command: Command,
        fua: bool,
        next: RequestNo,
    ) -> Option<Txg> {
        match self.chosen? {
            Chosen::Written { write, txg } if no == write => {
                if fua {
                    return Some(txg);
                }
                self.chosen = Some(Chosen::Answered { from: next, txg });
                None
            }
            Chosen::Answered { from, txg } if command == Command::Flush && no >= from => Some(txg),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: (Command, bool) = (Command::Flush, false);
    const WRITE: (Command, bool) = (Command::Write, false);

    fn answers(watch: &mut CommitWatch, no: u64, what: (Command, bool), next: u64) -> Option<Txg> {
        watch.answers(RequestNo(no), what.0, what.1, RequestNo(next))
    }

    #[test]
    fn the_cut_comes_at_the_first_flush_that_arrived_after_the_uberblocks_reply() {
        let mut watch = CommitWatch::default();
        assert!(watch.wrote(RequestNo(0), Txg(10)));
        watch.arm(CutRule::AtCommit { nth: 2 });
        assert!(!watch.wrote(RequestNo(1), Txg(10)), "seen before");
        assert!(watch.wrote(RequestNo(2), Txg(11)), "the first since");
        assert_eq!(answers(&mut watch, 2, WRITE, 3), None);
        assert_eq!(answers(&mut watch, 3, FLUSH, 4), None, "not the chosen txg");
        assert!(watch.wrote(RequestNo(4), Txg(12)), "the second: chosen");
        // A flush (5) arrives before the uberblock is answered, and is answered after it.
        assert_eq!(answers(&mut watch, 4, WRITE, 6), None);
        assert_eq!(answers(&mut watch, 5, FLUSH, 6), None, "does not cover the uberblock");
        assert_eq!(answers(&mut watch, 6, WRITE, 8), None);
        assert_eq!(answers(&mut watch, 7, FLUSH, 8), Some(Txg(12)));
    }

    #[test]
    fn an_uberblock_written_with_fua_is_cut_at_its_own_reply() {
        let mut watch = CommitWatch::default();
        watch.arm(CutRule::AtCommit { nth: 1 });
        assert!(watch.wrote(RequestNo(0), Txg(5)));
        assert_eq!(answers(&mut watch, 1, (Command::Write, true), 2), None, "another write");
        assert_eq!(answers(&mut watch, 0, (Command::Write, true), 2), Some(Txg(5)));
    }

    #[test]
    fn nothing_is_cut_unless_a_rule_was_given() {
        let mut watch = CommitWatch::default();
        assert!(watch.wrote(RequestNo(0), Txg(5)));
        assert_eq!(answers(&mut watch, 0, (Command::Write, true), 1), None);
        assert_eq!(answers(&mut watch, 1, FLUSH, 2), None);
    }
}
