//! Worlds of the lab: the time until a fork and an empty world are answered, the memory of each, and a rewind.
//!
//! Every case has a server of its own in memory, so that the growth of its memory is that of the worlds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::definition;
use crate::load_driver::{Load, LoadDriver, RequestFactory};
use crate::own_server::OwnServer;
use crate::pod;
use crate::process::Processes;
use crate::progress::Progress;
use crate::report::Case;
use crate::sample::Latencies;
use crate::stage::{Meter, Stage};
use crate::trouble::Trouble;
use crate::wire::{Connection, Protocol, Request};

const LAB: &str = "/apis/lab.dogwatch.dev/v1";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Objects of the smaller fork, and definitions of a world that has nothing else.
const FEW: u64 = 1_000;
const DEFINITIONS: u64 = 20;
/// Objects that a rewind changes back.
const CHANGED: u64 = 100;
/// Worlds that are made before the measurement: they make what all share.
const FIRST: u64 = 3;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let objects = stage.sizes().objects;
    let of_main = r#"{"from":{"world":"main"}}"#;
    forks(stage, &format!("fork of {FEW}"), FEW, 0, of_main).await?;
    if objects > FEW {
        forks(stage, &format!("fork of {objects}"), objects, 0, of_main).await?;
    }
    forks(stage, "empty", 0, 0, "{}").await?;
    forks(stage, &format!("{DEFINITIONS} definitions"), 0, DEFINITIONS, of_main).await?;
    rewinds(stage, objects.max(CHANGED)).await
}

/// A server in memory with so many pods and definitions.
async fn prepared(stage: &Stage, objects: u64, definitions: u64) -> Result<OwnServer, Trouble> {
    let flags = ["--memory", "--lab", "--no-controllers"];
    let own = OwnServer::start(&stage.options.program, &stage.options.dir, &flags).await?;
    let mut connection = Connection::open(&own.target, Protocol::Http1).await?;
    for number in 0..definitions {
        let request = Request::post(CRDS, definition::body(&format!("g{number}.example.com")));
        connection.must("create a definition", &request).await?;
    }
    if definitions > 0 {
        // Until they are established.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let (progress, specs) = (Progress::new("making pods", objects), stage.sizes().specs);
    let make: RequestFactory = Arc::new(move |number, _| Request::post(PODS, pod::body(number, specs, 0)));
    let driver = LoadDriver::open(&own.target, Protocol::Http1, stage.sizes().callers).await?;
    driver.drive(Load { first: 0, count: objects, rate: None }, &progress, make).await.into_driver()?;
    Ok(own)
}

/// Makes worlds one after the other.
async fn forks(stage: &mut Stage, name: &str, objects: u64, definitions: u64, spec: &str) -> Result<(), Trouble> {
    let own = prepared(stage, objects, definitions).await?;
    let processes = Processes::new(own.pid().into_iter().collect())?;
    let mut connection = Connection::open(&own.target, Protocol::Http1).await?;
    let worlds = stage.sizes().worlds;
    let request = |number: u64| {
        let body = format!(
            r#"{{"apiVersion":"lab.dogwatch.dev/v1","kind":"World","metadata":{{"name":"w{number}"}},"spec":{spec}}}"#
        );
        Request::post(format!("{LAB}/worlds"), body)
    };
    for number in 0..FIRST {
        connection.must("make a world", &request(worlds + number)).await?;
    }
    let mut case = Case::new("worlds", name, "world").with("objects", objects).with("definitions", definitions);
    let (latencies, progress) = (Latencies::new(), Progress::new("making worlds", worlds));
    let before = quiet_memory(&processes).await;
    let meter = Meter::start(&processes);
    for number in 0..worlds {
        let began = Instant::now();
        connection.must("make a world", &request(number)).await?;
        latencies.record(began.elapsed());
        progress.add(1);
    }
    meter.end(&mut case, worlds);
    let after = quiet_memory(&processes).await;
    case.latency = latencies.summary();
    if let (Some(before), Some(after)) = (before, after) {
        case.figure("memory_each_kb", after.saturating_sub(before) as f64 / 1e3 / worlds.max(1) as f64);
    }
    stage.record(case);
    Ok(())
}

/// Changes some of many objects, and returns to the state before, again and again.
async fn rewinds(stage: &mut Stage, objects: u64) -> Result<(), Trouble> {
    let own = prepared(stage, objects, 0).await?;
    let processes = Processes::new(own.pid().into_iter().collect())?;
    let mut connection = Connection::open(&own.target, Protocol::Http1).await?;
    let checkpoint =
        r#"{"apiVersion":"lab.dogwatch.dev/v1","kind":"Checkpoint","metadata":{"name":"before"},"spec":{}}"#;
    connection.must("make a checkpoint", &Request::post(format!("{LAB}/checkpoints"), checkpoint)).await?;
    let rewind = Request::post(format!("{LAB}/checkpoints/before/rewind"), "{}");
    let (latencies, rounds) = (Latencies::new(), stage.sizes().worlds.div_ceil(5));
    let mut case = Case::new("worlds", format!("rewind {CHANGED} of {objects}"), "rewind");
    case = case.with("objects", objects).with("changed", CHANGED);
    let meter = Meter::start(&processes);
    for round in 0..rounds {
        for number in 0..CHANGED {
            let path = format!("{PODS}/{}", pod::name(number));
            connection.must("patch a pod", &Request::merge_patch(path, pod::due_patch(round + 1))).await?;
        }
        let began = Instant::now();
        connection.must("rewind", &rewind).await?;
        latencies.record(began.elapsed());
    }
    meter.end(&mut case, rounds);
    case.latency = latencies.summary();
    stage.record(case);
    Ok(())
}

/// Resident memory after the server has freed what the last requests used.
async fn quiet_memory(processes: &Processes) -> Option<u64> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    processes.usage().map(|usage| usage.memory)
}
