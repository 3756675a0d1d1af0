//! Allowed dependencies between the crates of the workspace, one source for versions and lints, and what clippy bans.

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

/// Crates that follow the clock of a world: they have a `clippy.toml` of their own, which bans the machine's.
const FOLLOWING_A_WORLD: [&str; 1] = ["controllers"];

/// What those may not call.
const MACHINE_TIME: [&str; 8] = [
    "std::time::Instant::now",
    "tokio::time::Instant::now",
    "tokio::time::sleep",
    "tokio::time::sleep_until",
    "tokio::time::interval",
    "tokio::time::interval_at",
    "tokio::time::timeout",
    "tokio::time::timeout_at",
];

/// Reports bans that a crate's `clippy.toml` lacks: clippy reads the nearest file only.
fn clock_bans(shown: &str, workspace: &str, own: &str) -> Vec<String> {
    let rule = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let lost = workspace.lines().filter(rule).filter(|line| !own.lines().any(|has| has == *line));
    let lost = lost.map(|line| format!("{shown}: lacks the line of the workspace's clippy.toml: {}", line.trim()));
    let is_banned = |method: &&str| own.contains(&format!("{{ path = \"{method}\","));
    let free = MACHINE_TIME.iter().filter(|method| !is_banned(method));
    lost.chain(free.map(|method| format!("{shown}: does not ban {method}"))).collect()
}

pub(super) fn check(workspace: &Workspace, metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let folders: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).map(folder).collect();
    let mut complaints = stale(&folders);
    let bans = workspace.read("clippy.toml");
    for folder in FOLLOWING_A_WORLD {
        let shown = format!("crates/{folder}/clippy.toml");
        complaints.extend(clock_bans(&shown, &bans, &workspace.read(&shown)));
    }
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

    use super::{MACHINE_TIME, ORDER, clock_bans, edges, single_source, stale};

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
    fn clk_5_a_crate_that_follows_a_world_bans_the_time_of_the_machine() {
        let workspace = "# why\ndisallowed-types = [\n  \"a\",\n]\n";
        let bans: String =
            MACHINE_TIME.iter().map(|method| format!("  {{ path = \"{method}\", reason = \"r\" }},\n")).collect();
        assert!(clock_bans("c", workspace, &format!("{workspace}{bans}")).is_empty());
        assert_eq!(clock_bans("c", workspace, &bans).len(), 3, "lines of the workspace");
        let without_sleep = bans.replace("tokio::time::sleep\"", "x\"");
        assert_eq!(clock_bans("c", "", &without_sleep), ["c: does not ban tokio::time::sleep"]);
    }

    #[test]
    fn versions_and_lints_come_from_the_workspace() {
        let good = "[dependencies]\nbytes.workspace = true\nkube = { workspace = true, features = [\"ws\"] }\n[lints]\nworkspace = true\n";
        assert!(single_source("m", good).is_empty());
        let bad = "[package]\nversion = \"1\"\n[dev-dependencies]\nbytes = \"1\"\nkube = { version = \"5\" }\n";
        assert_eq!(single_source("m", bad).len(), 3);
    }
}
