//! What each sync makes durable, per file system. Where that is not certain, nothing is promised.
//!
//! | call | promised | where it is said |
//! | --- | --- | --- |
//! | fsync(2) | the file's data and size | fsync(2); POSIX.1-2017, fsync |
//! | | names that the file was given, and the folders made for them | not by fsync(2), which asks for an fsync of the folder too; ext4: `ext4_sync_file` commits the transaction of the inode's last change, and create, link and rename change the inode; XFS: `xfs_file_fsync` forces the log up to the inode's last change, and the log is in order; Btrfs: `btrfs_log_inode_parent` and `btrfs_log_new_name` |
//! | fdatasync(2) | the file's data, and the size that is needed to read it | fdatasync(2) |
//! | msync(2) with MS_SYNC | the same | msync(2); `vfs_fsync_range` with `datasync` |
//! | write with O_DSYNC | the data of this write, and the size that is needed to read it | open(2); `generic_write_sync` flushes the range that was written |
//! | write with O_SYNC | that, and names as by fsync | open(2) |
//! | fsync(2) of a folder | the names in it, and its own | fsync(2) |
//! | syncfs(2) | everything before it | syncfs(2) |
//! | sync_file_range(2) | nothing | sync_file_range(2), "Warning": no metadata, no flush of the disk's cache |
//!
//! ZFS: each of these but the last calls `zil_commit`, which writes every record on the synchronous
//! list of the dataset's intent log: create, mkdir, link, symlink, rename, remove and rmdir are
//! always on it (`zil_itx_create`), of data only what belongs to the file that is synced
//! (`zil_async_to_sync`). So every earlier name of the dataset is promised with each of them.

use crate::script::op::{Op, SyncHow, WriteHow};

/// Families of file systems that promise the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// ext4, XFS, Btrfs: also inside a zvol.
    Plain,
    /// A dataset of ZFS with an intent log.
    Zfs,
}

/// Of which names a sync promises something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NamesOf {
    /// None.
    None,
    /// Those of what is synced.
    Own,
    /// Those, and all in the folder that is synced.
    Folder,
    /// All.
    All,
}

/// Of which data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataOf {
    /// None.
    None,
    /// What this very operation wrote.
    Write,
    /// The whole file.
    File,
    /// All files.
    All,
}

/// What an operation makes durable once it returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Promised {
    /// Names.
    pub names: NamesOf,
    /// Data.
    pub data: DataOf,
}

impl Family {
    /// What an operation makes durable; nothing, if it is no sync and comes with none.
    pub fn promised(self, op: &Op) -> Option<Promised> {
        let names = |plain| match self {
            Family::Plain => plain,
            Family::Zfs => NamesOf::All,
        };
        let promised = |names, data| Some(Promised { names, data });
        match *op {
            Op::Write { how: WriteHow::Dsync, .. } => promised(names(NamesOf::None), DataOf::Write),
            Op::Write { how: WriteHow::Sync, .. } => promised(names(NamesOf::Own), DataOf::Write),
            Op::Sync { how, .. } => match how {
                SyncHow::Fsync => promised(names(NamesOf::Own), DataOf::File),
                SyncHow::Fdatasync | SyncHow::Msync => promised(names(NamesOf::None), DataOf::File),
                SyncHow::FsyncDir => promised(names(NamesOf::Folder), DataOf::None),
                SyncHow::Syncfs => promised(NamesOf::All, DataOf::All),
                SyncHow::SyncFileRange => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::op::PathId;

    #[test]
    fn a_range_sync_promises_nothing_anywhere_and_only_zfs_promises_names_with_data() {
        let sync = |how| Op::Sync { path: PathId(0), how };
        for family in [Family::Plain, Family::Zfs] {
            assert_eq!(family.promised(&sync(SyncHow::SyncFileRange)), None);
            assert_eq!(family.promised(&Op::Create(PathId(0))), None);
        }
        let names = |family: Family| family.promised(&sync(SyncHow::Fdatasync)).map(|p| p.names);
        assert_eq!(names(Family::Plain), Some(NamesOf::None));
        assert_eq!(names(Family::Zfs), Some(NamesOf::All));
    }
}
