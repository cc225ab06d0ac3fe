//! A connection to QEMU whose every wait has an end, and ends at once when QEMU does.

use crate::guest::error::GuestError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks whether the other side lives and the user still wants to wait.
const LOOK: Duration = Duration::from_millis(50);
/// How long after a connection broke its process may take to be seen as ended.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The process behind a connection.
pub trait Vitals: Send + Sync {
    /// An error if the process has ended or the user wants to stop. `waiting` says for what the lab
    /// waits, for the error's text.
    fn check(&self, waiting: &str) -> Result<(), GuestError>;
    /// The error of a wait that took too long.
    fn timed_out(&self, waiting: &str, limit: Duration) -> GuestError;
}

/// When a wait ends.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// So long from now.
    pub fn after(limit: Duration) -> Deadline {
        Deadline { at: Instant::now() + limit, limit }
    }

    /// Looks after the other side, and fails if the time is up.
    pub fn check(self, vitals: &dyn Vitals, waiting: &str) -> Result<(), GuestError> {
        vitals.check(waiting)?;
        if Instant::now() < self.at { Ok(()) } else { Err(vitals.timed_out(waiting, self.limit)) }
    }
}

/// A connection to one of QEMU's sockets.
pub struct Link {
    stream: UnixStream,
    vitals: Arc<dyn Vitals>,
}

impl Link {
    /// Takes a connected socket over.
    pub fn new(stream: UnixStream, vitals: Arc<dyn Vitals>) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        Ok(Link { stream, vitals })
    }

    /// Connects to a socket that QEMU is about to make.
    pub fn connect(
        path: &Path,
        vitals: Arc<dyn Vitals>,
        deadline: Deadline,
    ) -> Result<Link, GuestError> {
        let waiting = "QEMU's sockets";
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => {
                    return Link::new(stream, vitals).map_err(|source| GuestError::Connection {
                        waiting: waiting.into(),
                        source,
                    });
                }
                Err(why) if is_not_yet(&why) => deadline.check(&*vitals, waiting)?,
                Err(why) => return Err(GuestError::file("connect to", path)(why)),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Who is behind it.
    pub fn vitals(&self) -> &dyn Vitals {
        &*self.vitals
    }

    /// Sends all of it.
    pub fn send(&self, mut bytes: &[u8], waiting: &str, until: Deadline) -> Result<(), GuestError> {
        while !bytes.is_empty() {
            match (&self.stream).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(why) => self.recover(why, PollFlags::POLLOUT, waiting, until)?,
            }
        }
        Ok(())
    }

    /// Sends a line together with an open file.
    pub fn send_with_file(
        &self,
        bytes: &[u8],
        file: &File,
        waiting: &str,
    ) -> Result<(), GuestError> {
        let descriptors = [file.as_raw_fd()];
        let sent = sendmsg::<()>(
            self.stream.as_raw_fd(),
            &[IoSlice::new(bytes)],
            &[ControlMessage::ScmRights(&descriptors)],
            MsgFlags::empty(),
            None,
        );
        match sent {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(self.lost(io::ErrorKind::WriteZero.into(), waiting)),
            Err(errno) => Err(self.lost(errno.into(), waiting)),
        }
    }

    /// Receives at least one byte.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        waiting: &str,
        until: Deadline,
    ) -> Result<usize, GuestError> {
        loop {
            match (&self.stream).read(buffer) {
                Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into(), waiting)),
                Ok(count) => return Ok(count),
                Err(why) => self.recover(why, PollFlags::POLLIN, waiting, until)?,
            }
        }
    }

    /// Waits until the socket is ready again, if that is all that was wrong.
    fn recover(
        &self,
        why: io::Error,
        events: PollFlags,
        waiting: &str,
        until: Deadline,
    ) -> Result<(), GuestError> {
        match why.kind() {
            io::ErrorKind::WouldBlock => {}
            io::ErrorKind::Interrupted => return Ok(()),
            _ => return Err(self.lost(why, waiting)),
        }
        let mut polled = [PollFd::new(self.stream.as_fd(), events)];
        let look = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, look) {
            Ok(0) => until.check(&*self.vitals, waiting),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(self.lost(errno.into(), waiting)),
        }
    }

    /// A broken connection mostly means that QEMU has ended: then that is the error to show.
    fn lost(&self, source: io::Error, waiting: &str) -> GuestError {
        let deadline = Instant::now() + END_PATIENCE;
        while Instant::now() < deadline {
            if let Err(ended) = self.vitals.check(waiting) {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        GuestError::Connection { waiting: waiting.into(), source }
    }
}

fn is_not_yet(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// A process that always lives, for tests of what is built on a link.
#[cfg(test)]
pub mod testing {
    use super::*;

    /// Lives for ever.
    pub struct Immortal;

    impl Vitals for Immortal {
        fn check(&self, _waiting: &str) -> Result<(), GuestError> {
            Ok(())
        }

        fn timed_out(&self, waiting: &str, limit: Duration) -> GuestError {
            GuestError::TimedOut { waiting: waiting.into(), limit, console: String::new() }
        }
    }

    /// A link, and the far end of it.
    pub fn pair() -> (Link, UnixStream) {
        let (near, far) = UnixStream::pair().expect("two sockets");
        (Link::new(near, Arc::new(Immortal)).expect("a link"), far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dead;

    impl Vitals for Dead {
        fn check(&self, _waiting: &str) -> Result<(), GuestError> {
            Err(GuestError::Cancelled)
        }

        fn timed_out(&self, _waiting: &str, _limit: Duration) -> GuestError {
            unreachable!("the end is noticed first")
        }
    }

    #[test]
    fn a_wait_ends_when_its_time_is_up() {
        let (link, _far) = testing::pair();
        let error = link.receive(&mut [0; 8], "a word", Deadline::after(Duration::from_millis(60)));
        assert!(matches!(error, Err(GuestError::TimedOut { .. })));
    }

    #[test]
    fn a_wait_ends_when_the_process_does_though_the_socket_stays_open() {
        let (near, _far) = UnixStream::pair().expect("two sockets");
        let link = Link::new(near, Arc::new(Dead)).expect("a link");
        let error = link.receive(&mut [0; 8], "a word", Deadline::after(Duration::from_secs(60)));
        assert!(matches!(error, Err(GuestError::Cancelled)));
    }

    #[test]
    fn a_broken_connection_is_told_as_the_end_of_the_process() {
        let (near, far) = UnixStream::pair().expect("two sockets");
        drop(far);
        let link = Link::new(near, Arc::new(Dead)).expect("a link");
        let error = link.receive(&mut [0; 8], "a word", Deadline::after(Duration::from_secs(60)));
        assert!(matches!(error, Err(GuestError::Cancelled)));
    }
}
