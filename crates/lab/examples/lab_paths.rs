//! Requests through a server with an unused lab, and through one without: `lab_paths <path> <times>`.
//!
//! `cargo xtask counts --lab` runs it under callgrind and compares both. Everything happens in one thread on a memory store. A path is
//! `get`, `list`, `create`, `patch` or `fan-out`, with `-plain` or `-lab` after it.

use std::sync::Arc;

use access::identity::User;
use bytes::Bytes;
use clock::WorldClock;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use lab::worlds::{Maker, MakerFuture, Order};
use machinery::clock::Clock;
use machinery::json::json;
use registry::{Registry, Settings};
use server::authentication::Authenticator;
use server::authorization::Inspection;
use server::body::{RequestBody, ResponseBody};
use server::limits::Limits;
use server::metrics::Metrics;
use server::peer::{ClientCertificate, Peer};
use server::{Config, Server};
use store::Retention;
use store::memory::MemoryStore;

const PODS: &str = "/api/v1/namespaces/default/pods";
/// Pods of a list, and watches of a fan-out.
const MANY: usize = 100;

struct World {
    server: Server,
    admin: Arc<Peer>,
}

/// This program makes no worlds.
struct NoWorlds;

impl Maker for NoWorlds {
    fn make(&self, _: Order) -> MakerFuture<'_> {
        Box::pin(async { Err("there are no worlds here".to_owned()) })
    }
}

impl World {
    async fn new(has_lab: bool) -> Self {
        let clock = if has_lab { WorldClock::adjustable() } else { WorldClock::system() };
        let starting = has_lab.then(|| lab::Starting::new(lab::REQUESTS_DEFAULT, Clock::system()));
        let mut settings = Settings { clock: clock.reading(), ..Settings::default() };
        if let Some(lab) = &starting {
            settings.kinds = lab::kinds::beside(&settings.kinds);
            settings.observers = vec![lab.observer()];
        }
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let registry = Registry::start(store, settings).await.expect("a memory store opens");
        let limits = Limits::default();
        let server_metrics = Arc::new(Metrics::new(&limits));
        let config = Config {
            limits,
            authenticator: Authenticator::default(),
            authorizer: Arc::new(access::authorizer::AlwaysAllow),
            inspection: Inspection::default(),
            traced_writes: 0,
            explain_refusals: false,
            metrics: prometheus_client::registry::Registry::default(),
            server_metrics,
            clock: clock.reading(),
            certificates_clock: Clock::system(),
        };
        let server = Server::new(Arc::clone(&registry), config);
        if let Some(starting) = starting {
            let started = lab::start(starting, &registry, clock, server.downgrade(), Box::new(NoWorlds)).await;
            server.set_lab(started.expect("a lab starts").lab);
        }
        let user = User { name: "admin".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() };
        let admin = Arc::new(Peer {
            address: Some(([127, 0, 0, 1], 40_000).into()),
            certificate: Some(ClientCertificate::InProcess(Arc::new(user))),
            ..Peer::default()
        });
        World { server, admin }
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> ResponseBody {
        let is_patch = method == Method::PATCH;
        let mut request = Request::new(RequestBody::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        let headers = request.headers_mut();
        headers.insert("user-agent", http::HeaderValue::from_static("my-operator/v1.2"));
        let kind = if is_patch { "application/merge-patch+json" } else { "application/json" };
        headers.insert("content-type", http::HeaderValue::from_static(kind));
        let reply = self.server.call(request, Arc::clone(&self.admin)).await;
        assert!(reply.status().is_success(), "{path}: {}", reply.status());
        reply.into_body()
    }

    async fn create(&self, number: usize) {
        let containers = json!([{"name": "main", "image": "nginx:1.25"}]);
        let metadata = json!({"name": format!("pod-{number}"), "labels": {"app": "web"}});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "node-1", "containers": containers}});
        self.send(Method::POST, PODS, pod.to_string().into()).await;
    }

    async fn patch(&self, number: usize) {
        let patch = json!({"metadata": {"annotations": {"number": number.to_string()}}});
        self.send(Method::PATCH, &format!("{PODS}/pod-0"), patch.to_string().into()).await;
    }
}

/// The measured part: callgrind counts only below this function.
#[inline(never)]
fn measured(runtime: &tokio::runtime::Runtime, work: impl Future<Output = ()>) {
    runtime.block_on(work);
}

fn run(runtime: &tokio::runtime::Runtime, path: &str, times: usize) {
    let (path, lab) = path.rsplit_once('-').expect("a path ends with -plain or -lab");
    let world = runtime.block_on(World::new(lab == "lab"));
    let mut watches = Vec::new();
    runtime.block_on(async {
        for number in 0..MANY {
            world.create(number).await;
        }
        if path == "fan-out" {
            for _ in 0..MANY {
                watches.push(world.send(Method::GET, &format!("{PODS}?watch=1"), Bytes::new()).await);
            }
        }
        // The first patch and the initial events fill what is kept for the others.
        world.patch(0).await;
        for watch in &mut watches {
            std::hint::black_box(watch.frame().await);
        }
    });
    measured(runtime, async {
        for number in 1..=times {
            match path {
                "get" => drop(world.send(Method::GET, &format!("{PODS}/pod-0"), Bytes::new()).await),
                "list" => drop(world.send(Method::GET, PODS, Bytes::new()).await.collect().await),
                "create" => world.create(MANY + number).await,
                "patch" => world.patch(number).await,
                "fan-out" => {
                    world.patch(number).await;
                    for watch in &mut watches {
                        std::hint::black_box(watch.frame().await);
                    }
                }
                other => panic!("no path is called {other}"),
            }
        }
    });
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(times)) = (args.next(), args.next()) else {
        println!("usage: lab_paths <get|list|create|patch|fan-out>-<plain|lab> <times>");
        return;
    };
    run(&runtime, &path, times.parse().expect("a number of times"));
}
