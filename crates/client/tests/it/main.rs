//! The runtime against a scripted server over a real socket.
//!
//! - `scripts`: the conformance scenarios
//! - `faults`: other faults of servers and networks
//! - `wire`: the content of requests and the decoding of responses
//! - `factory`: the informers of a process
//! - `bad_input`: mistakes of users
//! - `examples`: runs every example

mod bad_input;
mod examples;
mod factory;
mod faults;
mod scripts;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use client::backoff::BackoffConfig;
use client::informer::{Event, InformerConfig, SharedInformer, Subscription, SubscriptionOptions};
use client::list_watch::ApiListWatch;
use client::reflector::{Problem, ReflectorConfig};
use client::{Key, ResourceVersion, connect};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use testkit::fake_server::{FakeServer, PATIENCE};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

fn client_of(server: &FakeServer) -> kube::Client {
    let url = server.url().parse().expect("the fake server has a url");
    connect::from_config(kube::Config::new(url)).expect("a plain client")
}

/// Short delays: the bands are checked on virtual time elsewhere.
fn quick() -> ReflectorConfig {
    let backoff =
        BackoffConfig { base: Duration::from_millis(20), cap: Duration::from_millis(200), ..BackoffConfig::default() };
    ReflectorConfig { backoff, ..ReflectorConfig::default() }
}

fn listing() -> ReflectorConfig {
    ReflectorConfig { streaming: false, ..quick() }
}

/// An informer of pods that runs, and one subscriber.
struct Rig {
    informer: SharedInformer<Pod>,
    events: Subscription<Pod>,
    problems: Arc<Mutex<Vec<Problem>>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Rig {
    fn start(server: &FakeServer, reflector: ReflectorConfig) -> Self {
        let config = InformerConfig { reflector, ..InformerConfig::default() };
        let informer = SharedInformer::new(ApiListWatch::all::<Pod>(client_of(server)), config);
        let problems: Arc<Mutex<Vec<Problem>>> = Arc::default();
        let seen = problems.clone();
        informer.on_problem(Arc::new(move |problem: &Problem| seen.lock().push(problem.clone()))).expect("not started");
        let events = informer.subscribe(SubscriptionOptions::default()).expect("not stopped");
        let stop = CancellationToken::new();
        let task = tokio::spawn(informer.start(stop.clone()).expect("not started"));
        Self { informer, events, problems, stop, task }
    }

    /// The next event, as text.
    async fn next(&mut self) -> String {
        format!("{:?}", self.event().await)
    }

    async fn event(&mut self) -> Event<Pod> {
        let next = tokio::time::timeout(PATIENCE, self.events.next()).await;
        next.expect("timed out waiting for an event").expect("the informer runs")
    }

    /// Waits until the store shows this version.
    async fn reaches(&self, version: &str) {
        let version = ResourceVersion::from(version);
        let store = self.informer.store();
        let reached = tokio::time::timeout(PATIENCE, store.wait_until(&version)).await;
        reached.unwrap_or_else(|_| panic!("the store stays at {:?}", store.version()));
    }

    fn names(&self) -> Vec<String> {
        self.informer.store().snapshot().keys().map(Key::to_string).collect()
    }
}
