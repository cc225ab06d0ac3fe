//! The scripts of vm-scripts that build images, called: found or built, with their progress passed on.
//!
//! A script is part of this binary, so a tool and its images cannot be of two versions: an image's key
//! is a digest of its script.

use crate::guest::config::Suite;
use crate::guest::error::GuestError;
use crate::guest::process::{last_lines, spawn_bound, wait_or_stop};
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// A script's exit code for an image that is not there.
const NOT_BUILT: i32 = 10;
/// Lines of a script's words that an error shows.
const TAIL_LINES: usize = 40;

/// A script that builds an image, with the scripts that it needs beside it.
#[derive(Debug, Clone, Copy)]
pub struct BuildScript {
    /// Names and texts; the first one is run.
    pub files: &'static [(&'static str, &'static str)],
    /// What it builds, as words.
    pub builds: &'static str,
}

impl BuildScript {
    /// The folder of the image of a suite. If it is not there it is built, which takes minutes.
    pub fn ensure(&self, suite: Suite, cache: &Path, watch: &Watch) -> Result<PathBuf, GuestError> {
        let work = RunFolder::new()?;
        let call = self.call(work.path(), suite, cache)?;
        if let Some(folder) = call.find()? {
            return Ok(folder);
        }
        watch.stage(format!("building {} ({}), once", self.builds, suite.name()));
        call.build(watch)
    }

    /// Writes the scripts to a folder.
    fn call<'a>(
        &self,
        folder: &Path,
        suite: Suite,
        cache: &'a Path,
    ) -> Result<Call<'a>, GuestError> {
        for (name, text) in self.files {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(GuestError::file("write", &path))?;
        }
        let name = self.files[0].0;
        Ok(Call { name, script: folder.join(name), suite, cache })
    }
}

struct Call<'a> {
    name: &'static str,
    script: PathBuf,
    suite: Suite,
    cache: &'a Path,
}

impl Call<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new("bash");
        command.arg(&self.script).args(["--suite", self.suite.name(), "--cache"]).arg(self.cache);
        command.stdin(Stdio::null());
        command
    }

    /// The folder of the image if it is complete.
    fn find(&self) -> Result<Option<PathBuf>, GuestError> {
        let output = self.command().arg("--print-dir").output();
        let output = output.map_err(GuestError::file("run", &self.script))?;
        let folder = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        match output.status.code() {
            Some(0) => Ok(Some(folder.into())),
            Some(NOT_BUILT) => Ok(None),
            _ => Err(self.failed(&output.status, &String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn build(&self, watch: &Watch) -> Result<PathBuf, GuestError> {
        let mut command = self.command();
        command.env("PLUGPULL_PROGRESS", "lines");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn_bound(command).map_err(GuestError::file("run", &self.script))?;
        let words = forward(child.stderr.take(), watch.clone());
        let stdout = child.stdout.take();
        let folder = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.map(|mut pipe| pipe.read_to_string(&mut text));
            text
        });
        let ended = wait_or_stop(&mut child, watch);
        let (said, folder) = (joined(words), joined(folder));
        let status = ended.map_err(GuestError::file("wait for", &self.script))?;
        watch.check()?;
        if !status.success() {
            return Err(self.failed(&status, &said));
        }
        Ok(folder.trim_end().into())
    }

    fn failed(&self, status: &ExitStatus, said: &str) -> GuestError {
        let (how, said) = (status.to_string(), last_lines(said, TAIL_LINES));
        GuestError::Command { command: self.name.into(), how, said }
    }
}

fn joined(thread: JoinHandle<String>) -> String {
    thread.join().unwrap_or_default()
}

/// Passes the script's progress on, and returns all else that it said.
fn forward(pipe: Option<impl Read + Send + 'static>, watch: Watch) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut said = String::new();
        let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
        for line in lines.map_while(Result::ok) {
            match progress_of(&line) {
                Some(progress) => watch.tell(progress),
                None => said.extend([&line, "\n"]),
            }
        }
        said
    })
}

/// The progress in a line of the script: `@progress<TAB>stage<TAB>done<TAB>total<TAB>text`.
fn progress_of(line: &str) -> Option<Progress> {
    let mut fields = line.strip_prefix("@progress\t")?.splitn(4, '\t');
    Some(Progress::Part {
        stage: fields.next()?.to_owned(),
        done: fields.next()?.parse().ok()?,
        total: fields.next()?.parse().ok()?,
        text: fields.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{full_root, image};

    #[test]
    fn a_progress_line_is_taken_apart_and_any_other_is_words() {
        let part = Progress::Part {
            stage: "compile".into(),
            done: 12,
            total: 300,
            text: "OpenZFS\twith a tab".into(),
        };
        assert_eq!(progress_of("@progress\tcompile\t12\t300\tOpenZFS\twith a tab"), Some(part));
        for words in ["build-guest: error: no space", "@progress\tcompile\tx\t1\t", "@progress"] {
            assert_eq!(progress_of(words), None, "{words}");
        }
    }

    #[test]
    fn each_script_knows_each_suite_and_says_that_no_image_is_in_an_empty_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        for script in [image::SCRIPT, full_root::SCRIPT] {
            for suite in [Suite::Bookworm, Suite::Trixie, Suite::TrixieBackports] {
                let call = script.call(folder.path(), suite, folder.path()).expect("written");
                assert_eq!(call.find().expect("an answer"), None, "{}", suite.name());
            }
        }
    }

    #[test]
    fn a_script_that_fails_is_an_error_with_its_words_and_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        const FILES: &[(&str, &str)] =
            &[("build-it", "echo 'build-it: error: no space' >&2; exit 1")];
        let script = BuildScript { files: FILES, builds: "it" };
        let call = script.call(folder.path(), Suite::Trixie, folder.path()).expect("written");
        let error = call.build(&Watch::silent()).expect_err("it fails").to_string();
        assert!(error.contains("`build-it` failed") && error.contains("no space"), "{error}");
    }
}
