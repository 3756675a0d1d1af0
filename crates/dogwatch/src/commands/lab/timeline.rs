//! `dogwatch lab timeline`: an object and all that it owns over time, with who wrote what after what.

use http::Method;
use machinery::json::Value;

use super::super::remote::Remote;
use super::{API, page, with_hint};
use crate::args;
use crate::failure::Failure;
use crate::timeline::Timeline;

pub(super) async fn timeline(args: args::Timeline) -> Result<(), Failure> {
    let Some((word, name)) = args.object.split_once('/') else {
        return Err(Failure::usage(format!("{} names no object", args.object)).hint("for instance deployment/web"));
    };
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    let resource = remote.resource(word).await?;
    let namespace = args.namespace.as_deref().unwrap_or(&remote.namespace);
    let path = format!("{API}/changes");
    let listed = remote.call_ok(Method::GET, &path, "application/json", None).await.map_err(with_hint)?.value()?;
    let changes: Vec<&Value> = listed["items"].as_array().into_iter().flatten().map(|item| &item["status"]).collect();
    let is_root = |change: &Value| {
        change["kind"] == resource.kind
            && change["name"] == name
            && (!resource.namespaced || change["namespace"] == namespace)
    };
    let timeline = Timeline::of(&changes, is_root);
    if timeline.0.is_empty() {
        return Err(Failure::new(format!("no change of {} is recorded", resource.display(name)))
            .hint("the lab keeps the last changes since the server started: --lab-requests N keeps more"));
    }
    match &args.html {
        None => print!("{timeline}"),
        Some(file) => {
            let page = page::page(&resource.display(name), &timeline.0);
            std::fs::write(file, page)
                .map_err(|error| Failure::new(format!("{} cannot be written: {error}", file.display())))?;
            println!("wrote {}", file.display());
        }
    }
    Ok(())
}
