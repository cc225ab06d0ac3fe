//! Exports against a replay of their bytes, imports against the trace that was exported, and logs
//! that are foreign, damaged or wrong.

use super::layout::{DISCARD, FLUSH, FUA, Head, LOG_SECTOR, MARK, Super};
use super::*;
use crate::disk::crash::script::{
    Recorded, Step, UNITS, any_script, flush, fua, record, reply, write,
};
use crate::disk::{CrashModel, DiskLog, DiskRequest, Image, crash_state};
use crate::history::message::{Message, StreamEvent, StreamNote};
use crate::trace::{Command, Entry, EntryNo, Recorder, Request, RequestNo, TraceHeader};
use crate::units::{EventNo, GuestNs, LabNs, RunId, StreamId};
use proptest::prelude::*;
use std::path::Path;
use tempfile::TempDir;

const DISK: usize = UNITS as usize * LOG_SECTOR;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// One entry of a log, read here by hand.
#[derive(Debug, Clone, PartialEq)]
struct Raw {
    sector: u64,
    sectors: u64,
    flags: u64,
    mark: String,
    data: Vec<u8>,
}

fn parse(log: &[u8]) -> Vec<Raw> {
    let word = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!((word(0), word(8)), (0x6a736677736872, 1));
    assert_eq!(log[24..28], 512u32.to_le_bytes());
    let (mut at, mut entries) = (512, Vec::new());
    for _ in 0..word(16) {
        let [sector, sectors, flags, length] = [0, 8, 16, 24].map(|field| word(at + field));
        let text = &log[at + 32..at + 32 + length as usize];
        let padding = &log[at + 32 + length as usize..at + 512];
        assert!(padding.iter().all(|byte| *byte == 0) && !padding.is_empty());
        let bytes = if flags & 12 == 0 { sectors as usize * 512 } else { 0 };
        let data = log[at + 512..at + 512 + bytes].to_vec();
        let mark = String::from_utf8(text.to_vec()).expect("text");
        entries.push(Raw { sector, sectors, flags, mark, data });
        at += 512 + bytes;
    }
    assert_eq!(at, log.len(), "nothing behind the last entry");
    entries
}

/// The disk behind each entry, as replay-log leaves it.
fn replay(entries: &[Raw]) -> Vec<Vec<u8>> {
    let mut disk = vec![0; DISK];
    let lay = |entry: &Raw| {
        let bytes = entry.sector as usize * 512..(entry.sector + entry.sectors) as usize * 512;
        match entry.flags & DISCARD {
            0 => disk[bytes].copy_from_slice(&entry.data),
            _ => disk[bytes].fill(0),
        }
        disk.clone()
    };
    entries.iter().map(lay).collect()
}

fn state(log: &DiskLog, base: &Image, cut: u32, model: CrashModel) -> Vec<u8> {
    let state = crash_state(log, base, EntryNo(cut), model, 0).expect("a state");
    let mut bytes = vec![1; DISK];
    state.read_at(0, &mut bytes).expect("reads");
    bytes
}

/// For each step that a log must show: its flags, and the entry behind it in the trace.
fn shown_steps(steps: &[Step]) -> Vec<(u64, u32)> {
    let shown = |(at, step): (usize, &Step)| {
        let behind = at as u32 + 1;
        match step {
            Step::Begin => Some((MARK, behind)),
            Step::Reply { to, error: 0 } => match steps[*to] {
                Step::Ask { command: Command::Flush, .. } => Some((FLUSH, behind)),
                _ => None,
            },
            _ => None,
        }
    };
    steps.iter().enumerate().filter_map(shown).collect()
}

struct RoundTrip {
    folder: TempDir,
    first: Vec<u8>,
    second: Vec<u8>,
    imported: DiskLog,
}

/// Export, import, export.
fn round_trip(trace: &Path) -> RoundTrip {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let read = |name: &str| std::fs::read(path(name)).expect("the log");
    let one = export(trace, &path("first")).expect("exported");
    import(&path("first"), &path("trace"), None).expect("imported");
    let two = export(&path("trace"), &path("second")).expect("exported again");
    assert_eq!(one.entries, two.entries);
    assert_eq!(one.bytes, read("first").len() as u64);
    let imported = DiskLog::read(&path("trace"), |_, _| {}).expect("a trace");
    RoundTrip { first: read("first"), second: read("second"), imported, folder }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_replay_up_to_any_flush_or_mark_shows_what_was_durable_there(steps in any_script(80)) {
        let recorded = record(&steps, 1);
        let folder = folder();
        let to = folder.path().join("log");
        export(&recorded.log.path, &to).expect("exported");
        let entries = parse(&std::fs::read(&to).expect("the log"));
        let disks = replay(&entries);
        let ours = |entry: &Raw| entry.mark.starts_with("plugpull:");
        let stops = entries.iter().zip(&disks).filter(|(entry, _)| {
            entry.flags & (FLUSH | MARK) != 0 && !ours(entry)
        });
        let stops: Vec<_> = stops.collect();
        let expected = shown_steps(&steps);
        prop_assert_eq!(stops.len(), expected.len());
        let drop = |cut| state(&recorded.log, &recorded.base, cut, CrashModel::DropUnflushed);
        for ((entry, disk), (flags, cut)) in stops.into_iter().zip(expected) {
            prop_assert_eq!(entry.flags, flags);
            prop_assert_eq!(disk, &drop(cut), "{:?}", entry);
        }
        let end = steps.len() as u32;
        let last_durable = entries.iter().position(|entry| entry.mark == "plugpull:unflushed:");
        prop_assert_eq!(&disks[last_durable.expect("the mark")], &drop(end));
        let keep = state(&recorded.log, &recorded.base, end, CrashModel::KeepAll);
        prop_assert_eq!(disks.last(), Some(&keep));
    }

    #[test]
    fn export_import_export_is_a_fixed_point_and_keeps_the_crash_states(steps in any_script(80)) {
        let recorded = record(&steps, 1);
        let trip = round_trip(&recorded.log.path);
        prop_assert!(trip.first == trip.second);
        let imported = &trip.imported;
        prop_assert_eq!(imported.header.run, recorded.log.header.run);
        let is_flush = |r: &&DiskRequest| r.command() == Command::Flush;
        let flushes: Vec<u32> = (imported.requests.iter().filter(is_flush))
            .map(|flush| flush.reply().expect("answered").entry.0 + 1)
            .collect();
        let expected: Vec<_> = shown_steps(&steps);
        let expected: Vec<u32> =
            expected.iter().filter(|(flags, _)| *flags == FLUSH).map(|(_, cut)| *cut).collect();
        prop_assert_eq!(flushes.len(), expected.len());
        let pairs = expected.into_iter().zip(flushes);
        let ends = (steps.len() as u32, imported.entries.0);
        for (before, after) in pairs.chain([ends]) {
            for model in [CrashModel::DropUnflushed, CrashModel::KeepAll] {
                if model == CrashModel::KeepAll && (before, after) != ends {
                    continue;
                }
                let before = state(&recorded.log, &recorded.base, before, model);
                let after = state(imported, &recorded.base, after, model);
                prop_assert!(before == after, "{model}");
            }
        }
    }

    #[test]
    fn damaged_logs_are_imported_or_refused_and_leave_nothing_behind(
        steps in any_script(40),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4),
        length in prop::option::weighted(0.3, any::<prop::sample::Index>()),
    ) {
        let recorded = record(&steps, 1);
        let folder = folder();
        let (log, trace) = (folder.path().join("log"), folder.path().join("trace"));
        export(&recorded.log.path, &log).expect("exported");
        let mut bytes = std::fs::read(&log).expect("the log");
        for (at, flip, in_head) in flips {
            // Heads are where damage means something.
            let at = at.index(bytes.len());
            let at = if in_head { at / 512 * 512 + at % 32 } else { at };
            bytes[at] ^= flip;
        }
        if let Some(length) = length {
            bytes.truncate(length.index(bytes.len()));
        }
        std::fs::write(&log, &bytes).expect("damaged");
        match import(&log, &trace, None) {
            Ok(_) => drop(DiskLog::read(&trace, |_, _| {}).expect("a trace that can be read")),
            Err(_) => prop_assert!(!trace.exists()),
        }
    }

    #[test]
    fn any_bytes_behind_a_good_start_are_imported_or_refused(
        entries in 0u64..5, bytes in prop::collection::vec(any::<u8>(), 0..3_000), zeros: bool,
    ) {
        let folder = folder();
        let mut log = Super { entries, sector_bytes: 512 }.encode().to_vec();
        log.extend(bytes.iter().map(|byte| if zeros { byte & 9 } else { *byte }));
        std::fs::write(folder.path().join("log"), &log).expect("written");
        let _ = import(&folder.path().join("log"), &folder.path().join("trace"), Some(1 << 20));
    }
}

#[test]
fn a_write_that_a_later_one_overtook_is_logged_only_where_it_shows() {
    // The first write is answered and flushed after the second, which covers its middle.
    let steps = [write(0, 6), fua(2, 2), reply(1), reply(0), flush(), reply(4)];
    let recorded = record(&steps, 1);
    let trip = round_trip(&recorded.log.path);
    let places: Vec<_> = (parse(&trip.first).iter())
        .filter(|entry| entry.flags != MARK)
        .map(|entry| (entry.flags, entry.sector, entry.sectors))
        .collect();
    assert_eq!(places, [(FUA, 2, 2), (0, 0, 2), (0, 4, 2), (FLUSH, 0, 0)]);
}

#[test]
fn messages_notes_marks_and_the_cut_come_back_as_they_were() {
    let folder = folder();
    let trace = folder.path().join("source");
    let header =
        TraceHeader { run: RunId([9; 16]), disk_bytes: 4096, realtime_ns: 0, monotonic: LabNs(0) };
    let recorder = Recorder::create(&trace, &header).expect("a trace");
    let mut frame = Vec::new();
    let note = StreamNote {
        stream: StreamId(4),
        event: EventNo(1),
        at: GuestNs(2),
        what: StreamEvent::Started,
    };
    Message::Stream(note).encode(&mut frame);
    recorder.note(&format!("{{\"plan\":\"{}\"}}", "é".repeat(900))).expect("a note");
    recorder.message(&frame).expect("a message");
    recorder.message(&[0xa5; 3_000]).expect("a long message");
    recorder.mark("plugpull:cut:not one").expect("a mark");
    let write =
        Request { no: RequestNo(0), command: Command::Write, fua: true, offset: 512, length: 512 };
    recorder.request(write, &[7; 512]).expect("a write");
    recorder.cut("by the test").expect("a cut");
    recorder.message(&frame).expect("a late message");
    recorder.sync().expect("written");
    let trip = round_trip(&trace);
    assert!(trip.first == trip.second);
    let said = |path: &Path| {
        let mut all = Vec::new();
        let log = DiskLog::read(path, |_, entry: &Entry| all.push(format!("{entry:?}")));
        assert!(log.expect("a trace").requests[0].reply().is_none());
        all
    };
    assert_eq!(said(&trace), said(&trip.folder.path().join("trace")));
    let marks: Vec<String> = parse(&trip.first).into_iter().map(|entry| entry.mark).collect();
    assert!(marks.iter().any(|mark| mark.starts_with("plugpull:message stream 4 Started:")));
}

#[test]
fn long_requests_are_split_and_zeros_take_no_room() {
    let folder = folder();
    let trace = folder.path().join("source");
    let header = TraceHeader {
        run: RunId([9; 16]),
        disk_bytes: 1 << 30,
        realtime_ns: 0,
        monotonic: LabNs(0),
    };
    let recorder = Recorder::create(&trace, &header).expect("a trace");
    let ask = |command, length| Request {
        no: RequestNo(0),
        command,
        fua: false,
        offset: 1 << 20,
        length,
    };
    recorder.request(ask(Command::Trim, 300 << 20), &[]).expect("a trim");
    recorder.request(ask(Command::WriteZeroes, 70 << 20), &[]).expect("zeros");
    recorder.sync().expect("written");
    let to = folder.path().join("log");
    let exported = export(&trace, &to).expect("exported");
    assert_eq!((exported.discards, exported.writes, exported.unflushed), (3, 3, 6));
    let meta = std::fs::metadata(&to).expect("the log");
    let on_disk = std::os::unix::fs::MetadataExt::blocks(&meta) * 512;
    assert!(meta.len() > 70 << 20 && on_disk < 1 << 20, "{on_disk} of {}", meta.len());
    let back = folder.path().join("trace");
    let imported = import(&to, &back, None).expect("imported");
    assert_eq!((imported.discards, imported.writes, imported.disk_bytes), (3, 3, 1 << 30));
    assert!(std::fs::metadata(&back).expect("the trace").len() < 1 << 20);
    let error = export(&trace, &to).expect_err("it exists");
    assert!(error.to_string().contains("log"), "{error}");
    assert!(to.exists());
}

/// A log as another program writes it.
fn foreign(sector_bytes: u32, entries: &[(Head, &[u8])]) -> Vec<u8> {
    let size = sector_bytes as usize;
    let mut log = Super { entries: entries.len() as u64, sector_bytes }.encode().to_vec();
    log.resize(size, 0);
    for (head, data) in entries {
        let mark = if head.flags & MARK != 0 { *data } else { &[] };
        let start = log.len();
        log.extend_from_slice(&head.encode(mark));
        log.resize(start + size, 0);
        if mark.is_empty() {
            log.extend_from_slice(data);
        }
    }
    log
}

fn head(sector: u64, sectors: u64, flags: u64) -> Head {
    Head { sector, sectors, flags, data_len: 0 }
}

fn mark(text: &str) -> (Head, &[u8]) {
    (Head { flags: MARK, data_len: text.len() as u64, ..Head::default() }, text.as_bytes())
}

/// Imports bytes; the trace is gone with what comes last.
fn import_bytes(
    log: &[u8],
    disk_bytes: Option<u64>,
) -> Result<(Imported, DiskLog, Recorded), ImportError> {
    let recorded = record(&[], 1);
    let path = recorded.log.path.with_file_name("log");
    std::fs::write(&path, log).expect("written");
    let trace = recorded.log.path.with_file_name("imported");
    let imported = import(&path, &trace, disk_bytes);
    assert_eq!(imported.is_ok(), trace.exists());
    let imported = imported?;
    let log = DiskLog::read(&trace, |_, _| {}).expect("a trace");
    Ok((imported, log, recorded))
}

#[test]
fn a_foreign_log_of_4k_sectors_is_laid_down_in_its_order() {
    let (a, b) = (vec![1; 8192], vec![2; 4096]);
    let metadata = 16;
    let (imported, log, _kept) = import_bytes(
        &foreign(
            4096,
            &[
                (head(0, 2, metadata), &a),
                (head(1, 1, FUA), &b),
                (head(2, 1, FLUSH), &b),
                mark("mymark"),
                (head(0, 1, DISCARD), &[]),
            ],
        ),
        None,
    )
    .expect("imported");
    let expected = Imported {
        disk_bytes: 12_288,
        entries: 5,
        writes: 3,
        discards: 1,
        flushes: 1,
        marks: 1,
        messages: 0,
    };
    assert_eq!(imported, expected);
    let base = Image::blank(log.header.disk_bytes).expect("a size");
    let state = |model| {
        let state = crash_state(&log, &base, log.entries, model, 0).expect("a state");
        let mut bytes = vec![9; 12_288];
        state.read_at(0, &mut bytes).expect("reads");
        [bytes[0], bytes[4096], bytes[8192]]
    };
    assert_eq!(state(CrashModel::DropUnflushed), [1, 2, 0], "a flush goes before its own data");
    assert_eq!(state(CrashModel::KeepAll), [0, 2, 2]);
    assert!(log.mark("mymark").is_some());
}

#[test]
fn what_is_wrong_with_a_log_is_told_with_its_byte() {
    let data = vec![1; 512];
    let good = foreign(512, &[(head(0, 1, 0), &data), (head(1, 1, FLUSH), &data)]);
    let told = |log: &[u8], disk_bytes| match import_bytes(log, disk_bytes) {
        Ok(_) => panic!("imported"),
        Err(error) => error.to_string(),
    };
    let says = |log: &[u8], parts: &[&str]| {
        let error = told(log, None);
        assert!(parts.iter().all(|part| error.contains(part)), "{error} does not say {parts:?}");
    };
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        bad
    };
    says(&with(0, 0), &["byte 0 ", "not a log of dm-log-writes"]);
    says(&with(8, 2), &["byte 8 ", "version 2"]);
    says(&with(25, 3), &["byte 24 ", "768"]);
    says(&with(16, 3), &["byte 2560 ", "512 bytes of an entry's head are missing"]);
    says(&good[..2500], &["byte 1536 ", "60 bytes of an entry's data are missing"]);
    says(&good[..20], &["byte 0 ", "8 bytes of the super block"]);
    says(&with(1536 + 16, 0x40), &["byte 1536 ", "flags 0x40"]);
    says(&with(1536 + 16, 9), &["byte 1536 ", "flags 0x9"]);
    says(&with(512 + 8, 0), &["byte 512 ", "too many"]);
    says(&with(1536 + 25, 7), &["byte 1536 ", "1792 bytes of data"]);
    says(&with(1536 + 5, 1), &["byte 1536 ", "beyond the disk"]);
    let beyond = told(&good, Some(512));
    assert!(beyond.contains("byte 1536 ") && beyond.contains("512 bytes"), "{beyond}");
    says(&foreign(512, &[]), &["a disk of 0 bytes"]);
    says(
        &foreign(512, &[mark("plugpull:cut:x"), (head(0, 1, 0), &data)]),
        &["byte 1024 ", "behind the cut"],
    );
    let run = "00".repeat(16);
    let disk = format!("plugpull:disk:1024 {run}");
    says(&foreign(512, &[mark("a"), mark(&disk)]), &["byte 1024 ", "behind the first"]);
    says(&foreign(512, &[mark("plugpull:note+:x")]), &["byte 512 ", "continued"]);
    let size = told(&foreign(512, &[mark(&disk)]), Some(512));
    assert!(size.contains("1024") && size.contains("leave the size out"), "{size}");
}

#[test]
fn a_trace_that_contradicts_itself_is_not_exported_and_a_damaged_one_as_far_as_it_goes() {
    let recorded = record(&[write(0, 1), reply(0), flush(), reply(2)], 1);
    let bytes = std::fs::read(&recorded.log.path).expect("the trace");
    let trace = recorded.log.path.with_file_name("damaged");
    std::fs::write(&trace, &bytes[..bytes.len() - 1]).expect("written");
    let to = recorded.log.path.with_file_name("log");
    let exported = export(&trace, &to).expect("as far as it goes");
    assert_eq!((exported.writes, exported.flushes, exported.unflushed), (1, 0, 1));
    assert!(matches!(exported.end, crate::trace::TraceEnd::CutShort { .. }));
    std::fs::remove_file(&to).expect("removed");

    let recorder = Recorder::create(&trace.with_file_name("odd"), &recorded.log.header);
    let recorder = recorder.expect("a trace");
    recorder.reply(RequestNo(3), 0).expect("recorded");
    recorder.sync().expect("written");
    let error = export(recorder.path(), &to).expect_err("an answer to nothing").to_string();
    assert!(error.contains("entry 0 ") && error.contains("no open request"), "{error}");
    assert!(!to.exists());
}
