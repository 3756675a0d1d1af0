//! Events that nodes report: each is written as the node that reports it.

use std::sync::Arc;

use client::Error;
use client::events::EventSink;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use serde_json::{Value, json};

use crate::requests::{Form, request_as};

/// Writes events as the node in their source.
pub(super) struct NodeEvents {
    client: Client,
}

impl NodeEvents {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }
}

fn node_of(event: &Event) -> Arc<str> {
    event.source.as_ref().and_then(|source| source.host.as_deref()).unwrap_or_default().into()
}

impl EventSink<Event> for NodeEvents {
    fn create(&self, namespace: String, event: Event) -> BoxFuture<'_, Result<Event, Error>> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        async move { request_as(&node_of(&event), &self.client, "POST", &path, Form::Json, &json!(event)).await }
            .boxed()
    }

    fn patch(
        &self,
        namespace: String,
        event: Event,
        name: String,
        patch: Value,
    ) -> BoxFuture<'_, Result<Event, Error>> {
        let path = format!("/api/v1/namespaces/{namespace}/events/{name}");
        async move { request_as(&node_of(&event), &self.client, "PATCH", &path, Form::Strategic, &patch).await }.boxed()
    }
}
