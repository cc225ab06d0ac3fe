//! QEMU's monitor protocol: one command, one answer, one JSON object a line.
//!
//! Events may come between the two and are passed over. Each command carries a number, so that an
//! answer that comes after its wait was given up is not taken for the next one's.

use crate::guest::error::GuestError;
use crate::guest::link::{Deadline, Link};
use serde_json::{Value, json};
use std::fs::File;
use std::time::Duration;

/// No line of QEMU's is longer: a longer one is not QEMU's.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A connection to QEMU's monitor.
pub struct Qmp {
    link: Link,
    pending: Vec<u8>,
    number: u64,
}

impl Qmp {
    /// Reads the greeting and leaves the negotiation.
    pub fn new(link: Link, limit: Duration) -> Result<Qmp, GuestError> {
        let mut qmp = Qmp { link, pending: Vec::new(), number: 0 };
        let greeting = qmp.next_object("QEMU's greeting", Deadline::after(limit))?;
        if greeting.get("QMP").is_none() {
            return Err(GuestError::QmpWords(greeting.to_string()));
        }
        qmp.execute("qmp_capabilities", json!({}), limit)?;
        Ok(qmp)
    }

    /// Runs a command and returns what it returned.
    pub fn execute(
        &mut self,
        command: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<Value, GuestError> {
        self.ask(command, arguments, None, limit)
    }

    /// Gives QEMU an open file under a name, for the next command that takes one.
    pub fn give_file(
        &mut self,
        name: &str,
        file: &File,
        limit: Duration,
    ) -> Result<(), GuestError> {
        self.ask("getfd", json!({ "fdname": name }), Some(file), limit).map(drop)
    }

    /// QEMU's run state: `running`, `paused`, `inmigrate`, ...
    pub fn status(&mut self, limit: Duration) -> Result<String, GuestError> {
        let answer = self.execute("query-status", json!({}), limit)?;
        match answer.get("status").and_then(Value::as_str) {
            Some(status) => Ok(status.to_owned()),
            None => Err(GuestError::QmpWords(answer.to_string())),
        }
    }

    fn ask(
        &mut self,
        command: &str,
        arguments: Value,
        file: Option<&File>,
        limit: Duration,
    ) -> Result<Value, GuestError> {
        let (until, waiting) = (Deadline::after(limit), format!("QEMU's answer to {command}"));
        self.number += 1;
        let question = json!({ "execute": command, "arguments": arguments, "id": self.number });
        let line = format!("{question}\n");
        match file {
            None => self.link.send(line.as_bytes(), &waiting, until)?,
            Some(file) => self.link.send_with_file(line.as_bytes(), file, &waiting)?,
        }
        loop {
            let mut answer = self.next_object(&waiting, until)?;
            if answer.get("id").and_then(Value::as_u64) != Some(self.number) {
                continue;
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            let words = answer.pointer("/error/desc").and_then(Value::as_str);
            let words = words.map_or_else(|| answer.to_string(), str::to_owned);
            return Err(GuestError::Qmp { command: command.into(), words });
        }
    }

    fn next_object(&mut self, waiting: &str, until: Deadline) -> Result<Value, GuestError> {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|why| {
                    let line = String::from_utf8_lossy(&line[..line.len().min(200)]);
                    GuestError::QmpWords(format!("{} ({why})", line.trim_end()))
                });
            }
            if self.pending.len() > LINE_BYTES_MAX {
                let words = format!("a line of more than {LINE_BYTES_MAX} bytes");
                return Err(GuestError::QmpWords(words));
            }
            let mut buffer = [0; 4096];
            let count = self.link.receive(&mut buffer, waiting, until)?;
            self.pending.extend_from_slice(&buffer[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::link::testing;
    use std::io::Write;

    const LIMIT: Duration = Duration::from_millis(200);
    const GREETING: &str = "{\"QMP\": {\"version\": {}}}\r\n{\"return\": {}, \"id\": 1}\r\n";

    /// A monitor whose answers were all sent beforehand.
    fn monitor(answers: &str) -> (Result<Qmp, GuestError>, std::os::unix::net::UnixStream) {
        let (link, mut far) = testing::pair();
        far.write_all(answers.as_bytes()).expect("sent");
        (Qmp::new(link, LIMIT), far)
    }

    #[test]
    fn events_and_late_answers_are_passed_over() {
        let (qmp, _far) = monitor(&format!(
            "{GREETING}{{\"event\": \"STOP\"}}\n{{\"return\": 1, \"id\": 1}}\n\
             {{\"return\": {{\"status\": \"running\"}}, \"id\": 2}}\n"
        ));
        assert_eq!(qmp.expect("greeted").status(LIMIT).expect("a status"), "running");
    }

    #[test]
    fn a_refusal_carries_the_words_of_qemu() {
        let refusal =
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such device\"}, \"id\": 2}\n";
        let (qmp, _far) = monitor(&format!("{GREETING}{refusal}"));
        let error = qmp.expect("greeted").execute("device_add", json!({}), LIMIT);
        let text = error.expect_err("refused").to_string();
        assert_eq!(text, "QEMU refused device_add: no such device");
    }

    #[test]
    fn silence_ends_and_rubbish_is_an_error() {
        let (qmp, _far) = monitor(GREETING);
        let error = qmp.expect("greeted").status(LIMIT).expect_err("silent");
        assert!(matches!(error, GuestError::TimedOut { .. }));
        for rubbish in ["hello\n", "{\"QMP\n", "[]\n", "{}\n"] {
            let (qmp, _far) = monitor(rubbish);
            assert!(matches!(qmp.err(), Some(GuestError::QmpWords(_))), "{rubbish}");
        }
    }
}
