//! Allowed dependencies between the crates of the workspace, and one source for versions and lints.

use serde_json::Value;

use crate::workspace::Workspace;

/// Each crate, by its folder, with the crates of the workspace it may use.
///
/// Dev-dependencies are free: a test may use more crates than the code that it tests.
pub(super) const ORDER: [(&str, &[&str]); 21] = [
    ("machinery", &[]),
    ("certificates", &[]),
    ("clock", &["machinery"]),
    ("cel", &["machinery"]),
    ("schema", &["machinery", "certificates", "cel"]),
    ("store", &["machinery"]),
    ("cache", &["machinery", "store"]),
    ("access", &["machinery"]),
    ("outbound", &["machinery"]),
    ("registry", &["machinery", "access", "certificates", "clock", "cel", "schema", "store", "cache"]),
    ("server", &["machinery", "access", "certificates", "outbound", "registry"]),
    ("lab", &["machinery", "clock", "schema", "store", "cache", "registry", "server"]),
    ("console", &[]),
    // The client side shares the protocol's vocabulary with the server, and meets it over the wire only.
    ("client", &["machinery", "clock"]),
    ("controllers", &["client", "certificates", "clock", "machinery"]),
    // The load generator meets the server over the wire; it also measures the store alone.
    ("bench", &["machinery", "store"]),
    ("testkit", &["machinery", "access", "schema", "store", "cache", "registry", "server", "client", "dogwatch"]),
    (
        "dogwatch",
        &[
            "machinery",
            "access",
            "cel",
            "certificates",
            "clock",
            "outbound",
            "schema",
            "store",
            "cache",
            "registry",
            "server",
            "lab",
            "console",
            "client",
            "controllers",
            "bench",
        ],
    ),
    // Drives the built binary; knows no crate.
    ("blackbox", &[]),
    ("fuzzing", &["machinery", "certificates", "cel", "schema", "registry", "server", "client", "controllers"]),
    ("xtask", &[]),
];

pub(super) fn check(workspace: &Workspace, metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let folders: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).map(folder).collect();
    let mut complaints = stale(&folders);
    for package in packages {
        complaints.extend(edges(package));
        if let Some(manifest) = package["manifest_path"].as_str() {
            let text = std::fs::read_to_string(manifest).unwrap_or_default();
            let shown = manifest.strip_prefix(&*workspace.root.to_string_lossy()).unwrap_or(manifest);
            complaints.extend(single_source(shown.trim_start_matches('/'), &text));
        }
    }
    complaints
}

/// The crate's folder name: packages are called `dogwatch-store`, folders `store`.
pub(super) fn folder(package: &str) -> &str {
    package.strip_prefix("dogwatch-").unwrap_or(package)
}

/// Reports names in [`ORDER`] that no crate of the workspace has.
fn stale(folders: &[&str]) -> Vec<String> {
    let named = ORDER.iter().flat_map(|(name, allowed)| std::iter::once(name).chain(allowed.iter()));
    let mut missing: Vec<&str> = named.copied().filter(|name| !folders.contains(name)).collect();
    missing.sort_unstable();
    missing.dedup();
    missing.iter().map(|name| format!("xtask/src/tidy/crates.rs: there is no crate {name}")).collect()
}

/// Reports dependencies of a crate on crates above it.
fn edges(package: &Value) -> Vec<String> {
    let name = folder(package["name"].as_str().unwrap_or_default());
    let Some((_, allowed)) = ORDER.iter().find(|(known, _)| *known == name) else {
        return vec![format!("crate {name} is not in the order of crates (xtask/src/tidy/crates.rs)")];
    };
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    dependencies
        .iter()
        // Only crates of the workspace have a path; the kind of a normal dependency is null.
        .filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev")
        .map(|dependency| folder(dependency["name"].as_str().unwrap_or_default()))
        .filter(|dependency| !allowed.contains(dependency))
        .map(|dependency| format!("crate {name} must not use {dependency}"))
        .collect()
}

/// Reports versions, paths and missing lints in a crate's manifest: they belong in the workspace manifest.
fn single_source(shown: &str, manifest: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut section = "";
    let mut lints = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[lints]" && line == "workspace = true" {
            lints = true;
        } else if section.contains("dependencies") {
            let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
            let value = value.trim();
            // A crate may depend on itself to turn on features for its tests.
            let itself = value.contains("path = \".\"");
            if !itself && (value.starts_with('"') || value.contains("version") || value.contains("path")) {
                let name = name.trim();
                complaints.push(format!("{shown}: the version of {name} belongs in the workspace manifest"));
            }
        }
    }
    if !lints {
        complaints.push(format!("{shown}: no `[lints] workspace = true`"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ORDER, edges, single_source, stale};

    #[test]
    fn a_crate_may_not_reach_up_the_loop() {
        let up = json!({"name": "dogwatch-store", "dependencies": [
            {"name": "dogwatch-machinery", "path": "/x", "kind": null},
            {"name": "dogwatch-cache", "path": "/x", "kind": null},
            {"name": "dogwatch-testkit", "path": "/x", "kind": "dev"},
            {"name": "bytes", "kind": null},
        ]});
        assert_eq!(edges(&up), ["crate store must not use cache"]);
    }

    #[test]
    fn an_unknown_crate_is_named() {
        assert_eq!(edges(&json!({"name": "dogwatch-new", "dependencies": []})).len(), 1);
    }

    #[test]
    fn every_name_in_the_order_is_a_crate() {
        let all: Vec<&str> = ORDER.iter().map(|(name, _)| *name).collect();
        assert!(stale(&all).is_empty(), "{:?}", stale(&all));
        assert_eq!(stale(&all[1..]), ["xtask/src/tidy/crates.rs: there is no crate machinery"]);
    }

    #[test]
    fn versions_and_lints_come_from_the_workspace() {
        let good = "[dependencies]\nbytes.workspace = true\nkube = { workspace = true, features = [\"ws\"] }\n[lints]\nworkspace = true\n";
        assert!(single_source("m", good).is_empty());
        let bad = "[package]\nversion = \"1\"\n[dev-dependencies]\nbytes = \"1\"\nkube = { version = \"5\" }\n";
        assert_eq!(single_source("m", bad).len(), 3);
    }
}
