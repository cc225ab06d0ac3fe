//! `consistent` on a pool whose volumes hold file systems: the pool's own checks and each file system's.
//! One answer does not stand for the other: a pool that is whole may hold a volume whose ext4 is not.

use super::{Check, ExpectedTxg, PlainRecovery, Step, ZfsRecovery};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the tools said about the crash state of a pool and of the file systems on its volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumesRecovery {
    /// The pool.
    pub pool: ZfsRecovery,
    /// The file system on each volume, by the dataset's name.
    pub volumes: BTreeMap<String, PlainRecovery>,
}

impl VolumesRecovery {
    /// What is known when no volume was looked at.
    pub fn of_pool(pool: ZfsRecovery) -> VolumesRecovery {
        VolumesRecovery { pool, volumes: BTreeMap::new() }
    }

    /// Whether every file on every volume could be asked for.
    pub(super) fn were_read(&self) -> bool {
        let is_mounted = |volume: &PlainRecovery| volume.mount_read == Step::Done;
        self.pool.import.code == Some(0)
            && !self.volumes.is_empty()
            && self.volumes.values().all(is_mounted)
    }

    /// Every check of the tools' words.
    pub(super) fn checks(&self, expected: ExpectedTxg) -> Vec<Check> {
        let mut checks = self.pool.checks(expected);
        for (name, volume) in &self.volumes {
            checks.extend(volume.checks().into_iter().map(|check| check.of(name)));
        }
        if self.volumes.is_empty() {
            let text = "no file system on a volume was looked at";
            checks.push(Check::Unknown(text.to_owned()));
        }
        checks
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::super::{Recovery, ScrubReport, judge};
    use super::*;
    use crate::stack::spec::PlainFs;
    use crate::units::Txg;
    use crate::verify::verdict::Verdict;

    fn pool() -> ZfsRecovery {
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

    fn volume() -> PlainRecovery {
        let words = "Pass 5: Checking group summary information\n11/64 files, 9/64 blocks\n";
        PlainRecovery {
            mount: Step::Done,
            unmount: Step::Done,
            check: Some(run(0, words)),
            mount_read: Step::Done,
            ..PlainRecovery::of_nothing(PlainFs::Ext4)
        }
    }

    fn clean() -> VolumesRecovery {
        let names = ["billing", "customer"].map(str::to_owned);
        VolumesRecovery { pool: pool(), volumes: names.map(|name| (name, volume())).into() }
    }

    fn with(customer: PlainRecovery) -> VolumesRecovery {
        let mut all = clean();
        all.volumes.insert("customer".to_owned(), customer);
        all
    }

    fn verdict(recovery: VolumesRecovery) -> Verdict {
        let expected = ExpectedTxg { durable: Some(Txg(20)), written: Some(Txg(21)), exact: true };
        judge(&Recovery::Volumes(recovery), expected, 0).verdict
    }

    #[test]
    fn it_takes_the_pool_and_every_volume_to_hold() {
        assert_eq!(verdict(clean()), Verdict::Held);
        let pool_fault = ZfsRecovery { leak_check: run(2, "leaked space"), ..pool() };
        let volume_fault = PlainRecovery { check: Some(run(4, "inode 12 is wrong")), ..volume() };
        let refused = PlainRecovery { mount: Step::Failed("EUCLEAN".to_owned()), ..volume() };
        for fault in
            [VolumesRecovery { pool: pool_fault, ..clean() }, with(volume_fault), with(refused)]
        {
            assert_eq!(verdict(fault.clone()), Verdict::Violated, "{fault:?}");
        }
    }

    #[test]
    fn a_volume_that_nobody_asked_is_not_a_pass_and_nothing_counts_as_read() {
        let untried = PlainRecovery::of_nothing(PlainFs::Ext4);
        let unread = PlainRecovery { mount_read: Step::NotTried, ..volume() };
        for unknown in [with(untried), with(unread), VolumesRecovery::of_pool(pool())] {
            assert!(!Recovery::Volumes(unknown.clone()).was_read());
            assert_eq!(verdict(unknown.clone()), Verdict::NotMeasured, "{unknown:?}");
        }
        let unimported =
            VolumesRecovery { pool: ZfsRecovery { import: run(1, "no"), ..pool() }, ..clean() };
        assert!(!Recovery::Volumes(unimported).was_read());
        assert!(Recovery::Volumes(clean()).was_read(), "control");
    }

    #[test]
    fn the_volume_at_fault_is_named_first() {
        let fault = PlainRecovery { check: Some(run(4, "inode 12 is wrong")), ..volume() };
        let expected = ExpectedTxg { durable: Some(Txg(20)), written: Some(Txg(21)), exact: true };
        let judged = judge(&Recovery::Volumes(with(fault)), expected, 0);
        let first = &judged.because[0];
        assert!(first.starts_with("customer: ") && first.contains("inode 12"), "{first}");
    }
}
