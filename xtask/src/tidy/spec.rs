//! The pages of `docs/spec`: their rows and sections, and whether what comments and other pages cite exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::files;

const PAGES: &str = "docs/spec";

/// Family and number: RF-9 is `("rf", 9)`, `verbs_14_7` is `("verbs_14", 7)`.
pub(super) type Row = (String, u32);

/// Rows and sections of all pages.
#[derive(Debug, Default)]
pub(super) struct Spec {
    /// The text of each row, with its id.
    pub(super) rows: BTreeMap<Row, String>,
    /// Page and section, as in `("02", "2.1")`.
    sections: BTreeSet<(String, String)>,
}

/// Reads the pages; also returns complaints about ids that are defined twice.
pub(super) fn read(root: &Path) -> (Spec, Vec<String>) {
    let (mut spec, mut complaints) = (Spec::default(), Vec::new());
    for file in files::all(&root.join(PAGES)) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Other files, such as the README, define nothing.
        if page(&name).is_some() {
            complaints.extend(spec.add(&name, &fs::read_to_string(&file).unwrap_or_default()));
        }
    }
    (spec, complaints)
}

/// Reports citations in comments and pages of rows and sections that no page has.
pub(super) fn check_citations(root: &Path, spec: &Spec) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files::all(root) {
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let Some(mark) = comment_mark(&shown) else { continue };
        let Ok(text) = fs::read_to_string(&file) else { continue };
        complaints.extend(spec.unknown_citations(&shown, &text, mark));
    }
    complaints
}

/// The number of a page, by its file name.
fn page(name: &str) -> Option<&str> {
    name.get(..2).filter(|number| number.bytes().all(|b| b.is_ascii_digit()) && name[2..].starts_with('-'))
}

/// What starts a comment in a file; empty where the whole text counts. `None` where nothing is checked.
fn comment_mark(file: &str) -> Option<&'static str> {
    match file.rsplit('.').next().unwrap_or_default() {
        "rs" | "go" | "js" => Some("//"),
        "py" | "toml" => Some("#"),
        "md" => Some(""),
        _ => None,
    }
}

impl Spec {
    fn add(&mut self, name: &str, text: &str) -> Vec<String> {
        let number = page(name).unwrap_or_default();
        let mut complaints = Vec::new();
        for line in text.lines() {
            if let Some(section) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
                let section = section.split(' ').next().unwrap_or_default().trim_end_matches('.');
                self.sections.insert((number.to_owned(), section.to_owned()));
            }
            let Some(row) = defined(line) else { continue };
            if self.rows.insert(row.clone(), line.to_owned()).is_some() {
                complaints.push(format!("{PAGES}/{name}: row {} is defined twice", shown(&row)));
            }
        }
        complaints
    }

    /// Reports what one file cites and no page has.
    fn unknown_citations(&self, file: &str, text: &str, mark: &str) -> Vec<String> {
        let own = file.strip_prefix("docs/spec/").and_then(page);
        let families: BTreeSet<&str> = self.rows.keys().map(|(family, _)| family.as_str()).collect();
        let mut complaints = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let Some(start) = line.find(mark) else { continue };
            let comment = &line[start..];
            for row in cited(comment).filter(|row| families.contains(row.0.as_str())) {
                if !self.rows.contains_key(&row) {
                    complaints.push(format!("{file}:{}: there is no row {} in {PAGES}", at + 1, shown(&row)));
                }
            }
            for (page, section) in cited_sections(comment, own) {
                if !self.sections.contains(&(page.clone(), section.clone())) {
                    complaints.push(format!("{file}:{}: there is no section {page} §{section} in {PAGES}", at + 1));
                }
            }
        }
        complaints
    }
}

/// Returns a row as pages and comments write it.
pub(super) fn shown((family, number): &Row) -> String {
    if family.contains('_') || family == "script" {
        format!("{family}_{number}")
    } else {
        format!("{}-{number}", family.to_uppercase())
    }
}

/// Returns the row that a line of a page defines: its first cell, or its first word in bold, is an id.
fn defined(line: &str) -> Option<Row> {
    let id = if let Some(rest) = line.strip_prefix("| ") {
        rest.split(" |").next()?
    } else {
        line.strip_prefix("**")?.split("**").next()?
    };
    parse(id)
}

fn parse(id: &str) -> Option<Row> {
    let (family, number) = id.rsplit_once(['-', '_'])?;
    let upper = !family.is_empty() && family.bytes().all(|b| b.is_ascii_uppercase()) && id.contains('-');
    let lower = family.starts_with(|c: char| c.is_ascii_lowercase())
        && family.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !id.contains('-');
    let number = number.parse().ok().filter(|_| upper || lower)?;
    Some((family.to_lowercase(), number))
}

/// Returns the rows that a text cites in capitals, such as RF-9.
pub(super) fn cited(text: &str) -> impl Iterator<Item = Row> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
        .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()) && !word.contains('_'))
        .filter_map(parse)
}

/// Returns the sections that a text cites, as in "spec 01 §2, §5"; `own` is the page that a bare "§2" means.
fn cited_sections(text: &str, own: Option<&str>) -> Vec<(String, String)> {
    let mut page = own.map(str::to_owned);
    let mut sections = Vec::new();
    for (at, part) in text.split('§').enumerate() {
        if at > 0 {
            let end = part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len());
            let section = part[..end].trim_end_matches('.');
            if let (Some(page), false) = (&page, section.is_empty()) {
                sections.push((page.clone(), section.to_owned()));
            }
        }
        // The page that the next section belongs to is named right before it.
        let named = part.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        if part.ends_with(' ') && named.len() == 2 && named.starts_with('0') {
            page = Some(named.to_owned());
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        let mut spec = Spec::default();
        let text = "## 2. Verbs\n### 2.1 Names\n| Id | Rule |\n|---|---|\n| RF-9 | silent |\n| verbs_14_7 | gone |\n\n**sequence_12_4**\n";
        assert!(spec.add("02-verbs.md", text).is_empty());
        spec
    }

    #[test]
    fn rows_are_first_cells_and_first_bold_words() {
        let rows: Vec<String> = spec().rows.keys().map(shown).collect();
        assert_eq!(rows, ["RF-9", "sequence_12_4", "verbs_14_7"]);
        for none in ["| 7 | x |", "see RF-9", "| kube-rs | x |", "**On**", "|---|", "| `RF-9` | quoted |"] {
            assert_eq!(defined(none), None, "{none}");
        }
    }

    #[test]
    fn an_id_is_defined_once() {
        assert_eq!(
            spec().add("03-client.md", "| RF-9 | again |\n"),
            ["docs/spec/03-client.md: row RF-9 is defined twice"]
        );
    }

    #[test]
    fn cited_rows_exist() {
        let bad = |line: &str| spec().unknown_citations("a.rs", line, "//");
        assert!(bad("fn a() {} // as RF-9 has it").is_empty());
        assert!(bad("let text = \"RF-10\";").is_empty());
        assert!(bad("// UTF-8, SHA-256 and P-256 are no rows").is_empty());
        assert_eq!(bad("/// See RF-10."), ["a.rs:1: there is no row RF-10 in docs/spec"]);
    }

    #[test]
    fn cited_sections_exist() {
        let bad = |line: &str| spec().unknown_citations("a.rs", line, "//");
        assert!(bad("//! Names (spec 02 §2, §2.1).").is_empty());
        assert!(bad("//! A bare §7 means nothing here.").is_empty());
        // Built here, so that this file does not report itself.
        for (line, section) in [("//! (spec 02 §{})", "2.2"), ("//! (spec 02 §2, 02 §{})", "3")] {
            let complaint = format!("a.rs:1: there is no section 02 §{section} in docs/spec");
            assert_eq!(bad(&line.replace("{}", section)), [complaint]);
        }
        let own = |line: &str| spec().unknown_citations("docs/spec/02-verbs.md", line, "");
        assert!(own("as in §2.1 and §2–§2.1").is_empty());
        assert_eq!(own("as in §3"), ["docs/spec/02-verbs.md:1: there is no section 02 §3 in docs/spec"]);
    }
}
