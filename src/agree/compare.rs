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
    use crate::history::log::{Acked, StreamHistory};
    use crate::history::message::Ack;
    use crate::record::observed::Summary;
    use crate::stack::settings;
    use crate::units::{EventNo, RunId, StreamId};

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

    /// Operation n starts at 100 n, its write returns at 100 n + 40.
    fn ack(n: u64) -> Acked {
        let ack = Ack {
            seq: Seq(n),
            start: EventNo(3 * n),
            done: EventNo(3 * n + 1),
            end: EventNo(3 * n + 2),
            start_ns: GuestNs(100 * n),
            done_ns: GuestNs(100 * n + 40),
            end_ns: GuestNs(100 * n + 60),
            digest: [0; 8],
        };
        Acked { ack, entry: n }
    }

    #[test]
    fn survivors_other_than_the_groups_hold_and_none_to_predict_are_disagreements() {
        let mut scenario = settings::load(settings::DEFAULT, &[]).expect("the default");
        let plan = scenario.plan(RunId([1; 16]), 7);
        let mut history = History::default();
        let mut files = Vec::new();
        for stream in &plan.streams {
            let acked = (1..=3).map(ack).collect();
            let said = StreamHistory { acked, ..StreamHistory::default() };
            history.streams.insert(stream.id, said);
            files.push(ObservedFile { stream: stream.id, ..file(&[1, 2]) });
        }
        let at = |scenario: &Scenario, files: &[ObservedFile], birth| {
            predicted(scenario, &plan, &history, files, GuestNs(birth))
        };
        assert_eq!(at(&scenario, &files, 260), Ok(4), "control: two had returned, none straddles");
        assert_eq!(at(&scenario, &files, 220), Ok(4), "the second straddles the birth");
        assert!(at(&scenario, &files, 150).is_err(), "the second is too much");
        assert!(at(&scenario, &files, 350).is_err(), "the third is missing");
        assert!(
            at(&scenario, &files[1..], 260).is_ok(),
            "the first is billing's, which is not asked"
        );
        assert!(at(&scenario, &files[2..], 260).is_err(), "a stream was not read back");
        for dataset in scenario.dataset.values_mut() {
            dataset.sync = Sync::Standard;
        }
        assert!(at(&scenario, &files, 260).is_err(), "nothing is predicted, so nothing agrees");
    }
}
