//! All policies of one kind with their bindings.
//!
//! The table follows the cache from inside its feed: a policy acts for every request that begins after its write was
//! answered, and no longer after its delete was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use cache::{Collection, Collections, Event, Item, Observer};
use machinery::Revision;
use machinery::json::Value;
use parking_lot::Mutex;

use super::super::matching::Index;
use super::super::plugin::Attributes;
use super::compiled::{Binding, Policy};
use crate::read::view;

/// The collection of validating policies.
pub(super) const VALIDATING: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";

/// A policy that is bound.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(super) policy: Arc<Policy>,
    /// By name; at least one.
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// All policies of one kind.
pub(crate) struct Table {
    policies: &'static str,
    bindings: &'static str,
    validates: bool,
    /// Whether the index has entries: every write asks, and this is cheaper than the index.
    is_used: AtomicBool,
    index: ArcSwap<Index<Bound>>,
    known: Mutex<Known>,
}

/// What was read so far, by name, with the revision of each object. Objects that cannot be used are none.
#[derive(Default)]
struct Known {
    policies: Read<Policy>,
    bindings: Read<Binding>,
}

type Read<T> = BTreeMap<String, (Revision, Option<Arc<T>>)>;

impl Table {
    pub(crate) fn validating() -> Self {
        Table::new(VALIDATING, "admissionregistration.k8s.io/validatingadmissionpolicybindings", true)
    }

    pub(crate) fn mutating() -> Self {
        Table::new(
            "admissionregistration.k8s.io/mutatingadmissionpolicies",
            "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
            false,
        )
    }

    /// Whether these policies are in this collection.
    pub(super) fn holds(&self, collection: &str) -> bool {
        collection == self.policies
    }

    fn new(policies: &'static str, bindings: &'static str, validates: bool) -> Self {
        let (is_used, index, known) = (AtomicBool::new(false), ArcSwap::default(), Mutex::default());
        Table { policies, bindings, validates, is_used, index, known }
    }

    pub(super) fn index(&self) -> Guard<Arc<Index<Bound>>> {
        self.index.load()
    }

    /// Whether a policy may apply to a request. Every write asks.
    pub(super) fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        self.is_used.load(Ordering::Acquire) && self.index().concerns(attributes)
    }

    /// Compiles a policy, so that no request that it applies to has to.
    pub(super) fn compile(&self, name: &str) {
        let policy = self.known.lock().policies.get(name).and_then(|(_, policy)| policy.clone());
        if let Some(policy) = policy {
            policy.code();
        }
    }

    /// Reads what changed, and makes a new index.
    fn sync(&self, collections: &Collections) {
        let mut known = self.known.lock();
        let (policies, bindings) = (collections.get(self.policies), collections.get(self.bindings));
        refresh(&mut known.policies, &policies, |object| Policy::read(object, self.validates), Policy::is_still);
        refresh(&mut known.bindings, &bindings, Binding::read, |_, _| false);
        // A binding without its policy does nothing, and neither does a policy without a binding.
        let mut bindings: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
        for binding in known.bindings.values().filter_map(|(_, binding)| binding.as_ref()) {
            bindings.entry(&binding.policy).or_default().push(Arc::clone(binding));
        }
        let policies = known.policies.values().filter_map(|(_, policy)| policy.as_ref());
        let bound = policies.filter_map(|policy| {
            let bindings = bindings.remove(policy.name.as_str())?;
            Some(Arc::new(Bound { policy: Arc::clone(policy), bindings }))
        });
        let index = Index::new(bound.collect(), |bound: &Bound| &bound.policy.criteria);
        let is_used = !index.all().is_empty();
        self.index.store(Arc::new(index));
        self.is_used.store(is_used, Ordering::Release);
    }
}

/// Reads the objects of a collection that changed. What `is_still` the same stays, with what was compiled of it.
fn refresh<T>(
    known: &mut Read<T>,
    collection: &Collection,
    read: impl Fn(&Value) -> Result<T, String>,
    is_still: impl Fn(&T, &Value) -> bool,
) {
    let objects = collection.objects();
    let mut before = std::mem::take(known);
    for item in objects.scan(collection.name(), None, None) {
        let entry = match before.remove(item.name()) {
            Some(entry) if entry.0 == item.revision() => entry,
            former => (item.revision(), read_item(item, former.and_then(|(_, read)| read), &read, &is_still)),
        };
        known.insert(item.name().to_owned(), entry);
    }
}

fn read_item<T>(
    item: &Arc<Item>,
    former: Option<Arc<T>>,
    read: impl Fn(&Value) -> Result<T, String>,
    is_still: impl Fn(&T, &Value) -> bool,
) -> Option<Arc<T>> {
    let parsed = view::parse(item).map_err(|error| error.to_string());
    let object = parsed.and_then(|object| match former {
        Some(former) if is_still(&former, &object) => Ok(former),
        _ => read(&object).map(Arc::new),
    });
    match object {
        Ok(read) => Some(read),
        Err(error) => {
            tracing::error!(key = %item.key(), %error, "an admission policy or binding cannot be read and is not used");
            None
        }
    }
}

impl Observer for Table {
    fn observes(&self, collection: &str) -> bool {
        collection == self.policies || collection == self.bindings
    }

    fn loaded(&self, collections: &Collections, _: &Collection, _: Revision) {
        self.sync(collections);
    }

    fn changed(&self, collections: &Collections, _: &[Arc<Event>]) {
        self.sync(collections);
    }
}
