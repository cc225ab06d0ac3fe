//! `consistent` on ZFS: the file system's own tools find nothing wrong with the crash state.
//!
//! Scrub checks reachable blocks only, so `zdb` also compares them with the space maps, before the
//! import. The import must not have gone back: the txg it used is held against the highest whose
//! uberblock the trace shows durable.

use super::verdict::{Judgement, Verdict};
use crate::agent::protocol::ExecResult;
use crate::units::Txg;
use serde::{Deserialize, Serialize};

/// What the tools said about a crash state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// `zdb -e -bc` before the import.
    pub leak_check: ExecResult,
    /// `zpool import`, without any flag that forces, rewinds or hides.
    pub import: ExecResult,
    /// The txg of the uberblock that the import used, from the kernel's own log.
    pub used: Option<Txg>,
    /// `zpool status` after the scrub had ended.
    pub status: Option<ExecResult>,
    /// The same in numbers.
    pub scrub: Option<ScrubReport>,
    /// Blocks that could not be read, in all files.
    pub unreadable: u64,
    /// What the kernel's console showed if the guest died over this state.
    pub panic: Option<String>,
}

impl Recovery {
    /// What is known when the file system below the pool could not even be mounted.
    pub fn of_unmountable(words: &str) -> Recovery {
        let said = ExecResult {
            code: Some(32), // mount(8)'s own for a mount that failed
            timed_out: false,
            stdout: String::new(),
            stderr: format!("the file system that holds the pool does not mount: {words}"),
            took_ns: 0,
        };
        Recovery { leak_check: said.clone(), import: said, ..Recovery::of_dead_guest(None) }
    }

    /// What is known when the kernel died before any tool had answered.
    pub fn of_dead_guest(panic: Option<String>) -> Recovery {
        let unsaid = ExecResult {
            code: None,
            timed_out: true,
            stdout: String::new(),
            stderr: String::new(),
            took_ns: 0,
        };
        Recovery {
            leak_check: unsaid.clone(),
            import: unsaid,
            used: None,
            status: None,
            scrub: None,
            unreadable: 0,
            panic,
        }
    }
}

/// What a finished scrub says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Whether it repaired nothing: its own text is `0B`.
    pub repaired_nothing: bool,
    /// Errors it met.
    pub errors: u64,
    /// Whether the pool says `No known data errors`.
    pub no_known_data_errors: bool,
}

/// Transaction groups as the trace and the guest's reports know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedTxg {
    /// The highest whose uberblock is durable in this crash state.
    pub durable: Option<Txg>,
    /// Whether the crash model leaves no later one by chance.
    pub exact: bool,
    /// The highest whose uberblock reached the disk at all.
    pub written: Option<Txg>,
}

/// What one check says.
enum Check {
    Good(String),
    Bad(String),
    Unknown(String),
    Broken(String),
}

/// Judges one crash state.
pub fn judge(recovery: &Recovery, expected: ExpectedTxg) -> Judgement {
    let checks = [
        panic(recovery),
        leaks(&recovery.leak_check),
        import(&recovery.import),
        txg(recovery.used, expected),
        scrub(recovery),
        reading(recovery),
    ];
    let verdict = Verdict::of_all(checks.iter().map(|check| match check {
        Check::Good(_) => Verdict::Held,
        Check::Bad(_) => Verdict::Violated,
        Check::Unknown(_) => Verdict::NotMeasured,
        Check::Broken(_) => Verdict::HarnessBroken,
    }));
    // The deciding sentences come first.
    let mut because: Vec<(bool, String)> = checks
        .into_iter()
        .map(|check| match check {
            Check::Good(text) => (true, text),
            Check::Bad(text) | Check::Unknown(text) | Check::Broken(text) => (false, text),
        })
        .filter(|(_, text)| !text.is_empty())
        .collect();
    because.sort_by_key(|(good, _)| *good);
    let because = because.into_iter().map(|(_, text)| text).collect();
    Judgement { verdict, because, findings: Vec::new(), window: None }
}

fn panic(recovery: &Recovery) -> Check {
    match &recovery.panic {
        None => Check::Good(String::new()),
        Some(console) => Check::Bad(format!("the kernel died over this state: {console}")),
    }
}

/// The last lines of a tool's output, for a sentence.
fn tail(run: &ExecResult) -> String {
    let text = if run.stderr.trim().is_empty() { &run.stdout } else { &run.stderr };
    let lines: Vec<&str> = text.trim().lines().rev().take(4).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

/// A tool that was killed, or that had no memory, says nothing of the file system. One that gave up
/// by itself over what it found (an assertion ends in a signal too) says why.
fn is_the_labs_fault(run: &ExecResult) -> bool {
    let said = |words: &str| run.stderr.contains(words) || run.stdout.contains(words);
    let asserted = said("VERIFY") || said("ASSERT");
    said("Cannot allocate memory") || (run.code.is_none() && !asserted)
}

fn leaks(run: &ExecResult) -> Check {
    let clean = run.stdout.contains("No leaks (block sum matches space maps exactly)");
    match run.code {
        _ if run.timed_out => Check::Unknown("zdb -e -bc did not end in time".to_owned()),
        Some(0) if clean => Check::Good("zdb -e -bc: no leaks, every block's checksum".to_owned()),
        _ if is_the_labs_fault(run) => {
            Check::Unknown(format!("zdb -e -bc could not do its work: {}", tail(run)))
        }
        Some(code) => Check::Bad(format!("zdb -e -bc ended with {code}: {}", tail(run))),
        None => Check::Bad(format!("zdb -e -bc gave up by a signal: {}", tail(run))),
    }
}

fn import(run: &ExecResult) -> Check {
    match run.code {
        _ if run.timed_out => Check::Unknown("zpool import did not end in time".to_owned()),
        Some(0) => Check::Good("imported without a flag".to_owned()),
        _ if is_the_labs_fault(run) => {
            Check::Unknown(format!("zpool import could not do its work: {}", tail(run)))
        }
        _ => Check::Bad(format!("zpool import failed: {}", tail(run))),
    }
}

fn txg(used: Option<Txg>, expected: ExpectedTxg) -> Check {
    let Some(used) = used else {
        return Check::Unknown("the kernel did not say which txg the import used".to_owned());
    };
    match expected {
        ExpectedTxg { written: Some(written), .. } if used > written => Check::Broken(format!(
            "the import used txg {used}, but the disk never saw an uberblock after {written}"
        )),
        ExpectedTxg { durable: Some(durable), exact: true, .. } if used > durable => {
            Check::Broken(format!(
                "the import used txg {used}, but this crash state holds no uberblock after {durable}"
            ))
        }
        ExpectedTxg { durable: Some(durable), .. } if used < durable => Check::Bad(format!(
            "went back from txg {durable}, whose uberblock was durable, to {used}"
        )),
        ExpectedTxg { durable: Some(durable), written: Some(_), .. } => Check::Good(format!(
            "the import used txg {used}; the newest durable uberblock is {durable}"
        )),
        _ => Check::Unknown("the trace shows no durable uberblock to compare with".to_owned()),
    }
}

fn scrub(recovery: &Recovery) -> Check {
    match recovery.scrub {
        None => Check::Unknown("no finished scrub was reported".to_owned()),
        Some(ScrubReport { repaired_nothing: true, errors: 0, no_known_data_errors: true }) => {
            Check::Good("scrub: 0 errors, 0 bytes repaired".to_owned())
        }
        Some(_) => {
            let text = recovery.status.as_ref().map(tail).unwrap_or_default();
            Check::Bad(format!("scrub or status report errors or repairs: {text}"))
        }
    }
}

fn reading(recovery: &Recovery) -> Check {
    match recovery.unreadable {
        _ if recovery.import.code != Some(0) => Check::Good(String::new()),
        0 => Check::Good("every file was read".to_owned()),
        n => Check::Bad(format!("{n} blocks could not be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(code: i32, stdout: &str) -> ExecResult {
        ExecResult {
            code: Some(code),
            timed_out: false,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            took_ns: 1,
        }
    }

    fn clean() -> Recovery {
        Recovery {
            leak_check: run(0, "\n\tNo leaks (block sum matches space maps exactly)\n"),
            import: run(0, ""),
            used: Some(Txg(20)),
            status: Some(run(0, "errors: No known data errors")),
            scrub: Some(ScrubReport {
                repaired_nothing: true,
                errors: 0,
                no_known_data_errors: true,
            }),
            unreadable: 0,
            panic: None,
        }
    }

    fn verdict(recovery: Recovery) -> Verdict {
        judge(&recovery, expected(true)).verdict
    }

    fn expected(exact: bool) -> ExpectedTxg {
        ExpectedTxg { durable: Some(Txg(20)), written: Some(Txg(21)), exact }
    }

    #[test]
    fn a_clean_state_holds_and_each_single_fault_is_seen() {
        assert_eq!(verdict(clean()), Verdict::Held);
        let scrub = clean().scrub.unwrap();
        let faults = [
            Recovery { leak_check: run(0, "leaked space: vdev 0"), ..clean() },
            Recovery { leak_check: run(2, ""), ..clean() },
            Recovery { import: run(1, "cannot import"), ..clean() },
            Recovery { used: Some(Txg(19)), ..clean() },
            Recovery { scrub: Some(ScrubReport { repaired_nothing: false, ..scrub }), ..clean() },
            Recovery { scrub: Some(ScrubReport { errors: 1, ..scrub }), ..clean() },
            Recovery {
                scrub: Some(ScrubReport { no_known_data_errors: false, ..scrub }),
                ..clean()
            },
            Recovery { unreadable: 1, ..clean() },
            Recovery { panic: Some("VERIFY3(0 == 1) failed".into()), ..clean() },
        ];
        for fault in faults {
            assert_eq!(verdict(fault.clone()), Verdict::Violated, "{fault:?}");
        }
    }

    #[test]
    fn what_no_tool_said_is_not_a_pass_and_an_unborn_txg_is_a_broken_harness() {
        assert_eq!(verdict(Recovery { used: None, ..clean() }), Verdict::NotMeasured);
        assert_eq!(verdict(Recovery { scrub: None, ..clean() }), Verdict::NotMeasured);
        let slow = ExecResult { timed_out: true, code: None, ..run(0, "") };
        assert_eq!(verdict(Recovery { import: slow, ..clean() }), Verdict::NotMeasured);
        assert_eq!(verdict(Recovery { used: Some(Txg(22)), ..clean() }), Verdict::HarnessBroken);
        let later = Recovery { used: Some(Txg(21)), ..clean() };
        assert_eq!(judge(&later, expected(true)).verdict, Verdict::HarnessBroken);
        assert_eq!(judge(&later, expected(false)).verdict, Verdict::Held, "there by chance");
        let unknown = ExpectedTxg { durable: None, written: None, exact: true };
        assert_eq!(judge(&clean(), unknown).verdict, Verdict::NotMeasured);
    }

    #[test]
    fn the_deciding_sentence_comes_first() {
        let judged = judge(
            &Recovery { import: run(1, "cannot import 'tank': I/O error"), ..clean() },
            expected(true),
        );
        assert!(judged.because[0].contains("cannot import 'tank'"), "{:?}", judged.because);
    }
}
