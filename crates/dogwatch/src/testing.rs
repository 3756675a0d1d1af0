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

use std::sync::Arc;

use registry::Registry;
use server::identity::User;
use server::limits::Limits;
use store::memory::MemoryStore;
use store::{Retention, Store};

use crate::cluster::{Access, Cluster};

/// A running server that lives as long as this value.
pub struct Server {
    cluster: Cluster,
}

impl Server {
    /// Starts on an empty store in memory.
    ///
    /// # Panics
    /// If the server cannot be started, which a test could do nothing about.
    pub async fn start() -> Self {
        Self::start_on(Arc::new(MemoryStore::new(Retention::default()))).await
    }

    /// Starts on a store of the caller's.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub async fn start_on(store: Arc<dyn Store>) -> Self {
        let access = Access { anonymous: true, ..Access::default() };
        match Cluster::start(store, &access, Limits::default()).await {
            Ok(mut cluster) => {
                cluster.keep_quotas();
                Server { cluster }
            }
            Err(failure) => panic!("the test server did not start: {failure}"),
        }
    }

    /// A client that is `system:masters`.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_as("dogwatch-admin", &["system:masters"])
    }

    /// A client that is somebody else.
    #[must_use]
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let user = User { name: user.to_owned(), groups, ..User::default() }.authenticated();
        let service = self.cluster.server().in_process(user);
        kube::Client::new(service, "default")
    }

    /// What the server is made of below HTTP.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        self.cluster.registry()
    }
}
