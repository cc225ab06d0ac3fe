//! The agent's loop: one request, its blobs, one reply.
//!
//! Whatever happens, a request gets an answer or the guest ends: a panic in any thread is told on
//! the console, sent as the failure of the request that waits, and switches the guest off.

use crate::agent::beside::Beside;
use crate::agent::frame::{FrameReader, Kind, head};
use crate::agent::load::Load;
use crate::agent::protocol::{Numbered, Reply, Request};
use crate::agent::{exec, files, ports, volumes, wake};
use crate::trial::slowdown;
use nix::sys::reboot::{RebootMode, reboot};
use std::fs::File;
use std::io;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// The way back to the lab. Held for one frame at a time, so that frames never mix.
static LAB: Mutex<Option<Lab>> = Mutex::new(None);
/// How long a panic waits for a frame that another thread is writing.
const PANIC_PATIENCE: Duration = Duration::from_secs(1);

struct Lab {
    port: File,
    /// The request that waits for its reply.
    pending: Option<u64>,
}

impl Lab {
    fn send(&self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let head = head(kind, payload).map_err(io::Error::other)?;
        ports::write(&self.port, &[&head, payload])
    }

    fn reply(&mut self, body: &Reply) -> io::Result<()> {
        let Some(number) = self.pending.take() else { return Ok(()) };
        let payload = serde_json::to_vec(&Numbered { number, body })?;
        self.send(Kind::Json, &payload)
    }
}

/// What the agent knows about itself.
pub struct Agent {
    /// The workload's side.
    pub load: Load,
    /// Problems met at start-up.
    pub warnings: Vec<String>,
    /// The tool that runs beside other requests.
    pub beside: Beside,
}

/// Answers the lab's requests for ever; returns only when the port cannot be used any more.
pub fn serve(port: File, mut agent: Agent) -> Result<(), String> {
    let replies = port.try_clone().map_err(|why| format!("cannot share the port: {why}"))?;
    with_lab(|lab| *lab = Some(Lab { port: replies, pending: None }));
    let (mut frames, mut buffer) = (FrameReader::default(), vec![0; 64 << 10]);
    loop {
        let count = ports::read(&port, &mut buffer)
            .map_err(|why| format!("cannot read the control port: {why}"))?;
        frames.feed(&buffer[..count]);
        while let Some(frame) = frames.next_frame().map_err(|why| why.to_string())? {
            let request: Numbered<Request> = serde_json::from_slice(&frame.payload)
                .map_err(|why| format!("not a request of this agent's version: {why}"))?;
            with_lab(|lab| lab.iter_mut().for_each(|lab| lab.pending = Some(request.number)));
            let reply = agent.handle(request.body).unwrap_or_else(Reply::Failed);
            send_reply(&reply).map_err(|why| format!("cannot reply to the lab: {why}"))?;
        }
    }
}

/// A reply that cannot be sent as it is (too long) is replaced by the reason.
fn send_reply(reply: &Reply) -> io::Result<()> {
    with_lab(|lab| {
        let Some(lab) = lab else { return Ok(()) };
        let number = lab.pending;
        lab.reply(reply).or_else(|why| {
            lab.pending = number;
            lab.reply(&Reply::Failed(format!("the reply cannot be sent: {why}")))
        })
    })
}

fn send_blob(bytes: &[u8]) -> io::Result<()> {
    with_lab(|lab| lab.as_ref().map_or(Ok(()), |lab| lab.send(Kind::Blob, bytes)))
}

fn with_lab<T>(act: impl FnOnce(&mut Option<Lab>) -> T) -> T {
    act(&mut LAB.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

impl Agent {
    fn handle(&mut self, request: Request) -> Result<Reply, String> {
        let ms = Duration::from_millis;
        match request {
            Request::Hello => Ok(self.hello()),
            Request::Wake { realtime_ns, entropy } => wake::wake(realtime_ns, &entropy).map(done),
            Request::Clock => wake::now().map(Reply::Clock),
            Request::Compute => Ok(Reply::Took { ns: slowdown::compute().as_nanos() as u64 }),
            Request::Exec { argv, timeout_ms } => {
                exec::exec(&argv, ms(timeout_ms)).map(Reply::Exec)
            }
            Request::Begin { argv, timeout_ms } => {
                self.beside.begin(argv, ms(timeout_ms)).map(done)
            }
            Request::End => self.beside.end().map(Reply::Exec),
            Request::Mount { source, target, fstype, options } => {
                files::mount_at(&source, &target, &fstype, &options).map(done)
            }
            Request::Unmount { target } => files::unmount(&target).map(done),
            Request::ReadFile { path } => files::read(&path).map(Reply::Text),
            Request::WriteFile { path, text } => files::write(&path, &text).map(done),
            Request::SparseFile { path, bytes } => files::sparse(&path, bytes).map(done),
            Request::Fsync { path } => files::fsync(&path).map(done),
            Request::WaitFor { path, timeout_ms } => {
                files::wait_for(&path, ms(timeout_ms)).map(done)
            }
            Request::FindVolume { name, timeout_ms } => {
                volumes::find(&name, ms(timeout_ms)).map(Reply::Text)
            }
            request @ (Request::Prepare(_)
            | Request::StartLoad
            | Request::WatchTxgs { .. }
            | Request::StopLoad
            | Request::PlainLoop { .. }
            | Request::Observe(_)) => self.load.handle(request, &mut send_blob),
        }
    }

    fn hello(&self) -> Reply {
        let kernel = files::read("/proc/sys/kernel/osrelease").unwrap_or_else(|why| why);
        Reply::Hello {
            kernel: kernel.trim_end().to_owned(),
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            warnings: self.warnings.clone(),
        }
    }
}

fn done((): ()) -> Reply {
    Reply::Done
}

/// From here on a panic anywhere ends the guest, with its words on the console and to the lab.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("plugpull agent: {info}");
        give_up(&info.to_string());
    }));
}

/// Tells the lab why and switches the guest off.
pub fn give_up(why: &str) -> ! {
    let deadline = Instant::now() + PANIC_PATIENCE;
    loop {
        match LAB.try_lock() {
            Ok(mut lab) => {
                tell(&mut lab, why);
                break;
            }
            Err(TryLockError::Poisoned(poisoned)) => {
                tell(&mut poisoned.into_inner(), why);
                break;
            }
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => break,
        }
    }
    let Err(errno) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("plugpull agent: cannot switch off: {errno}");
    // The end of process 1 is a kernel panic, which ends the guest too.
    std::process::exit(1)
}

fn tell(lab: &mut Option<Lab>, why: &str) {
    if let Some(lab) = lab {
        // If this fails the console has the words.
        let _ = lab.reply(&Reply::Failed(format!("the agent gave up: {why}")));
    }
}
