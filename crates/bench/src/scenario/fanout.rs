//! One write to many watchers: those that match, those that do not, and those that do not read.

use crate::load_driver::{Load, LoadDriver};
use crate::progress::Progress;
use crate::report::Case;
use crate::sizes::Fanout;
use crate::stage::{Meter, Stage, megabytes};
use crate::trouble::Trouble;
use crate::watchers::{Spread, Watchers};
use crate::wire::Protocol;

/// Number of connections that write; enough for a rate of a few hundred per second.
const WRITERS: usize = 16;
/// Number of objects that are written.
const WRITTEN: u64 = 500;
/// Longest measurement of the floor, which is steady long before.
const FLOOR_SECONDS_MAX: f64 = 5.0;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    for fanout in stage.sizes().fanouts.clone() {
        one(stage, &fanout).await?;
    }
    Ok(())
}

async fn one(stage: &mut Stage, fanout: &Fanout) -> Result<(), Trouble> {
    let seconds = stage.sizes().seconds;
    let spread = Spread {
        watchers: fanout.watchers,
        connections: fanout.connections.unwrap_or(fanout.watchers),
        protocol: fanout.protocol,
    };
    let mut case = Case::new("fanout", name(fanout), "event")
        .with("watchers", fanout.watchers)
        .with("connections", spread.connections)
        .with("writes_per_second", fanout.rate);
    stage.populate(WRITTEN).await?;
    let server = stage.server().await?;
    let (target, processes) = (server.target.clone(), server.processes.clone());
    let query = selectors(fanout);
    let path = watch_path(&server.pods(), &server.revision(fanout.protocol).await?, &query);
    let watchers = Watchers::open(&target, spread, move |_| path.clone()).await?;

    let meter = Meter::start(&processes);
    let written = write(stage, fanout.rate, seconds).await?;
    watchers.settle(written.count * fanout.watchers as u64).await;
    let events = watchers.events();
    meter.end(&mut case, events);
    // Measured from the moment at which the write was due.
    case.latency = watchers.seen.latencies.summary();
    let bytes = watchers.seen.bytes.load(std::sync::atomic::Ordering::Relaxed) / events.max(1);
    case.figure("missed", (written.count * fanout.watchers as u64).saturating_sub(events) as f64);
    case.figure("closed", watchers.seen.closed.load(std::sync::atomic::Ordering::Relaxed) as f64);
    case.figure("writes_per_s", written.per_second);
    case.figure("bytes_each", bytes as f64);
    watchers.end().await;
    if written.trouble.is_none() {
        let floor = floor(stage, spread, fanout.rate, seconds.min(FLOOR_SECONDS_MAX), bytes).await?;
        case.over_floor(floor);
    }
    stage.record_until(case, written.trouble)
}

fn name(fanout: &Fanout) -> String {
    let mut name = format!("{}×{}/s", fanout.watchers, fanout.rate);
    if fanout.protocol == Protocol::Http2 {
        name.push_str(" http2");
    }
    if let Some(connections) = fanout.connections {
        name.push_str(&format!(" on {connections}"));
    }
    if fanout.label_selector.is_some() || fanout.field_selector.is_some() {
        name.push_str(" selector");
    }
    name
}

fn selectors(fanout: &Fanout) -> String {
    let mut query = String::new();
    for (parameter, selector) in [("labelSelector", &fanout.label_selector), ("fieldSelector", &fanout.field_selector)]
    {
        if let Some(selector) = selector {
            query.push_str(&format!("&{parameter}={}", selector.replace('=', "%3D").replace(',', "%2C")));
        }
    }
    query
}

fn watch_path(pods: &str, revision: &str, query: &str) -> String {
    format!("{pods}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion={revision}{query}")
}

/// The cost to the floor of each event of the same size, to the same connections, at the same rate.
async fn floor(stage: &mut Stage, spread: Spread, rate: f64, seconds: f64, bytes: u64) -> Result<f64, Trouble> {
    let floor = stage.floor().await?;
    let per_connection = spread.per_connection();
    let connections = spread.watchers.div_ceil(per_connection.max(1));
    let target = floor.target.clone();
    let readers = Watchers::open(&target, Spread::own(connections, Protocol::Http1), |_| "/stream".to_owned()).await?;
    let count = (rate * seconds).ceil().max(1.0) as u64;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let cpu = floor.write(rate, count, bytes, per_connection).await?;
    let events = count * (connections * per_connection) as u64;
    readers.settle(events).await;
    readers.end().await;
    Ok(cpu.as_secs_f64() * 1e6 / events.max(1) as f64)
}

struct Written {
    count: u64,
    per_second: f64,
    trouble: Option<Trouble>,
}

/// Writes at a rate, each due at a moment of its own.
async fn write(stage: &mut Stage, rate: f64, seconds: f64) -> Result<Written, Trouble> {
    let server = stage.server().await?;
    let driver = LoadDriver::open(&server.target, Protocol::Http1, WRITERS).await?;
    let count = (rate * seconds).ceil().max(1.0) as u64;
    let progress = Progress::new("writing", count);
    let started = std::time::Instant::now();
    let result = driver.drive(Load { first: 0, count, rate: Some(rate) }, &progress, server.patch()).await;
    let per_second = result.done() as f64 / started.elapsed().as_secs_f64();
    Ok(Written { count: result.done(), per_second, trouble: result.trouble })
}

/// The cost of a write while many watch other objects: by namespace, label, field and name.
pub(super) async fn selective(stage: &mut Stage) -> Result<(), Trouble> {
    let (number, seconds, protocol) = (stage.sizes().watchers, stage.sizes().seconds, stage.options.protocol);
    let rate = 200.0;
    stage.populate(WRITTEN).await?;
    let alone = cost(stage, rate, seconds).await?;
    let server = stage.server().await?;
    let (target, pods) = (server.target.clone(), server.pods());
    let revision = server.revision(protocol).await?;
    let path = move |number: usize| match number % 4 {
        0 => watch_path("/api/v1/namespaces/elsewhere/pods", &revision, ""),
        1 => watch_path(&pods, &revision, &format!("&labelSelector=app%3Dnone-{number}")),
        2 => watch_path(&pods, &revision, &format!("&fieldSelector=spec.nodeName%3Dnone-{number}")),
        _ => watch_path(&pods, &revision, &format!("&fieldSelector=metadata.name%3Dnone-{number}")),
    };
    let watchers = Watchers::open(&target, Spread::own(number, protocol), path).await?;
    let mut crowd = cost(stage, rate, seconds).await?;
    let events = watchers.events();
    let closed = watchers.end().await.closed.load(std::sync::atomic::Ordering::Relaxed);
    let again = cost(stage, rate, seconds).await?;
    crowd.case = format!("{number} others");
    crowd.parameters.insert("watchers".to_owned(), number.into());
    let cpu = |case: &Case| case.server.map_or(0.0, |server| server.cpu_us_each);
    let without = (cpu(&alone) + cpu(&again)) / 2.0;
    if without > 0.0 {
        crowd.figure("cpu_us_each_without", without);
        crowd.figure("ratio_to_without", cpu(&crowd) / without);
    }
    crowd.figure("events_by_mistake", events as f64);
    crowd.figure("closed", closed as f64);
    stage.record(crowd);
    Ok(())
}

async fn cost(stage: &mut Stage, rate: f64, seconds: f64) -> Result<Case, Trouble> {
    let mut case = Case::new("fanout-selective", "alone", "write").with("writes_per_second", rate);
    let server = stage.server().await?;
    let processes = server.processes.clone();
    let driver = LoadDriver::open(&server.target, Protocol::Http1, WRITERS).await?;
    let count = (rate * seconds).ceil().max(1.0) as u64;
    let progress = Progress::new("writing", count);
    let meter = Meter::start(&processes);
    let result = driver.drive(Load { first: 0, count, rate: Some(rate) }, &progress, server.patch()).await;
    meter.end(&mut case, result.done());
    case.latency = result.latencies.summary();
    if let Some(trouble) = result.trouble {
        stage.record(case.failed(&trouble));
        return Err(trouble);
    }
    Ok(case)
}

/// The effect of watchers that stop reading on those that read, and whether they are disconnected.
pub(super) async fn slow(stage: &mut Stage) -> Result<(), Trouble> {
    let (number, slow, seconds) = (stage.sizes().watchers.min(100), stage.sizes().slow, stage.sizes().seconds);
    let (rate, protocol) = (100.0, stage.options.protocol);
    let mut case = Case::new("slow-watchers", format!("{number} with {slow} slow"), "event")
        .with("watchers", number)
        .with("slow", slow)
        .with("writes_per_second", rate);
    stage.populate(WRITTEN).await?;
    let server = stage.server().await?;
    let (target, processes) = (server.target.clone(), server.processes.clone());
    let path = watch_path(&server.pods(), &server.revision(protocol).await?, "");
    let held_path = path.clone();
    let watchers = Watchers::open(&target, Spread::own(number, protocol), move |_| path.clone()).await?;
    let held = Watchers::open_held(&target, Spread::own(slow, protocol), move |_| held_path.clone()).await?;
    let before = processes.usage();

    let meter = Meter::start(&processes);
    let written = write(stage, rate, seconds).await?;
    let expected = written.count * number as u64;
    watchers.settle(expected).await;
    meter.end(&mut case, watchers.events());
    case.latency = watchers.seen.latencies.summary();
    case.figure("missed", expected.saturating_sub(watchers.events()) as f64);
    case.figure("closed", watchers.seen.closed.load(std::sync::atomic::Ordering::Relaxed) as f64);
    if let (Some(before), Some(after)) = (before, processes.usage()) {
        case.figure("memory_added_mb", megabytes(after.memory) - megabytes(before.memory));
    }
    // They read at last: everything is still there for them, or they were closed.
    held.read();
    let expected = written.count * slow as u64;
    held.settle(expected).await;
    case.figure("slow_missed", expected.saturating_sub(held.events()) as f64);
    case.figure("slow_closed", held.seen.closed.load(std::sync::atomic::Ordering::Relaxed) as f64);
    watchers.end().await;
    held.end().await;
    stage.record_until(case, written.trouble)
}
