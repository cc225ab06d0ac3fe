//! The log's bytes: a super block, then for each entry one sector of head and its data.
//!
//! Source of every number: drivers/md/dm-log-writes.c of Linux. All little-endian. A mark's text
//! stands in the sector of its head; a discard has sectors but no data.

/// Sectors of the logs that are written here, in bytes.
pub(super) const LOG_SECTOR: usize = 512;
const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
/// Bytes of an entry's head.
const HEAD_BYTES: usize = 32;
/// Longest text of a mark: replay-log wants a zero behind it in the sector.
pub(super) const MARK_BYTES_MAX: usize = LOG_SECTOR - HEAD_BYTES - 1;

pub(super) const FLUSH: u64 = 1;
pub(super) const FUA: u64 = 2;
pub(super) const DISCARD: u64 = 4;
pub(super) const MARK: u64 = 8;
/// What the file system calls metadata. Means nothing here.
const METADATA: u64 = 16;

/// Why bytes are not a log of dm-log-writes, or not one of a disk that can be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Some other file.
    #[error("it is not a log of dm-log-writes (magic {0:#x}, not {MAGIC:#x})")]
    Magic(u64),
    /// A later format.
    #[error("its format is version {0}; only version {VERSION} is known")]
    Version(u64),
    /// A sector size that the kernel does not have.
    #[error("its sectors have {0} bytes; 512, 1024, 2048 and 4096 are possible")]
    SectorBytes(u32),
    /// The file ends before the entries that the super block counts.
    #[error("the file ends there; {missing} bytes of {what} are missing")]
    Truncated {
        /// Bytes that are needed.
        missing: u64,
        /// What would stand there.
        what: &'static str,
    },
    /// Nothing at all, as where a log was never written.
    #[error("an entry without flags and sectors is no entry: the super block counts too many")]
    Empty,
    /// A flag that is not known, or flags that exclude each other.
    #[error("an entry has the flags {0:#x}, which are unknown or exclude each other")]
    Flags(u64),
    /// A mark's text does not fit in its sector, or the data's length is not that of the sectors.
    #[error("an entry of {sectors} sectors has {data_len} bytes of data, which cannot be")]
    DataLength {
        /// Sectors that the entry names.
        sectors: u64,
        /// Bytes that it names.
        data_len: u64,
    },
    /// Beyond the disk.
    #[error(
        "an entry of {sectors} sectors from {sector} on reaches beyond the disk of {disk_bytes} bytes"
    )]
    Range {
        /// First sector, of the log's size.
        sector: u64,
        /// How many.
        sectors: u64,
        /// Size of the disk, or of the largest that is possible.
        disk_bytes: u64,
    },
    /// A write behind the mark of the cut.
    #[error("a disk request stands behind the cut")]
    BehindCut,
}

/// The start of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Super {
    pub entries: u64,
    pub sector_bytes: u32,
}

/// Bytes of a super block.
pub(super) const SUPER_BYTES: usize = 28;

impl Super {
    pub fn encode(&self) -> [u8; LOG_SECTOR] {
        let mut out = [0; LOG_SECTOR];
        for (at, value) in [MAGIC, VERSION, self.entries].into_iter().enumerate() {
            out[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
        }
        out[24..SUPER_BYTES].copy_from_slice(&self.sector_bytes.to_le_bytes());
        out
    }

    /// Reads it; an error comes with its byte.
    pub fn decode(bytes: &[u8; SUPER_BYTES]) -> Result<Super, (u64, LayoutError)> {
        let [magic, version, entries] = [0, 8, 16].map(|at| u64_at(bytes, at));
        let sector_bytes = u64_at(bytes, 20) >> 32;
        if magic != MAGIC {
            return Err((0, LayoutError::Magic(magic)));
        }
        if version != VERSION {
            return Err((8, LayoutError::Version(version)));
        }
        if ![512, 1024, 2048, 4096].contains(&sector_bytes) {
            return Err((24, LayoutError::SectorBytes(sector_bytes as u32)));
        }
        Ok(Super { entries, sector_bytes: sector_bytes as u32 })
    }
}

/// The head of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub sector: u64,
    pub sectors: u64,
    pub flags: u64,
    pub data_len: u64,
}

impl Head {
    /// The entry's first sector; a mark's text is in it, as long as [`MARK_BYTES_MAX`] allows.
    pub fn encode(&self, mark: &[u8]) -> [u8; LOG_SECTOR] {
        let mut out = [0; LOG_SECTOR];
        let fields = [self.sector, self.sectors, self.flags, self.data_len];
        for (at, value) in fields.into_iter().enumerate() {
            out[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let length = mark.len().min(MARK_BYTES_MAX);
        out[HEAD_BYTES..HEAD_BYTES + length].copy_from_slice(&mark[..length]);
        out
    }

    /// Reads the head in the entry's first sector, which is all of `sector`, and a mark's text.
    pub fn decode(sector: &[u8]) -> Result<(Head, Option<&[u8]>), LayoutError> {
        let Some((bytes, rest)) = sector.split_first_chunk::<HEAD_BYTES>() else {
            let missing = (HEAD_BYTES - sector.len()) as u64;
            return Err(LayoutError::Truncated { missing, what: "an entry's head" });
        };
        let [sector, sectors, flags, data_len] = [0, 8, 16, 24].map(|at| u64_at(bytes, at));
        let head = Head { sector, sectors, flags: flags & !METADATA, data_len };
        if flags == 0 && sectors == 0 {
            return Err(LayoutError::Empty);
        }
        let known = FLUSH | FUA | DISCARD | MARK;
        let mark = head.flags & MARK != 0;
        let exclusive = mark && head.flags != MARK;
        let unsplit = head.flags & (FLUSH | DISCARD) == FLUSH | DISCARD;
        if head.flags & !known != 0 || exclusive || unsplit {
            return Err(LayoutError::Flags(flags));
        }
        let wrong = Err(LayoutError::DataLength { sectors, data_len });
        if mark {
            let text = usize::try_from(data_len).ok().and_then(|length| rest.get(..length));
            return match text {
                Some(text) if sectors == 0 => Ok((head, Some(text))),
                _ => wrong,
            };
        }
        // Data written past the page cache (DAX) name their length, in bytes up to the sectors'.
        let sector_bytes = (HEAD_BYTES + rest.len()) as u64;
        if data_len.div_ceil(sector_bytes) != sectors && data_len != 0 {
            return wrong;
        }
        Ok((head, None))
    }

    /// Whether data follow the head's sector.
    pub fn has_data(&self) -> bool {
        self.flags & (DISCARD | MARK) == 0
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
