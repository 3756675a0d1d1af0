//! The destination of events, and the retries of a write.

use std::fmt::Debug;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Error;

/// Attempts for one event, and the time between them.
const ATTEMPTS: u32 = 12;
const BETWEEN: Duration = Duration::from_secs(10);

/// Writes events.
pub trait EventSink<E>: Send + Sync + 'static {
    /// Creates an event.
    fn create(&self, namespace: String, event: E) -> BoxFuture<'_, Result<E, Error>>;
    /// Changes the event of this name, so that it stands for `event` too.
    fn patch(&self, namespace: String, event: E, name: String, patch: Value) -> BoxFuture<'_, Result<E, Error>>;
}

/// Writes events to an API server.
pub struct ApiEvents {
    client: Client,
}

impl ApiEvents {
    /// A sink that uses this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl<E> EventSink<E> for ApiEvents
where
    E: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static,
{
    fn create(&self, namespace: String, event: E) -> BoxFuture<'_, Result<E, Error>> {
        let api: Api<E> = Api::namespaced(self.client.clone(), &namespace);
        async move { Ok(api.create(&PostParams::default(), &event).await?) }.boxed()
    }

    fn patch(&self, namespace: String, _: E, name: String, patch: Value) -> BoxFuture<'_, Result<E, Error>> {
        let api: Api<E> = Api::namespaced(self.client.clone(), &namespace);
        async move { Ok(api.patch(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?) }.boxed()
    }
}

/// One write.
#[derive(Clone)]
pub(super) enum Write<E> {
    Create(E),
    /// Patch the event of this name; create this one if it is gone.
    Patch {
        name: String,
        patch: Value,
        or_create: E,
    },
}

/// Writes one event, with retries while the server cannot be reached. A refusal is not retried (EV-6).
pub(super) async fn deliver<E: Clone + 'static>(
    sink: &dyn EventSink<E>,
    namespace: String,
    write: Write<E>,
) -> Option<E> {
    for attempt in 0..ATTEMPTS {
        let result = match write.clone() {
            Write::Create(event) => sink.create(namespace.clone(), event).await,
            Write::Patch { name, patch, or_create } => {
                match sink.patch(namespace.clone(), or_create.clone(), name, patch).await {
                    // Events expire on the server.
                    Err(error) if error.is_not_found() => sink.create(namespace.clone(), or_create).await,
                    other => other,
                }
            }
        };
        match result {
            Ok(event) => return Some(event),
            Err(error @ Error::Transport { .. }) => {
                tracing::debug!(%error, attempt, "cannot write an event");
                // The first wait is random, so that clients of one server do not all return at the same moment.
                let share = if attempt == 0 { rand::random::<f64>() } else { 1.0 };
                tokio::time::sleep(BETWEEN.mul_f64(share)).await;
            }
            Err(error) => {
                tracing::debug!(%error, "the server refused an event");
                return None;
            }
        }
    }
    tracing::warn!("gave up writing an event");
    None
}
