//! Create, get and patch: first as fast as the server answers, then at half that rate for honest latencies.

use std::sync::Arc;

use crate::load_driver::{Load, LoadDriver, RequestFactory};
use crate::pod;
use crate::progress::Progress;
use crate::report::Case;
use crate::stage::{Meter, Stage, megabytes};
use crate::trouble::Trouble;
use crate::wire::{Protocol, Request};

pub(super) async fn create(stage: &mut Stage) -> Result<(), Trouble> {
    let objects = stage.sizes().objects;
    let server = stage.server().await?;
    let before = server.quiet_memory().await;
    let first = server.making(objects);
    let make = server.create();
    let mut case = measure(stage, named(stage, "create"), first, objects, make).await?;
    if let (Some(before), Some(after)) = (before, stage.server().await?.quiet_memory().await) {
        case.figure("memory_before_mb", megabytes(before));
        case.figure("memory_each_kb", (after.saturating_sub(before)) as f64 / 1e3 / objects.max(1) as f64);
        if let Some(server) = &mut case.server {
            server.memory_mb = megabytes(after);
        }
    }
    stage.record(case);
    Ok(())
}

pub(super) async fn get(stage: &mut Stage) -> Result<(), Trouble> {
    let (objects, requests, callers) = (stage.sizes().objects, stage.sizes().requests, stage.sizes().callers);
    stage.populate(objects).await?;
    let server = stage.server().await?;
    let (pods, made) = (server.pods(), server.made());
    // In random order, as clients do.
    let make = Arc::new(move |number: u64, _| {
        let number = number.wrapping_mul(0x9e37_79b9) % made;
        Request::get(format!("{pods}/{}", pod::name(number)))
    });
    let mut case = measure(stage, named(stage, "get"), 0, requests, make).await?;
    let bytes = case.figures["bytes_each"].as_f64().unwrap_or_default() as u64;
    let floor = stage.floor_of_answers(callers, requests, bytes).await?;
    case.over_floor(floor);
    stage.record(case);
    Ok(())
}

pub(super) async fn patch(stage: &mut Stage) -> Result<(), Trouble> {
    let (objects, requests) = (stage.sizes().objects, stage.sizes().requests);
    stage.populate(objects).await?;
    let make = stage.server().await?.patch();
    let case = measure(stage, named(stage, "patch"), 0, requests, make).await?;
    stage.record(case);
    Ok(())
}

/// A case that is named after its protocol.
fn named(stage: &Stage, scenario: &str) -> Case {
    let protocol = if stage.options.protocol == Protocol::Http2 { "http2" } else { "http1" };
    Case::new(scenario, protocol, "request")
}

/// Two thirds of the requests as fast as possible, the rest at a rate. After a failure the measurements so far are kept.
pub(super) async fn measure(
    stage: &mut Stage,
    case: Case,
    first: u64,
    count: u64,
    make: RequestFactory,
) -> Result<Case, Trouble> {
    let (protocol, sizes) = (stage.options.protocol, stage.sizes().clone());
    let server = stage.server().await?;
    let (target, processes, made) = (server.target.clone(), server.processes.clone(), server.made());
    let mut case = case.with("callers", sizes.callers).with("objects", made);
    let driver = LoadDriver::open(&target, protocol, sizes.callers).await?;
    let progress = Progress::new(&case.scenario, count);

    let fast = count - count / 3;
    let meter = Meter::start(&processes);
    let result = driver.drive(Load { first, count: fast, rate: None }, &progress, Arc::clone(&make)).await;
    meter.end(&mut case, result.done());
    case.latency = result.latencies.summary();
    case.figure("bytes_each", result.bytes as f64 / result.done().max(1) as f64);
    let driver = match result.into_driver() {
        Ok(driver) => driver,
        Err(trouble) => {
            stage.record(case.failed(&trouble));
            return Err(trouble);
        }
    };

    let rate = sizes.rate.unwrap_or(case.per_second / 2.0).max(1.0);
    let load = Load { first: first + fast, count: count - fast, rate: Some(rate) };
    let result = driver.drive(load, &progress, make).await;
    case.latency = result.latencies.summary().or(case.latency);
    case.figure("latency_at_per_second", rate);
    if let Some(trouble) = result.trouble {
        stage.record(case.failed(&trouble));
        return Err(trouble);
    }
    Ok(case)
}
