//! The initial RAM disk: the image's archive, the agent's, and for benches one more, one behind the
//! other. The agent is an archive of its own so that a rebuilt tool never rebuilds the image.

use crate::guest::error::GuestError;
use cpio::newc::{Builder, ModeFileType, trailer};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The kernel takes the next archive up at any zero padding; cpio(1) pads to this.
const ARCHIVE_ALIGN: usize = 512;

/// Writes the RAM disk that a guest with these parts starts from.
pub fn write_initrd(to: &Path, archives: &[&Path], agent: &Path) -> Result<(), GuestError> {
    let file = File::create(to).map_err(GuestError::file("make", to))?;
    let mut out = BufWriter::new(file);
    for archive in archives {
        File::open(archive)
            .and_then(|mut file| io::copy(&mut file, &mut out))
            .map_err(GuestError::file("copy", archive))?;
    }
    let program = std::fs::read(agent).map_err(GuestError::file("read", agent))?;
    write_agent(&program, &mut out).map_err(GuestError::file("write", to))?;
    out.flush().map_err(GuestError::file("write", to))
}

/// An archive with one file: the agent, as the program that the kernel starts.
fn write_agent(program: &[u8], out: &mut impl Write) -> io::Result<()> {
    let size = u32::try_from(program.len()).map_err(io::Error::other)?;
    let entry = Builder::new("init").ino(1).mode(0o755).set_mode_file_type(ModeFileType::Regular);
    let mut writer = entry.write(Vec::with_capacity(program.len() + 1024), size);
    writer.write_all(program)?;
    let mut archive = trailer(writer.finish()?)?;
    archive.resize(archive.len().next_multiple_of(ARCHIVE_ALIGN), 0);
    out.write_all(&archive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_agent_is_the_last_archive_and_executable() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("image"), [7; ARCHIVE_ALIGN]).expect("an archive");
        std::fs::write(path("agent"), b"#!program").expect("a program");
        write_initrd(&path("initrd"), &[&path("image")], &path("agent")).expect("written");

        let bytes = std::fs::read(path("initrd")).expect("read back");
        assert_eq!(bytes.len() % ARCHIVE_ALIGN, 0);
        assert_eq!(bytes[..ARCHIVE_ALIGN], [7; ARCHIVE_ALIGN]);
        let mut entry = cpio::newc::Reader::new(&bytes[ARCHIVE_ALIGN..]).expect("an archive");
        assert_eq!((entry.entry().name(), entry.entry().mode()), ("init", 0o100_755));
        let mut program = String::new();
        entry.read_to_string(&mut program).expect("its bytes");
        assert_eq!(program, "#!program");
    }
}
