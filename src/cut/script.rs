//! Runs a cut script. Its contract stands in the header of vm-scripts/cut-qemu-kill.

use crate::guest::error::GuestError;
use crate::guest::run_folder::RunFolder;
use nix::unistd::AccessFlags;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Scripts that the binary brings along.
const BUILT_IN: [(&str, &str); 1] =
    [("cut-qemu-kill", include_str!("../../vm-scripts/cut-qemu-kill"))];
/// A cut script must have returned by then.
const LIMIT: Duration = Duration::from_secs(10);

/// The guest to cut.
#[derive(Debug, Clone, Copy)]
pub struct Victim {
    /// Its process.
    pub pid: u32,
    /// The process's start time, field 22 of its stat file.
    pub starttime: u64,
}

/// Why the power is not off.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// No such script.
    #[error("there is no cut script {name:?}: give a path, or one of cut-qemu-kill")]
    Unknown {
        /// What the scenario names.
        name: String,
    },
    /// There is no folder for it.
    #[error(transparent)]
    Folder(#[from] GuestError),
    /// It could not be run.
    #[error("cannot run the cut script {path}")]
    Run {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It ran and did not cut.
    #[error("the cut script {path} {how}: {said}")]
    Failed {
        /// Which.
        path: String,
        /// Its end.
        how: String,
        /// Its standard error.
        said: String,
    },
}

/// A script that is there and can be run.
#[derive(Debug)]
pub struct CutScript {
    path: PathBuf,
    /// Holds a built-in script for as long as it may run.
    _folder: Option<RunFolder>,
}

impl CutScript {
    /// Finds a script by name or path, before anything depends on it.
    pub fn find(name: &str) -> Result<CutScript, CutError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            let folder = RunFolder::new()?;
            let path = folder.path().join(name);
            unpack(&path, text)
                .map_err(|source| CutError::Run { path: name.to_owned(), source })?;
            return Ok(CutScript { path, _folder: Some(folder) });
        }
        if !name.contains('/') || !Path::new(name).is_file() {
            return Err(CutError::Unknown { name: name.to_owned() });
        }
        nix::unistd::access(name, AccessFlags::X_OK)
            .map_err(|errno| CutError::Run { path: name.to_owned(), source: errno.into() })?;
        Ok(CutScript { path: PathBuf::from(name), _folder: None })
    }

    /// Runs it to its end. When this returns without an error the power is off.
    pub fn cut(&self, victim: Victim) -> Result<(), CutError> {
        let path = self.path.display().to_string();
        let cannot = |source| CutError::Run { path: path.clone(), source };
        let mut child = Command::new(&self.path)
            .env("PLUGPULL_CUT_PID", victim.pid.to_string())
            .env("PLUGPULL_CUT_STARTTIME", victim.starttime.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let in_time = wait(&mut child).map_err(cannot)?;
        let Output { status, stderr, .. } = child.wait_with_output().map_err(cannot)?;
        let how = match (in_time, status.success()) {
            (true, true) => return Ok(()),
            (true, false) => format!("ended with {status}"),
            (false, _) => format!("did not return within {} s", LIMIT.as_secs()),
        };
        let said = String::from_utf8_lossy(&stderr).trim().to_owned();
        Err(CutError::Failed { path, how, said })
    }
}

/// Waits within the limit, then kills it. True if it ended by itself.
fn wait(child: &mut Child) -> std::io::Result<bool> {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    Ok(false)
}

/// The file is closed before it is run: one that is open for writing cannot be executed.
fn unpack(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starttime(pid: u32) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.split(' ').nth(19).unwrap().parse().unwrap()
    }

    #[test]
    fn the_kill_script_kills_the_process_it_is_told_and_only_that() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let script = CutScript::find("cut-qemu-kill").unwrap();
        let right = Victim { pid: child.id(), starttime: starttime(child.id()) };
        let wrong = Victim { starttime: right.starttime + 1, ..right };
        let refused = script.cut(wrong).unwrap_err().to_string();
        assert!(refused.contains("no process"), "{refused}");
        assert!(child.try_wait().unwrap().is_none(), "another process's start time kills nothing");
        script.cut(right).unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn an_unknown_script_is_refused_by_name() {
        let refused = CutScript::find("cut-nothing").unwrap_err().to_string();
        assert!(refused.contains("cut-nothing") && refused.contains("cut-qemu-kill"), "{refused}");
    }
}
