//! The disk's socket, and the threads behind it.
//!
//! What always holds: dropping a [`DiskServer`] closes every connection, ends every thread and
//! removes the socket. Until then a connection of a silent disk stays open.

use super::commits::CutRule;
use super::connection::serve;
use super::device::{Device, DiskEvent};
use super::image::{Image, ImageError};
use super::live_store::LiveStore;
use super::replies::Halt;
use super::shown::{Shown, Unanswered};
use super::timing::Timing;
use crate::trace::Recorder;
use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// More clients at once are turned away: each may hold some 64 MiB of requests and answers.
const CLIENTS_MAX: usize = 16;

/// How to run a disk.
#[derive(Debug, Clone)]
pub struct DiskConfig {
    /// Path of the Unix socket that is made.
    pub socket: PathBuf,
    /// What the disk shows before its first write; `None` for zeros.
    pub base: Option<Image>,
    /// How long it takes.
    pub timing: Timing,
}

/// Why a disk did not start.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The socket could not be made.
    #[error("cannot listen on {} for the disk's clients: {source}", path.display())]
    Listen {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Someone answers on the socket.
    #[error("{} is in use by another disk; give each run its own folder", path.display())]
    InUse {
        /// Its path.
        path: PathBuf,
    },
    /// The size is none that a disk can have.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The base is of another size than the trace says.
    #[error("the trace is of a disk of {trace} bytes, the state to start from of {base}")]
    Size {
        /// Bytes of the trace's disk.
        trace: u64,
        /// Bytes of the base.
        base: u64,
    },
    /// Another disk cannot take the place of this one yet.
    #[error(
        "{open} requests of the disk are not answered, so no other can take its place: first let go \
         of it in the guest"
    )]
    InUseNow {
        /// Requests without an answer.
        open: u64,
    },
    /// A thread could not be started.
    #[error("cannot start the disk's thread: {0}")]
    Thread(io::Error),
}

/// A running disk.
#[derive(Debug)]
pub struct DiskServer {
    shown: Arc<Shown>,
    timing: Timing,
    socket: PathBuf,
    listener: UnixListener,
    clients: Arc<Clients>,
    accepting: Option<JoinHandle<()>>,
}

impl DiskServer {
    /// Starts a disk whose trace is `recorder`'s, of the size that its header says. Its events come
    /// out of the receiver.
    pub fn start(
        config: DiskConfig,
        recorder: Recorder,
    ) -> Result<(DiskServer, Receiver<DiskEvent>), DiskError> {
        let (device, receiver) = Device::on(config.base, config.timing, recorder)?;
        let shown = Arc::new(Shown::new(Arc::new(device)));
        let listener = listen(&config.socket)?;
        let clients = Arc::new(Clients::default());
        let mut server = DiskServer {
            shown: shown.clone(),
            timing: config.timing,
            socket: config.socket,
            listener: listener.try_clone().map_err(DiskError::Thread)?,
            clients: clients.clone(),
            accepting: None,
        };
        let accept = move || accept(&listener, &shown, &clients);
        let accepting = std::thread::Builder::new().name("disk-accept".into()).spawn(accept);
        server.accepting = Some(accepting.map_err(DiskError::Thread)?);
        Ok((server, receiver))
    }

    /// From now on shows another disk of the same size, with a trace of its own; clients stay
    /// connected and are told nothing. The trace before is complete then: each of its requests has
    /// its answer. What a client remembers of the disk before is the caller's care: a kernel forgets
    /// a block device's pages when its last user closes it.
    ///
    /// # Errors
    /// [`DiskError::InUseNow`] while a request is not answered, [`DiskError::Size`] for another
    /// size; the disk stays as it was.
    pub fn insert(
        &self,
        base: Image,
        recorder: Recorder,
    ) -> Result<Receiver<DiskEvent>, DiskError> {
        let (shown, trace) = (self.shown.now().disk_bytes(), recorder.header().disk_bytes);
        if shown != trace {
            return Err(DiskError::Size { trace, base: shown });
        }
        let (device, receiver) = Device::on(Some(base), self.timing, recorder)?;
        let replaced = self.shown.replace(Arc::new(device));
        replaced.map_err(|Unanswered(open)| DiskError::InUseNow { open })?;
        Ok(receiver)
    }

    /// Whether each request was answered, so that another disk can take the place of this one.
    pub fn is_idle(&self) -> bool {
        self.shown.now().open_requests() == 0
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Gives the disk a rule by which it cuts the power itself.
    pub fn arm(&self, rule: CutRule) {
        self.shown.now().arm(rule);
    }

    /// From now on another disk hears every request and every answer.
    pub fn tell_too(&self, other: LiveStore) {
        self.shown.now().tell_too(other);
    }

    /// Bytes of memory that the map of the disk's contents holds.
    pub fn map_bytes(&self) -> usize {
        self.shown.now().map_bytes()
    }
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        // Clients must not find a socket that nobody answers on.
        let _ = std::fs::remove_file(&self.socket);
        self.clients.stop();
        let how = nix::sys::socket::Shutdown::Both;
        let _ = nix::sys::socket::shutdown(self.listener.as_raw_fd(), how);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.clients.wait_until_gone();
    }
}

/// Makes the socket; one that a killed tool left behind is replaced.
fn listen(path: &Path) -> Result<UnixListener, DiskError> {
    let failed = |source| DiskError::Listen { path: path.to_owned(), source };
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        other => return other.map_err(failed),
    }
    let is_socket = std::fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket();
    if !is_socket || UnixStream::connect(path).is_ok() {
        return Err(DiskError::InUse { path: path.to_owned() });
    }
    std::fs::remove_file(path).map_err(failed)?;
    UnixListener::bind(path).map_err(failed)
}

fn accept(listener: &UnixListener, shown: &Arc<Shown>, clients: &Arc<Clients>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if clients.stopping() => return,
            Err(_) => {
                // Out of file descriptors, or a client that left: try again, but do not spin.
                std::thread::sleep(std::time::Duration::from_millis(10));
                continue;
            }
        };
        let Some(id) = clients.add(&stream) else { continue };
        let (shown, their_clients) = (shown.clone(), clients.clone());
        let run = move || {
            if matches!(serve(&shown, stream), Halt::Silent) || shown.now().silent() {
                their_clients.wait_until_stopping();
            }
            their_clients.remove(id);
        };
        if std::thread::Builder::new().name("disk-client".into()).spawn(run).is_err() {
            clients.remove(id);
        }
    }
}

/// The open connections.
#[derive(Debug, Default)]
struct Clients {
    state: Mutex<ClientsState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ClientsState {
    open: HashMap<u64, UnixStream>,
    next: u64,
    stopping: bool,
}

impl Clients {
    /// Keeps a connection, unless there are too many or the server stops.
    fn add(&self, stream: &UnixStream) -> Option<u64> {
        let mut state = self.lock();
        if state.stopping || state.open.len() >= CLIENTS_MAX {
            return None;
        }
        let stream = stream.try_clone().ok()?;
        let id = state.next;
        state.next += 1;
        state.open.insert(id, stream);
        Some(id)
    }

    fn remove(&self, id: u64) {
        self.lock().open.remove(&id);
        self.changed.notify_all();
    }

    fn stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Wakes every thread that waits, in a socket or here.
    fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        for stream in state.open.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    fn wait_until_stopping(&self) {
        self.wait_while(|state| !state.stopping);
    }

    fn wait_until_gone(&self) {
        self.wait_while(|state| !state.open.is_empty());
    }

    fn wait_while(&self, mut condition: impl FnMut(&ClientsState) -> bool) {
        let waited = self.changed.wait_while(self.lock(), |state| condition(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, ClientsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
