//! The lab's end of the control port: one request at a time, each with a time limit.

use crate::agent::frame::{FrameError, FrameReader, Kind, head};
use crate::agent::protocol::{ExecResult, Numbered, Reply, Request};
use crate::guest::error::GuestError;
use crate::guest::link::{Deadline, Link};
use crate::units::GuestNs;
use std::time::Duration;

/// What the agent adds to a tool's own time limit, at most: starting it, killing it, answering.
const EXEC_SLACK: Duration = Duration::from_secs(15);
/// For requests that take no time.
const SHORT: Duration = Duration::from_secs(15);

/// A connection to the agent.
pub struct Control {
    link: Link,
    frames: FrameReader,
    /// The number of the last request sent.
    sent: u64,
    /// The number of the last request answered. Until it catches up, blobs belong to a request that
    /// was given up.
    answered: u64,
}

/// Who the agent is.
#[derive(Debug, Clone)]
pub struct Hello {
    /// Kernel release.
    pub kernel: String,
    /// The agent's package version.
    pub agent: String,
    /// Problems met at start-up.
    pub warnings: Vec<String>,
}

impl Control {
    /// Takes a connection to the control port over.
    pub fn new(link: Link) -> Control {
        Control { link, frames: FrameReader::default(), sent: 0, answered: 0 }
    }

    /// The connection itself, for bytes that are no request.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Sends a request and waits for its reply. `Reply::Failed` is an error with the agent's words.
    pub fn call(&mut self, request: Request, limit: Duration) -> Result<Reply, GuestError> {
        self.call_with_blobs(request, limit, &mut |_| {})
    }

    /// As `call`; the blobs that come before the reply go to `take`, in their order.
    pub fn call_with_blobs(
        &mut self,
        request: Request,
        limit: Duration,
        take: &mut dyn FnMut(Vec<u8>),
    ) -> Result<Reply, GuestError> {
        let (until, what) = (Deadline::after(limit), describe(&request));
        let waiting = format!("the guest to {what}");
        self.sent += 1;
        let payload = serde_json::to_vec(&Numbered { number: self.sent, body: request })
            .map_err(|why| self.not_ours(&why))?;
        self.link.send(&head(Kind::Json, &payload)?, &waiting, until)?;
        self.link.send(&payload, &waiting, until)?;
        loop {
            let frame = self.next_frame(&waiting, until)?;
            if frame.kind == Kind::Blob {
                if self.answered + 1 == self.sent {
                    take(frame.payload);
                }
                continue;
            }
            let reply: Numbered<Reply> =
                serde_json::from_slice(&frame.payload).map_err(|why| self.not_ours(&why))?;
            self.answered = reply.number;
            match reply.body {
                _ if reply.number != self.sent => {}
                Reply::Failed(words) => return Err(GuestError::Agent { request: what, words }),
                body => return Ok(body),
            }
        }
    }

    fn next_frame(
        &mut self,
        waiting: &str,
        until: Deadline,
    ) -> Result<crate::agent::frame::Frame, GuestError> {
        let mut buffer = [0; 64 << 10];
        loop {
            if let Some(frame) = self.frames.next_frame()? {
                return Ok(frame);
            }
            let count = self.link.receive(&mut buffer, waiting, until)?;
            self.frames.feed(&buffer[..count]);
        }
    }

    fn not_ours(&self, why: &serde_json::Error) -> FrameError {
        FrameError::Content { at: self.frames.at(), why: why.to_string() }
    }

    /// Asks the agent who it is, within the time that a start may take.
    pub fn hello(&mut self, limit: Duration) -> Result<Hello, GuestError> {
        match self.call(Request::Hello, limit)? {
            Reply::Hello { kernel, agent, warnings } => Ok(Hello { kernel, agent, warnings }),
            other => Err(unexpected("hello", &other)),
        }
    }

    /// The guest's clock.
    pub fn clock(&mut self) -> Result<GuestNs, GuestError> {
        match self.call(Request::Clock, SHORT)? {
            Reply::Clock(now) => Ok(now),
            other => Err(unexpected("clock", &other)),
        }
    }

    /// Runs a tool; how it ended is the caller's to judge.
    pub fn exec(&mut self, argv: &[&str], limit: Duration) -> Result<ExecResult, GuestError> {
        let request = Request::Exec { argv: owned(argv), timeout_ms: limit.as_millis() as u64 };
        match self.call(request, limit + EXEC_SLACK)? {
            Reply::Exec(result) => Ok(result),
            other => Err(unexpected("exec", &other)),
        }
    }

    /// Starts a tool that runs beside what is asked next, until [`Control::end`].
    pub fn begin(&mut self, argv: &[&str], limit: Duration) -> Result<(), GuestError> {
        let request = Request::Begin { argv: owned(argv), timeout_ms: limit.as_millis() as u64 };
        self.call(request, SHORT).map(drop)
    }

    /// Waits for the tool that was begun with this limit; how it ended is the caller's to judge.
    pub fn end(&mut self, limit: Duration) -> Result<ExecResult, GuestError> {
        match self.call(Request::End, limit + EXEC_SLACK)? {
            Reply::Exec(result) => Ok(result),
            other => Err(unexpected("end", &other)),
        }
    }

    /// Runs a tool that must succeed. Any end but exit code 0 is an error with the tool's words.
    pub fn run(&mut self, argv: &[&str], limit: Duration) -> Result<ExecResult, GuestError> {
        let result = self.exec(argv, limit)?;
        let how = match (result.timed_out, result.code) {
            (true, _) => format!("did not end within {} s and was killed", limit.as_secs_f32()),
            (false, Some(0)) => return Ok(result),
            (false, Some(code)) => format!("failed with exit code {code}"),
            (false, None) => "was ended by a signal".into(),
        };
        let ExecResult { stdout, stderr, .. } = result;
        Err(GuestError::Tool { tool: argv.join(" "), how, stdout, stderr })
    }

    /// The text of a file of the guest.
    pub fn read_file(&mut self, path: &str) -> Result<String, GuestError> {
        match self.call(Request::ReadFile { path: path.into() }, SHORT)? {
            Reply::Text(text) => Ok(text),
            other => Err(unexpected("read-file", &other)),
        }
    }

    /// Overwrites a file of the guest that exists.
    pub fn write_file(&mut self, path: &str, text: &str) -> Result<(), GuestError> {
        let request = Request::WriteFile { path: path.into(), text: text.into() };
        self.call(request, SHORT).map(drop)
    }

    /// Waits until a path exists in the guest.
    pub fn wait_for(&mut self, path: &str, limit: Duration) -> Result<(), GuestError> {
        let timeout_ms = limit.as_millis() as u64;
        let request = Request::WaitFor { path: path.into(), timeout_ms };
        self.call(request, limit + EXEC_SLACK).map(drop)
    }

    /// The block device of a ZFS volume, once it is there.
    pub fn find_volume(&mut self, name: &str, limit: Duration) -> Result<String, GuestError> {
        let timeout_ms = limit.as_millis() as u64;
        let request = Request::FindVolume { name: name.into(), timeout_ms };
        match self.call(request, limit + EXEC_SLACK)? {
            Reply::Text(device) => Ok(device),
            other => Err(unexpected("find-volume", &other)),
        }
    }
}

fn owned(argv: &[&str]) -> Vec<String> {
    argv.iter().map(|&word| word.to_owned()).collect()
}

/// The error of an answer to another question.
pub fn unexpected(request: &str, reply: &Reply) -> GuestError {
    let mut text = format!("{reply:?}");
    text.truncate(text.char_indices().nth(200).map_or(text.len(), |(at, _)| at));
    GuestError::Answer { request: request.into(), reply: text }
}

/// A request as a verb with its object: "could not ..." and "waited for the guest to ..." precede it.
fn describe(request: &Request) -> String {
    match request {
        Request::Hello => "say hello".into(),
        Request::Wake { .. } => "take the time and entropy".into(),
        Request::Clock => "tell its clock".into(),
        Request::Compute => "do a computation".into(),
        Request::Exec { argv, .. } => format!("run `{}`", argv.join(" ")),
        Request::Begin { argv, .. } => format!("start `{}`", argv.join(" ")),
        Request::End => "end the tool that it started".into(),
        Request::Mount { source, target, .. } => format!("mount {source} on {target}"),
        Request::Unmount { target } => format!("unmount {target}"),
        Request::ReadFile { path } => format!("read {path}"),
        Request::WriteFile { path, .. } => format!("write {path}"),
        Request::SparseFile { path, .. } => format!("make {path}"),
        Request::Fsync { path } => format!("fsync {path}"),
        Request::WaitFor { path, .. } => format!("see {path}"),
        Request::FindVolume { name, .. } => format!("see the device of the volume {name}"),
        Request::Prepare(_) => "prepare the load".into(),
        Request::StartLoad => "start the load".into(),
        Request::WatchTxgs { pool, .. } => format!("watch the txgs of {pool}"),
        Request::StopLoad => "stop the load".into(),
        Request::PlainLoop { .. } => "make the calls of a load in a plain loop".into(),
        Request::Observe(_) => "read the records back".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::link::testing;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const LIMIT: Duration = Duration::from_millis(200);

    fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
        [&head(kind, payload).expect("short")[..], payload].concat()
    }

    fn reply(number: u64, body: Reply) -> Vec<u8> {
        let payload = serde_json::to_vec(&Numbered { number, body }).expect("JSON");
        frame(Kind::Json, &payload)
    }

    /// An agent whose replies were all sent beforehand.
    fn agent(replies: &[Vec<u8>]) -> (Control, UnixStream) {
        let (link, mut far) = testing::pair();
        far.write_all(&replies.concat()).expect("sent");
        (Control::new(link), far)
    }

    #[test]
    fn blobs_reach_the_request_they_belong_to_in_order() {
        let blob = |bytes: &[u8]| frame(Kind::Blob, bytes);
        let (mut control, _far) = agent(&[blob(b"one"), blob(b"two"), reply(1, Reply::Done)]);
        let mut got = Vec::new();
        let result = control.call_with_blobs(Request::Clock, LIMIT, &mut |bytes| got.push(bytes));
        assert!(matches!(result, Ok(Reply::Done)));
        assert_eq!(got, [b"one".to_vec(), b"two".to_vec()]);
    }

    #[test]
    fn what_comes_after_a_time_out_is_not_taken_for_the_next_answer() {
        let (mut control, mut far) = agent(&[]);
        let error = control.call(Request::Clock, Duration::from_millis(60)).expect_err("silent");
        assert!(matches!(error, GuestError::TimedOut { .. }));
        let late = [frame(Kind::Blob, b"late"), reply(1, Reply::Clock(GuestNs(1)))].concat();
        far.write_all(&late).expect("sent");
        far.write_all(&reply(2, Reply::Clock(GuestNs(2)))).expect("sent");
        let result = control.call_with_blobs(Request::Clock, LIMIT, &mut |_| panic!("not ours"));
        assert!(matches!(result, Ok(Reply::Clock(GuestNs(2)))));
    }

    #[test]
    fn a_failure_carries_the_words_of_the_agent() {
        let (mut control, _far) = agent(&[reply(1, Reply::Failed("no such device".into()))]);
        let request = Request::Unmount { target: "/mnt".into() };
        let error = control.call(request, LIMIT).expect_err("failed").to_string();
        assert_eq!(error, "the guest could not unmount /mnt: no such device");
    }

    #[test]
    fn a_tool_that_fails_is_an_error_with_its_own_output() {
        let ended = ExecResult {
            code: Some(2),
            timed_out: false,
            stdout: "some\n".into(),
            stderr: "cannot open 'tank'\n".into(),
            took_ns: 1,
        };
        let (mut control, _far) = agent(&[reply(1, Reply::Exec(ended))]);
        let error = control.run(&["zpool", "import"], LIMIT).expect_err("failed").to_string();
        assert!(
            error.starts_with("`zpool import` in the guest failed with exit code 2"),
            "{error}"
        );
        assert!(error.contains("cannot open 'tank'") && error.contains("some"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_answer_are_an_error_with_their_place() {
        let (mut control, _far) = agent(&[frame(Kind::Json, b"{\"number\": 1}")]);
        let error = control.call(Request::Hello, LIMIT).expect_err("no body").to_string();
        assert!(error.contains("byte 29"), "{error}");
        let (mut control, _far) = agent(&[b"login: root\r\n.....".to_vec()]);
        assert!(matches!(control.call(Request::Hello, LIMIT), Err(GuestError::Frame(_))));
    }
}
