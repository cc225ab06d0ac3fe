//! From a scenario's text and the command line's `--set` to a checked scenario.

use super::scenario::Scenario;
use toml::{Table, Value};

/// Scenarios that the binary brings along.
const BUILT_IN: &[(&str, &str)] = &[
    ("zfs-sync-disabled", include_str!("../../workloads/zfs-sync-disabled.toml")),
    ("zfs-sync-disabled-full", include_str!("../../workloads/zfs-sync-disabled-full.toml")),
    ("zfs-on-partition", include_str!("../../workloads/zfs-on-partition.toml")),
    ("zfs-on-loop", include_str!("../../workloads/zfs-on-loop.toml")),
    ("zvol-ext4", include_str!("../../workloads/zvol-ext4.toml")),
    ("ext4", include_str!("../../workloads/ext4.toml")),
    ("xfs", include_str!("../../workloads/xfs.toml")),
    ("btrfs", include_str!("../../workloads/btrfs.toml")),
    ("blocks", include_str!("../../workloads/blocks.toml")),
    ("files", include_str!("../../workloads/files.toml")),
    ("files-ext4", include_str!("../../workloads/files-ext4.toml")),
    ("files-exhaustive", include_str!("../../workloads/files-exhaustive.toml")),
    ("btrfs-rename-over", include_str!("../../workloads/btrfs-rename-over.toml")),
    ("package-install", include_str!("../../workloads/package-install.toml")),
    ("sqlite", include_str!("../../workloads/sqlite.toml")),
    ("sqlite-ext4", include_str!("../../workloads/sqlite-ext4.toml")),
    ("billing", include_str!("../../workloads/billing.toml")),
    ("exec", include_str!("../../workloads/exec.toml")),
    ("postgresql", include_str!("../../workloads/postgresql.toml")),
    ("postgresql-forced", include_str!("../../workloads/postgresql-forced.toml")),
    ("dpkg", include_str!("../../workloads/dpkg.toml")),
];

/// The scenario that runs when none is named.
pub const DEFAULT: &str = BUILT_IN[0].0;

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// No such scenario.
    #[error("there is no scenario {name:?}: give the path of a TOML file, or one of {}", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read the scenario {path}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Not TOML, or not a scenario.
    #[error("{origin}: {problem}")]
    Parse {
        /// File or built-in name.
        origin: String,
        /// The parser's words, with line and column.
        problem: String,
    },
    /// A `--set` that cannot be applied.
    #[error("--set {setting}: {problem}")]
    Set {
        /// As it was given.
        setting: String,
        /// What is wrong.
        problem: String,
    },
    /// It contradicts itself.
    #[error("{origin}: {source}")]
    Unsound {
        /// File or built-in name.
        origin: String,
        /// Where and why.
        source: super::scenario::Unsound,
    },
}

/// Names of the scenarios that the binary brings along.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// Loads a scenario by name or path, and varies it.
pub fn load(name_or_path: &str, sets: &[String]) -> Result<Scenario, ScenarioError> {
    let text = match BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
        Some((_, text)) => (*text).to_owned(),
        None if name_or_path.contains('/') || name_or_path.ends_with(".toml") => {
            std::fs::read_to_string(name_or_path)
                .map_err(|source| ScenarioError::Read { path: name_or_path.to_owned(), source })?
        }
        None => return Err(ScenarioError::Unknown { name: name_or_path.to_owned() }),
    };
    parse(name_or_path, &text, sets)
}

/// Parses and checks a scenario's text.
pub fn parse(origin: &str, text: &str, sets: &[String]) -> Result<Scenario, ScenarioError> {
    let bad = |problem: String| ScenarioError::Parse { origin: origin.to_owned(), problem };
    // Parsed once as it stands, so that an error in the file names its line.
    let plain: Scenario = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
    let scenario = if sets.is_empty() {
        plain
    } else {
        let mut table: Table = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        for setting in sets {
            apply(&mut table, setting)
                .map_err(|problem| ScenarioError::Set { setting: setting.clone(), problem })?;
        }
        let varied: Result<Scenario, _> = table.try_into();
        varied.map_err(|error| ScenarioError::Set {
            setting: sets.join(" --set "),
            problem: error.to_string().trim().to_owned(),
        })?
    };
    let wrong = |source| ScenarioError::Unsound { origin: origin.to_owned(), source };
    scenario.check().map_err(wrong)?;
    Ok(scenario)
}

/// `customer.sync=standard`, `stack.txg_timeout_s=1`: a dataset's name stands for `dataset.NAME`.
fn apply(table: &mut Table, setting: &str) -> Result<(), String> {
    let (path, text) = setting.split_once('=').ok_or("write it as PATH=VALUE")?;
    let mut keys: Vec<&str> = path.split('.').collect();
    let is_dataset = |key: &str| {
        table.get("dataset").and_then(Value::as_table).is_some_and(|all| all.contains_key(key))
    };
    if is_dataset(keys[0]) {
        keys.insert(0, "dataset");
    }
    let (last, sections) = keys.split_last().ok_or("the path is empty")?;
    let mut at = table;
    for key in sections {
        let known: Vec<String> = at.keys().cloned().collect();
        at = at.get_mut(*key).and_then(Value::as_table_mut).ok_or_else(|| {
            format!("there is no section {key:?} here; there are {}", known.join(", "))
        })?;
    }
    at.insert((*last).to_owned(), value(text));
    Ok(())
}

/// TOML's own reading of the value; what is no TOML is a plain word.
fn value(text: &str) -> Value {
    let document: Result<Table, _> = toml::from_str(&format!("value = {text}"));
    let parsed = document.ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::scenario::*;
    use super::*;
    use crate::units::RunId;

    #[test]
    fn every_built_in_scenario_is_sound_and_named_as_its_file() {
        for name in names() {
            assert_eq!(load(name, &[]).unwrap().name, name);
        }
    }

    #[test]
    fn settings_reach_datasets_by_name_and_sections_by_path() {
        let sets = ["billing.sync=disabled".to_owned(), "stack.txg_timeout_s=1".to_owned()];
        let varied = load(DEFAULT, &sets).unwrap();
        assert_eq!(varied.dataset["billing"].sync, Sync::Disabled);
        assert_eq!(varied.stack.zfs().unwrap().txg_timeout_s, 1);
    }

    #[test]
    fn a_bad_setting_or_file_is_refused_with_its_place() {
        let refused = |set: &str| load(DEFAULT, &[set.to_owned()]).unwrap_err().to_string();
        assert!(refused("billing.sync=maybe").contains("maybe"));
        assert!(refused("nosuch.sync=disabled").contains("nosuch"));
        assert!(refused("billing.snyc=disabled").contains("snyc"));
        assert!(refused("guest.memory_mib=1").contains("guest.memory_mib"));
        assert!(refused("nonsense").contains("PATH=VALUE"));
        assert!(load("nosuch", &[]).unwrap_err().to_string().contains("zfs-sync-disabled"));
        let text = parse("x.toml", "name = 3", &[]).unwrap_err().to_string();
        assert!(text.contains("x.toml") && text.contains("line 1"), "{text}");
    }

    #[test]
    fn a_fault_in_a_step_that_a_stream_does_not_have_is_refused() {
        let varied = |name: &str, fault: &str| load(name, &[format!("customer.fault={fault}")]);
        assert!(varied("files", "skip-sync").is_ok(), "control");
        let refused = varied(DEFAULT, "skip-sync").unwrap_err().to_string();
        assert!(refused.contains("skip-sync") && refused.contains("append"), "{refused}");
        assert!(varied("files", "ack-before-fsync").is_err());
    }

    #[test]
    fn unpaced_scripts_hold_messages_back_and_paced_ones_do_not() {
        let plan = load("files", &[]).unwrap().plan(RunId([1; 16]), 7);
        let batches: Vec<u32> = plan.streams.iter().map(|stream| stream.batch).collect();
        assert_eq!(batches, [32, 1, 1], "billing, then both of customer's");
        assert_eq!(plan.bodies, 1, "no stream writes records");
    }

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        let scenario = load(DEFAULT, &[]).unwrap();
        let (run, seed) = (RunId([1; 16]), 7);
        assert_eq!(scenario.plan(run, seed), scenario.plan(run, seed));
        assert_eq!(scenario.plan(run, seed).streams.len(), 5);
        let batches: Vec<u32> = scenario.plan(run, seed).streams.iter().map(|s| s.batch).collect();
        assert_eq!(batches, [1; 5], "paced and sync=standard acks are never held back");
    }
}
