//! The suites of real operators, unchanged, with this program in the place of kube-apiserver and etcd.
//!
//! `tests/operators/suites.json` names the suites; `cargo xtask test` compiles the packages that are marked there, and `cargo
//! xtask operators` runs all of them.

use std::process::Command;

use blackbox::tools;
use serde_json::Value;

/// Runs the marked packages of a suite.
fn run(name: &str) {
    let list = std::fs::read(tools::tests().join("operators/suites.json")).expect("the list is there");
    let list: Value = serde_json::from_slice(&list).expect("the list is JSON");
    let suites = list["suites"].as_array().expect("suites");
    let suite = suites.iter().find(|suite| suite["name"] == name).expect("the suite is in the list");
    let version = suite["module"].as_str().and_then(|module| module.rsplit('@').next()).expect("a version");
    let cache = tempfile::TempDir::new().expect("the temporary folder can be written");
    let assets = Command::new(tools::dogwatch()).arg("assets").env("XDG_CACHE_HOME", cache.path()).output();
    let assets = String::from_utf8(assets.expect("the program starts").stdout).expect("a path");
    let packages = suite["in_tests"].as_array().expect("marked packages");
    assert!(!packages.is_empty());
    for package in packages.iter().filter_map(Value::as_str) {
        let root = format!("operators/{name}-{version}");
        let program = tools::installed(&format!("{root}/bin/{}.test", package.replace('/', "_")));
        let mut command = Command::new(program);
        command.current_dir(tools::installed(&format!("{root}/src/{package}")));
        command.arg("-test.v").env("KUBEBUILDER_ASSETS", assets.trim()).env("GINKGO_NO_COLOR", "TRUE");
        command.env_remove("KUBECONFIG").env_remove("USE_EXISTING_CLUSTER");
        let output = command.output().expect("the suite starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{package}: {printed}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_client_of_controller_runtime() {
    run("controller-runtime");
}

#[test]
fn the_webhooks_of_jobset() {
    run("jobset");
}
