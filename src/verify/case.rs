//! One case: everything known about one cut, and the verdict on each claim about it.
//!
//! Pure: the trial gathers a [`Case`], this judges it, and the same case gives the same verdicts.

use super::consistent::{self, ExpectedTxg, Recovery};
use super::durable::{self, Flushes, StreamEvidence, is_proven, load_acks};
use super::load::{self, Pause};
use super::max_loss::{self, Evidence, Prediction};
use super::point_in_time::{self, OrderedBy};
use super::predict::{AckTimes, LargestWindow, largest_window};
use super::survey::{Classify, Missing, Promise, ReadersDisagree, StreamSurvey, survey};
use super::txgs::{ClosedBy, TxgLimits, TxgStory, stories};
use super::verdict::{Judgement, Verdict};
use super::window::{LossWindow, Seconds, Span};
use super::{atomic, intact, outcome::Outcome, prefix, rows};
use crate::disk::{Commit, CrashModel};
use crate::history::clock::{ClockMap, LabInterval};
use crate::history::log::{History, StreamHistory};
use crate::record::found::Found;
use crate::record::observed::ObservedFile;
use crate::script::scripts::Scripts;
use crate::stack::scenario::{ClaimKind, ClaimSpec, DatasetSpec, Scenario, Sync};
use crate::units::{GuestNs, LabNs, StreamId, Txg};
use crate::workload::plan::{Pattern, Plan, RECORD_BYTES, StreamPlan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything known about one cut.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// What was tried and claimed.
    pub scenario: &'a Scenario,
    /// What each operation wrote.
    pub plan: &'a Plan,
    /// What the guest said.
    pub history: &'a History,
    /// Where its clock lies on the lab's.
    pub clock: &'a ClockMap,
    /// What each stream with a script does.
    pub scripts: &'a Scripts,
    /// Recognises odd blocks.
    pub classify: Classify<'a>,
    /// What was read back.
    pub found: &'a Found,
    /// What the file system's tools said.
    pub recovery: &'a Recovery,
    /// The flushes that the disk answered.
    pub flushes: &'a Flushes,
    /// When each txg's uberblock became durable under the crash model, ascending.
    pub commits: &'a [Commit],
    /// The highest txg whose uberblock reached the disk.
    pub written: Option<Txg>,
    /// Under which limits a pool's groups are closed; none on a plain file system.
    pub limits: Option<TxgLimits>,
    /// The mark `load-begins`.
    pub begin: LabNs,
    /// The cut.
    pub cut: LabInterval,
}

/// The verdicts, with what they rest on.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// One for each claim of the scenario, in its order.
    pub claims: Vec<(ClaimSpec, Judgement)>,
    /// What became of each dataset.
    pub datasets: BTreeMap<String, DatasetFate>,
    /// The transaction groups of the load.
    pub txgs: Vec<TxgStory>,
}

/// What became of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatasetFate {
    /// Its `sync` property.
    pub sync: Sync,
    /// Acked operations, the set-up's included.
    pub acked: u64,
    /// What the cut took from it.
    #[serde(flatten)]
    pub window: LossWindow,
    /// The window told from transaction groups alone.
    #[serde(rename = "predicted_window_s")]
    pub predicted_s: Option<Seconds>,
    /// The largest window at any instant of the load up to the cut.
    #[serde(rename = "largest_window_s")]
    pub largest_s: Option<Seconds>,
    /// Operations and places by class.
    pub outcomes: BTreeMap<Outcome, u64>,
}

impl Case<'_> {
    /// Judges every claim.
    pub fn judge(&self) -> Result<Judged, ReadersDisagree> {
        let surveys = self.surveys()?;
        let txgs = self.limits.map_or_else(Vec::new, |limits| stories(&self.history.txgs, limits));
        let judge = |claim: &ClaimSpec| (claim.clone(), self.claim(claim, &surveys, &txgs));
        let claims = self.scenario.claim.iter().map(judge).collect();
        let fate =
            |(name, spec): (&String, &DatasetSpec)| (name.clone(), self.fate(name, spec, &surveys));
        let datasets = self.scenario.dataset.iter().map(fate).collect();
        let of_load = txgs.into_iter().filter(|story| self.is_of_load(story)).collect();
        Ok(Judged { claims, datasets, txgs: of_load })
    }

    /// Whether a group was open at some instant of the load: the one that was open when it began
    /// holds its first operations.
    fn is_of_load(&self, story: &TxgStory) -> bool {
        let closed = GuestNs(story.birth.0.saturating_add(story.open_ns));
        story.closed_by.is_none() || self.clock.lab(closed).hi >= self.begin
    }

    fn surveys(&self) -> Result<BTreeMap<StreamId, StreamSurvey>, ReadersDisagree> {
        let none = StreamHistory::default();
        let look = |stream: &StreamPlan| {
            let said = self.history.streams.get(&stream.id).unwrap_or(&none);
            let promise = self.promise(&stream.dataset);
            let found = match &stream.pattern {
                Pattern::Script(spec) => self.script_survey(stream, spec, said, promise),
                pattern if pattern.is_of_rows() => {
                    let rows = self.found.rows.iter().find(|rows| rows.stream == stream.id);
                    rows::survey(stream, said, rows, promise)
                }
                _ => self.record_survey(stream, said, promise)?,
            };
            Ok((stream.id, found))
        };
        self.plan.streams.iter().map(look).collect()
    }

    fn record_survey(
        &self,
        stream: &StreamPlan,
        said: &StreamHistory,
        promise: Promise,
    ) -> Result<StreamSurvey, ReadersDisagree> {
        let gone = ObservedFile { stream: stream.id, size: None, blocks: Vec::new() };
        let file = self.found.files.iter().find(|file| file.stream == stream.id).unwrap_or(&gone);
        survey(self.plan, stream, said, file, promise, self.classify)
    }

    /// What is owed for a dataset's acked operations: what is claimed, and what its sync property
    /// means.
    fn promise(&self, dataset: &str) -> Promise {
        let claimed = self.scenario.claim.iter().any(|claim| {
            claim.kind == ClaimKind::Durable && claim.dataset.as_deref() == Some(dataset)
        });
        match claimed || !self.is_disabled(dataset) {
            true => Promise::Everything,
            false => Promise::AllButRecent,
        }
    }

    /// The streams of the datasets that `wanted` picks, with what was said and found.
    fn streams<'s>(
        &'s self,
        surveys: &'s BTreeMap<StreamId, StreamSurvey>,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<(&'s StreamPlan, &'s StreamSurvey, &'s StreamHistory)> {
        let of = |plan: &'s StreamPlan| {
            Some((plan, surveys.get(&plan.id)?, self.history.streams.get(&plan.id)?))
        };
        let streams = self.plan.streams.iter().filter(|plan| wanted(&plan.dataset));
        streams.filter_map(of).collect()
    }

    /// What of an operation puts it in a transaction group: on a volume it may have returned while the
    /// file system on it still held it back.
    fn order(&self) -> OrderedBy {
        match self.scenario.stack.has_volumes() {
            true => OrderedBy::Ack,
            false => OrderedBy::Done,
        }
    }

    fn is_disabled(&self, dataset: &str) -> bool {
        self.scenario.dataset.get(dataset).is_some_and(|spec| spec.sync == Sync::Disabled)
    }

    fn claim(
        &self,
        claim: &ClaimSpec,
        surveys: &BTreeMap<StreamId, StreamSurvey>,
        txgs: &[TxgStory],
    ) -> Judgement {
        let dataset = claim.dataset.as_deref().unwrap_or_default();
        if !self.recovery.was_read() && claim.kind != ClaimKind::Consistent {
            return Judgement::new(Verdict::NotMeasured, self.recovery.unread_because());
        }
        match claim.kind {
            ClaimKind::Consistent => self.consistent(surveys),
            ClaimKind::Intact => {
                let all: Vec<&StreamSurvey> = surveys.values().collect();
                bar_without_load(intact::judge(&all), &all)
            }
            ClaimKind::Atomic => {
                let about = |name: &str| claim.dataset.as_deref().is_none_or(|is| is == name);
                let streams = self.streams(surveys, about);
                let streams: Vec<_> = streams.iter().map(|(_, survey, _)| *survey).collect();
                bar_without_load(atomic::judge(&streams), &streams)
            }
            ClaimKind::PointInTime => self.point_in_time(dataset, surveys),
            ClaimKind::Prefix => {
                let streams = self.streams(surveys, |name| name == dataset);
                let rows = streams.iter().filter(|(plan, ..)| plan.pattern.is_of_rows());
                let all: Vec<&StreamSurvey> = rows.map(|(_, survey, _)| *survey).collect();
                bar_without_load(prefix::judge(&all), &all)
            }
            ClaimKind::Durable => {
                let streams = self.streams(surveys, |name| name == dataset);
                let evidence = |(_, survey, said)| StreamEvidence { survey, said };
                let streams: Vec<_> = streams.into_iter().map(evidence).collect();
                durable::judge(&streams, self.clock, self.flushes)
            }
            ClaimKind::MaxLoss => {
                let seconds = claim.seconds.unwrap_or_default();
                max_loss::judge(&self.loss_evidence(dataset, seconds, surveys, txgs))
            }
        }
    }

    fn consistent(&self, surveys: &BTreeMap<StreamId, StreamSurvey>) -> Judgement {
        let unreadable = surveys.values().map(|survey| survey.count(Outcome::Unreadable)).sum();
        let in_time = self.commits.iter().filter(|commit| commit.durable <= self.cut.lo);
        let durable = in_time.map(|commit| commit.txg).max();
        let exact =
            !matches!(self.scenario.cut.crash_model, CrashModel::Subset | CrashModel::Torn { .. });
        let expected = ExpectedTxg { durable, written: self.written, exact };
        consistent::judge(self.recovery, expected, unreadable)
    }

    /// The group is every sync=disabled dataset of the pool, for they share its txgs, but for the
    /// streams whose order is not told where their calls are made.
    fn point_in_time(
        &self,
        dataset: &str,
        surveys: &BTreeMap<StreamId, StreamSurvey>,
    ) -> Judgement {
        if !self.is_disabled(dataset) {
            let past = match self.scenario.stack.plain_fs() {
                None => "its intent log is replayed past the pool's instant".to_owned(),
                Some(fs) => format!("what was forced to disk on {fs} is ahead of what was not"),
            };
            let because = format!(
                "{dataset} is not sync=disabled: {past}, so one instant is not claimed for it"
            );
            return Judgement::new(Verdict::NotMeasured, because);
        }
        let mut group = self.streams(surveys, |name| self.is_disabled(name));
        group.retain(|(plan, ..)| plan.pattern.tells_order());
        let pairs: Vec<_> = group.into_iter().map(|(_, survey, said)| (survey, said)).collect();
        let surveys: Vec<&StreamSurvey> = pairs.iter().map(|(survey, _)| *survey).collect();
        bar_without_load(point_in_time::judge(&pairs, self.order()), &surveys)
    }

    fn loss_evidence(
        &self,
        dataset: &str,
        seconds: f64,
        surveys: &BTreeMap<StreamId, StreamSurvey>,
        txgs: &[TxgStory],
    ) -> Evidence {
        let streams = self.streams(surveys, |name| name == dataset);
        let (own, window) = self.window(&streams);
        let in_load: Vec<&TxgStory> = txgs.iter().filter(|story| self.is_of_load(story)).collect();
        let guest = &self.scenario.guest;
        let declared = guest.dirty_bytes_close_at_mib.contains(&guest.memory_mib);
        let dirty = in_load.iter().filter(|story| may_be_dirty(story)).count();
        let pause = |(plan, _, said): &(&StreamPlan, &StreamSurvey, &StreamHistory)| {
            load::too_long_a_pause(plan, said, self.clock, self.begin, self.cut)
        };
        let pauses: Vec<Pause> = streams.iter().filter_map(pause).collect();
        Evidence {
            claimed_ns: (seconds * 1e9) as u64,
            own,
            window,
            predicted: self.predicted(dataset, &streams),
            one_instant: self.point_in_time(dataset, surveys).verdict != Verdict::Violated,
            largest: self.largest(dataset, &streams),
            pauses,
            load_ns: self.cut.lo.0.saturating_sub(self.begin.0),
            slowest_sync_ns: in_load.iter().map(|story| story.sync_ns).max().unwrap_or(0),
            closed_by_dirty_bytes: if declared { 0 } else { dirty as u64 },
        }
    }

    fn ack_times(&self, streams: &Streams) -> AckTimes {
        let acks = streams.iter().flat_map(|(plan, _, said)| self.telling_acks(plan, said));
        AckTimes::new(acks, self.order())
    }

    fn birth(&self, txg: Txg) -> Option<GuestNs> {
        self.history.txgs.get(&txg).map(|row| row.birth)
    }

    fn predicted(&self, dataset: &str, streams: &Streams) -> Prediction {
        let by_words = |(plan, ..): &(&StreamPlan, _, _)| !plan.pattern.tells_order();
        if !self.is_disabled(dataset) || streams.iter().any(by_words) {
            return Prediction::NotByTxgs;
        }
        let first_lost = self.recovery.used_txg().map(|used| Txg(used.0.saturating_add(1)));
        match first_lost.and_then(|txg| self.birth(txg)) {
            Some(birth) => {
                Prediction::Window(self.ack_times(streams).window(self.clock, birth, self.cut))
            }
            None => Prediction::Unknown,
        }
    }

    /// For a dataset that waits for the intent log there is no window at any instant at which a
    /// flush stands behind each ack.
    fn largest(&self, dataset: &str, streams: &Streams) -> LargestWindow {
        if self.is_disabled(dataset) {
            let birth = |txg| self.birth(txg);
            let times = self.ack_times(streams);
            return largest_window(
                &times,
                self.clock,
                self.commits,
                birth,
                self.begin,
                self.cut.lo,
            );
        }
        let acks = streams.iter().flat_map(|(_, survey, said)| {
            let proven = |proof| is_proven(proof, self.clock, self.flushes);
            load_acks(&StreamEvidence { survey, said }).map(proven)
        });
        let (proven, unproven): (Vec<bool>, Vec<bool>) = acks.partition(|proven| *proven);
        LargestWindow {
            span: Span::default(),
            commits: proven.len() as u64,
            untold: unproven.len() as u64,
        }
    }

    fn window(&self, streams: &Streams) -> (Span, LossWindow) {
        let age_of = |missing: Missing, said: &StreamHistory| match missing {
            Missing::None => Some(Span::default()),
            Missing::From(seq) => {
                said.ack(seq).map(|acked| Span::since(self.clock, acked.ack.end_ns, self.cut))
            }
        };
        // What was found may fit several instants: the latest bounds the loss from below, the
        // earliest from above.
        let spans = streams.iter().filter_map(|(_, survey, said)| {
            let lo_ns = age_of(survey.missing, said)?.lo_ns;
            let hi_ns = age_of(survey.missing_at_most, said)?.hi_ns;
            Some(Span { lo_ns, hi_ns })
        });
        let own = spans.reduce(Span::max).unwrap_or_default();
        let newest = streams.iter().filter_map(|(_, survey, _)| survey.newest).map(|s| s.at).max();
        let age = newest.map(|at| Seconds::from(Span::since(self.clock, at, self.cut)));
        let operations = streams.iter().map(|(_, survey, _)| survey.missing_count).sum();
        // How long a transaction is nobody told.
        let of_records = streams.iter().filter(|(plan, ..)| plan.pattern.is_of_records());
        let records: u64 = of_records.map(|(_, survey, _)| survey.missing_count).sum();
        let window = LossWindow {
            seconds: own.into(),
            operations,
            bytes: records * RECORD_BYTES,
            newest_survivor_age: age,
            load_survived: streams.iter().any(|(_, survey, _)| survey.load_survived()),
        };
        (own, window)
    }

    fn fate(
        &self,
        name: &str,
        spec: &DatasetSpec,
        surveys: &BTreeMap<StreamId, StreamSurvey>,
    ) -> DatasetFate {
        let streams = self.streams(surveys, |dataset| dataset == name);
        let mut outcomes = BTreeMap::new();
        for (outcome, count) in streams.iter().flat_map(|(_, survey, _)| &survey.counts) {
            *outcomes.entry(*outcome).or_insert(0) += count;
        }
        let largest = self.largest(name, &streams);
        DatasetFate {
            sync: spec.sync,
            acked: streams.iter().map(|(_, _, said)| said.newest_acked().0).sum(),
            window: self.window(&streams).1,
            predicted_s: match self.predicted(name, &streams) {
                Prediction::Window(span) => Some(span.into()),
                _ => None,
            },
            largest_s: (largest.commits > 0).then(|| largest.span.into()),
            outcomes,
        }
    }
}

type Streams<'a> = [(&'a StreamPlan, &'a StreamSurvey, &'a StreamHistory)];

/// Where only the set-up is left, nothing of the load could have been damaged or out of order.
fn bar_without_load(judgement: Judgement, surveys: &[&StreamSurvey]) -> Judgement {
    match surveys.iter().any(|survey| survey.load_survived()) {
        true => judgement,
        false => judgement.bar_pass("nothing of the load survived, only what the set-up wrote"),
    }
}

/// Whether dirty bytes closed a group, or may have: what the rows do not tell is not a pass.
fn may_be_dirty(story: &TxgStory) -> bool {
    matches!(story.closed_by, Some(ClosedBy::DirtyBytes | ClosedBy::Unknown))
}

mod scripts;

#[cfg(test)]
mod simulate;
#[cfg(test)]
mod spec;
#[cfg(test)]
mod tests;
