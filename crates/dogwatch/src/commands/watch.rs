//! `dogwatch watch`: each change as it happens, one line an event.

use std::io::Write;

use http::{Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use machinery::json::Value;

use super::remote::{Answer, Remote};
use crate::args::Watch;
use crate::failure::Failure;

pub async fn watch(args: Watch) -> Result<(), Failure> {
    let remote = Remote::connect(args.scope.kubeconfig.as_deref()).await?;
    let resource = remote.resource(&args.resource).await?;
    let namespace = args.scope.namespace(&remote.namespace);
    let mut path = format!("{}?watch=true&allowWatchBookmarks=true", resource.path(namespace, None));
    if let Some(from) = args.from {
        path.push_str(&format!("&resourceVersion={from}"));
    }
    if let Some(query) = args.scope.query() {
        path.push_str(&format!("&{query}"));
    }
    if let Some(name) = &args.name {
        path.push_str(&format!("&fieldSelector=metadata.name%3D{name}"));
    }
    let request = Request::get(&path).header(header::ACCEPT, "application/json");
    let response = remote.send(request.body(Body::from(Vec::new())).map_err(Failure::new)?).await?;
    let code = response.status().as_u16();
    let mut body = response.into_body();
    if code != 200 {
        let collected = body.collect().await.map_err(Failure::new)?;
        return Err(Answer { code, body: collected.to_bytes().into() }.refusal());
    }
    let mut pending = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::new(format!("the watch broke off: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        pending.extend_from_slice(data);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            if !show(&line, args.json)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Prints one event; false when nobody reads any longer.
fn show(line: &[u8], json: bool) -> Result<bool, Failure> {
    let event: Value = serde_json::from_slice(line).map_err(Failure::new)?;
    let (kind, metadata) = (event["type"].as_str().unwrap_or_default(), &event["object"]["metadata"]);
    if kind == "ERROR" {
        let message = event["object"]["message"].as_str().unwrap_or("the watch was ended");
        return Err(Failure::new(message).hint("leave out --from to start with what is there now"));
    }
    let text = if json {
        String::from_utf8_lossy(line).trim_end().to_owned()
    } else {
        let revision = metadata["resourceVersion"].as_str().unwrap_or_default();
        let name = metadata["name"].as_str().unwrap_or_default();
        let place = metadata["namespace"].as_str().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{kind:9} {revision:>8}  {place}{name}").trim_end().to_owned()
    };
    let mut out = std::io::stdout().lock();
    // A closed pipe is how `| head` says it has enough.
    Ok(writeln!(out, "{text}").and_then(|()| out.flush()).is_ok())
}
