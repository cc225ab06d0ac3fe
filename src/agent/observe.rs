//! Reading the streams' files back, after a crash or before one.
//!
//! What always holds: every byte of every file is read, and what is not exactly the record that the
//! plan puts there goes to the lab as it is, or with the errno of its own 4 KiB. Nothing is judged
//! here.

use crate::agent::{observe_rows, observe_tree};
use crate::record::layout::RECORD_BYTES;
use crate::record::observed::ObservedBlock;
use crate::record::place::Place;
use crate::record::ring::Ring;
use crate::record::wire::{Encoder, FILE_BYTES_MAX, Sink};
use crate::units::StreamId;
use crate::workload::plan::{Plan, StreamPlan};
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// Bytes of one read; a failed one is repeated record by record.
const READ_BYTES: usize = 1 << 20;

const _: () = assert!(READ_BYTES.is_multiple_of(RECORD_BYTES));

/// Why the files could not be read back.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It ended before its size.
    #[error(
        "stream {stream}: {path} ended at byte {at} though it has {size} (does a load still run?)"
    )]
    Shrank {
        /// Which stream.
        stream: StreamId,
        /// Its file.
        path: String,
        /// Where it ended.
        at: u64,
        /// The size that it had.
        size: u64,
    },
    /// A folder with more names than any load makes.
    #[error("stream {stream}: {path} has more than {most} names; no script makes so many")]
    Names {
        /// Which stream.
        stream: StreamId,
        /// Its folder.
        path: String,
        /// The most that are read back.
        most: usize,
    },
    /// The lab does not take it.
    #[error("an observation's part cannot be sent: {0}")]
    Send(#[from] io::Error),
}

/// Reads every stream back, those of records first, each kind in the plan's order, and sends it in
/// parts.
pub fn observe(plan: &Plan, ring: &Ring, sink: &mut Sink) -> Result<(), ObserveError> {
    // All are asked for before the first is waited for: on a disk that answers from another process a
    // wait for each would be most of the time.
    let of_records = |stream: &&StreamPlan| stream.pattern.is_of_records();
    let streams = plan.streams.iter().filter(of_records);
    let opened: Vec<Opened> = streams.clone().map(|stream| open(&stream.path)).collect();
    for (stream, opened) in streams.zip(opened) {
        match opened {
            Opened::File(file, size) => observe_file(plan, stream, ring, (&file, size), sink)?,
            Opened::Nothing => Encoder::new(stream.id, None).finish(sink)?,
            Opened::Failed(errno) => {
                // Its first place stands for all of them: nothing of it can be read.
                let mut encoder = Encoder::new(stream.id, Some(RECORD_BYTES as u64));
                encoder.push(&ObservedBlock::Unreadable(errno as i32), sink)?;
                encoder.finish(sink)?;
            }
        }
    }
    for stream in plan.streams.iter().filter(|stream| stream.pattern.is_of_scripts()) {
        observe_tree::observe(plan, stream, sink)?;
    }
    plan.streams.iter().try_for_each(|stream| observe_rows::observe(plan, stream, sink))?;
    Ok(())
}

/// What a path turned out to be.
enum Opened {
    /// A file of this size.
    File(File, u64),
    /// Not there.
    Nothing,
    /// There, but it does not open, or with a size that no load ever gave it.
    Failed(Errno),
}

fn open(path: &str) -> Opened {
    let opened = File::open(path).and_then(|file| {
        let size = file.metadata()?.len();
        // Only a hint: what cannot be read says so when it is read.
        let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
        Ok((file, size))
    });
    match opened {
        Ok((_, size)) if size > FILE_BYTES_MAX => Opened::Failed(Errno::EFBIG),
        Ok((file, size)) => Opened::File(file, size),
        Err(error) if error.kind() == ErrorKind::NotFound => Opened::Nothing,
        Err(error) => Opened::Failed(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)),
    }
}

/// What blocks are read from.
pub(super) trait Source {
    /// Bytes from `at` on: how many.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, at)
    }
}

fn observe_file(
    plan: &Plan,
    stream: &StreamPlan,
    ring: &Ring,
    (source, size): (&impl Source, u64),
    sink: &mut Sink,
) -> Result<(), ObserveError> {
    let shrank =
        |at| ObserveError::Shrank { stream: stream.id, path: stream.path.clone(), at, size };
    let mut encoder = Encoder::new(stream.id, Some(size));
    let mut buffer = vec![0; size.min(READ_BYTES as u64) as usize];
    for start in (0..size).step_by(READ_BYTES) {
        let part = &mut buffer[..(size - start).min(READ_BYTES as u64) as usize];
        let whole = read(source, part, start);
        for (rank, bytes) in part.chunks_mut(RECORD_BYTES).enumerate() {
            let location = start + (rank * RECORD_BYTES) as u64;
            let outcome = match whole {
                Read::Failed(_) => read(source, bytes, location),
                Read::Whole | Read::EndedAt(_) => whole,
            };
            let block = match outcome {
                Read::Whole => Place { plan, stream, location }.observe(bytes, ring),
                Read::Failed(errno) => ObservedBlock::Unreadable(errno as i32),
                Read::EndedAt(at) => return Err(shrank(at)),
            };
            encoder.push(&block, sink)?;
        }
    }
    Ok(encoder.finish(sink)?)
}

/// How reading a range ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Read {
    /// All of it was read.
    Whole,
    /// The file ended at this byte.
    EndedAt(u64),
    /// The call failed.
    Failed(Errno),
}

/// Reads all of a range.
pub(super) fn read(source: &impl Source, bytes: &mut [u8], start: u64) -> Read {
    let mut filled = 0;
    while filled < bytes.len() {
        let at = start + filled as u64;
        match source.read_at(&mut bytes[filled..], at) {
            Ok(0) => return Read::EndedAt(at),
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return Read::Failed(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw));
            }
        }
    }
    Read::Whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::observed::{ObservedFile, Summary};
    use crate::record::testing::{plan, write_record};
    use crate::record::wire::Decoder;
    use crate::units::Seq;

    /// A file in memory of which some bytes cannot be read.
    struct Damaged {
        bytes: Vec<u8>,
        unreadable: std::ops::Range<u64>,
    }

    impl Source for Damaged {
        fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
            let end = at + bytes.len() as u64;
            if at < self.unreadable.end && self.unreadable.start < end {
                return Err(Errno::EIO.into());
            }
            let rest = &self.bytes[(at as usize).min(self.bytes.len())..];
            // At most a page and a half at a time, as a file system may do.
            let len = rest.len().min(bytes.len()).min(6_000);
            bytes[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }
    }

    fn read_back(source: &Damaged, size: u64) -> Result<ObservedFile, ObserveError> {
        let plan = plan();
        let ring = Ring::make(plan.seed, plan.bodies);
        let (mut decoder, mut file) = (Decoder::default(), None);
        let mut sink = |part: &[u8]| {
            file = decoder.part(part).expect("a part");
            Ok(())
        };
        observe_file(&plan, &plan.streams[0], &ring, (source, size), &mut sink)?;
        Ok(file.expect("the last part came"))
    }

    fn records(count: u64) -> Vec<u8> {
        (1..=count).flat_map(|seq| write_record(&plan(), StreamId(1), Seq(seq))).collect()
    }

    #[test]
    fn what_cannot_be_read_is_located_and_the_rest_is_read_all_the_same() {
        let source = Damaged { bytes: records(600), unreadable: 300 * 4096 + 7..301 * 4096 + 1 };
        let file = read_back(&source, 600 * 4096).expect("a file");
        assert_eq!(file.blocks.len(), 600);
        for (at, block) in file.blocks.iter().enumerate() {
            match (at, block) {
                (300 | 301, ObservedBlock::Unreadable(errno)) => assert_eq!(*errno, 5),
                (_, ObservedBlock::Record(Summary { seq, .. })) => assert_eq!(seq.0, at as u64 + 1),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_hole_a_damaged_record_and_a_short_end_come_back_as_they_are() {
        let mut bytes = records(4);
        bytes[4096..8192].fill(0);
        bytes[3 * 4096 - 600] ^= 1;
        bytes.truncate(3 * 4096 + 100);
        let file =
            read_back(&Damaged { bytes: bytes.clone(), unreadable: 0..0 }, bytes.len() as u64);
        let blocks = file.expect("a file").blocks;
        assert!(matches!(blocks[0], ObservedBlock::Record(_)));
        assert_eq!(blocks[1], ObservedBlock::Zeros);
        assert_eq!(blocks[2], ObservedBlock::Odd(bytes[8192..12288].into()));
        assert_eq!(blocks[3], ObservedBlock::Odd(bytes[12288..].into()));
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_an_error() {
        let source = Damaged { bytes: records(2), unreadable: 0..0 };
        let outcome = read_back(&source, 3 * 4096);
        assert!(matches!(outcome, Err(ObserveError::Shrank { at: 8192, size: 12288, .. })));
    }

    #[test]
    fn a_missing_file_is_told_from_an_empty_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut plan = plan();
        for stream in &mut plan.streams {
            stream.path = folder.path().join(stream.id.to_string()).display().to_string();
        }
        File::create(&plan.streams[1].path).expect("a file");
        let ring = Ring::make(plan.seed, 1);
        let (mut decoder, mut sizes) = (Decoder::default(), Vec::new());
        let mut sink = |part: &[u8]| {
            sizes.extend(decoder.part(part).expect("a part").map(|file| file.size));
            Ok(())
        };
        observe(&plan, &ring, &mut sink).expect("an observation");
        assert_eq!(sizes, [None, Some(0), None]);
    }
}
