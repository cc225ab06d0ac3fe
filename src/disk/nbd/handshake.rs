//! What is said before the first request: greeting, options, and the export's properties.

use super::{PAYLOAD_MAX, ProtocolError};
use crate::units::SECTOR_BYTES;

const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FLAG_FIXED_NEWSTYLE: u16 = 1;
const FLAG_NO_ZEROES: u16 = 2;

/// HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES: a write-back disk. Not
/// CAN_MULTI_CONN, so that a client keeps all its requests on the one connection whose order the
/// trace tells, and not SEND_FAST_ZERO.
const EXPORT_FLAGS: u16 = 1 | 4 | 8 | 32 | 64;
/// The same without SEND_FLUSH and SEND_FUA.
const NO_FLUSH_FLAGS: u16 = 1 | 32 | 64;
/// The export of the same disk that offers neither flush nor forced write: a planted fault. QEMU
/// answers its guest's flushes by itself then, as its `cache=unsafe` does on a file; on NBD that
/// setting alone still passes them on (block/nbd.c flushes "to the OS").
pub const NO_FLUSH_EXPORT: &str = "no-flush";
const PREFERRED_BLOCK_BYTES: u32 = 4096;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_LIST: u32 = 3;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_ERR_UNSUP: u32 = 1 << 31 | 1;
const REP_ERR_INVALID: u32 = 1 << 31 | 3;
const REP_ERR_UNKNOWN: u32 = 1 << 31 | 6;
const REP_ERR_TOO_BIG: u32 = 1 << 31 | 9;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// Bytes before an option's data.
pub const OPTION_HEAD_BYTES: usize = 16;
/// Longer data of an option is skipped and refused. A name has at most 4,096 bytes.
pub const OPTION_BYTES_MAX: u32 = 8 << 10;
/// Longer data of an option ends the connection.
pub const OPTION_SKIP_MAX: u32 = 1 << 20;

/// What starts an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHead {
    /// Which option.
    pub option: u32,
    /// Bytes of its data, at most [`OPTION_SKIP_MAX`].
    pub length: u32,
}

impl OptionHead {
    /// Reads it.
    pub fn decode(bytes: &[u8; OPTION_HEAD_BYTES]) -> Result<OptionHead, ProtocolError> {
        let mut fields = Fields(bytes);
        let magic = fields.u64().unwrap_or(0);
        if magic != OPTION_MAGIC {
            return Err(ProtocolError::OptionMagic(magic));
        }
        let (option, length) = (fields.u32().unwrap_or(0), fields.u32().unwrap_or(0));
        if length > OPTION_SKIP_MAX {
            return Err(ProtocolError::OptionTooLong { option, length });
        }
        Ok(OptionHead { option, length })
    }
}

/// What comes after an option was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Another option.
    NextOption,
    /// Requests.
    Transmission,
    /// Nothing: the connection is closed.
    Close,
}

/// The flags of an export, `None` if there is none of this name.
fn flags_of(name: &[u8]) -> Option<u16> {
    match name {
        b"" => Some(EXPORT_FLAGS),
        name if name == NO_FLUSH_EXPORT.as_bytes() => Some(NO_FLUSH_FLAGS),
        _ => None,
    }
}

/// The server's side of one handshake, for the export whose name is empty and its faulty twin.
#[derive(Debug, Clone, Copy)]
pub struct Handshake {
    disk_bytes: u64,
    no_zeroes: bool,
}

impl Handshake {
    /// For a disk of this size.
    pub fn new(disk_bytes: u64) -> Handshake {
        Handshake { disk_bytes, no_zeroes: false }
    }

    /// What the server says first.
    pub fn greeting(&self) -> [u8; 18] {
        let mut out = [0; 18];
        out[..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
        out[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        out[16..].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        out
    }

    /// Takes the client's answer to the greeting.
    pub fn client_flags(&mut self, bytes: [u8; 4]) -> Result<(), ProtocolError> {
        let flags = u32::from_be_bytes(bytes);
        if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return Err(ProtocolError::ClientFlags(flags));
        }
        self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        Ok(())
    }

    /// Answers an option; `data` is `None` if it was too long and skipped.
    pub fn option(&self, option: u32, data: Option<&[u8]>, out: &mut Vec<u8>) -> Step {
        let Some(data) = data else {
            return match option {
                // This option has no way to say no.
                OPT_EXPORT_NAME => Step::Close,
                _ => refuse(out, option, REP_ERR_TOO_BIG, "the option's data is too long"),
            };
        };
        match option {
            OPT_EXPORT_NAME => {
                let Some(flags) = flags_of(data) else { return Step::Close };
                out.extend_from_slice(&self.disk_bytes.to_be_bytes());
                out.extend_from_slice(&flags.to_be_bytes());
                if !self.no_zeroes {
                    out.extend_from_slice(&[0; 124]);
                }
                Step::Transmission
            }
            OPT_ABORT => {
                answer(out, option, REP_ACK, &[]);
                Step::Close
            }
            OPT_LIST if data.is_empty() => {
                answer(out, option, REP_SERVER, &0u32.to_be_bytes());
                answer(out, option, REP_ACK, &[]);
                Step::NextOption
            }
            OPT_LIST => refuse(out, option, REP_ERR_INVALID, "this option takes no data"),
            OPT_INFO | OPT_GO => self.info(option, data, out),
            _ => refuse(out, option, REP_ERR_UNSUP, "this server does not know the option"),
        }
    }

    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let Some(name) = export_name(data) else {
            return refuse(out, option, REP_ERR_INVALID, "the option's data is malformed");
        };
        let Some(flags) = flags_of(name) else {
            return refuse(out, option, REP_ERR_UNKNOWN, "the one export's name is empty");
        };
        let mut export = [0; 12];
        export[..2].copy_from_slice(&INFO_EXPORT.to_be_bytes());
        export[2..10].copy_from_slice(&self.disk_bytes.to_be_bytes());
        export[10..].copy_from_slice(&flags.to_be_bytes());
        answer(out, option, REP_INFO, &export);
        // Told whether it was asked for or not: a client that ignores it is refused by request.
        let mut blocks = [0; 14];
        blocks[..2].copy_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
        blocks[2..6].copy_from_slice(&(SECTOR_BYTES as u32).to_be_bytes());
        blocks[6..10].copy_from_slice(&PREFERRED_BLOCK_BYTES.to_be_bytes());
        blocks[10..].copy_from_slice(&PAYLOAD_MAX.to_be_bytes());
        answer(out, option, REP_INFO, &blocks);
        answer(out, option, REP_ACK, &[]);
        if option == OPT_GO { Step::Transmission } else { Step::NextOption }
    }
}

/// The name in the data of INFO and GO: length and name, then a count of 16-bit requests and them.
fn export_name(data: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(data);
    let length = fields.u32()?;
    let name = fields.bytes(length as usize)?;
    let infos = fields.u16()?;
    fields.bytes(2 * usize::from(infos))?;
    fields.0.is_empty().then_some(name)
}

fn answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

fn refuse(out: &mut Vec<u8>, option: u32, error: u32, why: &str) -> Step {
    answer(out, option, error, why.as_bytes());
    Step::NextOption
}

/// Reads big-endian fields off the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The kinds of the replies in `out`, in order.
    fn kinds(mut out: &[u8]) -> Vec<u32> {
        let mut kinds = Vec::new();
        while !out.is_empty() {
            let mut fields = Fields(out);
            assert_eq!(fields.u64(), Some(OPTION_REPLY_MAGIC));
            fields.u32().expect("an option");
            kinds.push(fields.u32().expect("a kind"));
            let length = fields.u32().expect("a length");
            fields.bytes(length as usize).expect("data");
            out = fields.0;
        }
        kinds
    }

    fn ask(option: u32, data: &[u8]) -> (Step, Vec<u8>) {
        let mut out = Vec::new();
        let step = Handshake::new(1 << 20).option(option, Some(data), &mut out);
        (step, out)
    }

    #[test]
    fn go_tells_size_flags_and_block_sizes_and_starts_the_requests() {
        let (step, out) = ask(OPT_GO, &[0, 0, 0, 0, 0, 1, 0, 3]);
        assert_eq!((step, kinds(&out)), (Step::Transmission, vec![REP_INFO, REP_INFO, REP_ACK]));
        assert_eq!(out[20..32], [0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x6d]);
        assert_eq!(out[52..66], [0, 3, 0, 0, 2, 0, 0, 0, 0x10, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn the_faulty_twin_offers_neither_flush_nor_forced_write() {
        let name = NO_FLUSH_EXPORT.as_bytes();
        let data = [&[0, 0, 0, 8], name, &[0, 0]].concat();
        let (step, out) = ask(OPT_GO, &data);
        assert_eq!((step, out[30..32].to_vec()), (Step::Transmission, vec![0, 0x61]));
        let (step, out) = ask(OPT_EXPORT_NAME, name);
        assert_eq!((step, out[8..10].to_vec()), (Step::Transmission, vec![0, 0x61]));
    }

    #[test]
    fn info_and_list_leave_the_client_in_the_handshake() {
        assert_eq!(ask(OPT_INFO, &[0; 6]).0, Step::NextOption);
        let (step, out) = ask(OPT_LIST, &[]);
        assert_eq!((step, kinds(&out)), (Step::NextOption, vec![REP_SERVER, REP_ACK]));
    }

    #[test]
    fn options_that_are_not_offered_are_refused_and_the_next_may_follow() {
        // STARTTLS, STRUCTURED_REPLY, LIST_META_CONTEXT, SET_META_CONTEXT, EXTENDED_HEADERS.
        for option in [5, 8, 9, 10, 11, 99] {
            let (step, out) = ask(option, &[]);
            assert_eq!((step, kinds(&out)), (Step::NextOption, vec![REP_ERR_UNSUP]));
        }
    }

    #[test]
    fn another_export_a_malformed_option_and_a_long_one_are_refused() {
        assert_eq!(kinds(&ask(OPT_GO, &[0, 0, 0, 1, b'x', 0, 0]).1), vec![REP_ERR_UNKNOWN]);
        assert_eq!(kinds(&ask(OPT_GO, &[0, 0, 0, 9, b'x']).1), vec![REP_ERR_INVALID]);
        assert_eq!(kinds(&ask(OPT_GO, &[0, 0, 0, 0, 0, 9]).1), vec![REP_ERR_INVALID]);
        assert_eq!(kinds(&ask(OPT_LIST, b"x").1), vec![REP_ERR_INVALID]);
        let mut out = Vec::new();
        let step = Handshake::new(512).option(OPT_GO, None, &mut out);
        assert_eq!((step, kinds(&out)), (Step::NextOption, vec![REP_ERR_TOO_BIG]));
    }

    #[test]
    fn the_old_way_in_answers_with_zeroes_unless_the_client_declines_them() {
        let mut handshake = Handshake::new(512);
        let mut out = Vec::new();
        handshake.client_flags([0, 0, 0, 1]).expect("fixed newstyle");
        assert_eq!(handshake.option(OPT_EXPORT_NAME, Some(b""), &mut out), Step::Transmission);
        assert_eq!(out.len(), 8 + 2 + 124);
        out.clear();
        handshake.client_flags([0, 0, 0, 3]).expect("no zeroes");
        assert_eq!(handshake.option(OPT_EXPORT_NAME, Some(b""), &mut out), Step::Transmission);
        assert_eq!(out.len(), 8 + 2);
        assert_eq!(handshake.option(OPT_EXPORT_NAME, Some(b"x"), &mut out), Step::Close);
        assert!(handshake.client_flags([0, 0, 0, 4]).is_err());
    }

    proptest! {
        #[test]
        fn any_option_gets_well_formed_replies(
            option in 0u32..20, data in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let (step, out) = ask(option, &data);
            if option != OPT_EXPORT_NAME {
                let kinds = kinds(&out);
                prop_assert!(!kinds.is_empty());
                let refused = kinds.last().is_some_and(|kind| kind >> 31 == 1);
                prop_assert!(!(refused && step == Step::Transmission));
            }
        }

        #[test]
        fn any_head_of_an_option_is_read_or_refused(a: u64, b: u64, right_magic: bool) {
            let magic = if right_magic { OPTION_MAGIC } else { a };
            let mut bytes = [0; OPTION_HEAD_BYTES];
            bytes[..8].copy_from_slice(&magic.to_be_bytes());
            bytes[8..].copy_from_slice(&b.to_be_bytes());
            if let Ok(head) = OptionHead::decode(&bytes) {
                prop_assert!(head.length <= OPTION_SKIP_MAX);
            }
        }
    }
}
