//! Trees that a file system may leave, and planted faults that none may.

use super::*;
use crate::script::model::reference::Reference;
use crate::script::model::testing;
use crate::script::op::{Op, Paths, SyncHow, WriteHow};
use crate::script::spec::{Script, ScriptSpec};
use crate::script::tree::{NodeKind, ObservedTree, RunWhat};
use crate::units::RunId;
use crate::verify::survey::Promise;
use crate::verify::survey::test_support::stream;
use crate::workload::plan::Plan;
use proptest::prelude::*;

fn survey_of(script: &Script, acked: usize, found: &ObservedTree, family: Family) -> StreamSurvey {
    let ops: Vec<_> = (0..acked as u64).map(|n| (3 * n + 1, 3 * n + 2, 3 * n + 3)).collect();
    let (_, said) = stream(1, &ops, 0);
    let plan = Plan { run: RunId([1; 16]), seed: 7, bodies: 1, streams: Vec::new() };
    let promise = Promise::Everything;
    // The one behind the newest acked may have run.
    let mut script = script.clone();
    script.ops.truncate(acked + 1);
    let script = &script;
    let held = Held { plan: &plan, stream: StreamId(1), script, said: &said, found, promise };
    in_pieces(&held, family)
}

fn after(script: &Script, upto: usize) -> ObservedTree {
    Reference::after(&script.paths, &script.ops[..upto]).observe(StreamId(1))
}

proptest! {
    /// Whatever came after the newest sync of everything may be there up to any operation.
    #[test]
    fn every_instant_since_the_last_sync_of_everything_is_allowed(
        seed: u64, count in 1usize..40, at in 0usize..40, synced in 0usize..40,
    ) {
        let mut script = testing::script(seed, count);
        let synced = synced.min(count);
        let root = script.paths.find("").expect("the root");
        script.ops.retain(|op| op.sync().is_none());
        let synced = synced.min(script.ops.len());
        script.ops.insert(synced, Op::Sync { path: root, how: SyncHow::Syncfs });
        let at = at.clamp(synced, script.ops.len());
        for family in [Family::Plain, Family::Zfs] {
            let survey = survey_of(&script, script.ops.len(), &after(&script, at), family);
            prop_assert_eq!(&survey.findings, &Vec::new(), "{:?}", script.ops);
            prop_assert_eq!((survey.missing, survey.renamed.broken), (Missing::None, Vec::new()));
        }
    }

    /// The whole tree is always allowed, with syncs of every kind in the script.
    #[test]
    fn a_tree_that_lost_nothing_has_no_finding(seed: u64, count in 1usize..60) {
        let script = testing::script(seed, count);
        for family in [Family::Plain, Family::Zfs] {
            let survey = survey_of(&script, count, &after(&script, count), family);
            prop_assert_eq!(&survey.findings, &Vec::new(), "{:?}", script.ops);
            prop_assert_eq!((survey.missing, survey.renamed.broken), (Missing::None, Vec::new()));
        }
    }

    /// With a sync of everything behind every operation only one tree is allowed.
    #[test]
    fn an_older_tree_than_the_synced_one_is_a_loss(seed: u64, count in 2usize..30, back in 1usize..30) {
        let mut script = testing::script(seed, count);
        script.ops.retain(|op| op.sync().is_none());
        let count = script.ops.len();
        prop_assume!(count >= 1);
        let root = script.paths.find("").expect("the root");
        script.ops.push(Op::Sync { path: root, how: SyncHow::Syncfs });
        let found = after(&script, count - back.min(count));
        let whole = after(&script, count);
        let differs = found.nodes != whole.nodes;
        let survey = survey_of(&script, count + 1, &found, Family::Plain);
        // Two empty files cannot be told from each other.
        let has_content = |tree: &ObservedTree| tree.nodes.iter().all(|node| {
            !matches!(&node.kind, NodeKind::File(file) if !file.runs.iter().any(|run| matches!(run.what, RunWhat::Of(_))))
        });
        prop_assume!(!differs || has_content(&found) && has_content(&whole));
        prop_assert_eq!(!survey.findings.is_empty(), differs, "{:?} {:?}", survey, script.ops);
    }
}

/// A program that skips its syncs loses all that it was told is safe. Now and then everything that was
/// synced was done away with since, and then a tree without it owes nothing, but witnesses nothing.
#[test]
fn a_tree_that_is_the_set_up_alone_lost_what_was_synced_or_witnesses_nothing() {
    let spec = ScriptSpec::Random { names: 6, file_bytes: 65_536, sync_every: 5 };
    let mut lost = 0;
    for (count, id) in [40u64, 400, 4_000].into_iter().flat_map(|n| (0..6).map(move |id| (n, id))) {
        let script = spec.script(1, StreamId(id), count);
        let set_up = after(&script, script.fill as usize);
        let survey = survey_of(&script, count as usize - 1, &set_up, Family::Plain);
        assert!(!survey.load_survived(), "{count} operations of stream {id}");
        lost += u32::from(survey.missing != Missing::None);
    }
    assert!(lost >= 12, "{lost} of 18");
}

/// What lies in a folder tells which folder it is: the one renamed over it later held another file.
#[test]
fn a_folder_that_a_later_one_replaced_is_not_taken_for_that() {
    let lines = [
        "mkdir d",
        "mkdir a",
        "mkdir a/e",
        "create y",
        "write y 0 64",
        "fsync y",
        "create d/n",
        "write d/n 0 64",
        "syncfs",
        "rename y a/e/n",
        "unlink a/e/n",
        "rename d a/e",
    ];
    let (mut paths, lines) = (Paths::default(), lines.map(str::to_owned));
    let ops = crate::script::text::parse(&lines, &mut paths).expect("a script");
    let script = Script { paths, ops, fill: 0 };
    for upto in [9, 10, 11, 12] {
        let survey = survey_of(&script, 12, &after(&script, upto), Family::Plain);
        assert_eq!(survey.findings, Vec::new(), "after {upto}");
    }
    let mut damaged = after(&script, 10);
    let node = damaged.nodes.iter_mut().find(|node| node.path == "a/e/n").expect("a file");
    let NodeKind::File(file) = &mut node.kind else { panic!("a file") };
    file.runs[0].what = RunWhat::Odd(vec![1; file.runs[0].len as usize].into());
    let survey = survey_of(&script, 12, &damaged, Family::Plain);
    assert!(!survey.findings.is_empty(), "control");
}

/// "a" written and synced, "b" written, "a" renamed to "b".
fn replaced() -> (Script, [usize; 2]) {
    let mut paths = Paths::default();
    let (a, b, root) = (paths.intern("a"), paths.intern("b"), paths.intern(""));
    let write = |path| Op::Write { path, offset: 0, len: 1024, how: WriteHow::Buffered };
    let fsync = |path| Op::Sync { path, how: SyncHow::Fsync };
    let ops = vec![
        Op::Create(b),
        write(b),
        fsync(b),
        Op::Create(a),
        write(a),
        fsync(a),
        Op::Rename { from: a, to: b },
        Op::Sync { path: root, how: SyncHow::FsyncDir },
    ];
    (Script { paths, ops, fill: 0 }, [6, 7])
}

#[test]
fn a_renamed_file_is_one_whole_version_under_one_name() {
    let (script, [before, renamed]) = replaced();
    let broken = |found: &ObservedTree| {
        let survey = survey_of(&script, renamed, found, Family::Plain);
        assert_eq!(survey.renamed.checked, 1);
        survey.renamed.broken.len()
    };
    assert_eq!(broken(&after(&script, before)), 0, "control: the old version");
    assert_eq!(broken(&after(&script, renamed)), 0, "control: the new one");
    let mut both = after(&script, before);
    both.nodes[1].kind = both.nodes[0].kind.clone();
    for node in &mut both.nodes {
        let NodeKind::File(file) = &mut node.kind else { panic!("a file") };
        file.nlink = 2;
    }
    assert!(broken(&both) > 0, "both names");
    let mut neither = after(&script, before);
    neither.nodes.remove(0);
    assert!(broken(&neither) > 0, "the old version, and the new one is nowhere");
    let mut torn = after(&script, renamed);
    let NodeKind::File(file) = &mut torn.nodes[0].kind else { panic!("a file") };
    file.runs[0].what = RunWhat::Zeros;
    assert!(broken(&torn) > 0, "zeros under the new name");
}

#[test]
fn what_was_synced_is_owed_and_what_was_not_is_not() {
    let (script, _) = replaced();
    let owed = |found: &ObservedTree, acked| {
        let survey = survey_of(&script, acked, found, Family::Plain);
        (survey.missing, survey.findings.first().map(|finding| (finding.outcome, finding.seq)))
    };
    let none = (Missing::None, None);
    assert_eq!(owed(&after(&script, 2), 2), none, "control");
    assert_eq!(owed(&after(&script, 0), 2), none, "nothing was synced");
    let hole = (Missing::From(Seq(1)), Some((Outcome::Hole, Some(Seq(1)))));
    assert_eq!(owed(&after(&script, 0), 3), hole, "its name was promised with it");
    let mut zeros = after(&script, 2);
    let NodeKind::File(file) = &mut zeros.nodes[0].kind else { panic!("a file") };
    file.runs[0].what = RunWhat::Zeros;
    assert_eq!(owed(&zeros, 2), none, "not synced yet");
    let lost = (Missing::From(Seq(2)), Some((Outcome::Hole, Some(Seq(2)))));
    assert_eq!(owed(&zeros, 3), lost);
    let renamed = (Missing::From(Seq(7)), Some((Outcome::Stale, Some(Seq(7)))));
    let back = owed(&after(&script, 6), 8);
    assert_eq!(back.0, renamed.0, "the folder was synced: {back:?}");
    assert_eq!(owed(&after(&script, 6), 7), none, "the folder was not");
    let survey = survey_of(&script, 8, &after(&script, 8), Family::Plain);
    let syncs = [(3, 2), (6, 5), (8, 7)];
    let proof = |(sync, since): (u64, u64)| SyncProof { sync: Seq(sync), since: Seq(since) };
    assert_eq!(survey.proofs, Proofs::Syncs(syncs.into_iter().map(proof).collect()));
}

#[test]
fn a_word_of_another_file_or_another_place_is_no_version() {
    let (script, _) = replaced();
    let mut found = after(&script, 6);
    let NodeKind::File(file) = &mut found.nodes[1].kind else { panic!("a file") };
    file.runs[0].what = RunWhat::Of(Seq(5));
    let survey = survey_of(&script, 6, &found, Family::Plain);
    assert_eq!(survey.findings.len(), 1, "{survey:?}");
    assert_eq!(survey.findings[0].outcome, Outcome::Misdirected);
    let mut garbage = after(&script, 6);
    let NodeKind::File(file) = &mut garbage.nodes[1].kind else { panic!("a file") };
    file.runs[0].what = RunWhat::Odd(vec![0xa5; 1024].into());
    let survey = survey_of(&script, 6, &garbage, Family::Plain);
    assert_eq!(survey.findings[0].outcome, Outcome::Garbage);
}
