//! The console: its types, its list-then-watch client, and the page in Chromium as a person uses it (tests/console).

use std::process::Command;
use std::time::Duration;

use blackbox::{run, run_within, tools};

/// Each file has many tests.
const LIMIT: Duration = Duration::from_secs(300);

fn node(file: &str) -> Command {
    let folder = tools::tests().join("console");
    assert!(folder.join("node_modules").exists(), "run the tests with `cargo xtask test`");
    let mut command = Command::new("node");
    // A test that fails leaves its streams open; the command ends all the same.
    let options = ["--test", "--test-force-exit", "--test-timeout=300000", "--test-reporter=spec", file];
    command.args(options).current_dir(folder);
    command.env("DOGWATCH_BIN", tools::dogwatch()).env("KUBECTL", tools::installed("bin/kubectl"));
    command
}

#[test]
fn types_are_right() {
    let folder = tools::tests().join("console");
    let mut command = Command::new("node");
    command.arg(folder.join("node_modules/typescript/bin/tsc")).args(["--noEmit", "-p", "../../console"]);
    command.current_dir(folder);
    run(command, "").ok();
}

#[test]
fn the_stream_keeps_in_step_with_the_server() {
    assert!(run_within(LIMIT, node("stream.test.mjs"), "").ok().contains("fail 0"));
}

#[test]
fn each_part_works_in_a_browser() {
    assert!(run_within(LIMIT, node("page.test.mjs"), "").ok().contains("fail 0"));
}
