//! What a stream writes to: a file in place, or a file that each operation replaces as a whole.
//!
//! What always holds: a write returns when a reader would see it, a sync when the file system says
//! that it is durable; a replaced file's name never points at a new file whose bytes were not forced
//! to disk, and never at a short one (but for the planted fault).

use crate::workload::plan::{Pattern, StreamPlan, WriterFault};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a stream writes to.
pub trait Target {
    /// One write of a record: how many bytes it took.
    fn write_at(&self, bytes: &[u8], location: u64) -> io::Result<usize>;
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
}

/// A stream's file, as its pattern wants it.
#[derive(Debug)]
pub enum StreamFile {
    /// Written with pwrite(2) and forced with fsync(2).
    InPlace(File),
    /// Renamed over.
    Replaced(Replaced),
}

impl StreamFile {
    /// Makes the file of a stream; one that exists is an error. A file that is replaced comes to be
    /// with its first write.
    pub fn create(stream: &StreamPlan) -> io::Result<StreamFile> {
        let path = Path::new(&stream.path);
        match stream.pattern {
            Pattern::Append | Pattern::Overwrite { .. } => {
                let file = File::options().write(true).create_new(true).open(path)?;
                Ok(StreamFile::InPlace(file))
            }
            Pattern::Replace => Replaced::new(path, stream.fault).map(StreamFile::Replaced),
            // Their streams have folders: see `workload::stream`.
            Pattern::Script(_) | Pattern::Sqlite(_) | Pattern::Exec(_) => {
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }
}

impl Target for StreamFile {
    fn write_at(&self, bytes: &[u8], location: u64) -> io::Result<usize> {
        match self {
            StreamFile::InPlace(file) => FileExt::write_at(file, bytes, location),
            StreamFile::Replaced(file) => file.replace(bytes, location),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            StreamFile::InPlace(file) => file.sync_all(),
            StreamFile::Replaced(file) => file.sync_name(),
        }
    }
}

/// A file that each operation replaces.
#[derive(Debug)]
pub struct Replaced {
    path: PathBuf,
    new: PathBuf,
    folder: File,
    fault: Option<WriterFault>,
}

/// Where the next version of a replaced file is written before it is renamed.
pub fn new_path(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    new.into()
}

/// The folder that holds a file's name.
pub fn folder_of(path: &Path) -> io::Result<File> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder),
        _ => File::open("."),
    }
}

impl Replaced {
    fn new(path: &Path, fault: Option<WriterFault>) -> io::Result<Replaced> {
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Replaced { path: path.to_owned(), new: new_path(path), folder: folder_of(path)?, fault })
    }

    /// A new file, forced to disk, then renamed. A short write is not renamed.
    fn replace(&self, bytes: &[u8], location: u64) -> io::Result<usize> {
        let file = File::options().write(true).create(true).truncate(true).open(&self.new)?;
        let written = file.write_at(bytes, location)?;
        if written != bytes.len() {
            return Ok(written);
        }
        if self.fault != Some(WriterFault::RenameWithoutFsync) {
            file.sync_all()?;
        }
        fs::rename(&self.new, &self.path)?;
        Ok(written)
    }

    /// The name is durable when the folder is.
    fn sync_name(&self) -> io::Result<()> {
        match self.fault {
            Some(WriterFault::NoDirectoryFsync) => Ok(()),
            _ => self.folder.sync_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::StreamId;

    fn stream(folder: &Path, fault: Option<WriterFault>) -> StreamPlan {
        StreamPlan {
            id: StreamId(1),
            dataset: "config".into(),
            path: folder.join("stream-1").display().to_string(),
            pattern: Pattern::Replace,
            pace_hz: None,
            batch: 1,
            fault,
        }
    }

    #[test]
    fn a_replaced_file_is_always_its_newest_version_and_its_new_name_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        for fault in [None, Some(WriterFault::RenameWithoutFsync), Some(WriterFault::Stall)] {
            let stream = stream(folder.path(), fault);
            let file = StreamFile::create(&stream).unwrap();
            for version in [b"one ", b"two ", b"end."] {
                assert_eq!(file.write_at(version, 0).unwrap(), 4);
                assert_eq!(fs::read(&stream.path).unwrap(), version);
                assert!(!new_path(Path::new(&stream.path)).exists());
                file.sync().unwrap();
            }
            fs::remove_file(&stream.path).unwrap();
        }
    }

    #[test]
    fn a_file_that_exists_is_never_replaced_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let stream = stream(folder.path(), None);
        fs::write(&stream.path, "someone's").unwrap();
        let error = StreamFile::create(&stream).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&stream.path).unwrap(), b"someone's");
    }

    #[test]
    fn a_new_file_that_cannot_be_made_leaves_the_old_version() {
        let folder = tempfile::tempdir().unwrap();
        let stream = stream(folder.path(), None);
        let file = StreamFile::create(&stream).unwrap();
        file.write_at(b"old.", 0).unwrap();
        // A folder in the place of the new file: no user may write to that, root included.
        fs::create_dir(new_path(Path::new(&stream.path))).unwrap();
        assert!(file.write_at(b"new.", 0).is_err());
        assert_eq!(fs::read(&stream.path).unwrap(), b"old.");
    }
}
