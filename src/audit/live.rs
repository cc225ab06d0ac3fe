//! Asks this host's ZFS.

use std::env;
use std::process::Command;

/// Where administrators' tools are; they may be missing from a user's path.
const MORE_PATH: &str = "/usr/sbin:/sbin";

/// Why this host's ZFS did not say.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The tool does not start.
    #[error("cannot run zfs: {0}; run this on the host that has the pool, or give --from")]
    Start(std::io::Error),
    /// It failed.
    #[error("`{command}` failed ({status}): {words}")]
    Failed {
        /// The whole command.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its words.
        words: String,
    },
}

/// The arguments of `zfs` that list each dataset's and volume's `sync`.
pub fn arguments(pool: &str) -> [&str; 9] {
    [
        "get",
        "-Hp",
        "-r",
        "-o",
        "name,property,value,source",
        "-t",
        "filesystem,volume",
        "sync",
        pool,
    ]
}

/// What `zfs get` prints of a pool.
pub fn list(pool: &str) -> Result<String, LiveError> {
    let path = env::var("PATH").unwrap_or_default();
    let mut command = Command::new("zfs");
    command.args(arguments(pool)).env("PATH", format!("{path}:{MORE_PATH}")).env("LC_ALL", "C");
    let output = command.output().map_err(LiveError::Start)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(LiveError::Failed {
            command: format!("zfs {}", arguments(pool).join(" ")),
            status: output.status,
            words: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}
