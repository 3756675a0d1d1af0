//! What a client's gets cost while another one floods the server with expensive lists.
//!
//! Both are service accounts of the same priority level. The flood is as many connections as `--callers`, each of which lists
//! all pods again and again, whether it gets them or is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;

use super::access::account;
use crate::load_driver::{Load, LoadDriver};
use crate::pod;
use crate::progress::Progress;
use crate::report::Case;
use crate::stage::{Meter, Stage};
use crate::target::Target;
use crate::trouble::Trouble;
use crate::wire::{Connection, Protocol, Request};

/// Gets a second, unless `--rate` is given: few, so that a get waits for lists and not for other gets.
const RATE: f64 = 100.0;

pub(super) async fn run(stage: &mut Stage) -> Result<(), Trouble> {
    let objects = stage.sizes().objects;
    stage.populate(objects).await?;
    let (flooder, reader) = (account(stage, "flooder", 1).await?, account(stage, "reader", 1).await?);
    let administrator = stage.server().await?.target.clone();
    let as_account = |token: &str| administrator.without_identity(format!("Bearer {token}"));
    let (flooder, reader) = (as_account(&flooder)?, as_account(&reader)?);
    let quiet = gets(stage, "quiet", &reader).await?;
    let before = quiet.latency;
    stage.record(quiet);
    let flood = Flood::start(stage, &flooder).await?;
    let measured = gets(stage, "flooded", &reader).await;
    let (lists, refused) = flood.stop().await;
    let mut case = measured?;
    case.figure("lists", lists as f64);
    case.figure("lists_refused", refused as f64);
    if let (Some(before), Some(after)) = (&before, &case.latency) {
        let (p50, p99) = (after.p50_us / before.p50_us.max(1.0), after.p99_us / before.p99_us.max(1.0));
        case.figure("p50_ratio", p50);
        case.figure("p99_ratio", p99);
    }
    stage.record(case);
    Ok(())
}

/// Gets of single pods by one connection, at a rate.
async fn gets(stage: &mut Stage, name: &str, reader: &Target) -> Result<Case, Trouble> {
    let (protocol, sizes) = (stage.options.protocol, stage.sizes().clone());
    let server = stage.server().await?;
    let (pods, made, processes) = (server.pods(), server.made(), server.processes.clone());
    let rate = sizes.rate.unwrap_or(RATE);
    let count = (rate * sizes.seconds).ceil() as u64;
    let make = Arc::new(move |number: u64, _| Request::get(format!("{pods}/{}", pod::name(number % made))));
    let driver = LoadDriver::open(reader, protocol, 1).await?;
    let meter = Meter::start(&processes);
    let load = Load { first: 0, count, rate: Some(rate) };
    let result = driver.drive(load, &Progress::new("fairness", count), make).await;
    let mut case = Case::new("fairness", name, "request").with("callers", sizes.callers).with("objects", made);
    meter.end(&mut case, result.done());
    case.latency = result.latencies.summary();
    match result.trouble {
        Some(trouble) => {
            stage.record(case.failed(&trouble));
            Err(trouble)
        }
        None => Ok(case),
    }
}

/// Connections that list all pods again and again.
struct Flood {
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    lists: AtomicU64,
    refused: AtomicU64,
}

impl Flood {
    async fn start(stage: &mut Stage, flooder: &Target) -> Result<Self, Trouble> {
        let (protocol, callers) = (stage.options.protocol, stage.sizes().callers);
        let pods = stage.server().await?.pods();
        let (mut tasks, shared) = (JoinSet::new(), Arc::<Shared>::default());
        for _ in 0..callers.max(1) {
            let (flooder, shared, pods) = (flooder.clone(), Arc::clone(&shared), pods.clone());
            tasks.spawn(async move { shared.list(&flooder, protocol, &pods).await });
        }
        Ok(Flood { tasks, shared })
    }

    /// Stops the flood; returns the numbers of lists and refusals.
    async fn stop(mut self) -> (u64, u64) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.tasks.shutdown().await;
        (self.shared.lists.load(Ordering::Relaxed), self.shared.refused.load(Ordering::Relaxed))
    }
}

impl Shared {
    async fn list(&self, flooder: &Target, protocol: Protocol, pods: &str) {
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(mut connection) = Connection::open(flooder, protocol).await else { continue };
            while let Ok(answer) = connection.ask(&Request::get(pods)).await {
                let count = if answer.succeeded() { &self.lists } else { &self.refused };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
