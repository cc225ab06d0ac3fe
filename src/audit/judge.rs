//! Holds what ZFS says of a pool's datasets against a policy. Pure.
//!
//! What always holds: a dataset passes only if exactly what the rules want of it is in effect; one
//! that no rule is about, or about which two rules disagree, never passes.

use super::policy::{Policy, Rule};
use crate::stack::scenario::Sync;
use crate::stack::zfs::{Property, parse_properties};
use serde::Serialize;

/// The version of the JSON document.
pub const FORMAT: u32 = 1;

/// A dataset or volume with what is in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// Its `sync`.
    pub sync: Sync,
    /// Where that comes from, in ZFS's words: `local`, `default`, `inherited from ...`, `received`.
    pub source: String,
}

/// Why ZFS's words are no list of datasets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A line of another form.
    #[error(
        "these are not the lines of `zfs get -Hp -o name,property,value,source -r sync`: {text:?}"
    )]
    Line {
        /// The beginning of the text.
        text: String,
    },
    /// A value that this tool does not know.
    #[error("{name} has sync={value}, which is none of standard, always and disabled")]
    Value {
        /// The dataset.
        name: String,
        /// Its value.
        value: String,
    },
    /// No line is about `sync`.
    #[error("no dataset is listed, so nothing can be said of the pool")]
    Nothing,
}

/// Reads the lines of `zfs get -Hp -o name,property,value,source`.
pub fn datasets(text: &str) -> Result<Vec<Dataset>, ListError> {
    let beginning = || text.chars().take(200).collect();
    let lines = parse_properties(text).ok_or_else(|| ListError::Line { text: beginning() })?;
    let of = |line: Property| {
        let known = [Sync::Standard, Sync::Always, Sync::Disabled];
        match known.into_iter().find(|sync| sync.as_str() == line.value) {
            Some(sync) => Ok(Dataset { name: line.name, sync, source: line.source }),
            None => Err(ListError::Value { name: line.name, value: line.value }),
        }
    };
    let lines = lines.into_iter().filter(|line| line.property == "sync");
    let all: Vec<Dataset> = lines.map(of).collect::<Result<_, _>>()?;
    match all.is_empty() {
        true => Err(ListError::Nothing),
        false => Ok(all),
    }
}

/// What is said of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Found {
    /// It has what it is to have.
    AsAsked {
        /// The pattern that says so.
        by: String,
    },
    /// It has something else.
    Wrong {
        /// What it is to have.
        wanted: Sync,
        /// The pattern that says so.
        by: String,
    },
    /// The policy says nothing of it.
    NoRule,
    /// Two rules want different things of it.
    Contradiction {
        /// Their patterns.
        by: Vec<String>,
    },
}

/// A dataset with what is said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The dataset.
    #[serde(flatten)]
    pub dataset: Dataset,
    /// What is said of it.
    #[serde(flatten)]
    pub found: Found,
}

/// A parent under which a dataset that is made anew would not get what it is to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewOnes {
    /// The parent.
    pub under: String,
    /// What they would get.
    pub would_get: Sync,
    /// What they are to have.
    pub wanted: Sync,
    /// The pattern that says so.
    pub by: String,
}

/// What is said of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// The version of this document.
    pub format: u32,
    /// The pool.
    pub pool: String,
    /// Whether all is as the policy says: the exit code is then 0, else 1.
    pub as_asked: bool,
    /// Every dataset and volume, in ZFS's order.
    pub datasets: Vec<Line>,
    /// Where new and reinstalled ones would get something else.
    pub new_ones: Vec<NewOnes>,
    /// Patterns of the policy that no dataset matches: misspelt, or of a server that is gone.
    pub unused: Vec<String>,
}

/// Holds the datasets against the policy.
pub fn judge(pool: &str, policy: &Policy, datasets: Vec<Dataset>) -> Audit {
    let new_ones: Vec<NewOnes> =
        policy.rule.iter().flat_map(|rule| new_ones(rule, &datasets)).collect();
    let unused = unused(pool, policy, &datasets);
    let line = |dataset: Dataset| {
        let found = found(policy, &dataset);
        Line { dataset, found }
    };
    let datasets: Vec<Line> = datasets.into_iter().map(line).collect();
    let all_found = datasets.iter().all(|line| matches!(line.found, Found::AsAsked { .. }));
    let as_asked = all_found && new_ones.is_empty();
    Audit { format: FORMAT, pool: pool.to_owned(), as_asked, datasets, new_ones, unused }
}

/// What a rule wants of a dataset, and by which pattern: its exceptions come first.
fn wanted(rule: &Rule, name: &str) -> Vec<(Sync, String)> {
    if !rule.datasets.matches(name) {
        return Vec::new();
    }
    let excepted = rule.except.iter().filter(|exception| exception.datasets.matches(name));
    let excepted: Vec<_> =
        excepted.map(|exception| (exception.sync, exception.datasets.to_string())).collect();
    match excepted.is_empty() {
        true => vec![(rule.sync, rule.datasets.to_string())],
        false => excepted,
    }
}

fn found(policy: &Policy, dataset: &Dataset) -> Found {
    let all: Vec<_> = policy.rule.iter().flat_map(|rule| wanted(rule, &dataset.name)).collect();
    match all.first() {
        None => Found::NoRule,
        Some((first, _)) if all.iter().any(|(sync, _)| sync != first) => {
            Found::Contradiction { by: all.into_iter().map(|(_, by)| by).collect() }
        }
        Some((sync, by)) if *sync == dataset.sync => Found::AsAsked { by: by.clone() },
        Some((sync, by)) => Found::Wrong { wanted: *sync, by: by.clone() },
    }
}

/// A dataset that is made without a `sync` of its own gets what is in effect on its parent.
fn new_ones(rule: &Rule, datasets: &[Dataset]) -> Vec<NewOnes> {
    let of = |parent: &Dataset| {
        let excepted = rule.except.iter().filter(|e| e.datasets.matches_below(&parent.name));
        let mut wanted: Vec<_> = excepted.map(|e| (e.sync, &e.datasets)).collect();
        if wanted.is_empty() {
            wanted.push((rule.sync, &rule.datasets));
        }
        let (sync, by) = *wanted.first()?;
        let differs = wanted.iter().all(|(sync, _)| *sync != parent.sync);
        differs.then(|| NewOnes {
            under: parent.name.clone(),
            would_get: parent.sync,
            wanted: sync,
            by: by.to_string(),
        })
    };
    let parents = datasets.iter().filter(|parent| rule.datasets.matches_below(&parent.name));
    parents.filter(|_| rule.inherits).filter_map(of).collect()
}

fn unused(pool: &str, policy: &Policy, datasets: &[Dataset]) -> Vec<String> {
    let exceptions = policy.rule.iter().flat_map(|rule| &rule.except);
    let patterns =
        policy.rule.iter().map(|rule| &rule.datasets).chain(exceptions.map(|e| &e.datasets));
    patterns
        .filter(|pattern| pattern.is_about(pool))
        .filter(|pattern| !datasets.iter().any(|dataset| pattern.matches(&dataset.name)))
        .map(ToString::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: &str = "\
        [[rule]]\ndatasets = \"tank\"\nsync = \"standard\"\n\
        [[rule]]\ndatasets = \"tank/billing\"\nsync = \"standard\"\n\
        [[rule]]\ndatasets = \"tank/servers\"\nsync = \"disabled\"\n\
        [[rule]]\ndatasets = \"tank/servers/*\"\nsync = \"disabled\"\n\
        except = [{ datasets = \"tank/servers/alice\", sync = \"standard\" }]\n";
    const ZFS: &str = "tank\tsync\tstandard\tdefault\n\
        tank/billing\tsync\tstandard\tdefault\n\
        tank/servers\tsync\tdisabled\tlocal\n\
        tank/servers/alice\tsync\tstandard\tlocal\n\
        tank/servers/bob\tsync\tdisabled\tinherited from tank/servers\n";

    fn audit(policy: &str, zfs: &str) -> Audit {
        let policy = Policy::parse("p.toml", policy).expect("a policy");
        judge("tank", &policy, datasets(zfs).expect("a list"))
    }

    fn of<'a>(audit: &'a Audit, name: &str) -> &'a Found {
        &audit.datasets.iter().find(|line| line.dataset.name == name).expect(name).found
    }

    #[test]
    fn a_pool_that_is_as_the_policy_says_passes_with_its_exceptions() {
        let audit = audit(POLICY, ZFS);
        assert!(audit.as_asked, "{audit:#?}");
        assert_eq!(audit.datasets.len(), 5);
        let by = "tank/servers/alice".to_owned();
        assert_eq!(*of(&audit, "tank/servers/alice"), Found::AsAsked { by });
        assert_eq!(audit.datasets[4].dataset.source, "inherited from tank/servers");
        assert!(audit.unused.is_empty() && audit.new_ones.is_empty());
    }

    #[test]
    fn a_reinstalled_server_that_lost_its_exception_is_wrong_and_nothing_else_is() {
        let reinstalled = "alice\tsync\tdisabled\tinherited from tank/servers";
        let audit = audit(POLICY, &ZFS.replace("alice\tsync\tstandard\tlocal", reinstalled));
        let by = "tank/servers/alice".to_owned();
        let wrong = Found::Wrong { wanted: Sync::Standard, by };
        assert_eq!(*of(&audit, "tank/servers/alice"), wrong);
        assert!(!audit.as_asked);
        let passed = |line: &&Line| matches!(line.found, Found::AsAsked { .. });
        assert_eq!(audit.datasets.iter().filter(passed).count(), 4);
    }

    #[test]
    fn a_dataset_without_a_rule_and_one_with_two_never_pass() {
        let more = format!("{ZFS}tank/scratch\tsync\tdisabled\tlocal\n");
        let unruled = audit(POLICY, &more);
        assert_eq!((of(&unruled, "tank/scratch"), unruled.as_asked), (&Found::NoRule, false));
        let twice = format!("{POLICY}[[rule]]\ndatasets = \"tank/b*\"\nsync = \"disabled\"\n");
        let torn = audit(&twice, ZFS);
        let by = vec!["tank/billing".to_owned(), "tank/b*".to_owned()];
        assert_eq!(*of(&torn, "tank/billing"), Found::Contradiction { by });
        assert!(!torn.as_asked);
        let agreeing =
            twice.replace("tank/b*\"\nsync = \"disabled", "tank/b*\"\nsync = \"standard");
        assert!(audit(&agreeing, ZFS).as_asked, "control: they want the same");
    }

    #[test]
    fn a_server_to_come_that_would_get_something_else_is_told_by_its_parent() {
        // Each server has it by itself, and their parent does not.
        let local = ZFS
            .replace("servers\tsync\tdisabled\tlocal", "servers\tsync\tstandard\tdefault")
            .replace("inherited from tank/servers", "local");
        let policy = POLICY.replace(
            "\"tank/servers\"\nsync = \"disabled\"",
            "\"tank/servers\"\nsync = \"standard\"",
        );
        let found = audit(&policy, &local);
        let [new_ones] = &found.new_ones[..] else { panic!("{found:#?}") };
        assert_eq!((new_ones.under.as_str(), new_ones.would_get), ("tank/servers", Sync::Standard));
        assert!(!found.as_asked);
        let given = policy.replace("except = ", "inherits = false\nexcept = ");
        assert!(audit(&given, &local).as_asked, "control: each is given it when it is made");
    }

    #[test]
    fn everything_below_includes_what_comes_below_a_server() {
        let policy = POLICY.replace("servers/*", "servers/**");
        let zfs = format!("{ZFS}tank/servers/bob/home\tsync\tstandard\tlocal\n");
        let found = audit(&policy, &zfs);
        let by = "tank/servers/**".to_owned();
        let wrong = Found::Wrong { wanted: Sync::Disabled, by };
        assert_eq!(*of(&found, "tank/servers/bob/home"), wrong);
        let [alice, home] = &found.new_ones[..] else { panic!("{found:#?}") };
        assert_eq!((alice.under.as_str(), alice.would_get), ("tank/servers/alice", Sync::Standard));
        assert_eq!(home.under, "tank/servers/bob/home");
        let with_hers = policy.replace(
            "except = [",
            "except = [{ datasets = \"tank/servers/alice/**\", sync = \"standard\" }, ",
        );
        assert!(audit(&with_hers, ZFS).as_asked, "control: what is below alice is excepted too");
    }

    #[test]
    fn patterns_that_match_nothing_are_told_but_fail_nothing() {
        let gone = POLICY.replace(
            "except = [",
            "except = [{ datasets = \"tank/servers/eve\", sync = \"standard\" }, ",
        );
        let other = format!("{gone}[[rule]]\ndatasets = \"other/x\"\nsync = \"standard\"\n");
        let found = audit(&other, ZFS);
        assert_eq!(found.unused, ["tank/servers/eve"], "another pool's rules are no matter");
        assert!(found.as_asked);
    }

    #[test]
    fn words_that_are_no_list_are_refused() {
        let message = "cannot open 'tank': dataset does not exist\n";
        assert!(matches!(datasets(message), Err(ListError::Line { .. })));
        assert_eq!(datasets(""), Err(ListError::Nothing));
        let odd = datasets("tank\tsync\tmaybe\tlocal\n").expect_err("no value");
        assert!(odd.to_string().contains("sync=maybe"), "{odd}");
    }

    proptest! {
        #[test]
        fn any_words_are_a_list_or_an_error(text in "[a-z/\t\n]{0,60}", whole: String) {
            let _ = (datasets(&text), datasets(&whole), Policy::parse("p.toml", &whole));
        }

        #[test]
        fn all_is_as_asked_only_if_each_dataset_has_what_its_one_rule_wants(
            set in prop::collection::vec(0usize..3, 1..6), wanted in 0usize..3, ruled in 0usize..6,
        ) {
            let values = ["standard", "always", "disabled"];
            let line = |(n, value): (usize, &usize)| {
                let pool = if n < ruled { "tank" } else { "other" };
                format!("{pool}/d{n}\tsync\t{}\tlocal\n", values[*value])
            };
            let list: String = set.iter().enumerate().map(line).collect();
            let wants = values[wanted];
            let policy = format!("[[rule]]\ndatasets = \"tank/d*\"\nsync = \"{wants}\"\n");
            let expected = set.len() <= ruled && set.iter().all(|value| *value == wanted);
            prop_assert_eq!(audit(&policy, &list).as_asked, expected);
        }
    }
}
