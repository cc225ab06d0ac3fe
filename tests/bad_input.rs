//! Bytes from outside, arbitrary and nearly right: the same that the targets in fuzz/ feed, a bounded
//! number of times.

use plugpull::disk::log_writes::export;
use plugpull::disk::{DiskConfig, DiskLog, DiskServer, Timing};
use plugpull::history::message::{Ack, Frames, Intent, Message, OpMessage, TxgRow, TxgState};
use plugpull::trace::{Recorder, TraceHeader};
use plugpull::units::{EventNo, GuestNs, RunId, Seq, StreamId, Txg};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Places and what is done to the byte there.
type Flips = Vec<(prop::sample::Index, u8)>;

fn any_flips() -> impl Strategy<Value = Flips> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)
}

fn flip(bytes: &mut [u8], flips: &Flips) {
    if !bytes.is_empty() {
        flips.iter().for_each(|(at, bits)| bytes[at.index(bytes.len())] ^= bits);
    }
}

fn any_message() -> impl Strategy<Value = Message> {
    let numbers = prop::array::uniform8(any::<u64>());
    (any::<u16>(), numbers, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(stream, n, has_ack, has_intent, is_row)| {
            if is_row {
                return Message::Txg(TxgRow {
                    event: EventNo(n[0]),
                    seen_ns: GuestNs(n[1]),
                    txg: Txg(n[2]),
                    birth: GuestNs(n[3]),
                    state: if has_ack { TxgState::Open } else { TxgState::Committed },
                    dirty_bytes: n[4],
                    open_ns: n[5],
                    quiesce_ns: n[6],
                    wait_ns: n[7],
                    sync_ns: n[0],
                });
            }
            let ack = Ack {
                seq: Seq(n[0]),
                start: EventNo(n[1]),
                done: EventNo(n[2]),
                end: EventNo(n[3]),
                start_ns: GuestNs(n[4]),
                done_ns: GuestNs(n[5]),
                end_ns: GuestNs(n[6]),
                digest: n[7].to_le_bytes(),
            };
            let intent = Intent { seq: Seq(n[7]), location: n[6] };
            Message::Op(OpMessage {
                stream: StreamId(stream),
                event: EventNo(n[0]),
                ack: has_ack.then_some(ack),
                intent: has_intent.then_some(intent),
            })
        },
    )
}

/// All messages that come out of bytes which arrive in two parts.
fn read_frames(bytes: &[u8], split: usize) -> Vec<Message> {
    let (mut frames, mut all) = (Frames::default(), Vec::new());
    let (first, rest) = bytes.split_at(split);
    for part in [first, rest] {
        frames.feed(part);
        while let Ok(Some((frame, message))) = frames.next_frame() {
            let mut again = Vec::new();
            message.encode(&mut again);
            assert_eq!(frame, again, "a message is its frame");
            all.push(message);
        }
    }
    all
}

proptest! {
    #[test]
    fn messages_survive_any_split_and_damage_ends_them(
        messages in prop::collection::vec(any_message(), 0..6),
        split in any::<prop::sample::Index>(), flips in any_flips(),
        garbage in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut bytes));
        let split_at = split.index(bytes.len() + 1);
        prop_assert_eq!(&read_frames(&bytes, split_at), &messages);
        let clean = bytes.clone();
        flip(&mut bytes, &flips);
        let read = read_frames(&bytes, split_at);
        prop_assert!(messages.starts_with(&read) || bytes == clean);
        read_frames(&garbage, split.index(garbage.len() + 1));
    }
}

/// A session of a client that follows the protocol: flags, EXPORT_NAME, then requests.
fn session(requests: &[(u16, u16, u64, u32)]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    bytes.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
    for (kind, flags, sector, sectors) in requests {
        let (offset, length) = (sector * 512, sectors * 512);
        bytes.extend(0x2560_9513u32.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(b"a cookie");
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        if *kind == 1 {
            bytes.resize(bytes.len() + length as usize, 7);
        }
    }
    bytes
}

/// Sends bytes and closes; tells what the server said until it closed too.
fn talk(socket: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut client = UnixStream::connect(socket).expect("the server listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    // A client that is given up early cannot send all.
    let _ = client.write_all(bytes);
    let _ = client.shutdown(Shutdown::Write);
    let mut said = Vec::new();
    match client.read_to_end(&mut said) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it hangs"),
        _ => said,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whatever_a_client_sends_the_next_one_is_served_and_the_trace_stays_whole(
        requests in prop::collection::vec((0u16..8, 0u16..3, 0u64..40, 0u32..12), 0..8),
        flips in any_flips(), garbage in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let (trace, socket) = (folder.path().join("trace"), folder.path().join("disk.sock"));
        let header = TraceHeader::now(RunId([2; 16]), 16 << 10);
        let recorder = Recorder::create(&trace, &header).expect("a trace");
        let config = DiskConfig { socket: socket.clone(), base: None, timing: Timing::default() };
        let (server, _events) = DiskServer::start(config, recorder.clone()).expect("a disk");
        let mut nearly = session(&requests);
        flip(&mut nearly, &flips);
        talk(&socket, &nearly);
        talk(&socket, &garbage);
        let good = talk(&socket, &session(&[(1, 0, 1, 1), (3, 0, 0, 0), (2, 0, 0, 0)]));
        prop_assert_eq!(good.len(), 18 + 10 + 2 * 16, "greeting, export, two replies");
        drop(server);
        recorder.sync().expect("written");
        DiskLog::read(&trace, |_, _| {}).expect("a whole trace");

        let mut bytes = std::fs::read(&trace).expect("the trace");
        flip(&mut bytes, &flips);
        std::fs::write(folder.path().join("damaged"), &bytes).expect("written");
        let read = DiskLog::read(&folder.path().join("damaged"), |_, _| {});
        let exported = export(&folder.path().join("damaged"), &folder.path().join("log"));
        prop_assert_eq!(read.is_ok(), exported.is_ok(), "{:?} {:?}", read.err(), exported);
    }
}
