//! The words of a user's program: what `run` says during the load, and `survivors` after the cut.
//!
//! Pure; docs/exec.md is the contract. Whatever the words are, what is kept of them is bounded, and
//! words that are not understood are told as they are.

use crate::record::rows::{Broken, Check};
use std::ops::RangeInclusive;

/// No line of `run` is longer.
pub const LINE_BYTES_MAX: usize = 256;
/// Operations that may be announced and not acknowledged.
pub const IN_FLIGHT_MAX: u64 = 1 << 16;
/// Checks, ranges and broken places of `survivors` that are kept.
const TOLD_MAX: usize = 100_000;
/// Bytes of a line that is not understood, as it is shown.
const SHOWN_MAX: usize = 120;

/// One line of `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It is about to begin this operation.
    Intent(u64),
    /// All up to this operation can be seen.
    Done(u64),
    /// All up to this operation are durable, as far as the program was promised.
    Ack(u64),
}

/// Reads one line, without its end.
pub fn said(line: &[u8]) -> Result<Said, String> {
    let expected = "expected `intent ID`, `done ID` or `ack ID`, ID from 1 in decimal digits";
    let bad = || format!("{expected}, not {:?}", shown(line));
    let text = std::str::from_utf8(line).map_err(|_| bad())?;
    let (word, id) = text.split_once(' ').ok_or_else(bad)?;
    let id = number(id).ok_or_else(bad)?;
    match word {
        "intent" => Ok(Said::Intent(id)),
        "done" => Ok(Said::Done(id)),
        "ack" => Ok(Said::Ack(id)),
        _ => Err(bad()),
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| digits && *id > 0)
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]).into_owned()
}

/// Cuts what was read into lines. It never holds more than one line and one read.
#[derive(Debug, Default)]
pub struct Lines {
    held: Vec<u8>,
    /// Bytes of `held` that were handed out.
    taken: usize,
}

impl Lines {
    /// Adds what was read.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.held.drain(..self.taken);
        self.taken = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next whole line and what it says. After an error nothing more can be understood.
    pub fn next_said(&mut self) -> Option<Result<Said, String>> {
        let rest = &self.held[self.taken..];
        let end = rest.iter().take(LINE_BYTES_MAX + 1).position(|byte| *byte == b'\n');
        match end {
            Some(end) => {
                let line = said(&rest[..end]);
                self.taken += end + 1;
                Some(line)
            }
            None if rest.len() > LINE_BYTES_MAX => Some(Err(format!(
                "a line is longer than {LINE_BYTES_MAX} bytes: {:?}",
                shown(rest)
            ))),
            None => None,
        }
    }

    /// Bytes of a line that has not ended.
    pub fn unended(&self) -> &[u8] {
        &self.held[self.taken..]
    }
}

/// How far a program has come: ids are 1, 2, 3 and so on, and several may be in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    announced: u64,
    done: u64,
    acked: u64,
}

impl Progress {
    /// Takes what was said: the operations that it is about, first to last.
    pub fn take(&mut self, said: Said) -> Result<RangeInclusive<u64>, String> {
        let Progress { announced, done, acked } = *self;
        match said {
            Said::Intent(id) if id != announced + 1 => {
                Err(format!("intent {id} came where intent {} was due", announced + 1))
            }
            Said::Intent(id) if id - acked > IN_FLIGHT_MAX => {
                Err(format!("intent {id} came before ack {}: too many in flight", acked + 1))
            }
            Said::Intent(id) => {
                self.announced = id;
                Ok(id..=id)
            }
            Said::Done(id) | Said::Ack(id) if id > announced => {
                Err(format!("operation {id} was not announced; the newest intent is {announced}"))
            }
            Said::Done(id) if id <= done => Err(format!("done {id} came after done {done}")),
            Said::Done(id) => {
                self.done = id;
                Ok(done + 1..=id)
            }
            Said::Ack(id) if id <= acked => Err(format!("ack {id} came after ack {acked}")),
            Said::Ack(id) => {
                (self.acked, self.done) = (id, done.max(id));
                Ok(acked + 1..=id)
            }
        }
    }

    /// Operations that were announced and not acknowledged.
    pub fn in_flight(&self) -> u64 {
        self.announced - self.acked
    }
}

/// What `survivors` said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Its checks, in its order.
    pub checks: Vec<Check>,
    /// Ascending, apart from each other.
    pub survived: Vec<RangeInclusive<u64>>,
    /// Places that are neither whole nor gone.
    pub broken: Vec<Broken>,
    /// The first line that is none, with its number.
    pub malformed: Option<String>,
}

/// Reads all that `survivors` printed.
pub fn found(text: &str) -> Found {
    let (mut found, mut ranges) = (Found::default(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        let kept = found.checks.len() + found.broken.len() + ranges.len();
        let understood = match kept < TOLD_MAX {
            true => take(line, &mut found, &mut ranges),
            false => Err("there are too many lines; join neighbours, as in `survived 1-1000`"),
        };
        if let Err(problem) = understood {
            let line = shown(line.as_bytes());
            found.malformed = Some(format!("line {number}, {line:?}: {problem}"));
            break;
        }
    }
    found.survived = joined(ranges);
    found
}

fn take(
    line: &str,
    found: &mut Found,
    ranges: &mut Vec<RangeInclusive<u64>>,
) -> Result<(), &'static str> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "survived" => {
            let (first, last) = rest.split_once('-').unwrap_or((rest, rest));
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => ranges.push(first..=last),
                _ => return Err("expected `survived ID` or `survived FIRST-LAST`"),
            }
        }
        "broken" => {
            let (id, words) = rest.split_once(' ').unwrap_or((rest, ""));
            let id = number(id).ok_or("expected `broken ID WORDS`")?;
            found.broken.push(Broken { id: Some(id), words: words.to_owned() });
        }
        "check" => {
            let mut parts = rest.splitn(3, ' ');
            let name = parts.next().filter(|name| !name.is_empty());
            let passed = match parts.next() {
                Some("ok") => Some(true),
                Some("failed") => Some(false),
                _ => None,
            };
            let expected = "expected `check NAME ok WORDS` or `check NAME failed WORDS`";
            let (Some(name), Some(passed)) = (name, passed) else { return Err(expected) };
            let words = parts.next().unwrap_or_default().to_owned();
            found.checks.push(Check { name: name.to_owned(), passed, words });
        }
        _ => return Err("expected a line that begins with `check`, `survived` or `broken`"),
    }
    Ok(())
}

/// A program may print its ids in any order.
fn joined(mut ranges: Vec<RangeInclusive<u64>>) -> Vec<RangeInclusive<u64>> {
    ranges.sort_unstable_by_key(|range| (*range.start(), *range.end()));
    let mut all: Vec<RangeInclusive<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests;
