//! An audit as text. Pure.

use super::judge::{Audit, Found, Line};
use std::fmt::Write;

/// The whole audit: a line for each dataset, then what is wrong besides, then the sum.
pub fn text(audit: &Audit) -> String {
    let mut text = String::new();
    let wide =
        |of: fn(&Line) -> &str| audit.datasets.iter().map(|line| of(line).len()).max().unwrap_or(0);
    let (name, source) = (wide(|line| &line.dataset.name), wide(|line| &line.dataset.source));
    for line in &audit.datasets {
        let dataset = &line.dataset;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:name$}  {:8}  {:source$}  {}",
            dataset.name,
            dataset.sync.as_str(),
            dataset.source,
            said(&line.found)
        );
    }
    for new in &audit.new_ones {
        let _ = writeln!(
            text,
            "NEW ONES WRONG: a dataset made under {} would get sync={}, and {} says {}; \
             `zfs set sync={} {}`, or say inherits = false in that rule",
            new.under,
            new.would_get.as_str(),
            new.by,
            new.wanted.as_str(),
            new.wanted.as_str(),
            new.under
        );
    }
    for pattern in &audit.unused {
        let _ = writeln!(text, "note: nothing in {} matches {pattern}", audit.pool);
    }
    let _ = writeln!(text, "{}", sum(audit));
    text
}

fn said(found: &Found) -> String {
    match found {
        Found::AsAsked { by } => format!("as {by} says"),
        Found::Wrong { wanted, by } => format!("WRONG: {by} says {}", wanted.as_str()),
        Found::NoRule => "NO RULE: the policy says nothing of it".to_owned(),
        Found::Contradiction { by } => format!("CONTRADICTION between {}", by.join(" and ")),
    }
}

fn sum(audit: &Audit) -> String {
    let all = audit.datasets.len();
    let passed =
        audit.datasets.iter().filter(|line| matches!(line.found, Found::AsAsked { .. })).count();
    match audit.as_asked {
        true => format!("{}: all {all} datasets are as the policy says", audit.pool),
        false => format!("{}: {passed} of {all} datasets are as the policy says", audit.pool),
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::{datasets, judge};
    use super::super::policy::Policy;
    use super::*;

    fn rendered(policy: &str, zfs: &str) -> String {
        let policy = Policy::parse("p.toml", policy).expect("a policy");
        text(&judge("tank", &policy, datasets(zfs).expect("a list")))
    }

    #[test]
    fn each_dataset_has_a_line_with_its_value_its_source_and_what_is_said_of_it() {
        let policy = "[[rule]]\ndatasets = \"tank/servers/*\"\nsync = \"disabled\"\n";
        let zfs = "tank/servers\tsync\tstandard\tdefault\n\
            tank/servers/a\tsync\tdisabled\tlocal\n\
            tank/servers/b\tsync\tstandard\tinherited from tank/servers\n";
        let text = rendered(policy, zfs);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[0].contains("standard") && lines[0].contains("NO RULE"), "{text}");
        assert!(lines[1].contains("local") && lines[1].contains("as tank/servers/* says"));
        assert!(lines[2].contains("inherited from tank/servers") && lines[2].contains("WRONG"));
        assert!(lines[3].contains("`zfs set sync=disabled tank/servers`"), "{text}");
        assert_eq!(lines[4], "tank: 1 of 3 datasets are as the policy says");
    }
}
