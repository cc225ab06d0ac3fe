//! From a run whose states violate a claim to the smallest script that still does.
//!
//! What always holds: a script is called smaller only if it was recorded anew and a state of that
//! recording violated the same claim. A guest's timing does not repeat, so one that fails seldom may
//! come out larger than it could be, never wrong.

use crate::explore;
use crate::explore::options::{ExploreOptions, From, In};
use crate::guest::progress::Watch;
use crate::script::shrink::{Step, minimal, possible};
use crate::script::spec::ScriptSpec;
use crate::script::text;
use crate::stack::scenario::{ClaimKind, ClaimSpec, PatternName, Scenario, StreamSpec};
use crate::trial::evidence;
use crate::trial::facts::RunFacts;
use crate::trial::folder::RunDir;
use crate::trial::options::TrialOptions;
use crate::units::StreamId;
use crate::verify::verdict::Verdict;
use crate::workload::plan::{Pattern, StreamPlan};
use anyhow::{Context, Result, bail};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// States of one candidate are looked at for so long.
const LOOK: Duration = Duration::from_secs(120);

/// What is asked.
#[derive(Debug, Clone)]
pub struct ShrinkOptions {
    /// The folder of the run.
    pub run: PathBuf,
    /// The claim that its states violate.
    pub claim: ClaimKind,
    /// The stream; the first with a script if none is named.
    pub stream: Option<StreamId>,
    /// Whose kernel records and looks.
    pub place: In,
    /// No new candidate is tried after so long.
    pub budget: Option<Duration>,
}

/// The smallest script that was found.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// A scenario of that script alone, which fails.
    pub scenario: Scenario,
    /// Its operations, one a line.
    pub lines: Vec<String>,
    /// Operations of the script that was recorded.
    pub from: usize,
    /// Scripts that were recorded and explored.
    pub tried: u32,
    /// Whether the budget ended the search.
    pub is_cut_short: bool,
}

/// Shrinks.
pub fn run(options: &ShrinkOptions, watch: &Watch) -> Result<Shrunk> {
    let folder = RunDir::open(&options.run);
    let facts = RunFacts::load(&folder)?;
    let (stream, spec) = stream_of(&facts, options.stream)?;
    let recording = evidence::of_run(&folder, &facts, facts.scenario.cut.crash_model)?;
    let said = recording.at_its_cut()?;
    let said = said.history.streams.get(&stream.id).context("the stream said nothing")?;
    let count = said.announced.unwrap_or_default().0;
    let script = spec.script(facts.plan.seed, stream.id, count);
    let is_set_up = |at: usize| (at as u64) < script.fill;
    let steps = script.ops.iter().enumerate();
    let steps: Vec<Step> =
        steps.map(|(at, op)| Step { op: *op, is_set_up: is_set_up(at) }).collect();
    let from = steps.len();
    let lab = Tries {
        options,
        facts: &facts,
        stream,
        watch,
        started: Instant::now(),
        tried: Cell::new(0),
    };
    let lines = |steps: &[Step]| -> Vec<String> {
        steps.iter().map(|step| text::text(&step.op, &script.paths)).collect()
    };
    let fails = |steps: &[Step]| {
        let set_up = steps.iter().filter(|step| step.is_set_up).count();
        lab.fails(lines(steps), set_up as u64)
    };
    let steps = possible(&steps, &script.paths);
    if !fails(&steps)? {
        bail!(
            "a new recording of the script's {from} operations did not violate {}: the fault needs \
             another stream or another timing, so there is nothing to shrink",
            options.claim.name()
        );
    }
    let left = minimal(steps, &script.paths, fails)?;
    let set_up = left.iter().filter(|step| step.is_set_up).count() as u64;
    Ok(Shrunk {
        scenario: lab.candidate(lines(&left), set_up),
        lines: lines(&left),
        from,
        tried: lab.tried.get(),
        is_cut_short: lab.is_over(),
    })
}

/// The stream to shrink, with its script.
fn stream_of(facts: &RunFacts, wanted: Option<StreamId>) -> Result<(&StreamPlan, &ScriptSpec)> {
    let is_wanted = |stream: &&StreamPlan| wanted.is_none_or(|id| stream.id == id);
    let scripts =
        facts.plan.streams.iter().filter(is_wanted).find_map(|stream| match &stream.pattern {
            Pattern::Script(spec) => Some((stream, spec)),
            _ => None,
        });
    match (scripts, wanted) {
        (Some(found), _) => Ok(found),
        (None, Some(id)) => bail!("the run has no stream {id}, or it carries out no script"),
        (None, None) => bail!("no stream of the run carries out a script; only scripts are shrunk"),
    }
}

/// What records and explores candidates.
struct Tries<'a> {
    options: &'a ShrinkOptions,
    facts: &'a RunFacts,
    stream: &'a StreamPlan,
    watch: &'a Watch,
    started: Instant,
    tried: Cell<u32>,
}

impl Tries<'_> {
    fn is_over(&self) -> bool {
        self.options.budget.is_some_and(|budget| self.started.elapsed() >= budget)
    }

    /// The recorded scenario with this script as its only stream.
    fn candidate(&self, operations: Vec<String>, set_up: u64) -> Scenario {
        let mut scenario = self.facts.scenario.clone();
        let name = &self.stream.dataset;
        let mut dataset = scenario.dataset.get(name).cloned().into_iter();
        let stream = StreamSpec {
            operations: Some(operations),
            set_up_operations: Some(set_up),
            ..StreamSpec::of(PatternName::FilesListed)
        };
        scenario.dataset = dataset
            .by_ref()
            .map(|spec| {
                (
                    name.clone(),
                    crate::stack::scenario::DatasetSpec { stream: vec![stream.clone()], ..spec },
                )
            })
            .collect::<BTreeMap<_, _>>();
        let claim = |claim: &&ClaimSpec| {
            claim.kind == self.options.claim
                && claim.dataset.as_ref().is_none_or(|dataset| dataset == name)
        };
        scenario.claim = self.facts.scenario.claim.iter().filter(claim).cloned().collect();
        scenario.name = "minimal".to_owned();
        scenario.tries =
            format!("the smallest script found that fails as {} did", self.facts.scenario.name);
        scenario
    }

    /// Whether a state of a new recording violates the claim. When the time is over nothing does.
    fn fails(&self, operations: Vec<String>, set_up: u64) -> Result<bool> {
        if self.is_over() {
            return Ok(false);
        }
        self.watch.check()?;
        let count = operations.len();
        self.tried.set(self.tried.get() + 1);
        let folder = tempfile::tempdir().context("no folder for a candidate")?;
        let path = write(&self.candidate(operations, set_up), folder.path())?;
        let quiet = self.watch.with_listener(|_| {});
        let options = ExploreOptions {
            from: From::Record(TrialOptions {
                scenario: path.display().to_string(),
                sets: Vec::new(),
                seed: self.facts.seed,
                suite: self.facts.versions.suite,
                accel: self.facts.acceleration,
                runs: folder.path().join("runs"),
            }),
            place: self.options.place,
            model: None,
            which: None,
            budget: Some(LOOK),
            recovery_cuts: 0,
            workers: NonZeroUsize::MIN,
        };
        let report = explore::run::run(&options, &quiet)?.report;
        let fails = report.claims.iter().any(|claim| claim.verdict == Verdict::Violated);
        let how = if fails { "fails" } else { "passes" };
        self.watch.note(format!("candidate {}: {count} operations, {how}", self.tried.get()));
        Ok(fails)
    }
}

/// Writes a scenario's file.
pub fn write(scenario: &Scenario, folder: &Path) -> Result<PathBuf> {
    let path = folder.join(format!("{}.toml", scenario.name));
    let text = toml::to_string(scenario).context("a scenario cannot be written as TOML")?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::settings::{load, names, parse};

    #[test]
    fn every_scenario_that_comes_with_the_tool_reads_back_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in names() {
            let scenario = load(name, &[]).expect("a scenario");
            let path = write(&scenario, folder.path()).expect("written");
            let text = std::fs::read_to_string(path).expect("a file");
            assert_eq!(parse(name, &text, &[]).expect("read back"), scenario, "{name}");
        }
    }
}
