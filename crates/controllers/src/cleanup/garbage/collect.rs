//! The decision about one node: keep it, remove references to absent owners, delete it, or orphan its dependents.
//!
//! ```text
//!   owners on a live read                          the object
//!   ─────────────────────                          ──────────
//!   some solid                                ──►  loses the references to the others, if any
//!   none solid, some waiting, has dependents  ──►  deleted, its own dependents first (Foreground)
//!   none solid                                ──►  deleted as its finalizers ask (Background)
//! ```

use std::sync::Arc;

use client::events::{EventRecorder, EventType};
use client::workqueue::WorkQueue;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PropagationPolicy;
use parking_lot::Mutex;

use super::graph::{Graph, Identity, View, Wake};
use super::live::{Live, Trouble};
use super::tracked::{FOREGROUND, ORPHAN, Owner, Uid};

/// Dependents that lose their owner at the same time.
const ORPHANED_AT_ONCE: usize = 20;

/// The graph, and the queues of nodes to process.
pub(super) struct Collector {
    pub(super) graph: Mutex<Graph>,
    pub(super) to_delete: WorkQueue<Uid>,
    pub(super) to_orphan: WorkQueue<Uid>,
    pub(super) recorder: EventRecorder,
}

/// The outcome of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Done,
    /// Try again later: no event will put it into the queue.
    Again,
}

/// The owners of an object by live reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owners {
    solid: usize,
    dangling: Vec<Uid>,
    /// Being deleted, and waiting for the deletion of its dependents.
    waiting: Vec<Uid>,
}

/// The decision about an object.
#[derive(Debug, PartialEq)]
enum Verdict {
    Leave,
    Release(Vec<Uid>),
    Delete(PropagationPolicy),
}

fn verdict(owners: Owners, has_dependents: bool, finalizers: &[String]) -> Verdict {
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if owners.solid > 0 {
        let gone: Vec<Uid> = owners.dangling.into_iter().chain(owners.waiting).collect();
        return if gone.is_empty() { Verdict::Leave } else { Verdict::Release(gone) };
    }
    if !owners.waiting.is_empty() && has_dependents {
        return Verdict::Delete(PropagationPolicy::Foreground);
    }
    Verdict::Delete(if has(ORPHAN) {
        PropagationPolicy::Orphan
    } else if has(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    })
}

impl Collector {
    /// Adds the nodes of a change to the queues.
    pub(super) fn wake(&self, wake: Wake) {
        for (dependent, owner) in wake.misplaced {
            self.report_misplaced(&dependent, &owner);
        }
        wake.delete.into_iter().for_each(|uid| self.to_delete.add(uid));
        wake.delete_later.into_iter().for_each(|uid| self.to_delete.add_rate_limited(uid));
        wake.orphan.into_iter().for_each(|uid| self.to_orphan.add(uid));
    }

    fn report_misplaced(&self, dependent: &Identity, owner: &Owner) {
        let namespace = dependent.key.namespace();
        let about = ObjectReference {
            api_version: Some(dependent.kind.api_version.to_string()),
            kind: Some(dependent.kind.name.to_string()),
            namespace: namespace.map(str::to_owned),
            name: Some(dependent.key.name().to_owned()),
            uid: Some(dependent.uid.to_string()),
            ..ObjectReference::default()
        };
        let said = Identity::of_owner(owner, namespace);
        let message = format!("ownerRef {said} does not exist in namespace {:?}", namespace.unwrap_or_default());
        self.recorder.record(&about, EventType::Warning, "OwnerRefInvalidNamespace", &message);
    }

    /// Processes a node that may have to be deleted.
    pub(super) async fn attempt_to_delete(&self, live: &Live, uid: &Uid) -> Attempt {
        let Some(view) = self.graph.lock().view(uid) else { return Attempt::Done };
        match self.look_at(live, &view).await {
            Ok(()) => {
                // A virtual node is retried until a watch has shown the object, or it is absent: one that was created and
                // deleted while a watch was cut would stay in the graph for ever.
                let still_virtual = self.graph.lock().view(uid).is_some_and(|view| view.is_virtual);
                if still_virtual { Attempt::Again } else { Attempt::Done }
            }
            Err(Trouble::NamespacedOwnerOfClusterScoped) => Attempt::Done,
            Err(trouble) => {
                tracing::debug!(object = %view.identity, %trouble, "cannot process an object, will retry");
                Attempt::Again
            }
        }
    }

    async fn look_at(&self, live: &Live, view: &View) -> Result<(), Trouble> {
        if view.being_deleted && !view.deleting_dependents {
            return Ok(());
        }
        let identity = &view.identity;
        let found = live.get(identity).await?.filter(|now| now.uid.as_deref() == Some(&*identity.uid));
        let Some(now) = found else {
            let wake = self.graph.lock().found_absent(identity);
            self.wake(wake);
            return Ok(());
        };
        if view.deleting_dependents {
            return self.wait_for_dependents(live, view).await;
        }
        let references = now.owner_references.as_deref().unwrap_or_default();
        if references.is_empty() {
            return Ok(());
        }
        let owners = self.classify(live, identity, references).await?;
        match verdict(owners, view.has_dependents, now.finalizers.as_deref().unwrap_or_default()) {
            Verdict::Leave => Ok(()),
            Verdict::Release(owners) => live.remove_owners(identity, &owners).await,
            Verdict::Delete(policy) => self.delete(live, view, &now, policy).await,
        }
    }

    async fn delete(
        &self,
        live: &Live,
        view: &View,
        now: &ObjectMeta,
        policy: PropagationPolicy,
    ) -> Result<(), Trouble> {
        let identity = &view.identity;
        let mut looked_at = now.clone();
        let circle = policy == PropagationPolicy::Foreground
            && self.graph.lock().dependents(&identity.uid).iter().any(|dependent| dependent.deleting_dependents);
        if circle {
            // One of its dependents waits too, perhaps for its owner. Without this both would wait for ever (GC-7).
            let blocking: Vec<Uid> =
                view.owners.iter().filter(|owner| owner.blocks).map(|owner| owner.uid.clone()).collect();
            live.unblock_owners(identity, &blocking).await?;
            let Some(after) = live.get(identity).await? else { return Ok(()) };
            looked_at = after;
        }
        live.delete(identity, &looked_at, policy).await
    }

    /// Removes the finalizer of a waiting owner once no blocking dependent is left.
    async fn wait_for_dependents(&self, live: &Live, view: &View) -> Result<(), Trouble> {
        let blocking = self.graph.lock().blocking_dependents(&view.identity.uid);
        if blocking.is_empty() {
            return live.remove_finalizer(&view.identity, FOREGROUND).await;
        }
        for dependent in blocking.into_iter().filter(|dependent| !dependent.deleting_dependents) {
            self.to_delete.add(dependent.identity.uid);
        }
        Ok(())
    }

    async fn classify(
        &self,
        live: &Live,
        identity: &Identity,
        references: &[OwnerReference],
    ) -> Result<Owners, Trouble> {
        let mut owners = Owners::default();
        for reference in references {
            let owner = Owner::from(reference);
            match self.find_owner(live, identity, &owner).await? {
                None => owners.dangling.push(owner.uid),
                Some(found) if is_waiting(&found) => owners.waiting.push(owner.uid),
                Some(_) => owners.solid += 1,
            }
        }
        Ok(owners)
    }

    /// The owner itself; none if there is no object at its coordinates, or one of another UID (GC-10).
    async fn find_owner(&self, live: &Live, item: &Identity, owner: &Owner) -> Result<Option<ObjectMeta>, Trouble> {
        let namespace = item.key.namespace();
        if self.graph.lock().is_absent(owner, namespace) {
            return Ok(None);
        }
        let mut identity = Identity::of_owner(owner, namespace);
        match (live.is_namespaced(&identity)?, namespace) {
            (true, None) => return Err(Trouble::NamespacedOwnerOfClusterScoped),
            (true, Some(_)) => {}
            (false, _) => identity = Identity::of_owner(owner, None),
        }
        let found = live.get(&identity).await?.filter(|found| found.uid.as_deref() == Some(&*owner.uid));
        if found.is_none() {
            self.graph.lock().note_absent(identity);
        }
        Ok(found)
    }

    /// Removes the references to an owner from its dependents, then its `orphan` finalizer (GC-8).
    pub(super) async fn attempt_to_orphan(&self, live: &Live, uid: &Uid) -> Attempt {
        let (view, dependents) = {
            let graph = self.graph.lock();
            (graph.view(uid), graph.dependents(uid))
        };
        let Some(view) = view else { return Attempt::Done };
        let owner = Arc::new([uid.clone()]);
        let released = stream::iter(dependents)
            .map(|dependent| {
                let owner = owner.clone();
                async move { live.remove_owners(&dependent.identity, &*owner).await }
            })
            .buffer_unordered(ORPHANED_AT_ONCE)
            .try_collect::<Vec<()>>()
            .await;
        let ended = match released {
            Ok(_) => live.remove_finalizer(&view.identity, ORPHAN).await,
            Err(trouble) => Err(trouble),
        };
        match ended {
            Ok(()) => Attempt::Done,
            Err(trouble) => {
                tracing::debug!(object = %view.identity, %trouble, "orphaning dependents failed, will retry");
                Attempt::Again
            }
        }
    }
}

fn is_waiting(owner: &ObjectMeta) -> bool {
    owner.deletion_timestamp.is_some()
        && owner.finalizers.as_ref().is_some_and(|held| held.iter().any(|name| name == FOREGROUND))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(solid: usize, dangling: &[&str], waiting: &[&str]) -> Owners {
        let uids = |names: &[&str]| names.iter().map(|name| Uid::from(*name)).collect();
        Owners { solid, dangling: uids(dangling), waiting: uids(waiting) }
    }

    #[test]
    fn gc_5_the_owners_decide() {
        use PropagationPolicy::{Background, Foreground, Orphan};
        let release = |names: &[&str]| Verdict::Release(names.iter().map(|name| Uid::from(*name)).collect());
        let plain: Vec<String> = vec!["x.io/y".into()];
        let with = |name: &str| vec![name.to_owned()];
        for (owners, has_dependents, finalizers, expected) in [
            (owners(1, &[], &[]), true, plain.clone(), Verdict::Leave),
            (owners(1, &["a"], &[]), false, plain.clone(), release(&["a"])),
            (owners(2, &["a"], &["b"]), true, plain.clone(), release(&["a", "b"])),
            (owners(0, &["a"], &["b"]), true, plain.clone(), Verdict::Delete(Foreground)),
            (owners(0, &["a"], &["b"]), false, plain.clone(), Verdict::Delete(Background)),
            (owners(0, &["a"], &[]), true, plain, Verdict::Delete(Background)),
            (owners(0, &["a"], &[]), true, with(ORPHAN), Verdict::Delete(Orphan)),
            (owners(0, &["a"], &[]), false, with(FOREGROUND), Verdict::Delete(Foreground)),
        ] {
            let said = format!("{owners:?} {has_dependents} {finalizers:?}");
            assert_eq!(verdict(owners, has_dependents, &finalizers), expected, "{said}");
        }
    }
}
