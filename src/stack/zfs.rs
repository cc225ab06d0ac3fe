//! What ZFS's tools print, read into values. Pure.

use crate::units::Txg;
use crate::verify::consistent::ScrubReport;

/// One line of `zfs get -Hp -o name,property,value,source`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Dataset.
    pub name: String,
    /// Property.
    pub property: String,
    /// Effective value.
    pub value: String,
    /// Where it comes from: `local`, `default`, `inherited from ...`.
    pub source: String,
}

/// Parses the lines of `zfs get -Hp -o name,property,value,source`; `None` names no line.
pub fn parse_properties(text: &str) -> Option<Vec<Property>> {
    let line = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let property = Property {
            name: fields.next()?,
            property: fields.next()?,
            value: fields.next()?,
            source: fields.next()?,
        };
        fields.next().is_none().then_some(property)
    };
    text.lines().filter(|text| !text.is_empty()).map(line).collect()
}

/// The txg of the uberblock with which a pool was loaded last, from the kernel's debug messages:
/// `spa_load(POOL, ...): using uberblock with txg=N`, then `spa_load(POOL, ...): LOADED`.
pub fn used_txg(debug_messages: &str, pool: &str) -> Option<Txg> {
    let own = format!("spa_load({pool},");
    let (mut using, mut loaded) = (None, None);
    for line in debug_messages.lines().filter(|line| line.contains(&own)) {
        if let Some((_, txg)) = line.split_once("using uberblock with txg=") {
            let digits = txg.split(|c: char| !c.is_ascii_digit()).next()?;
            using = digits.parse().ok().map(Txg);
        } else if line.trim_end().ends_with(": LOADED") {
            loaded = using;
        }
    }
    loaded
}

/// What `zpool status` says of a scrub that ended; `None` while it runs or if there was none.
pub fn parse_scrub(status: &str) -> Option<ScrubReport> {
    let scan = status.lines().find_map(|line| line.trim_start().strip_prefix("scan: "))?;
    let rest = scan.strip_prefix("scrub repaired ")?;
    let (repaired, rest) = rest.split_once(" in ")?;
    let (_, errors) = rest.split_once(" with ")?;
    let errors = errors.split_once(" errors")?.0.parse().ok()?;
    Some(ScrubReport {
        repaired_nothing: repaired == "0B",
        errors,
        no_known_data_errors: status.contains("errors: No known data errors"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_with_their_source() {
        let text = "tank/billing\tsync\tstandard\tdefault\ntank/customer\tsync\tdisabled\tlocal\n";
        let parsed = parse_properties(text).unwrap();
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[1].value, "disabled");
        assert_eq!(parsed[1].source, "local");
        assert_eq!(parse_properties("cannot open 'tank': no such pool\n"), None);
    }

    #[test]
    fn the_txg_is_the_last_one_used_before_loaded_by_this_pool() {
        let log = "1700000000   spa_misc.c:417:spa_load_note(): spa_load($import, config untrusted): using uberblock with txg=40\n\
            1700000000   spa_misc.c:417:spa_load_note(): spa_load($import, config untrusted): LOADED\n\
            1700000001   spa_misc.c:417:spa_load_note(): spa_load(tank, config untrusted): using uberblock with txg=42\n\
            1700000001   spa_misc.c:417:spa_load_note(): spa_load(tank, config trusted): LOADED\n\
            1700000002   spa_misc.c:417:spa_load_note(): spa_load(tank, config untrusted): using uberblock with txg=50\n";
        assert_eq!(used_txg(log, "tank"), Some(Txg(42)));
        assert_eq!(used_txg(log, "tan"), None);
        assert_eq!(used_txg("", "tank"), None);
    }

    #[test]
    fn a_finished_scrub_is_read_and_a_running_one_is_not_taken_for_it() {
        let status = "  pool: tank\n state: ONLINE\n  scan: scrub repaired 0B in 00:00:01 with 0 errors on Sun Nov 30 12:00:00 2026\nconfig:\n\nerrors: No known data errors\n";
        let clean = ScrubReport { repaired_nothing: true, errors: 0, no_known_data_errors: true };
        assert_eq!(parse_scrub(status), Some(clean));
        let dirty = status
            .replace("repaired 0B", "repaired 4K")
            .replace("with 0 errors", "with 3 errors")
            .replace("errors: No known data errors", "errors: 1 data errors, use '-v' for a list");
        let expected =
            ScrubReport { repaired_nothing: false, errors: 3, no_known_data_errors: false };
        assert_eq!(parse_scrub(&dirty), Some(expected));
        assert_eq!(parse_scrub("  scan: scrub in progress since Sun Nov 30\n"), None);
        assert_eq!(parse_scrub("errors: No known data errors\n"), None);
    }
}
