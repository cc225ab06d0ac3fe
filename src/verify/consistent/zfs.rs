//! `consistent` on ZFS.
//!
//! Scrub checks reachable blocks only, so `zdb` also compares them with the space maps, before the
//! import. The import must not have gone back: the txg it used is held against the highest whose
//! uberblock the trace shows durable.

use super::{Check, is_the_labs_fault, panic, tail};
use crate::agent::protocol::ExecResult;
use crate::units::Txg;
use serde::{Deserialize, Serialize};

/// What the tools said about the crash state of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZfsRecovery {
    /// `zdb -e -bc` on the state as the crash left it: before the import, or on a disk of its own.
    pub leak_check: ExecResult,
    /// `zpool import`, without any flag that forces, rewinds or hides.
    pub import: ExecResult,
    /// The txg of the uberblock that the import used, from the kernel's own log.
    pub used: Option<Txg>,
    /// `zpool status` after the scrub had ended.
    pub status: Option<ExecResult>,
    /// The same in numbers.
    pub scrub: Option<ScrubReport>,
    /// What the kernel's console showed if the guest died over this state.
    pub panic: Option<String>,
}

impl ZfsRecovery {
    /// What is known when what the pool stands on (a file system, a partition, a loop device) could
    /// not even be brought up.
    pub fn of_unreachable(words: &str) -> ZfsRecovery {
        let said = ExecResult {
            code: Some(32), // mount(8)'s own for a mount that failed
            timed_out: false,
            stdout: String::new(),
            stderr: format!("what the pool stands on cannot be brought up: {words}"),
            took_ns: 0,
        };
        ZfsRecovery { leak_check: said.clone(), import: said, ..ZfsRecovery::unsaid() }
    }

    /// What is known when no tool has answered.
    pub(crate) fn unsaid() -> ZfsRecovery {
        let unsaid = ExecResult {
            code: None,
            timed_out: true,
            stdout: String::new(),
            stderr: String::new(),
            took_ns: 0,
        };
        ZfsRecovery {
            leak_check: unsaid.clone(),
            import: unsaid,
            used: None,
            status: None,
            scrub: None,
            panic: None,
        }
    }

    /// Every check of the tools' words.
    pub(super) fn checks(&self, expected: ExpectedTxg) -> Vec<Check> {
        let checks =
            [leaks(&self.leak_check), import(&self.import), txg(self.used, expected), scrub(self)];
        panic(self.panic.as_ref()).into_iter().chain(checks).collect()
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

fn leaks(run: &ExecResult) -> Check {
    let clean = run.stdout.contains("No leaks (block sum matches space maps exactly)");
    match run.code {
        _ if run.timed_out => Check::Unknown("zdb -e -bc did not end in time".to_owned()),
        Some(0) if clean => {
            Check::Good("zdb -e -bc: no leaks, every metadata block's checksum".to_owned())
        }
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

fn scrub(recovery: &ZfsRecovery) -> Check {
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

#[cfg(test)]
mod tests {
    use super::super::testing::{run, slow};
    use super::super::{Recovery, judge};
    use super::*;
    use crate::verify::verdict::Verdict;

    fn clean() -> ZfsRecovery {
        ZfsRecovery {
            leak_check: run(0, "\n\tNo leaks (block sum matches space maps exactly)\n"),
            import: run(0, ""),
            used: Some(Txg(20)),
            status: Some(run(0, "errors: No known data errors")),
            scrub: Some(ScrubReport {
                repaired_nothing: true,
                errors: 0,
                no_known_data_errors: true,
            }),
            panic: None,
        }
    }

    fn verdict(recovery: ZfsRecovery) -> Verdict {
        judge(&Recovery::Zfs(recovery), expected(true), 0).verdict
    }

    fn expected(exact: bool) -> ExpectedTxg {
        ExpectedTxg { durable: Some(Txg(20)), written: Some(Txg(21)), exact }
    }

    #[test]
    fn a_clean_state_holds_and_each_single_fault_is_seen() {
        assert_eq!(verdict(clean()), Verdict::Held);
        let scrub = clean().scrub.unwrap();
        let faults = [
            ZfsRecovery { leak_check: run(0, "leaked space: vdev 0"), ..clean() },
            ZfsRecovery { leak_check: run(2, ""), ..clean() },
            ZfsRecovery { import: run(1, "cannot import"), ..clean() },
            ZfsRecovery { used: Some(Txg(19)), ..clean() },
            ZfsRecovery {
                scrub: Some(ScrubReport { repaired_nothing: false, ..scrub }),
                ..clean()
            },
            ZfsRecovery { scrub: Some(ScrubReport { errors: 1, ..scrub }), ..clean() },
            ZfsRecovery {
                scrub: Some(ScrubReport { no_known_data_errors: false, ..scrub }),
                ..clean()
            },
            ZfsRecovery { panic: Some("VERIFY3(0 == 1) failed".into()), ..clean() },
        ];
        for fault in faults {
            assert_eq!(verdict(fault.clone()), Verdict::Violated, "{fault:?}");
        }
        let unreadable = judge(&Recovery::Zfs(clean()), expected(true), 1);
        assert_eq!(unreadable.verdict, Verdict::Violated);
    }

    #[test]
    fn what_no_tool_said_is_not_a_pass_and_an_unborn_txg_is_a_broken_harness() {
        assert_eq!(verdict(ZfsRecovery { used: None, ..clean() }), Verdict::NotMeasured);
        assert_eq!(verdict(ZfsRecovery { scrub: None, ..clean() }), Verdict::NotMeasured);
        assert_eq!(verdict(ZfsRecovery { import: slow(), ..clean() }), Verdict::NotMeasured);
        assert_eq!(verdict(ZfsRecovery { used: Some(Txg(22)), ..clean() }), Verdict::HarnessBroken);
        let later = ZfsRecovery { used: Some(Txg(21)), ..clean() };
        let later = Recovery::Zfs(later);
        assert_eq!(judge(&later, expected(true), 0).verdict, Verdict::HarnessBroken);
        assert_eq!(judge(&later, expected(false), 0).verdict, Verdict::Held, "there by chance");
        let unknown = ExpectedTxg { durable: None, written: None, exact: true };
        assert_eq!(judge(&Recovery::Zfs(clean()), unknown, 0).verdict, Verdict::NotMeasured);
    }

    #[test]
    fn the_deciding_sentence_comes_first() {
        let import = run(1, "cannot import 'tank': I/O error");
        let recovery = Recovery::Zfs(ZfsRecovery { import, ..clean() });
        let judged = judge(&recovery, expected(true), 0);
        assert!(judged.because[0].contains("cannot import 'tank'"), "{:?}", judged.because);
    }
}
