//! The guest's clocks and its event counter.
//!
//! Stamps are CLOCK_MONOTONIC_RAW, on which ZFS's own births are. Sleeping is on CLOCK_MONOTONIC,
//! because the kernel cannot sleep on the other; the two are never mixed.

use crate::units::{EventNo, GuestNs};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A sleeper looks this often whether it should stop.
const LOOK_NS: u64 = 50_000_000;

/// The one counter that puts the guest's operations in order.
#[derive(Debug)]
pub struct Events(AtomicU64);

impl Default for Events {
    fn default() -> Events {
        Events(AtomicU64::new(1))
    }
}

impl Events {
    /// The next number, from 1. Sequentially consistent: a number taken after another call returned
    /// is higher, whichever thread took it.
    pub fn next(&self) -> EventNo {
        EventNo(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// CLOCK_MONOTONIC_RAW, for stamps.
pub fn stamp() -> GuestNs {
    GuestNs(read(ClockId::CLOCK_MONOTONIC_RAW))
}

/// CLOCK_MONOTONIC in nanoseconds, for schedules.
pub fn steady_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Sleeps until `steady_ns()` is at least `until_ns`, or until told to stop.
pub fn sleep_until(until_ns: u64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let now = steady_ns();
        if now >= until_ns {
            return;
        }
        let wake = until_ns.min(now + LOOK_NS);
        let at = TimeSpec::from_duration(Duration::from_nanos(wake));
        // Interrupted or not, the loop looks at the clock again.
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
    }
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("every Linux that runs this has both clocks");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_numbers_start_at_one_and_never_repeat() {
        let events = Events::default();
        assert_eq!((events.next(), events.next()), (EventNo(1), EventNo(2)));
    }

    #[test]
    fn a_sleeper_wakes_at_its_time_or_when_told_to_stop() {
        let stop = AtomicBool::new(false);
        let until = steady_ns() + 3_000_000;
        sleep_until(until, &stop);
        assert!(steady_ns() >= until);
        stop.store(true, Ordering::Relaxed);
        sleep_until(u64::MAX, &stop);
    }

    #[test]
    fn stamps_never_go_back() {
        let first = stamp();
        assert!(stamp() >= first);
    }
}
