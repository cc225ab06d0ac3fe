//! The faults, with what must catch each: written down before anything runs.

use super::mutant::{Base, COLUMNS, Class, DiskKind, Expected, Mutant, Plant, Tampering};
use crate::disk::CrashModel;
use crate::stack::scenario::ClaimKind;
use crate::verify::outcome::Outcome;
use crate::verify::verdict::Verdict;

/// A plain file system on this machine's own kernel, as it is.
const fn on_host(scenario: &'static str, sets: &'static [&'static str]) -> Base {
    Base { scenario, sets, in_guest: false, fua: false }
}

/// A short load is enough: a record a millisecond.
const EXT4: Base = on_host("ext4", &["cut.load_seconds=0.8"]);
/// Some hundred records are filled in by writes of many blocks, and few of them overwritten.
const EXT4_WIDE: Base = on_host(
    "ext4",
    &[
        "cut.load_seconds=0.6",
        "data.stream=[{pattern=\"append\"},{pattern=\"overwrite\",slots=2048}]",
    ],
);
/// What a replaced file leaves is trimmed.
const EXT4_DISCARD: Base =
    on_host("ext4", &["cut.load_seconds=0.8", "stack.mount_options=discard"]);
const EXT4_WRITEBACK: Base = on_host(
    "ext4",
    &["cut.load_seconds=0.8", "stack.mount_options=data=writeback,noauto_da_alloc"],
);
const EXT4_RENAME: Base =
    on_host("ext4", &["cut.load_seconds=0.8", "config.fault=rename-without-fsync"]);
const XFS: Base = on_host("xfs", &["cut.load_seconds=0.8"]);
const BTRFS: Base = on_host("btrfs", &["cut.load_seconds=0.8"]);
/// Each fsync commits the journal, and no other flush stands beside it.
const EXT4_FUA: Base = Base {
    scenario: "ext4",
    sets: &["cut.load_seconds=0.8", "data.stream=[{pattern=\"append\"}]"],
    in_guest: false,
    fua: true,
};
const EXT4_GUEST: Base =
    Base { scenario: "ext4", sets: &["cut.load_seconds=2"], in_guest: true, fua: false };
/// A small pool whose groups close every second.
pub const ZFS: Base = Base {
    scenario: "zfs-sync-disabled",
    sets: &[
        "cut.when=uniform",
        "cut.load_seconds=4",
        "stack.txg_timeout_s=1",
        "disk.size_mib=1024",
        "stack.pool_mib=768",
    ],
    in_guest: true,
    fua: false,
};

const FLUSHED: &[CrashModel] = &[
    CrashModel::KeepAll,
    CrashModel::DropUnflushed,
    CrashModel::Subset,
    CrashModel::Torn { unit_sectors: 1 },
];
const NO_UNSAFE: &str = "an unsafe disk breaks this promise by itself, so no control passes";
const KEPT_OR_DROPPED: &[CrashModel] = &[CrashModel::KeepAll, CrashModel::DropUnflushed];
const NO_DAMAGE: &str =
    "chance would leave a btrfs without order, which is not given to this machine's kernel";
const SLOW: &str = "a guest's state takes seconds, and chance adds nothing here";
const DROPPED: &[CrashModel] = &[CrashModel::DropUnflushed];
const NO_MATTER: &str = "the fault is not in the disk's data, so the crash model is no matter";

const fn lost(dataset: &'static str) -> Expected {
    Expected {
        claim: ClaimKind::Durable,
        dataset: Some(dataset),
        class: Class::Outcome(Outcome::LostThoughDurable),
    }
}

const fn damaged(outcome: Outcome) -> Expected {
    Expected { claim: ClaimKind::Intact, dataset: None, class: Class::Outcome(outcome) }
}

const fn ends(verdict: Verdict) -> Expected {
    Expected { claim: ClaimKind::Consistent, dataset: None, class: Class::Ends(verdict) }
}

const CHECKER: Expected =
    Expected { claim: ClaimKind::Consistent, dataset: None, class: Class::Checker };

/// A fault of a disk's promises: an unsafe disk has none to break.
const fn promise(
    name: &'static str,
    base: Base,
    kind: DiskKind,
    expected: Expected,
    does: &'static str,
) -> Mutant {
    let plant = Plant::Disk(kind);
    Mutant { name, does, base, plant, expected, models: FLUSHED, untried: NO_UNSAFE }
}

/// A fault of a disk's data, tried under every model.
const fn data(
    name: &'static str,
    base: Base,
    kind: DiskKind,
    expected: Expected,
    does: &'static str,
) -> Mutant {
    let plant = Plant::Disk(kind);
    Mutant { name, does, base, plant, expected, models: &COLUMNS, untried: "" }
}

const fn evidence(
    name: &'static str,
    tampering: Tampering,
    verdict: Verdict,
    does: &'static str,
) -> Mutant {
    let (plant, expected) = (Plant::Evidence(tampering), ends(verdict));
    Mutant { name, does, base: EXT4, plant, expected, models: DROPPED, untried: NO_MATTER }
}

/// All faults, from the medium up.
pub const MUTANTS: &[Mutant] = &[
    promise(
        "flush-answered-early",
        EXT4,
        DiskKind::FlushAnsweredEarly,
        lost("data"),
        "a flush is answered before its work is done",
    ),
    promise(
        "flush-ignored",
        EXT4,
        DiskKind::FlushIgnored,
        lost("data"),
        "flushes and FUA are answered and do nothing",
    ),
    promise(
        "fua-dropped",
        EXT4_FUA,
        DiskKind::FuaDropped,
        lost("data"),
        "FUA is answered and does nothing; flushes count",
    ),
    data(
        "write-lost",
        EXT4,
        DiskKind::WriteLost,
        damaged(Outcome::Stale),
        "a record's write never reaches the medium",
    ),
    data(
        "stale-sector",
        EXT4,
        DiskKind::StaleSector,
        damaged(Outcome::TornInSector),
        "one sector of a record's write never reaches the medium",
    ),
    data(
        "misdirected",
        EXT4,
        DiskKind::Misdirected,
        damaged(Outcome::Misdirected),
        "a record's write lands on another record",
    ),
    data(
        "duplicated",
        EXT4,
        DiskKind::Duplicated,
        damaged(Outcome::Misdirected),
        "a record's write lands in its place, and on another record",
    ),
    data(
        "bit-flipped",
        EXT4,
        DiskKind::BitFlipped,
        damaged(Outcome::TornInSector),
        "one bit of a record reads as its opposite",
    ),
    data(
        "torn-512",
        EXT4,
        DiskKind::TornAt512,
        damaged(Outcome::TornAtTransaction),
        "only four of a record's eight sectors reach the medium",
    ),
    data(
        "torn-4096",
        EXT4_WIDE,
        DiskKind::TornAt4096,
        damaged(Outcome::Hole),
        "only the first blocks of a write of many records reach the medium",
    ),
    promise(
        "swapped-across-flush",
        EXT4,
        DiskKind::SwappedAcrossFlush,
        damaged(Outcome::Stale),
        "a record's write and one behind its flush change places",
    ),
    data(
        "zeroed",
        EXT4,
        DiskKind::Zeroed,
        damaged(Outcome::Hole),
        "the place of a record's write reads as zeros",
    ),
    data(
        "trim-too-long",
        EXT4_DISCARD,
        DiskKind::TrimTooLong,
        damaged(Outcome::Hole),
        "a trim clears a record behind its end",
    ),
    promise(
        "journal-zeroed",
        EXT4,
        DiskKind::JournalZeroed,
        lost("data"),
        "the commit block of one of the journal's last transactions reads as zeros",
    ),
    data(
        "directory-flipped",
        EXT4,
        DiskKind::DirectoryFlipped,
        CHECKER,
        "one bit of a directory's block reads as its opposite",
    ),
    Mutant {
        name: "ext4-barrier-0",
        does: "ext4 asks for no flush (barrier=0)",
        base: EXT4,
        plant: Plant::Stack(&["stack.mount_options=barrier=0"]),
        expected: lost("data"),
        models: FLUSHED,
        untried: NO_UNSAFE,
    },
    Mutant {
        name: "ext4-data-writeback",
        does: "data=writeback,noauto_da_alloc under a rename without fsync; ext4's default saves it",
        base: EXT4_RENAME,
        plant: Plant::Stack(&["stack.mount_options=data=writeback,noauto_da_alloc"]),
        expected: damaged(Outcome::Hole),
        models: FLUSHED,
        untried: NO_UNSAFE,
    },
    Mutant {
        name: "btrfs-nobarrier",
        does: "btrfs asks for no flush (nobarrier)",
        base: BTRFS,
        plant: Plant::Stack(&["stack.mount_options=nobarrier"]),
        expected: lost("data"),
        models: KEPT_OR_DROPPED,
        untried: NO_DAMAGE,
    },
    Mutant {
        name: "zfs-nocacheflush",
        does: "ZFS asks for no flush (zfs_nocacheflush=1)",
        base: ZFS,
        plant: Plant::Stack(&["stack.nocacheflush=true"]),
        expected: lost("billing"),
        models: KEPT_OR_DROPPED,
        untried: SLOW,
    },
    Mutant {
        name: "qemu-cache-unsafe",
        does: "QEMU passes no flush on (cache=unsafe), not even the set-up's",
        base: EXT4_GUEST,
        plant: Plant::Stack(&["disk.cache=unsafe"]),
        expected: ends(Verdict::NotMeasured),
        models: DROPPED,
        untried: "without a flush behind the set-up no crash state means anything",
    },
    Mutant {
        name: "zfs-disabled-as-standard",
        does: "sync=disabled sold as sync=standard",
        base: ZFS,
        plant: Plant::Stack(&["billing.sync=disabled"]),
        expected: lost("billing"),
        models: KEPT_OR_DROPPED,
        untried: SLOW,
    },
    Mutant {
        name: "ack-before-fsync",
        does: "the program acknowledges before its fsync",
        base: EXT4,
        plant: Plant::Workload(&["data.fault=ack-before-fsync"]),
        expected: lost("data"),
        models: FLUSHED,
        untried: NO_UNSAFE,
    },
    Mutant {
        name: "rename-without-fsync",
        does: "it renames a new file over the old one without forcing its bytes",
        base: EXT4_WRITEBACK,
        plant: Plant::Workload(&["config.fault=rename-without-fsync"]),
        expected: damaged(Outcome::Hole),
        models: FLUSHED,
        untried: NO_UNSAFE,
    },
    Mutant {
        name: "no-directory-fsync",
        does: "it does not force the folder after the rename",
        base: EXT4,
        plant: Plant::Workload(&["config.fault=no-directory-fsync"]),
        expected: lost("config"),
        models: FLUSHED,
        untried: NO_UNSAFE,
    },
    Mutant {
        name: "ack-before-fsync-xfs",
        does: "the program on xfs acknowledges before its fsync",
        base: XFS,
        plant: Plant::Workload(&["data.fault=ack-before-fsync"]),
        expected: lost("data"),
        models: FLUSHED,
        untried: NO_UNSAFE,
    },
    Mutant {
        name: "ack-before-fsync-btrfs",
        does: "the program on btrfs acknowledges before its fsync",
        base: BTRFS,
        plant: Plant::Workload(&["data.fault=ack-before-fsync"]),
        expected: lost("data"),
        models: FLUSHED,
        untried: NO_UNSAFE,
    },
    evidence(
        "trace-cut-short",
        Tampering::TraceCutShort,
        Verdict::NotMeasured,
        "the trace ends before the cut",
    ),
    evidence(
        "messages-lost",
        Tampering::MessagesLost,
        Verdict::NotMeasured,
        "some of the guest's messages are not in the trace",
    ),
    evidence(
        "clock-skewed",
        Tampering::ClockSkewed,
        Verdict::HarnessBroken,
        "the guest's clock jumps by two seconds between two samples",
    ),
    evidence(
        "foreign-trace",
        Tampering::ForeignTrace,
        Verdict::HarnessBroken,
        "the trace is another run's",
    ),
    evidence(
        "foreign-files",
        Tampering::ForeignFiles,
        Verdict::HarnessBroken,
        "what was read back is another run's",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::settings;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_at_least_24_faults_with_names_of_their_own() {
        let names: BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), MUTANTS.len());
        assert!(names.len() >= 24, "{}", names.len());
    }

    #[test]
    fn every_scenario_is_sound_with_and_without_its_fault_and_makes_the_claim() {
        for mutant in MUTANTS {
            let base = mutant.base.sets.iter();
            let sets = |with: &[&str]| -> Vec<String> {
                base.clone().chain(with).map(|set| (*set).to_owned()).collect()
            };
            for with in [&[][..], mutant.sets()] {
                let scenario = settings::load(mutant.base.scenario, &sets(with));
                let scenario = scenario.unwrap_or_else(|why| panic!("{}: {why}", mutant.name));
                let Expected { claim, dataset, .. } = mutant.expected;
                let claims = &scenario.claim;
                let made = |c: &crate::stack::scenario::ClaimSpec| {
                    c.kind == claim && c.dataset.as_deref() == dataset
                };
                assert!(claims.iter().any(made), "{}", mutant.name);
            }
        }
    }

    #[test]
    fn no_fault_is_to_be_caught_by_max_loss_and_each_blank_cell_has_its_reason() {
        for mutant in MUTANTS {
            assert_ne!(mutant.expected.claim, ClaimKind::MaxLoss, "{}", mutant.name);
            assert!(!mutant.models.is_empty(), "{}", mutant.name);
            let all = COLUMNS.iter().all(|model| mutant.models.contains(model));
            assert_eq!(all, mutant.untried.is_empty(), "{}", mutant.name);
        }
    }
}
