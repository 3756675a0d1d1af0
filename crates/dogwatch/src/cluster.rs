//! Store, registry and HTTP service put together, wherever requests come from.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use registry::{Registry, Settings};
use server::authentication::Authenticator;
use server::authentication::accounts::AccountTokens;
use server::authentication::tokens::Tokens;
use server::authorization::AuthenticatedOnly;
use server::limits::Limits;
use server::service::{Config, Server};
use server::webhooks::HttpsWebhooks;
use store::Store;
use tokio::task::JoinSet;

use crate::failure::Failure;

/// How often a server that is starting asks itself whether it is ready.
const READY_POLL: Duration = Duration::from_millis(1);

/// Who may come in.
#[derive(Clone, Default)]
pub struct Access {
    /// Bearer tokens and whom they stand for.
    pub token_file: Option<PathBuf>,
    /// Whether a request without credentials is `system:anonymous` instead of refused.
    pub anonymous: bool,
    /// What signs the tokens of service accounts, as PEM; none makes one that lives as long as the server.
    pub accounts_key_pem: Option<String>,
}

/// A running API server without its listeners.
pub struct Cluster {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    server: Server,
    /// What runs beside requests; ends with the cluster.
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
                Failure::new(error).hint("lines are `token,user,uid` with an optional `,\"group1,group2\"`")
            })?,
            None => Tokens::default(),
        };
        let settings = Settings { webhooks: Some(Arc::new(HttpsWebhooks)), ..settings };
        let registry = Registry::start(Arc::clone(&store), settings)
            .await
            .map_err(|error| Failure::new(format!("the store could not be loaded: {error}")))?;
        let mut metrics = prometheus_client::registry::Registry::default();
        metrics.register_collector(Box::new(registry::metrics::CacheMetrics::new(Arc::clone(registry.cache()))));
        let key = access.accounts_key_pem.clone().map_or_else(server::certs::make_key, Ok).map_err(Failure::new)?;
        let accounts = AccountTokens::new(Arc::clone(&registry), &key).map_err(Failure::new)?;
        let config = Config {
            limits,
            authenticator: Authenticator { tokens, accounts: Some(accounts), anonymous: access.anonymous },
            authorizer: Arc::new(AuthenticatedOnly),
            metrics,
        };
        let server = Server::new(Arc::clone(&registry), config);
        let mut tasks = JoinSet::new();
        tasks.spawn(registry::expiry::expire_events(Arc::clone(&registry)));
        Ok(Cluster { store, registry, server, tasks })
    }

    /// Counts what is there for the quotas, as a controller would: without it, only quotas that somebody else counts for
    /// have a say.
    pub fn keep_quotas(&mut self) {
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

    /// Waits until every readiness check passes.
    pub async fn wait_until_ready(&self) {
        while self.registry.ready().await.iter().any(|(_, check)| check.is_err()) {
            tokio::time::sleep(READY_POLL).await;
        }
    }

    /// Ends what runs beside requests and closes the store; nothing acknowledged is lost.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        self.store.close().await;
    }
}
