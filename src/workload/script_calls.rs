//! The system calls of a script's operations.
//!
//! What always holds: an operation is one call that changes something, or one sync (a write into a
//! mapping that reaches behind the file's end grows the file first); bytes to write are made before
//! [`ScriptCalls::carry`], so that no page fault comes in the middle of a write; a short write is an
//! error; nothing outside the stream's folder is touched.

use crate::script::content::Key;
use crate::script::op::{FallocateHow, Op, PathId, Paths, SyncHow, WriteHow};
use crate::units::Seq;
use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MapFlags, MsFlags, ProtFlags, mmap, msync, munmap};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

/// A mapping begins at a page; O_DIRECT wants memory in blocks of the disk, which are not larger.
const PAGE_BYTES: u64 = 4096;

mod ioctl {
    /// `struct file_clone_range` of linux/fs.h.
    #[repr(C)]
    pub struct CloneRange {
        pub src_fd: i64,
        pub src_offset: u64,
        pub src_length: u64,
        pub dest_offset: u64,
    }
    nix::ioctl_write_ptr!(clone_range, 0x94, 13, CloneRange);
}

/// A stream's folder, and how operations are carried out in it.
#[derive(Debug)]
pub struct ScriptCalls {
    folder: OwnedFd,
    /// Kept open while operations are on the same path, as a program does that writes and syncs.
    open: Option<Open>,
    buffer: Buffer,
    /// The planted fault: syncs succeed without being carried out.
    lies: bool,
}

#[derive(Debug)]
struct Open {
    path: PathId,
    through: OFlags,
    file: OwnedFd,
}

type Outcome<T = ()> = Result<T, Errno>;

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

impl ScriptCalls {
    /// Makes the folder; one that exists is an error.
    pub fn create(folder: &Path) -> Outcome<ScriptCalls> {
        rustix::fs::mkdirat(CWD, folder, Mode::RWXU).map_err(errno)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, folder, flags, Mode::empty()).map_err(errno)?;
        Ok(ScriptCalls { folder, open: None, buffer: Buffer::default(), lies: false })
    }

    /// From now on syncs are not carried out, and seem to succeed.
    pub fn lie(&mut self) {
        self.lies = true;
    }

    /// Makes everything durable.
    pub fn sync_all(&mut self) -> Outcome {
        self.open = None;
        rustix::fs::syncfs(&self.folder).map_err(errno)
    }

    /// All that comes before an operation's first call: the descriptor of another file is closed, and
    /// the bytes to write are made.
    pub fn prepare(&mut self, op: &Op, seq: Seq, key: Key) {
        let path = match *op {
            Op::Write { path, .. } | Op::Truncate { path, .. } | Op::Fallocate { path, .. } => path,
            Op::Sync { path, how } if !matches!(how, SyncHow::FsyncDir | SyncHow::Syncfs) => path,
            _ => return self.open = None,
        };
        self.open = self.open.take().filter(|open| open.path == path);
        if let Op::Write { offset, len, .. } = *op {
            key.fill(seq, offset, self.buffer.of(len));
        }
    }

    /// Carries out the operation that was prepared last.
    pub fn carry(&mut self, op: &Op, paths: &Paths) -> Outcome {
        let folder = &self.folder;
        let name = |id| paths.name(id);
        match *op {
            Op::Mkdir(path) => rustix::fs::mkdirat(folder, name(path), Mode::RWXU),
            Op::Rmdir(path) => rustix::fs::unlinkat(folder, name(path), AtFlags::REMOVEDIR),
            Op::Unlink(path) => rustix::fs::unlinkat(folder, name(path), AtFlags::empty()),
            Op::Rename { from, to } => rustix::fs::renameat(folder, name(from), folder, name(to)),
            Op::Link { from, to } => {
                rustix::fs::linkat(folder, name(from), folder, name(to), AtFlags::empty())
            }
            Op::Symlink { target, at } => rustix::fs::symlinkat(name(target), folder, name(at)),
            Op::Truncate { path, size } => {
                rustix::fs::ftruncate(self.file(path, OFlags::empty(), paths)?, size)
            }
            Op::Fallocate { path, offset, len, how } => {
                let file = self.file(path, OFlags::empty(), paths)?;
                rustix::fs::fallocate(file, flags(how), offset, len)
            }
            Op::Create(path) => return self.make(path, paths),
            Op::Write { path, offset, len, how } => {
                return self.write(path, offset, len, how, paths);
            }
            Op::Copy { from, to, offset, len } => {
                return self.copy(name(from), name(to), offset, len);
            }
            Op::Sync { .. } if self.lies => return Ok(()),
            Op::Sync { path, how } => return self.sync(path, how, paths),
        }
        .map_err(errno)
    }

    fn open_at(&self, name: &str, more: OFlags) -> Outcome<OwnedFd> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
        let name = if name.is_empty() { "." } else { name };
        rustix::fs::openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR).map_err(errno)
    }

    /// A file's descriptor, the kept one if it writes the same way.
    fn file(&mut self, path: PathId, through: OFlags, paths: &Paths) -> Outcome<&OwnedFd> {
        let kept = self.open.take().filter(|open| (open.path, open.through) == (path, through));
        let open = match kept {
            Some(open) => open,
            None => {
                let file = self.open_at(paths.name(path), OFlags::RDWR | through)?;
                Open { path, through, file }
            }
        };
        Ok(&self.open.insert(open).file)
    }

    fn make(&mut self, path: PathId, paths: &Paths) -> Outcome {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = self.open_at(paths.name(path), flags)?;
        self.open = Some(Open { path, through: OFlags::empty(), file });
        Ok(())
    }

    fn write(
        &mut self,
        path: PathId,
        offset: u64,
        len: u64,
        how: WriteHow,
        paths: &Paths,
    ) -> Outcome {
        let through = match how {
            WriteHow::Dsync if !self.lies => OFlags::DSYNC,
            WriteHow::Sync if !self.lies => OFlags::SYNC,
            WriteHow::Direct => OFlags::DIRECT,
            WriteHow::Buffered | WriteHow::Mapped | WriteHow::Dsync | WriteHow::Sync => {
                OFlags::empty()
            }
        };
        self.file(path, through, paths)?;
        let Some(Open { file, .. }) = &self.open else { return Err(Errno::EBADF) };
        let bytes = &*self.buffer.of(len);
        if how == WriteHow::Mapped {
            return store(file, offset, bytes);
        }
        loop {
            match rustix::io::pwrite(file, bytes, offset) {
                Ok(written) if written == bytes.len() => return Ok(()),
                // Its rest would be a second operation.
                Ok(_) => return Err(Errno::EIO),
                // Nothing was written yet.
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(errno(error)),
            }
        }
    }

    fn copy(&self, from: &str, to: &str, offset: u64, len: u64) -> Outcome {
        let (from, to) = (self.open_at(from, OFlags::RDONLY)?, self.open_at(to, OFlags::RDWR)?);
        let range = ioctl::CloneRange {
            src_fd: i64::from(from.as_raw_fd()),
            src_offset: offset,
            src_length: len,
            dest_offset: offset,
        };
        // SAFETY: the structure is the kernel's and lives through the call.
        match unsafe { ioctl::clone_range(to.as_raw_fd(), &range) } {
            Ok(_) => return Ok(()),
            Err(errno @ (Errno::EIO | Errno::ENOSPC)) => return Err(errno),
            // No reflinks here, or not of this range, or (ZFS: EAGAIN) not while the source is dirty.
            Err(_) => {}
        }
        let (mut read, mut written, end) = (offset, offset, offset + len);
        while read < end {
            let rest = (end - read) as usize;
            match rustix::fs::copy_file_range(&from, Some(&mut read), &to, Some(&mut written), rest)
            {
                Ok(0) => return Err(Errno::EIO),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(())
    }

    fn sync(&mut self, path: PathId, how: SyncHow, paths: &Paths) -> Outcome {
        let none = OFlags::empty();
        match how {
            SyncHow::Fsync => rustix::fs::fsync(self.file(path, none, paths)?).map_err(errno),
            SyncHow::Fdatasync => {
                rustix::fs::fdatasync(self.file(path, none, paths)?).map_err(errno)
            }
            SyncHow::Msync => sync_mapping(self.file(path, none, paths)?),
            SyncHow::SyncFileRange => sync_range(self.file(path, none, paths)?),
            SyncHow::FsyncDir => {
                let folder = self.open_at(paths.name(path), OFlags::RDONLY | OFlags::DIRECTORY)?;
                rustix::fs::fsync(folder).map_err(errno)
            }
            SyncHow::Syncfs => rustix::fs::syncfs(&self.folder).map_err(errno),
        }
    }
}

fn flags(how: FallocateHow) -> FallocateFlags {
    match how {
        FallocateHow::Allocate => FallocateFlags::empty(),
        FallocateHow::KeepSize => FallocateFlags::KEEP_SIZE,
        FallocateHow::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateHow::ZeroRange => FallocateFlags::ZERO_RANGE,
    }
}

/// Stores bytes through a shared mapping. Behind the file's end there is nothing to map, so the file
/// grows first.
fn store(file: &OwnedFd, offset: u64, bytes: &[u8]) -> Outcome {
    let end = offset + bytes.len() as u64;
    let size = rustix::fs::fstat(file).map_err(errno)?.st_size as u64;
    if size < end {
        rustix::fs::ftruncate(file, end).map_err(errno)?;
    }
    let from = offset / PAGE_BYTES * PAGE_BYTES;
    let before = (offset - from) as usize;
    with_mapping(file, from, before + bytes.len(), |at| {
        // SAFETY: the mapping has `before` bytes and then room for all of `bytes`, and nothing else in
        // this process refers to it.
        unsafe { at.cast::<u8>().add(before).copy_from(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    })
}

/// msync(2) of the whole file; an empty one has no mapping, and nothing to write.
fn sync_mapping(file: &OwnedFd) -> Outcome {
    let size = rustix::fs::fstat(file).map_err(errno)?.st_size as usize;
    with_mapping(file, 0, size, |at| {
        // SAFETY: these are the bytes of the mapping.
        unsafe { msync(at, size, MsFlags::MS_SYNC) }
    })
}

fn with_mapping(
    file: &OwnedFd,
    from: u64,
    bytes: usize,
    act: impl FnOnce(NonNull<c_void>) -> Outcome,
) -> Outcome {
    let Some(length) = NonZeroUsize::new(bytes) else { return Ok(()) };
    let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice; it is gone before this returns.
    let at = unsafe { mmap(None, length, rights, MapFlags::MAP_SHARED, file, from as i64) }?;
    let outcome = act(at);
    // SAFETY: nothing refers to the mapping any more.
    unsafe { munmap(at, bytes) }?;
    outcome
}

fn sync_range(file: &OwnedFd) -> Outcome {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: it takes numbers only.
    let outcome = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    Errno::result(outcome).map(drop)
}

/// Bytes to write, at an address that O_DIRECT takes.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// Its first `len` bytes; it grows where it must.
    fn of(&mut self, len: u64) -> &mut [u8] {
        let (len, page) = (len as usize, PAGE_BYTES as usize);
        if self.bytes.len() < len + page {
            // Not zeros: a page that was only asked for could still be the kernel's shared zero page.
            self.bytes = vec![0xff; len + page];
        }
        let skip = self.bytes.as_ptr().align_offset(page);
        &mut self.bytes[skip..skip + len]
    }
}
