//! Progress on standard error: a line that moves on a terminal, plain lines elsewhere.

use crate::disk::bench::BenchError;
use crate::guest::GuestError;
use crate::guest::progress::{Progress, Watch};
use crate::stack::build::StackError;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Without a terminal a stage's progress is a line this often.
const PLAIN_EVERY: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(120);

/// What a shell says of a process that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Prints results. A reader that went away is an error, not a panic.
pub fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot print the result")
}

/// A line on standard error. That nobody reads it any more is no reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Set by the first Ctrl-C or SIGTERM. A second one ends the tool at once; what it then leaves is
/// swept at its next start.
pub fn cancel_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, cancel.clone())?;
        signal_hook::flag::register(signal, cancel.clone())?;
    }
    Ok(cancel)
}

/// The exit code of work that the user stopped; any other error goes on.
pub fn interrupted_or(error: anyhow::Error) -> anyhow::Result<u8> {
    let stopped = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(GuestError::Cancelled))
            || matches!(cause.downcast_ref(), Some(StackError::Guest(GuestError::Cancelled)))
            || matches!(cause.downcast_ref(), Some(BenchError::Guest(GuestError::Cancelled)))
    };
    if error.chain().any(stopped) {
        say("plugpull: interrupted; nothing was left running");
        return Ok(INTERRUPTED);
    }
    Err(error)
}

/// A watch that shows everything on standard error.
pub fn watch(cancel: Arc<AtomicBool>) -> Watch {
    let shown: Box<dyn Show> = match std::io::stderr().is_terminal() {
        true => Box::new(Bar::new()),
        false => Box::new(Plain { started: Instant::now(), last_part: None }),
    };
    let shown = Mutex::new(shown);
    let listen = move |progress| {
        shown.lock().unwrap_or_else(PoisonError::into_inner).show(progress);
    };
    Watch::new(listen, cancel)
}

trait Show: Send {
    fn show(&mut self, progress: Progress);
}

struct Bar {
    bar: ProgressBar,
    plain: ProgressStyle,
    parts: ProgressStyle,
    stage: String,
}

impl Bar {
    fn new() -> Bar {
        let style = |template| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(TICK);
        Bar {
            bar,
            plain: style("{spinner} {elapsed:>4} {msg}"),
            parts: style("{spinner} {elapsed:>4} [{bar:30}] {pos}/{len} {msg}"),
            stage: String::new(),
        }
    }
}

impl Show for Bar {
    fn show(&mut self, progress: Progress) {
        match progress {
            Progress::Stage(text) => {
                self.bar.set_style(self.plain.clone());
                self.bar.set_message(text.clone());
                self.stage = text;
            }
            Progress::Part { stage, done, total, text } => {
                self.bar.set_style(self.parts.clone());
                self.bar.set_length(total);
                self.bar.set_position(done);
                self.bar.set_message(format!("{stage}: {text}"));
            }
            Progress::Note(text) => self.bar.println(format!("plugpull: {text}")),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

struct Plain {
    started: Instant,
    last_part: Option<(String, Instant)>,
}

impl Plain {
    fn line(&self, text: &str) {
        say(&format!("[{:6.1} s] {text}", self.started.elapsed().as_secs_f64()));
    }
}

impl Show for Plain {
    fn show(&mut self, progress: Progress) {
        match progress {
            Progress::Stage(text) => self.line(&text),
            Progress::Note(text) => self.line(&format!("note: {text}")),
            Progress::Part { stage, done, total, text } => {
                let due = self
                    .last_part
                    .as_ref()
                    .is_none_or(|(last, at)| *last != stage || at.elapsed() >= PLAIN_EVERY);
                if due {
                    self.line(&format!("{stage} {done}/{total} {text}"));
                    self.last_part = Some((stage, Instant::now()));
                }
            }
        }
    }
}
