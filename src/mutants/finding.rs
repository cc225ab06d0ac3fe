//! The kill table as a finding: a page, its data, and a line in the index.

use super::render;
use super::report::KillTable;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The finding's folder under findings.
pub const FOLDER: &str = "0001-kill-table";
const INDEX_LINE: &str = "- [0001](0001-kill-table/README.md): which crash model catches which \
                          planted fault\n";
const INDEX_HEAD: &str = "# Findings\n\nResults that anyone can recompute: each folder holds a page \
                          with its command line, and its data.\n\n";

/// Writes the finding under `findings`. Returns its folder.
pub fn write(findings: &Path, table: &KillTable) -> io::Result<PathBuf> {
    let folder = findings.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let json = serde_json::to_string_pretty(table)?;
    fs::write(folder.join("kill-table.json"), format!("{json}\n"))?;
    fs::write(folder.join("README.md"), render::markdown(table))?;
    let index = findings.join("README.md");
    let known = match fs::read_to_string(&index) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => INDEX_HEAD.to_owned(),
        Err(why) => return Err(why),
    };
    if !known.contains(FOLDER) {
        fs::write(index, format!("{known}{INDEX_LINE}"))?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn a_finding_is_a_page_its_data_and_one_line_in_the_index() {
        let findings = tempfile::tempdir().expect("a folder");
        let folder = write(findings.path(), &sample()).expect("written");
        write(findings.path(), &sample()).expect("written again");
        let json = fs::read_to_string(folder.join("kill-table.json")).expect("data");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["seed"], 7);
        let index = fs::read_to_string(findings.path().join("README.md")).expect("an index");
        assert_eq!(index.matches(FOLDER).count(), 1, "{index}");
    }
}
