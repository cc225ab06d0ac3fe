//! A program that runs beside the load until it is told to end, and what it prints.
//!
//! What always holds: whatever ends, the program's whole group is gone when [`Program`] is, and no
//! other part of the agent takes its end in.

use crate::agent::exec::{Environment, Running, kill_group, spawn, told};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// The pipe holds one page, so that not many words wait to be read: a writer that is ahead waits.
const PIPE_BYTES: i32 = 4096;

/// A program that closed its output is given so long to end.
const LINGER: Duration = Duration::from_millis(500);

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// So many bytes.
    Bytes(usize),
    /// Nothing, in the time given.
    Nothing,
    /// It closed its output, which nearly always means that it ended.
    End,
}

/// A program at work. What it writes to standard error goes where the agent's goes.
#[derive(Debug)]
pub struct Program {
    child: Child,
    stdout: ChildStdout,
    /// It closed its output.
    closed: bool,
    /// Its end was taken in.
    ended: bool,
    _running: Running,
}

impl Program {
    /// Starts it.
    pub fn start(argv: &[String], environment: &Environment) -> Result<Program, String> {
        let running = Running::new();
        let mut child = spawn(argv, environment, Stdio::inherit())?;
        let Some(stdout) = child.stdout.take() else { return Err("it has no output".to_owned()) };
        // A hint: with a larger pipe the words are read as well, only later.
        let _ = fcntl(&stdout, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        Ok(Program { child, stdout, closed: false, ended: false, _running: running })
    }

    /// Reads what it printed; waits for that at most so long.
    pub fn read(&mut self, bytes: &mut [u8], wait_ms: u16) -> io::Result<Heard> {
        let mut polled = [PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(wait_ms)) {
            Ok(0) | Err(Errno::EINTR) => return Ok(Heard::Nothing),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        match self.stdout.read(bytes) {
            Ok(0) => {
                self.closed = true;
                Ok(Heard::End)
            }
            Ok(count) => Ok(Heard::Bytes(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Heard::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Whether it ended well by itself, and in words how; one that still runs is killed.
    pub fn end(mut self) -> Result<(), String> {
        let deadline = Instant::now() + if self.closed { LINGER } else { Duration::ZERO };
        let mut by_itself = self.child.try_wait().map_err(|why| why.to_string())?;
        while by_itself.is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            by_itself = self.child.try_wait().map_err(|why| why.to_string())?;
        }
        kill_group(self.child.id());
        let status = match by_itself {
            Some(status) => status,
            None => self.child.wait().map_err(|why| why.to_string())?,
        };
        self.ended = true;
        match status.code() {
            Some(0) => Ok(()),
            Some(code) => Err(format!("it ended with exit code {code}")),
            None => Err(told(String::new(), status).trim_end().to_owned()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.ended {
            kill_group(self.child.id());
            // It was killed, so this returns; how it ended was not asked for.
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let argv = ["sh", "-c", script].map(str::to_owned);
        Program::start(&argv, &[("PLUGPULL_SEED", "7".to_owned())]).expect("a shell")
    }

    fn hear(program: &mut Program) -> String {
        let (mut text, mut bytes) = (String::new(), [0; 100]);
        while let Heard::Bytes(count) = program.read(&mut bytes, 10_000).expect("a pipe") {
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        text
    }

    #[test]
    fn what_it_prints_is_heard_and_how_it_ended_is_told() {
        let mut program = shell("echo seed $PLUGPULL_SEED; exit 3");
        assert_eq!(hear(&mut program), "seed 7\n");
        assert!(program.end().expect_err("not well").contains("3"));
        let mut quiet = shell("sleep 60 & wait");
        assert_eq!(quiet.read(&mut [0; 10], 20).expect("a pipe"), Heard::Nothing);
        assert!(quiet.end().expect_err("killed").contains("SIGKILL"));
        let missing = Program::start(&["no-such-tool".to_owned()], &[]).expect_err("missing");
        assert!(missing.contains("no-such-tool"), "{missing}");
    }
}
