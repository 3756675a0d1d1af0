//! Creating the configured number of nodes, and removing the rest.

use std::sync::Arc;
use std::time::Duration;

use client::Key;
use client::store::Store;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;

use super::machines;
use crate::context::Context;
use crate::identities::Identity;
use crate::requests::{Form, send, send_as};

/// Nodes that register at the same time.
const AT_ONCE: usize = 16;
/// NA-4: the longest wait after a failure.
const RETRY_MAX: Duration = Duration::from_secs(7);

/// Creates or deletes numbered nodes until their number is the wanted one. Nodes of other names are left alone.
pub(super) async fn register(context: Context, known: Store<Node>) {
    let wanted = context.settings.nodes;
    let surplus: Vec<String> = known
        .snapshot()
        .iter()
        .filter(|node| machines::is_simulated(node))
        .filter_map(|node| node.metadata.name.clone())
        .filter(|name| machines::number_of(name).is_some_and(|number| number >= wanted))
        .collect();
    // A node may not delete itself: that is done by its controller.
    let client = &context.clients.get(Identity::Account("node-controller"));
    for name in surplus {
        let deleted =
            send(client, "DELETE", &format!("/api/v1/nodes/{name}"), Form::Json, &serde_json::json!({})).await;
        if let Err(error) = deleted {
            tracing::warn!(name, %error, "cannot remove an excess node");
        }
    }
    let missing = (0..wanted).filter(|number| known.get(&Key::new(None, &machines::name_of(*number))).is_none());
    futures::stream::iter(missing).for_each_concurrent(AT_ONCE, |number| register_one(&context, number)).await;
}

async fn register_one(context: &Context, number: usize) {
    let name: Arc<str> = machines::name_of(number).into();
    let mut wait = Duration::from_millis(200);
    loop {
        let node = machines::new_node(number, &context.settings.stages.nodes, context.clock.now());
        match send_as(&name, &context.client, "POST", "/api/v1/nodes", Form::Json, &node).await {
            Ok(_) => return,
            Err(error) if error.is_already_exists() => return,
            Err(error) => {
                tracing::warn!(node = &*name, %error, "a node could not register");
                context.clock.sleep(wait).await;
                wait = (wait * 2).min(RETRY_MAX);
            }
        }
    }
}
