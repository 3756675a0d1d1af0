//! `cargo xtask console`: pictures of the web page for its documentation, and the page under load.

use std::path::PathBuf;

use crate::progress::{Outcome, Step};
use crate::tools::{self, Tool};
use crate::workspace::Workspace;

const USAGE: &str = "usage: cargo xtask console screenshots|load [--program FILE]";

pub(crate) fn console(workspace: &Workspace, args: &[&str]) -> Outcome {
    let (what, program) = match args {
        [what] => (*what, None),
        [what, "--program", file] => (*what, Some(PathBuf::from(file))),
        _ => return Err(USAGE.into()),
    };
    let script = match what {
        "screenshots" => "screenshots.mjs",
        "load" => "load.mjs",
        _ => return Err(USAGE.into()),
    };
    let program = program.map_or_else(|| tools::release_program(workspace), Ok)?;
    tools::install(workspace, &[Tool::Kubectl, Tool::Chromium, Tool::Console])?;
    let mut node = workspace.command("node", &[script]);
    node.current_dir(workspace.root.join("tests/console"));
    node.env("DOGWATCH_BIN", program).env("KUBECTL", workspace.bin().join("kubectl"));
    Step::new(what).run(&mut node)
}
