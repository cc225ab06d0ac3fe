//! The way of a stream's messages to the lab.
//!
//! What always holds: frames of different streams never mix, none is dropped because the lab is
//! slow (the writer waits), and after a failed write nothing more is sent, because half a frame may
//! have gone.

use crate::history::message::Message;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that hold any frame of the load, for buffers made beforehand.
const FRAME_BYTES: usize = 160;

/// The messages port, shared by all streams.
#[derive(Debug)]
pub struct Port {
    /// `None` once a write has failed.
    file: Mutex<Option<File>>,
}

impl Port {
    /// A port that writes there.
    pub fn new(file: File) -> Port {
        Port { file: Mutex::new(Some(file)) }
    }

    /// Sends whole frames, in one write if the port takes them.
    pub fn send(&self, frames: &[u8]) -> io::Result<()> {
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = guard.as_mut() else {
            return Err(io::Error::new(ErrorKind::BrokenPipe, "an earlier message failed"));
        };
        let sent = write_whole(file, frames);
        if sent.is_err() {
            *guard = None;
        }
        sent
    }
}

fn write_whole(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_until_writable(file)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait_until_writable(file: &File) -> io::Result<()> {
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// One stream's messages that may be held back.
#[derive(Debug)]
pub struct Outbox {
    port: Arc<Port>,
    frames: Vec<u8>,
    held: u32,
    batch: u32,
}

impl Outbox {
    /// Holds at most `batch` messages; 1 (or 0) sends each at once.
    pub fn new(port: Arc<Port>, batch: u32) -> Outbox {
        let room = (batch.max(1) as usize + 2) * FRAME_BYTES;
        Outbox { port, frames: Vec::with_capacity(room), held: 0, batch }
    }

    /// Adds a message, and sends all when the batch is full.
    pub fn post(&mut self, message: &Message) -> io::Result<()> {
        message.encode(&mut self.frames);
        self.held += 1;
        if self.held >= self.batch { self.flush() } else { Ok(()) }
    }

    /// Sends what is held.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.held == 0 {
            return Ok(());
        }
        self.held = 0;
        let sent = self.port.send(&self.frames);
        self.frames.clear();
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::message::{Frames, StreamEvent, StreamNote};
    use crate::units::{EventNo, GuestNs, StreamId};
    use nix::fcntl::OFlag;
    use std::io::Read;
    use std::thread;

    fn note(event: u64) -> Message {
        let what = StreamEvent::Started;
        Message::Stream(StreamNote {
            stream: StreamId(1),
            event: EventNo(event),
            at: GuestNs(5),
            what,
        })
    }

    fn length(file: &File) -> u64 {
        file.metadata().expect("a file").len()
    }

    #[test]
    fn a_batch_goes_when_it_is_full_and_the_rest_when_flushed() {
        let file = tempfile::tempfile().expect("a file");
        let port = Arc::new(Port::new(file.try_clone().expect("a second handle")));
        let mut outbox = Outbox::new(port, 3);
        let mut frame = Vec::new();
        note(1).encode(&mut frame);
        let frame = frame.len() as u64;
        for (event, sent) in [(1, 0), (2, 0), (3, 3), (4, 3)] {
            outbox.post(&note(event)).expect("a file takes all");
            assert_eq!(length(&file), sent * frame);
        }
        outbox.flush().expect("a file takes all");
        outbox.flush().expect("nothing is left");
        assert_eq!(length(&file), 4 * frame);
    }

    #[test]
    fn a_slow_lab_loses_no_message_even_on_a_port_that_does_not_block() {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_NONBLOCK).expect("a pipe");
        let port = Arc::new(Port::new(File::from(writer)));
        let sender = thread::spawn(move || {
            let mut outbox = Outbox::new(port, 500);
            (0..5_000).try_for_each(|event| outbox.post(&note(event)))
        });
        let (mut frames, mut seen) = (Frames::default(), 0);
        let (mut reader, mut bytes) = (File::from(reader), [0; 5_000]);
        while seen < 5_000 {
            match reader.read(&mut bytes) {
                Ok(read) => frames.feed(&bytes[..read]),
                Err(_) => thread::yield_now(),
            }
            while let Some((_, message)) = frames.next_frame().expect("whole frames") {
                assert_eq!(message, note(seen));
                seen += 1;
            }
        }
        sender.join().expect("no panic").expect("all sent");
    }

    #[test]
    fn nothing_is_sent_after_a_write_that_failed() {
        let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
        let port = Port::new(full);
        assert_eq!(port.send(&[1]).map_err(|error| error.raw_os_error()), Err(Some(28)));
        assert_eq!(port.send(&[1]).map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));
    }
}
