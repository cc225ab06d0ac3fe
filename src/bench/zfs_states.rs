//! What a verified state of a pool costs in a warm guest, against a cut the usual way.
//!
//! The usual way is what everyone else does for each single cut: boot from power-on, make the pool,
//! load it, cut, boot again, import, scrub, read back. Both are timed in one run, on one recording.

use crate::explore::cuts::Which;
use crate::explore::options::{ExploreOptions, From, In};
use crate::explore::run::run;
use crate::guest::progress::Watch;
use crate::guest::{Start, Suite};
use crate::stack::scenario::ClaimKind;
use crate::stack::settings::DEFAULT;
use crate::trial::facts::RunFacts;
use crate::trial::options::TrialOptions;
use crate::trial::run::run_started;
use crate::verify::verdict::Verdict;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;

/// The plan is the same in every run.
const SEED: u64 = 7;
/// What [`Lab`](crate::guest::Lab) says when it starts a guest from power-on, and what a trial says
/// when nothing is left to be done in one: the stages between are those of a cut.
const FIRST_STAGE: &str = "booting a guest";
const BEHIND_LAST_STAGE: &str = "judging";

/// A cut the usual way, and states of its recording in a warm guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ZfsStates {
    /// Stages of the cut the usual way, with seconds.
    pub stages: Vec<(String, f64)>,
    /// All of them.
    pub usual_s: f64,
    /// States that were looked at in a warm guest.
    pub states: usize,
    /// The median of them, from the first byte shown to the state let go of.
    pub state_s: f64,
    /// Guests that it took.
    pub starts: u32,
}

impl ZfsStates {
    /// How many times cheaper a state is.
    pub fn ratio(&self) -> f64 {
        self.usual_s / self.state_s
    }
}

impl fmt::Display for ZfsStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ZFS: a cut the usual way {:.1} s, a state in a warm guest {:.2} s (median of {}, {} \
             started): {:.1} times cheaper",
            self.usual_s,
            self.state_s,
            self.states,
            match self.starts {
                1 => "one guest".to_owned(),
                starts => format!("{starts} guests"),
            },
            self.ratio()
        )?;
        writeln!(f, "  the usual way, stage by stage:")?;
        self.stages.iter().try_for_each(|(name, seconds)| writeln!(f, "  {seconds:>7.1} s  {name}"))
    }
}

/// Measures; runs are kept in `folder`.
pub fn measure(folder: &Path, states: NonZeroU32, watch: &Watch) -> Result<ZfsStates> {
    let options = TrialOptions {
        scenario: DEFAULT.to_owned(),
        sets: Vec::new(),
        seed: SEED,
        suite: Suite::default(),
        accel: None,
        runs: folder.join("zfs"),
    };
    let trial = run_started(&options, Start::Fresh, watch)?;
    let stages = stages_of_cut(&RunFacts::load(&trial.folder)?.stages);
    let options = ExploreOptions {
        from: From::Run(trial.folder.path().to_owned()),
        place: In::Guest,
        model: None,
        which: Some(Which::Sample { states }),
        budget: None,
        recovery_cuts: 0,
        workers: NonZeroUsize::MIN,
    };
    let explored = run(&options, watch)?.report;
    let consistent = explored.claims.iter().find(|claim| claim.kind == ClaimKind::Consistent);
    ensure!(
        consistent.is_some_and(|claim| claim.verdict == Verdict::Held),
        "states that are not consistent cannot be compared: {:?}",
        consistent.map(|claim| &claim.because)
    );
    let state_ms = explored.cost.state_ms_median.context("no state was looked at")?;
    Ok(ZfsStates {
        usual_s: stages.iter().map(|(_, seconds)| seconds).sum(),
        stages,
        states: (explored.states.known - explored.states.equal) as usize,
        state_s: state_ms as f64 / 1e3,
        starts: explored.cost.starts,
    })
}

/// The stages from the first boot to the last record that was read.
fn stages_of_cut(stages: &[(String, f64)]) -> Vec<(String, f64)> {
    let from_boot = stages.iter().skip_while(|(name, _)| !name.starts_with(FIRST_STAGE));
    from_boot.take_while(|(name, _)| name != BEHIND_LAST_STAGE).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_s_stages_are_those_from_the_first_boot_to_the_reading() {
        let all = ["building the image", "booting a guest (tcg)", "load", "booting a guest (tcg)"];
        let stages: Vec<(String, f64)> = all
            .into_iter()
            .chain(["reading every record back", "judging"])
            .map(|name| (name.to_owned(), 2.0))
            .collect();
        assert_eq!(stages_of_cut(&stages), stages[1..5]);
    }

    #[test]
    fn the_ratio_is_printed_with_both_of_its_sides() {
        let stages = vec![("booting a guest (tcg)".to_owned(), 60.0)];
        let states = ZfsStates { stages, usual_s: 60.0, states: 9, state_s: 4.0, starts: 1 };
        let text = states.to_string();
        for word in ["60.0 s", "4.00 s", "median of 9", "one guest", "15.0 times"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
