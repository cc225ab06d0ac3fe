//! `consistent`: the file system's own tools find nothing wrong with the crash state.
//!
//! What always holds: a claim passes only if every check said that it did its work and found
//! nothing; a tool that was killed, ran out of time or had no memory says nothing.

mod plain;
mod volumes;
mod zfs;

pub use plain::{PlainRecovery, Step};
pub use volumes::VolumesRecovery;
pub use zfs::{ExpectedTxg, ScrubReport, ZfsRecovery};

use super::verdict::{Judgement, Verdict};
use crate::agent::protocol::ExecResult;
use crate::stack::spec::{Holds, Stack, StackSpec};
use crate::units::Txg;
use serde::{Deserialize, Serialize};

/// What the tools said about a crash state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "kebab-case")]
pub enum Recovery {
    /// A pool and its datasets.
    Zfs(ZfsRecovery),
    /// A pool and the file systems on its volumes.
    Volumes(VolumesRecovery),
    /// A plain file system.
    Plain(PlainRecovery),
}

impl Recovery {
    /// What is known when the kernel died before any tool had answered.
    pub fn of_dead_guest(stack: &StackSpec, panic: Option<String>) -> Recovery {
        match stack.get() {
            Stack::Zfs(pool) => {
                let recovered = ZfsRecovery { panic, ..ZfsRecovery::unsaid() };
                match pool.holds {
                    Holds::Datasets => Recovery::Zfs(recovered),
                    Holds::Volumes { .. } => Recovery::Volumes(VolumesRecovery::of_pool(recovered)),
                }
            }
            Stack::Plain(fs, _) => {
                Recovery::Plain(PlainRecovery { panic, ..PlainRecovery::of_nothing(fs) })
            }
        }
    }

    /// Whether it came so far that every file could be asked for.
    pub fn was_read(&self) -> bool {
        match self {
            Recovery::Zfs(zfs) => zfs.import.code == Some(0),
            Recovery::Volumes(all) => all.were_read(),
            Recovery::Plain(plain) => plain.mount_read == Step::Done,
        }
    }

    /// Why no file could be asked for, if none could.
    pub fn unread_because(&self) -> &'static str {
        match self {
            Recovery::Zfs(_) => "the pool was not imported, so nothing could be read back",
            Recovery::Volumes(_) => {
                "not every file system on the pool's volumes was mounted again, so nothing was read \
                 back"
            }
            Recovery::Plain(_) => {
                "the file system was not mounted again, so nothing could be read back"
            }
        }
    }

    /// The txg that the import used, where there is a pool.
    pub fn used_txg(&self) -> Option<Txg> {
        match self {
            Recovery::Zfs(zfs) => zfs.used,
            Recovery::Volumes(all) => all.pool.used,
            Recovery::Plain(_) => None,
        }
    }
}

/// What one check says.
enum Check {
    Good(String),
    Bad(String),
    Unknown(String),
    Broken(String),
}

impl Check {
    /// The same, said of one of several.
    fn of(self, name: &str) -> Check {
        let said = |text: String| format!("{name}: {text}");
        match self {
            Check::Good(text) => Check::Good(said(text)),
            Check::Bad(text) => Check::Bad(said(text)),
            Check::Unknown(text) => Check::Unknown(said(text)),
            Check::Broken(text) => Check::Broken(said(text)),
        }
    }
}

/// Judges one crash state. `unreadable` counts the blocks of all files that could not be read;
/// `expected` is about pools.
pub fn judge(recovery: &Recovery, expected: ExpectedTxg, unreadable: u64) -> Judgement {
    let mut checks = match recovery {
        Recovery::Zfs(zfs) => zfs.checks(expected),
        Recovery::Volumes(all) => all.checks(expected),
        Recovery::Plain(plain) => plain.checks(),
    };
    checks.extend(recovery.was_read().then(|| reading(unreadable)));
    let verdict = Verdict::of_all(checks.iter().map(|check| match check {
        Check::Good(_) => Verdict::Held,
        Check::Bad(_) => Verdict::Violated,
        Check::Unknown(_) => Verdict::NotMeasured,
        Check::Broken(_) => Verdict::HarnessBroken,
    }));
    // The deciding sentences come first.
    let mut because: Vec<(bool, String)> = checks
        .into_iter()
        .map(|check| match check {
            Check::Good(text) => (true, text),
            Check::Bad(text) | Check::Unknown(text) | Check::Broken(text) => (false, text),
        })
        .collect();
    because.sort_by_key(|(good, _)| *good);
    let because = because.into_iter().map(|(_, text)| text).collect();
    Judgement { verdict, because, findings: Vec::new(), window: None }
}

/// Nothing if the kernel lived.
fn panic(panic: Option<&String>) -> Option<Check> {
    panic.map(|console| Check::Bad(format!("the kernel died over this state: {console}")))
}

fn reading(unreadable: u64) -> Check {
    match unreadable {
        0 => Check::Good("every file was read".to_owned()),
        n => Check::Bad(format!("{n} blocks could not be read")),
    }
}

/// The last lines of a tool's output, for a sentence.
fn tail(run: &ExecResult) -> String {
    let text = if run.stderr.trim().is_empty() { &run.stdout } else { &run.stderr };
    let lines: Vec<&str> = text.trim().lines().rev().take(4).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

/// A tool that was killed, or that had no memory, says nothing of the file system. One that gave up
/// by itself over what it found (an assertion ends in a signal too) says why.
fn is_the_labs_fault(run: &ExecResult) -> bool {
    let said = |words: &str| run.stderr.contains(words) || run.stdout.contains(words);
    let gave_up = ["VERIFY", "ASSERT", "Assertion", "SIGABRT"].into_iter().any(said);
    lacked_memory(&run.stderr) || lacked_memory(&run.stdout) || (run.code.is_none() && !gave_up)
}

fn lacked_memory(words: &str) -> bool {
    ["Cannot allocate memory", "ENOMEM", "Memory allocation failed"]
        .into_iter()
        .any(|lack| words.contains(lack))
}

#[cfg(test)]
mod testing {
    use super::*;

    /// A tool that ended with this code and these words on its standard output.
    pub fn run(code: i32, stdout: &str) -> ExecResult {
        ExecResult {
            code: Some(code),
            timed_out: false,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            took_ns: 1,
        }
    }

    /// One that was killed because its time was up.
    pub fn slow() -> ExecResult {
        ExecResult { timed_out: true, code: None, ..run(0, "") }
    }

    /// One that a signal ended.
    pub fn killed(signal: &str) -> ExecResult {
        let stderr = format!("[ended by signal, {signal}]\n");
        ExecResult { code: None, stderr, ..run(0, "") }
    }
}
