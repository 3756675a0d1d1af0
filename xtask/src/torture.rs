//! `cargo xtask torture --kills N`: the store's crash tests with N kills.

use crate::progress::{Outcome, Step};
use crate::workspace::Workspace;

/// Environment variable from which the store's crash tests take the number of kills.
const KILLS_ENV: &str = "DOGWATCH_TORTURE_KILLS";

pub(crate) fn torture(workspace: &Workspace, args: &[&str]) -> Outcome {
    let kills = match args {
        ["--kills", number] => number.parse::<u32>().map_err(|_| format!("--kills wants a number, not {number:?}"))?,
        _ => return Err("usage: cargo xtask torture --kills N".into()),
    };
    let name = format!("torture with {kills} kills");
    let mut command = workspace.cargo(&["test", "--package", "dogwatch-store", "--all-features"]);
    command.args(["--test", "crash", "--", "--nocapture"]);
    Step::new(&name).run(command.env(KILLS_ENV, kills.to_string()))
}
