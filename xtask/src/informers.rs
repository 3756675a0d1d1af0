//! `cargo xtask informers`: our informer beside kube-rs' reflector, client-go's and the floor, on one server and the same changes.

use crate::progress::{Outcome, Step};
use crate::tools::{self, Tool};
use crate::workspace::Workspace;

pub(crate) fn informers(workspace: &Workspace, args: &[&str]) -> Outcome {
    tools::install(workspace, &[Tool::Go])?;
    let mut build = workspace.cargo(&["build", "--release"]);
    build.args(["--package", "dogwatch", "--package", "dogwatch-client", "--package", "blackbox"]);
    // By name: each one more is linked with optimisation across crates, which takes minutes.
    build.args(["--bin", "dogwatch", "--example", "informer", "--example", "kube_rs_informer"]);
    Step::new("build").run(build.args(["--example", "informers", "--example", "watch_floor"]))?;
    let mut run = workspace.cargo(&["run", "--release", "--package", "blackbox", "--example", "informers", "--"]);
    Step::new("informers").run(run.args(args))
}
