//! An API server without listeners: store, registry and HTTP service.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clock::WorldClock;
use controllers::Queues;
use controllers::metrics::WorkQueues;
use lab::worlds::{Address, Worlds};
use machinery::clock::Clock;
use registry::{Registry, Settings};
use server::aggregation::Aggregator;
use server::audit::Auditor;
use server::audit::metrics::AuditCollector;
use server::authentication::tokens::Tokens;
use server::authorization::Inspection;
use server::certs::front_proxy::FrontProxyClient;
use server::limits::Limits;
use server::metrics::Metrics;
use server::page::Page;
use server::service::{Config, Server};
use server::webhooks::{HttpsWebhooks, WebhookSettings};
use store::Store;
use tokio::task::JoinSet;

use crate::authentication::{Authentication, Reloading};
use crate::authorization::Authorization;
use crate::failure::Failure;
use crate::worlds::WorldMaker;

/// Pause after a failed readiness check.
const READY_RETRY: Duration = Duration::from_millis(100);

/// Authentication settings.
#[derive(Clone, Default)]
pub struct Access {
    /// File of bearer tokens and their users.
    pub token_file: Option<PathBuf>,
    /// Whether a request without credentials is `system:anonymous` instead of refused.
    pub anonymous: bool,
    /// The key that signs the tokens of service accounts, as PEM; none generates one for the life of the server.
    pub accounts_key_pem: Option<String>,
    /// Records requests.
    pub auditor: Option<Arc<Auditor>>,
    /// How webhooks are called.
    pub webhooks: WebhookSettings,
    /// The certificate by which aggregated servers recognise this one; none generates one for the life of the server.
    pub front_proxy: Option<FrontProxyClient>,
    /// How users are authenticated beside that.
    pub authentication: Authentication,
    /// Which authorizers decide.
    pub authorization: Authorization,
    /// Writes whose admission is traced; the last ones are kept. Zero traces only those that request it.
    pub traced_writes: usize,
    /// Whether refusals of admission name everything that is known of them.
    pub explain_refusals: bool,
    /// The web page of the server.
    pub page: Option<Arc<dyn Page>>,
    /// The server has a lab that keeps so many requests.
    pub lab: Option<usize>,
    /// What the lab shows of a recording, whose changes are played to the server.
    pub recorded: Option<Arc<lab::Rows>>,
}

/// A running API server without its listeners.
pub struct Cluster {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    server: Server,
    /// The time that the cluster believes in.
    clock: WorldClock,
    /// None without a lab.
    worlds: Option<Arc<Worlds>>,
    /// What the controllers of worlds do, if it was said.
    world_controllers: Arc<OnceLock<controllers::Settings>>,
    /// The authority of the certificate with which the server calls aggregated servers, as PEM.
    front_proxy_ca_pem: String,
    /// Whether requests without credentials are allowed where no file decides it. None if they never are.
    anonymous: Option<bool>,
    /// What the faults of the lab are expected to do.
    expectations: Option<lab::Expectations>,
    /// The work queues of its controllers.
    queues: Queues,
    /// Background tasks; aborted with the cluster.
    tasks: JoinSet<()>,
}

impl Cluster {
    pub async fn start(
        store: Arc<dyn Store>,
        access: &Access,
        limits: Limits,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let tokens = match &access.token_file {
            Some(path) => Tokens::read(path).map_err(|error| {
                Failure::usage(error).hint("lines are `token,user,uid` with an optional `,\"group1,group2\"`")
            })?,
            None => Tokens::default(),
        };
        // The lab can stop and move the time of the cluster; certificates always go by the machine's.
        let clock = if access.lab.is_some() { WorldClock::adjustable() } else { WorldClock::system() };
        let now = Clock::system().now();
        let server_metrics = Arc::new(Metrics::new(&limits));
        let webhooks = HttpsWebhooks::new(&limits, &server_metrics, access.webhooks.clone());
        let authorization = access.authorization.build()?;
        let lab = access.lab.map(|requests_max| lab::Starting::new(requests_max, Clock::system()));
        if let (Some(lab), Some(rows)) = (&lab, &access.recorded) {
            lab.restore(Arc::clone(rows));
        }
        let world_settings = Settings { kinds: lab::kinds::of_world(&settings.kinds), ..settings.clone() };
        let kinds = if lab.is_some() { lab::kinds::beside(&settings.kinds) } else { settings.kinds };
        let mut observers = settings.observers;
        observers.extend(lab.as_ref().map(lab::Starting::observer));
        let settings = Settings {
            kinds,
            observers,
            authorizer: Arc::clone(&authorization.authorizer),
            roles: Arc::clone(&authorization.roles),
            node_graph: authorization.graph.clone(),
            webhooks: Some(Arc::new(webhooks.clone())),
            hooks: Some(Arc::new(webhooks.clone())),
            clock: clock.reading(),
            ..settings
        };
        let webhook_metrics = settings.webhook_metrics.clone();
        let policy_metrics = settings.policy_metrics.clone();
        let pod_security_metrics = settings.pod_security_metrics.clone();
        let registry = Registry::start(Arc::clone(&store), settings)
            .await
            .map_err(|error| Failure::new(format!("the store could not be loaded: {error}")))?;
        webhooks.read_services_from(&registry);
        let mut metrics = prometheus_client::registry::Registry::default();
        metrics.register_collector(Box::new(registry::metrics::CacheMetrics::new(Arc::clone(registry.cache()))));
        metrics.register_collector(Box::new(authorization.counts));
        let queues = Queues::default();
        metrics.register_collector(Box::new(WorkQueues(queues.clone())));
        webhook_metrics.register(&mut metrics);
        policy_metrics.register(&mut metrics);
        pod_security_metrics.register(&mut metrics);
        if let Some(auditor) = &access.auditor {
            metrics.register_collector(Box::new(AuditCollector(Arc::clone(auditor.metrics()))));
        }
        let key = access.accounts_key_pem.clone().map_or_else(server::certs::make_key, Ok).map_err(Failure::new)?;
        let mut authenticator = access.authentication.build(
            &registry,
            tokens,
            &key,
            access.anonymous,
            access.authorization.always_allows(),
        )?;
        authenticator.page.clone_from(&access.page);
        let config = Config {
            limits,
            authenticator,
            authorizer: authorization.authorizer,
            inspection: Inspection {
                roles: Some(authorization.roles),
                recorder: Some(Arc::default()),
                explain_forbidden: access.authorization.explain_forbidden,
                recheck_watches: access.authorization.recheck_watches,
            },
            traced_writes: access.traced_writes,
            explain_refusals: access.explain_refusals,
            metrics,
            server_metrics,
            clock: clock.reading(),
            certificates_clock: Clock::system(),
        };
        let server = Server::new(Arc::clone(&registry), config);
        let mut tasks = JoinSet::new();
        let (mut worlds, world_controllers) = (None, Arc::default());
        let mut expectations = None;
        if let Some(lab) = lab {
            let maker = WorldMaker {
                main: server.downgrade(),
                access: access.clone(),
                settings: world_settings,
                controllers: Arc::clone(&world_controllers),
            };
            let started = lab::start(lab, &registry, clock.clone(), server.downgrade(), Box::new(maker)).await;
            let started = started.map_err(Failure::new)?;
            server.set_lab(started.lab);
            expectations = Some(started.expectations);
            server.set_worlds(Arc::clone(&started.worlds) as _);
            worlds = Some(started.worlds);
        }
        if let Some(auditor) = &access.auditor {
            server.set_auditor(Arc::clone(auditor));
        }
        webhooks.reach_own(&server);
        let front_proxy = match &access.front_proxy {
            Some(front_proxy) => front_proxy.clone(),
            None => FrontProxyClient::in_memory(now).map_err(Failure::new)?,
        };
        let aggregator = Aggregator::new(&registry, webhooks.services(), Some(&front_proxy));
        server.set_aggregator(Arc::clone(&aggregator));
        tasks.spawn(registry::expiry::expire_events(Arc::clone(&registry), clock.named("events")));
        tasks.spawn(aggregator.check_servers());
        if let Some(reloading) = authorization.reloading {
            tasks.spawn(reloading.follow());
        }
        let anonymous = (!access.authorization.always_allows()).then_some(access.anonymous);
        Ok(Cluster {
            store,
            registry,
            server,
            clock,
            worlds,
            world_controllers,
            front_proxy_ca_pem: front_proxy.ca_pem,
            anonymous,
            expectations,
            queues,
            tasks,
        })
    }

    /// The time that the cluster believes in, for its controllers.
    pub(crate) fn clock(&self) -> &WorldClock {
        &self.clock
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Lists the work queues of its controllers, for its metrics and its lab.
    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Keeps the usage of quotas up to date, as a controller would. Without it, only quotas whose usage another program
    /// maintains are enforced.
    pub fn maintain_quotas(&mut self) {
        self.tasks.spawn(registry::reserve::quota::recount::keep_counts(Arc::clone(&self.registry)));
    }

    /// Names the address by which clients reach this server and its worlds, and what the controllers of worlds do.
    pub fn set_worlds(&self, address: Option<Address>, controllers: controllers::Settings) {
        let _ = self.world_controllers.set(controllers);
        if let (Some(worlds), Some(address)) = (&self.worlds, address) {
            worlds.set_address(address);
        }
    }

    /// The worlds beside this one; none without a lab.
    #[must_use]
    pub fn worlds(&self) -> Option<&Arc<Worlds>> {
        self.worlds.as_ref()
    }

    /// Follows the files of authentication, and publishes the authorities for extension servers.
    pub fn follow_files(&mut self, reloading: Reloading) {
        self.tasks.spawn(reloading.run());
    }

    /// A sentence for each fault of the lab that did not do what is expected of it.
    #[must_use]
    pub fn unmet_expectations(&self) -> Vec<String> {
        self.expectations.as_ref().map(lab::Expectations::unmet).unwrap_or_default()
    }

    /// Whether requests without credentials are allowed where no file decides it. None if they never are.
    pub(crate) fn anonymous(&self) -> Option<bool> {
        self.anonymous
    }

    /// The authority that aggregated servers must trust, as PEM.
    #[must_use]
    pub fn front_proxy_ca_pem(&self) -> &str {
        &self.front_proxy_ca_pem
    }

    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Waits until every readiness check passes. The checks themselves wait for the cache; only those that fail, such as
    /// those of an etcd that does not respond, are repeated.
    pub async fn wait_until_ready(&self) {
        while self.registry.ready().await.iter().any(|(_, check)| check.is_err()) {
            tokio::time::sleep(READY_RETRY).await;
        }
    }

    /// Stops the background tasks, writes the rest of the audit log and closes the store; no acknowledged write is lost.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        if let Some(auditor) = self.server.auditor() {
            auditor.close().await;
        }
        self.store.close().await;
    }
}
