//! How long the disk takes, as the instant at which a request is due to be answered.
//!
//! What always holds: a request is acted on when it arrives and answered when it is due, so that
//! requests overlap as on a real disk. A flush takes its latency, whatever else runs; reads and
//! writes each share one channel of their bandwidth. Without timing nothing here is called.

use crate::trace::Command;
use crate::units::LabNs;
use std::num::NonZeroU64;
use std::time::Duration;

/// What a disk's speed is; by default as fast as the lab can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// From a flush's arrival to its answer; a FUA write takes it too.
    pub flush: Duration,
    /// Bytes a second that writes share.
    pub write_bytes_per_s: Option<NonZeroU64>,
    /// Bytes a second that reads share.
    pub read_bytes_per_s: Option<NonZeroU64>,
}

impl Timing {
    /// Whether every request is due at once.
    pub fn is_none(&self) -> bool {
        *self == Timing::default()
    }
}

/// Until when each channel is busy.
#[derive(Debug, Default)]
pub(super) struct Channels {
    write_free: LabNs,
    read_free: LabNs,
}

impl Channels {
    /// When a request that arrived at `now` is due.
    pub fn due(
        &mut self,
        timing: &Timing,
        now: LabNs,
        command: Command,
        fua: bool,
        length: u32,
    ) -> LabNs {
        let moved = match command {
            Command::Read => pass(&mut self.read_free, timing.read_bytes_per_s, now, length),
            Command::Write => pass(&mut self.write_free, timing.write_bytes_per_s, now, length),
            // No data goes over a channel.
            Command::Flush | Command::Trim | Command::WriteZeroes => now,
        };
        let latency = if fua || command == Command::Flush { timing.flush } else { Duration::ZERO };
        later(moved, u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Sends `length` bytes over a channel; tells when the last is through.
fn pass(free: &mut LabNs, bytes_per_s: Option<NonZeroU64>, now: LabNs, length: u32) -> LabNs {
    let Some(bytes_per_s) = bytes_per_s else { return now };
    let takes = u128::from(length) * 1_000_000_000 / u128::from(bytes_per_s.get());
    *free = later((*free).max(now), u64::try_from(takes).unwrap_or(u64::MAX));
    *free
}

fn later(at: LabNs, ns: u64) -> LabNs {
    LabNs(at.0.saturating_add(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    #[test]
    fn writes_share_their_bandwidth_and_a_flush_does_not_wait_for_them() {
        let timing = Timing {
            flush: Duration::from_millis(20),
            write_bytes_per_s: NonZeroU64::new(u64::from(MIB)),
            read_bytes_per_s: None,
        };
        let mut channels = Channels::default();
        let mut due =
            |at, command, fua, length| channels.due(&timing, LabNs(at), command, fua, length).0;
        assert_eq!(due(10, Command::Write, false, MIB), 1_000_000_010);
        assert_eq!(due(20, Command::Write, false, MIB), 2_000_000_010, "behind the first");
        assert_eq!(due(30, Command::Flush, false, 0), 20_000_030);
        assert_eq!(due(40, Command::Read, false, MIB), 40);
        assert_eq!(due(5_000_000_000, Command::Write, true, MIB), 6_020_000_000);
        assert_eq!(due(7_000_000_000, Command::Trim, false, u32::MAX), 7_000_000_000);
    }

    #[test]
    fn an_absurdly_slow_disk_does_not_overflow() {
        let timing = Timing {
            flush: Duration::MAX,
            write_bytes_per_s: NonZeroU64::new(1),
            read_bytes_per_s: None,
        };
        let mut channels = Channels::default();
        let at = LabNs(u64::MAX - 5);
        assert_eq!(channels.due(&timing, at, Command::Write, true, MIB), LabNs(u64::MAX));
    }
}
