//! What the kill table says, as one document.

use super::mutant::{COLUMNS, Class, Layer, Mutant};
use super::rule::Cell;
use crate::disk::CrashModel;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Version of the document.
pub const FORMAT: u32 = 1;

/// The whole table.
#[derive(Debug, Clone, Serialize)]
pub struct KillTable {
    /// Version of this document.
    pub format: u32,
    /// The command line that made it.
    pub command: String,
    /// Everything random followed from it.
    pub seed: u64,
    /// 0 all caught and no alarm, 1 a fault not caught or an alarm, 3 not everything was tried.
    pub exit_code: u8,
    /// The columns.
    pub models: Vec<String>,
    /// A row for each fault.
    pub mutants: Vec<Row>,
    /// A row for each honest stack.
    pub controls: Vec<ControlRow>,
    /// States of honest stacks that were asked for.
    pub controls_asked: u32,
    /// What ran.
    pub versions: BTreeSet<String>,
    /// Seconds that it took.
    pub took_s: f64,
}

/// What was seen of one fault.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its layer.
    pub layer: Layer,
    /// What it does.
    pub does: &'static str,
    /// The scenario of its control.
    pub scenario: &'static str,
    /// The `--set`s of its control.
    pub sets: Vec<&'static str>,
    /// The `--set`s that planted it.
    pub planted_by: Vec<&'static str>,
    /// Whether a guest ran it.
    pub in_guest: bool,
    /// The claim that must report it.
    pub claim: &'static str,
    /// Its dataset.
    pub dataset: Option<&'static str>,
    /// The class that was named in advance.
    pub class: Class,
    /// By crash model; what is not there was not tried.
    pub cells: BTreeMap<String, Cell>,
    /// Whether some model caught it, and nothing passed that must not.
    pub caught: bool,
    /// Why some cells, or all, are blank.
    pub untried: String,
    /// Whether it was not tried at all.
    pub skipped: bool,
    /// The faults as they were planted, and what was said where one was caught first.
    pub examples: Vec<String>,
}

/// What was seen of an honest stack.
#[derive(Debug, Clone, Serialize)]
pub struct ControlRow {
    /// The scenario.
    pub scenario: &'static str,
    /// States in which all claims held.
    pub held: u32,
    /// States in which there was nothing to judge yet.
    pub not_judged: u32,
    /// Why others could not be judged, one sentence a state.
    #[serde(default)]
    pub unmeasured: Vec<String>,
    /// Recordings.
    pub runs: u32,
    /// Alarms, each with its place.
    pub alarms: Vec<String>,
    /// Why it was not looked at.
    pub skipped: Option<String>,
}

impl Row {
    /// A row of which nothing is known yet.
    pub fn new(mutant: &Mutant) -> Row {
        Row {
            name: mutant.name,
            layer: mutant.layer(),
            does: mutant.does,
            scenario: mutant.base.scenario,
            sets: mutant.base.sets.to_vec(),
            planted_by: mutant.sets().to_vec(),
            in_guest: mutant.base.in_guest,
            claim: mutant.expected.claim.name(),
            dataset: mutant.expected.dataset,
            class: mutant.expected.class,
            cells: BTreeMap::new(),
            caught: false,
            untried: mutant.untried.to_owned(),
            skipped: false,
            examples: Vec::new(),
        }
    }

    /// A row of a fault that could not be tried.
    pub fn skipped(mutant: &Mutant, why: String) -> Row {
        Row { skipped: true, untried: why, ..Row::new(mutant) }
    }

    /// Decides, once all cells are known.
    pub fn decide(&mut self) {
        let cells = || self.cells.values();
        self.caught = cells().any(|cell| cell.caught > 0) && cells().all(|cell| cell.passed == 0);
    }
}

impl KillTable {
    /// The exit code that the rows make: what was seen to be wrong weighs more than what was not
    /// tried.
    pub fn decide(&mut self) {
        let wrong = self.mutants.iter().any(|row| !row.skipped && !row.caught);
        let alarm = self.controls.iter().any(|row| !row.alarms.is_empty());
        let held: u32 = self.controls.iter().map(|row| row.held).sum();
        let untried = self.mutants.iter().any(|row| row.skipped)
            || self.controls.iter().any(|row| row.skipped.is_some() || !row.unmeasured.is_empty())
            || (self.controls_asked > 0 && self.controls.iter().any(|row| row.held == 0))
            || held < self.controls_asked;
        self.exit_code = match (wrong || alarm, untried) {
            (true, _) => 1,
            (false, true) => 3,
            (false, false) => 0,
        };
    }

    /// The columns' names.
    pub fn columns() -> Vec<String> {
        COLUMNS.iter().map(CrashModel::to_string).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::table::MUTANTS;
    use super::*;

    /// A table of two faults and a control, all well.
    pub fn sample() -> KillTable {
        let row = |mutant: &Mutant, model: &str| {
            let cell = Cell { states: 3, caught: 2, ..Cell::default() };
            let cells = BTreeMap::from([
                (model.to_owned(), cell),
                ("keep-all".to_owned(), Cell { states: 3, ..Cell::default() }),
            ]);
            Row { cells, ..Row::new(mutant) }
        };
        let mut mutants = vec![row(&MUTANTS[0], "drop-unflushed"), row(&MUTANTS[3], "torn")];
        mutants.iter_mut().for_each(Row::decide);
        let control = ControlRow {
            scenario: "ext4",
            held: 2000,
            not_judged: 7,
            unmeasured: Vec::new(),
            runs: 4,
            alarms: Vec::new(),
            skipped: None,
        };
        let mut table = KillTable {
            format: FORMAT,
            command: "plugpull mutants".to_owned(),
            seed: 7,
            exit_code: 9,
            models: KillTable::columns(),
            mutants,
            controls: vec![control],
            controls_asked: 2000,
            versions: BTreeSet::from(["Linux 6.12".to_owned()]),
            took_s: 12.0,
        };
        table.decide();
        table
    }

    fn code_of(change: impl Fn(&mut KillTable)) -> u8 {
        let mut table = sample();
        change(&mut table);
        table.mutants.iter_mut().for_each(Row::decide);
        table.decide();
        table.exit_code
    }

    #[test]
    fn all_caught_and_no_alarm_is_0() {
        assert_eq!(code_of(|_| {}), 0);
    }

    #[test]
    fn a_fault_that_does_nothing_makes_1() {
        let no_op = |table: &mut KillTable| {
            for cell in table.mutants[0].cells.values_mut() {
                *cell = Cell { states: cell.states, ..Cell::default() };
            }
        };
        assert_eq!(code_of(no_op), 1);
    }

    #[test]
    fn evidence_that_passed_once_makes_1_though_it_was_caught_elsewhere() {
        let passed = |table: &mut KillTable| {
            table.mutants[1].cells.values_mut().for_each(|cell| cell.passed = 1);
        };
        assert_eq!(code_of(passed), 1);
    }

    #[test]
    fn an_alarm_of_a_control_makes_1_and_too_few_states_make_3() {
        assert_eq!(code_of(|table| table.controls[0].alarms.push("state 5".to_owned())), 1);
        assert_eq!(code_of(|table| table.controls[0].held = 1999), 3);
    }

    #[test]
    fn what_was_not_tried_makes_3_unless_something_is_wrong() {
        let skip = |table: &mut KillTable| {
            table.mutants[1] = Row::skipped(&MUTANTS[3], "--host-only".to_owned());
        };
        assert_eq!(code_of(skip), 3);
        assert_eq!(code_of(|table| table.controls[0].skipped = Some("no guest".to_owned())), 3);
        let both = |table: &mut KillTable| {
            skip(table);
            table.controls[0].alarms.push("state 5".to_owned());
        };
        assert_eq!(code_of(both), 1);
    }
}
