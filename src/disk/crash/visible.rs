//! Which requests of a trace show in a state: a fault is planted in what is there to be read.

use crate::disk::image::Image;
use crate::disk::log::DiskLog;
use crate::trace::Command;
use crate::units::SECTOR_BYTES;
use std::collections::BTreeMap;

/// A write of which a state shows something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisibleWrite {
    /// Its index in [`DiskLog::requests`].
    pub request: u32,
    /// How many sectors show its bytes, wherever they are.
    pub sectors_visible: u64,
}

/// The writes of this log that show in `image`, in the order of arrival.
///
/// Empty if the image does not refer to the log's trace. Takes as long as the image has extents.
pub fn visible_writes(log: &DiskLog, image: &Image) -> Vec<VisibleWrite> {
    let Some(start) = image.start_of(&log.path) else { return Vec::new() };
    let mut visible: BTreeMap<u32, u64> = BTreeMap::new();
    for piece in image.extents().pieces(0, image.disk_bytes() / SECTOR_BYTES as u64) {
        let Some(at) = piece.position.and_then(|position| position.checked_sub(start)) else {
            continue;
        };
        let behind = log.requests.partition_point(|request| request.payload_at() <= at);
        let Some(index) = behind.checked_sub(1) else { continue };
        let request = &log.requests[index];
        // A trace that was laid behind this one has higher positions than any of its payloads.
        let inside = at - request.payload_at() < request.bytes();
        if request.command() == Command::Write && inside {
            *visible.entry(index as u32).or_default() += piece.sectors;
        }
    }
    let of = |(request, sectors_visible)| VisibleWrite { request, sectors_visible };
    visible.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::crash::script::{any_script, flush, record, reply, trim, write};
    use crate::disk::crash::{CrashModel, crash_state};
    use proptest::prelude::*;

    #[test]
    fn a_write_shows_until_it_is_written_over_or_trimmed() {
        let steps = [
            write(0, 4),
            reply(0),
            write(4, 4),
            reply(2),
            write(1, 2),
            reply(4),
            trim(4, 4),
            reply(6),
            flush(),
            reply(8),
            write(0, 1),
        ];
        let recorded = record(&steps, 1);
        let cut = recorded.log.cut_entry();
        let model = CrashModel::DropUnflushed;
        let state = crash_state(&recorded.log, &recorded.base, cut, model, 0).expect("a state");
        let of = |request, sectors_visible| VisibleWrite { request, sectors_visible };
        assert_eq!(visible_writes(&recorded.log, &state), [of(0, 2), of(2, 2)]);
        assert_eq!(visible_writes(&recorded.log, &recorded.base), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn the_bytes_say_the_same(before in any_script(40), steps in any_script(60)) {
            let below = record(&before, 1);
            let keep = CrashModel::KeepAll;
            let base = crash_state(&below.log, &below.base, below.log.cut_entry(), keep, 0);
            let recorded = record(&steps, 1);
            let (log, cut) = (&recorded.log, recorded.log.cut_entry());
            let state = crash_state(log, &base.expect("a state"), cut, keep, 0).expect("a state");
            // By the numbers in the bytes, of a disk on which nothing lay below.
            let alone = crash_state(log, &recorded.base, cut, keep, 0).expect("a state");
            let shown = recorded.units(&alone);
            for (index, request) in log.requests.iter().enumerate() {
                let number = request.arrival.0 as u8 + 1;
                let sectors = shown.iter().filter(|shows| **shows == number).count() as u64;
                let told = visible_writes(log, &state);
                let told = told.iter().find(|visible| visible.request == index as u32);
                prop_assert_eq!(told.map_or(0, |visible| visible.sectors_visible), sectors);
            }
        }
    }
}
