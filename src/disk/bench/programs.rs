//! The programs that the bench runs: fio, and qemu-nbd on a raw file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// qemu-nbd listens within this time or never.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program that is needed is not installed.
    #[error("{program} is missing: apt-get install -y {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian's package of it.
        package: &'static str,
    },
    /// A program failed.
    #[error("{program} failed: {output}")]
    Failed {
        /// The program.
        program: &'static str,
        /// What it said.
        output: String,
    },
    /// A file or process of the bench itself.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The user wants to stop.
    #[error(transparent)]
    Guest(#[from] crate::guest::error::GuestError),
    /// The disk did not start.
    #[error(transparent)]
    Disk(#[from] crate::disk::DiskError),
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] crate::trace::TraceError),
    /// The trace cannot be read back.
    #[error(transparent)]
    Log(#[from] crate::disk::LogError),
}

/// One load for fio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub block_bytes: u32,
    /// fio's name: write, randwrite, randrw.
    pub pattern: &'static str,
    /// Bytes moved in all.
    pub bytes: u64,
}

/// What fio measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub bytes_per_s: f64,
    pub writes: u64,
}

pub(super) fn io(what: &'static str) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::Io { what, source }
}

/// Runs fio's nbd engine against a socket. No flushes: qemu-nbd's would wait for the lab's own disk,
/// which a recorded disk need not do.
pub(super) fn fio(socket: &Path, load: &Load) -> Result<Rate, BenchError> {
    let output = Command::new("fio")
        .args(["--name=bench", "--ioengine=nbd", "--iodepth=16", "--output-format=json"])
        .args(["--randrepeat=1", "--norandommap=0", "--refill_buffers=0"])
        .arg(format!("--uri=nbd+unix:///?socket={}", socket.display()))
        .arg(format!("--rw={}", load.pattern))
        .arg(format!("--bs={}", load.block_bytes))
        .arg(format!("--size={}", load.bytes))
        .stdin(Stdio::null())
        .output()
        .map_err(missing("fio", "fio", "run fio"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = || {
        let errors = String::from_utf8_lossy(&output.stderr);
        BenchError::Failed { program: "fio", output: format!("{errors}{text}") }
    };
    if !output.status.success() {
        return Err(failed());
    }
    // fio may say something before the document.
    let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
    let json: serde_json::Value = serde_json::from_str(json).map_err(|_| failed())?;
    let job = &json["jobs"][0];
    let field = |side: &str, name: &str| job[side][name].as_u64().unwrap_or(0);
    let moved = field("read", "io_bytes") + field("write", "io_bytes");
    let ms = field("read", "runtime").max(field("write", "runtime"));
    if ms == 0 || moved == 0 {
        return Err(failed());
    }
    Ok(Rate { bytes_per_s: moved as f64 * 1000.0 / ms as f64, writes: field("write", "total_ios") })
}

fn missing(
    program: &'static str,
    package: &'static str,
    what: &'static str,
) -> impl Fn(io::Error) -> BenchError {
    move |source| match source.kind() {
        io::ErrorKind::NotFound => BenchError::Missing { program, package },
        _ => BenchError::Io { what, source },
    }
}

/// A running qemu-nbd; dropping it ends it.
pub(super) struct QemuNbd {
    child: Child,
    pub socket: PathBuf,
}

impl QemuNbd {
    /// Serves a new sparse file.
    pub fn start(folder: &Path, disk_bytes: u64) -> Result<QemuNbd, BenchError> {
        let (image, socket) = (folder.join("raw"), folder.join("qemu.sock"));
        let file = File::create(&image).map_err(io("make qemu-nbd's file"))?;
        file.set_len(disk_bytes).map_err(io("make qemu-nbd's file"))?;
        let child = Command::new("qemu-nbd")
            .args(["--persistent", "--format=raw", "--cache=writeback", "--discard=unmap"])
            .arg(format!("--socket={}", socket.display()))
            .arg(&image)
            .stdin(Stdio::null())
            .spawn()
            .map_err(missing("qemu-nbd", "qemu-utils", "run qemu-nbd"))?;
        let mut server = QemuNbd { child, socket };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self) -> Result<(), BenchError> {
        let start = Instant::now();
        let failed =
            |output: &str| BenchError::Failed { program: "qemu-nbd", output: output.to_owned() };
        while !self.socket.exists() {
            if self.child.try_wait().map_err(io("wait for qemu-nbd"))?.is_some() {
                return Err(failed("it ended at once"));
            }
            if start.elapsed() > START_LIMIT {
                return Err(failed("it does not listen"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
