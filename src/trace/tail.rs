//! The end of a trace file that is not written yet, and the file before it.
//!
//! What always holds: bytes reach the file in order and without gaps, so that whatever stands there
//! is a prefix of what was appended; a byte that was appended can be read at once, from the buffer
//! or from the file.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes that wait in memory at most, beside one entry.
const TAIL_BYTES: usize = 1 << 20;
/// A payload of this size goes to the file past the buffer: one copy less.
const DIRECT_BYTES: usize = 32 << 10;

/// Appends to a file through a buffer that can be read.
#[derive(Debug)]
pub(super) struct Tail {
    file: Arc<File>,
    /// Bytes of the file; `pending` starts here.
    written: u64,
    pending: Vec<u8>,
}

impl Tail {
    /// Appends to `file`, which must be empty.
    pub fn new(file: Arc<File>) -> Tail {
        Tail { file, written: 0, pending: Vec::with_capacity(TAIL_BYTES) }
    }

    /// Where the next byte goes.
    pub fn end(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Appends `head` and `payload`.
    pub fn append(&mut self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        if payload.len() >= DIRECT_BYTES {
            self.pending.extend_from_slice(head);
            return self.write_out(payload);
        }
        if self.pending.len() + head.len() + payload.len() > TAIL_BYTES {
            self.flush()?;
        }
        self.pending.extend_from_slice(head);
        self.pending.extend_from_slice(payload);
        Ok(())
    }

    /// Hands all to the kernel: from then on it outlives this process.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() { Ok(()) } else { self.write_out(&[]) }
    }

    fn write_out(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut slices = [IoSlice::new(&self.pending), IoSlice::new(payload)];
        let mut slices = &mut slices[..];
        let mut done = 0u64;
        let wanted = (self.pending.len() + payload.len()) as u64;
        while done < wanted {
            match (&*self.file).write_vectored(slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    done += n as u64;
                    IoSlice::advance_slices(&mut slices, n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written += done;
        self.pending.clear();
        Ok(())
    }

    /// Copies what of `out` lies behind the file's end, and tells how many bytes of its front must
    /// come from the file.
    ///
    /// # Errors
    /// If the range ends behind what was appended.
    pub fn read_pending(&self, position: u64, out: &mut [u8]) -> io::Result<usize> {
        let end = position.checked_add(out.len() as u64).filter(|end| *end <= self.end());
        if end.is_none() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let in_file = self.written.saturating_sub(position).min(out.len() as u64) as usize;
        let rest = &mut out[in_file..];
        if !rest.is_empty() {
            let from = (position + in_file as u64 - self.written) as usize;
            rest.copy_from_slice(&self.pending[from..from + rest.len()]);
        }
        Ok(in_file)
    }
}

/// Reads all of `out` from `file` at `position`.
pub(super) fn read_file(file: &File, position: u64, out: &mut [u8]) -> io::Result<()> {
    file.read_exact_at(out, position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_was_appended_is_read_from_wherever_it_is(
            pieces in prop::collection::vec((0usize..70_000, any::<u8>(), any::<bool>()), 1..40),
            at in any::<prop::sample::Index>(), len in any::<prop::sample::Index>(),
        ) {
            let file = Arc::new(tempfile::tempfile().expect("a temporary file"));
            let mut tail = Tail::new(file.clone());
            let mut model = Vec::new();
            for (size, fill, flush) in pieces {
                let payload = vec![fill; size];
                tail.append(&[1, 2, 3], &payload).expect("appends");
                model.extend_from_slice(&[1, 2, 3]);
                model.extend_from_slice(&payload);
                if flush {
                    tail.flush().expect("flushes");
                }
            }
            prop_assert_eq!(tail.end(), model.len() as u64);
            let start = at.index(model.len());
            let mut out = vec![0; len.index(model.len() - start + 1)];
            let in_file = tail.read_pending(start as u64, &mut out).expect("in range");
            read_file(&file, start as u64, &mut out[..in_file]).expect("reads");
            prop_assert_eq!(&out[..], &model[start..start + out.len()]);
            prop_assert!(tail.read_pending(model.len() as u64, &mut [0]).is_err());
        }
    }
}
