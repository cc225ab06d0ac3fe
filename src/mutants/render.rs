//! The kill table for a person: at most 100 columns, and as a page of a finding.

use super::mutant::{Layer, Mutant};
use super::report::{ControlRow, KillTable, Row};
use super::table::MUTANTS;
use std::fmt::Write;

const NAME: usize = 24;
const EXPECTED: usize = 36;
const CELL: usize = 7;
/// What stands over the columns, in the models' order.
const HEADS: [&str; 5] = ["keep", "drop", "subset", "torn", "unsafe"];
const NOTE_MAX: usize = 160;

/// A cell's text: caught in n of m states, `-` for not caught, nothing for not tried.
fn cell(row: &Row, model: &str) -> String {
    match row.cells.get(model) {
        None => String::new(),
        Some(cell) if cell.passed > 0 => "PASS".to_owned(),
        Some(cell) if cell.caught == 0 => "-".to_owned(),
        Some(cell) => format!("{}/{}", cell.caught, cell.states),
    }
}

fn expected(row: &Row) -> String {
    let class = row.class.to_string();
    match (row.layer, class.starts_with("ends")) {
        (Layer::Evidence, _) | (_, true) => class,
        _ => {
            let dataset = row.dataset.map(|dataset| format!(" {dataset}")).unwrap_or_default();
            format!("{}{dataset} {class}", row.claim)
        }
    }
}

/// The table for a terminal.
pub fn terminal(table: &KillTable) -> String {
    let mut text = String::new();
    let heads: String = HEADS.iter().map(|head| format!("{head:>CELL$}")).collect();
    let _ = writeln!(text, " {:NAME$} {:EXPECTED$}{heads}", "fault", "must be reported as");
    let mut layer = None;
    for row in &table.mutants {
        if layer != Some(row.layer) {
            layer = Some(row.layer);
            let _ = writeln!(text, "{}", row.layer);
        }
        let cells: String = match row.skipped {
            true => format!("  not tried ({})", row.untried),
            false => table.models.iter().map(|m| format!("{:>CELL$}", cell(row, m))).collect(),
        };
        let mark = if row.skipped || row.caught { ' ' } else { '!' };
        let line = format!("{mark}{:NAME$} {:EXPECTED$}{cells}", row.name, expected(row));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(
        text,
        "\nn/m: caught in n of m states; -: not caught under this model; blank: not tried\n\
         models: keep-all, drop-unflushed, subset, torn, unsafe (a cache of 1 MiB)\n"
    );
    for control in &table.controls {
        let _ = writeln!(text, "{}", control_line(control));
    }
    for row in table.mutants.iter().filter(|row| !row.skipped && !row.caught) {
        let _ = writeln!(text, "\nNOT CAUGHT: {} ({})", row.name, row.does);
        for example in &row.examples {
            let _ = writeln!(text, "  {}", shortened(example));
        }
    }
    let _ = writeln!(text, "\n{}", sum(table));
    text
}

fn shortened(text: &str) -> String {
    let one_line = text.replace('\n', " ");
    match one_line.char_indices().nth(NOTE_MAX) {
        Some((at, _)) => format!("{}...", &one_line[..at]),
        None => one_line,
    }
}

fn control_line(control: &ControlRow) -> String {
    if let Some(why) = &control.skipped {
        return format!("control {}: not looked at ({why})", control.scenario);
    }
    let alarms = match control.alarms.len() {
        0 => "no alarm".to_owned(),
        n => format!("{n} ALARMS: {}", control.alarms.join("; ")),
    };
    let mut line = format!(
        "control {}: {} states held in {} runs, {alarms} ({} with nothing to judge yet)",
        control.scenario, control.held, control.runs, control.not_judged
    );
    if let Some(first) = control.unmeasured.first() {
        let n = control.unmeasured.len();
        line = format!("{line}; {n} could not be judged, the first because {first}");
    }
    line
}

fn sum(table: &KillTable) -> String {
    let tried = table.mutants.iter().filter(|row| !row.skipped).count();
    let caught = table.mutants.iter().filter(|row| row.caught).count();
    let held: u32 = table.controls.iter().map(|row| row.held).sum();
    let alarms: usize = table.controls.iter().map(|row| row.alarms.len()).sum();
    format!(
        "{caught} of {tried} faults caught, {} not tried; {held} honest states, {alarms} alarms; \
         seed {}; {:.0} s",
        table.mutants.len() - tried,
        table.seed,
        table.took_s
    )
}

/// What can be planted, without planting it.
pub fn list() -> String {
    let line =
        |mutant: &Mutant| format!("{:NAME$} {:9} {}\n", mutant.name, mutant.layer(), mutant.does);
    MUTANTS.iter().map(line).collect()
}

/// The page of a finding.
pub fn markdown(table: &KillTable) -> String {
    let mut text = String::from(
        "# Which crash model catches which fault\n\n\
         A verifier is worth what it catches. Each fault below was planted, and counts as caught \
         only if the\nsame scenario, seed and cut without it pass the claim, and the claim and class \
         that were named in\nadvance report it. `n/m`: caught in n of m states; `-`: not caught \
         under this model; blank: not tried.\n\n",
    );
    let _ = writeln!(
        text,
        "Made by `{}` with seed {}, in {:.0} s, on:\n",
        table.command, table.seed, table.took_s
    );
    for version in &table.versions {
        let _ = writeln!(text, "- {version}");
    }
    let _ = writeln!(
        text,
        "\n| fault | what it does | must be reported as | {} |",
        table.models.join(" | ")
    );
    let _ = writeln!(text, "| --- | --- | --- |{}", " --- |".repeat(table.models.len()));
    for row in &table.mutants {
        let cells: Vec<String> = table.models.iter().map(|model| cell(row, model)).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} ({}) | {} | {} |",
            row.name,
            row.does,
            row.layer,
            expected(row),
            cells.join(" | ")
        );
    }
    let _ = writeln!(text, "\n## Controls\n");
    for control in &table.controls {
        let _ = writeln!(text, "- {}", control_line(control));
    }
    let _ = writeln!(text, "\n{}\n\n## Why cells are blank\n", sum(table));
    for row in table.mutants.iter().filter(|row| !row.untried.is_empty()) {
        let _ = writeln!(text, "- `{}`: {}", row.name, row.untried);
    }
    let _ = writeln!(text, "\n## What was planted, and what was said first\n");
    for row in table.mutants.iter().filter(|row| !row.examples.is_empty()) {
        let _ = writeln!(text, "- `{}`: {}", row.name, shortened(&row.examples[0]));
    }
    let _ = writeln!(
        text,
        "\n`kill-table.json` beside this page holds every number; the same command makes it again."
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn the_table_fits_100_columns_and_tells_caught_from_not_caught_and_not_tried() {
        let mut table = sample();
        let shown = terminal(&table);
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        let line = |name: &str| {
            let of = |line: &&str| line.trim_start_matches(['!', ' ']).starts_with(name);
            shown.lines().find(of).unwrap_or_default().to_owned()
        };
        let early = line("flush-answered-early");
        let words: Vec<&str> = early.split_whitespace().skip(1).collect();
        assert_eq!(words, ["durable", "data", "lost-though-durable", "-", "2/3"]);
        assert!(shown.contains("2 of 2 faults caught, 0 not tried"), "{shown}");
        assert!(shown.contains("ext4: 2000 states held in 4 runs, no alarm"), "{shown}");
        table.mutants[0].cells.values_mut().for_each(|cell| cell.caught = 0);
        table.mutants[0].decide();
        let shown = terminal(&table);
        assert!(shown.contains("NOT CAUGHT: flush-answered-early"), "{shown}");
        table.mutants[1] = Row::skipped(&MUTANTS[2], "--host-only".to_owned());
        assert!(terminal(&table).contains("not tried (--host-only)"), "{shown}");
    }

    #[test]
    fn every_name_and_expectation_fits_its_column() {
        for mutant in MUTANTS {
            let row = Row::new(mutant);
            assert!(row.name.len() <= NAME, "{}", row.name);
            assert!(expected(&row).len() <= EXPECTED, "{}", expected(&row));
        }
        assert_eq!(HEADS.len(), KillTable::columns().len());
    }

    #[test]
    fn the_page_names_command_versions_controls_and_every_fault() {
        let page = markdown(&sample());
        for text in ["`plugpull mutants`", "seed 7", "- Linux 6.12", "`write-lost`", "no alarm"] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }
}
