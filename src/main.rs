//! Two lives of one binary: the lab's command line, and process 1 of the guest.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 { plugpull::agent::init::run() } else { plugpull::cli::run() }
}
