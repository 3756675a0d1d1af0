//! An API server without listeners: store, registry and HTTP service.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::authorizer::AuthenticatedOnly;
use machinery::clock::Clock;
use registry::{Registry, Settings};
use server::authentication::Authenticator;
use server::authentication::accounts::AccountTokens;
use server::authentication::tokens::Tokens;
use server::limits::Limits;
use server::metrics::Metrics;
use server::service::{Config, Server};
use server::webhooks::{HttpsWebhooks, WebhookSettings};
use store::Store;
use tokio::task::JoinSet;

use crate::failure::Failure;

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
    /// How webhooks are called.
    pub webhooks: WebhookSettings,
}

/// A running API server without its listeners.
pub struct Cluster {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    server: Server,
    /// Background tasks; aborted with the cluster.
    tasks: JoinSet<()>,
}

impl Cluster {
    pub async fn start(
        store: Arc<dyn Store>,
        access: &Access,
        limits: Limits,
        settings: Settings,
        clock: Clock,
    ) -> Result<Self, Failure> {
        let tokens = match &access.token_file {
            Some(path) => Tokens::read(path).map_err(|error| {
                Failure::new(error).hint("lines are `token,user,uid` with an optional `,\"group1,group2\"`")
            })?,
            None => Tokens::default(),
        };
        let server_metrics = Arc::new(Metrics::new(&limits));
        let webhooks = HttpsWebhooks::new(&limits, &server_metrics, access.webhooks.clone());
        let settings = Settings {
            webhooks: Some(Arc::new(webhooks.clone())),
            hooks: Some(Arc::new(webhooks.clone())),
            clock: clock.clone(),
            ..settings
        };
        let registry = Registry::start(Arc::clone(&store), settings)
            .await
            .map_err(|error| Failure::new(format!("the store could not be loaded: {error}")))?;
        webhooks.read_services_from(&registry);
        let mut metrics = prometheus_client::registry::Registry::default();
        metrics.register_collector(Box::new(registry::metrics::CacheMetrics::new(Arc::clone(registry.cache()))));
        let key = access.accounts_key_pem.clone().map_or_else(server::certs::make_key, Ok).map_err(Failure::new)?;
        let accounts = AccountTokens::new(Arc::clone(&registry), &key).map_err(Failure::new)?;
        let config = Config {
            limits,
            authenticator: Authenticator { tokens, accounts: Some(accounts), anonymous: access.anonymous },
            authorizer: Arc::new(AuthenticatedOnly),
            metrics,
            server_metrics,
            clock,
        };
        let server = Server::new(Arc::clone(&registry), config);
        webhooks.reach_own(&server);
        let mut tasks = JoinSet::new();
        tasks.spawn(registry::expiry::expire_events(Arc::clone(&registry)));
        Ok(Cluster { store, registry, server, tasks })
    }

    /// Keeps the usage of quotas up to date, as a controller would. Without it, only quotas whose usage another program
    /// maintains are enforced.
    pub fn maintain_quotas(&mut self) {
        self.tasks.spawn(registry::reserve::quota::recount::keep_counts(Arc::clone(&self.registry)));
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

    /// Stops the background tasks and closes the store; no acknowledged write is lost.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        self.store.close().await;
    }
}
