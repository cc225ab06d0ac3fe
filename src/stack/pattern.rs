//! What a scenario says of a stream: its pattern, and the words that belong to that pattern.

use super::check::{Unsound, unsound, within};
use crate::script::check::BadScript;
use crate::script::content::FILE_BYTES_MAX;
use crate::script::op::WORD_BYTES;
use crate::script::spec::{Forced, ScriptSpec};
use crate::workload::plan::{ExecSpec, Journal, Pattern, SqliteSpec, Synchronous};
use serde::{Deserialize, Serialize};

/// One or several equal streams. Which words a pattern has is in `PatternName::words`; any other is
/// refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// What it does.
    pub pattern: PatternName,
    /// Operations a second; without it as fast as they go.
    #[serde(default)]
    pub pace_hz: Option<u32>,
    /// How many such streams.
    #[serde(default = "one")]
    pub count: u32,
    /// Records, or blocks, in the file.
    #[serde(default)]
    pub slots: Option<u32>,
    /// Bytes of one write; with it, or with `forced`, blocks are written and not records.
    #[serde(default)]
    pub block_bytes: Option<u64>,
    /// How each block is made durable.
    #[serde(default)]
    pub forced: Option<Forced>,
    /// Names of files in each folder of a random script.
    #[serde(default)]
    pub names: Option<u32>,
    /// No file of a random script grows beyond this many bytes.
    #[serde(default)]
    pub file_bytes: Option<u64>,
    /// A random script syncs about every so many operations.
    #[serde(default)]
    pub sync_every: Option<u32>,
    /// Operations in each sequence of an exhaustive script.
    #[serde(default)]
    pub length: Option<u32>,
    /// The operations of a listed script, one a line.
    #[serde(default)]
    pub operations: Option<Vec<String>>,
    /// How many of them belong to the set-up.
    #[serde(default)]
    pub set_up_operations: Option<u64>,
    /// Files of a package.
    #[serde(default)]
    pub files: Option<u32>,
    /// dpkg's --force-unsafe-io.
    #[serde(default)]
    pub unsafe_io: Option<bool>,
    /// SQLite's journal mode.
    #[serde(default)]
    pub journal: Option<Journal>,
    /// SQLite's degree of durability.
    #[serde(default)]
    pub synchronous: Option<Synchronous>,
    /// The program's set-up.
    #[serde(default)]
    pub set_up: Option<Vec<String>>,
    /// The program.
    #[serde(default)]
    pub run: Option<Vec<String>>,
    /// The program that says what survived.
    #[serde(default)]
    pub survivors: Option<Vec<String>>,
    /// Whether they run in the fuller guest root.
    #[serde(default)]
    pub full_root: Option<bool>,
}

fn one() -> u32 {
    1
}

/// Patterns by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternName {
    /// At the end of a file.
    Append,
    /// Random slots of a file.
    Overwrite,
    /// A new file renamed over the old one.
    Replace,
    /// Seeded operations of every kind.
    Files,
    /// Every short sequence of operations.
    FilesExhaustive,
    /// Operations that the scenario lists.
    FilesListed,
    /// What dpkg does.
    PackageInstall,
    /// Transactions of a SQLite database.
    Sqlite,
    /// A program of the user's own.
    Exec,
}

impl PatternName {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            PatternName::Append => "append",
            PatternName::Overwrite => "overwrite",
            PatternName::Replace => "replace",
            PatternName::Files => "files",
            PatternName::FilesExhaustive => "files-exhaustive",
            PatternName::FilesListed => "files-listed",
            PatternName::PackageInstall => "package-install",
            PatternName::Sqlite => "sqlite",
            PatternName::Exec => "exec",
        }
    }

    /// The words that mean something for it, beside `pace_hz` and `count`.
    fn words(self) -> &'static [&'static str] {
        match self {
            PatternName::Append => &["block_bytes", "forced"],
            PatternName::Overwrite => &["slots", "block_bytes", "forced"],
            PatternName::Replace => &[],
            PatternName::Files => &["names", "file_bytes", "sync_every"],
            PatternName::FilesExhaustive => &["length"],
            PatternName::FilesListed => &["operations", "set_up_operations"],
            PatternName::PackageInstall => &["files", "unsafe_io"],
            PatternName::Sqlite => &["journal", "synchronous"],
            PatternName::Exec => &["set_up", "run", "survivors", "full_root"],
        }
    }
}

impl StreamSpec {
    /// One stream of this pattern, unpaced, with what the pattern takes by itself.
    pub fn of(pattern: PatternName) -> StreamSpec {
        StreamSpec {
            pattern,
            pace_hz: None,
            count: 1,
            slots: None,
            block_bytes: None,
            forced: None,
            names: None,
            file_bytes: None,
            sync_every: None,
            length: None,
            operations: None,
            set_up_operations: None,
            files: None,
            unsafe_io: None,
            journal: None,
            synchronous: None,
            set_up: None,
            run: None,
            survivors: None,
            full_root: None,
        }
    }

    /// The pattern of the plan.
    pub(super) fn pattern(&self) -> Pattern {
        let block_bytes = self.block_bytes.unwrap_or(4096);
        let blocks = self.block_bytes.is_some() || self.forced.is_some();
        let forced = self.forced.unwrap_or_default();
        let slots = self.slots.unwrap_or(1);
        match self.pattern {
            PatternName::Append if blocks => {
                Pattern::Script(ScriptSpec::Append { block_bytes, forced })
            }
            PatternName::Overwrite if blocks => {
                Pattern::Script(ScriptSpec::Overwrite { slots, block_bytes, forced })
            }
            PatternName::Append => Pattern::Append,
            PatternName::Overwrite => Pattern::Overwrite { slots },
            PatternName::Replace => Pattern::Replace,
            PatternName::Files => Pattern::Script(ScriptSpec::Random {
                names: self.names.unwrap_or(6),
                file_bytes: self.file_bytes.unwrap_or(64 << 10),
                sync_every: self.sync_every.unwrap_or(5),
            }),
            PatternName::FilesExhaustive => {
                Pattern::Script(ScriptSpec::Exhaustive { operations: self.length.unwrap_or(1) })
            }
            PatternName::FilesListed => Pattern::Script(ScriptSpec::Listed {
                operations: self.operations.clone().unwrap_or_default(),
                fill: self.set_up_operations.unwrap_or(0),
            }),
            PatternName::PackageInstall => Pattern::Script(ScriptSpec::PackageInstall {
                files: self.files.unwrap_or(6699),
                unsafe_io: self.unsafe_io.unwrap_or(false),
            }),
            PatternName::Sqlite => Pattern::Sqlite(SqliteSpec {
                journal: self.journal.unwrap_or(Journal::Wal),
                synchronous: self.synchronous.unwrap_or(Synchronous::Full),
            }),
            PatternName::Exec => Pattern::Exec(ExecSpec {
                set_up: self.set_up.clone().unwrap_or_default(),
                run: self.run.clone().unwrap_or_default(),
                survivors: self.survivors.clone().unwrap_or_default(),
                full_root: self.full_root.unwrap_or(false),
            }),
        }
    }

    /// The words that were given.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("slots", self.slots.is_some()),
            ("block_bytes", self.block_bytes.is_some()),
            ("forced", self.forced.is_some()),
            ("names", self.names.is_some()),
            ("file_bytes", self.file_bytes.is_some()),
            ("sync_every", self.sync_every.is_some()),
            ("length", self.length.is_some()),
            ("operations", self.operations.is_some()),
            ("set_up_operations", self.set_up_operations.is_some()),
            ("files", self.files.is_some()),
            ("unsafe_io", self.unsafe_io.is_some()),
            ("journal", self.journal.is_some()),
            ("synchronous", self.synchronous.is_some()),
            ("set_up", self.set_up.is_some()),
            ("run", self.run.is_some()),
            ("survivors", self.survivors.is_some()),
            ("full_root", self.full_root.is_some()),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(word, _)| word)
    }

    /// Refuses what cannot be carried out. `streams_max` is the most streams of a scenario.
    pub(super) fn check(&self, place: &str, streams_max: u32) -> Result<(), Unsound> {
        let words = self.pattern.words();
        if let Some(word) = self.given().find(|word| !words.contains(word)) {
            let name = self.pattern.name();
            let problem = match words {
                [] => format!("{name} has no {word}, nor any word of its own"),
                words => format!("{name} has no {word}; its own words are {}", words.join(", ")),
            };
            return unsound(place, problem);
        }
        self.check_pattern(place)?;
        match (self.pace_hz, self.count) {
            (Some(100_001..), _) => {
                unsound(place, "pace_hz is at most 100000; leave it out for full speed")
            }
            (_, count) if count > streams_max => {
                unsound(place, format!("count is {count}; at most {streams_max} streams"))
            }
            (Some(0), _) => {
                unsound(place, "pace_hz 0 would never write; leave it out for full speed")
            }
            (_, 0) => unsound(place, "count is 0"),
            _ => Ok(()),
        }
    }

    fn check_pattern(&self, place: &str) -> Result<(), Unsound> {
        if let Some(bytes) = self.block_bytes {
            within(&format!("{place}.block_bytes"), bytes as f64, 512.0, 1_048_576.0)?;
            if bytes % 512 != 0 {
                return unsound(place, "block_bytes must be a multiple of 512");
            }
        }
        match self.pattern() {
            Pattern::Overwrite { .. } if !matches!(self.slots, Some(1..=1_048_576)) => {
                unsound(place, "overwrite needs slots within 1 to 1048576")
            }
            Pattern::Script(script) => check_script(place, &script, self.slots.is_some()),
            Pattern::Exec(exec) => check_exec(place, &exec),
            Pattern::Append | Pattern::Overwrite { .. } | Pattern::Replace | Pattern::Sqlite(_) => {
                Ok(())
            }
        }
    }
}

fn check_script(place: &str, script: &ScriptSpec, has_slots: bool) -> Result<(), Unsound> {
    let field = |name: &str| format!("{place}.{name}");
    match script {
        ScriptSpec::Overwrite { slots, block_bytes, .. } => {
            let bytes = u64::from(*slots).saturating_mul(*block_bytes);
            if !has_slots || *slots == 0 || bytes > FILE_BYTES_MAX {
                let most = FILE_BYTES_MAX / block_bytes.max(&1);
                let problem =
                    format!("blocks of {block_bytes} bytes need slots within 1 to {most}");
                return unsound(field("slots"), problem);
            }
            Ok(())
        }
        ScriptSpec::Random { names, file_bytes, sync_every } => {
            within(&field("names"), f64::from(*names), 1.0, 64.0)?;
            within(&field("file_bytes"), *file_bytes as f64, 4096.0, 1_048_576.0)?;
            if file_bytes % WORD_BYTES != 0 {
                return unsound(field("file_bytes"), "must be a multiple of 8");
            }
            within(&field("sync_every"), f64::from(*sync_every), 1.0, 1_000.0)
        }
        ScriptSpec::Exhaustive { operations } => {
            within(&field("length"), f64::from(*operations), 1.0, 2.0)
        }
        ScriptSpec::Listed { operations, .. } if operations.is_empty() => {
            unsound(field("operations"), "there is none, so nothing would be tried")
        }
        ScriptSpec::Listed { .. } => match script.check() {
            Err(bad @ BadScript::Fill { .. }) => {
                unsound(field("set_up_operations"), bad.to_string())
            }
            Err(bad) => unsound(place, bad.to_string()),
            Ok(()) => Ok(()),
        },
        ScriptSpec::PackageInstall { files, .. } => {
            within(&field("files"), f64::from(*files), 1.0, 100_000.0)
        }
        ScriptSpec::Append { .. } => Ok(()),
    }
}

fn check_exec(place: &str, exec: &ExecSpec) -> Result<(), Unsound> {
    for (word, argv) in [("run", &exec.run), ("survivors", &exec.survivors)] {
        if argv.is_empty() {
            let problem = "names no program; give a list of a program and its arguments";
            return unsound(format!("{place}.{word}"), problem);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: fn(&mut StreamSpec), pattern: PatternName) -> String {
        let mut spec = StreamSpec::of(pattern);
        change(&mut spec);
        spec.check("dataset.x.stream[0]", 16).expect_err("refused").to_string()
    }

    #[test]
    fn a_word_of_another_pattern_is_refused_with_the_words_that_would_be_right() {
        let slots = refused(|spec| spec.slots = Some(4), PatternName::Append);
        assert!(slots.contains("no slots") && slots.contains("block_bytes"), "{slots}");
        let files = refused(|spec| spec.files = Some(4), PatternName::Replace);
        assert!(files.contains("no files"), "{files}");
        let control = StreamSpec { files: Some(4), ..StreamSpec::of(PatternName::PackageInstall) };
        assert_eq!(control.check("x", 16), Ok(()));
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused_with_its_place() {
        let odd = refused(|spec| spec.block_bytes = Some(700), PatternName::Append);
        assert!(odd.contains("multiple of 512"), "{odd}");
        let big = refused(|spec| spec.block_bytes = Some(2 << 20), PatternName::Append);
        assert!(big.contains("block_bytes"), "{big}");
        let slots = |spec: &mut StreamSpec| {
            (spec.slots, spec.block_bytes) = (Some(1_000), Some(1 << 20));
        };
        let slots = refused(slots, PatternName::Overwrite);
        assert!(slots.contains("slots within 1 to 128"), "{slots}");
        assert!(refused(|_| {}, PatternName::Overwrite).contains("slots"));
        assert!(refused(|_| {}, PatternName::Exec).contains("run"));
        assert!(refused(|_| {}, PatternName::FilesListed).contains("operations"));
        assert!(
            refused(|spec| spec.length = Some(3), PatternName::FilesExhaustive).contains("length")
        );
        assert!(refused(|spec| spec.count = 17, PatternName::Append).contains("at most 16"));
    }

    #[test]
    fn a_listed_script_is_refused_with_its_line_and_what_would_be_right() {
        let lines = |lines: &[&str]| Some(lines.iter().map(|line| (*line).to_owned()).collect());
        let spec =
            |operations| StreamSpec { operations, ..StreamSpec::of(PatternName::FilesListed) };
        let refused = |spec: StreamSpec| spec.check("x", 16).expect_err("refused").to_string();
        let form = refused(spec(lines(&["create a", "write a 0"])));
        assert!(form.contains("line 2") && form.contains("OFFSET LEN"), "{form}");
        assert!(refused(spec(lines(&["unlink a"]))).contains("no such name"));
        let good = spec(lines(&["create a", "fsync a"]));
        assert_eq!(good.check("x", 16), Ok(()), "control");
        let fill = refused(StreamSpec { set_up_operations: Some(3), ..good });
        assert!(fill.contains("set_up_operations"), "{fill}");
    }

    #[test]
    fn blocks_are_written_only_where_their_size_or_forcing_is_given() {
        assert_eq!(StreamSpec::of(PatternName::Append).pattern(), Pattern::Append);
        let forced = Some(Forced::ODirect);
        let blocks = StreamSpec { forced, ..StreamSpec::of(PatternName::Append) }.pattern();
        let script = ScriptSpec::Append { block_bytes: 4096, forced: Forced::ODirect };
        assert_eq!(blocks, Pattern::Script(script));
    }
}
