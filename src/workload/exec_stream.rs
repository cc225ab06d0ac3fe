//! A stream whose operations are a user's program's own: docs/exec.md is the contract.
//!
//! What always holds: a stamp is taken when the program's line is read, never before it was printed;
//! a line that is not understood, an id out of order, or a program that dies ends the stream, and
//! nothing that it says afterwards counts.

use crate::agent::exec::exec_with;
use crate::agent::program::{Heard, Program};
use crate::agent::protocol::StreamRate;
use crate::stack::full_root;
use crate::units::Seq;
use crate::workload::exec_lines::{Lines, Progress, Said};
use crate::workload::plan::{ExecSpec, StreamPlan};
use crate::workload::reporter::{Begun, Carried, Halt, Reporter, Shared, tell_console};
use crate::workload::stream::Stream;
use nix::errno::Errno;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The set-up may take so long: the lab waits a little longer.
const SET_UP: Duration = Duration::from_secs(100);
/// Between two looks whether to stop.
const LOOK_MS: u16 = 50;
/// Bytes of one read.
const READ_BYTES: usize = 4096;

/// A program at work.
#[derive(Debug)]
pub struct ExecStream {
    reporter: Reporter,
    exec: ExecSpec,
    seed: u64,
    /// In flight, oldest first.
    open: VecDeque<Open>,
}

/// An operation in flight.
#[derive(Debug, Clone, Copy)]
enum Open {
    Begun(Begun),
    Returned(Carried),
}

/// The words that run one of a stream's commands.
pub fn command(argv: &[String], exec: &ExecSpec) -> Vec<String> {
    match exec.full_root {
        true => in_full_root(argv),
        false => argv.to_vec(),
    }
}

/// The words that run a command in the fuller root, which the lab has mounted.
pub fn in_full_root(argv: &[String]) -> Vec<String> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    full_root::inside(&argv).into_iter().map(str::to_owned).collect()
}

/// What a stream's commands find in their environment. In the fuller root a dataset is seen under
/// `/data`, by its name.
pub fn environment(seed: u64, stream: &StreamPlan, exec: &ExecSpec) -> [(&'static str, String); 3] {
    let file = stream.path.rsplit('/').next().unwrap_or_default();
    let folder = match exec.full_root {
        true => format!("{}/{file}", full_root::seen_at(&stream.dataset)),
        false => stream.path.clone(),
    };
    [
        ("PLUGPULL_DIR", folder),
        ("PLUGPULL_SEED", seed.to_string()),
        ("PLUGPULL_STREAM", stream.id.to_string()),
    ]
}

impl ExecStream {
    /// Makes the stream's folder and runs the program's set-up to its end.
    pub fn create(
        shared: Arc<Shared>,
        stream: &StreamPlan,
        exec: &ExecSpec,
    ) -> io::Result<ExecStream> {
        fs::create_dir(&stream.path)?;
        let seed = shared.plan.seed;
        if !exec.set_up.is_empty() {
            let argv = command(&exec.set_up, exec);
            let ran = exec_with(&argv, &environment(seed, stream, exec), SET_UP);
            let ran = ran.map_err(io::Error::other)?;
            if ran.code != Some(0) {
                let how = match ran.code {
                    Some(code) => format!("exit code {code}"),
                    None if ran.timed_out => format!("more than {} s", SET_UP.as_secs()),
                    None => "a signal".to_owned(),
                };
                let words = format!("its set_up failed with {how}: {}", ran.stderr.trim_end());
                return Err(io::Error::other(words));
            }
        }
        let reporter = Reporter::new(shared, stream.clone());
        Ok(ExecStream { reporter, exec: exec.clone(), seed, open: VecDeque::new() })
    }

    /// Listens until told to stop, or until the program ended well. Words say why it was neither.
    fn load(&mut self, stop: &AtomicBool) -> Result<Result<(), (Errno, String)>, Halt> {
        self.reporter.begin(None)?;
        let argv = command(&self.exec.run, &self.exec);
        let environment = environment(self.seed, self.reporter.stream(), &self.exec);
        let mut program = match Program::start(&argv, &environment) {
            Ok(program) => program,
            Err(words) => return Ok(Err((Errno::ENOENT, words))),
        };
        let (mut lines, mut progress) = (Lines::default(), Progress::default());
        let mut bytes = [0; READ_BYTES];
        while !stop.load(Ordering::Relaxed) {
            match program.read(&mut bytes, LOOK_MS) {
                Ok(Heard::Nothing) => continue,
                Ok(Heard::End) => return Ok(ended(program, &lines, &progress)),
                Ok(Heard::Bytes(count)) => lines.feed(&bytes[..count]),
                Err(error) => return Ok(Err((Errno::EIO, error.to_string()))),
            }
            while let Some(said) = lines.next_said() {
                let taken = said.and_then(|said| Ok((said, progress.take(said)?)));
                match taken {
                    Ok((said, range)) => self.take(said, *range.start()..=*range.end())?,
                    Err(words) => {
                        self.reporter.flush()?;
                        return Ok(Err((Errno::EPROTO, words)));
                    }
                }
            }
            self.reporter.flush()?;
        }
        Ok(Ok(()))
    }

    fn take(&mut self, said: Said, about: RangeInclusive<u64>) -> Result<(), Halt> {
        match said {
            Said::Intent(id) => {
                let begun = self.reporter.begun(Seq(id));
                self.reporter.announce(Seq(id))?;
                self.open.push_back(Open::Begun(begun));
            }
            Said::Done(_) => {
                let mut count = about.count();
                for open in &mut self.open {
                    if let (Open::Begun(begun), 1..) = (*open, count) {
                        *open = Open::Returned(self.reporter.returned(begun));
                        count -= 1;
                    }
                }
            }
            Said::Ack(_) => {
                for open in self.open.drain(..about.count()) {
                    let returned = match open {
                        Open::Begun(begun) => self.reporter.returned(begun),
                        Open::Returned(returned) => returned,
                    };
                    self.reporter.acknowledge(&returned, None)?;
                }
            }
        }
        Ok(())
    }
}

/// A program may end before it is told to: well, and with nothing in flight.
fn ended(program: Program, lines: &Lines, progress: &Progress) -> Result<(), (Errno, String)> {
    let how = program.end();
    if !lines.unended().is_empty() {
        return Err((Errno::EPROTO, "its last line has no end".to_owned()));
    }
    match (how, progress.in_flight()) {
        (Err(words), _) => Err((Errno::ECHILD, words)),
        (Ok(()), 0) => Ok(()),
        (Ok(()), count) => {
            Err((Errno::EPROTO, format!("it ended with {count} operations un-acked")))
        }
    }
}

impl Stream for ExecStream {
    fn plan(&self) -> &StreamPlan {
        self.reporter.stream()
    }

    /// The program's set-up is no operation: what it left is brought to the disk with all else.
    fn fill(&mut self) -> Result<(), Halt> {
        Ok(())
    }

    fn run(mut self: Box<Self>, stop: &AtomicBool) -> io::Result<StreamRate> {
        let load = match self.load(stop) {
            Ok(Ok(())) => Ok(()),
            Ok(Err((errno, words))) => {
                tell_console(self.reporter.stream(), &format!("the program's run: {words}"));
                Err(Halt::Call(errno))
            }
            Err(halt) => Err(halt),
        };
        self.reporter.end(load)
    }
}

#[cfg(test)]
mod tests;
