//! Any bytes as what an NBD client sends: its connection ends, and the server goes on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plugpull::disk::{DiskConfig, DiskServer, Timing};
use plugpull::trace::{Recorder, TraceHeader};
use plugpull::units::RunId;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use tempfile::TempDir;

static SERVER: LazyLock<(TempDir, DiskServer)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = TraceHeader::now(RunId([1; 16]), 1 << 20);
    let recorder = Recorder::create(&folder.path().join("trace"), &header).expect("a trace");
    let socket = folder.path().join("disk.sock");
    let config = DiskConfig { socket, base: None, timing: Timing::default() };
    let (server, events) = DiskServer::start(config, recorder).expect("a server");
    // Nobody reads them, but the server may send.
    std::mem::forget(events);
    (folder, server)
});

fuzz_target!(|bytes: &[u8]| {
    let socket = SERVER.0.path().join("disk.sock");
    let mut client = UnixStream::connect(socket).expect("the server listens");
    // A client that is given up early cannot send all.
    let _ = client.write_all(bytes);
    let _ = client.shutdown(Shutdown::Write);
    let _ = client.read_to_end(&mut Vec::new());
});
