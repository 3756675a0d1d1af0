//! Writes into the status of faults what they did.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use machinery::json::{Value, json};
use machinery::media::PatchType;
use machinery::options::PatchOptions;
use registry::{Context, PatchBody, Registry, Target, WriteRequest};

use super::Faults;
use super::table::Fault;
use crate::kinds::GROUP;

/// Keeps the status of faults up to date for as long as the registry lives. Quick hits share a write.
pub(crate) async fn report(faults: Arc<Faults>, registry: Weak<Registry>) {
    let mut written: HashMap<String, Value> = HashMap::new();
    loop {
        faults.hit.notified().await;
        let Some(registry) = registry.upgrade() else { return };
        let all = faults.own();
        written.retain(|name, _| all.iter().any(|fault| fault.name == *name));
        for fault in all.iter() {
            let status = status(fault);
            if written.get(&fault.name) != Some(&status) && write(&registry, &fault.name, &status).await {
                written.insert(fault.name.clone(), status);
            }
        }
    }
}

fn status(fault: &Fault) -> Value {
    let (hits, is_exhausted) = {
        let count = fault.count.lock();
        (count.hits(), count.is_exhausted(&fault.spec.when))
    };
    let last_hit = fault.last_hit.lock().clone();
    let condition = |kind: &str, holds: bool| json!({"type": kind, "status": if holds { "True" } else { "False" }});
    let mut conditions = vec![condition("Exhausted", is_exhausted)];
    if let Some(expected) = fault.spec.expect.and_then(|expect| expect.hits) {
        conditions.push(condition("ExpectationMet", hits == expected));
    }
    let mut status = json!({"effect": fault.spec.effect.word(), "hits": hits, "conditions": conditions});
    if let Some(hit) = last_hit {
        let request = &hit.request;
        let mut shown = json!({"time": hit.at.to_string()});
        let resource = [&*request.resource, &*request.subresource].join("/");
        let parts = [
            ("verb", request.verb),
            ("group", &request.group),
            ("resource", resource.trim_end_matches('/')),
            ("namespace", &request.namespace),
            ("name", &request.name),
            ("user", &request.user),
            ("userAgent", &request.agent),
        ];
        for (member, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
            shown[member] = json!(text);
        }
        if let Some(connection) = &hit.connection {
            shown["source"] = json!(connection.source.to_string());
            shown["serverName"] = json!(&*connection.server_name);
        }
        status["lastHit"] = shown;
    }
    status
}

/// Returns false if the fault is gone, or could not be written.
async fn write(registry: &Registry, name: &str, status: &Value) -> bool {
    let kinds = registry.kinds();
    let Some(kind) = kinds.get(GROUP, "v1", "faults") else { return false };
    let target = Target {
        kind: Arc::clone(kind),
        namespace: None,
        name: Some(name.to_owned()),
        subresource: Some("status".to_owned()),
    };
    let (options, ctx) = (PatchOptions::default(), Context { user_agent: "dogwatch".to_owned(), ..Context::default() });
    let body = PatchBody { bytes: Bytes::from(json!({"status": status}).to_string()), kind: PatchType::Merge };
    let patched = registry.patch(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await;
    patched.inspect_err(|error| tracing::debug!(name, %error, "the status of a fault was not written")).is_ok()
}
