//! A tool that runs while other requests are answered.
//!
//! What always holds: there is at most one, and its result is given once, to the request that ends
//! it.

use crate::agent::exec::exec;
use crate::agent::protocol::ExecResult;
use std::thread::JoinHandle;
use std::time::Duration;

/// The tool, while there is one.
#[derive(Debug, Default)]
pub struct Beside(Option<JoinHandle<Result<ExecResult, String>>>);

impl Beside {
    /// Starts a tool, which may take `limit`.
    pub fn begin(&mut self, argv: Vec<String>, limit: Duration) -> Result<(), String> {
        if self.0.is_some() {
            return Err("a tool runs already; end it before the next is begun".to_owned());
        }
        let run = move || exec(&argv, limit);
        let started = std::thread::Builder::new().name("beside".to_owned()).spawn(run);
        self.0 = Some(started.map_err(|why| format!("cannot start a thread for a tool: {why}"))?);
        Ok(())
    }

    /// Waits for the tool.
    pub fn end(&mut self) -> Result<ExecResult, String> {
        let thread = self.0.take().ok_or("no tool runs; begin one first")?;
        thread.join().map_err(|_| "the thread of the tool panicked".to_owned())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Vec<String> {
        vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()]
    }

    #[test]
    fn a_tool_runs_beside_others_and_each_has_its_own_result() {
        let mut beside = Beside::default();
        beside.begin(shell("sleep 0.2; echo beside; exit 3"), LIMIT).expect("begun");
        let other = exec(&shell("echo other"), LIMIT).expect("a shell");
        assert_eq!((other.stdout.as_str(), other.code), ("other\n", Some(0)));
        let ended = beside.end().expect("a result");
        assert_eq!((ended.stdout.as_str(), ended.code), ("beside\n", Some(3)));
    }

    #[test]
    fn a_second_tool_and_an_end_without_one_are_refused() {
        let mut beside = Beside::default();
        assert!(beside.end().is_err());
        beside.begin(shell("true"), LIMIT).expect("begun");
        assert!(beside.begin(shell("true"), LIMIT).is_err());
        assert_eq!(beside.end().expect("a result").code, Some(0));
        assert!(beside.end().is_err());
    }
}
