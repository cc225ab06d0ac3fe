//! What a restored guest needs before anything else: the time, and randomness of its own.
//!
//! Clones of one saved guest start with the same generator; without fresh entropy they would all
//! draw the same numbers.

use crate::units::GuestNs;
use nix::time::{ClockId, clock_gettime, clock_settime};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// More entropy than this in one `Wake` is a mistake: the kernel's pool holds 256 bits.
const ENTROPY_BYTES_MAX: usize = 64;

/// `struct rand_pool_info` of linux/random.h, with room for the most that we send.
#[repr(C)]
struct RandPoolInfo {
    entropy_bits: i32,
    bytes: i32,
    data: [u8; ENTROPY_BYTES_MAX],
}

mod ioctls {
    use nix::libc::c_int;

    // The kernel's number for it holds the size of the fixed part only.
    nix::ioctl_write_ptr_bad!(
        rnd_add_entropy,
        nix::request_code_write!(b'R', 0x03, size_of::<[c_int; 2]>()),
        super::RandPoolInfo
    );
    nix::ioctl_none!(rnd_reseed_crng, b'R', 0x07);
}

/// Sets the clock and credits the lab's entropy.
pub fn wake(realtime_ns: u64, entropy: &str) -> Result<(), String> {
    let bytes = from_hex(entropy)?;
    clock_settime(ClockId::CLOCK_REALTIME, Duration::from_nanos(realtime_ns).into())
        .map_err(|errno| format!("cannot set CLOCK_REALTIME to {realtime_ns} ns: {errno}"))?;
    credit(&bytes).map_err(|why| format!("cannot credit entropy to /dev/random: {why}"))
}

fn credit(bytes: &[u8]) -> std::io::Result<()> {
    let mut info = RandPoolInfo {
        entropy_bits: 8 * bytes.len() as i32,
        bytes: bytes.len() as i32,
        data: [0; ENTROPY_BYTES_MAX],
    };
    info.data[..bytes.len()].copy_from_slice(bytes);
    let random = File::options().write(true).open("/dev/random")?;
    // SAFETY: the kernel reads the two numbers and then `bytes` bytes, which are inside `data`
    // because `from_hex` bounds them; the descriptor is open for the length of both calls.
    unsafe {
        ioctls::rnd_add_entropy(random.as_raw_fd(), &info)?;
        ioctls::rnd_reseed_crng(random.as_raw_fd())?;
    }
    Ok(())
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * ENTROPY_BYTES_MAX {
        return Err(format!(
            "entropy of {} hexadecimal digits; an even number up to {} is wanted",
            digits.len(),
            2 * ENTROPY_BYTES_MAX
        ));
    }
    let digit = |byte: u8| {
        (byte as char)
            .to_digit(16)
            .map(|value| value as u8)
            .ok_or_else(|| "the entropy is not hexadecimal".to_owned())
    };
    digits.chunks_exact(2).map(|pair| Ok(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// The guest's clock: CLOCK_MONOTONIC_RAW, which is also that of ZFS's births.
pub fn now() -> Result<GuestNs, String> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC_RAW)
        .map_err(|errno| format!("cannot read CLOCK_MONOTONIC_RAW: {errno}"))?;
    Ok(GuestNs(Duration::from(time).as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_hexadecimal_whole_bytes_and_bounded() {
        assert_eq!(from_hex("00ff7f"), Ok(vec![0, 255, 127]));
        assert!(from_hex("0").is_err());
        assert!(from_hex("zz").is_err());
        assert!(from_hex("é!").is_err());
        assert!(from_hex(&"00".repeat(ENTROPY_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_clock_does_not_run_backwards() {
        let first = now().expect("a clock");
        assert!(now().expect("a clock") >= first);
    }
}
