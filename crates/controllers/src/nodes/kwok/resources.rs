//! KWOK's kinds as custom resources: read again and again while their definitions exist.
//!
//! They change seldom and are few, so one list of each kind every few seconds does instead of twelve watches.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{API_VERSION, KINDS, Kwok};
use crate::requests::{Form, request};

/// Interval of reading.
const EVERY: Duration = Duration::from_secs(2);

/// Reads until the stop, and sends what changed.
#[expect(
    clippy::disallowed_methods,
    reason = "it reads again what others may have written, also while the clock of the world is stopped"
)]
pub(in crate::nodes) async fn follow(client: Client, stop: CancellationToken, found: watch::Sender<Arc<Kwok>>) {
    let mut known = Vec::new();
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        let Some(Some(objects)) = stop.run_until_cancelled(read(&client)).await else { continue };
        let versions: Vec<String> = objects
            .iter()
            .map(|object| format!("{}/{}", object["kind"], object["metadata"]["resourceVersion"]))
            .collect();
        if versions == known {
            continue;
        }
        known = versions;
        let mut kwok = Kwok::default();
        for object in &objects {
            if let Err(why) = kwok.add_from_server(object) {
                tracing::warn!(why, "ignoring a custom resource");
            }
        }
        found.send_replace(Arc::new(kwok));
    }
}

/// All objects; none if the server did not answer.
async fn read(client: &Client) -> Option<Vec<Value>> {
    let group = format!("/apis/{API_VERSION}");
    let served: Value = match request(client, "GET", &group, Form::Json, &Value::Null).await {
        Ok(served) => served,
        Err(error) if error.is_not_found() => return Some(Vec::new()),
        Err(_) => return None,
    };
    let mut objects = Vec::new();
    for resource in served["resources"].as_array().into_iter().flatten() {
        let name = resource["name"].as_str().unwrap_or_default();
        let Some((kind, _)) = KINDS.iter().find(|(kind, path)| *path == name && resource["kind"] == *kind) else {
            continue;
        };
        let list: Value = request(client, "GET", &format!("{group}/{name}"), Form::Json, &Value::Null).await.ok()?;
        for item in list["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            item["kind"] = (*kind).into();
            objects.push(item);
        }
    }
    Some(objects)
}
