//! What dpkg does when it installs the next version of packages, system call by system call.
//!
//! As strace saw dpkg 1.21.22 (Debian 12) upgrade a package of a few files, with
//! `--refuse-unsafe-io`. For each package:
//!
//! 1. The journal's next entry is laid out: `updates/tmp.i` with 4608 bytes of padding. An entry is
//!    written over it, cut to its length, fsynced, renamed to its number; then the folder is fsynced
//!    and the next one is laid out. That happens nine times: three before the files are unpacked, one
//!    each behind step 4, 5 and 6, three while the package is configured.
//! 2. The control files are unpacked into `tmp.ci/`, each fsynced, then the folder.
//! 3. For each file: `X.dpkg-new` is created and written, 32 KiB a call; sync_file_range(2) asks for
//!    write-back; the old version gets a second name, `X.dpkg-tmp`.
//! 4. Only then, for all files: sync_file_range(2) waits for the write-back; then for one after the
//!    other: fsync of `X.dpkg-new`, rename over `X`. With `--force-unsafe-io` there is the rename only.
//! 5. `info/P.list-new` is written, fsynced, renamed over `P.list`; the other control files are renamed
//!    into `info/`; the folder is fsynced after each of both steps. No folder of the files ever is.
//! 6. The second names of the old versions are unlinked.
//! 7. `status-new` is written and fsynced; `status-old` becomes a second name of `status`; `status-new`
//!    is renamed over it; the folder is fsynced; the journal's entries are unlinked, and their folder
//!    is fsynced.
//!
//! Left out are owners, modes, times and locks, which carry no data, and the calls that fail by design
//! (dpkg tries to remove leftovers that are not there). sync_file_range is asked with all its flags.
//!
//! Sizes and shape are those of the 8,212 files in 156 packages that `apt-get install python3-pip`
//! adds to a Debian 12 of required packages and apt (2023 release, amd64), from `dpkg-deb -c` of each:
//! 53 files a package, 12 a folder, four folders deep. Above the 99.5th percentile sizes are cut to
//! 1 MiB; those few files are two thirds of all bytes.

use super::dice::Dice;
use crate::script::op::{Op, PathId, Paths, SyncHow, WORD_BYTES, WriteHow};
use crate::script::spec::Generator;
use crate::units::StreamId;
use std::collections::VecDeque;

/// Sets the sizes apart from every other use of a seed.
const PURPOSE: u64 = u64::from_le_bytes(*b"packages");

const FILES_EACH: u32 = 53;
const FILES_A_FOLDER: u32 = 12;

/// Sizes in bytes at these thousandths of all files.
const SIZES: [(u64, u64); 23] = [
    (0, 0),
    (50, 274),
    (100, 588),
    (150, 862),
    (200, 1_094),
    (250, 1_338),
    (300, 1_623),
    (350, 1_915),
    (400, 2_226),
    (450, 2_612),
    (500, 3_083),
    (550, 3_683),
    (600, 4_508),
    (650, 5_684),
    (700, 7_507),
    (750, 9_612),
    (800, 12_849),
    (850, 18_047),
    (900, 30_130),
    (950, 67_982),
    (990, 442_764),
    (995, 948_240),
    (1_000, 1 << 20),
];

/// dpkg writes a file in pieces of this many bytes.
const WRITE_BYTES: u64 = 32 << 10;
/// A journal entry before it is written, as dpkg pads it.
const PADDING: u64 = 4_608;
/// A journal entry.
const ENTRY: u64 = 136;
/// Journal entries of a package.
const ENTRIES: u32 = 9;
/// What a package takes in `status`, and its control file has.
const CONTROL: u64 = 1_200;
/// A line of a package's list of files, and of its checksums.
const LIST_LINE: u64 = 48;
const SUMS_LINE: u64 = 80;

const DPKG: &str = "var/lib/dpkg";
const FOLDERS: [&str; 7] = [
    "usr",
    "usr/lib",
    "var",
    "var/lib",
    "var/lib/dpkg",
    "var/lib/dpkg/updates",
    "var/lib/dpkg/info",
];

/// Rounds of packages, without end.
#[derive(Debug)]
pub struct Package {
    files: u32,
    unsafe_io: bool,
    dice: Dice,
    paths: Paths,
    due: VecDeque<Op>,
    /// The next package to install.
    package: u32,
}

/// Operations of the set-up: the oldest version of everything, and a sync.
pub fn fill(files: u32) -> u64 {
    let folders: u64 = (0..packages(files)).map(|p| u64::from(folders_of(files, p))).sum();
    let each = 1 + 4;
    let status = 3;
    let sync = 1;
    FOLDERS.len() as u64
        + status
        + u64::from(packages(files)) * each
        + folders
        + 2 * u64::from(files)
        + sync
}

fn packages(files: u32) -> u32 {
    files.div_ceil(FILES_EACH)
}

fn files_of(files: u32, package: u32) -> u32 {
    (files - package * FILES_EACH).min(FILES_EACH)
}

fn folders_of(files: u32, package: u32) -> u32 {
    files_of(files, package).div_ceil(FILES_A_FOLDER)
}

fn words(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(WORD_BYTES)
}

impl Package {
    /// So many files, in packages of [`FILES_EACH`].
    pub fn new(files: u32, unsafe_io: bool, (seed, stream): (u64, StreamId)) -> Package {
        let dice = Dice::new(PURPOSE, seed, stream);
        let (paths, due) = (Paths::default(), VecDeque::new());
        let mut all = Package { files, unsafe_io, dice, paths, due, package: 0 };
        all.set_up();
        all
    }

    fn set_up(&mut self) {
        for folder in FOLDERS {
            let folder = self.path(folder);
            self.due.push_back(Op::Mkdir(folder));
        }
        let (status, old) = (self.dpkg("status"), self.dpkg("status-old"));
        self.new_file(status, self.status_bytes(), u64::MAX);
        self.due.push_back(Op::Link { from: status, to: old });
        for package in 0..packages(self.files) {
            let folder = self.path(&format!("usr/lib/p{package:04}"));
            self.due.push_back(Op::Mkdir(folder));
            for number in 0..folders_of(self.files, package) {
                let folder = self.path(&format!("usr/lib/p{package:04}/d{number:02}"));
                self.due.push_back(Op::Mkdir(folder));
            }
            let (list, sums) = (self.info(package, "list"), self.info(package, "md5sums"));
            self.new_file(list, self.lines(package, LIST_LINE), u64::MAX);
            self.new_file(sums, self.lines(package, SUMS_LINE), u64::MAX);
            for file in 0..files_of(self.files, package) {
                let (path, bytes) = (self.file(package, file, ""), self.size());
                self.new_file(path, bytes, u64::MAX);
            }
        }
        let root = self.path("");
        self.sync(root, SyncHow::Syncfs);
    }

    fn install(&mut self, package: u32) {
        let files = files_of(self.files, package);
        self.lay_out();
        self.control_files(package);
        (0..3).for_each(|entry| self.entry(entry));
        for file in 0..files {
            let new = self.file(package, file, ".dpkg-new");
            let bytes = self.size();
            self.new_file(new, bytes, WRITE_BYTES);
            self.sync(new, SyncHow::SyncFileRange);
            let (from, to) = (self.file(package, file, ""), self.file(package, file, ".dpkg-tmp"));
            self.due.push_back(Op::Link { from, to });
        }
        self.put_in_place(package, files);
        self.entry(3);
        self.info_files(package);
        self.entry(4);
        for file in 0..files {
            let old = self.file(package, file, ".dpkg-tmp");
            self.due.push_back(Op::Unlink(old));
        }
        self.entry(5);
        let (control, folder) = (self.dpkg("tmp.ci/control"), self.dpkg("tmp.ci"));
        self.due.extend([Op::Unlink(control), Op::Rmdir(folder)]);
        (6..ENTRIES).for_each(|entry| self.entry(entry));
        self.checkpoint();
    }

    fn put_in_place(&mut self, package: u32, files: u32) {
        let waits = if self.unsafe_io { 0 } else { files };
        for file in 0..waits {
            let new = self.file(package, file, ".dpkg-new");
            self.sync(new, SyncHow::SyncFileRange);
        }
        for file in 0..files {
            let (from, to) = (self.file(package, file, ".dpkg-new"), self.file(package, file, ""));
            if !self.unsafe_io {
                self.sync(from, SyncHow::Fsync);
            }
            self.due.push_back(Op::Rename { from, to });
        }
    }

    fn control_files(&mut self, package: u32) {
        let folder = self.dpkg("tmp.ci");
        let (control, sums) = (self.dpkg("tmp.ci/control"), self.dpkg("tmp.ci/md5sums"));
        self.due.push_back(Op::Mkdir(folder));
        self.new_file(control, CONTROL, u64::MAX);
        self.new_file(sums, self.lines(package, SUMS_LINE), u64::MAX);
        self.sync(sums, SyncHow::Fsync);
        self.sync(control, SyncHow::Fsync);
        self.sync(folder, SyncHow::FsyncDir);
    }

    fn info_files(&mut self, package: u32) {
        let (list, sums) = (self.info(package, "list"), self.info(package, "md5sums"));
        let new = self.info(package, "list-new");
        let (new_sums, folder) = (self.dpkg("tmp.ci/md5sums"), self.dpkg("info"));
        self.new_file(new, self.lines(package, LIST_LINE), u64::MAX);
        self.sync(new, SyncHow::Fsync);
        self.due.push_back(Op::Rename { from: new, to: list });
        self.sync(folder, SyncHow::FsyncDir);
        self.due.push_back(Op::Rename { from: new_sums, to: sums });
        self.sync(folder, SyncHow::FsyncDir);
    }

    fn lay_out(&mut self) {
        let next = self.dpkg("updates/tmp.i");
        self.new_file(next, PADDING, u64::MAX);
    }

    fn entry(&mut self, number: u32) {
        let (path, folder) = (self.dpkg("updates/tmp.i"), self.dpkg("updates"));
        let to = self.dpkg(&format!("updates/{number:04}"));
        let how = WriteHow::Buffered;
        self.due.push_back(Op::Write { path, offset: 0, len: ENTRY, how });
        self.due.push_back(Op::Truncate { path, size: ENTRY });
        self.sync(path, SyncHow::Fsync);
        self.due.push_back(Op::Rename { from: path, to });
        self.sync(folder, SyncHow::FsyncDir);
        self.lay_out();
    }

    fn checkpoint(&mut self) {
        let (status, old) = (self.dpkg("status"), self.dpkg("status-old"));
        let (new, folder) = (self.dpkg("status-new"), self.path(DPKG));
        self.new_file(new, self.status_bytes(), u64::MAX);
        self.sync(new, SyncHow::Fsync);
        self.due.push_back(Op::Unlink(old));
        self.due.push_back(Op::Link { from: status, to: old });
        self.due.push_back(Op::Rename { from: new, to: status });
        self.sync(folder, SyncHow::FsyncDir);
        for number in 0..ENTRIES {
            let entry = self.dpkg(&format!("updates/{number:04}"));
            self.due.push_back(Op::Unlink(entry));
        }
        let (updates, next) = (self.dpkg("updates"), self.dpkg("updates/tmp.i"));
        self.sync(updates, SyncHow::FsyncDir);
        self.due.push_back(Op::Unlink(next));
    }

    /// A new file, written in pieces of at most so many bytes.
    fn new_file(&mut self, path: PathId, bytes: u64, piece: u64) {
        let (bytes, how) = (words(bytes), WriteHow::Buffered);
        self.due.push_back(Op::Create(path));
        let mut offset = 0;
        while offset < bytes {
            let len = piece.min(bytes - offset);
            self.due.push_back(Op::Write { path, offset, len, how });
            offset += len;
        }
    }

    fn sync(&mut self, path: PathId, how: SyncHow) {
        self.due.push_back(Op::Sync { path, how });
    }

    fn path(&mut self, path: &str) -> PathId {
        self.paths.intern(path)
    }

    fn dpkg(&mut self, name: &str) -> PathId {
        self.paths.intern(&format!("{DPKG}/{name}"))
    }

    fn info(&mut self, package: u32, kind: &str) -> PathId {
        self.paths.intern(&format!("{DPKG}/info/p{package:04}.{kind}"))
    }

    fn file(&mut self, package: u32, file: u32, behind: &str) -> PathId {
        let folder = file / FILES_A_FOLDER;
        self.paths.intern(&format!("usr/lib/p{package:04}/d{folder:02}/f{file:02}{behind}"))
    }

    /// A size, spread as [`SIZES`] says; on a straight line between two of them.
    fn size(&mut self) -> u64 {
        let at = self.dice.below(1_000_000);
        let above = SIZES.partition_point(|(thousandth, _)| thousandth * 1_000 <= at);
        let ((from, small), (to, large)) = (SIZES[above - 1], SIZES[above]);
        small + (large - small) * (at - from * 1_000) / ((to - from) * 1_000)
    }

    fn lines(&self, package: u32, line: u64) -> u64 {
        u64::from(files_of(self.files, package)) * line
    }

    fn status_bytes(&self) -> u64 {
        u64::from(packages(self.files)) * CONTROL
    }
}

impl Generator for Package {
    fn next_op(&mut self) -> Option<Op> {
        if self.due.is_empty() {
            self.install(self.package);
            self.package = (self.package + 1) % packages(self.files).max(1);
        }
        self.due.pop_front()
    }

    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn fill(&self) -> u64 {
        fill(self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::generate::names::Names;
    use crate::script::spec::{Script, ScriptSpec};
    use crate::script::text::text;

    fn script(files: u32, unsafe_io: bool, count: u64) -> Script {
        ScriptSpec::PackageInstall { files, unsafe_io }.script(7, StreamId(1), count)
    }

    #[test]
    fn three_rounds_can_be_carried_out_and_each_leaves_only_what_it_should() {
        let script = script(120, false, 20_000);
        let mut names = Names::default();
        let mut at_rest = None;
        for (n, op) in script.ops.iter().enumerate() {
            assert_eq!(names.check(op, &script.paths), Ok(()), "{}", text(op, &script.paths));
            names.apply(op, &script.paths);
            let rests = text(op, &script.paths) == "unlink var/lib/dpkg/updates/tmp.i";
            if n as u64 + 1 == script.fill || rests {
                let all: Vec<String> = names.all().map(|(path, _)| path.to_owned()).collect();
                assert_eq!(*at_rest.get_or_insert(all.clone()), all);
            }
        }
        let files = at_rest.iter().flatten().filter(|path| path.contains("/f"));
        assert_eq!(files.count(), 120);
    }

    #[test]
    fn a_file_is_forced_before_it_is_renamed_unless_io_is_unsafe() {
        let order = |unsafe_io| {
            let script = script(2, unsafe_io, 200);
            let lines: Vec<String> = script.ops.iter().map(|op| text(op, &script.paths)).collect();
            let of_file = |line: &String| line.contains("f00.dpkg-new");
            let words = lines.iter().filter(|line| of_file(line)).take(6);
            words.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
        };
        let safe: Vec<String> = order(false);
        let mut kinds = safe.clone();
        kinds.dedup();
        assert_eq!(kinds, ["create", "write", "sync-file-range", "fsync", "rename"], "{safe:?}");
        let fast: Vec<String> = order(true);
        assert!(!fast.contains(&"fsync".to_owned()) && fast.contains(&"rename".to_owned()));
    }

    #[test]
    fn sizes_are_spread_as_measured() {
        let mut package = Package::new(1, false, (7, StreamId(1)));
        let mut sizes: Vec<u64> = (0..100_000).map(|_| package.size()).collect();
        sizes.sort_unstable();
        for (thousandth, bytes) in &SIZES[1..22] {
            let found = sizes[*thousandth as usize * 100] as f64 / *bytes as f64;
            assert!((0.8..1.25).contains(&found), "{thousandth}: {found}");
        }
        let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
        assert!((15_000..40_000).contains(&mean), "{mean}");
    }
}
