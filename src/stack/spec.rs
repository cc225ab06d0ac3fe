//! What stands on the disk, as a scenario states it: a pool, or a plain file system.
//!
//! What always holds: a field that has no meaning for a kind of stack is refused. Pools and plain
//! file systems have structures of their own; [`Pool`] tells the kinds of pools apart.

mod pool;

pub use pool::{Holds, Pool, Vdev, ZfsSpec};

use super::check::{Unsound, unsound, within};
use super::scenario::{DatasetSpec, Sync};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where the disk's file system is mounted in the guest.
pub const DISK_MOUNT: &str = "/mnt";

/// Kinds of stack, by the word `kind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum StackSpec {
    /// ext4 on the disk, a sparse file on it, a pool in the file; a dataset is one of ZFS's.
    ZfsInAFile(ZfsSpec),
    /// A partition on the disk, a pool on it; a dataset is one of ZFS's.
    ZfsOnPartition(ZfsSpec),
    /// ext4 on the disk, a sparse file on it, a loop device on that, a pool on a partition of it; a
    /// dataset is one of ZFS's.
    ZfsOnLoop(ZfsSpec),
    /// A pool in a file; a dataset is a volume of it with ext4 on it.
    Zvol(ZfsSpec),
    /// ext4 on the disk; a dataset is a folder on it.
    Ext4(PlainSpec),
    /// XFS on the disk; a dataset is a folder on it.
    Xfs(PlainSpec),
    /// Btrfs on the disk; a dataset is a folder on it.
    Btrfs(PlainSpec),
}

/// A plain file system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainSpec {
    /// Mount options, separated by commas; each must be in effect.
    #[serde(default)]
    pub mount_options: String,
}

impl PlainSpec {
    /// The options one by one.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        self.mount_options.split(',').filter(|option| !option.is_empty())
    }
}

/// ext4 writes its tables and its journal when it is made, not while it is first used.
const EXT4_NOW: &str = "lazy_itable_init=0,lazy_journal_init=0";
/// The same without a discard: of two `-E` only the last would count.
const EXT4_LEAVE: &str = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";

/// Plain file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlainFs {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

impl PlainFs {
    /// Its name for mount(2), and in words.
    pub fn name(self) -> &'static str {
        match self {
            PlainFs::Ext4 => "ext4",
            PlainFs::Xfs => "xfs",
            PlainFs::Btrfs => "btrfs",
        }
    }

    /// The smallest disk in MiB that it can be made on with its own defaults.
    pub fn disk_mib_min(self) -> u64 {
        match self {
            PlainFs::Ext4 => 64,
            // mkfs.xfs refuses less than 300 MB.
            PlainFs::Xfs => 300,
            // mkfs.btrfs prints this as its least.
            PlainFs::Btrfs => 109,
        }
    }

    /// The file system of this name.
    pub fn named(name: &str) -> Option<PlainFs> {
        [PlainFs::Ext4, PlainFs::Xfs, PlainFs::Btrfs].into_iter().find(|fs| fs.name() == name)
    }

    /// The command that makes it. Everything is written now, not by a kernel thread during the load.
    pub fn mkfs(self, device: &str, discard: Discard) -> Vec<&str> {
        let mut argv = match (self, discard) {
            (PlainFs::Ext4, Discard::First) => vec!["mkfs.ext4", "-q", "-F", "-E", EXT4_NOW],
            (PlainFs::Ext4, Discard::Leave) => vec!["mkfs.ext4", "-q", "-F", "-E", EXT4_LEAVE],
            (PlainFs::Xfs, _) => vec!["mkfs.xfs", "-q", "-f"],
            (PlainFs::Btrfs, _) => vec!["mkfs.btrfs", "-q", "-f"],
        };
        if discard == Discard::Leave && self != PlainFs::Ext4 {
            argv.push("-K");
        }
        argv.push(device);
        argv
    }

    /// The command that checks it while it is not mounted, and changes nothing.
    pub fn checker(self, device: &str) -> Vec<&str> {
        match self {
            PlainFs::Ext4 => vec!["e2fsck", "-fn", device],
            PlainFs::Xfs => vec!["xfs_repair", "-n", device],
            PlainFs::Btrfs => vec!["btrfs", "check", "--readonly", device],
        }
    }

    /// The command that prints the version of its tools.
    pub fn version(self) -> &'static [&'static str] {
        match self {
            PlainFs::Ext4 => &["mkfs.ext4", "-V"],
            PlainFs::Xfs => &["mkfs.xfs", "-V"],
            PlainFs::Btrfs => &["mkfs.btrfs", "--version"],
        }
    }
}

/// What becomes of the device's old content when a file system is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// The whole device is discarded first, as the tools do by themselves.
    First,
    /// It stays where nothing is written: on a blank disk a discard only takes time.
    Leave,
}

impl fmt::Display for PlainFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a stack is, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack<'a> {
    /// A pool.
    Zfs(Pool<'a>),
    /// A plain file system.
    Plain(PlainFs, &'a PlainSpec),
}

impl StackSpec {
    /// Takes it apart: a pool or a plain file system.
    pub fn get(&self) -> Stack<'_> {
        let pool = |spec, vdev, holds| Stack::Zfs(Pool { spec, vdev, holds });
        match self {
            StackSpec::ZfsInAFile(zfs) => pool(zfs, Vdev::File, Holds::Datasets),
            StackSpec::ZfsOnPartition(zfs) => pool(zfs, Vdev::Partition, Holds::Datasets),
            StackSpec::ZfsOnLoop(zfs) => {
                // One that does not say is refused by the check.
                let direct_io = zfs.direct_io.unwrap_or_default();
                pool(zfs, Vdev::Loop { direct_io }, Holds::Datasets)
            }
            StackSpec::Zvol(zfs) => {
                let mib = zfs.zvol_mib.unwrap_or_default();
                pool(zfs, Vdev::File, Holds::Volumes { mib })
            }
            StackSpec::Ext4(plain) => Stack::Plain(PlainFs::Ext4, plain),
            StackSpec::Xfs(plain) => Stack::Plain(PlainFs::Xfs, plain),
            StackSpec::Btrfs(plain) => Stack::Plain(PlainFs::Btrfs, plain),
        }
    }

    /// The pool, where there is one.
    pub fn pool(&self) -> Option<Pool<'_>> {
        match self.get() {
            Stack::Zfs(pool) => Some(pool),
            Stack::Plain(..) => None,
        }
    }

    /// What a scenario says of the pool, where there is one.
    pub fn zfs(&self) -> Option<&ZfsSpec> {
        self.pool().map(|pool| pool.spec)
    }

    /// Whether a dataset is a volume of a pool, with a file system of another kind on it.
    pub fn has_volumes(&self) -> bool {
        self.pool().is_some_and(|pool| matches!(pool.holds, Holds::Volumes { .. }))
    }

    /// The plain file system, where it is one.
    pub fn plain_fs(&self) -> Option<PlainFs> {
        match self.get() {
            Stack::Zfs(_) => None,
            Stack::Plain(fs, _) => Some(fs),
        }
    }

    /// Refuses a stack that cannot be made on a disk of this size, or not with so many datasets.
    pub(super) fn check(&self, disk_mib: u64, datasets: usize) -> Result<(), Unsound> {
        match self.get() {
            Stack::Zfs(pool) => pool.check(disk_mib).and_then(|()| pool.check_count(datasets)),
            Stack::Plain(fs, plain) => {
                within("disk.size_mib", disk_mib as f64, fs.disk_mib_min() as f64, 1_048_576.0)?;
                plain.check("stack.mount_options")
            }
        }
    }

    /// Refuses a dataset that this stack cannot have.
    pub(super) fn check_dataset(&self, place: &str, dataset: &DatasetSpec) -> Result<(), Unsound> {
        let fs = match self.get() {
            Stack::Zfs(pool) => return pool.check_dataset(place, dataset),
            Stack::Plain(fs, _) => fs,
        };
        if dataset.sync != Sync::Standard {
            let problem = format!(
                "{:?} is a property of ZFS; on {fs} fsync always forces, so it must be \"standard\"",
                dataset.sync.as_str()
            );
            return unsound(format!("{place}.sync"), problem);
        }
        let given = [
            ("recordsize_kib", dataset.recordsize_kib.is_some()),
            ("compression", dataset.compression.is_some()),
            ("logbias", dataset.logbias.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((field, _)) => {
                let problem = format!("it is a property of ZFS; {fs} has none, leave it out");
                unsound(format!("{place}.{field}"), problem)
            }
            None => Ok(()),
        }
    }
}

impl PlainSpec {
    /// Refuses options that are none, or that leave nothing to try. `place` is their field.
    fn check(&self, place: &str) -> Result<(), Unsound> {
        let good = |c: char| c.is_ascii_alphanumeric() || "_=,:.-".contains(c);
        if !self.mount_options.chars().all(good) {
            let problem = format!("{:?} holds more than options and commas", self.mount_options);
            return unsound(place, problem);
        }
        match self.options().find(|option| ["ro", "bind", "remount"].contains(option)) {
            Some(option) => unsound(place, format!("{option:?} leaves nothing to write to")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{DEFAULT, load, parse};
    use super::*;

    const EXT4: &str = include_str!("../../workloads/ext4.toml");

    fn refused(text: &str, sets: &[&str]) -> String {
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        parse("x.toml", text, &sets).unwrap_err().to_string()
    }

    #[test]
    fn each_kind_has_its_own_fields_and_another_kinds_are_refused_by_name() {
        let plain = refused(EXT4, &["stack.pool=tank"]);
        assert!(plain.contains("pool") && plain.contains("mount_options"), "{plain}");
        let zfs = load(DEFAULT, &["stack.mount_options=discard".to_owned()]).unwrap_err();
        assert!(zfs.to_string().contains("mount_options"), "{zfs}");
        let missing = refused(&EXT4.replace("kind = \"ext4\"", "kind = \"zfs-in-a-file\""), &[]);
        assert!(missing.contains("pool"), "{missing}");
        assert!(refused(EXT4, &["stack.kind=fat"]).contains("zfs-in-a-file"));
    }

    #[test]
    fn each_kind_is_taken_apart_into_what_it_stands_on_and_what_it_holds() {
        let of = |name: &str| load(name, &[]).expect("a scenario").stack;
        let apart = |name: &str| of(name).pool().map(|pool| (pool.vdev, pool.holds));
        assert_eq!(apart(DEFAULT), Some((Vdev::File, Holds::Datasets)));
        assert_eq!(apart("zfs-on-partition"), Some((Vdev::Partition, Holds::Datasets)));
        let loop_device = Vdev::Loop { direct_io: true };
        assert_eq!(apart("zfs-on-loop"), Some((loop_device, Holds::Datasets)));
        let volumes = Holds::Volumes { mib: 128 };
        assert_eq!(apart("zvol-ext4"), Some((Vdev::File, volumes)));
        assert_eq!(apart("ext4"), None);
        assert!(of("zvol-ext4").has_volumes());
        assert!(!of("zfs-on-loop").has_volumes() && !of("ext4").has_volumes());
    }

    #[test]
    fn properties_of_zfs_are_refused_on_a_plain_file_system_with_the_reason() {
        let sync = refused(EXT4, &["data.sync=disabled"]);
        assert!(sync.contains("dataset.data.sync") && sync.contains("standard"), "{sync}");
        let recordsize = refused(EXT4, &["data.recordsize_kib=16"]);
        assert!(recordsize.contains("dataset.data.recordsize_kib"), "{recordsize}");
    }

    #[test]
    fn a_file_system_is_made_with_or_without_a_discard_and_found_by_its_name() {
        for fs in [PlainFs::Ext4, PlainFs::Xfs, PlainFs::Btrfs] {
            assert_eq!(PlainFs::named(fs.name()), Some(fs));
            let words = |discard| fs.mkfs("/dev/x", discard).join(" ");
            let (first, leave) = (words(Discard::First), words(Discard::Leave));
            assert!(leave.contains("nodiscard") || leave.contains("-K"), "{leave}");
            assert!(!first.contains("nodiscard") && !first.contains("-K"), "{first}");
            assert!(first.ends_with(" /dev/x") && leave.ends_with(" /dev/x"));
        }
        assert_eq!(PlainFs::named("fat"), None);
    }

    #[test]
    fn a_disk_that_is_too_small_for_its_file_system_is_refused() {
        assert!(refused(EXT4, &["disk.size_mib=63"]).contains("disk.size_mib"));
        assert!(refused(EXT4, &["disk.size_mib=299", "stack.kind=xfs"]).contains("300"));
        let smallest = ["disk.size_mib=64".to_owned()];
        assert!(parse("x.toml", EXT4, &smallest).is_ok(), "control");
    }

    #[test]
    fn mount_options_are_options_and_let_the_load_write() {
        assert!(refused(EXT4, &["stack.mount_options=a b"]).contains("stack.mount_options"));
        assert!(refused(EXT4, &["stack.mount_options=noatime,ro"]).contains("\"ro\""));
        let sets = ["stack.mount_options=data=writeback,noauto_da_alloc".to_owned()];
        let scenario = parse("x.toml", EXT4, &sets).unwrap();
        let Stack::Plain(PlainFs::Ext4, plain) = scenario.stack.get() else { panic!("ext4") };
        assert_eq!(plain.options().collect::<Vec<_>>(), ["data=writeback", "noauto_da_alloc"]);
    }
}
