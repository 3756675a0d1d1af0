//! The modules in `kits/`, with which other people's tests start the program.

use std::process::Command;

use blackbox::{run, tools};
use tempfile::TempDir;

#[test]
fn the_go_kit_finds_installs_and_starts_the_program() {
    let cache = TempDir::new().expect("the temporary folder can be written");
    let mut command = Command::new(tools::installed("bin/go-kit-suite"));
    command.arg("-test.v").current_dir(cache.path()).env("XDG_CACHE_HOME", cache.path());
    command.env("DOGWATCH", tools::dogwatch());
    let output = run(command, "").ok();
    assert!(output.contains("--- PASS: TestControllersRunADeployment"), "{output}");
}
