//! Finishes deletions that were interrupted between the mark and the removal.
//!
//! A pod without a grace period is deleted by two writes, since watchers see both (spec 04, DE-3). A server that is killed
//! between them, or a request that is dropped there, leaves a pod that is marked and waits for nothing. Any write to it
//! removes it; this task removes those that are not written to.
//!
//! ```text
//!   start ──────────► objects of every kind, at once
//!   every INTERVAL ─► objects of the kinds with a grace period that changed since and stayed marked for one INTERVAL
//! ```
//!
//! Several servers may run it on one store: a removal names the revision that was looked at, and the other server's is then
//! a conflict with nothing left to remove.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cache::Item;
use machinery::json::Value;
use machinery::{Revision, Status};
use schema::kind::Kind;
use store::Key;

use crate::kinds::{KindBehaviour, behaviour};
use crate::meta;
use crate::read::view;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::reserve::Reservation;
use crate::write::commit::{self, Change, Next};

/// Pause between two passes. A removal that is under way has ended well before the second.
const INTERVAL: Duration = Duration::from_secs(5);

/// Objects looked at before other tasks have their turn.
const SCAN_MAX: usize = 4096;

/// Marked objects by their key, with the revision at which they were found.
type Found = HashMap<Key, (Target, Revision)>;

/// Finishes interrupted deletions for as long as the registry lives.
pub(crate) async fn finish_deletions(registry: Weak<Registry>, after: Revision) {
    let mut looked_at = after;
    let mut waiting = Found::new();
    let mut first = true;
    loop {
        {
            let Some(registry) = registry.upgrade() else { return };
            let until = registry.cache().revision();
            // Most worlds of a lab are idle most of the time.
            let mut found = match first || until > looked_at {
                true => scan(&registry, looked_at, |kind| first || kind.rules.graceful).await,
                false => Found::new(),
            };
            looked_at = until;
            if !first {
                std::mem::swap(&mut found, &mut waiting);
            }
            // What could not be removed is tried again.
            waiting.extend(finish(&registry, found).await);
        }
        first = false;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The interrupted deletions among the objects that changed after a revision.
async fn scan(registry: &Registry, after: Revision, wanted: impl Fn(&Kind) -> bool) -> Found {
    let kinds = registry.kinds();
    let mut collections = HashSet::new();
    let mut found = Found::new();
    let mut looked_at = 0;
    for kind in kinds.iter().filter(|kind| wanted(kind)) {
        if !collections.insert(kind.collection.as_str()) {
            continue;
        }
        let snapshot = registry.cache().snapshot(&registry.collection(kind));
        for item in snapshot.scan(&kind.collection, None, None) {
            if item.revision() > after && may_be_deleting(item) && is_interrupted_item(kind, item) {
                found.insert(item.key().clone(), (Target::of_item(kind, item), item.revision()));
            }
            looked_at += 1;
            if looked_at % SCAN_MAX == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
    found
}

/// Removes the objects that are still as they were found. Returns those that could not be removed.
async fn finish(registry: &Registry, found: Found) -> Found {
    let mut failed = Found::new();
    for (key, (target, revision)) in found {
        let unchanged = registry.collection(&target.kind).get(&key).is_some_and(|item| item.revision() == revision);
        if !unchanged {
            continue;
        }
        let behaviour = behaviour(&target.kind);
        match commit::change(registry, (&target, &Context::default()), false, &mut Finish { behaviour }).await {
            Ok(committed) if committed.is_removed() => tracing::info!(%key, "finished an interrupted deletion"),
            Ok(_) => {}
            Err(status) if status.is_not_found() => {}
            Err(status) => {
                tracing::warn!(%key, %status, "an interrupted deletion could not be finished");
                failed.insert(key, (target, revision));
            }
        }
    }
    failed
}

/// The removal of an object that nothing holds any more. It was admitted when the object was marked.
struct Finish {
    behaviour: &'static dyn KindBehaviour,
}

impl Change for Finish {
    async fn next(&mut self, item: &Arc<Item>, _: &mut Reservation<'_>) -> Result<Next, Status> {
        let object = view::parse(item)?;
        if !is_interrupted(self.behaviour, &object) {
            return Ok(Next::Keep);
        }
        Ok(Next::Remove { last: object.clone(), old: object })
    }
}

/// A quick look at the text, which is right for almost every object.
fn may_be_deleting(item: &Item) -> bool {
    memchr::memmem::find(item.encoded().whole(), br#""deletionTimestamp""#).is_some()
}

fn is_interrupted_item(kind: &Kind, item: &Item) -> bool {
    view::parse(item).is_ok_and(|object| is_interrupted(behaviour(kind), &object))
}

/// Whether an object is being deleted and waits for nothing: no grace period, no finalizer, nothing else that holds it.
fn is_interrupted(behaviour: &dyn KindBehaviour, object: &Value) -> bool {
    meta::is_deleting(object)
        && meta::grace_period(object).unwrap_or_default() == 0
        && meta::finalizers(object).is_empty()
        && !behaviour.is_held(object)
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;
    use crate::kinds::builtin;

    #[test]
    fn only_an_object_that_waits_for_nothing_is_removed() {
        let interrupted = |plural: &str, object: Value| {
            is_interrupted(behaviour(builtin().get("", "v1", plural).expect("a built-in kind")), &object)
        };
        let marked = |more: Value| {
            let mut metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
            for (name, value) in more.as_object().expect("members").iter() {
                metadata[name] = value.clone();
            }
            json!({"metadata": metadata})
        };
        assert!(interrupted("pods", marked(json!({"deletionGracePeriodSeconds": 0}))));
        assert!(interrupted("configmaps", marked(json!({}))));
        assert!(interrupted("namespaces", marked(json!({}))));
        assert!(!interrupted("pods", json!({"metadata": {"deletionGracePeriodSeconds": 0}})));
        assert!(!interrupted("pods", marked(json!({"deletionGracePeriodSeconds": 30}))));
        assert!(!interrupted("pods", marked(json!({"deletionGracePeriodSeconds": 0, "finalizers": ["a/b"]}))));
        let mut namespace = marked(json!({}));
        namespace["spec"] = json!({"finalizers": ["kubernetes"]});
        assert!(!interrupted("namespaces", namespace));
    }
}
