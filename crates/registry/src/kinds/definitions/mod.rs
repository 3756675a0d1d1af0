//! CustomResourceDefinitions: the kinds they add to those that are served, and the work of adding and removing them.
//!
//! ```text
//!   CRD stored ─► cache ─► `Definitions`: table of kinds, selectable fields, ended watches  (on the feed, before it is visible)
//!                   └────► `follow_up`: names accepted, Established; instances deleted      (a task, through ordinary writes)
//! ```
//!
//! Every server on a store follows the collection of definitions by its own cache, so all serve the same kinds.
//!
//! - this file: the table
//! - `names`: which names of a definition are accepted, and the status that follows
//! - `removal`: deletion of a definition together with its instances

mod names;
mod removal;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use cache::{Collection, Collections, Event, Item, Observer};
use jiff::Timestamp;
use machinery::json::Value;
use machinery::options::DeleteOptions;
use machinery::{Revision, Status};
use parking_lot::Mutex;
use schema::custom::{Installed, installed};
use schema::kind::Kind;
use schema::kinds::Kinds;
use tokio::sync::watch;

use super::KindBehaviour;
use crate::collections::{DEFINITIONS, selectable};
use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::write::delete::DeleteStep;

/// The field manager of the status of definitions.
const MANAGER: &str = "kube-apiserver";

/// The kinds that are served: the built-in ones and those of the definitions in the cache.
pub(crate) struct Definitions {
    kinds: ArcSwap<Kinds>,
    /// By name, with the revision they were read at.
    installed: Mutex<BTreeMap<String, (Revision, Arc<Installed>)>>,
    /// Counts changes, to wake the task that follows up on them.
    changed: watch::Sender<u64>,
    /// Definitions whose instances are being deleted, by uid.
    removing: Mutex<HashSet<String>>,
}

impl Definitions {
    pub(crate) fn new(builtin: Kinds) -> Self {
        Definitions {
            kinds: ArcSwap::from_pointee(builtin),
            installed: Mutex::default(),
            changed: watch::Sender::new(0),
            removing: Mutex::default(),
        }
    }

    /// The table for a fork, which serves the same kinds until it finds other definitions, but for those that are in no definition and
    /// not among `builtin`.
    pub(crate) fn fork(&self, builtin: &Kinds) -> Self {
        let installed = self.installed.lock();
        let kinds = self.kinds();
        let is_left = |kind: &Kind| {
            let is_custom = kind.definition.as_ref().is_some_and(|definition| installed.contains_key(&definition.name));
            !is_custom && builtin.get(&kind.gvk.group, &kind.gvk.version, &kind.plural).is_none()
        };
        let kinds = if kinds.iter().any(|kind| is_left(kind)) { Arc::new(kinds.without(is_left)) } else { kinds };
        Definitions {
            kinds: ArcSwap::new(kinds),
            installed: Mutex::new(installed.clone()),
            changed: watch::Sender::new(0),
            removing: Mutex::default(),
        }
    }

    pub(crate) fn kinds(&self) -> Arc<Kinds> {
        self.kinds.load_full()
    }

    /// Brings the table of kinds up to what the cache holds.
    fn sync(&self, collections: &Collections) {
        let objects = collections.get(DEFINITIONS).objects();
        let mut table = self.installed.lock();
        let mut kinds = (*self.kinds()).clone();
        let mut ended: Vec<String> = Vec::new();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut touched = false;
        let items: Vec<&Arc<Item>> = objects.scan(DEFINITIONS, None, None).collect();
        for item in &items {
            seen.insert(item.name());
            let before = table.get(item.name());
            if before.is_some_and(|(revision, _)| *revision == item.revision()) {
                continue;
            }
            let before = before.map(|(_, installed)| Arc::clone(installed));
            let installed = match installed::install(item.encoded().whole(), item.revision(), before.as_deref()) {
                Ok(installed) => installed,
                Err(error) => {
                    tracing::error!(name = item.name(), %error, "a definition cannot be read and is not served");
                    continue;
                }
            };
            touched = true;
            if before.as_ref().is_none_or(|before| installed.differs(before)) {
                ended.extend(before.map(|before| before.collection.clone()));
            }
            kinds = kinds.without(|kind| is_of(kind, item.name()));
            if !installed.kinds.is_empty() {
                collections.specify(&installed.collection, selectable(&installed.kinds));
            }
            // A kind that is served from the start cannot be replaced.
            let served = kinds.group(&installed.group).into_iter().flat_map(|group| &group.versions);
            let served: HashSet<(&str, &str)> = served
                .flat_map(|version| version.kinds.iter().map(|kind| (version.name.as_str(), kind.plural.as_str())))
                .collect();
            let is_new = |kind: &&Arc<Kind>| !served.contains(&(kind.gvk.version.as_str(), kind.plural.as_str()));
            let added: Vec<Arc<Kind>> = installed.kinds.iter().filter(is_new).cloned().collect();
            kinds = kinds.with_all(added);
            table.insert(item.name().to_owned(), (item.revision(), Arc::new(installed)));
        }
        let mut unserved: Vec<String> = Vec::new();
        let gone: Vec<String> = table.keys().filter(|name| !seen.contains(name.as_str())).cloned().collect();
        for name in gone {
            touched = true;
            kinds = kinds.without(|kind| is_of(kind, &name));
            if let Some((_, removed)) = table.remove(&name) {
                let is_served = table.values().any(|(_, other)| other.collection == removed.collection);
                if is_served { &mut ended } else { &mut unserved }.push(removed.collection.clone());
            }
        }
        if !touched {
            return;
        }
        self.kinds.store(Arc::new(kinds));
        drop(table);
        for collection in ended {
            collections.get(&collection).end_watches();
        }
        for collection in unserved {
            collections.get(&collection).end_watches();
            collections.remove_unserved(&collection);
        }
        self.changed.send_modify(|count| *count += 1);
    }

    fn all(&self) -> Vec<Arc<Installed>> {
        self.installed.lock().values().map(|(_, installed)| Arc::clone(installed)).collect()
    }

    fn find(&self, name: &str, uid: &str) -> Option<Arc<Installed>> {
        let installed = self.installed.lock();
        installed.get(name).map(|(_, installed)| Arc::clone(installed)).filter(|installed| installed.uid == uid)
    }
}

/// The behaviour of the definitions themselves.
pub(crate) struct CustomResourceDefinitions;

impl KindBehaviour for CustomResourceDefinitions {
    fn checks_preconditions_as_update(&self) -> bool {
        true
    }

    fn delete_step(&self, definition: &Value, _: &DeleteOptions, now: Timestamp) -> Option<DeleteStep> {
        let begins = !meta::is_deleting(definition);
        begins.then(|| DeleteStep::Mark(removal::mark(definition, &meta::timestamp(now))))
    }
}

impl Observer for Definitions {
    fn observes(&self, collection: &str) -> bool {
        collection == DEFINITIONS
    }

    fn loaded(&self, collections: &Collections, _: &Collection, _: Revision) {
        self.sync(collections);
    }

    fn changed(&self, collections: &Collections, _: &[Arc<Event>]) {
        self.sync(collections);
    }
}

/// Returns the target of a definition's `status`.
fn status_of(registry: &Registry, name: &str) -> Result<Target, Status> {
    let kinds = registry.kinds();
    let kind = kinds.get("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let kind = Arc::clone(kind.ok_or_else(|| Status::internal("definitions are not served"))?);
    Ok(Target { kind, namespace: None, name: Some(name.to_owned()), subresource: Some("status".to_owned()) })
}

/// Follows up on changed definitions for as long as the registry lives.
pub(crate) async fn follow_up(registry: Weak<Registry>) {
    let Some(mut changed) = registry.upgrade().map(|registry| registry.definitions().changed.subscribe()) else {
        return;
    };
    // Those that are there from the start may need something too.
    changed.mark_changed();
    while changed.changed().await.is_ok() {
        let Some(registry) = registry.upgrade() else { return };
        let ctx = Context::default();
        names::accept(&registry, &ctx).await;
        removal::start(&registry, &ctx);
    }
}

fn is_of(kind: &Kind, name: &str) -> bool {
    kind.definition.as_ref().is_some_and(|definition| definition.name == name)
}
