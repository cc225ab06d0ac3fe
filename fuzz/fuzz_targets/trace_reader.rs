//! Any file as a trace: it is read up to its last whole entry, and exported or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plugpull::disk::{DiskLog, log_writes};

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("trace");
    std::fs::write(&trace, bytes).expect("written");
    let read = DiskLog::read(&trace, |_, _| {});
    let exported = log_writes::export(&trace, &folder.path().join("log"));
    assert_eq!(read.is_ok(), exported.is_ok(), "{:?} {exported:?}", read.err());
});
