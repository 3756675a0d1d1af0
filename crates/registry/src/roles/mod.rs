//! Roles and bindings as objects: what they do beyond being stored.
//!
//! - this file follows them in the cache and keeps the index of the authorizer ([`access::Rbac`]) as new as they are
//! - `aggregation` writes the rules of ClusterRoles that collect those of others
//! - `bootstrap` creates and restores the ones that every cluster has
//! - `escalation` refuses a write that grants more than its user holds
//!
//! ```text
//!   write of a role ─► escalation ─► store ─► cache ─► index, before the write is answered
//!                                               └────► aggregated roles are written, before the write is answered
//! ```

mod aggregation;
mod bootstrap;
pub(crate) mod escalation;

use std::sync::Arc;

use access::Rbac;
use access::rbac::Index;
use access::rbac::objects::{Binding, Name, Role};
use cache::{Collection, Collections, Event, Item, Observer};
use machinery::Revision;
use machinery::json::Value;
use parking_lot::Mutex;

use crate::collections::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
use crate::read::view;
use aggregation::Aggregation;
pub(crate) use aggregation::{follow, settle};
pub(crate) use bootstrap::restore;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// The field manager of roles that the server writes, as in the reference.
const MANAGER: &str = "kube-apiserver";

/// Keeps what is derived from the roles and bindings in the cache.
pub(crate) struct Roles {
    rbac: Arc<Rbac>,
    aggregation: Aggregation,
    /// Why the objects that every cluster has are not all there.
    unrestored: Mutex<Option<String>>,
    /// The last change that is in the index; held while the index changes.
    last: Mutex<Revision>,
    /// While a fork is loaded.
    origin: Mutex<Origin>,
}

/// Where the index of a fork comes from.
enum Origin {
    /// From its objects.
    Objects,
    /// From the roles of the registry that it was forked from, if they have not changed since.
    Fork(Arc<Roles>),
    /// It has been taken from there.
    Taken,
}

impl Roles {
    pub(crate) fn new(rbac: Arc<Rbac>) -> Self {
        let unrestored = Mutex::new(Some("not finished".to_owned()));
        let (last, origin) = (Mutex::new(Revision::ZERO), Mutex::new(Origin::Objects));
        Roles { rbac, aggregation: Aggregation::default(), unrestored, last, origin }
    }

    /// The roles of a fork: reading some seventy roles again would be the larger part of making it.
    pub(crate) fn fork(self: &Arc<Self>, rbac: Arc<Rbac>) -> Self {
        Roles { origin: Mutex::new(Origin::Fork(Arc::clone(self))), ..Roles::new(rbac) }
    }

    /// Takes the index of the origin for a fork at a revision. False if it has changed since, or there is no origin.
    fn take_origin(&self, revision: Revision) -> bool {
        let mut from = self.origin.lock();
        let origin = match &*from {
            Origin::Objects => return false,
            Origin::Taken => return true,
            Origin::Fork(origin) => Arc::clone(origin),
        };
        let last = origin.last.lock();
        if *last > revision {
            *from = Origin::Objects;
            return false;
        }
        self.rbac.set_index(origin.rbac.index());
        self.aggregation.copy(&origin.aggregation);
        *self.last.lock() = *last;
        *from = Origin::Taken;
        true
    }

    /// The readiness check of the objects that every cluster has.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.unrestored.lock().clone().map_or(Ok(()), Err)
    }

    /// The objects that every cluster has are those of the registry that this one was forked from.
    pub(crate) fn set_restored(&self) {
        *self.unrestored.lock() = None;
        // What is loaded from now on is not what was forked.
        *self.origin.lock() = Origin::Objects;
    }

    fn set(&self, index: &mut Index, collection: &str, item: &Item) {
        let name = name(item);
        let Some(object) = read(item) else { return remove(index, collection, &name) };
        match collection {
            ROLES | CLUSTER_ROLES => index.set_role(Role::from_value(name, &object)),
            _ => index.set_binding(Binding::from_value(name, &object)),
        }
    }
}

impl Observer for Roles {
    fn observes(&self, collection: &str) -> bool {
        matches!(collection, ROLES | CLUSTER_ROLES | ROLE_BINDINGS | CLUSTER_ROLE_BINDINGS)
    }

    fn loaded(&self, _: &Collections, collection: &Collection, revision: Revision) {
        if self.take_origin(revision) {
            return;
        }
        let mut last = self.last.lock();
        *last = revision.max(*last);
        let name_of = collection.name();
        let objects = collection.objects();
        let items: Vec<(Name, Value)> =
            objects.scan(name_of, None, None).filter_map(|item| Some((name(item), read(item)?))).collect();
        if name_of == CLUSTER_ROLES {
            self.aggregation.load(&items);
        }
        self.rbac.change(|index| match name_of {
            ROLES | CLUSTER_ROLES => {
                let roles = items.into_iter().map(|(name, value)| Role::from_value(name, &value));
                index.load_roles(name_of == ROLES, roles);
            }
            _ => {
                let bindings = items.into_iter().map(|(name, value)| Binding::from_value(name, &value));
                index.load_bindings(name_of == ROLE_BINDINGS, bindings);
            }
        });
    }

    fn changed(&self, _: &Collections, changes: &[Arc<Event>]) {
        let mut last = self.last.lock();
        *last = changes.last().map_or(*last, |event| event.revision().max(*last));
        self.rbac.change(|index| {
            for event in changes {
                let collection = event.key().collection();
                match (event.current(), event.previous()) {
                    (Some(item), _) => self.set(index, collection, item),
                    (None, Some(gone)) => remove(index, collection, &name(gone)),
                    (None, None) => {}
                }
            }
        });
        // After the rules are in the index, where the aggregation reads them.
        for event in changes.iter().filter(|event| event.key().collection() == CLUSTER_ROLES) {
            if let Some(item) = event.current().or(event.previous()) {
                self.aggregation.change(item.name(), event.current().and_then(|item| read(item)).as_ref());
            }
        }
    }
}

fn name(item: &Item) -> Name {
    Name::new(item.namespace(), item.name())
}

/// An object that cannot be read gives no rights.
fn read(item: &Item) -> Option<Value> {
    view::parse(item).inspect_err(|error| tracing::error!(%error, "a role or binding gives no rights")).ok()
}

fn remove(index: &mut Index, collection: &str, name: &Name) {
    match collection {
        ROLES | CLUSTER_ROLES => index.remove_role(name),
        _ => index.remove_binding(name),
    }
}

#[cfg(test)]
mod tests {
    use access::User;
    use access::authorizer::{Attributes, ResourceAttributes, What};
    use cache::{Cache, Config, Spec};
    use machinery::json::json;
    use store::memory::MemoryStore;
    use store::{Key, Retention, Store};

    use super::*;

    async fn store_of(objects: &[(&str, &str, Value)]) -> Arc<dyn Store> {
        let store = MemoryStore::new(Retention::default());
        for (collection, path, object) in objects {
            let key = Key::new(format!("{collection}/{path}")).unwrap();
            let mut stored = json!({"kind": "K", "apiVersion": "rbac.authorization.k8s.io/v1"});
            for (name, member) in object.as_object().unwrap() {
                stored[name.as_str()] = member.clone();
            }
            store.create(key, crate::storage::encode(&stored).unwrap()).await.unwrap();
        }
        Arc::new(store)
    }

    fn may_get_pods(rbac: &Rbac, user: &str) -> bool {
        let user = User { name: user.to_owned(), ..User::default() };
        let about = ResourceAttributes { resource: "pods", namespace: "n", ..ResourceAttributes::default() };
        rbac.decide(&Attributes { user: &user, verb: "get", what: What::Resource(about) }).allowed
    }

    /// What a cache loads, at its start or after it lost the log, replaces everything from before.
    #[tokio::test]
    async fn a_reload_gives_and_takes_rights() {
        let rbac: Arc<Rbac> = Arc::default();
        let roles = Arc::new(Roles::new(Arc::clone(&rbac)));
        let reader =
            json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        let to = |user: &str| {
            json!({
                "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": user}],
            })
        };
        let collections = [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS];
        let load = async |objects: &[(&str, &str, Value)]| {
            let specs = collections.map(|name| (name.to_owned(), Spec::new(Vec::new())));
            let observers: Vec<Arc<dyn Observer>> = vec![Arc::clone(&roles) as _];
            Cache::start(store_of(objects).await, specs, Config::default(), observers).await.unwrap()
        };
        let before = load(&[(CLUSTER_ROLES, "r", reader.clone()), (CLUSTER_ROLE_BINDINGS, "b", to("alice"))]).await;
        assert!(may_get_pods(&rbac, "alice") && !may_get_pods(&rbac, "bob"));
        drop(before);
        let now = load(&[(CLUSTER_ROLES, "r", reader), (ROLE_BINDINGS, "n/b", to("bob"))]).await;
        assert!(!may_get_pods(&rbac, "alice") && may_get_pods(&rbac, "bob"));
        drop(now);
        load(&[(ROLE_BINDINGS, "n/b", to("bob"))]).await;
        assert!(!may_get_pods(&rbac, "bob"), "the role is gone");
    }
}
