//! Deletion of a definition: its instances are deleted first, then its finalizer is removed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use machinery::Status;
use machinery::json::Value;
use machinery::options::DeleteOptions;
use schema::custom::Condition;

use super::names::{condition, set_condition};
use super::{MANAGER, status_of};
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::failure;
use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, Target, WriteRequest};
use crate::write::update::{Author, rewrite};

pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const TERMINATING: &str = "Terminating";

/// First and longest pause between looks at instances that something holds.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The definition after a first DELETE: marked, and held by its finalizer.
pub(super) fn mark(definition: &Value, now: &str) -> Value {
    let mut marked = definition.clone();
    let metadata = meta::of_mut(&mut marked);
    metadata.insert("deletionTimestamp", machinery::json::json!(now));
    let mut finalizers: Vec<String> = meta::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    meta::set_finalizers(&mut marked, &finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(&mut marked, &condition(TERMINATING, "True", "InstanceDeletionPending", message), now);
    marked
}

/// Starts the removal of every definition that waits for it.
pub(super) fn start(registry: &Arc<Registry>, ctx: &Context) {
    for definition in registry.definitions().all() {
        let held = definition.finalizers.iter().any(|name| name == FINALIZER);
        let uid = definition.uid.clone();
        if !definition.deleting || !held || !registry.definitions().removing.lock().insert(uid.clone()) {
            continue;
        }
        let (registry, ctx) = (Arc::downgrade(registry), ctx.clone());
        tokio::spawn(async move {
            let name = definition.name.clone();
            if let Err(refused) = remove(&registry, &name, &uid, &ctx).await {
                tracing::warn!(%name, %refused, "a definition could not be removed");
            }
            if let Some(registry) = registry.upgrade() {
                registry.definitions().removing.lock().remove(&uid);
            }
        });
    }
}

/// The target of each instance that is left.
fn instances(registry: &Registry, name: &str) -> Vec<Target> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.iter().find(|kind| super::is_of(kind, name)) else { return Vec::new() };
    let snapshot = registry.cache().snapshot(&registry.collection(kind));
    snapshot.scan(&kind.collection, None, None).map(|item| Target::of_item(kind, item)).collect()
}

/// Fails if an instance cannot be read: it cannot be deleted, and must not be left behind.
fn refuse_damaged(registry: &Registry, name: &str) -> Result<(), Status> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.iter().find(|kind| super::is_of(kind, name)) else { return Ok(()) };
    let damaged = registry.collection(kind).all_damaged();
    damaged.first().map_or(Ok(()), |object| Err(failure::damaged(object)))
}

/// Sets the condition of a definition that is being removed; without the finalizer if its instances are `gone`.
async fn write_progress(
    registry: &Registry,
    (name, uid): (&str, &str),
    ctx: &Context,
    gone: bool,
    condition: &Condition,
) -> Result<(), Status> {
    let target = status_of(registry, name)?;
    let author = Author::through(MANAGER, Some("status"));
    let now = meta::timestamp(registry.now());
    let attributes = Attributes::new(Operation::Update, &target, Options::None, ctx);
    let written = rewrite(registry, &attributes, &author, |old| {
        if meta::uid(old) != uid {
            return Err(Status::not_found(&target.gr(), name));
        }
        let mut new = old.clone();
        set_condition(&mut new, condition, &now);
        if gone {
            let left: Vec<String> =
                meta::finalizers(old).into_iter().filter(|held| *held != FINALIZER).map(str::to_owned).collect();
            meta::set_finalizers(&mut new, &left);
        }
        Ok(new)
    });
    written.await.map(|_| ())
}

/// Deletes the instances of a definition, waits until they are gone, and removes the finalizer.
async fn remove(registry: &Weak<Registry>, name: &str, uid: &str, ctx: &Context) -> Result<(), Status> {
    let mut pause = PAUSE_MIN;
    let mut reported = false;
    loop {
        let Some(registry) = registry.upgrade() else { return Ok(()) };
        let Some(definition) = registry.definitions().find(name, uid) else { return Ok(()) };
        let (status, reason, message) = if !definition.holds("Established") {
            ("False", "NeverEstablished", "resource was never established")
        } else {
            refuse_damaged(&registry, name)?;
            let instances = instances(&registry, name);
            if instances.is_empty() {
                ("False", "InstanceDeletionCompleted", "removed all instances")
            } else {
                for instance in &instances {
                    let request = WriteRequest { target: instance, options: &DeleteOptions::default(), ctx };
                    match registry.delete(request).await {
                        Err(refused) if !refused.is_not_found() => {
                            tracing::warn!(name = instance.name(), %refused, "an instance could not be deleted");
                        }
                        _ => {}
                    }
                }
                ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            }
        };
        let done = status == "False";
        // Instances that are gone at once need no report in between.
        if done || (!reported && !instances(&registry, name).is_empty()) {
            let condition = condition(TERMINATING, status, reason, message);
            match write_progress(&registry, (name, uid), ctx, done, &condition).await {
                Err(refused) if refused.is_not_found() => return Ok(()),
                Err(refused) if refused.is_conflict() => {}
                Err(refused) => return Err(refused),
                Ok(()) if done => return Ok(()),
                Ok(()) => reported = true,
            }
        }
        if instances(&registry, name).is_empty() {
            continue;
        }
        drop(registry);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
