//! What must be equal between a medium that lost power and the trace's view of it. Pure.

use crate::history::log::History;
use crate::record::observed::{ObservedBlock, ObservedFile};
use crate::stack::scenario::{Scenario, Sync};
use crate::units::{GuestNs, Seq};
use crate::verify::predict::surviving;
use crate::workload::plan::{Plan, StreamPlan};

/// The first difference between two observations; `None` if they are the same record for record.
pub fn difference(real: &[ObservedFile], traced: &[ObservedFile]) -> Option<String> {
    if real.len() != traced.len() {
        return Some(format!("{} files on the medium, {} by the trace", real.len(), traced.len()));
    }
    real.iter().zip(traced).find_map(|(real, traced)| {
        let stream = real.stream;
        if real.stream != traced.stream || real.size != traced.size {
            let (real, traced) = (real.size, traced.size);
            return Some(format!("stream {stream}: sizes {real:?} and {traced:?}"));
        }
        let pairs = real.blocks.iter().zip(&traced.blocks);
        let differing = pairs.enumerate().find(|(_, (real, traced))| real != traced);
        differing.map(|(at, _)| format!("stream {stream}: the records in place {at} differ"))
    })
}

/// Records in a set of observed files.
pub fn records(files: &[ObservedFile]) -> u64 {
    let is_record = |block: &&ObservedBlock| matches!(block, ObservedBlock::Record(_));
    files.iter().map(|file| file.blocks.iter().filter(is_record).count() as u64).sum()
}

/// Whether the survivors of each sync=disabled stream are those of the groups born before `birth`.
/// Gives the number of streams, or the first stream that is not so.
pub fn predicted(
    scenario: &Scenario,
    plan: &Plan,
    history: &History,
    files: &[ObservedFile],
    birth: GuestNs,
) -> Result<u32, String> {
    let is_disabled = |stream: &&StreamPlan| {
        scenario.dataset.get(&stream.dataset).is_some_and(|set| set.sync == Sync::Disabled)
    };
    let mut checked = 0;
    for stream in plan.streams.iter().filter(is_disabled) {
        let said = history.streams.get(&stream.id);
        let file = files.iter().find(|file| file.stream == stream.id);
        let (Some(said), Some(file)) = (said, file) else {
            return Err(format!("stream {} was not read back", stream.id));
        };
        let (at_least, at_most) = surviving(said, birth);
        let newest = newest(file);
        if newest < at_least || newest > at_most {
            return Err(format!(
                "stream {}: {newest} operations survived, its groups hold {at_least} to {at_most}",
                stream.id
            ));
        }
        checked += 1;
    }
    match checked {
        0 => Err("no stream of a sync=disabled dataset is there to be predicted".to_owned()),
        _ => Ok(checked),
    }
}

fn newest(file: &ObservedFile) -> Seq {
    let seq = |block: &ObservedBlock| match block {
        ObservedBlock::Record(summary) => Some(summary.seq),
        _ => None,
    };
    file.blocks.iter().filter_map(seq).max().unwrap_or(Seq(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::observed::Summary;
    use crate::units::{EventNo, StreamId};

    fn file(seqs: &[u64]) -> ObservedFile {
        let record = |seq: &u64| {
            ObservedBlock::Record(Summary {
                seq: Seq(*seq),
                start: EventNo(1),
                stamp: GuestNs(1),
                digest: [0; 8],
                previous: [0; 8],
            })
        };
        let blocks: Vec<ObservedBlock> = seqs.iter().map(record).collect();
        let size = Some(4096 * blocks.len() as u64);
        ObservedFile { stream: StreamId(3), size, blocks }
    }

    #[test]
    fn one_record_more_less_or_other_is_a_difference() {
        let real = [file(&[1, 2, 3])];
        assert_eq!(difference(&real, &[file(&[1, 2, 3])]), None);
        for other in [&[1, 2][..], &[1, 2, 4], &[1, 2, 3, 4]] {
            let words = difference(&real, &[file(other)]).expect("a difference");
            assert!(words.contains("stream 3"), "{words}");
        }
        assert!(difference(&real, &[]).is_some());
        assert_eq!(records(&real), 3);
    }
}
