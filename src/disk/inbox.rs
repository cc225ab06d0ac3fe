//! Bytes that arrived on a connection and were not taken yet.
//!
//! What always holds: memory grows with what arrived, not with what a client claims will come.

use std::io::{self, Read};

/// What is read at once at most, unless a larger request needs it.
const START_BYTES: usize = 512 << 10;

/// A buffer in front of a reader that gives slices of any length asked for.
#[derive(Debug)]
pub(super) struct Inbox<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> Inbox<R> {
    pub fn new(from: R) -> Inbox<R> {
        Inbox { from, buffer: vec![0; START_BYTES], start: 0, end: 0 }
    }

    /// Whether the next `wanted` bytes are here.
    pub fn has(&self, wanted: usize) -> bool {
        self.end - self.start >= wanted
    }

    /// Waits until the next `wanted` bytes are here.
    ///
    /// # Errors
    /// `UnexpectedEof` if the peer closes before.
    pub fn fill(&mut self, wanted: usize) -> io::Result<()> {
        while !self.has(wanted) {
            self.make_room(wanted);
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(some) => self.end += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Room for at least one byte more, at the end.
    fn make_room(&mut self, wanted: usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + wanted > self.buffer.len() && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
    }

    /// The next `wanted` bytes, or fewer if they did not arrive yet.
    pub fn front(&self, wanted: usize) -> &[u8] {
        &self.buffer[self.start..self.end.min(self.start + wanted)]
    }

    /// Takes the next bytes out.
    pub fn take(&mut self, bytes: usize) {
        self.start = self.end.min(self.start + bytes);
    }

    /// Waits for `bytes` bytes and throws them away.
    pub fn skip(&mut self, mut bytes: usize) -> io::Result<()> {
        while bytes > 0 {
            self.fill(1)?;
            let here = bytes.min(self.end - self.start);
            self.take(here);
            bytes -= here;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives its bytes in pieces of the given sizes.
    struct Pieces(Vec<u8>, usize, Vec<usize>);

    impl Read for Pieces {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let some = self.2.pop().unwrap_or(1 << 20).min(out.len()).min(self.0.len() - self.1);
            out[..some].copy_from_slice(&self.0[self.1..self.1 + some]);
            self.1 += some;
            Ok(some)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn bytes_come_out_in_order_however_they_arrive(
            takes in prop::collection::vec((1usize..700_000, any::<bool>()), 1..20),
            sizes in prop::collection::vec(1usize..300_000, 0..60),
        ) {
            let total: usize = takes.iter().map(|(bytes, _)| bytes).sum();
            let bytes: Vec<u8> = (0..total).map(|n| (n * 31 + n / 251) as u8).collect();
            let mut inbox = Inbox::new(Pieces(bytes.clone(), 0, sizes));
            let mut at = 0;
            for (wanted, skip) in takes {
                if skip {
                    inbox.skip(wanted).expect("enough bytes");
                } else {
                    inbox.fill(wanted).expect("enough bytes");
                    prop_assert_eq!(inbox.front(wanted), &bytes[at..at + wanted]);
                    inbox.take(wanted);
                }
                at += wanted;
            }
            prop_assert!(inbox.fill(1).is_err());
            prop_assert!(inbox.buffer.len() <= 4 * START_BYTES);
        }
    }
}
