//! A server for a test: in the same process, with no socket and nothing on disk.
//!
//! ```
//! # tokio_test::block_on(async {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use kube::api::PostParams;
//!
//! let server = dogwatch::testing::Server::start().await;
//! let config_maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
//! let mut wanted = ConfigMap::default();
//! wanted.metadata.name = Some("greeting".into());
//! wanted.data = Some([("hello".to_owned(), "world".to_owned())].into());
//! let made = config_maps.create(&PostParams::default(), &wanted).await.unwrap();
//! assert!(made.metadata.resource_version.is_some());
//! assert_eq!(config_maps.get("greeting").await.unwrap().data, wanted.data);
//! # });
//! ```
//!
//! [`Server::start`] is the API alone. [`Server::with_controllers`] also runs controllers, a scheduler and nodes, so that a
//! Deployment ends in Running pods. [`Server::fork`] makes a world beside a server that was prepared, [`Server::checkpoint`] and
//! [`Server::rewind`] return to a state. [`Server::fault`], [`Server::settle`], [`Server::clock`] and [`Server::timeline`] are the lab, of
//! the server and of each [`World`].

mod lab;
mod worlds;

use std::sync::Arc;

use access::identity::User;
use machinery::clock;
use registry::Registry;
use server::audit::Auditor;
use server::audit::policy::Policy;
use server::authorization::recorder::Recorder;
use server::limits::Limits;
use store::memory::MemoryStore;
use store::{Retention, Store};

pub use controllers::{Selection, Settings};
pub use registry::PluginSelection;
pub use server::audit::sinks::stream::{Entry, Events};

pub use crate::authorization::Authorization;
use crate::background;
pub use crate::background::Controllers;
use crate::cluster::{Access, Cluster};
use crate::identities;
pub use lab::{Clock, Settlement};
pub use worlds::{Checkpoint, World};

/// A running server; stops when dropped.
pub struct Server {
    // The first field is dropped first: controllers end before their server.
    controllers: Option<Controllers>,
    cluster: Cluster,
    strict: Strict,
}

impl Server {
    /// Starts on an empty store in memory.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub async fn start() -> Self {
        Self::start_on(Arc::new(MemoryStore::new(Retention::default()))).await
    }

    /// Starts on the given store.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub async fn start_on(store: Arc<dyn Store>) -> Self {
        Self::start_with(store, registry::Settings::default()).await
    }

    /// Starts on an empty store in memory, with controllers.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub async fn with_controllers(settings: Settings) -> Self {
        Self::with_controllers_on(Arc::new(MemoryStore::new(Retention::default())), settings).await
    }

    /// Starts on the given store, with controllers.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub async fn with_controllers_on(store: Arc<dyn Store>, settings: Settings) -> Self {
        let registry = registry::Settings {
            kinds: background::kinds(&settings),
            service_accounts: settings.keeps_service_accounts(),
            ..registry::Settings::default()
        };
        let mut server = Self::start_with(store, registry).await;
        server.cluster.set_worlds(None, settings.clone());
        server.controllers = Some(server.run_controllers(settings));
        server
    }

    /// Starts on an empty store in memory, with these authorizers instead of roles alone.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub async fn with_authorization(authorization: Authorization) -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let access = Access { anonymous: true, authorization, ..Access::default() };
        Self::start_as(store, access, registry::Settings::default()).await
    }

    /// Starts on an empty store in memory, with these authorizers and this choice of admission plugins.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub async fn with_plugins(authorization: Authorization, plugins: PluginSelection) -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let access = Access { anonymous: true, authorization, ..Access::default() };
        Self::start_as(store, access, registry::Settings { plugins, ..registry::Settings::default() }).await
    }

    async fn start_with(store: Arc<dyn Store>, settings: registry::Settings) -> Self {
        let authorization = Authorization::default().with_nodes();
        let settings = registry::Settings { plugins: settings.plugins.clone().with("NodeRestriction"), ..settings };
        Self::start_as(store, Access { anonymous: true, authorization, ..Access::default() }, settings).await
    }

    async fn start_as(store: Arc<dyn Store>, access: Access, settings: registry::Settings) -> Self {
        let access = Access { lab: Some(::lab::REQUESTS_DEFAULT), ..access };
        match Cluster::start(store, &access, Limits::default(), settings).await {
            Ok(mut cluster) => {
                cluster.maintain_quotas();
                let recorder = cluster.server().inspection().recorder.clone();
                Server { controllers: None, cluster, strict: Strict(recorder) }
            }
            Err(failure) => panic!("the test server did not start: {failure}"),
        }
    }

    /// Runs controllers against this server until they are stopped or dropped; for tests that restart them. The test fails if
    /// the roles of a controller or node do not cover what it does, as with [`Server::strict_client_as`].
    #[must_use]
    pub fn run_controllers(&self, settings: Settings) -> Controllers {
        if let Some(recorder) = &self.strict.0 {
            identities::names(settings.nodes).iter().for_each(|name| recorder.keep_refusals(name));
        }
        let settings = Settings { queues: self.cluster.queues().clone(), ..settings };
        Controllers::start(self.cluster.server(), self.cluster.clock(), settings)
    }

    /// Stops the controllers, if there are any, then the server, and closes the store.
    pub async fn stop(self) {
        if let Some(controllers) = self.controllers {
            controllers.stop().await;
        }
        self.cluster.stop().await;
    }

    /// A client in the group `system:masters`.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_as("dogwatch-admin", &["system:masters"])
    }

    /// A client of the given user and groups, with the rights that roles give them. A user
    /// `system:serviceaccount:NAMESPACE:NAME` without groups has those of a service account.
    #[must_use]
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        kube::Client::new(self.cluster.server().in_process(user_of(user, groups)), "default")
    }

    /// As [`Server::client_as`]; the test fails if the user is refused anything: the server panics with the refusals when it
    /// is stopped or dropped.
    #[must_use]
    pub fn strict_client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        if let Some(recorder) = &self.strict.0 {
            recorder.keep_refusals(user);
        }
        self.client_as(user, groups)
    }

    /// The refusals of users with a strict client so far.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.strict.0.as_ref().map(|recorder| recorder.refusals()).unwrap_or_default()
    }

    /// The audit events of the server from now on: metadata of all requests, objects of writes, but never of secrets and
    /// tokens. An event is in the stream before its request is answered.
    #[must_use]
    pub fn audit(&self) -> Events {
        let server = self.cluster.server();
        if server.auditor().is_none() {
            server.set_auditor(Auditor::new(Policy::preset(), Vec::new(), Arc::default(), clock::Clock::system()));
        }
        // A server has had an auditor since the lines above.
        server.auditor().map(|auditor| auditor.streams().subscribe()).unwrap_or_default()
    }

    /// Puts a mark into the streams of audit events, so that a test can tell what happened before and after it.
    pub fn mark(&self, text: &str) {
        if let Some(auditor) = self.cluster.server().auditor() {
            auditor.streams().mark(text);
        }
    }

    /// The registry of the server.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        self.cluster.registry()
    }
}

/// The user of a client.
fn user_of(name: &str, groups: &[&str]) -> User {
    let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    if let (Some((namespace, _)), true) = (account, groups.is_empty()) {
        groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    }
    User { name: name.to_owned(), groups, ..User::default() }.authenticated()
}

/// Panics when dropped if a user with a strict client was refused something.
struct Strict(Option<Arc<Recorder>>);

impl Drop for Strict {
    fn drop(&mut self) {
        let refusals = self.0.as_ref().map(|recorder| recorder.refusals()).unwrap_or_default();
        // The first panic of a test tells more than this one.
        assert!(std::thread::panicking() || refusals.is_empty(), "refused: {}", refusals.join("\n"));
    }
}
