//! One QEMU process: started with its sockets in a folder of its own, watched, killed and reaped.

use crate::guest::arguments::{Launch, QEMU, arguments};
use crate::guest::error::GuestError;
use crate::guest::link::Vitals;
use crate::guest::process::{spawn_bound, tail};
use crate::guest::progress::Watch;
use crate::guest::run_folder::RunFolder;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Lines of the console and of QEMU's standard error that an error shows.
const TAIL_LINES: usize = 80;

/// How long a killed QEMU may take to be gone: it has the guest's memory to give back.
const KILL_PATIENCE: Duration = Duration::from_secs(20);

/// A QEMU process, killed when dropped.
pub struct Machine {
    vitals: Arc<MachineVitals>,
    folder: RunFolder,
}

/// What waits need to know about a QEMU process.
struct MachineVitals {
    child: Mutex<Child>,
    pid: u32,
    console: PathBuf,
    stderr: PathBuf,
    watch: Watch,
}

impl Machine {
    /// Starts QEMU. `launch` names this folder for the sockets; `saved` is the file of the saved
    /// guest, if it comes from one.
    pub fn start(
        folder: RunFolder,
        launch: &Launch,
        saved: Option<File>,
        watch: &Watch,
    ) -> Result<Machine, GuestError> {
        watch.check()?;
        let stderr = folder.path().join("stderr");
        let errors = File::create(&stderr).map_err(GuestError::file("make", &stderr))?;
        // QEMU would make it too; what is wrong with its place is said better here.
        File::create(launch.console).map_err(GuestError::file("make", launch.console))?;
        let mut command = Command::new(QEMU);
        command.args(arguments(launch)).stdout(Stdio::null()).stderr(errors);
        command.stdin(saved.map_or_else(Stdio::null, Stdio::from));
        let child = spawn_bound(command).map_err(GuestError::file("start", Path::new(QEMU)))?;
        let vitals = MachineVitals {
            pid: child.id(),
            child: Mutex::new(child),
            console: launch.console.to_owned(),
            stderr,
            watch: watch.clone(),
        };
        let machine = Machine { vitals: Arc::new(vitals), folder };
        machine.folder.note_qemu(machine.pid())?;
        Ok(machine)
    }

    /// QEMU's process number.
    pub fn pid(&self) -> u32 {
        self.vitals.pid
    }

    /// Where its sockets are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where its console goes.
    pub fn console(&self) -> &Path {
        &self.vitals.console
    }

    /// For the waits on its sockets.
    pub fn vitals(&self) -> Arc<dyn Vitals> {
        self.vitals.clone()
    }

    /// Ends it as a power cut does: SIGKILL, and nothing before that would let QEMU flush.
    pub fn kill(&self) {
        // An error here says that it has ended by itself.
        let _ = self.vitals.child().kill();
        let deadline = Instant::now() + KILL_PATIENCE;
        // A process that hangs in the kernel (KVM can do that) must not hang the lab too.
        while self.vitals.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until it has ended, whoever ends it.
    pub fn wait_end(&self, limit: Duration) -> Result<(), GuestError> {
        let deadline = Instant::now() + limit;
        while self.vitals.ended().is_none() {
            self.vitals.watch.check()?;
            if Instant::now() >= deadline {
                return Err(self.vitals.timed_out("QEMU's end", limit));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

impl MachineVitals {
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn ended(&self) -> Option<io::Result<ExitStatus>> {
        self.child().try_wait().transpose()
    }
}

impl Vitals for MachineVitals {
    fn check(&self, waiting: &str) -> Result<(), GuestError> {
        self.watch.check()?;
        let Some(status) = self.ended() else { return Ok(()) };
        Err(GuestError::Ended {
            how: status.map_or_else(|why| why.to_string(), describe),
            waiting: waiting.into(),
            stderr: tail(&self.stderr, TAIL_LINES),
            console: tail(&self.console, TAIL_LINES),
        })
    }

    fn timed_out(&self, waiting: &str, limit: Duration) -> GuestError {
        let console = tail(&self.console, TAIL_LINES);
        GuestError::TimedOut { waiting: waiting.into(), limit, console }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        // With -no-reboot a guest that panics or switches itself off ends QEMU like this.
        (Some(0), _) => "exit code 0: the guest switched off or panicked".into(),
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => status.to_string(),
    }
}
