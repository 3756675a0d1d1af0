//! `dogwatch watch`: prints existing objects, then each change, one line for each event; survives a server's restart.

use std::io::Write;
use std::sync::Arc;

use client::RawObject;
use client::list_watch::{ApiListWatch, WatchItem};
use client::retry_watcher::RetryWatcher;
use kube::core::DynamicObject;

use super::remote::{Remote, Resource};
use crate::args::Watch;
use crate::failure::Failure;

pub(super) async fn watch(args: Watch) -> Result<(), Failure> {
    let remote = Remote::connect(args.scope.kubeconfig.as_deref()).await?;
    let resource = remote.resource(&args.resource).await?;
    let source = Arc::new(source(&remote, &resource, &args));
    let mut watcher = match args.from {
        Some(from) => RetryWatcher::new(source, from.to_string().into()).map_err(Failure::new)?,
        None => RetryWatcher::with_initial_state(source),
    };
    while let Some(item) = watcher.next().await {
        let (kind, object) = match item {
            WatchItem::Added(object) => ("ADDED", object),
            WatchItem::Modified(object) => ("MODIFIED", object),
            WatchItem::Deleted(object) => ("DELETED", object),
            // The watcher handles these itself.
            WatchItem::Bookmark(_) | WatchItem::Unknown { .. } => continue,
            WatchItem::Error(error) if error.is_expired() => {
                return Err(Failure::new(error).hint("leave out --from to start with what is there now"));
            }
            WatchItem::Error(error) => return Err(Failure::new(error)),
        };
        if !print_event(kind, &object, args.json) {
            break;
        }
    }
    Ok(())
}

fn source(remote: &Remote, resource: &Resource, args: &Watch) -> ApiListWatch {
    let namespace = args.scope.namespace(&remote.namespace).filter(|_| resource.namespaced);
    let mut source = ApiListWatch::new::<DynamicObject>(remote.client(), &resource.described(), namespace);
    if let Some(selector) = &args.scope.selector {
        source = source.labels(selector);
    }
    if let Some(name) = &args.name {
        source = source.fields(format!("metadata.name={name}"));
    }
    source
}

/// Prints one event; returns false when standard output is closed.
fn print_event(kind: &str, object: &RawObject, json: bool) -> bool {
    let text = if json {
        format!(r#"{{"type":"{kind}","object":{}}}"#, String::from_utf8_lossy(&object.body).trim_end())
    } else {
        format!("{kind:9} {:>8}  {}", object.version, object.key)
    };
    let mut out = std::io::stdout().lock();
    // `| head` closes the pipe when it has enough.
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}
