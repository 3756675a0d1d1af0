//! The server as one function, from a request and its peer to a response. No socket is needed.
//!
//! Read in this order: [`call`] receives a request and completes its response; [`respond`] has the steps between (spec 02 §1.1:
//! deadline, authentication, impersonation, place in flight, authorization); [`dispatch`] finds who answers; [`places`] and
//! [`bodies`] keep the limits.

mod bodies;
mod call;
mod dispatch;
mod labels;
mod places;
mod record;
mod recording;
mod respond;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use access::authorizer::Authorizer;
use http::Request;
use machinery::Status;
use machinery::clock::Clock;
use prometheus_client::registry::Registry as MetricsRegistry;
use registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::aggregation::Aggregator;
use crate::audit::Auditor;
use crate::authorization::Inspection;
use crate::disturbance::Disturbances;
use crate::fairness::Fairness;
use crate::fairness::metrics::FairnessMetrics;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::observation::Recorder;
use crate::process_metrics::ProcessMetrics;
use crate::queues::Queues;
use crate::request::authentication::Authenticator;
use crate::request::costly::CostlyKinds;
use crate::request::discovery::DiscoveryBodies;
use crate::request::heavy::HeavyPool;
use crate::request::impersonation;
use crate::request::openapi::OpenApiDocuments;
use crate::request::traces::AdmissionTraces;
use crate::shutdown::Shutdown;
use crate::streams::containers::Containers;
use crate::usage::Usage;
use crate::wire::body::RequestBody;
use crate::wire::connection::{Handler, ResponseFuture};
use crate::wire::drain::Drain;
use crate::wire::listener;
use crate::wire::peer::Peer;
use crate::wire::tls::Tls;
use crate::worlds::{MAIN, Worlds};

/// The parts of a server besides its registry.
pub struct Config {
    pub limits: Limits,
    pub authenticator: Authenticator,
    pub authorizer: Arc<dyn Authorizer>,
    /// What the server shows about its decisions.
    pub inspection: Inspection,
    /// Writes whose admission is traced; the last ones are kept. Zero traces only those that request it.
    pub traced_writes: usize,
    /// Whether refusals of admission name everything that is known of them.
    pub explain_refusals: bool,
    /// Served at `/metrics`; the server adds its own metrics to those registered here.
    pub metrics: MetricsRegistry,
    /// The server's own metrics, which its webhooks share.
    pub server_metrics: Arc<Metrics>,
    /// The clock for token expiry, ages in tables, and dates in headers.
    /// The time that requests go by.
    pub clock: Clock,
    /// The time that the certificates of clients are judged by: the machine's.
    pub certificates_clock: Clock,
}

/// A server. Cheap to clone; all clones share their state.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// The world that this server serves.
    pub(crate) world: Arc<str>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) metrics_registry: Arc<MetricsRegistry>,
    pub(crate) clock: Clock,
    pub(crate) certificates_clock: Clock,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) inspection: Inspection,
    pub(crate) traces: AdmissionTraces,
    pub(crate) impersonations: impersonation::Modes,
    pub(crate) drain: Arc<Drain>,
    pub(crate) discovery: DiscoveryBodies,
    pub(crate) openapi: Arc<OpenApiDocuments>,
    pub(crate) heavy: Arc<HeavyPool>,
    pub(crate) costly: CostlyKinds,
    pub(crate) fairness: Arc<Fairness>,
    /// None until an audit log is set.
    pub(crate) auditor: OnceLock<Arc<Auditor>>,
    /// None until it is set: then some group versions may be served by others.
    pub(crate) aggregator: OnceLock<Arc<Aggregator>>,
    /// None without a lab.
    pub(crate) lab: OnceLock<Lab>,
    /// Counts the times that the objects were made equal to those of the past.
    pub(crate) rewinds: watch::Sender<u64>,
    /// None without worlds beside this one.
    pub(crate) worlds: OnceLock<Arc<dyn Worlds>>,
    /// None until it is set: then logs of containers and connections to them are refused.
    pub(crate) containers: OnceLock<Arc<dyn Containers>>,
    /// None until it is set: then nodes and pods are not measured.
    pub(crate) usage: OnceLock<Arc<dyn Usage>>,
    /// None until it is set: then no controller runs here.
    pub(crate) queues: OnceLock<Arc<dyn Queues>>,
}

/// What a lab adds to the server of a world: objects that are not those of the cluster, and powers over its requests.
pub struct Lab {
    pub objects: Arc<dyn LabObjects>,
    /// The group of these objects. Requests for them are never disturbed.
    pub group: &'static str,
    /// What happens to all other requests.
    pub disturbances: Arc<dyn Disturbances>,
    /// Records all other requests.
    pub recorder: Arc<dyn Recorder>,
}

/// The registry of a lab's objects, when it is there.
pub type LabRegistry<'a> = Pin<Box<dyn Future<Output = Result<Arc<Registry>, Status>> + Send + 'a>>;

/// The objects of a lab.
pub trait LabObjects: Send + Sync {
    /// The registry of the objects. It may be made for the first request to `server` that needs it: most worlds have none.
    fn registry(&self, server: crate::worlds::WeakServer) -> LabRegistry<'_>;
}

impl Server {
    #[must_use]
    pub fn new(registry: Arc<Registry>, config: Config) -> Self {
        let metrics = config.server_metrics;
        let mut metrics_registry = config.metrics;
        metrics.register(&mut metrics_registry);
        let openapi = Arc::new(OpenApiDocuments::new(&config.limits));
        let heavy = Arc::new(HeavyPool::new(&config.limits, &metrics));
        let fairness = Arc::new(Fairness::new(&config.limits));
        metrics_registry.register_collector(Box::new(FairnessMetrics(Arc::clone(&fairness))));
        metrics_registry.register_collector(Box::new(ProcessMetrics));
        Server(Arc::new(Inner {
            world: MAIN.into(),
            registry,
            limits: Arc::new(config.limits),
            metrics,
            metrics_registry: Arc::new(metrics_registry),
            clock: config.clock,
            certificates_clock: config.certificates_clock,
            authenticator: config.authenticator,
            authorizer: config.authorizer,
            inspection: config.inspection,
            traces: AdmissionTraces::new(config.traced_writes, config.explain_refusals),
            impersonations: impersonation::Modes::default(),
            drain: Arc::default(),
            discovery: DiscoveryBodies::default(),
            openapi,
            heavy,
            costly: CostlyKinds::default(),
            fairness,
            auditor: OnceLock::new(),
            aggregator: OnceLock::new(),
            lab: OnceLock::new(),
            rewinds: watch::Sender::new(0),
            worlds: OnceLock::new(),
            containers: OnceLock::new(),
            usage: OnceLock::new(),
            queues: OnceLock::new(),
        }))
    }

    #[must_use]
    pub fn limits(&self) -> &Arc<Limits> {
        &self.0.limits
    }

    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    #[must_use]
    pub fn authenticator(&self) -> &Authenticator {
        &self.0.authenticator
    }

    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    #[must_use]
    pub fn inspection(&self) -> &Inspection {
        &self.0.inspection
    }

    /// Passes requests to aggregated servers from now on. Only the first aggregator is used.
    pub fn set_aggregator(&self, aggregator: Arc<Aggregator>) {
        let _ = self.0.aggregator.set(aggregator);
    }

    /// Serves the objects of a lab from now on. Only the first lab is used.
    pub fn set_lab(&self, lab: Lab) {
        let _ = self.0.lab.set(lab);
    }

    /// Serves logs of containers and connections to them from now on. Only the first is used.
    pub fn set_containers(&self, containers: Arc<dyn Containers>) {
        let _ = self.0.containers.set(containers);
    }

    /// Serves what nodes and pods use from now on. Only the first is used.
    pub fn set_usage(&self, usage: Arc<dyn Usage>) {
        let _ = self.0.usage.set(usage);
    }

    /// Shows the queues of its controllers from now on. Only the first is used.
    pub fn set_queues(&self, queues: Arc<dyn Queues>) {
        let _ = self.0.queues.set(queues);
    }

    /// The queues of its controllers.
    #[must_use]
    pub fn queues(&self) -> Option<&Arc<dyn Queues>> {
        self.0.queues.get()
    }

    /// Records requests from now on. Only the first audit log is used.
    pub fn set_auditor(&self, auditor: Arc<Auditor>) {
        let _ = self.0.auditor.set(auditor);
    }

    #[must_use]
    pub fn auditor(&self) -> Option<&Arc<Auditor>> {
        self.0.auditor.get()
    }

    /// Serves a listener until `shutdown`; see [`listener::run`]. Boxed, so that connections are compiled in this crate and not
    /// where the future is polled.
    pub fn serve(
        &self,
        listener: TcpListener,
        tls: Option<Tls>,
        shutdown: Shutdown,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (limits, metrics) = (Arc::clone(self.limits()), Arc::clone(self.metrics()));
        Box::pin(listener::run(listener, tls, self.clone(), limits, metrics, shutdown))
    }
}

impl Handler for Server {
    fn handle(&self, request: Request<RequestBody>, peer: &Arc<Peer>) -> ResponseFuture {
        let (server, peer) = (self.clone(), Arc::clone(peer));
        Box::pin(async move { server.call(request, peer).await })
    }

    fn drain(&self) -> &Arc<Drain> {
        &self.0.drain
    }

    fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn disturbances(&self) -> Option<&Arc<dyn Disturbances>> {
        self.0.lab.get().map(|lab| &lab.disturbances)
    }

    fn stalled(&self) {
        self.0.metrics.stalled.fetch_add(1, Ordering::Relaxed);
        self.0.metrics.refused("response_stall_timeout_seconds");
    }
}
