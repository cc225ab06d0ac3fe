//! How much slower the guest's CPU is than the lab's: one computation, timed in both.

use crate::agent::protocol::{Reply, Request};
use crate::guest::control::{Control, unexpected};
use anyhow::Result;
use sha2::{Digest, Sha256};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes hashed: some 5 ms on a real CPU, under half a second on an emulated one.
const BYTES: usize = 2 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// SHA-256 over a fixed buffer. Both sides run this very function.
pub fn compute() -> Duration {
    let buffer = vec![0x5a_u8; BYTES];
    let started = Instant::now();
    black_box(Sha256::digest(black_box(&buffer)));
    started.elapsed()
}

/// Time in the guest over time here; the quicker of two tries on each side.
pub fn measure(control: &mut Control) -> Result<f64> {
    let mut guest = Duration::MAX;
    for _ in 0..2 {
        match control.call(Request::Compute, LIMIT)? {
            Reply::Took { ns } => guest = guest.min(Duration::from_nanos(ns)),
            other => return Err(unexpected("compute", &other).into()),
        }
    }
    let own = compute().min(compute());
    Ok(guest.as_secs_f64() / own.as_secs_f64().max(1e-9))
}
