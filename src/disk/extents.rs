//! Which bytes of which trace each sector of a disk shows: a compact, ordered map of extents.
//!
//! What always holds: extents are in order and do not overlap; a sector that no extent covers reads
//! as zeros. A position is a place in the traces laid end to end (see [`super::Image`]), so that an
//! extent need not name its file. Twelve bytes an extent, in sorted leaves of bounded size. Maps
//! share leaves until one of them changes one, so that a clone costs a pointer a leaf.

use crate::units::SECTOR_BYTES;
use std::sync::Arc;

/// Extents in one leaf at most.
const LEAF_MAX: usize = 512;
/// A leaf's vector and its two counts of owners.
const LEAF_HEAD_BYTES: usize = size_of::<Vec<Extent>>() + 2 * size_of::<usize>();
/// Room is made in steps of this many extents: doubling would leave a third of it unused.
const GROW: usize = 64;
/// Bits of a packed extent that hold the position; the rest holds the sectors.
const POSITION_BITS: u32 = 47;
/// No payload is longer than 32 MiB, so that 17 bits hold its sectors.
const SECTORS_MAX: u32 = (1 << (64 - POSITION_BITS)) - 1;

/// A run of sectors and where their bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extent {
    sector: u32,
    /// Low and high half of sectors << 47 | position.
    place: [u32; 2],
}

const _: () = assert!(size_of::<Extent>() == 12);

impl Extent {
    fn new(sector: u64, sectors: u32, position: u64) -> Extent {
        debug_assert!(sectors > 0 && sectors <= SECTORS_MAX && position >> POSITION_BITS == 0);
        let place = u64::from(sectors) << POSITION_BITS | position;
        Extent { sector: sector as u32, place: [place as u32, (place >> 32) as u32] }
    }

    fn place(self) -> u64 {
        u64::from(self.place[0]) | u64::from(self.place[1]) << 32
    }

    fn start(self) -> u64 {
        u64::from(self.sector)
    }

    fn end(self) -> u64 {
        self.start() + (self.place() >> POSITION_BITS)
    }

    /// Where the bytes of `sector` are, which lies within.
    fn position_of(self, sector: u64) -> u64 {
        let skipped = (sector - self.start()) * SECTOR_BYTES as u64;
        (self.place() & ((1 << POSITION_BITS) - 1)) + skipped
    }

    /// The part of it from `start` to `end`, which lies within.
    fn part(self, start: u64, end: u64) -> Extent {
        Extent::new(start, (end - start) as u32, self.position_of(start))
    }
}

/// A run of sectors and what they show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First sector.
    pub sector: u64,
    /// How many.
    pub sectors: u64,
    /// Where their bytes are; `None` for zeros.
    pub position: Option<u64>,
}

/// The map. Sectors are at most 2^32 (2 TiB).
#[derive(Clone, Default)]
pub struct ExtentMap {
    /// None is empty.
    leaves: Vec<Arc<Vec<Extent>>>,
    /// The first sector of each leaf.
    firsts: Vec<u32>,
    len: usize,
}

impl ExtentMap {
    /// A map in which every sector reads as zeros.
    pub fn new() -> ExtentMap {
        ExtentMap::default()
    }

    /// Extents in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether every sector reads as zeros.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it holds, those that it shares with its clones too.
    pub fn heap_bytes(&self) -> usize {
        let leaves: usize = self.leaves.iter().map(|leaf| leaf.capacity()).sum();
        leaves * size_of::<Extent>()
            + self.leaves.len() * LEAF_HEAD_BYTES
            + self.leaves.capacity() * size_of::<Arc<Vec<Extent>>>()
            + self.firsts.capacity() * size_of::<u32>()
    }

    /// From now on the `sectors` from `sector` show the bytes at `position`.
    pub fn set(&mut self, sector: u64, sectors: u64, position: u64) {
        self.clear(sector, sectors);
        let mut done = 0;
        while done < sectors {
            let some = (sectors - done).min(u64::from(SECTORS_MAX));
            let at = position + done * SECTOR_BYTES as u64;
            self.insert(Extent::new(sector + done, some as u32, at));
            done += some;
        }
    }

    /// From now on the `sectors` from `sector` read as zeros.
    pub fn clear(&mut self, sector: u64, sectors: u64) {
        let (start, end) = (sector, sector + sectors);
        let mut at = self.leaf_of(start);
        self.drop_covered_leaves(at, end);
        while at < self.leaves.len() && (u64::from(self.firsts[at]) < end) {
            let goes_on = self.carve(at, start, end);
            if self.leaves[at].is_empty() {
                self.leaves.remove(at);
                self.firsts.remove(at);
            } else {
                self.firsts[at] = self.leaves[at][0].sector;
                at += 1;
            }
            if !goes_on {
                break;
            }
        }
    }

    /// Drops the leaves between the first that a range touches and the last: all of them is covered.
    fn drop_covered_leaves(&mut self, first: usize, end: u64) {
        let to = self.firsts.partition_point(|first| u64::from(*first) < end);
        if to > first + 2 {
            let covered = first + 1..to - 1;
            self.len -= self.leaves[covered.clone()].iter().map(|leaf| leaf.len()).sum::<usize>();
            self.leaves.drain(covered.clone());
            self.firsts.drain(covered);
        }
    }

    /// Cuts the range out of one leaf. Tells whether the next leaf can be touched too.
    fn carve(&mut self, at: usize, start: u64, end: u64) -> bool {
        let leaf = &self.leaves[at];
        let from = leaf.partition_point(|extent| extent.end() <= start);
        let to = from + leaf[from..].partition_point(|extent| extent.start() < end);
        let goes_on = to == leaf.len();
        if from == to {
            return goes_on;
        }
        let (first, last) = (leaf[from], leaf[to - 1]);
        let left = (first.start() < start).then(|| first.part(first.start(), start));
        let right = (last.end() > end).then(|| last.part(end, last.end()));
        let before = leaf.len();
        let leaf = Arc::make_mut(&mut self.leaves[at]);
        make_room(leaf);
        leaf.splice(from..to, left.into_iter().chain(right));
        self.len = self.len + leaf.len() - before;
        if leaf.len() + 2 * GROW < leaf.capacity() {
            leaf.shrink_to(leaf.len() + GROW);
        }
        if leaf.len() > LEAF_MAX {
            self.split(at);
            return false;
        }
        goes_on
    }

    /// Inserts an extent that overlaps none.
    fn insert(&mut self, extent: Extent) {
        self.len += 1;
        if self.leaves.is_empty() {
            self.leaves.push(Arc::new(vec![extent]));
            self.firsts.push(extent.sector);
            return;
        }
        let at = self.leaf_of(extent.start());
        let leaf = &self.leaves[at];
        let place = leaf.partition_point(|other| other.sector < extent.sector);
        if place == leaf.len() && leaf.len() >= LEAF_MAX {
            // Ascending writes fill their leaves instead of leaving each half empty.
            self.leaves.insert(at + 1, Arc::new(vec![extent]));
            self.firsts.insert(at + 1, extent.sector);
            return;
        }
        let leaf = Arc::make_mut(&mut self.leaves[at]);
        make_room(leaf);
        leaf.insert(place, extent);
        self.firsts[at] = leaf[0].sector;
        if leaf.len() > LEAF_MAX {
            self.split(at);
        }
    }

    fn split(&mut self, at: usize) {
        let leaf = Arc::make_mut(&mut self.leaves[at]);
        let right = leaf.split_off(leaf.len() / 2);
        leaf.shrink_to(leaf.len() + GROW);
        self.firsts.insert(at + 1, right[0].sector);
        self.leaves.insert(at + 1, Arc::new(right));
    }

    /// The leaf that holds the extent over `sector`, if one does.
    fn leaf_of(&self, sector: u64) -> usize {
        self.firsts.partition_point(|first| u64::from(*first) <= sector).saturating_sub(1)
    }

    /// What the `sectors` from `sector` show, in order and without gaps.
    pub fn pieces(&self, sector: u64, sectors: u64) -> Pieces<'_> {
        let leaf = self.leaf_of(sector);
        let index = self
            .leaves
            .get(leaf)
            .map_or(0, |leaf| leaf.partition_point(|extent| extent.end() <= sector));
        Pieces { map: self, leaf, index, sector, end: sector + sectors }
    }
}

fn make_room(leaf: &mut Vec<Extent>) {
    // A carve adds one extent at most, and so does an insert.
    if leaf.len() == leaf.capacity() {
        leaf.reserve_exact(GROW);
    }
}

/// See [`ExtentMap::pieces`].
pub struct Pieces<'a> {
    map: &'a ExtentMap,
    leaf: usize,
    index: usize,
    sector: u64,
    end: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.sector >= self.end {
            return None;
        }
        let mut next = self.map.leaves.get(self.leaf).and_then(|leaf| leaf.get(self.index));
        if next.is_none() {
            self.leaf += 1;
            self.index = 0;
            next = self.map.leaves.get(self.leaf).and_then(|leaf| leaf.first());
        }
        let sector = self.sector;
        let (until, position) = match next {
            Some(extent) if extent.start() <= sector => {
                self.index += 1;
                (extent.end(), Some(extent.position_of(sector)))
            }
            Some(extent) => (extent.start(), None),
            None => (self.end, None),
        };
        self.sector = until.min(self.end);
        Some(Piece { sector, sectors: self.sector - sector, position })
    }
}

impl std::fmt::Debug for ExtentMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExtentMap({} extents)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DISK: u64 = 4096;

    /// The plain model: what each sector shows.
    fn shown(map: &ExtentMap, sector: u64, sectors: u64) -> Vec<Option<u64>> {
        map.pieces(sector, sectors)
            .flat_map(|piece| {
                (0..piece.sectors).map(move |n| piece.position.map(|p| p + n * SECTOR_BYTES as u64))
            })
            .collect()
    }

    fn check(map: &ExtentMap) {
        assert_eq!(map.len, map.leaves.iter().map(|leaf| leaf.len()).sum::<usize>());
        assert_eq!(map.leaves.len(), map.firsts.len());
        for (leaf, first) in map.leaves.iter().zip(&map.firsts) {
            assert!(leaf.len() <= LEAF_MAX);
            assert_eq!(leaf[0].sector, *first);
        }
        let all: Vec<Extent> = map.leaves.iter().flat_map(|leaf| leaf.iter().copied()).collect();
        assert!(all.windows(2).all(|pair| pair[0].end() <= pair[1].start()));
    }

    proptest! {
        #[test]
        fn the_map_shows_what_a_plain_array_shows(
            ops in prop::collection::vec((0..DISK, 1u64..40, any::<bool>()), 1..3000),
            at in 0..DISK,
        ) {
            let mut map = ExtentMap::new();
            let mut model = vec![None; DISK as usize];
            for (n, (sector, sectors, trim)) in ops.into_iter().enumerate() {
                let sectors = sectors.min(DISK - sector);
                let position = 1_000_000 * n as u64;
                if trim {
                    map.clear(sector, sectors);
                } else {
                    map.set(sector, sectors, position);
                }
                for k in 0..sectors {
                    let slot = &mut model[(sector + k) as usize];
                    *slot = (!trim).then_some(position + k * SECTOR_BYTES as u64);
                }
            }
            check(&map);
            prop_assert_eq!(&shown(&map, 0, DISK), &model);
            prop_assert_eq!(&shown(&map, at, DISK - at)[..], &model[at as usize..]);
        }
    }

    #[test]
    fn a_clone_keeps_what_it_showed_and_shares_every_leaf_that_did_not_change() {
        let mut map = ExtentMap::new();
        (0..20_000).for_each(|n| map.set(2 * n, 1, 4096 * n));
        let kept = map.clone();
        let before = shown(&kept, 0, 40_000);
        map.set(8, 1, 1 << 40);
        map.clear(30_000, 2);
        check(&map);
        assert_eq!(shown(&kept, 0, 40_000), before);
        assert_ne!(shown(&map, 0, 40_000), before);
        let owned = map.leaves.iter().filter(|leaf| Arc::strong_count(leaf) == 1).count();
        assert_eq!(owned, 2, "of {} leaves", map.leaves.len());
    }

    #[test]
    fn the_last_sector_of_the_largest_disk_and_a_clear_of_all_of_it_work() {
        let mut map = ExtentMap::new();
        map.set((1 << 32) - 1, 1, (1 << POSITION_BITS) - 1);
        let piece = map.pieces((1 << 32) - 1, 1).next();
        let position = Some((1 << POSITION_BITS) - 1);
        assert_eq!(piece, Some(Piece { sector: (1 << 32) - 1, sectors: 1, position }));
        map.clear(0, 1 << 32);
        assert!(map.is_empty());
    }

    #[test]
    fn a_random_write_costs_less_than_twenty_bytes_of_map() {
        let mut map = ExtentMap::new();
        let mut state = 1u64;
        for n in 0..200_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            map.set((state >> 40) * 8, 8, n * 4136);
        }
        check(&map);
        assert!(map.heap_bytes() < 20 * 200_000, "{} bytes", map.heap_bytes());
    }
}
