//! `cargo xtask informers`: compares our informer with kube-rs' reflector, client-go's informer and the floor, on one server.

use crate::progress::{Outcome, Step};
use crate::tools::{self, Tool};
use crate::workspace::Workspace;

pub(crate) fn informers(workspace: &Workspace, args: &[&str]) -> Outcome {
    tools::install(workspace, &[Tool::Go])?;
    Step::new("server").run(&mut workspace.cargo(&["build", "--release", "--bin", "dogwatch"]))?;
    // The profile for long-running programs: at a few hundred events a second the layout of the code decides the cost. Examples are
    // named, because each one more takes minutes to link.
    let mut build =
        workspace.cargo(&["build", "--profile", "dist", "--package", "dogwatch-client", "--package", "blackbox"]);
    build.args([
        "--example",
        "informer",
        "--example",
        "kube_rs_informer",
        "--example",
        "informers",
        "--example",
        "watch_floor",
    ]);
    Step::new("clients").run(&mut build)?;
    let target = workspace.target_dir()?;
    let mut run = workspace.command(&target.join("dist/examples/informers").to_string_lossy(), args);
    run.env("DOGWATCH_BIN", target.join("release/dogwatch"));
    Step::new("informers").run(&mut run)
}
