//! Making the nodes that were asked for, and removing those that no longer are.

use std::time::Duration;

use client::Key;
use client::store::Store;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;

use super::machines;
use crate::context::Context;
use crate::requests::{Form, send};

/// Nodes that register at the same time.
const AT_ONCE: usize = 16;
/// NA-4: the longest wait after a failure.
const RETRY_MAX: Duration = Duration::from_secs(7);

/// Brings the nodes that are numbered here to the wanted count. Nodes of other names are nobody's business here.
pub(super) async fn register(context: Context, known: Store<Node>) {
    let wanted = context.settings.nodes;
    let surplus: Vec<String> = known
        .snapshot()
        .iter()
        .filter(|node| machines::is_simulated(node))
        .filter_map(|node| node.metadata.name.clone())
        .filter(|name| machines::number_of(name).is_some_and(|number| number >= wanted))
        .collect();
    let client = &context.clients.nodes;
    for name in surplus {
        let deleted =
            send(client, "DELETE", &format!("/api/v1/nodes/{name}"), Form::Json, &serde_json::json!({})).await;
        if let Err(error) = deleted {
            tracing::warn!(name, %error, "a node that is not wanted any more was not removed");
        }
    }
    let missing = (0..wanted).filter(|number| known.get(&Key::new(None, &machines::name_of(*number))).is_none());
    futures::stream::iter(missing).for_each_concurrent(AT_ONCE, |number| register_one(&context, number)).await;
}

async fn register_one(context: &Context, number: usize) {
    let mut wait = Duration::from_millis(200);
    loop {
        let node = machines::new_node(number, &context.settings.stages.nodes, context.clock.now());
        match send(&context.clients.nodes, "POST", "/api/v1/nodes", Form::Json, &node).await {
            Ok(_) => return,
            Err(error) if error.is_already_exists() => return,
            Err(error) => {
                tracing::warn!(node = machines::name_of(number), %error, "a node could not register");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY_MAX);
            }
        }
    }
}
