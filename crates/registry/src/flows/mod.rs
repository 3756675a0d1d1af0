//! Priority levels and flow schemas: to which flow a request belongs, and how much of the server that flow may have.
//!
//! - this file follows the objects in the cache and keeps the table as new as they are
//! - [`table`] finds the flow of a request
//! - `bootstrap` creates and restores the objects that every cluster has
//! - `status` reports schemas whose level is missing

pub(crate) mod bootstrap;
pub(crate) mod status;
pub mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cache::{Collection, Collections, Event, Item, Observer};
use machinery::Revision;
use machinery::json::Value;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::collections::{FLOW_SCHEMAS, PRIORITY_LEVELS};
use crate::read::view;
use table::{FlowSchema, FlowTable, PriorityLevel};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Keeps the table of flows.
#[derive(Default)]
pub(crate) struct Flows {
    table: ArcSwap<FlowTable>,
    objects: Mutex<Objects>,
    /// Notified when an object that every cluster has was changed or deleted.
    changes: Arc<Notify>,
}

#[derive(Default)]
struct Objects {
    levels: BTreeMap<String, Arc<PriorityLevel>>,
    schemas: BTreeMap<String, Arc<FlowSchema>>,
}

impl Flows {
    pub(crate) fn table(&self) -> arc_swap::Guard<Arc<FlowTable>> {
        self.table.load()
    }

    fn change(&self, change: impl FnOnce(&mut Objects)) {
        let mut objects = self.objects.lock();
        change(&mut objects);
        self.table.store(Arc::new(FlowTable::new(objects.levels.values(), objects.schemas.values())));
    }
}

impl Objects {
    fn set(&mut self, collection: &str, item: &Item) {
        let (name, Some(object)) = (item.name().to_owned(), read(item)) else {
            return self.remove(collection, item.name());
        };
        if collection == PRIORITY_LEVELS {
            self.levels.insert(name, Arc::new(PriorityLevel::read(&object)));
        } else {
            self.schemas.insert(name, Arc::new(FlowSchema::read(&object)));
        }
    }

    fn remove(&mut self, collection: &str, name: &str) {
        if collection == PRIORITY_LEVELS {
            self.levels.remove(name);
        } else {
            self.schemas.remove(name);
        }
    }
}

/// An object that cannot be read limits nothing.
fn read(item: &Item) -> Option<Value> {
    view::parse(item).inspect_err(|error| tracing::error!(%error, "a flow schema or priority level is not used")).ok()
}

impl Observer for Flows {
    fn observes(&self, collection: &str) -> bool {
        matches!(collection, FLOW_SCHEMAS | PRIORITY_LEVELS)
    }

    fn loaded(&self, _: &Collections, collection: &Collection, _: Revision) {
        let items = collection.objects();
        self.change(|objects| {
            if collection.name() == PRIORITY_LEVELS {
                objects.levels.clear();
            } else {
                objects.schemas.clear();
            }
            items.scan(collection.name(), None, None).for_each(|item| objects.set(collection.name(), item));
        });
    }

    fn changed(&self, _: &Collections, changes: &[Arc<Event>]) {
        self.change(|objects| {
            for event in changes {
                match (event.current(), event.previous()) {
                    (Some(item), _) => objects.set(event.key().collection(), item),
                    (None, Some(gone)) => objects.remove(event.key().collection(), gone.name()),
                    (None, None) => {}
                }
            }
        });
        // Creation is not among these: the objects are created with what they must have.
        let is_changed = |event: &Arc<Event>| event.previous().is_some_and(|item| bootstrap::is_kept(item.name()));
        if changes.iter().any(is_changed) {
            self.changes.notify_one();
        }
    }
}
