//! What a scenario may say. Each refusal names the field, what is wrong with it, and what would be
//! right.

use super::scenario::{ClaimKind, ClaimSpec, CutWhen, DatasetSpec, Scenario, Sync};
use crate::workload::plan::{Pattern, Synchronous};

/// Streams of a scenario, each a thread.
const STREAMS_MAX: u32 = 256;

/// A scenario that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Unsound {
    /// The field.
    pub place: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

pub(super) fn unsound<T>(
    place: impl Into<String>,
    problem: impl Into<String>,
) -> Result<T, Unsound> {
    Err(Unsound { place: place.into(), problem: problem.into() })
}

impl Scenario {
    /// Refuses a scenario that contradicts itself.
    pub fn check(&self) -> Result<(), Unsound> {
        self.check_sizes()?;
        self.check_datasets()?;
        self.claim.iter().enumerate().try_for_each(|(n, claim)| self.check_claim(n, claim))?;
        match self.claim.is_empty() {
            true => unsound("claim", "there is none, so nothing would be judged"),
            false => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<(), Unsound> {
        within("guest.memory_mib", f64::from(self.guest.memory_mib), 512.0, 16_384.0)?;
        within("guest.cpus", f64::from(self.guest.cpus), 1.0, 64.0)?;
        within("disk.flush_ms", self.disk.flush_ms, 0.0, 10_000.0)?;
        within("disk.bandwidth_mib_s", self.disk.bandwidth_mib_s, 0.0, 1e6)?;
        within("cut.load_seconds", self.cut.load_seconds, 0.5, 600.0)?;
        check_name("name", &self.name)?;
        self.stack.check(self.disk.size_mib, self.dataset.len())?;
        match (self.cut.when, self.stack.plain_fs()) {
            (CutWhen::Worst, Some(fs)) => {
                let problem = format!(
                    "\"worst\" waits for a commit of a pool, and {fs} has none; use \"uniform\""
                );
                unsound("cut.when", problem)
            }
            _ => Ok(()),
        }
    }

    fn check_datasets(&self) -> Result<(), Unsound> {
        let mut streams: u32 = 0;
        for (name, dataset) in &self.dataset {
            let place = format!("dataset.{name}");
            check_name(&place, name)?;
            self.stack.check_dataset(&place, dataset)?;
            dataset.check_fault(&place)?;
            self.check_scripts(&place, dataset)?;
            for (n, stream) in dataset.stream.iter().enumerate() {
                let place = format!("dataset.{name}.stream[{n}]");
                stream.check(&place, STREAMS_MAX)?;
                streams = streams.saturating_add(stream.count);
            }
        }
        match streams {
            // Of a log that another tool wrote only the file system can be judged.
            0 if self.claim.iter().all(|claim| claim.kind == ClaimKind::Consistent) => Ok(()),
            0 => unsound("dataset", "no stream writes anything"),
            1..=STREAMS_MAX => Ok(()),
            _ => unsound(
                "dataset",
                format!("{streams} streams; at most {STREAMS_MAX} are supported"),
            ),
        }
    }

    /// A file system on a volume that does not wait comes back as it was at one instant *after its own
    /// recovery*: neither one instant of the script nor what its syncs promised.
    fn check_scripts(&self, place: &str, dataset: &DatasetSpec) -> Result<(), Unsound> {
        let has_scripts = dataset.stream.iter().any(|stream| stream.pattern().is_of_scripts());
        match has_scripts && self.stack.has_volumes() && dataset.sync == Sync::Disabled {
            true => unsound(
                place,
                "a script on a volume with sync=disabled cannot be judged: no instant of the script \
                 and no sync is promised; let it wait (sync = \"standard\"), or write records",
            ),
            false => Ok(()),
        }
    }

    fn check_claim(&self, n: usize, claim: &ClaimSpec) -> Result<(), Unsound> {
        let place = format!("claim[{n}] ({})", claim.kind.name());
        match &claim.dataset {
            Some(name) => {
                let Some(dataset) = self.dataset.get(name) else {
                    return unsound(place, format!("there is no dataset {name:?}"));
                };
                if dataset.stream.is_empty() {
                    return unsound(place, format!("no stream writes to {name}"));
                }
                check_patterns(&place, claim.kind, dataset)?;
            }
            None if claim.kind.needs_dataset() => return unsound(place, "dataset is missing"),
            None => {}
        }
        match (claim.kind, claim.seconds) {
            (ClaimKind::MaxLoss, Some(d)) if d > 0.0 && d <= 600.0 => Ok(()),
            (ClaimKind::MaxLoss, _) => unsound(place, "seconds must be within 0 to 600"),
            (_, Some(_)) => unsound(place, "seconds belongs to max-loss only"),
            (_, None) => Ok(()),
        }
    }
}

impl DatasetSpec {
    fn check_fault(&self, place: &str) -> Result<(), Unsound> {
        let Some(fault) = self.fault else { return Ok(()) };
        match self.stream.iter().find(|stream| !fault.fits(&stream.pattern())) {
            Some(stream) => {
                let problem = format!(
                    "{} is a fault in a step that {} does not have",
                    fault.name(),
                    stream.pattern.name()
                );
                unsound(format!("{place}.fault"), problem)
            }
            None => Ok(()),
        }
    }
}

/// Refuses a claim that the streams of its dataset cannot answer, or that nobody makes of them.
fn check_patterns(place: &str, kind: ClaimKind, dataset: &DatasetSpec) -> Result<(), Unsound> {
    let patterns: Vec<Pattern> = dataset.stream.iter().map(|stream| stream.pattern()).collect();
    let is_normal = |pattern: &Pattern| matches!(pattern, Pattern::Sqlite(sqlite) if sqlite.synchronous == Synchronous::Normal);
    let waits = dataset.sync != Sync::Disabled;
    match kind {
        ClaimKind::MaxLoss if waits && patterns.iter().any(Pattern::is_of_scripts) => unsound(
            place,
            "where syncs are waited for, what a script did not sync may be lost at any age: claim \
             durable, or take a dataset with sync=disabled",
        ),
        ClaimKind::Durable if patterns.iter().any(is_normal) => unsound(
            place,
            "SQLite does not promise that a commit is durable with synchronous \"normal\" \
             (sqlite.org/pragma.html#pragma_synchronous); claim max-loss, or use \"full\"",
        ),
        ClaimKind::PointInTime if !patterns.iter().any(Pattern::tells_order) => unsound(
            place,
            "what a program of exec says puts nothing of other streams before or after it, so one \
             instant cannot be told; claim prefix and max-loss",
        ),
        ClaimKind::Prefix if !patterns.iter().any(Pattern::is_of_rows) => {
            unsound(place, "a prefix is claimed of transactions: of streams of sqlite or exec")
        }
        _ => Ok(()),
    }
}

pub(super) fn within(place: &str, value: f64, lo: f64, hi: f64) -> Result<(), Unsound> {
    match (lo..=hi).contains(&value) {
        true => Ok(()),
        false => unsound(place, format!("{value} is not within {lo} to {hi}")),
    }
}

/// Names end up in paths and in tools' arguments.
pub(super) fn check_name(place: &str, name: &str) -> Result<(), Unsound> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    match starts && name.len() <= 32 && name.chars().all(good) {
        true => Ok(()),
        false => unsound(
            place,
            format!("{name:?} must be 1 to 32 of a-z, 0-9 and -, and start with a letter"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::load;

    fn refused(scenario: &str, sets: &[&str]) -> String {
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        load(scenario, &sets).expect_err("refused").to_string()
    }

    #[test]
    fn a_claim_that_sqlite_does_not_make_is_refused_with_its_source() {
        let normal = |of: &str| {
            let stream = format!(
                "{of}.stream=[{{pattern=\"sqlite\",journal=\"wal\",synchronous=\"normal\"}}]"
            );
            load("sqlite", &[stream])
        };
        let words = normal("billing").expect_err("durable is claimed of it").to_string();
        assert!(words.contains("durable") && words.contains("sqlite.org"), "{words}");
        assert!(normal("customer").is_ok(), "a prefix and a window are claimed of it");
    }

    #[test]
    fn a_prefix_is_of_transactions_and_one_instant_is_not_told_by_a_program() {
        let append = "billing.stream=[{pattern=\"append\"}]";
        assert!(refused("sqlite", &[append]).contains("a prefix is claimed of transactions"));
        let only = "customer.stream=[{pattern=\"exec\",run=[\"a\"],survivors=[\"b\"]}]";
        assert!(refused("sqlite", &[only]).contains("one instant"));
        let beside = "customer.stream=[{pattern=\"exec\",run=[\"a\"],survivors=[\"b\"]}, \
            {pattern=\"append\"}]";
        assert!(load("sqlite", &[beside.to_owned()]).is_ok(), "the others of it are told");
    }

    #[test]
    fn a_script_s_loss_is_bounded_only_where_its_dataset_is_one_instant() {
        let waits = ["customer.sync=standard"];
        assert!(refused("files", &waits).contains("claim durable"));
        assert!(load("files", &[]).is_ok(), "control");
        let script = "customer.stream=[{pattern=\"files\"}]";
        assert!(refused("zvol-ext4", &[script]).contains("volume"));
        let waits = ["billing.stream=[{pattern=\"files\"}]".to_owned()];
        assert!(load("zvol-ext4", &waits).is_ok(), "control");
    }

    #[test]
    fn a_fault_is_of_a_step_that_the_streams_have() {
        assert!(refused("sqlite", &["customer.fault=ack-before-fsync"]).contains("sqlite"));
        assert!(refused("exec", &["customer.fault=stall"]).contains("exec"));
        assert!(refused("ext4", &["data.fault=no-sync"]).contains("no-sync"));
        assert!(load("sqlite", &["customer.fault=no-sync".to_owned()]).is_ok(), "control");
    }
}
