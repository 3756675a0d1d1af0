//! The modules in `kits/`, with which other people's tests start the program. Each runs its own tests, and those of an example operator.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use blackbox::{run_within, tools};
use tempfile::TempDir;

/// Far longer than the tests of a kit take, also on a machine with much else to do.
const LIMIT: Duration = Duration::from_secs(300);

fn kits() -> PathBuf {
    tools::tests().with_file_name("kits")
}

#[test]
fn kit_2_the_go_kit_finds_installs_and_starts_the_program() {
    let cache = TempDir::new().expect("the temporary folder can be written");
    let mut command = Command::new(tools::installed("bin/go-kit-suite"));
    command.arg("-test.v").current_dir(cache.path()).env("XDG_CACHE_HOME", cache.path());
    command.env("DOGWATCH", tools::dogwatch());
    let output = run_within(LIMIT, command, "").ok();
    assert!(output.contains("--- PASS: TestControllersRunADeployment"), "{output}");
    assert!(output.contains("--- PASS: TestWorldsDoNotSeeEachOther"), "{output}");
}

#[test]
fn kit_2_kit_5_the_go_kit_tests_an_operator_of_controller_runtime() {
    let mut command = Command::new(tools::installed("bin/go-kit-example"));
    command.arg("-test.v").env("DOGWATCH", tools::dogwatch());
    let output = run_within(LIMIT, command, "").ok();
    for test in ["TestAConflictIsTriedAgain", "TestAStaleViewIsCaughtUpWith", "TestEnvtestUsesAWorld"] {
        assert!(output.contains(&format!("--- PASS: {test}")), "{output}");
    }
}

#[test]
fn kit_3_kit_5_the_python_kit_tests_an_operator() {
    let mut command = Command::new(tools::installed("python-kit/bin/pytest"));
    command.args(["-v", "--color=no"]).current_dir(kits().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("DOGWATCH", tools::dogwatch());
    let output = run_within(LIMIT, command, "").ok();
    assert!(output.contains("test_operator.py::test_a_stale_view_is_caught_up_with PASSED"), "{output}");
}

#[test]
fn kit_4_kit_5_the_javascript_kit_tests_an_operator_with_node_and_vitest() {
    let folder = kits().join("js");
    assert!(folder.join("node_modules").exists(), "run the tests with `cargo xtask test`");
    let mut command = Command::new("npm");
    command.args(["test", "--silent"]).current_dir(folder).env("NO_COLOR", "1").env("DOGWATCH", tools::dogwatch());
    let output = run_within(LIMIT, command, "").ok();
    assert!(output.contains("a stale view is caught up with") && output.contains("# fail 0"), "{output}");
    assert!(output.contains("Tests  1 passed"), "{output}");
}

#[test]
fn kit_4_kit_5_the_java_kit_tests_an_operator() {
    let mut command = Command::new("mvn");
    command.args(["--batch-mode", "--offline", "test"]).current_dir(kits().join("java"));
    command.arg(format!("-Dmaven.repo.local={}", tools::installed("maven").display()));
    command.arg(format!("-Dkit.target={}", tools::installed("java-kit").display()));
    command.env("DOGWATCH", tools::dogwatch());
    let output = run_within(LIMIT, command, "").ok();
    assert!(output.contains("in dev.dogwatch.kit.OperatorTest"), "{output}");
}
