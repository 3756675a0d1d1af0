//! `cargo xtask torture [--cluster] --kills N [--seed S]`: the crash tests of the store, or of a whole cluster, with N kills.

use crate::progress::{Outcome, Step};
use crate::workspace::Workspace;

/// Environment variables from which the crash tests take the number of kills.
const STORE_KILLS_ENV: &str = "DOGWATCH_TORTURE_KILLS";
const CLUSTER_KILLS_ENV: &str = "DOGWATCH_TORTURE_CLUSTER_KILLS";
/// And the moments of those of a cluster.
const CLUSTER_SEED_ENV: &str = "DOGWATCH_TORTURE_CLUSTER_SEED";

pub(crate) fn torture(workspace: &Workspace, args: &[&str]) -> Outcome {
    let (is_cluster, number, seed) = match args {
        ["--kills", number] => (false, number, "0"),
        ["--cluster", "--kills", number] => (true, number, "0"),
        ["--cluster", "--kills", number, "--seed", seed] => (true, number, *seed),
        _ => return Err("usage: cargo xtask torture --kills N | torture --cluster --kills N [--seed S]".into()),
    };
    let kills = number.parse::<u32>().map_err(|_| format!("--kills wants a number, not {number:?}"))?;
    if is_cluster {
        let name = format!("torture of a cluster with {kills} kills");
        let mut command = workspace.cargo(&["test", "--release", "--package", "dogwatch", "--test", "torture"]);
        command.args(["--", "--nocapture"]).env(CLUSTER_KILLS_ENV, kills.to_string()).env(CLUSTER_SEED_ENV, seed);
        return Step::new(&name).run(&mut command);
    }
    let name = format!("torture with {kills} kills");
    let mut command = workspace.cargo(&["test", "--package", "dogwatch-store", "--all-features"]);
    command.args(["--test", "crash", "--", "--nocapture"]);
    Step::new(&name).run(command.env(STORE_KILLS_ENV, kills.to_string()))
}
