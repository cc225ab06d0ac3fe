//! Ends a FUSE connection when a step on it takes too long, or when this process dies.
//!
//! Why death needs help: a thread that waits in the kernel for a block of the mounted file system
//! cannot be killed before the block comes; it keeps the process's descriptors open; so the kernel
//! does not see that nobody serves the connection any more, and the block never comes. This module's
//! thread has a descriptor table of its own and waits for no block, so it does end with the process;
//! then the one writing end of a pipe closes, and a small process outside writes to the switch.

use super::error::HostError;
use nix::sched::{CloneFlags, unshare};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What runs outside: waits for the end of its input, then throws the switch, which is its output.
const OUTSIDE: &str = "read -r _; echo 1";

/// Watches over one connection. Dropped, it aborts it.
#[derive(Debug)]
pub struct Guard {
    watch: Arc<Watch>,
    switch: File,
    thread: Option<JoinHandle<()>>,
    outside: Child,
}

#[derive(Debug, Default)]
struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    steps: HashMap<u64, Step>,
    next: u64,
    /// The step that took too long.
    failed: Option<Step>,
    finished: bool,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    name: &'static str,
    limit: Duration,
    deadline: Instant,
}

impl Guard {
    /// Watches over the connection whose switch this is (see [`super::connections`]).
    pub(super) fn start(switch: File) -> Result<Guard, HostError> {
        let failed = |doing| HostError::system(doing, "the FUSE connection's guard");
        let (reading, writing) = io::pipe().map_err(failed("make a pipe for"))?;
        let output = switch.try_clone().map_err(failed("share the switch with"))?;
        let outside = Command::new("/bin/sh")
            .args(["-c", OUTSIDE])
            .stdin(reading)
            .stdout(output)
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(failed("start"))?;
        let watch = Arc::new(Watch::default());
        let mut guard = Guard { watch: watch.clone(), switch, thread: None, outside };
        let pid = std::process::id();
        let here = |fd: i32| format!("/proc/{pid}/task/{}/fd/{fd}", nix::unistd::gettid());
        let paths = [here(writing.as_raw_fd()), here(guard.switch.as_raw_fd())];
        let (ready, told) = channel();
        let thread = std::thread::Builder::new()
            .name("host-guard".into())
            .spawn(move || run(&watch, &paths, &ready));
        guard.thread = Some(thread.map_err(failed("start the thread of"))?);
        match told.recv() {
            Ok(Ok(())) => Ok(guard),
            Ok(Err(error)) => Err(failed("set up")(error)),
            Err(_) => Err(failed("set up")(io::Error::other("its thread ended"))),
        }
        // `writing` closes here: from now on only the thread has that end of the pipe.
    }

    /// Until the value that is returned is dropped, `limit` bounds what is done on the connection.
    pub fn limit(&self, name: &'static str, limit: Duration) -> Limited<'_> {
        let mut state = self.watch.lock();
        let id = state.next;
        state.next += 1;
        state.steps.insert(id, Step { name, limit, deadline: Instant::now() + limit });
        self.watch.changed.notify_all();
        Limited { guard: self, id }
    }

    /// Whether a step took too long; the connection is gone then.
    pub fn check(&self) -> Result<(), HostError> {
        match self.watch.lock().failed {
            Some(Step { name, limit, .. }) => Err(HostError::TooLong { step: name, limit }),
            None => Ok(()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.switch.write_all(b"1");
        self.watch.lock().finished = true;
        self.watch.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Its input has ended; should it hang anyway, it must not hold us up.
        let _ = self.outside.kill();
        let _ = self.outside.wait();
    }
}

/// A step that may take so long and no longer.
#[derive(Debug)]
pub struct Limited<'a> {
    guard: &'a Guard,
    id: u64,
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        self.guard.watch.lock().steps.remove(&self.id);
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a step takes too long, which is kept and true, or the guard is dropped.
    fn wait(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.finished {
                return false;
            }
            let first = state.steps.values().min_by_key(|step| step.deadline).copied();
            let now = Instant::now();
            state = match first {
                Some(step) if step.deadline <= now => {
                    state.failed = Some(step);
                    return true;
                }
                Some(step) => match self.changed.wait_timeout(state, step.deadline - now) {
                    Ok((state, _)) => state,
                    Err(poisoned) => poisoned.into_inner().0,
                },
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// The thread. Its own two descriptors are the only ones that it has.
fn run(watch: &Watch, paths: &[String; 2], ready: &Sender<io::Result<()>>) {
    let own = || -> io::Result<(File, File)> {
        unshare(CloneFlags::CLONE_FILES)?;
        let open = |path: &String| File::options().write(true).open(path);
        close_all()?;
        Ok((open(&paths[0])?, open(&paths[1])?))
    };
    match own() {
        Ok((_pipe, mut switch)) => {
            let _ = ready.send(Ok(()));
            if watch.wait() {
                let _ = switch.write_all(b"1");
            }
            // Stays until the guard is dropped: the pipe must not close before.
            let state = watch.lock();
            drop(watch.changed.wait_while(state, |state| !state.finished));
        }
        Err(error) => drop(ready.send(Err(error))),
    }
}

/// Closes every descriptor of this thread's own table.
fn close_all() -> io::Result<()> {
    let folder = Path::new("/proc/thread-self/fd");
    let open: Vec<i32> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open {
        // One of them was the folder itself, which is closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guard whose switch is a plain file.
    fn on_file(folder: &Path) -> (Guard, std::path::PathBuf) {
        let path = folder.join("switch");
        let switch = File::create(&path).expect("a file");
        (Guard::start(switch).expect("a guard"), path)
    }

    fn thrown(path: &Path) -> bool {
        std::fs::metadata(path).expect("the switch").len() > 0
    }

    #[test]
    fn a_step_that_takes_too_long_throws_the_switch_and_one_that_does_not_leaves_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (guard, path) = on_file(folder.path());
        drop(guard.limit("be quick", Duration::from_secs(60)));
        assert!(guard.check().is_ok() && !thrown(&path));
        let step = guard.limit("be slow", Duration::from_millis(20));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !thrown(&path) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(step);
        assert!(thrown(&path));
        let error = guard.check().expect_err("it took too long").to_string();
        assert!(error.contains("be slow"), "{error}");
    }

    #[test]
    fn a_guard_that_is_dropped_throws_the_switch_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let (guard, path) = on_file(folder.path());
        let outside = guard.outside.id();
        drop(guard);
        assert!(thrown(&path));
        assert!(!Path::new(&format!("/proc/{outside}")).exists());
    }
}
