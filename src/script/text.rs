//! Operations as text, one a line, as listed scripts and minimal failing scripts are written.
//!
//! `create a`, `write a 0 4096 direct`, `rename a b`: a word for the call, then what it takes. What
//! always holds: an operation's text reads back as that operation.

use super::generate::names::Names;
use super::op::{FallocateHow, Op, PathId, Paths, SyncHow, WriteHow};

/// The stream's own folder in text.
const ROOT: &str = ".";

/// Each word with what follows it.
const FORMS: [&str; 17] = [
    "mkdir PATH",
    "rmdir PATH",
    "create PATH",
    "write PATH OFFSET LEN [dsync|sync|direct|mapped]",
    "truncate PATH SIZE",
    "fallocate PATH OFFSET LEN allocate|keep-size|punch-hole|zero-range",
    "rename FROM TO",
    "link FROM TO",
    "symlink TARGET AT",
    "unlink PATH",
    "copy FROM TO OFFSET LEN",
    "fsync PATH",
    "fdatasync PATH",
    "msync PATH",
    "sync-file-range PATH",
    "fsync-dir PATH",
    "syncfs",
];

/// Why a text is no script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// No such operation.
    #[error("line {line}: there is no operation {word:?}; there are {}", words())]
    Word {
        /// Which line, from 1.
        line: usize,
        /// Its first word.
        word: String,
    },
    /// It does not have what it takes.
    #[error("line {line}: {text:?} is not like {form:?}")]
    Form {
        /// Which line, from 1.
        line: usize,
        /// As it was written.
        text: String,
        /// What would be right.
        form: &'static str,
    },
    /// A path that leaves the stream's folder, or is none.
    #[error("line {line}: {path:?} must be relative, without \"..\" and empty parts")]
    Path {
        /// Which line, from 1.
        line: usize,
        /// As it was written.
        path: String,
    },
    /// It would fail.
    #[error("line {line}: {text:?} would fail: {why}")]
    WouldFail {
        /// Which line, from 1.
        line: usize,
        /// As it was written.
        text: String,
        /// Why.
        why: &'static str,
    },
}

fn words() -> String {
    let words: Vec<&str> = FORMS.iter().map(|form| word_of(form)).collect();
    words.join(", ")
}

fn word_of(form: &str) -> &str {
    form.split(' ').next().unwrap_or(form)
}

/// Reads a script, and refuses one with an operation that would fail.
pub fn parse(lines: &[String], paths: &mut Paths) -> Result<Vec<Op>, TextError> {
    let mut names = Names::default();
    let mut ops = Vec::new();
    for (line, text) in (1..).zip(lines) {
        let op = parse_line(line, text, paths)?;
        let would_fail = |why| TextError::WouldFail { line, text: text.clone(), why };
        names.check(&op, paths).map_err(would_fail)?;
        names.apply(&op, paths);
        ops.push(op);
    }
    Ok(ops)
}

/// Reads one operation.
pub fn parse_op(text: &str, paths: &mut Paths) -> Result<Op, TextError> {
    parse_line(1, text, paths)
}

fn parse_line(line: usize, text: &str, paths: &mut Paths) -> Result<Op, TextError> {
    let mut words = text.split_whitespace();
    let word = words.next().unwrap_or_default();
    let form = FORMS.into_iter().find(|form| word_of(form) == word);
    let form = form.ok_or_else(|| TextError::Word { line, word: word.to_owned() })?;
    let mut rest = Rest { line, words, paths, bad_path: None };
    let op = rest.op(word).filter(|_| rest.words.next().is_none());
    if let Some(error) = rest.bad_path {
        return Err(error);
    }
    op.ok_or_else(|| TextError::Form { line, text: text.to_owned(), form })
}

/// The words behind the first.
struct Rest<'a> {
    line: usize,
    words: std::str::SplitWhitespace<'a>,
    paths: &'a mut Paths,
    bad_path: Option<TextError>,
}

impl Rest<'_> {
    fn op(&mut self, word: &str) -> Option<Op> {
        Some(match word {
            "mkdir" => Op::Mkdir(self.path()?),
            "rmdir" => Op::Rmdir(self.path()?),
            "create" => Op::Create(self.path()?),
            "unlink" => Op::Unlink(self.path()?),
            "write" => Op::Write {
                path: self.path()?,
                offset: self.number()?,
                len: self.number()?,
                how: self.write_how()?,
            },
            "truncate" => Op::Truncate { path: self.path()?, size: self.number()? },
            "fallocate" => Op::Fallocate {
                path: self.path()?,
                offset: self.number()?,
                len: self.number()?,
                how: self.fallocate_how()?,
            },
            "rename" => Op::Rename { from: self.path()?, to: self.path()? },
            "link" => Op::Link { from: self.path()?, to: self.path()? },
            "symlink" => Op::Symlink { target: self.path()?, at: self.path()? },
            "copy" => Op::Copy {
                from: self.path()?,
                to: self.path()?,
                offset: self.number()?,
                len: self.number()?,
            },
            "syncfs" => Op::Sync { path: self.paths.intern(""), how: SyncHow::Syncfs },
            other => Op::Sync { path: self.path()?, how: sync_how(other)? },
        })
    }

    fn path(&mut self) -> Option<PathId> {
        let path = self.words.next()?;
        if path == ROOT {
            return Some(self.paths.intern(""));
        }
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            let (line, path) = (self.line, path.to_owned());
            self.bad_path.get_or_insert(TextError::Path { line, path });
            return None;
        }
        Some(self.paths.intern(path))
    }

    fn number(&mut self) -> Option<u64> {
        self.words.next()?.parse().ok()
    }

    fn write_how(&mut self) -> Option<WriteHow> {
        let Some(word) = self.words.next() else { return Some(WriteHow::Buffered) };
        let hows = [WriteHow::Dsync, WriteHow::Sync, WriteHow::Direct, WriteHow::Mapped];
        hows.into_iter().find(|how| write_word(*how) == Some(word))
    }

    fn fallocate_how(&mut self) -> Option<FallocateHow> {
        let word = self.words.next()?;
        [
            FallocateHow::Allocate,
            FallocateHow::KeepSize,
            FallocateHow::PunchHole,
            FallocateHow::ZeroRange,
        ]
        .into_iter()
        .find(|how| fallocate_word(*how) == word)
    }
}

/// What is written behind the numbers; nothing for a plain write.
fn write_word(how: WriteHow) -> Option<&'static str> {
    match how {
        WriteHow::Buffered => None,
        WriteHow::Dsync => Some("dsync"),
        WriteHow::Sync => Some("sync"),
        WriteHow::Direct => Some("direct"),
        WriteHow::Mapped => Some("mapped"),
    }
}

fn fallocate_word(how: FallocateHow) -> &'static str {
    match how {
        FallocateHow::Allocate => "allocate",
        FallocateHow::KeepSize => "keep-size",
        FallocateHow::PunchHole => "punch-hole",
        FallocateHow::ZeroRange => "zero-range",
    }
}

fn sync_word(how: SyncHow) -> &'static str {
    match how {
        SyncHow::Fsync => "fsync",
        SyncHow::Fdatasync => "fdatasync",
        SyncHow::Msync => "msync",
        SyncHow::SyncFileRange => "sync-file-range",
        SyncHow::FsyncDir => "fsync-dir",
        SyncHow::Syncfs => "syncfs",
    }
}

fn sync_how(word: &str) -> Option<SyncHow> {
    let of_paths = [
        SyncHow::Fsync,
        SyncHow::Fdatasync,
        SyncHow::Msync,
        SyncHow::SyncFileRange,
        SyncHow::FsyncDir,
    ];
    of_paths.into_iter().find(|how| sync_word(*how) == word)
}

/// An operation's text.
pub fn text(op: &Op, paths: &Paths) -> String {
    let name = |id| match paths.name(id) {
        "" => ROOT,
        name => name,
    };
    match *op {
        Op::Mkdir(path) => format!("mkdir {}", name(path)),
        Op::Rmdir(path) => format!("rmdir {}", name(path)),
        Op::Create(path) => format!("create {}", name(path)),
        Op::Unlink(path) => format!("unlink {}", name(path)),
        Op::Write { path, offset, len, how } => {
            let how = write_word(how).map_or(String::new(), |word| format!(" {word}"));
            format!("write {} {offset} {len}{how}", name(path))
        }
        Op::Truncate { path, size } => format!("truncate {} {size}", name(path)),
        Op::Fallocate { path, offset, len, how } => {
            format!("fallocate {} {offset} {len} {}", name(path), fallocate_word(how))
        }
        Op::Rename { from, to } => format!("rename {} {}", name(from), name(to)),
        Op::Link { from, to } => format!("link {} {}", name(from), name(to)),
        Op::Symlink { target, at } => format!("symlink {} {}", name(target), name(at)),
        Op::Copy { from, to, offset, len } => {
            format!("copy {} {} {offset} {len}", name(from), name(to))
        }
        Op::Sync { how: SyncHow::Syncfs, .. } => "syncfs".to_owned(),
        Op::Sync { path, how } => format!("{} {}", sync_word(how), name(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::spec::ScriptSpec;
    use crate::units::StreamId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_operations_text_reads_back_as_that_operation(seed: u64) {
            let spec = ScriptSpec::Random { names: 3, file_bytes: 65_536, sync_every: 3 };
            let script = spec.script(seed, StreamId(1), 300);
            let lines: Vec<String> = script.ops.iter().map(|op| text(op, &script.paths)).collect();
            let mut paths = script.paths.clone();
            prop_assert_eq!(parse(&lines, &mut paths), Ok(script.ops));
        }

        #[test]
        fn whatever_the_text_is_it_is_an_operation_or_an_error(line in ".{0,60}") {
            let _ = parse_op(&line, &mut Paths::default());
        }
    }

    #[test]
    fn each_form_can_be_written() {
        for line in [
            "mkdir a",
            "rmdir a",
            "create a",
            "write a 0 4096",
            "write a 8 16 mapped",
            "truncate a 8",
            "fallocate a 0 8 punch-hole",
            "rename a b",
            "link a b",
            "symlink a b",
            "unlink a",
            "copy a b 0 8",
            "fsync a",
            "fdatasync a",
            "msync a",
            "sync-file-range a",
            "fsync-dir .",
            "syncfs",
        ] {
            let mut paths = Paths::default();
            let op = parse_op(line, &mut paths).expect(line);
            assert_eq!(text(&op, &paths), line);
        }
    }

    #[test]
    fn an_error_names_the_line_and_what_would_be_right() {
        let refused = |lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            parse(&lines, &mut Paths::default()).expect_err("refused").to_string()
        };
        let word = refused(&["create a", "creat b"]);
        assert!(word.contains("line 2") && word.contains("sync-file-range"), "{word}");
        let form = refused(&["write a 0"]);
        assert!(form.contains("line 1") && form.contains("write PATH OFFSET LEN"), "{form}");
        assert!(refused(&["create a b"]).contains("create PATH"));
        assert!(refused(&["create ../a"]).contains("\"..\""));
        assert!(refused(&["create /a"]).contains("relative"));
        let fails = refused(&["create a", "create a"]);
        assert!(fails.contains("line 2") && fails.contains("taken"), "{fails}");
    }
}
