//! Time from start to ready, and from a restart until all watchers are back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::load_driver::{Load, LoadDriver};
use crate::own_server::OwnServer;
use crate::process::Processes;
use crate::progress::Progress;
use crate::report::{Case, ServerFigures};
use crate::sample::Latencies;
use crate::stage::{Stage, megabytes};
use crate::trouble::Trouble;
use crate::watchers::{Spread, Watchers};
use crate::wire::Protocol;

/// Time after which a started server is idle.
const SETTLED: Duration = Duration::from_secs(1);
/// Number of changes that watchers have missed when they reconnect.
const MISSED: u64 = 10;

/// Starts in an empty folder, and again in the same one.
pub(super) async fn start(stage: &mut Stage) -> Result<(), Trouble> {
    let starts = stage.sizes().starts.max(1);
    let (program, dir) = (stage.options.program.clone(), stage.options.dir.clone());
    for (what, flags) in [("api server", &["--no-controllers"][..]), ("with controllers", &[])] {
        let (first, again) = (Latencies::new(), Latencies::new());
        let (mut memory, mut cpu) = (0.0, 0.0);
        let progress = Progress::new(&format!("start, {what}"), 2 * starts as u64);
        for _ in 0..starts {
            let mut own = OwnServer::start(&program, &dir, flags).await?;
            first.record(own.ready_after);
            progress.add(1);
            own.stop_and_restart().await?;
            again.record(own.ready_after);
            progress.add(1);
            tokio::time::sleep(SETTLED).await;
            if let Some(usage) = Processes::new(own.pid().into_iter().collect())?.usage() {
                memory += megabytes(usage.memory) / starts as f64;
                cpu += usage.cpu.as_secs_f64() * 1e6 / starts as f64;
            }
        }
        let mut case = Case::new("start", what, "start");
        case.operations = starts as u64;
        case.latency = first.summary();
        case.server = Some(ServerFigures { cpu_us_each: cpu, memory_mb: memory, memory_peak_mb: None });
        if let Some(again) = again.summary() {
            case.figure("again_p50_ms", again.p50_us / 1e3);
        }
        stage.record(case);
    }
    Ok(())
}

/// Watchers that lost their server reconnect to the next one and receive the events they missed, without a list.
pub(super) async fn restart(stage: &mut Stage) -> Result<(), Trouble> {
    let (number, protocol) = (stage.sizes().watchers, stage.options.protocol);
    stage.populate(stage.sizes().objects).await?;
    for (name, killed) in [("killed", true), ("stopped", false)] {
        let server = stage.server().await?;
        let mut case = Case::new("restart", name, "watcher").with("watchers", number).with("objects", server.made());
        let revision = server.revision(protocol).await?;
        let path = format!("{}?watch=true&timeoutSeconds=3000&resourceVersion={revision}", server.pods());
        let (again, expected) = (path.clone(), MISSED * number as u64);
        let watchers = Watchers::open(&server.target, Spread::own(number, protocol), move |_| path.clone()).await?;
        let driver = LoadDriver::open(&server.target, Protocol::Http1, 1).await?;
        let progress = Progress::new("writing", MISSED);
        driver.drive(Load { first: 0, count: MISSED, rate: None }, &progress, server.patch()).await.into_driver()?;
        watchers.settle(expected).await;

        let down = Instant::now();
        let own = server.own.as_mut().ok_or_else(|| Trouble::impossible("restart needs a server of its own"))?;
        if killed {
            own.kill_and_restart().await?
        } else {
            own.stop_and_restart().await?
        }
        let ready = own.ready_after;
        let (target, processes) = (own.target.clone(), Processes::new(own.pid().into_iter().collect())?);
        (server.target, server.processes) = (target.clone(), processes);
        watchers.end().await;
        // At the version before the changes: the history must have survived.
        let back = Watchers::open(&target, Spread::own(number, protocol), move |_| again.clone()).await?;
        back.settle(expected).await;
        let took = down.elapsed();
        let (events, errors) = (back.events(), back.seen.errors.load(Ordering::Relaxed));
        back.end().await;
        case.operations = number as u64;
        case.seconds = took.as_secs_f64();
        case.per_second = number as f64 / took.as_secs_f64();
        case.figure("ready_ms", ready.as_secs_f64() * 1e3);
        case.figure("all_back_ms", took.as_secs_f64() * 1e3);
        case.figure("missed", expected.saturating_sub(events) as f64);
        case.figure("relists", errors as f64);
        if let Some(usage) = stage.server().await?.processes.usage() {
            let cpu_us_each = usage.cpu.as_secs_f64() * 1e6 / number.max(1) as f64;
            case.server = Some(ServerFigures { cpu_us_each, memory_mb: megabytes(usage.memory), memory_peak_mb: None });
        }
        stage.record(case);
    }
    Ok(())
}
