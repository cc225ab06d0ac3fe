//! The log of dm-log-writes, as an earlier version wrote it.

use plugpull::disk::log_writes::{export, import};
use plugpull::disk::{DiskLog, LOAD_BEGINS};
use plugpull::trace::{Command, Entry};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

#[test]
fn a_log_of_version_1_is_written_and_read_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let exported = export(&fixture("disk_trace_v1.bin"), &log).expect("exported");
    assert_eq!((exported.writes, exported.flushes, exported.unflushed), (1, 1, 0));
    let kept = std::fs::read(fixture("dm_log_writes_v1.bin")).expect("the fixture");
    assert!(std::fs::read(&log).expect("the log") == kept, "the format changed");

    let trace = folder.path().join("trace");
    let imported = import(&fixture("dm_log_writes_v1.bin"), &trace, None).expect("imported");
    assert_eq!((imported.disk_bytes, imported.messages, imported.marks), (1 << 20, 1, 1));
    let mut said = Vec::new();
    let read = DiskLog::read(&trace, |_, entry| {
        if let Entry::Note(_) | Entry::Message(_) | Entry::Cut(_) = entry {
            said.push(format!("{entry:?}"));
        }
    });
    let read = read.expect("a trace");
    let message = "Message([98, 101, 102, 111, 114, 101])";
    assert_eq!(said, [r#"Note("{\"seed\":1}")"#, message, r#"Cut("by the test")"#]);
    let requests: Vec<_> = (read.requests.iter())
        .map(|request| (request.command(), request.fua(), request.offset(), request.bytes()))
        .collect();
    assert_eq!(requests, [(Command::Write, true, 1024, 512), (Command::Flush, false, 0, 0)]);
    assert!(read.mark(LOAD_BEGINS).is_some());
}
