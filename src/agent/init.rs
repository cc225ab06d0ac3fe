//! Start of the guest: this binary as process 1.

use crate::agent::beside::Beside;
use crate::agent::load::Load;
use crate::agent::serve::{Agent, end_on_panic, give_up, serve};
use crate::agent::{boot, ports};
use std::process::ExitCode;

/// Runs as process 1. It never returns while the guest lives: an end of it switches the guest off.
pub fn run() -> ExitCode {
    end_on_panic();
    let warnings = boot::boot();
    for warning in &warnings {
        eprintln!("plugpull agent: {warning}");
    }
    let why = start(warnings).err().unwrap_or_else(|| "the control port ended".into());
    eprintln!("plugpull agent: {why}");
    give_up(&why)
}

fn start(warnings: Vec<String>) -> Result<(), String> {
    let control = ports::open(ports::CONTROL).map_err(|why| why.to_string())?;
    let messages = ports::open(ports::MESSAGES).map_err(|why| why.to_string())?;
    if let Ok(uptime) = std::fs::read_to_string("/proc/uptime") {
        let seconds = uptime.split(' ').next().unwrap_or_default();
        eprintln!("plugpull agent: ready {seconds} s after the kernel");
    }
    serve(control, Agent { load: Load::new(messages), warnings, beside: Beside::default() })
}
