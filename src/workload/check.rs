//! Whether a plan can be carried out, before anything is made.

use crate::record::layout::RECORD_BYTES;
use crate::record::wire::FILE_BYTES_MAX;
use crate::units::StreamId;
use crate::workload::plan::{Pattern, Plan, StreamPlan, WriterFault};
use crate::workload::target::new_path;
use std::collections::HashSet;
use std::path::PathBuf;

/// More bodies (240 MB) would crowd out the guest's memory.
pub const BODIES_MAX: u32 = 1 << 16;
/// More messages held back (40 MB) would say nothing for a long time.
pub const BATCH_MAX: u32 = 1 << 18;

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPlan {
    /// Too few or too many bodies.
    #[error("a plan has 1 to {BODIES_MAX} bodies, not {0}")]
    Bodies(u32),
    /// Two streams cannot be told apart.
    #[error("two streams have the number {0}; give each its own")]
    SameStream(StreamId),
    /// Two streams would write over each other.
    #[error("two streams write to {0}; give each its own file")]
    SamePath(String),
    /// No slot, or more than can be read back.
    #[error("stream {stream} overwrites {slots} slots; it can be 1 to {max}")]
    Slots {
        /// Which stream.
        stream: StreamId,
        /// What it asks for.
        slots: u32,
        /// The most.
        max: u64,
    },
    /// No operation would ever come.
    #[error("stream {0} is paced to 0 operations a second; leave the pace out to run unpaced")]
    Pace(StreamId),
    /// Messages would be held back too long.
    #[error("stream {stream} holds {batch} messages back; at most {BATCH_MAX} can be")]
    Batch {
        /// Which stream.
        stream: StreamId,
        /// What it asks for.
        batch: u32,
    },
    /// A fault in a step that its pattern does not have.
    #[error("stream {stream} cannot have the fault {}: its pattern has no such step", fault.name())]
    Fault {
        /// Which stream.
        stream: StreamId,
        /// The fault.
        fault: WriterFault,
    },
}

/// Checks all that the types allow and the runner cannot do.
pub fn check(plan: &Plan) -> Result<(), BadPlan> {
    if plan.bodies == 0 || plan.bodies > BODIES_MAX {
        return Err(BadPlan::Bodies(plan.bodies));
    }
    let (mut ids, mut paths) = (HashSet::new(), HashSet::new());
    for stream in &plan.streams {
        check_stream(stream)?;
        if !ids.insert(stream.id) {
            return Err(BadPlan::SameStream(stream.id));
        }
        for path in paths_of(stream) {
            if let Some(path) = paths.replace(path) {
                return Err(BadPlan::SamePath(path.display().to_string()));
            }
        }
    }
    Ok(())
}

/// What a stream writes: one that replaces its file has a second one.
fn paths_of(stream: &StreamPlan) -> impl Iterator<Item = PathBuf> {
    let own = PathBuf::from(&stream.path);
    let new = (stream.pattern == Pattern::Replace).then(|| new_path(&own));
    std::iter::once(own).chain(new)
}

fn check_stream(plan: &StreamPlan) -> Result<(), BadPlan> {
    let stream = plan.id;
    let max = FILE_BYTES_MAX / RECORD_BYTES as u64;
    match plan.pattern {
        Pattern::Overwrite { slots } if slots == 0 || u64::from(slots) > max => {
            return Err(BadPlan::Slots { stream, slots, max });
        }
        Pattern::Overwrite { .. }
        | Pattern::Append
        | Pattern::Replace
        | Pattern::Script(_)
        | Pattern::Sqlite(_)
        | Pattern::Exec(_) => {}
    }
    if let Some(fault) = plan.fault.filter(|fault| !fault.fits(&plan.pattern)) {
        return Err(BadPlan::Fault { stream, fault });
    }
    if plan.pace_hz == Some(0) {
        return Err(BadPlan::Pace(stream));
    }
    if plan.batch > BATCH_MAX {
        return Err(BadPlan::Batch { stream, batch: plan.batch });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::plan;

    #[test]
    fn a_plan_that_can_be_carried_out_passes_and_each_fault_is_named() {
        assert_eq!(check(&plan()), Ok(()));
        let broken = |change: fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            check(&plan)
        };
        assert_eq!(broken(|plan| plan.bodies = 0), Err(BadPlan::Bodies(0)));
        assert_eq!(
            broken(|plan| plan.streams[1].id = StreamId(1)),
            Err(BadPlan::SameStream(StreamId(1)))
        );
        let same_path = broken(|plan| plan.streams[1].path = plan.streams[0].path.clone());
        assert!(matches!(same_path, Err(BadPlan::SamePath(_))));
        let new_path = broken(|plan| {
            plan.streams[1].path = format!("{}.new", plan.streams[0].path);
            plan.streams[0].pattern = Pattern::Replace;
        });
        assert!(matches!(new_path, Err(BadPlan::SamePath(_))));
        let fault = broken(|plan| plan.streams[0].fault = Some(WriterFault::NoDirectoryFsync));
        assert!(matches!(fault, Err(BadPlan::Fault { stream: StreamId(1), .. })));
        let replaces = broken(|plan| {
            plan.streams[0].pattern = Pattern::Replace;
            plan.streams[0].fault = Some(WriterFault::NoDirectoryFsync);
        });
        assert_eq!(replaces, Ok(()), "control");
        let slots = broken(|plan| plan.streams[1].pattern = Pattern::Overwrite { slots: 0 });
        assert!(matches!(slots, Err(BadPlan::Slots { slots: 0, .. })));
        let pace = broken(|plan| plan.streams[0].pace_hz = Some(0));
        assert_eq!(pace, Err(BadPlan::Pace(StreamId(1))));
        let batch = broken(|plan| plan.streams[0].batch = u32::MAX);
        assert!(matches!(batch, Err(BadPlan::Batch { .. })));
    }
}
