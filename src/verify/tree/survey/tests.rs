//! What a survey says of trees at an instant, and of damaged ones.

use super::*;
use crate::script::model::reference::Reference;
use crate::script::model::testing;
use crate::script::tree::{NodeKind, RunWhat};
use crate::units::RunId;
use crate::verify::intact;
use crate::verify::survey::test_support::stream;
use crate::verify::verdict::Verdict;

fn plan() -> Plan {
    Plan { run: RunId([1; 16]), seed: 7, bodies: 1, streams: Vec::new() }
}

fn survey_of(script: &Script, acked: usize, found: &ObservedTree) -> StreamSurvey {
    let ops: Vec<_> = (0..acked as u64).map(|n| (3 * n + 1, 3 * n + 2, 3 * n + 3)).collect();
    let (_, mut said) = stream(1, &ops, 0);
    said.announced = Some(Seq(acked as u64 + 1));
    let plan = plan();
    let held = Held {
        plan: &plan,
        stream: StreamId(1),
        script,
        said: &said,
        found,
        promise: Promise::AllButRecent,
    };
    at_one_instant(&held, 128 << 10, Proofs::EachAck)
}

fn after(script: &Script, upto: usize) -> ObservedTree {
    Reference::after(&script.paths, &script.ops[..upto]).observe(StreamId(1))
}

#[test]
fn a_tree_at_an_instant_loses_what_comes_after_it_and_nothing_is_damaged() {
    for seed in 0..40 {
        let script = testing::script(seed, 30);
        for upto in [0, 7, 20, 29, 30] {
            let survey = survey_of(&script, 29, &after(&script, upto));
            assert_eq!(survey.findings, Vec::new(), "{seed} {upto}");
            let changes = |from: usize| {
                let after = (from + 1..=29).find(|seq| script.ops[*seq - 1].changes());
                after.map_or(Missing::None, |seq| Missing::From(Seq(seq as u64)))
            };
            let order = |missing: Missing| match missing {
                Missing::None => Seq(u64::MAX),
                Missing::From(seq) => seq,
            };
            let truth = order(changes(upto.min(29)));
            assert!(order(survey.missing_at_most) <= truth, "{seed} {upto} {survey:?}");
            assert!(truth <= order(survey.missing), "{seed} {upto} {survey:?}");
        }
    }
}

#[test]
fn damage_is_told_with_its_path_its_place_and_its_operation() {
    let mut paths = crate::script::op::Paths::default();
    let path = paths.intern("f");
    let write = |offset| Op::Write { path, offset, len: 512, how: Default::default() };
    let ops = vec![Op::Create(path), write(0), write(512), write(0)];
    let script = Script { paths, ops, fill: 0 };
    let damaged = |what: RunWhat, at: usize| {
        let mut found = after(&script, 4);
        let NodeKind::File(file) = &mut found.nodes[0].kind else { panic!("a file") };
        file.runs[at].what = what;
        let survey = survey_of(&script, 4, &found);
        let [finding] = &survey.findings[..] else { panic!("{survey:?}") };
        assert!(finding.text.contains("\"f\""), "{finding:?}");
        assert_eq!(intact::judge(&[&survey]).verdict, Verdict::Violated);
        (finding.outcome, finding.seq, finding.location)
    };
    assert_eq!(damaged(RunWhat::Zeros, 1), (Outcome::Hole, Some(Seq(3)), 512));
    assert_eq!(damaged(RunWhat::Unreadable(5), 0), (Outcome::Unreadable, Some(Seq(4)), 0));
    let garbage = RunWhat::Odd(vec![0xa5; 512].into());
    assert_eq!(damaged(garbage, 1), (Outcome::Garbage, Some(Seq(3)), 512));
    let mut found = after(&script, 4);
    found.nodes.clear();
    found.exists = false;
    let survey = survey_of(&script, 4, &found);
    assert!(survey.findings.iter().any(|finding| finding.outcome == Outcome::Hole));
    let control = survey_of(&script, 4, &after(&script, 4));
    assert_eq!(control.findings, Vec::new());
    assert_eq!(intact::judge(&[&control]).verdict, Verdict::Held);
}
