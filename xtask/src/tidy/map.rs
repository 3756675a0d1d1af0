//! ARCHITECTURE.md is a map that must not go stale: every crate has its section, every dependency its reason.

use std::fs;

use serde_json::Value;

use crate::workspace::Workspace;

use super::crates::folder;

const MAP: &str = "ARCHITECTURE.md";

pub(super) fn check(workspace: &Workspace, metadata: &Value) -> Vec<String> {
    let map = fs::read_to_string(workspace.root.join(MAP)).unwrap_or_default();
    let manifest = fs::read_to_string(workspace.root.join("Cargo.toml")).unwrap_or_default();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut used: Vec<&str> = Vec::new();
    let mut complaints = Vec::new();
    for package in packages {
        let name = folder(package["name"].as_str().unwrap_or_default());
        if !map.lines().any(|line| line.starts_with('#') && line.contains(&format!("`{name}`"))) {
            complaints.push(format!("{MAP}: crate `{name}` has no section"));
        }
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        used.extend(dependencies.iter().filter(|d| !d["path"].is_string()).filter_map(|d| d["name"].as_str()));
    }
    used.sort_unstable();
    used.dedup();
    for name in &used {
        if !map.contains(&format!("`{name}`")) {
            complaints.push(format!("{MAP}: no reason given for using `{name}`"));
        }
    }
    for name in declared(&manifest).filter(|name| !used.contains(name)) {
        complaints.push(format!("Cargo.toml: no crate uses {name}"));
    }
    complaints
}

/// The names under `[workspace.dependencies]`, without our own crates.
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
    use super::declared;

    #[test]
    fn our_own_crates_need_no_reason() {
        let manifest = "[workspace]\nmembers = []\n[workspace.dependencies]\nstore = { path = \"crates/store\" }\nbytes = \"1\"\n# http = \"1\"\n[profile.dev]\ndebug = false\n";
        assert_eq!(declared(manifest).collect::<Vec<_>>(), ["bytes"]);
    }
}
