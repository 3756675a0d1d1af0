//! The licences of the crates that are linked into the program. Their terms require them to be passed on with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::elf::Machine;
use crate::workspace::Workspace;

/// Starts of the names of files with licences and notices.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Returns one text with each licence once, below the names of the crates that have it.
pub(super) fn collect(workspace: &Workspace, machine: Machine) -> Result<Vec<u8>, String> {
    let platform = format!("{}-unknown-linux-gnu", machine.triple());
    let output = workspace
        .cargo(&["metadata", "--format-version", "1", "--filter-platform", &platform])
        .output()
        .map_err(|e| format!("cargo metadata did not start: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
    Ok(notices(&metadata).into_bytes())
}

fn notices(metadata: &Value) -> String {
    let linked = linked(metadata);
    let mut list = String::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in array(&metadata["packages"]) {
        // The crates of this workspace come from no registry.
        if !linked.contains(text(&package["id"])) || package["source"].is_null() {
            continue;
        }
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        let _ = writeln!(list, "{name}: {}", package["license"].as_str().unwrap_or("see its own file"));
        for licence in licences(Path::new(text(&package["manifest_path"]))) {
            texts.entry(licence).or_default().insert(name.clone());
        }
    }
    let mut lines: Vec<&str> = list.lines().collect();
    lines.sort_unstable();
    let mut notices = format!("dogwatch contains these crates, each under its own licence.\n\n{}\n", lines.join("\n"));
    // In the order of names, not of texts.
    let mut texts: Vec<_> = texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        let names: Vec<_> = names.into_iter().collect();
        let _ = write!(notices, "\n---- {} ----\n\n{}\n", names.join(", "), text.trim_end());
    }
    notices
}

/// The packages that the program is linked from: its dependencies and theirs, without those of tests and build scripts.
fn linked(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).iter().map(|node| (text(&node["id"]), node)).collect();
    let program = array(&metadata["packages"]).iter().find(|package| package["name"] == "dogwatch");
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = program.map(|package| text(&package["id"])).into_iter().collect();
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        for dependency in nodes.get(id).map(|node| array(&node["deps"])).unwrap_or_default() {
            if array(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&dependency["pkg"]));
            }
        }
    }
    found
}

/// The texts of the licences next to a manifest.
fn licences(manifest: &Path) -> Vec<String> {
    let entries = manifest.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let files = entries.into_iter().flatten().flatten();
    let named = files.filter(|file| {
        let name = file.file_name().to_string_lossy().to_uppercase();
        NAMES.iter().any(|start| name.starts_with(start))
    });
    named.filter_map(|file| std::fs::read_to_string(file.path()).ok()).map(|text| text.replace("\r\n", "\n")).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::notices;

    #[test]
    fn names_what_is_linked_and_nothing_else() {
        let package = |name: &str, source: Option<&str>| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source, "manifest_path": "" });
        let needs = |name: &str, kind: Option<&str>| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("dogwatch", None),
                package("inner", Some("registry")),
                package("outer", Some("registry")),
                package("tests", Some("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "dogwatch", "deps": [needs("outer", None), needs("tests", Some("dev"))] },
                { "id": "outer", "deps": [needs("inner", None)] },
            ] },
        });
        let text = notices(&metadata);
        assert!(text.contains("inner 1.0.0: MIT\nouter 1.0.0: MIT\n"), "{text}");
        assert!(!text.contains("tests") && !text.contains("dogwatch 1.0.0"), "{text}");
    }
}
