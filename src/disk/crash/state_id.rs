//! A name for what a state shows, so that equal states are verified once.

use crate::disk::extents::{ExtentMap, Piece};
use crate::units::SECTOR_BYTES;
use crate::workload::plan::splitmix64;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Sectors that no disk has (see [`crate::disk::DISK_BYTES_MAX`]).
const EVERYWHERE: u64 = 1 << 40;
/// Set in the position of a sector that a fault altered; no position has it.
const ALTERED: u64 = 1 << 63;

/// Names what a state shows: a sum over its sectors, of which each adds a number made of its place
/// and of the place of its bytes in the traces; one that reads as zeros adds nothing.
///
/// What always holds: it depends on nothing but what each sector shows; it does not depend on how
/// runs are split or on the way to the state. Two states over the same traces with one id show the
/// same bytes, but for a collision of 128 bits. Bytes that were written twice are not recognised.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct StateId(pub [u64; 2]);

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl StateId {
    /// The id of what a map shows. Takes as long as the map has sectors.
    pub(super) fn of(extents: &ExtentMap, altered: Option<u64>) -> StateId {
        let mut id = StateId::default();
        extents.pieces(0, EVERYWHERE).for_each(|piece| id.add(&piece, altered));
        id
    }

    /// The sectors of a piece show up. `altered`: the position of a sector that reads differently.
    pub(super) fn add(&mut self, piece: &Piece, altered: Option<u64>) {
        each_sector(piece, altered, |terms| {
            self.0[0] = self.0[0].wrapping_add(terms[0]);
            self.0[1] = self.0[1].wrapping_add(terms[1]);
        });
    }

    /// The sectors of a piece are hidden again.
    pub(super) fn remove(&mut self, piece: &Piece, altered: Option<u64>) {
        each_sector(piece, altered, |terms| {
            self.0[0] = self.0[0].wrapping_sub(terms[0]);
            self.0[1] = self.0[1].wrapping_sub(terms[1]);
        });
    }
}

fn each_sector(piece: &Piece, altered: Option<u64>, mut each: impl FnMut([u64; 2])) {
    let Some(first) = piece.position else { return };
    for n in 0..piece.sectors {
        let mut position = first + n * SECTOR_BYTES as u64;
        if Some(position) == altered {
            position |= ALTERED;
        }
        let place = splitmix64(position).wrapping_add(piece.sector + n);
        each([splitmix64(place), splitmix64(!place)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_tells_places_apart_but_not_how_runs_are_split() {
        let map = |runs: &[(u64, u64, u64)]| {
            let mut map = ExtentMap::new();
            runs.iter().for_each(|(sector, sectors, at)| map.set(*sector, *sectors, *at));
            StateId::of(&map, None)
        };
        let whole = map(&[(8, 4, 4096)]);
        assert_eq!(whole, map(&[(10, 2, 5120), (8, 2, 4096)]));
        for other in [
            map(&[]),
            map(&[(8, 3, 4096)]),
            map(&[(9, 4, 4096)]),
            map(&[(8, 4, 4608)]),
            map(&[(10, 2, 4096), (8, 2, 5120)]),
        ] {
            assert_ne!(whole, other);
        }
    }

    #[test]
    fn an_altered_sector_has_an_id_of_its_own_only_where_it_shows() {
        let mut map = ExtentMap::new();
        map.set(8, 4, 4096);
        assert_ne!(StateId::of(&map, Some(4608)), StateId::of(&map, None));
        assert_eq!(StateId::of(&map, Some(8192)), StateId::of(&map, None));
    }
}
