//! What a run's verdicts rest on beside its trace and observation; kept in its folder.

use super::folder::RunDir;
use super::inspect::Observation;
use super::report::Versions;
use crate::cut::choose::CutPlan;
use crate::guest::Accel;
use crate::guest::cache::digest_of_file;
use crate::guest::error::GuestError;
use crate::record::found::{FoundDecoder, FoundError};
use crate::stack::scenario::Scenario;
use crate::verify::consistent::Recovery;
use crate::verify::txgs::TxgLimits;
use crate::workload::plan::Plan;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Version of facts.json and of what stands beside it.
pub const FORMAT: u32 = 2;

/// What was fixed, chosen and measured in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Version of this document.
    pub format: u32,
    /// SHA-256 of the files that the verdicts rest on, by name: a file that differs is not judged.
    pub sha256: BTreeMap<String, String>,
    /// Everything random but the run id follows from it.
    pub seed: u64,
    /// Name or path of the scenario, as it was asked for.
    pub asked: String,
    /// The `--set`s.
    pub sets: Vec<String>,
    /// The scenario with every `--set` applied.
    pub scenario: Scenario,
    /// The plan of its workload, with the run's id.
    pub plan: Plan,
    /// What ran.
    pub versions: Versions,
    /// How the guest's CPU was run; none where this machine's own kernel ran the load.
    pub acceleration: Option<Accel>,
    /// Under which limits the pool closed its groups, where there is one.
    pub limits: Option<TxgLimits>,
    /// When the cut was to be.
    pub cut: CutPlan,
    /// Until the power was off, in seconds from the cut.
    pub power_off_s: f64,
    /// Time of a fixed computation in the guest over the same on the lab's CPU.
    pub guest_cpu_slowdown: f64,
    /// The mark from which on the states of an imported log are of interest.
    #[serde(default)]
    pub begins_at: Option<String>,
    /// Things worth knowing, as they came up.
    pub notes: Vec<String>,
    /// Stages with their seconds.
    pub stages: Vec<(String, f64)>,
}

/// Why a run's folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// A file is missing or cannot be read.
    #[error("cannot read {}: {source}; is it the folder of a finished run?", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is not a run's: {problem}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A file cannot be read for its digest.
    #[error(transparent)]
    Digest(#[from] GuestError),
    /// What was read back cannot be decoded.
    #[error("{}: {source}", path.display())]
    Observed {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: FoundError,
    },
}

fn read(path: &Path) -> Result<Vec<u8>, FactsError> {
    fs::read(path).map_err(|source| FactsError::Read { path: path.to_owned(), source })
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, FactsError> {
    serde_json::from_slice(&read(path)?)
        .map_err(|why| FactsError::Content { path: path.to_owned(), problem: why.to_string() })
}

impl RunFacts {
    /// Reads a run's facts.
    pub fn load(folder: &RunDir) -> Result<RunFacts, FactsError> {
        let facts: RunFacts = read_json(&folder.facts())?;
        let bad = |problem| Err(FactsError::Content { path: folder.facts(), problem });
        if facts.format != FORMAT {
            return bad(format!("format {} is not {FORMAT}, this version's", facts.format));
        }
        if let Err(unsound) = facts.scenario.check() {
            return bad(unsound.to_string());
        }
        if facts.plan != facts.scenario.plan(facts.plan.run, facts.seed) {
            return bad("its plan is not the one of its scenario and seed".to_owned());
        }
        facts.check_files(folder)?;
        Ok(facts)
    }

    /// Takes the digests of the files that are there.
    pub fn seal(&mut self, folder: &RunDir) -> Result<(), FactsError> {
        self.sha256 = digests(folder)?;
        Ok(())
    }

    fn check_files(&self, folder: &RunDir) -> Result<(), FactsError> {
        let now = digests(folder)?;
        let differs = |name: &&String| now.get(*name) != self.sha256.get(*name);
        match self.sha256.keys().chain(now.keys()).find(differs) {
            None => Ok(()),
            Some(name) => Err(FactsError::Content {
                path: folder.path().join(name),
                problem: "it is not the file that this run wrote (SHA-256 differs)".to_owned(),
            }),
        }
    }
}

/// Digests of the trace and, where the run came so far, of what was observed.
fn digests(folder: &RunDir) -> Result<BTreeMap<String, String>, FactsError> {
    let mut digests = BTreeMap::new();
    for path in [folder.trace(), folder.recovery(), folder.observed()] {
        if !path.exists() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        digests.insert(name, digest_of_file(&path)?);
    }
    Ok(digests)
}

impl Observation {
    /// Reads what was found in a run's crash state: the file of each of the plan's streams, in order.
    pub fn load(folder: &RunDir, plan: &Plan) -> Result<Observation, FactsError> {
        let recovery: Recovery = read_json(&folder.recovery())?;
        let path = folder.observed();
        let bytes = read(&path)?;
        let bad = |source| FactsError::Observed { path: path.clone(), source };
        let (mut rest, mut decoder) = (&bytes[..], FoundDecoder::default());
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let Some((part, behind)) = behind.split_at_checked(length) else {
                let problem = format!("it ends inside a part of {length} bytes");
                return Err(FactsError::Content { path, problem });
            };
            decoder.part(part).map_err(bad)?;
            rest = behind;
        }
        if !rest.is_empty() {
            let problem = "it ends inside the length of a part".to_owned();
            return Err(FactsError::Content { path, problem });
        }
        // Where nothing could be read there is nothing for any stream.
        let planned = match recovery.was_read() {
            true => plan.clone(),
            false => Plan { streams: Vec::new(), ..plan.clone() },
        };
        let found = decoder.finish(&planned).map_err(bad)?;
        Ok(Observation { recovery, found })
    }

    /// The bytes of `observed`: each part behind its length.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.found.encode(&mut |part: &[u8]| {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }
}
