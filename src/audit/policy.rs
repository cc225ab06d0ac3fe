//! A policy file: which datasets are to have which `sync`. Pure.
//!
//! ```toml
//! [[rule]]
//! datasets = "tank/servers/*"
//! sync = "disabled"
//! except = [{ datasets = "tank/servers/alice", sync = "standard" }]
//!
//! [[rule]]
//! datasets = "tank/billing"
//! sync = "standard"
//! ```

use super::pattern::Pattern;
use crate::stack::scenario::Sync;
use serde::Deserialize;

/// What a pool's owner wants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The rules; their order does not matter.
    pub rule: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which datasets it is about.
    pub datasets: Pattern,
    /// What they are to have in effect.
    pub sync: Sync,
    /// Whether a dataset that is made anew gets it from its parent, so that the parent must have
    /// it too. False where each is given it when it is made.
    #[serde(default = "yes")]
    pub inherits: bool,
    /// Datasets of the pattern that are to have something else.
    #[serde(default)]
    pub except: Vec<Exception>,
}

/// An exception from a rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// Which datasets it is about.
    pub datasets: Pattern,
    /// What they are to have in effect.
    pub sync: Sync,
}

fn yes() -> bool {
    true
}

/// Why a text is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Not TOML, or a field that is none.
    #[error("{origin}: {problem}")]
    Parse {
        /// The file.
        origin: String,
        /// The parser's words, with line and column.
        problem: String,
    },
    /// It says nothing.
    #[error(
        "{origin}: there is no rule, so every dataset would be without one; write \
         [[rule]] with datasets = \"POOL/servers/*\" and sync = \"disabled\""
    )]
    Empty {
        /// The file.
        origin: String,
    },
}

impl Policy {
    /// Reads a policy's text. `origin` names it in errors.
    pub fn parse(origin: &str, text: &str) -> Result<Policy, PolicyError> {
        let origin = origin.to_owned();
        let policy: Policy = match toml::from_str(text) {
            Ok(policy) => policy,
            Err(error) => {
                let problem = error.to_string().trim_end().to_owned();
                return Err(PolicyError::Parse { origin, problem });
            }
        };
        match policy.rule.is_empty() {
            true => Err(PolicyError::Empty { origin }),
            false => Ok(policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[rule]]\ndatasets = \"tank/servers/*\"\nsync = \"disabled\"\n";

    fn error(text: &str) -> String {
        Policy::parse("p.toml", text).expect_err("no policy").to_string()
    }

    #[test]
    fn a_policy_is_read_with_its_exceptions_and_defaults() {
        let text = format!(
            "{GOOD}except = [{{ datasets = \"tank/servers/alice\", sync = \"standard\" }}]\n\
             [[rule]]\ndatasets = \"tank\"\nsync = \"always\"\ninherits = false\n"
        );
        let policy = Policy::parse("p.toml", &text).expect("a policy");
        let [servers, pool] = &policy.rule[..] else { panic!("two rules") };
        assert_eq!((servers.sync, servers.inherits), (Sync::Disabled, true));
        assert_eq!(servers.except[0].sync, Sync::Standard);
        assert_eq!((pool.sync, pool.inherits), (Sync::Always, false));
    }

    #[test]
    fn an_error_names_the_file_the_place_and_what_is_right() {
        let bad = error(&GOOD.replace("disabled", "off"));
        assert!(bad.contains("p.toml") && bad.contains("line 3"), "{bad}");
        assert!(bad.contains("off") && bad.contains("standard"), "{bad}");
        assert!(error(&format!("{GOOD}snyc = 1\n")).contains("snyc"));
        assert!(error(&GOOD.replace("sync = \"disabled\"\n", "")).contains("sync"));
        let name = error(&GOOD.replace("servers/*", "servers//*"));
        assert!(name.contains("tank/servers//*") && name.contains("line 2"), "{name}");
        assert!(error("rule = []\n").contains("[[rule]]"));
        assert!(error("").contains("rule"));
    }
}
