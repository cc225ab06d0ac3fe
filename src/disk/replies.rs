//! The answers of one connection: recorded, gathered, and sent with one write a batch.

use super::device::{Device, Job, Silent};
use super::extents::Piece;
use super::nbd::{self, NbdError, REPLY_BYTES};
use crate::trace::Command;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// A batch is sent when it is this large.
const BATCH_BYTES: usize = 256 << 10;

/// Why no answer follows.
#[derive(Debug)]
pub(super) enum Halt {
    /// The disk is silent; the socket stays open.
    Silent,
    /// The client is gone.
    Gone,
}

impl From<Silent> for Halt {
    fn from(Silent: Silent) -> Halt {
        Halt::Silent
    }
}

impl From<io::Error> for Halt {
    fn from(_: io::Error) -> Halt {
        Halt::Gone
    }
}

/// Gathers answers and sends them.
#[derive(Debug)]
pub(super) struct Replies {
    to: UnixStream,
    /// Never shrinks, so that a read need not zero it again.
    batch: Vec<u8>,
    used: usize,
    scratch: Vec<Piece>,
}

impl Replies {
    pub fn new(to: UnixStream) -> Replies {
        Replies { to, batch: vec![0; BATCH_BYTES], used: 0, scratch: Vec::new() }
    }

    /// Records the answer to a job and gathers it.
    pub fn answer(&mut self, device: &Device, job: &Job) -> Result<(), Halt> {
        let data_bytes = match job.ask.command {
            Command::Read => job.ask.length as usize,
            _ => 0,
        };
        self.make_room(REPLY_BYTES + data_bytes)?;
        let (head, rest) = self.batch[self.used..].split_at_mut(REPLY_BYTES);
        let mut error = None;
        if data_bytes > 0 {
            error = device.read(&job.ask, &mut self.scratch, &mut rest[..data_bytes]).err();
        }
        device.answer(job, error)?;
        head.copy_from_slice(&nbd::reply(job.cookie, error));
        self.used += REPLY_BYTES + if error.is_none() { data_bytes } else { 0 };
        Ok(())
    }

    /// Answers what is no request of this disk, and so is not in its trace.
    pub fn refuse(&mut self, cookie: [u8; 8], error: NbdError) -> Result<(), Halt> {
        self.make_room(REPLY_BYTES)?;
        let end = self.used + REPLY_BYTES;
        self.batch[self.used..end].copy_from_slice(&nbd::reply(cookie, Some(error)));
        self.used = end;
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) -> Result<(), Halt> {
        if self.used > 0 && self.used + bytes > BATCH_BYTES {
            self.send()?;
        }
        if self.used + bytes > self.batch.len() {
            self.batch.resize(self.used + bytes, 0);
        }
        Ok(())
    }

    /// Sends what was gathered.
    pub fn send(&mut self) -> Result<(), Halt> {
        if self.used > 0 {
            let batch = &self.batch[..self.used];
            self.used = 0;
            self.to.write_all(batch)?;
        }
        Ok(())
    }
}
