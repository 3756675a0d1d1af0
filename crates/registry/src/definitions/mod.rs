//! CustomResourceDefinitions: which kinds they add to those that are served, and what is done to make and unmake them.
//!
//! ```text
//!   CRD stored ─► cache ─► `sync`: table of kinds, selectable fields, ended watches   (on the feed, before anybody sees it)
//!                   └────► `keep`: names accepted, Established; instances deleted     (a task, through ordinary writes)
//! ```
//!
//! Every server on a store follows the collection of definitions by its own cache, so all serve the same kinds.
//!
//! - this file: the table
//! - `names`: whether the names of a definition are free, and what its status says
//! - `removal`: a definition on its way out takes its instances along

mod names;
mod removal;

pub(crate) use removal::marked;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

use cache::{FieldSpec, Item, Spec};
use machinery::Status;
use parking_lot::Mutex;
use schema::custom::{Installed, installed};
use schema::kind::Kind;
use tokio::sync::watch;

use crate::registry::Registry;
use crate::request::{Context, Target};

/// Where definitions live.
pub(crate) const COLLECTION: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Who writes the status of definitions.
const MANAGER: &str = "kube-apiserver";

/// What is known of the definitions.
pub(crate) struct Definitions {
    table: Mutex<Table>,
    /// Counts changes, to wake the task that follows up on them.
    changed: watch::Sender<u64>,
    /// The registry itself, for streams that outlive the call that opened them.
    registry: OnceLock<Weak<Registry>>,
    /// Definitions whose instances are being deleted, by uid.
    leaving: Mutex<HashSet<String>>,
}

#[derive(Default)]
struct Table {
    /// By name, with the revision they were read at.
    known: BTreeMap<String, (machinery::Revision, Arc<Installed>)>,
}

impl Default for Definitions {
    fn default() -> Self {
        let changed = watch::Sender::new(0);
        Definitions { table: Mutex::default(), changed, registry: OnceLock::new(), leaving: Mutex::default() }
    }
}

impl Definitions {
    pub(crate) fn registry(&self) -> Weak<Registry> {
        self.registry.get().cloned().unwrap_or_default()
    }
}

impl Registry {
    /// Begins to follow the definitions; those that are there are served at once.
    pub(crate) fn follow_definitions(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let _ = self.definitions.registry.set(weak.clone());
        self.cache.observe(COLLECTION, move || {
            if let Some(registry) = weak.upgrade() {
                registry.sync_definitions();
            }
        });
        self.sync_definitions();
        tokio::spawn(keep(Arc::downgrade(self), self.definitions.changed.subscribe()));
        self.definitions.changed.send_modify(|count| *count += 1);
    }

    /// Brings the table of kinds up to what the cache holds.
    fn sync_definitions(&self) {
        let collection = self.cache.collection(COLLECTION);
        let snapshot = self.cache.snapshot(&collection);
        let mut table = self.definitions.table.lock();
        let mut kinds = (*self.kinds()).clone();
        let mut ended: Vec<String> = Vec::new();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut touched = false;
        let items: Vec<&Arc<Item>> = snapshot.scan(COLLECTION, None, None).collect();
        for item in &items {
            seen.insert(item.name());
            let before = table.known.get(item.name());
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
                self.cache.specify(&installed.collection, selectable(&installed.kinds));
            }
            for kind in &installed.kinds {
                // A built-in kind cannot be replaced.
                if kinds.get(&kind.gvk.group, &kind.gvk.version, &kind.plural).is_none_or(|there| there.custom) {
                    kinds = kinds.with_shared(Arc::clone(kind));
                }
            }
            table.known.insert(item.name().to_owned(), (item.revision(), Arc::new(installed)));
        }
        let gone: Vec<String> = table.known.keys().filter(|name| !seen.contains(name.as_str())).cloned().collect();
        for name in gone {
            touched = true;
            kinds = kinds.without(|kind| is_of(kind, &name));
            ended.extend(table.known.remove(&name).map(|(_, installed)| installed.collection.clone()));
        }
        if !touched {
            return;
        }
        self.serve(kinds);
        drop(table);
        for collection in ended {
            self.cache.collection(&collection).end_watches();
        }
        self.definitions.changed.send_modify(|count| *count += 1);
    }

    /// What is known of the definitions.
    fn known_definitions(&self) -> Vec<Arc<Installed>> {
        self.definitions.table.lock().known.values().map(|(_, installed)| Arc::clone(installed)).collect()
    }

    /// The status door of a definition.
    fn definition_target(&self, name: &str) -> Result<Target, Status> {
        let kinds = self.kinds();
        let kind = kinds.get("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let kind = Arc::clone(kind.ok_or_else(|| Status::internal("definitions are not served"))?);
        Ok(Target { kind, namespace: None, name: Some(name.to_owned()), subresource: Some("status".to_owned()) })
    }
}

/// Follows up on changed definitions for as long as the registry lives.
async fn keep(registry: Weak<Registry>, mut changed: watch::Receiver<u64>) {
    while changed.changed().await.is_ok() {
        let Some(registry) = registry.upgrade() else { return };
        let ctx = Context::default();
        registry.accept_names(&ctx).await;
        registry.remove_leaving(&ctx);
    }
}

fn is_of(kind: &Kind, name: &str) -> bool {
    kind.definition.as_ref().is_some_and(|definition| definition.name == name)
}

/// What can be selected on: of all versions, since they share their objects.
fn selectable(kinds: &[Arc<Kind>]) -> Spec {
    let mut fields: Vec<FieldSpec> = Vec::new();
    for field in kinds.iter().flat_map(|kind| &kind.fields) {
        let generic = matches!(field.label.as_str(), "metadata.name" | "metadata.namespace");
        if !generic && !fields.iter().any(|known| known.label == field.label) {
            fields.push(FieldSpec {
                label: field.label.clone(),
                paths: field.paths.clone(),
                absent: field.absent.clone(),
            });
        }
    }
    Spec::new(fields)
}
