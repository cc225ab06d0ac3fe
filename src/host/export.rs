//! A FUSE file system with one file, `disk`, whose reads, writes and syncs go to a disk of the lab.
//!
//! What always holds: what the disk does not answer with success becomes EIO, with no data. The file
//! is opened for direct I/O, so that the kernel keeps none of its pages.

use super::error::HostError;
use super::mount::mount_detached;
use crate::disk::{LocalDisk, LocalError};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, SessionACL, WriteFlags,
};
use nix::fcntl::FallocateFlags;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

const DEVICE: &str = "/dev/fuse";
/// The file's name.
pub(super) const FILE: &str = "disk";
const ROOT_NO: INodeNo = INodeNo::ROOT;
const FILE_NO: INodeNo = INodeNo(2);
/// Names and sizes never change.
const TTL: Duration = Duration::from_secs(3600);
/// The largest read or write that the kernel sends at once: 256 pages, its default bound.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel sends before it waits for answers. A loop device has 128.
const REQUESTS_MAX: u16 = 128;
/// What a discard is rounded to: the loop driver takes it from the file system's block size.
const BLOCK_BYTES: u32 = 512;

/// The disk that is shown now. Clones show the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot(Arc<RwLock<Option<Arc<LocalDisk>>>>);

impl Slot {
    /// From now on shows `disk`.
    pub fn set(&self, disk: Option<Arc<LocalDisk>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = disk;
    }

    /// Does something with the disk that is shown; without one everything is an I/O error.
    fn with(&self, act: impl FnOnce(&LocalDisk) -> Result<(), LocalError>) -> Result<(), Errno> {
        // Not held during the call, which may wait until an answer is due.
        let disk = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        act(&*disk.ok_or(Errno::EIO)?).map_err(|error| match error {
            LocalError::Range { .. } => Errno::EINVAL,
            LocalError::Silent | LocalError::Io => Errno::EIO,
        })
    }
}

/// The file system.
#[derive(Debug)]
pub(super) struct Export {
    pub slot: Slot,
    pub disk_bytes: u64,
}

impl Export {
    fn attr(&self, no: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match no {
            ROOT_NO => (FileType::Directory, 0o700, 0),
            FILE_NO => (FileType::RegularFile, 0o600, self.disk_bytes),
            _ => return None,
        };
        Some(FileAttr {
            ino: no,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }
}

thread_local! {
    /// What a read is put together in; it never shrinks, so that no read zeroes it again.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Export {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each only makes it quicker, so a kernel that lacks one is no error.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_MAX_PAGES);
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(REQUESTS_MAX);
        let _ = config.set_congestion_threshold(REQUESTS_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE_NO) {
            Some(attr) if parent == ROOT_NO && name == FILE => {
                reply.entry(&TTL, &attr, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, no: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(no) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let out = &mut buffer[..size];
            match self.slot.with(|disk| disk.read_at(offset, out)) {
                Ok(()) => reply.data(&buffer[..size]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.slot.with(|disk| disk.write_at(offset, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.slot.with(LocalDisk::flush));
    }

    /// The loop driver sends a discard, and a zeroing that may leave a hole, as a punched hole.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode);
        let done = if mode.contains(FallocateFlags::FALLOC_FL_PUNCH_HOLE) {
            self.slot.with(|disk| disk.trim(offset, length))
        } else if mode.contains(FallocateFlags::FALLOC_FL_ZERO_RANGE) {
            self.slot.with(|disk| disk.write_zeroes(offset, length))
        } else {
            Err(Errno::EOPNOTSUPP)
        };
        empty(reply, done);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.disk_bytes / u64::from(BLOCK_BYTES);
        reply.statfs(blocks, 0, 0, 2, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}

/// The threads that serve an export. They end when the connection does; dropped, it waits for them.
#[derive(Debug)]
pub(super) struct Serving(Option<JoinHandle<io::Result<()>>>);

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Mounts the file system, detached, and serves it with so many threads, each of which waits until
/// its answer is due. Only the threads hold the connection: should
/// they end, every request on it fails.
pub(super) fn serve(export: Export, threads: usize) -> Result<(Serving, OwnedFd), HostError> {
    let fuse = File::options().read(true).write(true).open(DEVICE);
    let fuse = fuse.map_err(|source| HostError::Missing {
        doing: "open",
        path: DEVICE.into(),
        source,
        fix: "the kernel needs FUSE (modprobe fuse), and a container this device",
    })?;
    let number = fuse.as_raw_fd().to_string();
    let parameters = [
        ("source", "plugpull"),
        ("fd", number.as_str()),
        ("rootmode", "40000"),
        ("user_id", "0"),
        ("group_id", "0"),
    ];
    let root = mount_detached("fuse", &parameters)?;
    let mut config = Config::default();
    config.n_threads = Some(threads);
    let failed = |doing| HostError::system(doing, DEVICE);
    let session = Session::from_fd(export, fuse.into(), SessionACL::Owner, config)
        .map_err(failed("shake hands with the kernel over"))?;
    let run = move || session.run();
    let thread = std::thread::Builder::new().name("host-serve".into()).spawn(run);
    Ok((Serving(Some(thread.map_err(failed("serve the kernel over"))?)), root))
}
