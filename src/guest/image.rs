//! The guest's image: kernel and RAM disk, made by vm-scripts/build-guest when it is missing.
//!
//! The script is part of this binary, so a tool and its image cannot be of two versions: the image's
//! key is a digest of the script.

use crate::guest::cache::digest_of_file;
use crate::guest::config::Suite;
use crate::guest::error::GuestError;
use crate::guest::process::{last_lines, spawn_bound, wait_or_stop};
use crate::guest::progress::{Progress, Watch};
use crate::guest::run_folder::RunFolder;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

const SCRIPT: &str = include_str!("../../vm-scripts/build-guest");
/// The script's exit code for an image that is not there.
const NOT_BUILT: i32 = 10;
/// Lines of the script's words that an error shows.
const TAIL_LINES: usize = 40;

/// A complete image.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is made of: the text of its guest.json.
    pub facts: String,
    /// Digest of guest.json, which holds the digests of all other files.
    pub digest: String,
}

impl Image {
    /// Finds the image of a suite, or builds it, which takes minutes.
    pub fn ensure(suite: Suite, cache: &Path, watch: &Watch) -> Result<Image, GuestError> {
        let work = RunFolder::new()?;
        let script = work.path().join("build-guest");
        std::fs::write(&script, SCRIPT).map_err(GuestError::file("write", &script))?;
        let call = Call { script: &script, suite, cache };
        if let Some(folder) = call.find()? {
            return Image::open(folder);
        }
        watch.stage(format!("building the guest image ({}), once", suite.name()));
        Image::open(call.build(watch)?)
    }

    fn open(folder: PathBuf) -> Result<Image, GuestError> {
        let path = folder.join("guest.json");
        let facts = std::fs::read_to_string(&path).map_err(GuestError::file("read", &path))?;
        Ok(Image { digest: digest_of_file(&path)?, facts, folder })
    }

    /// The kernel.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The archives of the RAM disk.
    pub fn archives(&self, bench: bool) -> Vec<PathBuf> {
        let names = if bench { &["initramfs.cpio", "bench.cpio"][..] } else { &["initramfs.cpio"] };
        names.iter().map(|name| self.folder.join(name)).collect()
    }

    /// A fact of guest.json by its name, such as `kernel_release` or `zfs_version`.
    pub fn fact(&self, name: &str) -> Option<String> {
        let facts: Value = serde_json::from_str(&self.facts).ok()?;
        facts.get(name)?.as_str().map(str::to_owned)
    }
}

struct Call<'a> {
    script: &'a Path,
    suite: Suite,
    cache: &'a Path,
}

impl Call<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new("bash");
        command.arg(self.script).args(["--suite", self.suite.name(), "--cache"]).arg(self.cache);
        command.stdin(Stdio::null());
        command
    }

    /// The folder of the image if it is complete.
    fn find(&self) -> Result<Option<PathBuf>, GuestError> {
        let output = self.command().arg("--print-dir").output();
        let output = output.map_err(GuestError::file("run", self.script))?;
        let folder = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        match output.status.code() {
            Some(0) => Ok(Some(folder.into())),
            Some(NOT_BUILT) => Ok(None),
            _ => Err(failed(&output.status, &String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn build(&self, watch: &Watch) -> Result<PathBuf, GuestError> {
        let mut command = self.command();
        command.env("PLUGPULL_PROGRESS", "lines");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn_bound(command).map_err(GuestError::file("run", self.script))?;
        let words = forward(child.stderr.take(), watch.clone());
        let stdout = child.stdout.take();
        let folder = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.map(|mut pipe| pipe.read_to_string(&mut text));
            text
        });
        let ended = wait_or_stop(&mut child, watch);
        let (said, folder) = (joined(words), joined(folder));
        let status = ended.map_err(GuestError::file("wait for", self.script))?;
        watch.check()?;
        if !status.success() {
            return Err(failed(&status, &said));
        }
        Ok(folder.trim_end().into())
    }
}

fn joined(thread: JoinHandle<String>) -> String {
    thread.join().unwrap_or_default()
}

fn failed(status: &std::process::ExitStatus, said: &str) -> GuestError {
    let (how, said) = (status.to_string(), last_lines(said, TAIL_LINES));
    GuestError::Command { command: "build-guest".into(), how, said }
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
    fn the_script_knows_each_suite_and_says_that_no_image_is_in_an_empty_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("build-guest");
        std::fs::write(&script, SCRIPT).expect("written");
        for suite in [Suite::Bookworm, Suite::Trixie, Suite::TrixieBackports] {
            let call = Call { script: &script, suite, cache: folder.path() };
            assert_eq!(call.find().expect("an answer"), None, "{}", suite.name());
        }
    }

    #[test]
    fn a_script_that_fails_is_an_error_with_its_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("build-guest");
        std::fs::write(&script, "echo 'build-guest: error: no space' >&2; exit 1")
            .expect("written");
        let call = Call { script: &script, suite: Suite::Trixie, cache: folder.path() };
        let error = call.build(&Watch::silent()).expect_err("it fails").to_string();
        assert!(error.contains("no space"), "{error}");
    }
}
