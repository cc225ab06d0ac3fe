//! A stream whose operations are a user's program's own: docs/exec.md is the contract.
//!
//! What always holds: a stamp is taken when the program's line is read, never before it was printed;
//! a line that is not understood, an id out of order, or a program that dies ends the stream, and
//! nothing that it says afterwards counts.

use crate::agent::exec::exec_with;
use crate::agent::program::{Heard, Program};
use crate::agent::protocol::StreamRate;
use crate::history::message::StreamEvent;
use crate::units::Seq;
use crate::workload::exec_lines::{Lines, Progress, Said};
use crate::workload::plan::{ExecSpec, StreamPlan};
use crate::workload::stream::Stream;
use crate::workload::teller::{Begun, Returned, Teller, tell_console};
use crate::workload::writer::{Halt, Shared};
use nix::errno::Errno;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The set-up may take so long: the lab waits a little longer.
const SET_UP: Duration = Duration::from_secs(100);
/// Between two looks whether to stop.
const LOOK_MS: u16 = 50;
/// Bytes of one read.
const READ_BYTES: usize = 4096;
/// Where the fuller root is mounted in the guest.
const FULL_ROOT: &str = "/full";
/// Where a dataset is shown in it.
const SHOWN_AT: &str = "/data";

/// A program at work.
#[derive(Debug)]
pub struct ExecStream {
    teller: Teller,
    exec: ExecSpec,
    seed: u64,
    /// In flight, oldest first.
    open: VecDeque<Open>,
}

/// An operation in flight.
#[derive(Debug, Clone, Copy)]
enum Open {
    Begun(Begun),
    Returned(Returned),
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
    let chroot = ["busybox", "chroot", FULL_ROOT].map(str::to_owned);
    chroot.into_iter().chain(argv.iter().cloned()).collect()
}

/// What a stream's commands find in their environment. In the fuller root a dataset is seen under
/// `/data`, by its name.
pub fn environment(seed: u64, stream: &StreamPlan, exec: &ExecSpec) -> [(&'static str, String); 3] {
    let file = stream.path.rsplit('/').next().unwrap_or_default();
    let folder = match exec.full_root {
        true => format!("{SHOWN_AT}/{}/{file}", stream.dataset),
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
        let teller = Teller::new(shared, stream.clone());
        Ok(ExecStream { teller, exec: exec.clone(), seed, open: VecDeque::new() })
    }

    /// Listens until told to stop, or until the program ended well. Words say why it was neither.
    fn load(&mut self, stop: &AtomicBool) -> Result<Result<(), (Errno, String)>, io::Error> {
        self.teller.started(None)?;
        let argv = command(&self.exec.run, &self.exec);
        let environment = environment(self.seed, self.teller.stream(), &self.exec);
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
                        self.teller.flush()?;
                        return Ok(Err((Errno::EPROTO, words)));
                    }
                }
            }
            self.teller.flush()?;
        }
        Ok(Ok(()))
    }

    fn take(&mut self, said: Said, about: std::ops::RangeInclusive<u64>) -> io::Result<()> {
        match said {
            Said::Intent(id) => {
                let begun = self.teller.begin(Seq(id));
                self.teller.intent(Seq(id))?;
                self.open.push_back(Open::Begun(begun));
            }
            Said::Done(_) => {
                let mut count = about.count();
                for open in &mut self.open {
                    if let (Open::Begun(begun), 1..) = (*open, count) {
                        *open = Open::Returned(self.teller.returned(begun));
                        count -= 1;
                    }
                }
            }
            Said::Ack(_) => {
                for open in self.open.drain(..about.count()) {
                    let returned = match open {
                        Open::Begun(begun) => self.teller.returned(begun),
                        Open::Returned(returned) => returned,
                    };
                    self.teller.ack(returned, None)?;
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
        self.teller.stream()
    }

    /// The program's set-up is no operation: what it left is brought to the disk with all else.
    fn fill(&mut self) -> Result<(), Halt> {
        Ok(())
    }

    fn run(mut self: Box<Self>, stop: &AtomicBool) -> io::Result<StreamRate> {
        let end = match self.load(stop)? {
            Ok(()) => StreamEvent::Ended,
            Err((errno, words)) => {
                tell_console(self.teller.stream(), &format!("the program's run: {words}"));
                StreamEvent::Failed(errno as i32)
            }
        };
        self.teller.note(end)?;
        Ok(self.teller.rate())
    }
}

#[cfg(test)]
mod tests;
