//! Sources of a controller: the keys that an event leads to.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Resource;

use super::Predicate;
use crate::informer::{Event, HandlerHandle, InformerError, SharedInformer};
use crate::workqueue::{LOW, NORMAL, Priority, WorkQueue};
use crate::{Key, Object};

/// The owner references that lead to a key. The version of the owner's API is ignored (CT-2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerMatch {
    group: String,
    kind: String,
    controller_only: bool,
    cluster_scoped: bool,
}

impl OwnerMatch {
    /// All owners of this kind.
    pub fn of<K: Resource>(dt: &K::DynamicType) -> Self {
        Self {
            group: K::group(dt).into_owned(),
            kind: K::kind(dt).into_owned(),
            controller_only: false,
            cluster_scoped: false,
        }
    }

    /// Only the controlling owner.
    pub fn controller_only(mut self) -> Self {
        self.controller_only = true;
        self
    }

    /// The owners have no namespace, although what they own has one.
    pub fn cluster_scoped(mut self) -> Self {
        self.cluster_scoped = true;
        self
    }

    fn keys<K: Resource>(&self, object: &K) -> Vec<Key> {
        let meta = object.meta();
        let namespace = if self.cluster_scoped { None } else { meta.namespace.as_deref() };
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        owners
            .iter()
            .filter(|owner| owner.kind == self.kind && group_of(&owner.api_version) == self.group)
            .filter(|owner| !self.controller_only || owner.controller == Some(true))
            .map(|owner| Key::new(namespace, &owner.name))
            .collect()
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

type KeyMap<K> = dyn Fn(&K) -> Vec<Key> + Send + Sync;

/// The keys that a source derives from an object.
pub(super) enum Keys<K> {
    Own,
    Owners(OwnerMatch),
    Mapped(Arc<KeyMap<K>>),
}

impl<K: Object> Keys<K> {
    /// The keys of an event, each once. Of an update, those of the old state too: an owner that lost a child has as
    /// much to do as one that got it.
    pub(super) fn of(&self, event: &Event<K>) -> BTreeSet<Key> {
        let of_object = |object: &K| match self {
            Self::Own => vec![object.object_key()],
            Self::Owners(owner) => owner.keys(object),
            Self::Mapped(map) => map(object),
        };
        match event {
            Event::Added { object, .. } | Event::Deleted { object, .. } => of_object(object).into_iter().collect(),
            Event::Updated { old, new } => of_object(old).into_iter().chain(of_object(new)).collect(),
            Event::Undecodable { item, previous } => {
                let own = matches!(self, Self::Own).then(|| item.raw.key.clone());
                own.into_iter().chain(previous.as_deref().map(of_object).unwrap_or_default()).collect()
            }
            Event::HistoryReset { .. } | Event::Lagged { .. } => BTreeSet::new(),
        }
    }
}

/// Initial objects and resyncs have low priority.
fn priority<K: Object>(event: &Event<K>) -> Priority {
    let initial = matches!(event, Event::Added { initial: true, .. });
    if initial || event.is_resync() { LOW } else { NORMAL }
}

/// A source that was not joined yet.
pub(super) trait Source: Send {
    fn start(self: Box<Self>, queue: WorkQueue<Key>) -> Result<Box<dyn StartedSource>, InformerError>;
}

/// A source that fills the queue.
pub(super) trait StartedSource: Send + Sync {
    /// All initial objects are in the queue; false if that will never be.
    fn synced(&self) -> BoxFuture<'_, bool>;
    fn leave(&self);
}

struct InformerSource<K> {
    informer: SharedInformer<K>,
    predicate: Predicate<K>,
    keys: Keys<K>,
}

pub(super) fn new<K: Object>(informer: SharedInformer<K>, predicate: Predicate<K>, keys: Keys<K>) -> Box<dyn Source> {
    Box::new(InformerSource { informer, predicate, keys })
}

impl<K: Object> Source for InformerSource<K> {
    fn start(self: Box<Self>, queue: WorkQueue<Key>) -> Result<Box<dyn StartedSource>, InformerError> {
        let Self { informer, predicate, keys } = *self;
        let handle = informer.add_sync_handler(move |event| {
            if predicate.accepts(&event) {
                let priority = priority(&event);
                for key in keys.of(&event) {
                    queue.add_with_priority(key, priority);
                }
            }
        })?;
        Ok(Box::new(handle))
    }
}

impl<K: Object> StartedSource for HandlerHandle<K> {
    fn synced(&self) -> BoxFuture<'_, bool> {
        self.wait_synced().boxed()
    }

    fn leave(&self) {
        self.remove();
    }
}
