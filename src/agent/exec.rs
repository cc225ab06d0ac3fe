//! Runs a tool to its end, within a time and a size.

use crate::agent::protocol::ExecResult;
use crate::agent::wake;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where tools are looked for.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// What is kept of each of a tool's outputs; the rest is read and dropped, so that the tool never
/// waits for us.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Between two looks whether the tool ended while a child of its own keeps its output open.
const LOOK_MS: u16 = 20;
/// How long such a child may go on after the tool ended.
const LINGER: Duration = Duration::from_millis(500);

/// Variables of a program's environment.
pub type Environment = [(&'static str, String)];

/// Runs a tool with nothing on its standard input.
pub fn exec(argv: &[String], limit: Duration) -> Result<ExecResult, String> {
    exec_with(argv, &[], limit)
}

/// The same with more in its environment.
pub fn exec_with(
    argv: &[String],
    more: &Environment,
    limit: Duration,
) -> Result<ExecResult, String> {
    let start = wake::now()?;
    let tool = Running::new();
    let mut child = spawn(argv, more, Stdio::piped())?;
    let watched = watch(&mut child, limit);
    let (outputs, status, timed_out) =
        watched.map_err(|why| format!("lost {} while it ran: {why}", argv.join(" ")))?;
    drop(tool);
    reap();
    let [stdout, stderr] = outputs.map(Output::into_text);
    let took_ns = wake::now()?.0.saturating_sub(start.0);
    Ok(ExecResult { code: status.code(), timed_out, stdout, stderr: told(stderr, status), took_ns })
}

/// Starts a program in a group of its own, with its standard output in a pipe.
pub(super) fn spawn(argv: &[String], more: &Environment, stderr: Stdio) -> Result<Child, String> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err("exec of nothing: argv is empty".into());
    };
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/root"), ("LC_ALL", "C")])
        .envs(more.iter().map(|(name, value)| (*name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .process_group(0)
        .spawn()
        .map_err(|why| format!("cannot run {program} (looked for in {PATH}): {why}"))
}

/// Tools that run now, in any thread.
fn running() -> MutexGuard<'static, u32> {
    static RUNNING: Mutex<u32> = Mutex::new(0);
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts as a tool that runs.
#[derive(Debug)]
pub(super) struct Running;

impl Running {
    pub(super) fn new() -> Running {
        *running() += 1;
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *running() -= 1;
    }
}

/// A signal leaves no code: the words beside it say which.
pub(super) fn told(mut stderr: String, status: ExitStatus) -> String {
    if let Some(signal) = status.signal() {
        let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
        stderr.push_str(&format!("[ended by signal {signal}, {name}]\n"));
    }
    stderr
}

/// Reads both outputs until the tool and they have ended, or its time is up. The tool's whole group
/// is gone afterwards.
fn watch(child: &mut Child, limit: Duration) -> io::Result<([Output; 2], ExitStatus, bool)> {
    let mut deadline = Instant::now() + limit;
    let mut outputs = [Output::new(child.stdout.take()), Output::new(child.stderr.take())];
    let (mut status, mut timed_out) = (None, false);
    while status.is_none() || outputs.iter().any(Output::is_open) {
        if outputs.iter().any(Output::is_open) {
            read_what_is_there(&mut outputs)?;
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        if status.is_none() {
            status = child.try_wait()?;
            if status.is_some() {
                deadline = deadline.min(Instant::now() + LINGER);
            }
        }
        if Instant::now() >= deadline {
            timed_out = status.is_none();
            break;
        }
    }
    kill_group(child.id());
    let status = match status {
        Some(status) => status,
        None => child.wait()?,
    };
    Ok((outputs, status, timed_out))
}

pub(super) fn kill_group(leader: u32) {
    // No such group is the usual answer: all of it has ended.
    let _ = killpg(Pid::from_raw(leader as i32), Signal::SIGKILL);
}

fn read_what_is_there(outputs: &mut [Output; 2]) -> io::Result<()> {
    let ready: Vec<bool> = {
        let pipes: Vec<_> = outputs.iter().filter_map(|output| output.pipe.as_deref()).collect();
        let mut polled: Vec<PollFd> =
            pipes.iter().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::from(LOOK_MS)) {
            Err(Errno::EINTR) => return Ok(()),
            result => result?,
        };
        polled.iter().map(|pipe| pipe.any().unwrap_or(true)).collect()
    };
    let open = outputs.iter_mut().filter(|output| output.is_open());
    open.zip(ready).filter(|(_, ready)| *ready).try_for_each(|(output, _)| output.read())
}

trait Pipe: Read + AsFd {}
impl<T: Read + AsFd> Pipe for T {}

/// One of a tool's outputs: its beginning, and how much more there was.
struct Output {
    pipe: Option<Box<dyn Pipe>>,
    kept: Vec<u8>,
    dropped: u64,
}

impl Output {
    fn new<P: Pipe + 'static>(pipe: Option<P>) -> Output {
        Output {
            pipe: pipe.map(|pipe| Box::new(pipe) as Box<dyn Pipe>),
            kept: Vec::new(),
            dropped: 0,
        }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// One read of a pipe that poll(2) named: it does not block.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut buffer = [0; 16 << 10];
        match pipe.read(&mut buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                let room = OUTPUT_BYTES_MAX - self.kept.len();
                self.kept.extend_from_slice(&buffer[..count.min(room)]);
                self.dropped += count.saturating_sub(room) as u64;
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
        Ok(())
    }

    fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        if self.dropped > 0 {
            text.push_str(&format!("\n[{} bytes more were dropped]\n", self.dropped));
        }
        text
    }
}

/// Takes in the orphans that process 1 inherits. Done only while no tool runs, so that it never takes
/// a child that someone waits for: a part of the agent that starts processes must do so here.
fn reap() {
    let running = running();
    if std::process::id() != 1 || *running > 0 {
        return;
    }
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> ExecResult {
        exec(&["sh".into(), "-c".into(), script.into()], limit).expect("a shell")
    }

    #[test]
    fn both_outputs_and_the_code_come_back() {
        let result = shell("echo out; echo err >&2; exit 3", Duration::from_secs(10));
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!((result.code, result.timed_out), (Some(3), false));
    }

    #[test]
    fn a_tool_that_takes_too_long_is_killed_with_its_children() {
        let result = shell("sleep 60 & sleep 60", Duration::from_millis(200));
        assert!(result.timed_out);
        assert_eq!(result.code, None);
        assert!(result.took_ns < 10_000_000_000);
    }

    #[test]
    fn a_child_left_behind_with_the_outputs_open_does_not_hold_up_the_answer() {
        let result = shell("sleep 60 & echo left", Duration::from_secs(30));
        assert_eq!((result.stdout.as_str(), result.code), ("left\n", Some(0)));
        assert!(!result.timed_out);
        assert!(result.took_ns < 10_000_000_000);
    }

    #[test]
    fn more_output_than_is_kept_is_read_and_told() {
        let result = shell("head -c 5000000 /dev/zero; echo end >&2", Duration::from_secs(30));
        assert_eq!(result.code, Some(0));
        assert!(result.stdout.ends_with("[805696 bytes more were dropped]\n"));
        assert_eq!(result.stderr, "end\n");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = exec(&["no-such-tool".into()], Duration::from_secs(1)).expect_err("missing");
        assert!(error.contains("no-such-tool"), "{error}");
    }
}
