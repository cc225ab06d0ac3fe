//! The disk against a client that says what real ones do not: malformed bytes, half a write, an
//! uberblock.

use plugpull::disk::{CutRule, DiskConfig, DiskEvent, DiskLog, DiskServer, Timing};
use plugpull::trace::{Recorder, TraceHeader};
use plugpull::units::{RunId, Txg};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tempfile::TempDir;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const FUA: u16 = 1;

struct Lab {
    folder: TempDir,
    recorder: Recorder,
    server: DiskServer,
    events: Receiver<DiskEvent>,
}

impl Lab {
    fn new(timing: Timing) -> Lab {
        let folder = tempfile::tempdir().expect("a folder");
        let header = TraceHeader::now(RunId([2; 16]), 16 << 20);
        let recorder = Recorder::create(&folder.path().join("trace"), &header).expect("a trace");
        let socket = folder.path().join("disk.sock");
        let config = DiskConfig { socket, base: None, timing };
        let (server, events) = DiskServer::start(config, recorder.clone()).expect("a disk");
        Lab { folder, recorder, server, events }
    }

    fn stream(&self) -> UnixStream {
        let stream = UnixStream::connect(self.server.socket()).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
        stream
    }

    fn client(&self) -> Client {
        let mut client = Client(self.stream());
        client.shake_hands();
        client
    }

    fn log(self) -> DiskLog {
        drop(self.server);
        self.recorder.sync().expect("written");
        DiskLog::read(&self.folder.path().join("trace"), |_, _| {}).expect("a trace")
    }
}

struct Client(UnixStream);

impl Client {
    fn shake_hands(&mut self) {
        self.take(18);
        self.0.write_all(&[0, 0, 0, 3]).expect("flags");
        self.option(1, &[]);
        self.take(10);
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.0.write_all(&bytes).expect("an option");
    }

    fn ask(&mut self, kind: u16, flags: u16, cookie: u64, at: u64, length: u32, data: &[u8]) {
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(at.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.0.write_all(&bytes).expect("a request");
    }

    fn write(&mut self, flags: u16, cookie: u64, at: u64, data: &[u8]) {
        self.ask(WRITE, flags, cookie, at, data.len() as u32, data);
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.0.read_exact(&mut out).expect("an answer");
        out
    }

    /// The cookie and error of the next reply.
    fn reply(&mut self) -> (u64, u32) {
        let bytes = self.take(16);
        let cookie = bytes[8..].try_into().map(u64::from_be_bytes).expect("8 bytes");
        let error = bytes[4..8].try_into().map(u32::from_be_bytes).expect("4 bytes");
        (cookie, error)
    }

    /// Nothing comes, and the connection stays open.
    fn is_silent(&mut self) -> bool {
        self.0.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
        let read = self.0.read(&mut [0]);
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 64]), Ok(0) | Err(_))
    }
}

/// A 4 KiB write that holds the uberblock of a txg.
fn uberblock(txg: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    for (at, value) in [0x00ba_b10c, 5000, txg].into_iter().enumerate() {
        bytes[1024 + 8 * at..1032 + 8 * at].copy_from_slice(&u64::to_le_bytes(value));
    }
    bytes
}

#[test]
fn malformed_bytes_end_their_own_connection_and_no_other() {
    let lab = Lab::new(Timing::default());
    let mut good = lab.client();
    for garbage in [&[0xff; 64][..], b"GET / HTTP/1.1\r\n\r\n          "] {
        let mut bad = Client(lab.stream());
        bad.take(18);
        bad.0.write_all(garbage).expect("sent");
        assert!(bad.is_closed());
        let mut bad = lab.client();
        bad.0.write_all(garbage).expect("sent");
        assert!(bad.is_closed());
    }
    good.write(0, 1, 0, &[1; 512]);
    assert_eq!(good.reply(), (1, 0));
}

#[test]
fn oversized_options_and_requests_get_an_error_and_the_next_is_served() {
    let lab = Lab::new(Timing::default());
    let mut client = Client(lab.stream());
    client.take(18);
    client.0.write_all(&[0, 0, 0, 3]).expect("flags");
    client.option(7, &vec![0; 100_000]);
    let answer = client.take(20);
    assert_eq!(answer[12..16], [0x80, 0, 0, 9], "too big");
    let text = u32::from_be_bytes(answer[16..].try_into().expect("4 bytes"));
    client.take(text as usize);
    client.option(1, &[]);
    client.take(10);
    let too_long = vec![0; (32 << 20) + 512];
    client.write(0, 1, 0, &too_long);
    assert_eq!(client.reply(), (1, 22));
    client.write(0, 2, 16 << 20, &[0; 512]);
    assert_eq!(client.reply(), (2, 28));
    client.write(0, 3, 512, &[0; 511]);
    assert_eq!(client.reply(), (3, 22));
    client.write(0, 4, 512, &[3; 512]);
    assert_eq!(client.reply(), (4, 0));
    client.ask(READ, 0, 5, 512, 512, &[]);
    assert_eq!((client.reply(), client.take(512)), ((5, 0), vec![3; 512]));
    assert_eq!(lab.log().requests.len(), 1, "what was refused is no request of the disk");
}

#[test]
fn a_write_whose_payload_did_not_come_whole_does_not_count() {
    let lab = Lab::new(Timing::default());
    let mut client = lab.client();
    client.write(0, 1, 0, &[1; 4096]);
    client.reply();
    client.ask(WRITE, 0, 2, 0, 4096, &[2; 4095]);
    drop(client);
    let mut client = lab.client();
    client.ask(READ, 0, 1, 0, 4096, &[]);
    client.reply();
    assert_eq!(client.take(4096), [1; 4096]);
    assert_eq!(lab.log().requests.len(), 1);
}

#[test]
fn a_client_that_reads_no_answers_does_not_stop_another() {
    let lab = Lab::new(Timing::default());
    let mut greedy = lab.client();
    for cookie in 0..200 {
        greedy.ask(READ, 0, cookie, 0, 1 << 20, &[]);
    }
    let mut other = lab.client();
    other.write(0, 1, 0, &[1; 512]);
    assert_eq!(other.reply(), (1, 0));
}

#[test]
fn answers_that_are_due_later_are_sent_before_a_disconnect() {
    let flush = Duration::from_millis(50);
    let lab = Lab::new(Timing { flush, ..Timing::default() });
    let mut client = lab.client();
    client.ask(FLUSH, 0, 1, 0, 0, &[]);
    client.write(0, 2, 0, &[1; 512]);
    client.ask(DISC, 0, 3, 0, 0, &[]);
    assert_eq!([client.reply(), client.reply()], [(2, 0), (1, 0)], "the write need not wait");
    assert!(client.is_closed());
}

/// Runs to the armed commit: txg 5 is seen before, 6 is the first new one, 7 the second.
fn cut_at_second_commit(timing: Timing, flags: u16) -> (Lab, Client, u64) {
    let lab = Lab::new(timing);
    let mut client = lab.client();
    client.write(0, 1, 0, &uberblock(5));
    assert_eq!(client.reply(), (1, 0));
    lab.server.arm(CutRule::AtCommit { nth: 2 });
    for (cookie, txg) in [(2, 5), (3, 6)] {
        client.write(0, cookie, 8192, &uberblock(txg));
        assert_eq!(client.reply(), (cookie, 0));
        client.ask(FLUSH, 0, cookie, 0, 0, &[]);
        assert_eq!(client.reply(), (cookie, 0), "not the chosen txg");
    }
    client.write(flags, 4, 16384, &uberblock(7));
    (lab, client, 4)
}

fn assert_cut(lab: Lab, mut client: Client, durable: &[u64]) {
    assert!(client.is_silent(), "the answer was sent");
    let commits = [5, 6, 7].map(Txg);
    let events: Vec<DiskEvent> = lab.events.try_iter().collect();
    let seen = events.iter().filter_map(|event| match event {
        DiskEvent::Commit { txg, .. } => Some(*txg),
        _ => None,
    });
    assert!(seen.eq(commits), "{events:?}");
    assert!(matches!(events.last(), Some(DiskEvent::Cut { txg: Txg(7), .. })), "{events:?}");
    assert!(lab.recorder.frozen());
    client.ask(READ, 0, 99, 0, 512, &[]);
    assert!(client.is_silent(), "a frozen disk answered");
    lab.recorder.message(b"late").expect("messages are still taken");
    let log = lab.log();
    let cut = log.cut.as_ref().expect("a cut").entry;
    let kept = plugpull::disk::crash::durable_requests(&log, cut);
    let sightings = log.uberblocks.iter();
    let held: Vec<u64> = sightings
        .filter(|sighting| kept.holds(&log.requests[sighting.request as usize]))
        .map(|sighting| sighting.txg.0)
        .collect();
    assert_eq!(held, durable);
}

#[test]
fn the_armed_disk_cuts_instead_of_answering_the_flush_that_would_commit() {
    for latency_ms in [0, 30] {
        let flush = Duration::from_millis(latency_ms);
        let (lab, mut client, cookie) =
            cut_at_second_commit(Timing { flush, ..Timing::default() }, 0);
        assert_eq!(client.reply(), (cookie, 0), "the uberblock itself is answered");
        client.ask(FLUSH, 0, 5, 0, 0, &[]);
        assert_cut(lab, client, &[5, 5, 6]);
    }
}

#[test]
fn an_uberblock_with_fua_is_cut_at_its_own_answer() {
    let (lab, client, _) = cut_at_second_commit(Timing::default(), FUA);
    assert_cut(lab, client, &[5, 5, 6]);
}

#[test]
fn a_flush_that_arrived_before_the_uberblock_was_answered_does_not_cut() {
    // Writes take a while and the flush longer, so that the flush arrives before their answers.
    let timing = Timing {
        flush: Duration::from_millis(100),
        write_bytes_per_s: std::num::NonZeroU64::new(4096 * 20),
        read_bytes_per_s: None,
    };
    let (lab, mut client, _) = cut_at_second_commit(timing, 0);
    client.ask(FLUSH, 0, 5, 0, 0, &[]);
    assert_eq!([client.reply(), client.reply()], [(4, 0), (5, 0)]);
    client.ask(FLUSH, 0, 6, 0, 0, &[]);
    assert_cut(lab, client, &[5, 5, 6]);
}
