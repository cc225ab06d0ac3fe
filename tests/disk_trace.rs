//! The trace file: cut short anywhere, damaged anywhere, and as an earlier version wrote it.

use plugpull::disk::{DiskConfig, DiskLog, DiskServer, Timing};
use plugpull::trace::{
    ClockSample, Entry, HEADER_BYTES, Recorder, TraceEnd, TraceError, TraceHeader, TraceReader,
};
use plugpull::units::{GuestNs, LabNs, RunId};
use std::path::Path;

fn header() -> TraceHeader {
    TraceHeader {
        run: RunId([0x5a; 16]),
        disk_bytes: 1 << 20,
        realtime_ns: 1_700_000_000_000_000_000,
        monotonic: LabNs(1_000),
    }
}

/// A trace with an entry of each kind that needs no disk.
fn write_sample(path: &Path) {
    let recorder = Recorder::create(path, &header()).expect("a trace");
    recorder.note("{\"seed\":1}").expect("a note");
    recorder.message(b"before").expect("a message");
    let sample = ClockSample { before: LabNs(5), after: LabNs(9), guest: GuestNs(7) };
    recorder.clock_sample(sample).expect("a sample");
    recorder.mark("load-begins").expect("a mark");
    recorder.cut("by the test").expect("a cut");
    recorder.message(&[7; 300]).expect("a late message");
    recorder.sync().expect("written");
}

/// The entries, as text without their times, and how they end.
fn read(path: &Path) -> (Vec<String>, TraceEnd) {
    let mut reader = TraceReader::open(path).expect("a header");
    let mut entries = Vec::new();
    while let Some((at, entry)) = reader.next_entry().expect("readable") {
        assert_eq!(at.no.0 as usize, entries.len());
        entries.push(match entry {
            Entry::Request(request, payload) => {
                format!("{:?} {} {:?}", request, payload.len(), payload.first())
            }
            other => format!("{other:?}"),
        });
    }
    (entries, reader.end().expect("an end"))
}

#[test]
fn a_trace_cut_at_any_byte_gives_the_whole_entries_before_it_and_says_where_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    write_sample(&path);
    let bytes = std::fs::read(&path).expect("the file");
    let (all, end) = read(&path);
    assert_eq!(end, TraceEnd::Clean { bytes: bytes.len() as u64 });
    assert_eq!(all.len(), 6);
    let mut whole_before = 0;
    for length in HEADER_BYTES..bytes.len() {
        std::fs::write(&path, &bytes[..length]).expect("shortened");
        let (entries, end) = read(&path);
        assert_eq!(entries, all[..entries.len()]);
        assert!(entries.len() >= whole_before);
        whole_before = entries.len();
        match end {
            TraceEnd::Clean { bytes } => assert_eq!(bytes, length as u64),
            TraceEnd::CutShort { at, .. } => {
                assert!(at < length as u64);
                assert!(end.to_string().contains("the file ends inside an entry"), "{end}");
            }
        }
    }
    assert_eq!(whole_before, all.len() - 1);
    for length in 0..HEADER_BYTES {
        std::fs::write(&path, &bytes[..length]).expect("shortened");
        let error = TraceReader::open(&path).expect_err("no header");
        assert!(error.to_string().contains(path.to_str().expect("text")), "{error}");
    }
}

#[test]
fn a_flipped_bit_anywhere_ends_the_trace_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    write_sample(&path);
    let (all, _) = read(&path);
    let bytes = std::fs::read(&path).expect("the file");
    for at in HEADER_BYTES..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bad).expect("damaged");
        let (entries, end) = read(&path);
        assert_eq!(entries, all[..entries.len()]);
        assert!(matches!(end, TraceEnd::CutShort { at: place, .. } if place <= at as u64), "{end}");
    }
}

#[test]
fn late_messages_stand_behind_the_cut_and_the_cut_is_written_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    write_sample(&path);
    let mut messages = Vec::new();
    let log = DiskLog::read(&path, |at, entry| {
        if let Entry::Message(bytes) = entry {
            messages.push((at.no, bytes.len()));
        }
    });
    let log = log.expect("a trace");
    let cut = log.cut.clone().expect("a cut");
    assert_eq!(cut.name, "by the test");
    assert!(messages[0].0 < cut.entry && messages[1].0 > cut.entry, "{messages:?}");
    assert!(log.mark("load-begins").expect("the mark").entry < cut.entry);
}

#[test]
fn a_trace_is_never_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    write_sample(&path);
    let error = Recorder::create(&path, &header()).expect_err("it exists");
    assert!(matches!(error, TraceError::Io { what: "create", .. }), "{error}");
}

#[test]
fn a_trace_of_format_version_1_is_read_for_ever() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/disk_trace_v1.bin");
    let (entries, end) = read(&path);
    let expected = [
        r#"Note("{\"seed\":1}")"#,
        "Message([98, 101, 102, 111, 114, 101])",
        "ClockSample(ClockSample { before: LabNs(5), after: LabNs(9), guest: GuestNs(7) })",
        "Request { no: RequestNo(0), command: Read, fua: false, offset: 0, length: 512 } 0 None",
        "Reply(RequestNo(0), 0)",
        "Request { no: RequestNo(1), command: Write, fua: true, offset: 1024, length: 512 } 512 \
         Some(65)",
        "Reply(RequestNo(1), 0)",
        "Request { no: RequestNo(2), command: Flush, fua: false, offset: 0, length: 0 } 0 None",
        "Reply(RequestNo(2), 0)",
        r#"Mark("load-begins")"#,
        r#"Cut("by the test")"#,
    ];
    assert_eq!(entries, expected);
    assert!(matches!(end, TraceEnd::Clean { .. }), "{end}");
    let header_read = *TraceReader::open(&path).expect("a header").header();
    assert_eq!(header_read, header());
}

#[test]
fn a_disk_refuses_a_socket_in_use_and_replaces_one_that_was_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("disk.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket left behind"));
    let start = |name: &str| {
        let recorder = Recorder::create(&folder.path().join(name), &header()).expect("a trace");
        let timing = Timing::default();
        DiskServer::start(DiskConfig { socket: socket.clone(), base: None, timing }, recorder)
    };
    let first = start("a").expect("the old socket is replaced");
    let error = start("b").map(|_| ()).expect_err("the socket is in use");
    assert!(error.to_string().contains("in use"), "{error}");
    drop(first);
    assert!(!socket.exists());
    start("c").expect("the socket is free again");
}
