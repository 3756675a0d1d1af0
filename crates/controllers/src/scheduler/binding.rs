//! The write of a binding, after the claims of the pod are bound (SC-9).

use std::sync::Arc;
use std::time::Duration;

use client::Key;
use clock::WorldClock;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Client, Resource as _};
use serde_json::json;

use super::claims::Claims;
use crate::requests::{Form, pod_path, send};

/// Time for the binding of claims that wait for a pod.
const CLAIMS_WITHIN: Duration = Duration::from_secs(600);

/// A binding under way.
pub(super) struct Binding {
    pub(super) client: Client,
    pub(super) claims: Claims,
    pub(super) clock: WorldClock,
    pub(super) pod: Arc<Pod>,
    pub(super) node: String,
    /// Claims that need the name of the node first.
    pub(super) waiting: Vec<Key>,
}

impl Binding {
    pub(super) async fn write(self, key: Key) -> Bound {
        let result = match self.settle_claims().await {
            Ok(()) => self.bind().await,
            Err(error) => Err(error),
        };
        Bound { key, settled: !self.waiting.is_empty(), pod: self.pod, node: self.node, result }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "it looks again whether others have bound the claims, also while the clock of the world is stopped"
    )]
    async fn settle_claims(&self) -> Result<(), client::Error> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        for key in &self.waiting {
            let claims = PersistentVolumeClaim::url_path(&(), Some(key.namespace().unwrap_or_default()));
            let path = format!("{claims}/{}", key.name());
            send(&self.client, "PATCH", &path, Form::Merge, &Claims::selected(&self.node)).await?;
        }
        let deadline = self.clock.instant() + CLAIMS_WITHIN;
        while !self.claims.all_bound(&self.waiting) {
            if self.clock.instant() >= deadline {
                return Err(client::Error::Config(
                    "timed out waiting for the claims of the pod to be bound".to_owned(),
                ));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// SC-9.
    async fn bind(&self) -> Result<(), client::Error> {
        let meta = &self.pod.metadata;
        let body = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"kind": "Node", "name": self.node},
        });
        let path = format!("{}/binding", pod_path(&self.pod));
        send(&self.client, "POST", &path, Form::Json, &body).await?;
        Ok(())
    }
}

/// The result of a binding.
pub(super) struct Bound {
    pub(super) key: Key,
    pub(super) pod: Arc<Pod>,
    pub(super) node: String,
    pub(super) settled: bool,
    pub(super) result: Result<(), client::Error>,
}
