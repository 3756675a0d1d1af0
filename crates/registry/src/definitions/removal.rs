//! A definition that is being deleted: its instances go first, then its finalizer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use machinery::Status;
use machinery::json::Value;
use machinery::options::DeleteOptions;
use schema::custom::{Condition, Installed};

use super::MANAGER;
use super::names::{condition, set_condition};
use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::update::Author;

pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const TERMINATING: &str = "Terminating";

/// How soon instances that something holds are looked at again, and how late.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(1);

/// What a DELETE makes of a definition that nobody deleted before: its end begins.
pub(crate) fn marked(definition: &Value, now: &str) -> Value {
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

impl Registry {
    /// Starts the end of every definition that waits for it.
    pub(super) fn remove_leaving(self: &Arc<Self>, ctx: &Context) {
        for definition in self.known_definitions() {
            let held = definition.finalizers.iter().any(|name| name == FINALIZER);
            let uid = definition.uid.clone();
            if !definition.deleting || !held || !self.definitions.leaving.lock().insert(uid.clone()) {
                continue;
            }
            let (registry, ctx) = (Arc::downgrade(self), ctx.clone());
            tokio::spawn(async move {
                let name = definition.name.clone();
                if let Err(refused) = end(&registry, &name, &uid, &ctx).await {
                    tracing::warn!(%name, %refused, "a definition could not be removed");
                }
                if let Some(registry) = registry.upgrade() {
                    registry.definitions.leaving.lock().remove(&uid);
                }
            });
        }
    }

    /// The target of each instance that is left.
    fn instances(&self, name: &str) -> Vec<Target> {
        let kinds = self.kinds();
        let Some(kind) = kinds.iter().find(|kind| super::is_of(kind, name)).cloned() else { return Vec::new() };
        let collection = self.collection(&kind);
        let snapshot = self.cache.snapshot(&collection);
        let target = |item: &Arc<cache::Item>| Target {
            kind: Arc::clone(&kind),
            namespace: Some(item.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
            name: Some(item.name().to_owned()),
            subresource: None,
        };
        snapshot.scan(&kind.collection, None, None).map(target).collect()
    }

    async fn write_leaving(
        &self,
        name: &str,
        uid: &str,
        ctx: &Context,
        done: bool,
        why: &Condition,
    ) -> Result<(), Status> {
        let target = self.definition_target(name)?;
        let author = Author::through(MANAGER, Some("status"));
        let now = meta::timestamp(self.now());
        let written = self.rewrite(&target, false, |old| {
            if meta::uid(old) != uid {
                return Err(Status::not_found(&target.gr(), name));
            }
            let mut new = old.clone();
            set_condition(&mut new, why, &now);
            if done {
                let left: Vec<String> =
                    meta::finalizers(old).into_iter().filter(|held| *held != FINALIZER).map(str::to_owned).collect();
                meta::set_finalizers(&mut new, &left);
            }
            self.revise(&target, old, new, &author, ctx)
        });
        written.await.map(|_| ())
    }

    fn known_definition(&self, name: &str, uid: &str) -> Option<Arc<Installed>> {
        let table = self.definitions.table.lock();
        table.known.get(name).map(|(_, installed)| Arc::clone(installed)).filter(|installed| installed.uid == uid)
    }
}

/// Deletes the instances of a definition, waits until they are gone, and lets it go.
async fn end(registry: &Weak<Registry>, name: &str, uid: &str, ctx: &Context) -> Result<(), Status> {
    let mut pause = LOOK_AGAIN;
    let mut told = false;
    loop {
        let Some(registry) = registry.upgrade() else { return Ok(()) };
        let Some(definition) = registry.known_definition(name, uid) else { return Ok(()) };
        let (status, reason, message) = if !definition.holds("Established") {
            ("False", "NeverEstablished", "resource was never established")
        } else {
            let instances = registry.instances(name);
            if instances.is_empty() {
                ("False", "InstanceDeletionCompleted", "removed all instances")
            } else {
                for instance in &instances {
                    match registry.delete(instance, DeleteOptions::default(), ctx).await {
                        Err(refused) if refused.code != 404 => {
                            tracing::warn!(name = instance.name(), %refused, "an instance could not be deleted");
                        }
                        _ => {}
                    }
                }
                ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            }
        };
        let done = status == "False";
        // Instances that go at once need no word in between.
        if done || (!told && !registry.instances(name).is_empty()) {
            let why = condition(TERMINATING, status, reason, message);
            match registry.write_leaving(name, uid, ctx, done, &why).await {
                Err(refused) if refused.code == 404 => return Ok(()),
                Err(refused) if refused.code == 409 => {}
                Err(refused) => return Err(refused),
                Ok(()) if done => return Ok(()),
                Ok(()) => told = true,
            }
        }
        if registry.instances(name).is_empty() {
            continue;
        }
        drop(registry);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN_MAX);
    }
}
