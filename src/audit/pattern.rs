//! Names of datasets with wildcards: `*` stands for anything within one part of a name, `**` as the
//! last part for everything below. Pure.

use serde::Deserialize;
use std::fmt;

/// Everything below, at any depth.
const BELOW: &str = "**";

/// A name with wildcards, in its parts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    parts: Vec<String>,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no dataset's name or pattern: {problem}")]
pub struct BadPattern {
    text: String,
    problem: &'static str,
}

impl TryFrom<String> for Pattern {
    type Error = BadPattern;

    fn try_from(text: String) -> Result<Pattern, BadPattern> {
        let parts: Vec<String> = text.split('/').map(str::to_owned).collect();
        let (last, above) = (parts.len() - 1, &parts[..parts.len() - 1]);
        // Characters of names: zfs_namecheck.c of OpenZFS.
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.: *".contains(c);
        let problem = if parts.iter().any(String::is_empty) {
            "a part between slashes is empty"
        } else if !text.replace('/', "").chars().all(good) {
            "names are of letters, digits, and - _ . : and space; * and ** stand for any"
        } else if above.iter().any(|part| part.contains(BELOW))
            || parts[last].contains(BELOW) && parts[last] != BELOW
        {
            "** is the whole last part: everything below"
        } else if last == 0 && parts[0] == BELOW {
            "it would be every dataset of every pool; name the pool"
        } else {
            return Ok(Pattern { parts });
        };
        Err(BadPattern { text, problem })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.parts.join("/"))
    }
}

impl Pattern {
    /// Whether a dataset is one of these.
    pub fn matches(&self, name: &str) -> bool {
        let parts: Vec<&str> = name.split('/').collect();
        let one_by_one = |wanted: &[String], parts: &[&str]| {
            wanted.iter().zip(parts).all(|(wanted, part)| part_matches(wanted, part))
        };
        match self.parts.split_last() {
            Some((last, above)) if last == BELOW => {
                parts.len() > above.len() && one_by_one(above, &parts)
            }
            _ => parts.len() == self.parts.len() && one_by_one(&self.parts, &parts),
        }
    }

    /// Whether a dataset is the parent of ones that may still come and would match.
    pub fn matches_below(&self, parent: &str) -> bool {
        let Some((last, above)) = self.parts.split_last() else { return false };
        let above = Pattern { parts: above.to_vec() };
        let deeper = last == BELOW && self.matches(parent);
        !above.parts.is_empty() && last.contains('*') && (above.matches(parent) || deeper)
    }

    /// Whether it can match anything of a pool.
    pub fn is_about(&self, pool: &str) -> bool {
        self.parts.first().is_some_and(|part| part_matches(part, pool))
    }
}

/// The classic walk: at a mismatch, the last star takes one character more.
fn part_matches(wanted: &str, part: &str) -> bool {
    let (wanted, part) = (wanted.as_bytes(), part.as_bytes());
    let (mut w, mut p) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while p < part.len() {
        match wanted.get(w) {
            Some(b'*') => {
                last_star = Some((w, p));
                w += 1;
            }
            Some(byte) if *byte == part[p] => (w, p) = (w + 1, p + 1),
            _ => match last_star {
                Some((star, from)) => {
                    (w, p) = (star + 1, from + 1);
                    last_star = Some((star, from + 1));
                }
                None => return false,
            },
        }
    }
    wanted[w..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::try_from(text.to_owned()).expect("a pattern")
    }

    #[test]
    fn a_star_stays_within_its_part_and_two_take_everything_below() {
        let servers = pattern("tank/servers/*");
        assert!(servers.matches("tank/servers/alice"));
        for other in ["tank/servers", "tank/servers/alice/home", "tank/server/alice", "tank"] {
            assert!(!servers.matches(other), "{other}");
        }
        let below = pattern("tank/servers/**");
        assert!(below.matches("tank/servers/alice") && below.matches("tank/servers/alice/home"));
        assert!(!below.matches("tank/servers") && !below.matches("tank/serverss/alice"));
        assert!(pattern("tank").matches("tank") && !pattern("tank").matches("tank2"));
        assert!(pattern("tank/vm-*-disk").matches("tank/vm-7-disk"));
    }

    #[test]
    fn the_parents_of_what_may_still_come_are_known() {
        assert!(pattern("tank/servers/*").matches_below("tank/servers"));
        assert!(pattern("tank/servers/**").matches_below("tank/servers"));
        assert!(pattern("tank/servers/**").matches_below("tank/servers/bob/home"));
        assert!(!pattern("tank/servers/*").matches_below("tank/servers/bob"));
        assert!(pattern("tank/*/servers-*").matches_below("tank/west"));
        assert!(!pattern("tank/servers/*").matches_below("tank"));
        assert!(!pattern("tank/billing").matches_below("tank"), "it is one dataset, there or not");
        assert!(!pattern("ta*").matches_below("tank"));
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        for (text, words) in [
            ("tank//a", "empty"),
            ("", "empty"),
            ("/tank", "empty"),
            ("tank/a@snap", "letters"),
            ("tank/**/a", "last part"),
            ("tank/a**", "last part"),
            ("**", "name the pool"),
        ] {
            let error = Pattern::try_from(text.to_owned()).expect_err(text).to_string();
            assert!(error.contains(words) && error.contains(&format!("{text:?}")), "{error}");
        }
        let text = "tank/a b_c-d.e:f/*";
        assert_eq!(pattern(text).to_string(), text, "control");
    }

    /// By the definition: a star is nothing, or one character and the star again.
    fn by_definition(wanted: &[u8], part: &[u8]) -> bool {
        match (wanted.split_first(), part.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                by_definition(rest, part)
                    || part.split_first().is_some_and(|(_, tail)| by_definition(wanted, tail))
            }
            (Some((byte, rest)), Some((first, tail))) => byte == first && by_definition(rest, tail),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn the_walk_agrees_with_the_definition(wanted in "[ab*]{0,7}", part in "[ab]{0,9}") {
            let expected = by_definition(wanted.as_bytes(), part.as_bytes());
            prop_assert_eq!(part_matches(&wanted, &part), expected);
        }
    }
}
