//! Scripts on a real folder of this machine.

use super::*;
use crate::history::message::{Frames, Message, StreamEvent};
use crate::record::ring::Ring;
use crate::script::generate::names::{Entry, Names};
use crate::script::op::WriteHow;
use crate::script::spec::Forced;
use crate::units::{RunId, StreamId};
use crate::workload::outbox::Port;
use nix::errno::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

struct Outcome {
    messages: Vec<Message>,
    fill_acks: usize,
    rate: StreamRate,
}

fn plan(folder: &Path, script: ScriptSpec, fault: Option<WriterFault>) -> Plan {
    let stream = StreamPlan {
        id: StreamId(1),
        dataset: "customer".into(),
        path: folder.join("stream-1").display().to_string(),
        pattern: Pattern::Script(script),
        pace_hz: None,
        batch: 32,
        fault,
    };
    Plan { run: RunId([1; 16]), seed: 7, bodies: 1, streams: vec![stream] }
}

fn messages(file: &File) -> Vec<Message> {
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    let mut frames = Frames::default();
    frames.feed(&bytes);
    std::iter::from_fn(|| frames.next_frame().expect("whole frames").map(|(_, m)| m)).collect()
}

fn acks(messages: &[Message]) -> usize {
    messages.iter().filter(|m| matches!(m, Message::Op(op) if op.ack.is_some())).count()
}

fn listed(lines: &[&str], fill: u64) -> ScriptSpec {
    ScriptSpec::Listed { operations: lines.iter().map(|line| (*line).to_owned()).collect(), fill }
}

/// Runs a script that ends by itself; `between` comes behind the set-up.
fn run(plan: Plan, between: impl FnOnce()) -> Outcome {
    let file = tempfile::tempfile().expect("a file");
    let port = Arc::new(Port::new(file.try_clone().expect("a second handle")));
    let ring = Arc::new(Ring::make(plan.seed, plan.bodies));
    let shared = Arc::new(Shared { plan, ring, events: Arc::default(), port });
    let stream = shared.plan.streams[0].clone();
    let Pattern::Script(script) = &stream.pattern else { panic!("a script") };
    let mut writer = ScriptWriter::create(&shared, &stream, script).expect("a new folder");
    writer.fill().expect("a set-up that can be carried out");
    let fill_acks = acks(&messages(&file));
    between();
    let rate = Box::new(writer).run(&AtomicBool::new(false)).expect("a file takes all messages");
    Outcome { messages: messages(&file), fill_acks, rate }
}

fn last_note(outcome: &Outcome) -> Option<StreamEvent> {
    match outcome.messages.last() {
        Some(Message::Stream(note)) => Some(note.what),
        _ => None,
    }
}

#[test]
fn each_operation_is_announced_carried_out_and_acknowledged_and_the_end_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = ["mkdir d", "create d/a", "write d/a 0 64", "fsync d/a", "rename d/a d/b"];
    let outcome = run(plan(folder.path(), listed(&lines, 2), None), || {});
    assert_eq!((outcome.fill_acks, outcome.rate.acked), (2, 3));
    assert_eq!(last_note(&outcome), Some(StreamEvent::Ended));
    let mut order = Vec::new();
    for message in &outcome.messages {
        let Message::Op(op) = message else { continue };
        if let Some(ack) = op.ack {
            assert!(ack.start < ack.done && ack.done < ack.end && ack.digest == [0; 8]);
            order.push(format!("ack {}", ack.seq));
        }
        order.extend(op.intent.map(|intent| format!("intent {}", intent.seq)));
    }
    let expected = "intent 1,intent 2,ack 1,ack 2,intent 3,ack 3,intent 4,ack 4,intent 5,ack 5";
    assert_eq!(order.join(","), expected);
    let bytes = fs::read(folder.path().join("stream-1/d/b")).expect("the renamed file");
    let mut words = vec![0; 64];
    Key::new(7, StreamId(1)).fill(Seq(3), 0, &mut words);
    assert_eq!(bytes, words);
}

#[test]
fn after_a_failed_call_nothing_more_is_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = ["create a", "create b", "create c", "create e"];
    let taken = folder.path().join("stream-1/c");
    let plan = plan(folder.path(), listed(&lines, 0), None);
    let outcome = run(plan, || fs::write(taken, "someone's").expect("a file"));
    assert_eq!(outcome.rate.acked, 2);
    assert_eq!(acks(&outcome.messages), 2);
    assert_eq!(last_note(&outcome), Some(StreamEvent::Failed(Errno::EEXIST as i32)));
}

#[test]
fn a_folder_that_exists_is_never_written_to() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("stream-1")).expect("a folder");
    assert_eq!(ScriptCalls::create(&folder.path().join("stream-1")).map(drop), Err(Errno::EEXIST));
}

#[test]
fn skipped_syncs_are_acknowledged_without_being_carried_out() {
    let lines = ["create a", "fsync a", "syncfs"];
    let syncs = |fault| {
        let folder = tempfile::tempdir().expect("a folder");
        let gone = folder.path().join("stream-1/a");
        let plan = plan(folder.path(), listed(&lines, 1), fault);
        run(plan, || fs::remove_file(gone).expect("the file"))
    };
    // The file is taken away behind its back, so a sync that is carried out fails.
    let honest = syncs(None);
    assert_eq!(last_note(&honest), Some(StreamEvent::Failed(Errno::ENOENT as i32)), "control");
    let lying = syncs(Some(WriterFault::SkipSync));
    assert_eq!((lying.rate.acked, last_note(&lying)), (2, Some(StreamEvent::Ended)));
}

/// Carries out so many operations of a script and holds names and sizes against the light model.
fn carried_out(script: &ScriptSpec, seed: u64, count: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut plan = plan(folder.path(), script.clone(), None);
    plan.seed = seed;
    let mut work = Work::create(&plan, &plan.streams[0], script).expect("a new folder");
    let mut names = Names::default();
    for _ in 0..count {
        let Some(op) = work.next else { break };
        names.apply(&op, work.generator.paths());
        let text = crate::script::text::text(&op, work.generator.paths());
        assert_eq!(work.carry_plainly(), Ok(true), "{text}");
    }
    let root = folder.path().join("stream-1");
    for (path, entry) in names.all() {
        let found = fs::symlink_metadata(root.join(path)).expect(path);
        let as_said = match entry {
            Entry::Dir => found.is_dir(),
            Entry::Symlink => found.is_symlink(),
            Entry::File(_) => found.is_file() && found.size() == names.size(path),
        };
        assert!(as_said, "{path}: {found:?}");
    }
}

#[test]
fn every_operation_of_random_scripts_succeeds_on_a_real_file_system() {
    let script = ScriptSpec::Random { names: 4, file_bytes: 65_536, sync_every: 5 };
    (0..8).for_each(|seed| carried_out(&script, seed, 1_500));
}

#[test]
fn every_operation_of_all_other_scripts_succeeds_on_a_real_file_system() {
    carried_out(&ScriptSpec::Exhaustive { operations: 1 }, 7, usize::MAX);
    carried_out(&ScriptSpec::PackageInstall { files: 60, unsafe_io: false }, 7, 2_500);
    for forced in [
        Forced::Fsync,
        Forced::Fdatasync,
        Forced::ODsync,
        Forced::OSync,
        Forced::ODirect,
        Forced::Msync,
        Forced::SyncFileRange,
    ] {
        carried_out(&ScriptSpec::Append { block_bytes: 1536, forced }, 7, 40);
        carried_out(&ScriptSpec::Overwrite { slots: 4, block_bytes: 4096, forced }, 7, 40);
    }
}

#[test]
fn only_the_ack_of_a_sync_that_took_its_time_is_sent_at_once() {
    let path = crate::script::op::PathId(0);
    let (offset, len) = (0, 8);
    let write = |how| Op::Write { path, offset, len, how };
    let sync = Op::Sync { path, how: crate::script::op::SyncHow::Fsync };
    assert!(is_prompt(&sync, PROMPT_NS) && is_prompt(&write(WriteHow::Dsync), PROMPT_NS));
    assert!(!is_prompt(&sync, PROMPT_NS - 1), "sync=disabled");
    assert!(!is_prompt(&write(WriteHow::Buffered), PROMPT_NS));
}

#[test]
fn a_plain_loop_makes_the_same_calls_and_says_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(folder.path(), listed(&["create a", "create b", "syncfs"], 1), None);
    let rate = plain_loop(&plan, Duration::from_secs(60)).expect("a script");
    assert_eq!(rate.acked, 2);
    assert!(folder.path().join("stream-1/b").exists());
}
