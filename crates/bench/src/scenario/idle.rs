//! The cost of an idle watcher: memory for each, and processor time without events.

use std::time::Duration;

use crate::process::Processes;
use crate::report::Case;
use crate::stage::{Meter, Stage};
use crate::trouble::Trouble;
use crate::watchers::{Spread, Watchers};
use crate::wire::Protocol;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let (number, seconds, protocol) = (stage.sizes().watchers, stage.sizes().seconds, stage.options.protocol);
    let mut case = Case::new("idle-watchers", format!("{number}"), "watcher").with("watchers", number);
    stage.renew();
    stage.populate(1).await?;
    let server = stage.server().await?;
    let (target, processes) = (server.target.clone(), server.processes.clone());
    let revision = server.revision(protocol).await?;
    let path =
        format!("{}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion={revision}", server.pods());
    let before = server.quiet_memory().await;
    let opening = Meter::start(&processes);
    let watchers = Watchers::open(&target, Spread::own(number, protocol), move |_| path.clone()).await?;
    opening.end(&mut case, number as u64);
    let after = stage.server().await?.quiet_memory().await;
    let idle_from = processes.usage();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    if let (Some(from), Some(to)) = (idle_from, processes.usage()) {
        let cpu = to.cpu.saturating_sub(from.cpu).as_secs_f64();
        case.figure("cpu_ms_per_s_idle", cpu * 1e3 / seconds);
    }
    case.figure("closed", watchers.seen.closed.load(std::sync::atomic::Ordering::Relaxed) as f64);
    watchers.end().await;
    if let (Some(before), Some(after)) = (before, after) {
        case.figure("memory_each_kb", after.saturating_sub(before) as f64 / 1e3 / number.max(1) as f64);
        case.figure("floor_memory_each_kb", floor(stage, number).await?);
    }
    stage.record(case);
    Ok(())
}

/// Kilobytes of a TLS session and its socket in a program that has nothing else.
async fn floor(stage: &mut Stage, number: usize) -> Result<f64, Trouble> {
    let floor = stage.floor().await?;
    let processes = Processes::new(vec![floor.pid])?;
    let target = floor.target.clone();
    let before = processes.usage().map_or(0, |usage| usage.memory);
    let watchers = Watchers::open(&target, Spread::own(number, Protocol::Http1), |_| "/stream".to_owned()).await?;
    let after = processes.usage().map_or(0, |usage| usage.memory);
    // A round of nothing, after which the floor lets go of them.
    floor.write(1.0, 1, 1, 1).await?;
    watchers.end().await;
    Ok(after.saturating_sub(before) as f64 / 1e3 / number.max(1) as f64)
}
