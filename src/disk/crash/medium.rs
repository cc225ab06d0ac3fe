//! The sectors of a disk while requests are laid down on it, in whatever order.
//!
//! What always holds: a sector shows the latest to *arrive* of what was laid on it. Two versions of
//! one sector in a cache are one place: the later replaces the earlier, so a medium never shows an
//! earlier one over a later one that reached it. Durability comes in another order than arrival; a
//! request that becomes durable late is laid below the later ones that were durable before it.
//!
//! A payload's position in the traces tells its arrival, and positions ascend; so the map itself
//! says what lies above what. Only what was cleared leaves no trace in it, and is listed.

use super::state_id::StateId;
use crate::disk::extents::ExtentMap;
use crate::units::SECTOR_BYTES;

/// Sectors that a request changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// First sector.
    pub sector: u64,
    /// How many.
    pub sectors: u64,
    /// The position of the request's payload: of two, the later arrived later.
    pub order: u64,
    /// Where its bytes are; `None` clears.
    pub shows: Option<u64>,
}

impl Part {
    fn end(&self) -> u64 {
        self.sector + self.sectors
    }
}

/// What was cleared for good, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Cleared(Vec<Clear>);

#[derive(Debug, Clone, Copy)]
struct Clear {
    order: u64,
    sector: u32,
    sectors: u32,
}

impl Cleared {
    /// Bytes of memory that it holds.
    pub fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Clear>()
    }

    /// Lists a part that clears.
    fn push(&mut self, part: &Part) {
        let (sector, sectors) = (part.sector as u32, part.sectors as u32);
        let clear = Clear { order: part.order, sector, sectors };
        let at = self.0.partition_point(|other| other.order <= clear.order);
        if self.0.len() == self.0.capacity() {
            // Doubling would leave a third of it unused.
            self.0.reserve_exact(64 + self.0.len() / 8);
        }
        self.0.insert(at, clear);
    }

    /// The runs of a part over which nothing was cleared later.
    fn open(&self, part: &Part) -> Vec<(u64, u64)> {
        let mut open = vec![(part.sector, part.end())];
        let newer = self.0.partition_point(|other| other.order <= part.order);
        for clear in &self.0[newer..] {
            let from = u64::from(clear.sector);
            let to = from + u64::from(clear.sectors);
            if from < part.end() && part.sector < to {
                open = open
                    .into_iter()
                    .flat_map(|(start, end)| [(start, end.min(from)), (start.max(to), end)])
                    .filter(|(start, end)| start < end)
                    .collect();
            }
        }
        open
    }
}

/// What a disk shows.
#[derive(Debug, Clone)]
pub(super) struct Medium {
    extents: ExtentMap,
    id: StateId,
    /// The position of the sector that a fault alters.
    altered: Option<u64>,
    /// Sectors laid down on it, over and over.
    laid: u64,
}

impl Medium {
    pub fn new(extents: ExtentMap, altered: Option<u64>) -> Medium {
        let id = StateId::of(&extents, altered);
        Medium { extents, id, altered, laid: 0 }
    }

    pub fn id(&self) -> StateId {
        self.id
    }

    pub fn laid(&self) -> u64 {
        self.laid
    }

    pub fn extents(&self) -> &ExtentMap {
        &self.extents
    }

    pub fn into_extents(self) -> ExtentMap {
        self.extents
    }

    /// Lays down a part for good: what is cleared stays so against what arrived earlier.
    pub fn settle(&mut self, part: &Part, cleared: &mut Cleared) {
        self.lay(part, cleared);
        if part.shows.is_none() && part.sectors > 0 {
            cleared.push(part);
        }
    }

    /// Lays down a part wherever nothing that arrived later is. Parts that are only laid, not
    /// settled, come in the order of arrival.
    pub fn lay(&mut self, part: &Part, cleared: &Cleared) {
        self.laid += part.sectors;
        for (start, end) in cleared.open(part) {
            for (from, to) in self.older_runs(start, end, part.order) {
                self.replace(part, from, to);
            }
        }
    }

    /// The runs within a range that show nothing of this order or a later one.
    fn older_runs(&self, start: u64, end: u64, order: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for piece in self.extents.pieces(start, end - start) {
            if piece.position.is_some_and(|position| position >= order) {
                continue;
            }
            let to = piece.sector + piece.sectors;
            match runs.last_mut() {
                Some((_, last)) if *last == piece.sector => *last = to,
                _ => runs.push((piece.sector, to)),
            }
        }
        runs
    }

    fn replace(&mut self, part: &Part, from: u64, to: u64) {
        for piece in self.extents.pieces(from, to - from) {
            self.id.remove(&piece, self.altered);
        }
        match part.shows {
            Some(first) => {
                let position = first + (from - part.sector) * SECTOR_BYTES as u64;
                self.extents.set(from, to - from, position);
            }
            None => self.extents.clear(from, to - from),
        }
        for piece in self.extents.pieces(from, to - from) {
            self.id.add(&piece, self.altered);
        }
    }
}
