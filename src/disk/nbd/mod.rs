//! The NBD protocol (fixed newstyle), as pure functions from bytes to meaning and back.
//!
//! Source of every number and rule: doc/proto.md of the NBD project. What always holds: no bytes of
//! a client make anything here panic or allocate, and every length is held against a bound before
//! it is used.

mod handshake;
mod request;

pub use handshake::{
    Handshake, NO_FLUSH_EXPORT, OPTION_BYTES_MAX, OPTION_HEAD_BYTES, OPTION_SKIP_MAX, OptionHead,
    Step,
};
pub use request::{Ask, DiskAsk, NbdError, REPLY_BYTES, REQUEST_BYTES, RequestHead, reply};

/// Largest payload of a read or write, told to the client.
pub const PAYLOAD_MAX: u32 = crate::trace::PAYLOAD_BYTES_MAX;

/// Why a connection is given up: behind such bytes nothing can be understood any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The client's flags name something that this server did not offer.
    #[error("the NBD client's flags {0:#010x} name what was not offered")]
    ClientFlags(u32),
    /// Not the start of an option.
    #[error("the NBD client sent {0:#018x} where an option starts")]
    OptionMagic(u64),
    /// An option longer than is read, even to be skipped.
    #[error("the NBD client's option {option} claims {length} bytes, more than {OPTION_SKIP_MAX}")]
    OptionTooLong {
        /// Which option.
        option: u32,
        /// The length it claims.
        length: u32,
    },
    /// Not the start of a request.
    #[error("the NBD client sent {0:#010x} where a request starts")]
    RequestMagic(u32),
}
