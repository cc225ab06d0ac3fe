//! Disks that are plugged into a running guest. A saved guest knows none of them.

use crate::disk::NO_FLUSH_EXPORT;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// How the guest sees a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBus {
    /// virtio-blk: a forced write is a write and a flush.
    #[default]
    VirtioBlk,
    /// NVMe: a forced write may carry FUA instead.
    Nvme,
}

/// What QEMU does with the guest's flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// It passes them on and answers when they are answered.
    #[default]
    WriteBack,
    /// It answers them and passes none on: a planted fault, QEMU's `cache=unsafe`.
    Unsafe,
}

/// What is behind a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskSource {
    /// The lab's disk: an NBD server on a Unix socket.
    Nbd {
        /// The socket.
        socket: PathBuf,
        /// The export's name; empty for the default one.
        export: String,
    },
    /// A raw file, through the host's page cache.
    RawFile(PathBuf),
    /// The same, and the guest cannot write to it.
    ReadOnlyFile(PathBuf),
}

impl DiskSource {
    /// The lab's disk, whose flushes go the way that the cache mode says. QEMU's own `no-flush` has no
    /// effect on NBD, so an unsafe cache is an export that takes no flush.
    pub fn lab(socket: &Path, cache: CacheMode) -> DiskSource {
        let export = match cache {
            CacheMode::WriteBack => "",
            CacheMode::Unsafe => NO_FLUSH_EXPORT,
        };
        DiskSource::Nbd { socket: socket.to_owned(), export: export.to_owned() }
    }

    /// The default export of an NBD server.
    pub fn nbd(socket: &Path) -> DiskSource {
        DiskSource::Nbd { socket: socket.to_owned(), export: String::new() }
    }
}

/// A disk that the guest has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedDisk {
    /// Its name in QEMU.
    pub node: String,
    /// Its device in the guest.
    pub device: String,
}

impl AddedDisk {
    /// The n-th disk of its bus, from 0. The guest names disks in the order in which they come.
    pub fn nth(bus: DiskBus, count: u8) -> AddedDisk {
        match bus {
            DiskBus::VirtioBlk => AddedDisk {
                node: format!("virtio{count}"),
                device: format!("/dev/vd{}", char::from(b'a' + count % 26)),
            },
            DiskBus::Nvme => {
                AddedDisk { node: format!("nvme{count}"), device: format!("/dev/nvme{count}n1") }
            }
        }
    }

    /// What `device_add` and `device_del` call it.
    pub fn device_id(&self) -> String {
        device_id(&self.node)
    }

    /// Where the guest's kernel says how it takes the disk's cache.
    pub fn write_cache_file(&self) -> String {
        format!("/sys/block/{}/queue/write_cache", self.device.trim_start_matches("/dev/"))
    }
}

fn device_id(node: &str) -> String {
    format!("{node}-device")
}

/// Arguments of `blockdev-add`. Flushes go through unless the cache is unsafe, discards too, and
/// zeroes are written as such: what the guest asks for is what the lab's disk records.
pub fn blockdev_add(node: &str, source: &DiskSource, cache: CacheMode) -> Value {
    let cache = json!({ "direct": false, "no-flush": cache == CacheMode::Unsafe });
    let file = match source {
        DiskSource::Nbd { socket, export } => json!({
            "driver": "nbd",
            "server": { "type": "unix", "path": socket },
            "export": export,
        }),
        DiskSource::RawFile(path) => raw_file(path, false),
        DiskSource::ReadOnlyFile(path) => raw_file(path, true),
    };
    let mut arguments = json!({
        "node-name": node,
        "discard": "unmap",
        "detect-zeroes": "off",
        "cache": cache,
    });
    if let (Some(all), Value::Object(file)) = (arguments.as_object_mut(), file) {
        all.extend(file);
    }
    arguments
}

/// A disk that cannot be written to opens its file likewise, so that others may open it too.
fn raw_file(path: &Path, read_only: bool) -> Value {
    let file = json!({ "driver": "file", "filename": path, "read-only": read_only });
    json!({ "driver": "raw", "read-only": read_only, "file": file })
}

/// Arguments of `device_add`.
pub fn device_add(node: &str, bus: DiskBus) -> Value {
    let driver = match bus {
        DiskBus::VirtioBlk => "virtio-blk-pci",
        DiskBus::Nvme => "nvme",
    };
    json!({
        "driver": driver,
        "id": device_id(node),
        "drive": node,
        "serial": format!("plugpull-{node}"),
        "write-cache": "on",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named_as_the_guest_names_them() {
        assert_eq!(AddedDisk::nth(DiskBus::VirtioBlk, 1).device, "/dev/vdb");
        let nvme = AddedDisk::nth(DiskBus::Nvme, 0);
        assert_eq!(nvme.device, "/dev/nvme0n1");
        assert_eq!(nvme.write_cache_file(), "/sys/block/nvme0n1/queue/write_cache");
    }

    #[test]
    fn an_nbd_disk_lets_flushes_and_discards_through() {
        let source = DiskSource::nbd(Path::new("/run/nbd"));
        let arguments = blockdev_add("virtio0", &source, CacheMode::WriteBack);
        assert_eq!(
            arguments,
            json!({
                "driver": "nbd",
                "node-name": "virtio0",
                "server": { "type": "unix", "path": "/run/nbd" },
                "export": "",
                "discard": "unmap",
                "detect-zeroes": "off",
                "cache": { "direct": false, "no-flush": false },
            })
        );
        assert_eq!(DiskSource::lab(Path::new("/run/nbd"), CacheMode::WriteBack), source);
        let source = DiskSource::lab(Path::new("/run/nbd"), CacheMode::Unsafe);
        let unsafe_cache = blockdev_add("virtio0", &source, CacheMode::Unsafe);
        assert_eq!(unsafe_cache["export"], NO_FLUSH_EXPORT);
        assert_eq!(unsafe_cache["cache"]["no-flush"], true);
    }

    #[test]
    fn a_read_only_disk_opens_its_file_read_only() {
        let path = PathBuf::from("/images/full-root.ext4");
        for (source, read_only) in
            [(DiskSource::RawFile(path.clone()), false), (DiskSource::ReadOnlyFile(path), true)]
        {
            let arguments = blockdev_add("virtio1", &source, CacheMode::WriteBack);
            assert_eq!(arguments["read-only"], read_only);
            assert_eq!(arguments["file"]["read-only"], read_only);
            assert_eq!(arguments["file"]["filename"], "/images/full-root.ext4");
        }
    }

    #[test]
    fn a_device_has_a_write_back_cache() {
        let arguments = device_add("nvme0", DiskBus::Nvme);
        assert_eq!(arguments["write-cache"], "on");
        assert_eq!(arguments["drive"], "nvme0");
    }
}
