//! A pool, as a scenario states it: on what it stands, what it holds, and its module parameters.
//!
//! What always holds: a field that has no meaning for a kind of stack is refused by name, with the
//! kind that has it; one that a kind needs is asked for.

use super::super::check::{Unsound, check_name, unsound, within};
use super::super::scenario::DatasetSpec;
use super::PlainSpec;
use serde::{Deserialize, Serialize};

/// MiB that ext4 needs of the disk beside the pool's file.
const HOST_MIB: u64 = 128;
/// MiB that a partition table takes of the disk: one before its partition, one behind it.
const TABLE_MIB: u64 = 2;
/// MiB that a pool keeps back from its volumes: ZFS's own slop space is at most as much.
const SLOP_MIB: u64 = 128;

/// Folders of the guest's root: a pool of such a name would be mounted over one.
const ROOT_FOLDERS: [&str; 16] = [
    "bin",
    "dev",
    "etc",
    "init",
    "lib",
    "lib64",
    "mnt",
    "mnt-check",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "tmp",
    "usr",
    "var",
];
/// Kinds of vdev: `zpool` refuses pools whose names begin with one (libzfs, `zpool_name_valid`).
const VDEV_WORDS: [&str; 5] = ["mirror", "raidz", "draid", "spare", "log"];

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZfsSpec {
    /// The pool's name.
    pub pool: String,
    /// The size of the pool's file or partition in MiB.
    pub pool_mib: u64,
    /// `zfs_txg_timeout`.
    pub txg_timeout_s: u32,
    /// `zfs_dirty_data_max` in MiB, if not ZFS's own choice.
    #[serde(default)]
    pub dirty_data_max_mib: Option<u64>,
    /// `zfs_nocacheflush`: a planted fault, for ZFS then asks for no flush.
    #[serde(default)]
    pub nocacheflush: bool,
    /// Mount options of the ext4 that holds the pool's file, where it is in one.
    #[serde(default)]
    pub host_mount_options: String,
    /// Whether the loop device reads and writes its file past the page cache; for
    /// `zfs-on-loop` only, which needs it.
    #[serde(default)]
    pub direct_io: Option<bool>,
    /// The size of each volume in MiB; for `zvol` only, which needs it.
    #[serde(default)]
    pub zvol_mib: Option<u64>,
    /// Mount options of the ext4 on each volume; for `zvol` only.
    #[serde(default)]
    pub mount_options: String,
}

/// A pool taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool<'a> {
    /// Its name and sizes.
    pub spec: &'a ZfsSpec,
    /// On what it stands.
    pub vdev: Vdev,
    /// What it holds.
    pub holds: Holds,
}

/// What a pool stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vdev {
    /// A sparse file on the disk's ext4.
    File,
    /// A partition of the disk.
    Partition,
    /// A partition of a loop device on a sparse file on the disk's ext4: given a whole device, ZFS
    /// makes such a partition by itself, but then waits for a udev that a guest does not have.
    Loop {
        /// Whether the loop device goes past the page cache.
        direct_io: bool,
    },
}

/// What a scenario's datasets are in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// File systems of ZFS's own.
    Datasets,
    /// Volumes of this many MiB with ext4 on each.
    Volumes {
        /// The size of each.
        mib: u64,
    },
}

impl Vdev {
    /// Whether an ext4 on the disk holds the pool's file.
    pub fn has_a_host(self) -> bool {
        matches!(self, Vdev::File | Vdev::Loop { .. })
    }
}

impl ZfsSpec {
    /// The mount options of the ext4 that holds the pool's file.
    pub fn host(&self) -> PlainSpec {
        PlainSpec { mount_options: self.host_mount_options.clone() }
    }

    /// The mount options of the ext4 on each volume.
    pub fn on_volumes(&self) -> PlainSpec {
        PlainSpec { mount_options: self.mount_options.clone() }
    }
}

impl Pool<'_> {
    /// Refuses a pool that cannot be made on a disk of this size.
    pub(super) fn check(&self, disk_mib: u64) -> Result<(), Unsound> {
        let spec = self.spec;
        within("disk.size_mib", disk_mib as f64, 256.0, 1_048_576.0)?;
        within("stack.txg_timeout_s", f64::from(spec.txg_timeout_s), 1.0, 60.0)?;
        let dirty = spec.dirty_data_max_mib.unwrap_or(64);
        within("stack.dirty_data_max_mib", dirty as f64, 1.0, 16_384.0)?;
        within("stack.pool_mib", spec.pool_mib as f64, 128.0, 1_048_576.0)?;
        let beside = if self.vdev.has_a_host() { HOST_MIB } else { TABLE_MIB };
        if spec.pool_mib + beside > disk_mib {
            let problem = format!(
                "{} MiB of pool need a disk of at least {} MiB (disk.size_mib is {disk_mib})",
                spec.pool_mib,
                spec.pool_mib + beside,
            );
            return unsound("stack.pool_mib", problem);
        }
        check_pool_name(&spec.pool)?;
        self.check_meaningless()?;
        spec.host().check("stack.host_mount_options")?;
        spec.on_volumes().check("stack.mount_options")
    }

    /// Fields that mean something for another kind only, and fields that this kind needs.
    fn check_meaningless(&self) -> Result<(), Unsound> {
        let spec = self.spec;
        if !self.vdev.has_a_host() && !spec.host_mount_options.is_empty() {
            let problem = "no file system holds a pool on a partition; leave it out";
            return unsound("stack.host_mount_options", problem);
        }
        match (self.vdev, spec.direct_io) {
            (Vdev::Loop { .. }, None) => {
                return unsound(
                    "stack.direct_io",
                    "it is missing; say true (past the page cache) or false (through it)",
                );
            }
            (Vdev::File | Vdev::Partition, Some(_)) => {
                let problem = "only the kind zfs-on-loop has a loop device; leave it out";
                return unsound("stack.direct_io", problem);
            }
            _ => {}
        }
        match (self.holds, spec.zvol_mib) {
            (Holds::Volumes { .. }, Some(mib)) => within("stack.zvol_mib", mib as f64, 64.0, 1e6),
            (Holds::Volumes { .. }, None) => {
                unsound("stack.zvol_mib", "it is missing; say how large each volume is, in MiB")
            }
            (Holds::Datasets, Some(_)) => {
                unsound("stack.zvol_mib", "only the kind zvol has volumes; leave it out")
            }
            (Holds::Datasets, None) if !spec.mount_options.is_empty() => unsound(
                "stack.mount_options",
                "ZFS mounts its own datasets by their properties; the ext4 that holds a pool's \
                 file takes host_mount_options, leave this one out",
            ),
            (Holds::Datasets, None) => Ok(()),
        }
    }

    /// Refuses volumes that do not fit: an ext4 on a full pool gets errors that no power cut made.
    pub(super) fn check_count(&self, datasets: usize) -> Result<(), Unsound> {
        let Holds::Volumes { mib } = self.holds else { return Ok(()) };
        // A quarter for what describes the blocks, and for blocks that were freed just now.
        let wanted = (mib + mib / 4).saturating_mul(datasets as u64).saturating_add(SLOP_MIB);
        match self.spec.pool_mib {
            pool_mib if pool_mib < wanted => unsound(
                "stack.zvol_mib",
                format!(
                    "{datasets} volumes of {mib} MiB need a pool of at least {wanted} MiB \
                     (stack.pool_mib is {pool_mib})"
                ),
            ),
            _ => Ok(()),
        }
    }

    /// Refuses properties that ZFS does not know, or not with this value.
    pub(super) fn check_dataset(&self, place: &str, dataset: &DatasetSpec) -> Result<(), Unsound> {
        let largest = match self.holds {
            Holds::Datasets => 16_384,
            Holds::Volumes { .. } => 128,
        };
        let record = dataset.recordsize_kib.unwrap_or(1);
        if !record.is_power_of_two() || record > largest {
            let problem = format!("{record} is not a power of two within 1 to {largest}");
            return unsound(format!("{place}.recordsize_kib"), problem);
        }
        if let Some(bias) = dataset.logbias.as_deref()
            && !["latency", "throughput"].contains(&bias)
        {
            let problem = format!("{bias:?} is neither \"latency\" nor \"throughput\"");
            return unsound(format!("{place}.logbias"), problem);
        }
        match dataset.compression.as_deref() {
            Some(name) if !is_compression(name) => unsound(
                format!("{place}.compression"),
                format!("{name:?} is none of on, off, lz4, zstd, zstd-N, gzip, gzip-N, zle, lzjb"),
            ),
            _ => Ok(()),
        }
    }
}

/// Values of `compression` that OpenZFS 2 takes (zfsprops(7)).
fn is_compression(name: &str) -> bool {
    let numbered = |prefix: &str, least: u32, most: u32| {
        let level = name.strip_prefix(prefix).and_then(|level| level.parse().ok());
        level.is_some_and(|level| (least..=most).contains(&level))
    };
    ["on", "off", "lz4", "zstd", "zstd-fast", "gzip", "zle", "lzjb"].contains(&name)
        || numbered("zstd-", 1, 19)
        || numbered("gzip-", 1, 9)
        || numbered("zstd-fast-", 1, 1000)
}

fn check_pool_name(pool: &str) -> Result<(), Unsound> {
    let place = "stack.pool";
    check_name(place, pool)?;
    if ROOT_FOLDERS.contains(&pool) {
        let problem = format!("a pool {pool:?} would be mounted over the guest's /{pool}");
        return unsound(place, problem);
    }
    match VDEV_WORDS.iter().find(|word| pool.starts_with(*word)) {
        Some(word) => unsound(place, format!("zpool refuses {pool:?}: {word:?} is a kind of vdev")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::settings::{load, parse};

    fn problem(name: &str, sets: &[&str]) -> String {
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        load(name, &sets).map(|_| String::new()).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn a_field_of_another_kind_is_refused_with_the_kind_that_has_it() {
        for (name, set, words) in [
            ("zfs-sync-disabled", "stack.direct_io=true", "stack.direct_io: only the kind zfs-on-"),
            ("zfs-on-partition", "stack.direct_io=false", "zfs-on-loop"),
            ("zvol-ext4", "stack.direct_io=true", "zfs-on-loop"),
            ("zfs-sync-disabled", "stack.zvol_mib=64", "stack.zvol_mib: only the kind zvol"),
            ("zfs-on-loop", "stack.zvol_mib=64", "only the kind zvol"),
            ("zfs-on-loop", "stack.mount_options=barrier=0", "host_mount_options"),
            ("zfs-on-partition", "stack.host_mount_options=barrier=0", "holds a pool on a partit"),
        ] {
            let said = problem(name, &[set]);
            assert!(said.contains(words), "{name} --set {set}: {said:?}");
        }
        for (name, set) in [
            ("zfs-on-loop", "stack.direct_io=false"),
            ("zvol-ext4", "stack.zvol_mib=64"),
            ("zvol-ext4", "stack.mount_options=barrier=0"),
            ("zfs-on-loop", "stack.host_mount_options=barrier=0"),
            ("zfs-sync-disabled", "stack.host_mount_options=barrier=0"),
        ] {
            assert_eq!(problem(name, &[set]), "", "control: {name} --set {set}");
        }
    }

    #[test]
    fn a_field_that_a_kind_needs_is_asked_for() {
        let text = include_str!("../../../workloads/zfs-on-loop.toml");
        let without = |word: &str, text: &str| {
            let keep = |line: &&str| !line.starts_with(word);
            let text: Vec<&str> = text.lines().filter(keep).collect();
            parse("x.toml", &text.join("\n"), &[]).map(drop).map_err(|error| error.to_string())
        };
        let error = without("direct_io", text).expect_err("it is needed");
        assert!(error.contains("stack.direct_io: it is missing"), "{error}");
        let text = include_str!("../../../workloads/zvol-ext4.toml");
        let error = without("zvol_mib", text).expect_err("it is needed");
        assert!(error.contains("stack.zvol_mib: it is missing"), "{error}");
        assert_eq!(without("mount_options", text), Ok(()), "control: this one is not");
    }

    #[test]
    fn what_does_not_fit_its_disk_or_its_pool_is_refused() {
        let sizes = |disk: u64, pool: u64| {
            problem(
                "zfs-on-partition",
                &[&format!("disk.size_mib={disk}"), &format!("stack.pool_mib={pool}")],
            )
        };
        assert!(sizes(513, 512).contains("514 MiB"), "{}", sizes(513, 512));
        assert_eq!(sizes(514, 512), "", "control");
        let volumes = |mib: u64| {
            problem("zvol-ext4", &["stack.pool_mib=1024", &format!("stack.zvol_mib={mib}")])
        };
        // Two of them: (1024 - 128) / 2 = 448 with a quarter more.
        assert!(volumes(364).contains("need a pool of at least 1038"), "{}", volumes(364));
        assert_eq!(volumes(358), "", "control");
    }

    #[test]
    fn a_pool_is_not_named_as_a_folder_of_the_guest_or_a_vdev() {
        for name in ["mnt", "dev", "log", "mirror-1", "spare"] {
            let said = problem("zfs-on-partition", &[&format!("stack.pool={name}")]);
            assert!(said.contains("stack.pool") && said.contains(name), "{said:?}");
        }
        assert_eq!(problem("zfs-on-partition", &["stack.pool=devices"]), "", "control");
    }

    #[test]
    fn a_property_that_zfs_would_refuse_is_refused_before_anything_starts() {
        for (set, words) in [
            ("customer.recordsize_kib=12", "power of two"),
            ("customer.recordsize_kib=32768", "16384"),
            ("customer.logbias=speed", "throughput"),
            ("customer.compression=zip", "lz4"),
            ("customer.compression=gzip-10", "gzip-N"),
        ] {
            let said = problem("zfs-on-partition", &[set]);
            assert!(said.contains("dataset.customer") && said.contains(words), "{set}: {said:?}");
        }
        let said = problem("zvol-ext4", &["customer.recordsize_kib=256"]);
        assert!(said.contains("within 1 to 128"), "{said:?}");
        for set in [
            "customer.recordsize_kib=16",
            "customer.logbias=throughput",
            "customer.compression=zstd-3",
            "customer.compression=zstd-fast-10",
        ] {
            assert_eq!(problem("zvol-ext4", &[set]), "", "control: {set}");
        }
    }
}
