//! The kill table from its options to its rows, in the order in which things happen.
//!
//! Faults on the same base share its recording, which is their control: the same scenario, seed and
//! cut. One kernel at a time looks at states, so that no more than one guest ever runs.

use super::controls;
use super::mutant::{Base, Class, DiskKind, Mutant, Plant, Tampering};
use super::options::MutantsOptions;
use super::recorded::{Kernel, Recorded, cut_at};
use super::report::{FORMAT, KillTable, Row};
use super::rule::{Cell, Reported, shown};
use super::table::MUTANTS;
use super::tamper::tampered;
use super::targets::Control;
use crate::disk::{CrashModel, CrashState, DiskFault, Image, StateCursor};
use crate::explore::cuts::{Place, PlannedCut, Which, Why, plan_cuts};
use crate::explore::state::StateOutcome;
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use crate::trial::evidence::{self, EvidenceError, Recording};
use crate::trial::folder::RunDir;
use crate::trial::inspect::Observation;
use crate::units::LabNs;
use crate::verify::verdict::Verdict;
use anyhow::{Context, Result, bail, ensure};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Instant;

/// Cuts under each model, right after an ack: so many on this machine's kernel, so many in a guest.
const ACKS: [u32; 2] = [5, 3];
/// Instants for runs that were recorded apart, as parts of the control's load.
const INSTANTS: [&[f64]; 2] = [&[0.5, 0.7, 0.85, 0.97], &[0.7, 0.97]];
/// A guest's fault takes about as long as so many of this machine's kernel.
const GUEST_WEIGHT: u64 = 25;
/// Controls that take about as long as one fault.
const CONTROLS_WEIGHT: u64 = 40;

/// Plants every fault, looks at the controls, and decides.
pub fn run(options: &MutantsOptions, command: String, watch: &Watch) -> Result<KillTable> {
    let started = Instant::now();
    let chosen = choose(&options.only)?;
    let scratch = RunFolder::new()?;
    let tried = chosen.iter().filter(|mutant| !(options.host_only && mutant.base.in_guest));
    let total = tried.map(weight).sum::<u64>() + controls_weight(options);
    let mut work = Work {
        options,
        scratch: scratch.path(),
        quiet: watch.with_listener(|_| {}),
        watch,
        started,
        total,
        done: 0,
        versions: BTreeSet::from([format!("plugpull {}", env!("CARGO_PKG_VERSION"))]),
    };
    let mut rows = HashMap::new();
    let mut bases: Vec<Base> = Vec::new();
    for mutant in &chosen {
        if !bases.contains(&mutant.base) {
            bases.push(mutant.base);
        }
    }
    for base in bases {
        let group: Vec<&Mutant> = chosen.iter().filter(|m| m.base == base).copied().collect();
        for row in work.group(&base, &group)? {
            rows.insert(row.name, row);
        }
    }
    work.tell("looking at honest stacks");
    let controls = controls::run(options, scratch.path(), watch, &work.quiet)?;
    let mut table = KillTable {
        format: FORMAT,
        command,
        seed: options.seed,
        exit_code: 0,
        models: KillTable::columns(),
        mutants: chosen.iter().filter_map(|mutant| rows.remove(mutant.name)).collect(),
        controls,
        controls_asked: options.controls,
        versions: work.versions,
        took_s: started.elapsed().as_secs_f64(),
    };
    table.decide();
    Ok(table)
}

/// The faults by name; all if none is named.
pub fn choose(only: &[String]) -> Result<Vec<&'static Mutant>> {
    if let Some(unknown) = only.iter().find(|name| !MUTANTS.iter().any(|m| m.name == **name)) {
        let names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        bail!("there is no fault {unknown:?}: give one of {}", names.join(", "));
    }
    let wanted = |mutant: &&Mutant| only.is_empty() || only.iter().any(|name| name == mutant.name);
    Ok(MUTANTS.iter().filter(wanted).collect())
}

fn weight(mutant: &&Mutant) -> u64 {
    if mutant.base.in_guest { GUEST_WEIGHT } else { 1 }
}

fn controls_weight(options: &MutantsOptions) -> u64 {
    u64::from(options.controls) / CONTROLS_WEIGHT
}

/// A judged control's state.
type Known = (CrashState, StateOutcome);

struct Work<'a> {
    options: &'a MutantsOptions,
    scratch: &'a Path,
    watch: &'a Watch,
    /// Hears nothing of a recording's stages, but is told to stop.
    quiet: Watch,
    started: Instant,
    total: u64,
    done: u64,
    versions: BTreeSet<String>,
}

impl Work<'_> {
    fn tell(&self, text: &str) {
        let took = self.started.elapsed().as_secs_f64();
        let left = took / self.done.max(1) as f64 * self.total.saturating_sub(self.done) as f64;
        let about =
            if self.done == 0 { String::new() } else { format!(", about {left:.0} s left") };
        self.watch.tell(Progress::Part {
            stage: "planting faults".to_owned(),
            done: self.done,
            total: self.total,
            text: format!("{text}{about}"),
        });
    }

    /// All faults on one base.
    fn group(&mut self, base: &Base, mutants: &[&Mutant]) -> Result<Vec<Row>> {
        if base.in_guest && self.options.host_only {
            let why = "--host-only: it needs a guest";
            return Ok(mutants.iter().map(|m| Row::skipped(m, why.to_owned())).collect());
        }
        let control = self.record(base, &[], self.options.seed)?;
        let mut rows = Vec::new();
        let mut apart = Vec::new();
        {
            let mut kernel = control.kernel(self.scratch, &self.quiet)?;
            let mut known = HashMap::new();
            for mutant in mutants {
                self.watch.check()?;
                match mutant.plant {
                    Plant::Disk(kind) => {
                        self.tell(mutant.name);
                        rows.push(self.disk(mutant, kind, &control, &mut kernel, &mut known)?);
                        self.done += weight(mutant);
                    }
                    Plant::Stack(_) | Plant::Workload(_) => {
                        let said = self.at_instants(mutant, &control, &control, &mut kernel)?;
                        apart.push((*mutant, said));
                    }
                    Plant::Evidence(tampering) => {
                        self.tell(mutant.name);
                        rows.push(self.evidence(mutant, tampering, &control, &mut kernel)?);
                        self.done += weight(mutant);
                    }
                }
            }
        }
        for (mutant, said) in apart {
            self.tell(mutant.name);
            rows.push(self.apart(mutant, &control, &said)?);
            self.done += weight(&mutant);
        }
        rows.iter_mut().for_each(Row::decide);
        Ok(rows)
    }

    fn record(&mut self, base: &Base, sets: &[&str], seed: u64) -> Result<Recorded> {
        self.tell(&format!("recording {}", base.scenario));
        let recorded = Recorded::new(base, sets, seed, self.options, self.scratch, &self.quiet)
            .with_context(|| format!("{} could not be recorded", base.scenario))?;
        let versions = &recorded.facts.versions;
        let qemu = match base.in_guest {
            true => format!(", QEMU {}", versions.qemu),
            false => String::new(),
        };
        self.versions.insert(format!("{}, Linux {}{qemu}", versions.stack, versions.kernel));
        Ok(recorded)
    }

    /// A fault of the disk: planted in crash states of the control's own recording.
    fn disk(
        &self,
        mutant: &Mutant,
        kind: DiskKind,
        control: &Recorded,
        kernel: &mut Kernel,
        known: &mut HashMap<(CrashModel, u32, u64), Known>,
    ) -> Result<Row> {
        let mut row = Row::new(mutant);
        for model in mutant.models.iter().copied() {
            let facts = control.facts_under(model);
            let recording = control.evidence(model)?;
            let (log, plan) = (&recording.log, &facts.plan);
            let blank = Image::blank(log.header.disk_bytes)?;
            let mut cursor = StateCursor::new(log, &blank, model)?;
            let mut cell = Cell::default();
            for planned in after_acks(&recording, model, mutant.base.in_guest, facts.seed)? {
                self.watch.check()?;
                let key = (model, planned.cut.0, planned.seed);
                let (honest, outcome) = match known.entry(key) {
                    Entry::Occupied(known) => &*known.into_mut(),
                    Entry::Vacant(new) => {
                        let state = cursor.at(planned.cut, planned.seed)?;
                        let looked = kernel.look(&facts, &recording, (0, &planned), &state)?;
                        &*new.insert((state, looked.0))
                    }
                };
                let evidence = recording.at(planned.cut, planned.until)?;
                let (cut, image) = (planned.cut, &honest.image);
                let seed = facts.seed ^ u64::from(cut.0);
                let history = &evidence.history;
                let place = Control { log, plan, history, image, cut, seed };
                let fault = match place.fault(kind) {
                    Ok(fault) => fault,
                    Err(why) => {
                        note(&mut row, format!("{model}: {why}"));
                        continue;
                    }
                };
                let state = faulty(&recording, &blank, model, &planned, fault)?;
                let said = match state.id == honest.id {
                    true => outcome.clone(),
                    false => kernel.look(&facts, &recording, (0, &planned), &state)?.0,
                };
                self.pair(mutant, &facts.scenario, (outcome, &said), &mut cell, &mut row, || {
                    format!("{fault} under {model} at entry {}", cut.0)
                });
            }
            row.cells.insert(model.to_string(), cell);
        }
        Ok(row)
    }

    /// Counts a pair of states, and keeps what was said where a fault was caught first.
    fn pair(
        &self,
        mutant: &Mutant,
        scenario: &crate::stack::scenario::Scenario,
        (control, said): (&StateOutcome, &StateOutcome),
        cell: &mut Cell,
        row: &mut Row,
        planted: impl Fn() -> String,
    ) {
        let of = |outcome| Reported::of(outcome, scenario, &mutant.expected);
        let before = *cell;
        cell.count(shown(&mutant.expected, of(control), of(said)));
        let told = |what: &str, outcome: &StateOutcome| {
            let because = outcome.claims.iter().filter(|c| c.verdict != Verdict::Held);
            let first = because.flat_map(|claim| claim.because.first()).next();
            format!("{what}, {}: {}", planted(), first.cloned().unwrap_or_default())
        };
        if cell.caught > before.caught && before.caught == 0 {
            note(row, told("caught", said));
        }
        if cell.other_class > before.other_class {
            note(row, told("another class", said));
        }
        if cell.control_fails > before.control_fails {
            note(row, told("the control fails", control));
        }
    }

    /// The states of a run at the control's instants, judged: in the order of models and instants.
    fn at_instants(
        &self,
        mutant: &Mutant,
        control: &Recorded,
        run: &Recorded,
        kernel: &mut Kernel,
    ) -> Result<Vec<StateOutcome>> {
        let of_control = control.evidence(CrashModel::DropUnflushed)?;
        let load_ns = of_control.cut.0.saturating_sub(of_control.begin.0) as f64;
        let mut said = Vec::new();
        for model in mutant.models.iter().copied() {
            let facts = run.facts_under(model);
            let recording = run.evidence(model)?;
            let blank = Image::blank(recording.log.header.disk_bytes)?;
            let mut cursor = StateCursor::new(&recording.log, &blank, model)?;
            for (nth, part) in instants(mutant).iter().enumerate() {
                self.watch.check()?;
                let instant = LabNs(recording.begin.0 + (load_ns * part) as u64);
                let planned = cut_at(&recording.log, instant, facts.seed.wrapping_add(nth as u64));
                let state = cursor.at(planned.cut, planned.seed)?;
                said.push(kernel.look(&facts, &recording, (0, &planned), &state)?.0);
            }
        }
        Ok(said)
    }

    /// A fault of stack or program: recorded apart, with the same seed.
    fn apart(&mut self, mutant: &Mutant, control: &Recorded, said: &[StateOutcome]) -> Result<Row> {
        let faulty = self.record(&mutant.base, mutant.sets(), self.options.seed)?;
        let mut row = Row::new(mutant);
        let scenario = &control.facts.scenario;
        if let (Class::Ends(_), Err(error)) =
            (mutant.expected.class, faulty.evidence(CrashModel::DropUnflushed))
        {
            // Any other end would say nothing about the fault.
            ensure!(
                matches!(error, EvidenceError::NoFlushBehindSetUp | EvidenceError::SetUpNotDurable),
                "the run with {} ended otherwise than named: {error}",
                mutant.name
            );
            let mut cell = Cell::default();
            let ended = Reported { verdict: error.verdict(), of_class: 0 };
            for before in said {
                let before = Reported::of(before, scenario, &mutant.expected);
                cell.count(shown(&mutant.expected, before, ended));
            }
            note(&mut row, format!("the run ends: {error}"));
            row.cells.insert(CrashModel::DropUnflushed.to_string(), cell);
            return Ok(row);
        }
        let mut kernel = faulty.kernel(self.scratch, &self.quiet)?;
        let found = self.at_instants(mutant, control, &faulty, &mut kernel)?;
        let pairs = said.iter().zip(&found).collect::<Vec<_>>();
        for (model, pairs) in mutant.models.iter().zip(pairs.chunks(instants(mutant).len())) {
            let mut cell = Cell::default();
            for (before, after) in pairs {
                self.pair(mutant, scenario, (before, after), &mut cell, &mut row, || {
                    format!("under {model} at entry {}", after.place.cut)
                });
            }
            row.cells.insert(model.to_string(), cell);
        }
        Ok(row)
    }

    /// A fault of the evidence: planted in a copy of the control's run, behind its seals.
    fn evidence(
        &mut self,
        mutant: &Mutant,
        tampering: Tampering,
        control: &Recorded,
        kernel: &mut Kernel,
    ) -> Result<Row> {
        let model = CrashModel::DropUnflushed;
        let facts = control.facts_under(model);
        let recording = control.evidence(model)?;
        let (before, observed) = at_its_cut(control, &recording, kernel)?;
        let other = self.record(&mutant.base, &[], self.options.seed.wrapping_add(1))?;
        let foreign = match tampering {
            Tampering::ForeignFiles => {
                let mut kernel = other.kernel(self.scratch, &self.quiet)?;
                at_its_cut(&other, &other.evidence(model)?, &mut kernel)?.1
            }
            _ => observed,
        };
        let copy = RunDir::create(self.scratch, mutant.name, facts.seed)?;
        tampered(tampering, &control.folder.trace(), &other.folder.trace(), &copy.trace())?;
        let mut row = Row::new(mutant);
        let (verdict, why) = match evidence::of_run(&copy, &facts, model) {
            Err(error) => (error.verdict(), error.to_string()),
            Ok(recording) => {
                let planned = own_cut(&recording, facts.seed);
                let evidence = recording.at(planned.cut, planned.until)?;
                let this = (0, &planned, state_at(&recording, model, &planned)?.id);
                let said = StateOutcome::judge(this, &facts, &evidence, &foreign);
                let because = said.claims.iter().flat_map(|claim| claim.because.first()).next();
                (said.verdict(&facts.scenario), because.cloned().unwrap_or_default())
            }
        };
        let before = Reported::of(&before, &facts.scenario, &mutant.expected);
        let mut cell = Cell::default();
        cell.count(shown(&mutant.expected, before, Reported { verdict, of_class: 0 }));
        note(&mut row, format!("the run ends as {verdict}: {why}"));
        row.cells.insert(model.to_string(), cell);
        Ok(row)
    }
}

/// Few sentences tell enough.
fn note(row: &mut Row, text: String) {
    const NOTES_MAX: usize = 4;
    if row.examples.len() < NOTES_MAX {
        row.examples.push(text);
    }
}

fn instants(mutant: &Mutant) -> &'static [f64] {
    INSTANTS[usize::from(mutant.base.in_guest)]
}

/// Cuts right after acks of the later half of the load, when enough of it is there to be read.
fn after_acks(
    recording: &Recording,
    model: CrashModel,
    in_guest: bool,
    seed: u64,
) -> Result<Vec<PlannedCut>> {
    let wanted = ACKS[usize::from(in_guest)];
    let states = NonZeroU32::new(2 * wanted).unwrap_or(NonZeroU32::MIN);
    let which = Which::At { place: Place::AfterAck, states };
    let mut planned = plan_cuts(&recording.log, recording.acks(), model, which, seed)?;
    planned.drain(..planned.len().saturating_sub(wanted as usize));
    Ok(planned)
}

fn faulty(
    recording: &Recording,
    blank: &Image,
    model: CrashModel,
    planned: &PlannedCut,
    fault: DiskFault,
) -> Result<CrashState> {
    let mut cursor = StateCursor::with_fault(&recording.log, blank, model, Some(fault))?;
    Ok(cursor.at(planned.cut, planned.seed)?)
}

fn own_cut(recording: &Recording, seed: u64) -> PlannedCut {
    let (cut, until) = (recording.log.cut_entry(), recording.cut);
    PlannedCut { cut, seed, from: until, until, why: Why::Drawn }
}

fn state_at(recording: &Recording, model: CrashModel, planned: &PlannedCut) -> Result<CrashState> {
    let blank = Image::blank(recording.log.header.disk_bytes)?;
    Ok(StateCursor::new(&recording.log, &blank, model)?.at(planned.cut, planned.seed)?)
}

fn at_its_cut(
    run: &Recorded,
    recording: &Recording,
    kernel: &mut Kernel,
) -> Result<(StateOutcome, Observation)> {
    let model = CrashModel::DropUnflushed;
    let planned = own_cut(recording, run.facts.seed);
    let state = state_at(recording, model, &planned)?;
    kernel.look(&run.facts_under(model), recording, (0, &planned), &state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_chosen_by_name_and_an_unknown_name_is_refused_with_all_names() {
        assert_eq!(choose(&[]).expect("all").len(), MUTANTS.len());
        let two = choose(&["zeroed".to_owned(), "write-lost".to_owned()]).expect("two");
        let names: Vec<&str> = two.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names, ["write-lost", "zeroed"], "in the table's order");
        let error = choose(&["nosuch".to_owned()]).expect_err("unknown").to_string();
        assert!(error.contains("nosuch") && error.contains("flush-ignored"), "{error}");
    }
}
