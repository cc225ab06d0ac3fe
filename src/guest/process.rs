//! Processes that the lab starts and that must not outlive it.
//!
//! Each child asks the kernel to be killed when its parent dies. The kernel means the parent
//! *thread*, so all children are started by one thread that lives as long as the tool.

use crate::guest::progress::Watch;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Starts a child that the kernel kills when this process dies, however it dies. It is the leader of
/// its own process group: a Ctrl-C at the terminal reaches the tool alone, which then decides (QEMU
/// would drain and flush its disks on it).
pub fn spawn_bound(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (command, answer) in inbox {
                // Nobody waits for the answer any more: the child is dropped, and killed with us.
                let _ = answer.send(spawn_here(command));
            }
        });
        jobs
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (answer, result) = mpsc::channel();
    spawner.send((command, answer)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

fn spawn_here(mut command: Command) -> io::Result<Child> {
    let parent = nix::unistd::getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl and getppid.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have died before the call above took effect.
            if getppid() != parent {
                return Err(io::Error::from(io::ErrorKind::NotConnected));
            }
            Ok(())
        });
    }
    command.process_group(0).spawn()
}

/// Waits for a child that the user may want to stop. It is asked to end then, so that it can leave
/// things in order, and killed if that takes too long.
pub fn wait_or_stop(child: &mut Child, watch: &Watch) -> io::Result<ExitStatus> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let mut kill_at = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if watch.is_cancelled() && kill_at.is_none() {
            kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM)?;
            kill_at = Some(Instant::now() + PATIENCE);
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the host booted.
    pub start: u64,
}

impl ProcessId {
    /// The process that has this number now, if any. One that has ended but was not waited for
    /// counts as gone.
    pub fn of(pid: u32) -> Option<ProcessId> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, start) = state_and_start(&stat)?;
        (!matches!(state, "Z" | "X")).then_some(ProcessId { pid, start })
    }

    /// This process.
    pub fn own() -> ProcessId {
        let pid = std::process::id();
        ProcessId::of(pid).unwrap_or(ProcessId { pid, start: 0 })
    }

    /// Whether this very process still runs.
    pub fn is_alive(self) -> bool {
        ProcessId::of(self.pid) == Some(self)
    }
}

/// Fields 3 and 22 of proc(5)'s stat. Field 2, the name, may hold anything, brackets and spaces too.
fn state_and_start(stat: &str) -> Option<(&str, u64)> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split(' ').collect();
    Some((fields.first()?, fields.get(19)?.parse().ok()?))
}

/// The last lines of a file, at most this many; empty if it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    const BYTES: u64 = 16 << 10;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(end.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.take(BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    last_lines(&String::from_utf8_lossy(&read().unwrap_or_default()), lines)
}

/// The last lines of a text, without the carriage returns of a serial console.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let rest: Vec<String> = (3..=52).map(|field| format!("{field}")).collect();
        let stat = format!("17 (a) R (b) {}", rest.join(" "));
        assert_eq!(state_and_start(&stat), Some(("3", 22)));
        assert_eq!(state_and_start("17"), None);
    }

    #[test]
    fn a_process_is_known_by_its_start_and_gone_once_it_ended() {
        let own = ProcessId::own();
        assert!(own.is_alive());
        assert!(!ProcessId { start: own.start + 1, ..own }.is_alive());
        let mut command = Command::new("sleep");
        command.arg("60");
        let mut child = spawn_bound(command).expect("sleep");
        let id = ProcessId::of(child.id()).expect("it runs");
        assert!(id.is_alive());
        child.kill().expect("killed");
        child.wait().expect("gone");
        assert!(!id.is_alive());
    }

    #[test]
    fn the_tail_of_a_console_is_its_last_lines_without_carriage_returns() {
        assert_eq!(last_lines("one\r\ntwo\r\n\r\nthree\r\n", 2), "two\nthree");
        assert_eq!(last_lines("", 5), "");
    }
}
