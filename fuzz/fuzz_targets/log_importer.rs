//! Any file as a log of dm-log-writes: it makes a trace that can be read and exported again, or none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plugpull::disk::{DiskLog, log_writes};

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (log, trace) = (folder.path().join("log"), folder.path().join("trace"));
    std::fs::write(&log, bytes).expect("written");
    match log_writes::import(&log, &trace, None) {
        Ok(_) => {
            DiskLog::read(&trace, |_, _| {}).expect("a trace");
            log_writes::export(&trace, &folder.path().join("again")).expect("exported");
        }
        Err(_) => assert!(!trace.exists()),
    }
});
