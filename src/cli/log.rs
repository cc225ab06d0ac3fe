//! `plugpull log`: traces to and from the format of the kernel's dm-log-writes.

use super::args::{LogArgs, LogWhat};
use super::progress::{print, say};
use crate::disk::log_writes;
use crate::stack::scenario::PlainFs;
use crate::trace::TraceEnd;
use crate::trial::folder::RunDir;
use crate::trial::import::{ImportOptions, import};
use anyhow::{Context, Result};
use std::path::Path;

/// Exports or imports. Returns the exit code.
pub fn run(args: LogArgs) -> Result<u8> {
    match args.what {
        LogWhat::Export { from, to } => {
            let trace = if from.is_dir() { RunDir::open(&from).trace() } else { from };
            let done = log_writes::export(&trace, &to)?;
            let log_writes::Exported {
                entries,
                writes,
                discards,
                flushes,
                marks,
                unflushed,
                end,
                ..
            } = done;
            if let TraceEnd::CutShort { .. } = end {
                say(&format!("plugpull: {}: {end}; what lies before is exported", trace.display()));
            }
            print(&format!(
                "{}: {entries} entries: {writes} writes, {discards} discards, {flushes} flushes, \
                 {marks} marks; {unflushed} of them were never durable\n",
                to.display()
            ))?;
        }
        LogWhat::Import { log, fs, begins, disk_mib, runs } => {
            let bytes = |mib: u64| mib.checked_mul(1 << 20).context("--disk-mib is too large");
            let disk_bytes = disk_mib.map(bytes).transpose()?;
            let fs = PlainFs::from(fs);
            let options = ImportOptions { log, fs, begins_at: begins, disk_bytes, runs };
            let (folder, done) = import(&options)?;
            print(&said(folder.path(), &done))?;
        }
    }
    Ok(0)
}

fn said(folder: &Path, done: &log_writes::Imported) -> String {
    let log_writes::Imported { entries, writes, discards, flushes, marks, messages, .. } = done;
    let folder = folder.display();
    format!(
        "{folder}: {entries} entries: {writes} writes, {discards} discards, {flushes} flushes, \
         {marks} marks, {messages} messages\nnow: plugpull explore {folder} --in host\n"
    )
}
