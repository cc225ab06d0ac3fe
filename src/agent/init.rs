//! Start of the guest.

use std::process::ExitCode;

/// Runs as process 1.
pub fn run() -> ExitCode {
    ExitCode::FAILURE
}
