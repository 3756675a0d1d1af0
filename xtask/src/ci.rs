//! `cargo xtask ci`: all checks, the cheap ones first.

use crate::progress::{Outcome, Step, say};
use crate::workspace::Workspace;
use crate::{counts, suites, tidy};

pub(crate) fn ci(workspace: &Workspace) -> Outcome {
    Step::new("fmt").run(&mut workspace.cargo(&["fmt", "--all", "--check"]))?;
    tidy::tidy(workspace, &[])?;
    Step::new("clippy").run(&mut workspace.cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ]))?;
    deny(workspace)?;
    counts::counts(workspace, &[])?;
    suites::test(workspace, &[])
}

/// Checks licences, advisories and bans (deny.toml). A machine without cargo-deny, or without the net from which the advisory
/// database is fetched, skips the check with a message.
fn deny(workspace: &Workspace) -> Outcome {
    let installed = workspace.cargo(&["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !installed {
        say("deny skipped: cargo-deny is not installed here (cargo install cargo-deny)");
        return Ok(());
    }
    Step::new("deny licences, bans, sources")
        .run(&mut workspace.cargo(&["deny", "check", "licenses", "bans", "sources"]))?;
    if Step::new("deny advisories").run(&mut workspace.cargo(&["deny", "fetch", "db"])).is_err() {
        say("deny advisories skipped: the advisory database cannot be fetched here");
        return Ok(());
    }
    Step::new("deny advisories").run(&mut workspace.cargo(&["deny", "check", "--disable-fetch", "advisories"]))
}
