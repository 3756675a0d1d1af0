//! `cargo xtask soak`: informers under load while the server is killed, at full size.

use crate::progress::{Outcome, Step};
use crate::workspace::Workspace;

/// Informers, objects, changes a second, seconds.
const LOAD: [&str; 4] = ["10", "50000", "2000", "60"];

pub(crate) fn soak(workspace: &Workspace, args: &[&str]) -> Outcome {
    let load = match args {
        [] => &LOAD[..],
        [_, _, _, _] => args,
        _ => return Err("usage: cargo xtask soak [INFORMERS OBJECTS CHANGES_PER_SECOND SECONDS]".into()),
    };
    let mut command = workspace.cargo(&["test", "--release", "--package", "dogwatch", "--test", "soak"]);
    Step::new("soak").run(command.args(["--", "--nocapture"]).env("DOGWATCH_SOAK", load.join(" ")))
}
