//! The bodies of a plan: incompressible bytes that follow from the seed alone.
//!
//! Hashing 4 KiB costs more than a write and an fsync in an emulated guest, so the bodies are made
//! and hashed before the load, and reading back compares instead of hashing. What always holds:
//! body n of a seed is the same bytes for ever, in any version, derived without its neighbours.

use crate::record::layout::{BODY_BYTES, Body, Digest};
use crate::workload::plan::splitmix64;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use std::num::NonZero;
use std::thread;

/// Sets the bodies apart from every other use of a seed.
const PURPOSE: u64 = u64::from_le_bytes(*b"body v1\0");

/// All bodies of a plan, with their digests.
#[derive(Debug)]
pub struct Ring {
    seed: u64,
    bodies: Vec<Body>,
    digests: Vec<Digest>,
}

/// Derives body `index` of a seed: Xoshiro256++ (Blackman, Vigna 2021) from a state that SplitMix64
/// spreads. In an emulated guest it takes a fortieth of what ChaCha8 takes, and each start of a load
/// or a reading waits for thousands.
pub fn body(seed: u64, index: u32) -> Body {
    let mut bytes = [0; BODY_BYTES];
    derive(seed, index, &mut bytes);
    bytes
}

fn derive(seed: u64, index: u32, out: &mut Body) {
    // Spread over the whole state: two that differ in a bit give alike numbers at first.
    let start = splitmix64(splitmix64(seed ^ PURPOSE) ^ u64::from(index));
    let mut key = [0; 32];
    for (n, word) in key.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&splitmix64(start.wrapping_add(n as u64)).to_le_bytes());
    }
    Xoshiro256PlusPlus::from_seed(key).fill_bytes(out);
}

impl Ring {
    /// Makes and hashes bodies 0 to `count` - 1 on all CPUs. Every page of it was touched after.
    pub fn make(seed: u64, count: u32) -> Ring {
        let len = count as usize;
        let mut bodies = vec![[0; BODY_BYTES]; len];
        let mut digests = vec![Digest::default(); len];
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        let share = len.div_ceil(workers).max(1);
        thread::scope(|scope| {
            let shares = bodies.chunks_mut(share).zip(digests.chunks_mut(share));
            for (worker, (bodies, digests)) in shares.enumerate() {
                let first = (worker * share) as u32;
                scope.spawn(move || make_share(seed, first, bodies, digests));
            }
        });
        Ring { seed, bodies, digests }
    }

    /// The seed it was made from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many bodies it has.
    pub fn count(&self) -> usize {
        self.bodies.len()
    }

    /// A body and its digest; `None` beyond the last.
    pub fn get(&self, index: u32) -> Option<(&Body, Digest)> {
        let index = index as usize;
        Some((self.bodies.get(index)?, *self.digests.get(index)?))
    }
}

fn make_share(seed: u64, first: u32, bodies: &mut [Body], digests: &mut [Digest]) {
    for (index, (body, digest)) in (first..).zip(bodies.iter_mut().zip(digests)) {
        derive(seed, index, body);
        *digest = Digest::of(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_holds_what_each_body_is_when_derived_alone() {
        let ring = Ring::make(7, 33);
        assert_eq!(ring.count(), 33);
        for index in 0..33 {
            let alone = body(7, index);
            assert_eq!(ring.get(index), Some((&alone, Digest::of(&alone))));
        }
        assert_eq!(ring.get(33), None);
    }

    #[test]
    fn bodies_differ_by_index_and_by_seed() {
        assert_ne!(body(7, 0), body(7, 1));
        assert_ne!(body(7, 0), body(8, 0));
    }

    #[test]
    fn the_bodies_of_version_1_stay_for_ever() {
        assert_eq!(body(7, 5)[..8], [215, 4, 213, 91, 73, 39, 19, 202]);
        assert_eq!(Digest::of(&body(7, 5)).short(), [216, 179, 154, 156, 62, 253, 227, 179]);
    }

    #[test]
    fn no_byte_value_is_frequent_in_a_body() {
        let mut counts = [0u32; 256];
        body(1, 1).iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        assert!(counts.iter().all(|&count| count < 45), "3,776 bytes: 14.75 of each expected");
    }
}
