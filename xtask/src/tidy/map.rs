//! ARCHITECTURE.md against the workspace: a section for every crate, a reason for every dependency, and nothing that is gone.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::workspace::Workspace;

use super::crates::{ORDER, folder};

const MAP: &str = "ARCHITECTURE.md";

/// The heading above the table of dependencies and their reasons.
const REASONS: &str = "## Dependencies";

pub(super) fn check(workspace: &Workspace, metadata: &Value) -> Vec<String> {
    let map = fs::read_to_string(workspace.root.join(MAP)).unwrap_or_default();
    let manifest = fs::read_to_string(workspace.root.join("Cargo.toml")).unwrap_or_default();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut folders = Vec::new();
    let mut used = BTreeSet::new();
    for package in packages {
        folders.extend(package["name"].as_str().map(folder));
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        used.extend(dependencies.iter().filter(|d| !d["path"].is_string()).filter_map(|d| d["name"].as_str()));
    }
    let mut complaints = sections(&map, &folders);
    complaints.extend(arrows(&map, &ORDER));
    complaints.extend(reasons(&map, &used));
    for name in declared(&manifest).filter(|name| !used.contains(name)) {
        complaints.push(format!("Cargo.toml: no crate uses {name}"));
    }
    complaints
}

/// Compares the sections of the map (``### `store` -> machinery``) with the crates.
fn sections(map: &str, folders: &[&str]) -> Vec<String> {
    let headings = map.lines().filter(|line| line.starts_with("### "));
    let described: Vec<&str> = headings.filter_map(|line| quoted(line).next()).collect();
    let mut complaints = Vec::new();
    for name in folders.iter().filter(|name| !described.contains(name)) {
        complaints.push(format!("{MAP}: crate `{name}` has no section"));
    }
    for name in described.iter().filter(|name| !folders.contains(name)) {
        complaints.push(format!("{MAP}: the section `{name}` describes no crate"));
    }
    complaints
}

/// Compares the crates behind the arrow of each section with the order of crates. "anything" and "everything but …" are not
/// compared.
fn arrows(map: &str, order: &[(&str, &[&str])]) -> Vec<String> {
    let mut complaints = Vec::new();
    for heading in map.lines().filter(|line| line.starts_with("### ")) {
        let (Some(name), Some((_, after))) = (quoted(heading).next(), heading.split_once(" -> ")) else { continue };
        let Some((_, allowed)) = order.iter().find(|(known, _)| *known == name) else { continue };
        if after.starts_with("anything") || after.starts_with("everything") {
            continue;
        }
        let drawn: BTreeSet<&str> = after.split(", ").filter(|name| *name != "nothing").collect();
        if drawn != allowed.iter().copied().collect() {
            complaints.push(format!("{MAP}: `{name}` may use {}, but the section has {after}", allowed.join(", ")));
        }
    }
    complaints
}

/// Compares the table of reasons with the dependencies that the manifests have.
fn reasons(map: &str, used: &BTreeSet<&str>) -> Vec<String> {
    let table = map.split_once(REASONS).map_or("", |(_, after)| after.split("\n## ").next().unwrap_or_default());
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut given = BTreeSet::new();
    let mut complaints = Vec::new();
    for name in rows.filter_map(|row| row.split('|').nth(1)).flat_map(quoted) {
        if !given.insert(name) {
            complaints.push(format!("{MAP}: `{name}` has two reasons"));
        } else if !used.contains(name) {
            complaints.push(format!("{MAP}: `{name}` has a reason, but no crate uses it"));
        }
    }
    for name in used.difference(&given) {
        complaints.push(format!("{MAP}: no reason given for using `{name}`"));
    }
    complaints
}

/// Returns what a line has between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the names under `[workspace.dependencies]`, without crates of the workspace.
fn declared(manifest: &str) -> impl Iterator<Item = &str> {
    let mut section = "";
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            section = line;
        }
        let (name, value) = line.split_once(" = ")?;
        (section == "[workspace.dependencies]" && !line.starts_with('#') && !value.contains("path = ")).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{arrows, declared, reasons, sections};

    #[test]
    fn our_own_crates_need_no_reason() {
        let manifest = "[workspace]\nmembers = []\n[workspace.dependencies]\nstore = { path = \"crates/store\" }\nbytes = \"1\"\n# http = \"1\"\n[profile.dev]\ndebug = false\n";
        assert_eq!(declared(manifest).collect::<Vec<_>>(), ["bytes"]);
    }

    #[test]
    fn every_crate_has_a_section_and_every_section_a_crate() {
        let map = "## Crates\n### `store` -> machinery\n### `blackbox` (tests/blackbox) -> nothing\n";
        assert!(sections(map, &["store", "blackbox"]).is_empty());
        assert_eq!(sections(map, &["store", "blackbox", "cache"]), ["ARCHITECTURE.md: crate `cache` has no section"]);
        assert_eq!(sections(map, &["store"]), ["ARCHITECTURE.md: the section `blackbox` describes no crate"]);
    }

    #[test]
    fn the_arrows_of_the_map_are_those_of_the_order() {
        let order: [(&str, &[&str]); 3] = [("a", &[]), ("b", &["a"]), ("c", &["a", "b"])];
        assert!(arrows("### `a` -> nothing\n### `b` (tests/b) -> a\n### `c` -> b, a\n", &order).is_empty());
        assert!(arrows("### `c` -> everything but b\n### Words\n", &order).is_empty());
        assert_eq!(arrows("### `c` -> a\n", &order), ["ARCHITECTURE.md: `c` may use a, b, but the section has a"]);
    }

    #[test]
    fn every_dependency_has_one_reason_and_every_reason_a_dependency() {
        let map = "A word on `clap`.\n## Dependencies\n| crate | reason |\n|---|---|\n| `bytes` | slices, as `imbl` |\n| `http`, `http-body` | words |\n## More\n| `tower` | no reason |\n";
        assert!(reasons(map, &BTreeSet::from(["bytes", "http", "http-body"])).is_empty());
        let missing = reasons(map, &BTreeSet::from(["bytes", "clap", "http", "http-body"]));
        assert_eq!(missing, ["ARCHITECTURE.md: no reason given for using `clap`"]);
        let stale = reasons(map, &BTreeSet::from(["bytes", "http"]));
        assert_eq!(stale, ["ARCHITECTURE.md: `http-body` has a reason, but no crate uses it"]);
        let twice = map.replace("| `http`,", "| `bytes`, `http`,");
        assert_eq!(
            reasons(&twice, &BTreeSet::from(["bytes", "http", "http-body"])),
            ["ARCHITECTURE.md: `bytes` has two reasons"]
        );
    }
}
