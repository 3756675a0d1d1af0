//! `dogwatch admission trace`: what each plugin, policy and webhook does with an object.

use std::io::{ErrorKind, Write as _};

use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinery::json::{self, Value};

use super::super::documents;
use super::super::remote::Remote;
use crate::args::AdmissionTrace;
use crate::failure::Failure;

/// The header of a write that is to be traced.
const TRACE: &str = "dogwatch-trace-admission";
const AUDIT_ID: &str = "audit-id";

pub(super) async fn trace(args: AdmissionTrace) -> Result<(), Failure> {
    let remote = Remote::connect(args.scope.kubeconfig.as_deref()).await?;
    if let Some(id) = &args.audit_id {
        return show(&find(&remote, id).await?, &args);
    }
    for file in &args.files {
        for object in documents::read(file)? {
            let (id, refusal) = dry_run(&remote, &args, &object).await?;
            match find(&remote, &id).await {
                Ok(trace) => show(&trace, &args)?,
                // A request that was refused before admission has no trace.
                Err(failure) => return Err(refusal.map_or(failure, Failure::new)),
            }
            if let Some(refusal) = refusal {
                return Err(Failure::new(refusal));
            }
        }
    }
    Ok(())
}

/// Creates an object, or applies it to the one that is there, without storing it. Returns the Audit-Id, and the message of a
/// refusal.
async fn dry_run(remote: &Remote, args: &AdmissionTrace, object: &Value) -> Result<(String, Option<String>), Failure> {
    let text = |member: &str| object[member].as_str().unwrap_or_default().to_owned();
    let resource = remote.resource_of_kind(&text("apiVersion"), &text("kind")).await?;
    let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    let fallback = args.scope.namespace(&remote.namespace).unwrap_or(&remote.namespace);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or(fallback);
    let exists = match name {
        Some(_) => {
            let path = resource.path(Some(namespace), name);
            remote.call(Method::GET, &path, "application/json", None).await?.code == 200
        }
        None => false,
    };
    let (method, path, content) = if exists {
        let path = format!("{}?dryRun=All&fieldManager=dogwatch&force=true", resource.path(Some(namespace), name));
        (Method::PATCH, path, "application/apply-patch+yaml")
    } else {
        (Method::POST, format!("{}?dryRun=All", resource.path(Some(namespace), None)), "application/json")
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, content)
        .header(TRACE, "1")
        .body(Body::from(object.to_string().into_bytes()))
        .map_err(Failure::new)?;
    let response = remote.send(request).await?;
    let id = response.headers().get(AUDIT_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let is_success = response.status().is_success();
    let body = response.into_body().collect().await.map_err(Failure::new)?.to_bytes();
    let message = || {
        let status = json::from_slice(&body).unwrap_or_default();
        status["message"].as_str().unwrap_or("the request was refused").to_owned()
    };
    Ok((id, (!is_success).then(message)))
}

async fn find(remote: &Remote, id: &str) -> Result<Value, Failure> {
    let found = remote.call(Method::GET, &format!("/debug/admission/{id}"), "application/json", None).await?;
    if found.code == 404 {
        return Err(Failure::new(format!("there is no trace of {id}"))
            .hint("start the server with --trace-admission N to trace all writes"));
    }
    if found.code != 200 {
        return Err(found.refusal());
    }
    found.value()
}

fn show(trace: &Value, args: &AdmissionTrace) -> Result<(), Failure> {
    let mut lines = String::new();
    if args.json {
        lines.push_str(&format!("{trace}\n"));
    } else {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        lines.push_str(&format!("{} {} {}\n", text(&trace["method"]), text(&trace["path"]), trace["code"]));
        for step in trace["steps"].as_array().into_iter().flatten() {
            if let Some(line) = line(step, args.all) {
                lines.push_str(&line);
                lines.push('\n');
            }
        }
    }
    match std::io::stdout().write_all(lines.as_bytes()) {
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::new),
    }
}

/// A step as a line, followed by one for each change. Steps that had no effect are left out unless all are shown.
fn line(step: &Value, all: bool) -> Option<String> {
    let text = |member: &str| step[member].as_str().unwrap_or_default();
    let verdict = text("verdict");
    if !all && (verdict == "unmatched" || verdict == "admitted" && step.get("plugin").is_some()) {
        return None;
    }
    let kind = ["plugin", "policy", "webhook"].into_iter().find(|kind| step.get(*kind).is_some()).unwrap_or_default();
    let of = [text("configuration"), text("binding")].into_iter().find(|of| !of.is_empty());
    let of = of.map(|of| format!(" ({of})")).unwrap_or_default();
    let round = if step["round"] == 2 { " round 2" } else { "" };
    let milliseconds = step["microseconds"].as_f64().unwrap_or_default() / 1000.0;
    let why = if text("why").is_empty() { String::new() } else { format!(": {}", text("why")) };
    let mut lines = format!("{}{round} {kind} {}{of} {milliseconds:.1} ms {verdict}{why}", text("phase"), text(kind));
    for operation in step["patch"].as_array().into_iter().flatten() {
        let value = operation.get("value").map(|value| format!(" {value}")).unwrap_or_default();
        let part = |member: &str| operation[member].as_str().unwrap_or_default().to_owned();
        lines.push_str(&format!("\n    {} {}{value}", part("op"), part("path")));
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn bd_4_steps_are_lines() {
        let webhook = json!({
            "phase": "mutate", "round": 2, "webhook": "a.example.com", "configuration": "c", "verdict": "changed",
            "microseconds": 1500, "patch": [{"op": "add", "path": "/data/x", "value": "1"}],
        });
        let expected = "mutate round 2 webhook a.example.com (c) 1.5 ms changed\n    add /data/x \"1\"";
        assert_eq!(line(&webhook, false).as_deref(), Some(expected));
        let plugin = json!({"phase": "validate", "round": 1, "plugin": "LimitRanger", "verdict": "admitted", "microseconds": 10});
        assert_eq!(line(&plugin, false), None);
        assert_eq!(line(&plugin, true).as_deref(), Some("validate plugin LimitRanger 0.0 ms admitted"));
        let refused = json!({"phase": "validate", "round": 1, "policy": "p", "binding": "b", "verdict": "refused", "why": "no", "microseconds": 0});
        assert_eq!(line(&refused, false).as_deref(), Some("validate policy p (b) 0.0 ms refused: no"));
    }
}
