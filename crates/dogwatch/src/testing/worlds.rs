//! Worlds and checkpoints of a test server.
//!
//! ```
//! # tokio_test::block_on(async {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use kube::api::{ListParams, PostParams};
//!
//! // Prepared once…
//! let server = dogwatch::testing::Server::start().await;
//! let mut wanted = ConfigMap::default();
//! wanted.metadata.name = Some("prepared".into());
//! Api::default_namespaced(server.client()).create(&PostParams::default(), &wanted).await.unwrap();
//!
//! // …and forked for each test.
//! let world = server.fork().await;
//! let maps: Api<ConfigMap> = Api::default_namespaced(world.client());
//! let checkpoint = world.checkpoint().await;
//! maps.delete("prepared", &Default::default()).await.unwrap();
//! world.rewind(&checkpoint).await;
//! assert!(maps.get("prepared").await.is_ok());
//! # });
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use registry::Registry;
use serde_json::{Value, json};
use server::worlds::MAIN;

use super::Server;
use super::lab::{API, create, request};

/// Makes the names of worlds and checkpoints.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A world beside a test server; deleted when dropped.
pub struct World {
    name: String,
    server: server::Server,
    /// A client of `main`, where the objects of worlds are.
    main: kube::Client,
}

/// A state of a world that can be returned to. Kept until the server stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    name: String,
    /// The revision of the state.
    pub revision: u64,
}

impl Server {
    /// A world that begins as this server is now.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn fork(&self) -> World {
        self.world(json!({"from": {"world": MAIN}})).await
    }

    /// A world with this `spec`.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn world(&self, spec: Value) -> World {
        self.world_in(&self.client(), spec).await
    }

    async fn world_in(&self, main: &kube::Client, spec: Value) -> World {
        let name = next_name("world");
        create(main, "worlds", "World", &name, spec).await;
        let server = self.cluster.worlds().and_then(|worlds| worlds.server(&name));
        World { name, server: server.expect("the world was created"), main: main.clone() }
    }

    /// Keeps the state of now.
    ///
    /// # Panics
    /// If it cannot be kept.
    pub async fn checkpoint(&self) -> Checkpoint {
        checkpoint(&self.client(), MAIN).await
    }

    /// Makes all objects equal to those of a checkpoint.
    ///
    /// # Panics
    /// If that is not possible.
    pub async fn rewind(&self, checkpoint: &Checkpoint) {
        rewind(&self.client(), checkpoint).await;
    }
}

impl World {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client in the group `system:masters`.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_as("dogwatch-admin", &["system:masters"])
    }

    /// As [`Server::client_as`].
    #[must_use]
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        kube::Client::new(self.server.in_process(super::user_of(user, groups)), "default")
    }

    /// As [`Server::checkpoint`].
    ///
    /// # Panics
    /// If it cannot be kept.
    pub async fn checkpoint(&self) -> Checkpoint {
        checkpoint(&self.main, &self.name).await
    }

    /// As [`Server::rewind`].
    ///
    /// # Panics
    /// If that is not possible.
    pub async fn rewind(&self, checkpoint: &Checkpoint) {
        rewind(&self.main, checkpoint).await;
    }

    /// The registry of the world.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        self.server.registry()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let (main, path) = (self.main.clone(), format!("{API}/worlds/{}", self.name));
        // Without a runtime the server has ended as well.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { request(&main, Method::DELETE, &path, &json!({})).await });
        }
    }
}

fn next_name(kind: &str) -> String {
    format!("{kind}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn checkpoint(main: &kube::Client, world: &str) -> Checkpoint {
    let name = next_name("checkpoint");
    let made = create(main, "checkpoints", "Checkpoint", &name, json!({"world": world})).await;
    let revision = made["status"]["revision"].as_str().and_then(|text| text.parse().ok());
    Checkpoint { name, revision: revision.expect("a checkpoint has a revision") }
}

async fn rewind(main: &kube::Client, checkpoint: &Checkpoint) {
    let path = format!("{API}/checkpoints/{}/rewind", checkpoint.name);
    let rewound = request(main, Method::POST, &path, &json!({})).await;
    rewound.unwrap_or_else(|error| panic!("the rewind failed: {error}"));
}
