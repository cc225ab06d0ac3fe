//! What became of the streams of a case whose operations are a script's.

use super::Case;
use crate::history::log::StreamHistory;
use crate::history::message::Ack;
use crate::script::model::promises::Family;
use crate::script::op::Op;
use crate::script::spec::ScriptSpec;
use crate::script::tree::{NodeKind, ObservedTree, RunWhat};
use crate::stack::scenario::Stack;
use crate::verify::outcome::Finding;
use crate::verify::survey::{Promise, Proofs, StreamSurvey};
use crate::verify::tree::pieces::{in_pieces, proofs, versions};
use crate::verify::tree::survey::{Held, at_one_instant};
use crate::workload::plan::{Pattern, StreamPlan};

/// Operations that a stream may do while their messages are on their way, as a rule.
const UNSAID: u64 = 1 << 12;
/// The same at most: more than a port and the writer's own queue hold. Only where nothing fits
/// otherwise.
const UNSAID_MAX: u64 = 1 << 16;
/// ZFS's own `recordsize`: 128 KiB.
const RECORDSIZE_KIB: u32 = 128;

/// What a dataset comes back as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Semantics {
    /// As it was at one instant. So many bytes of a file are written as one step.
    OneInstant {
        /// Its record size.
        transaction_bytes: u64,
    },
    /// Piece by piece: what was synced, and of the rest anything between.
    Pieces(Family),
}

impl Case<'_> {
    /// What a dataset comes back as: the one place that knows.
    pub(super) fn semantics(&self, dataset: &str) -> Semantics {
        match self.scenario.stack.get() {
            Stack::Plain(..) => Semantics::Pieces(Family::Plain),
            Stack::Zfs(_) if self.is_disabled(dataset) => {
                let spec = self.scenario.dataset.get(dataset);
                let kib = spec.and_then(|spec| spec.recordsize_kib).unwrap_or(RECORDSIZE_KIB);
                Semantics::OneInstant { transaction_bytes: u64::from(kib) << 10 }
            }
            Stack::Zfs(_) => Semantics::Pieces(Family::Zfs),
        }
    }

    /// Holds a stream's tree against its script.
    pub(super) fn script_survey(
        &self,
        stream: &StreamPlan,
        spec: &ScriptSpec,
        said: &StreamHistory,
        promise: Promise,
    ) -> StreamSurvey {
        let none = ObservedTree { stream: stream.id, exists: false, nodes: Vec::new() };
        let found = self.found.trees.iter().find(|tree| tree.stream == stream.id).unwrap_or(&none);
        let announced = said.announced.unwrap_or_default().max(said.newest_acked()).0;
        let most = announced + UNSAID_MAX;
        let newest = newest_word(found).min(most).max(announced);
        let near = self.script_survey_upto(newest + UNSAID, stream, spec, (said, found, promise));
        match near.findings.iter().any(|finding: &Finding| finding.outcome.is_damage()) {
            // More may have run than messages tell.
            true => self.script_survey_upto(most, stream, spec, (said, found, promise)),
            false => near,
        }
    }

    fn script_survey_upto(
        &self,
        count: u64,
        stream: &StreamPlan,
        spec: &ScriptSpec,
        (said, found, promise): (&StreamHistory, &ObservedTree, Promise),
    ) -> StreamSurvey {
        let script = self.scripts.script(spec, self.plan.seed, stream.id, count);
        let plan = self.plan;
        let held = Held { plan, stream: stream.id, script: &script, said, found, promise };
        match self.semantics(&stream.dataset) {
            Semantics::Pieces(family) => in_pieces(&held, family),
            Semantics::OneInstant { transaction_bytes } => {
                let proofs = match promise {
                    Promise::Everything => proofs(&versions(&held, Family::Zfs)),
                    Promise::AllButRecent => Proofs::Syncs(Vec::new()),
                };
                at_one_instant(&held, transaction_bytes, proofs)
            }
        }
    }

    /// The acks of a stream that tell of a loss: of a script, those of operations that change
    /// something.
    pub(super) fn telling_acks<'s>(
        &'s self,
        stream: &'s StreamPlan,
        said: &'s StreamHistory,
    ) -> impl Iterator<Item = &'s Ack> + 's {
        let script = match &stream.pattern {
            Pattern::Script(spec) => {
                let count = said.acked.len() as u64;
                Some(self.scripts.script(spec, self.plan.seed, stream.id, count))
            }
            _ => None,
        };
        let acks = said.acked.iter().enumerate();
        acks.filter(move |(at, _)| {
            let op = script.as_ref().map(|script| script.ops.get(*at));
            op.is_none_or(|op| op.is_some_and(Op::changes))
        })
        .map(|(_, acked)| &acked.ack)
    }
}

/// The newest operation whose words were read back.
fn newest_word(found: &ObservedTree) -> u64 {
    let files = found.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::File(file) => Some(file),
        _ => None,
    });
    let words = files.flat_map(|file| &file.runs).filter_map(|run| match run.what {
        RunWhat::Of(seq) => Some(seq.0),
        _ => None,
    });
    words.max().unwrap_or(0)
}
