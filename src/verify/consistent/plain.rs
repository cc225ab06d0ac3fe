//! `consistent` on ext4, XFS and Btrfs: the file system mounts, which replays its log; unmounted again,
//! its checker finds nothing; it mounts once more, and every file reads.
//!
//! A checker is believed only if it also says that it came to its end: the words differ.

use super::{Check, is_the_labs_fault, lacked_memory, panic, tail};
use crate::agent::protocol::ExecResult;
use crate::stack::spec::PlainFs;
use serde::{Deserialize, Serialize};

/// What the kernel and the checker said about the crash state of a plain file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlainRecovery {
    /// Which file system.
    pub fs: PlainFs,
    /// The first mount, for reading and writing: it replays the log.
    pub mount: Step,
    /// Unmounting it again.
    pub unmount: Step,
    /// The checker, which changed nothing.
    pub check: Option<ExecResult>,
    /// The mount under which the files were read: the first, or one after the check.
    pub mount_read: Step,
    /// What the kernel's console showed if the guest died over this state.
    pub panic: Option<String>,
}

/// How mounting or unmounting went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// It came before this one that failed.
    NotTried,
    /// It went well.
    Done,
    /// The kernel refused, in its words.
    Failed(String),
}

impl PlainRecovery {
    /// What is known when nothing was tried yet.
    pub fn of_nothing(fs: PlainFs) -> PlainRecovery {
        PlainRecovery {
            fs,
            mount: Step::NotTried,
            unmount: Step::NotTried,
            check: None,
            mount_read: Step::NotTried,
            panic: None,
        }
    }

    /// Every check of their words, up to the first step that kept the rest from being tried.
    pub(super) fn checks(&self) -> Vec<Check> {
        let mut checks: Vec<Check> = panic(self.panic.as_ref()).into_iter().collect();
        checks.push(mounting(&self.mount, "it mounted, and replayed its log", "mount"));
        if self.mount != Step::Done {
            return checks;
        }
        if self.unmount != Step::Done {
            checks.push(Check::Unknown(match &self.unmount {
                Step::Failed(words) => format!("it could not be unmounted for the check: {words}"),
                _ => "it was not unmounted for the check".to_owned(),
            }));
            return checks;
        }
        let check = match &self.check {
            Some(run) => checking(self.fs, run),
            None => Check::Unknown(format!("{} was not run", checker(self.fs))),
        };
        // It says most, so it comes first where all is well.
        checks.insert(0, check);
        checks.push(mounting(&self.mount_read, "it mounted to be read", "mount to be read"));
        checks
    }
}

fn mounting(step: &Step, good: &str, what: &str) -> Check {
    match step {
        Step::Done => Check::Good(good.to_owned()),
        Step::Failed(words) if lacked_memory(words) => {
            Check::Unknown(format!("it could not be tried whether it would {what}: {words}"))
        }
        Step::Failed(words) => Check::Bad(format!("it does not {what}: {words}")),
        Step::NotTried => Check::Unknown(format!("it was not tried whether it would {what}")),
    }
}

/// The checker as a person would call it.
fn checker(fs: PlainFs) -> &'static str {
    match fs {
        PlainFs::Ext4 => "e2fsck -fn",
        PlainFs::Xfs => "xfs_repair -n",
        PlainFs::Btrfs => "btrfs check --readonly",
    }
}

/// What the checker prints when it has come to its end and found nothing.
fn is_clean(fs: PlainFs, run: &ExecResult) -> bool {
    let said = |words: &str| run.stderr.contains(words) || run.stdout.contains(words);
    match fs {
        PlainFs::Ext4 => said("Pass 5: Checking group summary information") && said(" blocks"),
        PlainFs::Xfs => said("No modify flag set") && !said("would "),
        PlainFs::Btrfs => said("no error found"),
    }
}

/// Whether the exit code says that the file system is at fault, and not the call or the device:
/// e2fsck sets bits (4: errors left uncorrected, 8 and above: it could not do its work); the others
/// know only 1, and xfs_repair 2 for a log that was not replayed.
fn blames_the_file_system(fs: PlainFs, code: i32) -> bool {
    match fs {
        PlainFs::Ext4 => code & 4 != 0 || (1..4).contains(&code),
        PlainFs::Xfs | PlainFs::Btrfs => true,
    }
}

fn checking(fs: PlainFs, run: &ExecResult) -> Check {
    let name = checker(fs);
    match run.code {
        _ if run.timed_out => Check::Unknown(format!("{name} did not end in time")),
        _ if is_the_labs_fault(run) => {
            Check::Unknown(format!("{name} could not do its work: {}", tail(run)))
        }
        Some(0) if is_clean(fs, run) => Check::Good(format!("{name}: nothing found")),
        Some(0) => Check::Bad(format!("{name} ended with 0 but not without a word: {}", tail(run))),
        Some(code) if blames_the_file_system(fs, code) => {
            Check::Bad(format!("{name} ended with {code}: {}", tail(run)))
        }
        Some(code) => {
            Check::Unknown(format!("{name} could not do its work ({code}): {}", tail(run)))
        }
        None => Check::Bad(format!("{name} gave up by a signal: {}", tail(run))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{killed, run, slow};
    use super::super::{ExpectedTxg, Recovery, judge};
    use super::*;
    use crate::verify::verdict::{Judgement, Verdict};

    const ALL: [PlainFs; 3] = [PlainFs::Ext4, PlainFs::Xfs, PlainFs::Btrfs];

    /// What each checker prints of a sound file system.
    fn clean_words(fs: PlainFs) -> &'static str {
        match fs {
            PlainFs::Ext4 => {
                "Pass 5: Checking group summary information\n/dev/vda: 15/16384 files (0.0% \
                 non-contiguous), 5321/65536 blocks\n"
            }
            PlainFs::Xfs => "Phase 7 - verify link counts...\nNo modify flag set, skipping\n",
            PlainFs::Btrfs => "found 393216 bytes used, no error found\n",
        }
    }

    fn clean(fs: PlainFs) -> PlainRecovery {
        PlainRecovery {
            mount: Step::Done,
            unmount: Step::Done,
            check: Some(run(0, clean_words(fs))),
            mount_read: Step::Done,
            ..PlainRecovery::of_nothing(fs)
        }
    }

    fn judged(recovery: PlainRecovery, unreadable: u64) -> Judgement {
        let none = ExpectedTxg { durable: None, exact: true, written: None };
        judge(&Recovery::Plain(recovery), none, unreadable)
    }

    fn verdict(recovery: PlainRecovery) -> Verdict {
        judged(recovery, 0).verdict
    }

    fn failed(words: &str) -> Step {
        Step::Failed(words.to_owned())
    }

    fn checked(fs: PlainFs, run: ExecResult) -> PlainRecovery {
        PlainRecovery { check: Some(run), ..clean(fs) }
    }

    #[test]
    fn a_clean_state_holds_and_each_single_fault_is_seen() {
        for fs in ALL {
            assert_eq!(verdict(clean(fs)), Verdict::Held);
            let bad_mount = "cannot mount /dev/vda: EUCLEAN: Structure needs cleaning";
            let unmountable =
                PlainRecovery { mount: failed(bad_mount), ..PlainRecovery::of_nothing(fs) };
            let judgement = judged(unmountable, 0);
            assert_eq!(judgement.verdict, Verdict::Violated);
            assert!(judgement.because[0].contains("Structure needs cleaning"), "{judgement:?}");
            let faults = [
                checked(fs, run(if fs == PlainFs::Ext4 { 4 } else { 1 }, "errors left")),
                checked(fs, run(0, "")),
                checked(fs, killed("SIGABRT")),
                PlainRecovery { mount_read: failed(bad_mount), ..clean(fs) },
                PlainRecovery { panic: Some("Kernel panic".into()), ..clean(fs) },
                PlainRecovery { panic: Some("BUG:".into()), ..PlainRecovery::of_nothing(fs) },
            ];
            for fault in faults {
                assert_eq!(verdict(fault.clone()), Verdict::Violated, "{fault:?}");
            }
            assert_eq!(judged(clean(fs), 1).verdict, Verdict::Violated, "an unreadable block");
        }
        let would = format!("would have reset link count\n{}", clean_words(PlainFs::Xfs));
        let recovery = checked(PlainFs::Xfs, run(0, &would));
        assert_eq!(verdict(recovery), Verdict::Violated);
    }

    #[test]
    fn what_no_tool_could_say_is_not_measured() {
        for fs in ALL {
            let no_memory = "cannot mount /dev/vda: ENOMEM: Out of memory";
            let unsaid = [
                PlainRecovery::of_nothing(fs),
                PlainRecovery { mount: failed(no_memory), ..PlainRecovery::of_nothing(fs) },
                PlainRecovery { unmount: failed("EBUSY"), ..clean(fs) },
                PlainRecovery { check: None, ..clean(fs) },
                checked(fs, slow()),
                checked(fs, killed("SIGKILL")),
                checked(fs, run(1, "Cannot allocate memory")),
                PlainRecovery { mount_read: Step::NotTried, ..clean(fs) },
            ];
            for recovery in unsaid {
                assert_eq!(verdict(recovery.clone()), Verdict::NotMeasured, "{recovery:?}");
            }
        }
        let no_device = checked(PlainFs::Ext4, run(8, "No such file while trying to open"));
        assert_eq!(verdict(no_device), Verdict::NotMeasured);
    }
}
