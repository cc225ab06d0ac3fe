//! A real shell, what it says, and what is made of it.

use super::*;
use crate::history::message::StreamEvent;
use crate::record::rows::ObservedRows;
use crate::workload::plan::Pattern;
use crate::workload::testing::Bench;

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

fn exec(run: &str, survivors: &str) -> ExecSpec {
    let set_up = shell("echo $PLUGPULL_SEED > \"$PLUGPULL_DIR/made\"");
    ExecSpec { set_up, run: shell(run), survivors: shell(survivors), full_root: false }
}

/// Runs a program to its own end.
fn ran(run: &str) -> Bench {
    let exec = exec(run, "true");
    let bench = Bench::new(Pattern::Exec(exec.clone()), None);
    let stream = ExecStream::create(bench.shared.clone(), &bench.plan().streams[0], &exec);
    Box::new(stream.expect("set up")).run(&AtomicBool::new(false)).expect("the lab was told");
    bench
}

fn found(survivors: &str) -> ObservedRows {
    let bench = Bench::new(Pattern::Exec(exec("true", survivors)), None);
    fs::create_dir(&bench.plan().streams[0].path).expect("a folder");
    bench.read_back()
}

#[test]
fn what_a_program_says_becomes_intents_and_acks_one_by_one_and_in_groups() {
    let bench = ran("cat \"$PLUGPULL_DIR/made\" > /dev/null || exit 9
        echo intent 1; echo done 1; echo ack 1
        echo intent 2; echo intent 3; echo done 2; echo intent 4; echo ack 4");
    assert_eq!(bench.end(), Some(StreamEvent::Ended));
    let acks = bench.acks();
    assert_eq!(acks.iter().map(|ack| ack.seq.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(acks.windows(2).all(|pair| pair[0].start < pair[1].start));
    assert!(acks.iter().all(|ack| ack.start < ack.done && ack.done < ack.end));
    assert!(acks[1].done < acks[3].start, "2 was done before 4 began");
    assert_eq!(bench.intents().len(), 4);
}

#[test]
fn a_program_that_dies_or_says_nonsense_ends_the_stream_and_nothing_after_it_counts() {
    let failures = [
        ("echo intent 1; echo ack 1; exit 3", Errno::ECHILD, 1),
        ("echo intent 1; echo ack 1; kill -9 $$", Errno::ECHILD, 1),
        ("echo intent 1; echo hello; echo ack 1", Errno::EPROTO, 0),
        ("echo intent 1; echo ack 1; echo intent 3; echo ack 3", Errno::EPROTO, 1),
        ("echo intent 1; echo ack 2", Errno::EPROTO, 0),
        ("echo intent 1", Errno::EPROTO, 0),
        ("echo intent 1; printf 'ack 1'", Errno::EPROTO, 0),
    ];
    for (run, errno, acked) in failures {
        let bench = ran(run);
        assert_eq!(bench.end(), Some(StreamEvent::Failed(errno as i32)), "{run}");
        assert_eq!(bench.acks().len(), acked, "{run}");
    }
    let missing = ExecSpec { run: vec!["no-such-program".into()], ..exec("true", "true") };
    let bench = Bench::new(Pattern::Exec(missing.clone()), None);
    let stream = ExecStream::create(bench.shared.clone(), &bench.plan().streams[0], &missing);
    Box::new(stream.expect("set up")).run(&AtomicBool::new(false)).expect("the lab was told");
    assert_eq!(bench.end(), Some(StreamEvent::Failed(Errno::ENOENT as i32)));
}

#[test]
fn a_program_that_goes_on_is_ended_with_its_children() {
    let exec =
        exec("n=1; while :; do echo intent $n; echo ack $n; n=$((n+1)); sleep 0.01; done", "true");
    let bench = Bench::new(Pattern::Exec(exec.clone()), None);
    let stream = ExecStream::create(bench.shared.clone(), &bench.plan().streams[0], &exec);
    let (stream, stop) = (stream.expect("set up"), Arc::new(AtomicBool::new(false)));
    let told = stop.clone();
    let load = std::thread::spawn(move || Box::new(stream).run(&told));
    while bench.acks().len() < 5 {
        assert!(!load.is_finished());
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(load.join().expect("no panic").expect("told").acked >= 5);
    assert_eq!(bench.end(), Some(StreamEvent::Ended));
}

#[test]
fn a_set_up_that_fails_is_an_error_with_its_words() {
    let failing = ExecSpec { set_up: shell("echo no room >&2; exit 4"), ..exec("true", "true") };
    let bench = Bench::new(Pattern::Exec(failing.clone()), None);
    let stream = ExecStream::create(bench.shared.clone(), &bench.plan().streams[0], &failing);
    let words = stream.expect_err("it failed").to_string();
    assert!(words.contains("exit code 4") && words.contains("no room"), "{words}");
}

#[test]
fn what_survivors_says_is_read_back_and_its_failure_is_a_failed_check() {
    let rows =
        found("echo check mine ok fine; echo survived 1-5; echo broken 6 half; echo survived 7");
    assert_eq!(rows.survived, [1..=5, 7..=7]);
    assert_eq!(rows.broken.len(), 1);
    let names: Vec<&str> = rows.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["survivors ran", "survivors' words", "mine"]);
    assert!(rows.checks.iter().all(|check| check.passed), "{:?}", rows.checks);
    let failures = [
        ("echo survived 1; echo broken pipe >&2; exit 2", "survivors ran", "exit code 2"),
        ("kill -9 $$", "survivors ran", "SIGKILL"),
        ("echo survived 1; echo rows: 12", "survivors' words", "rows: 12"),
        ("echo check mine failed index", "mine", "index"),
    ];
    for (survivors, name, words) in failures {
        let rows = found(survivors);
        let failed: Vec<_> = rows.checks.iter().filter(|check| !check.passed).collect();
        assert_eq!(failed.len(), 1, "{survivors}: {failed:?}");
        assert!(failed[0].name == name && failed[0].words.contains(words), "{failed:?}");
    }
}

#[test]
fn commands_in_the_fuller_root_see_their_folder_there() {
    let full = ExecSpec { full_root: true, ..exec("true", "true") };
    let bench = Bench::new(Pattern::Exec(full.clone()), None);
    let stream = &bench.plan().streams[0];
    assert_eq!(command(&full.run, &full)[..3], ["busybox", "chroot", "/full"]);
    let folder = format!("/data/{}/stream-1", stream.dataset);
    assert_eq!(environment(7, stream, &full)[0], ("PLUGPULL_DIR", folder));
    let plain = exec("true", "true");
    assert_eq!(command(&plain.run, &plain), plain.run);
    assert_eq!(environment(7, stream, &plain)[0].1, stream.path);
}
