//! `cargo xtask informers`: our informer beside kube-rs' reflector and client-go's, on one server and the same changes.

use crate::progress::{Outcome, Step};
use crate::tools;
use crate::workspace::Workspace;

pub(crate) fn informers(workspace: &Workspace, args: &[&str]) -> Outcome {
    tools::install_all(workspace)?;
    let mut build = workspace.cargo(&["build", "--release", "--package", "dogwatch", "--package", "dogwatch-client"]);
    build.args(["--package", "blackbox", "--bins", "--examples"]);
    Step::new("build").run(&mut build)?;
    let mut run = workspace.cargo(&["run", "--release", "--package", "blackbox", "--example", "informers", "--"]);
    Step::new("informers").run(run.args(args))
}
