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
//! Deployment ends in Running pods.

use std::sync::Arc;

use access::identity::User;
use machinery::clock::Clock;
use registry::Registry;
use server::limits::Limits;
use store::memory::MemoryStore;
use store::{Retention, Store};

pub use controllers::{Selection, Settings};

pub use crate::background::Controllers;
use crate::cluster::{Access, Cluster};

/// A running server; stops when dropped.
pub struct Server {
    // The first field is dropped first: controllers end before their server.
    controllers: Option<Controllers>,
    cluster: Cluster,
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
        let registry =
            registry::Settings { service_accounts: settings.keeps_service_accounts(), ..registry::Settings::default() };
        let mut server = Self::start_with(store, registry).await;
        server.controllers = Some(server.run_controllers(settings));
        server
    }

    async fn start_with(store: Arc<dyn Store>, settings: registry::Settings) -> Self {
        let access = Access { anonymous: true, ..Access::default() };
        match Cluster::start(store, &access, Limits::default(), settings, Clock::system()).await {
            Ok(mut cluster) => {
                cluster.maintain_quotas();
                Server { controllers: None, cluster }
            }
            Err(failure) => panic!("the test server did not start: {failure}"),
        }
    }

    /// Runs controllers against this server until they are stopped or dropped; for tests that restart them.
    #[must_use]
    pub fn run_controllers(&self, settings: Settings) -> Controllers {
        Controllers::start(&self.cluster, settings)
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

    /// A client of the given user and groups.
    #[must_use]
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let user = User { name: user.to_owned(), groups, ..User::default() }.authenticated();
        let service = self.cluster.server().in_process(user);
        kube::Client::new(service, "default")
    }

    /// The registry of the server.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        self.cluster.registry()
    }
}
