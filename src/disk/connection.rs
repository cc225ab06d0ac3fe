//! One client of the disk: the socket's edge around the pure protocol.
//!
//! What always holds: whatever a client sends, or does not send, only its own threads wait for it.
//! When the disk falls silent the socket stays open and unanswered.

use super::inbox::Inbox;
use super::nbd::{
    Ask, Handshake, OPTION_BYTES_MAX, OPTION_HEAD_BYTES, OptionHead, ProtocolError, REQUEST_BYTES,
    RequestHead, Step,
};
use super::queue::Queue;
use super::replies::{Halt, Replies};
use super::shown::Shown;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

impl From<ProtocolError> for Halt {
    fn from(_: ProtocolError) -> Halt {
        Halt::Gone
    }
}

/// Serves one client until it is done, gone, or the disk is silent.
pub(super) fn serve(shown: &Shown, stream: UnixStream) -> Halt {
    match run(shown, stream) {
        Ok(()) => Halt::Gone,
        Err(halt) => halt,
    }
}

fn run(shown: &Shown, stream: UnixStream) -> Result<(), Halt> {
    let replies = Mutex::new(Replies::new(stream.try_clone()?));
    let mut inbox = Inbox::new(stream.try_clone()?);
    if !shake_hands(shown, &mut inbox, &stream)? {
        return Ok(());
    }
    let queue = Queue::default();
    let client = Client { shown, queue: &queue, replies: &replies };
    if shown.now().timing().is_none() {
        return client.read_requests(&mut inbox);
    }
    std::thread::scope(|scope| {
        // Without this thread nothing that is due later would be answered: give the client up.
        std::thread::Builder::new()
            .name("disk-replies".into())
            .spawn_scoped(scope, || client.answer_when_due())?;
        let done = client.read_requests(&mut inbox);
        match done {
            Ok(()) => queue.finish(),
            Err(_) => queue.abandon(),
        }
        done
    })
}

/// Tells whether requests follow.
fn shake_hands(
    shown: &Shown,
    inbox: &mut Inbox<UnixStream>,
    mut to: &UnixStream,
) -> Result<bool, Halt> {
    let mut handshake = Handshake::new(shown.now().disk_bytes());
    to.write_all(&handshake.greeting())?;
    handshake.client_flags(take(inbox)?)?;
    let mut out = Vec::new();
    loop {
        let head = OptionHead::decode(&take(inbox)?)?;
        let length = head.length as usize;
        out.clear();
        let step = if head.length > OPTION_BYTES_MAX {
            inbox.skip(length)?;
            handshake.option(head.option, None, &mut out)
        } else {
            inbox.fill(length)?;
            let step = handshake.option(head.option, Some(inbox.front(length)), &mut out);
            inbox.take(length);
            step
        };
        to.write_all(&out)?;
        match step {
            Step::NextOption => {}
            Step::Transmission => return Ok(true),
            Step::Close => return Ok(false),
        }
    }
}

const _: () = assert!(OPTION_HEAD_BYTES == 16 && REQUEST_BYTES == 28);

/// Waits for the next `N` bytes and takes them.
fn take<const N: usize>(inbox: &mut Inbox<UnixStream>) -> io::Result<[u8; N]> {
    inbox.fill(N)?;
    let bytes = inbox.front(N).first_chunk::<N>().copied();
    inbox.take(N);
    bytes.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

struct Client<'a> {
    shown: &'a Shown,
    queue: &'a Queue,
    replies: &'a Mutex<Replies>,
}

impl Client<'_> {
    /// Reads requests until the client disconnects.
    fn read_requests(&self, inbox: &mut Inbox<UnixStream>) -> Result<(), Halt> {
        // The same for every disk that is ever shown here.
        let disk_bytes = self.shown.now().disk_bytes();
        loop {
            self.wait_for(inbox, REQUEST_BYTES)?;
            let head = RequestHead::decode(&take(inbox)?)?;
            let payload_bytes = head.payload_bytes() as usize;
            match head.ask(disk_bytes) {
                Ask::Disconnect => return self.replies().send(),
                Ask::Refused(error) => {
                    inbox.skip(payload_bytes)?;
                    self.replies().refuse(head.cookie, error)?;
                }
                Ask::Disk(ask) => {
                    self.wait_for(inbox, payload_bytes)?;
                    let payload = inbox.front(payload_bytes);
                    let job = self.shown.arrive(ask, head.cookie, payload)?;
                    inbox.take(payload_bytes);
                    match job.due {
                        Some(due) => self.queue.put(due, job),
                        None => self.replies().answer(&self.shown.now(), &job)?,
                    }
                }
            }
        }
    }

    /// Waits for bytes; what was gathered is sent before, since the client may wait for that.
    fn wait_for(&self, inbox: &mut Inbox<UnixStream>, bytes: usize) -> Result<(), Halt> {
        if !inbox.has(bytes) {
            self.replies().send()?;
            inbox.fill(bytes)?;
        }
        Ok(())
    }

    /// Answers jobs when they are due, until no more come.
    fn answer_when_due(&self) {
        let mut due = Vec::new();
        while self.queue.take_due(&mut due) {
            let mut replies = self.replies();
            let answered =
                due.drain(..).try_for_each(|job| replies.answer(&self.shown.now(), &job));
            if answered.and_then(|()| replies.send()).is_err() {
                // The reading thread finds out by itself: the disk is silent or the client gone.
                self.queue.abandon();
                return;
            }
        }
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
