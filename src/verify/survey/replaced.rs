//! A file that each operation replaces: it is one whole version, always.
//!
//! Renaming is atomic, so there is no operation in flight that could excuse a part of one: an empty
//! or short file, zeros, or a mix of versions is damage, whatever was acknowledged.

use super::{ObservedBlock, Renamed, Summary, Work};
use crate::record::place::is_zero;
use crate::units::Seq;
use crate::verify::outcome::Outcome;
use crate::workload::plan::Pattern;
use std::collections::BTreeMap;

impl Work<'_> {
    pub(super) fn is_replaced(&self) -> bool {
        self.stream.pattern == Pattern::Replace
    }

    /// Whether it is: whatever is damaged in it is not one whole version.
    pub(super) fn replaced(&self) -> Renamed {
        let broken = self.findings.iter().filter(|finding| finding.outcome.is_damage());
        Renamed { checked: self.newest.0, broken: broken.cloned().collect() }
    }

    /// Finds what only a replaced file must not be; what any file must not be was found already.
    pub(super) fn one_whole_version(&mut self, records: &BTreeMap<u64, Summary>) {
        if !self.is_replaced() || self.said.newest_acked() < Seq(self.stream.fill()) {
            return;
        }
        if !records.contains_key(&0) {
            let nothing = match (self.file.size, self.file.blocks.first()) {
                (None, _) => Some("the file is not there, neither the old version nor a new one"),
                (Some(_), None) => Some("the file is empty, neither the old version nor a new one"),
                (_, Some(ObservedBlock::Zeros)) => Some("zeros where one version was to be"),
                (_, Some(ObservedBlock::Odd(bytes))) if is_zero(bytes) => {
                    Some("zeros where one version was to be, and the file ends inside")
                }
                _ => None,
            };
            if let Some(text) = nothing {
                self.find(Outcome::Hole, None, 0, text.to_owned());
            }
        }
        for slot in 1..self.file.blocks.len() {
            let zeros = match &self.file.blocks[slot] {
                ObservedBlock::Zeros => true,
                ObservedBlock::Odd(bytes) => is_zero(bytes),
                _ => false,
            };
            if zeros {
                let text = "zeros behind the one record of a replaced file".to_owned();
                self.find(Outcome::Garbage, None, slot as u64, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::super::*;
    use Outcome::*;

    fn replaced(written: u64, acked: u64) -> Run {
        Run::new(REPLACE, written, acked)
    }

    #[test]
    fn a_whole_version_is_fine_be_it_the_acked_one_or_the_one_in_flight() {
        replaced(20, 20).expect_whole(&replaced(20, 20).file(20), &[(Survived, 20)]);
        let counts = [(Survived, 20), (UnackedSurvived, 1)];
        replaced(21, 20).expect_whole(&replaced(21, 20).file(21), &counts);
        let counts = [(Survived, 20), (UnackedGone, 1)];
        replaced(21, 20).expect_whole(&replaced(21, 20).file(20), &counts);
    }

    #[test]
    fn an_older_whole_version_is_a_loss_and_no_damage() {
        let run = replaced(20, 20);
        let survey = run.survey_file(&run.observed(&run.file(17)), Promise::Everything);
        assert_eq!(survey.counts, BTreeMap::from([(Survived, 17), (LostThoughDurable, 3)]));
        assert_eq!((survey.missing, places(&survey)), (Missing::From(Seq(18)), Vec::new()));
    }

    #[test]
    fn a_mix_of_versions_is_damage_even_of_an_operation_that_was_not_acked() {
        for front in 1..8 {
            let run = replaced(21, 20);
            let torn = mixed(&run.record(21), &run.record(20), |n| n < front);
            let survey = run.survey(&run.file_but(20, 20, &torn));
            assert_eq!(places(&survey), [(TornAtTransaction, None, 0)]);
            let torn = mixed(&run.record(21), &[0; BLOCK], |n| n < front);
            assert_eq!(places(&run.survey(&vec![torn])), [(TornAtTransaction, None, 0)]);
        }
        let run = replaced(21, 20);
        let torn = mixed(&run.record(21), &run.record(20), |n| n % 2 == 0);
        assert_eq!(places(&run.survey(&vec![torn])), [(TornInSector, None, 0)]);
    }

    /// Asserts that a file with these blocks is damaged at its first place and all acked is lost.
    fn expect_nothing(file: &ObservedFile) {
        let run = replaced(21, 20);
        let survey = run.survey_file(file, Promise::Everything);
        assert_eq!(places(&survey), [(Hole, None, 0)], "{survey:?}");
        assert_eq!((survey.missing, survey.missing_count), (Missing::From(Seq(1)), 20));
    }

    #[test]
    fn a_file_that_is_empty_zeros_or_not_there_is_damage() {
        let run = replaced(21, 20);
        for blocks in [vec![], vec![vec![0; BLOCK]], vec![vec![0; 700]]] {
            expect_nothing(&run.observed(&blocks));
        }
        expect_nothing(&ObservedFile { stream: run.stream.id, size: None, blocks: Vec::new() });
    }

    #[test]
    fn a_short_version_is_torn_and_more_than_one_record_is_garbage() {
        let run = replaced(20, 20);
        let short = vec![run.record(20)[..1024].to_vec()];
        assert_eq!(places(&run.survey(&short)), [(TornAtTransaction, None, 0)]);
        let long = vec![run.record(20), vec![0; BLOCK]];
        assert_eq!(places(&run.survey(&long)), [(Garbage, None, 1)]);
        let twice = vec![run.record(20), run.record(19)];
        assert_eq!(places(&run.survey(&twice)), [(Misdirected, None, 1)]);
    }

    #[test]
    fn nothing_is_asked_of_a_file_whose_first_version_was_never_acked() {
        let run = replaced(1, 0);
        let gone = ObservedFile { stream: run.stream.id, size: None, blocks: Vec::new() };
        assert_eq!(places(&run.survey_file(&gone, Promise::Everything)), []);
    }
}
