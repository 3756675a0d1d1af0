//! Roles and bindings, indexed by the subjects that requests name.
//!
//! ```text
//!   user alice ──► cluster:     [binding b ─► role]
//!              └─► namespace n: [binding c ─► role, binding d ─► role]
//!   role r     ──► bindings that refer to it, whose grants are resolved anew when it changes
//! ```
//!
//! All maps share structure with the index they were changed from, so an index is never changed in place: a decision takes the
//! current one and is not disturbed by writers, which would wait for readers (or readers for them) if the maps were locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::quality::RandomState;
use imbl::shared_ptr::DefaultSharedPtr;
use imbl::{GenericHashMap, OrdSet};
use machinery::json::Text;

use super::grants::{Grant, Grants};
use super::objects::{Binding, Name, Role, SubjectKind};

type HashMap<K, V> = GenericHashMap<K, V, RandomState, DefaultSharedPtr>;

/// The roles and bindings of a cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Index {
    roles: HashMap<Name, Arc<Role>>,
    bindings: HashMap<Name, Arc<Binding>>,
    /// The bindings of a role, whether or not it exists.
    referrers: HashMap<Name, OrdSet<Name>>,
    /// Users and service accounts by the name of the user.
    users: HashMap<Text, Places>,
    groups: HashMap<Text, Places>,
}

/// The grants of a subject by place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) cluster: Option<Arc<Grants>>,
    pub(crate) namespaces: HashMap<Text, Arc<Grants>>,
}

impl Places {
    pub(crate) fn in_namespace(&self, namespace: &str) -> Option<&Arc<Grants>> {
        if namespace.is_empty() { None } else { self.namespaces.get(namespace) }
    }

    fn get(&self, namespace: &str) -> Option<&Arc<Grants>> {
        if namespace.is_empty() { self.cluster.as_ref() } else { self.namespaces.get(namespace) }
    }

    fn set(&mut self, namespace: &Text, grants: Option<Grants>) {
        let grants = grants.map(Arc::new);
        if namespace.is_empty() {
            self.cluster = grants;
        } else if let Some(grants) = grants {
            self.namespaces.insert(namespace.clone(), grants);
        } else {
            self.namespaces.remove(namespace);
        }
    }

    fn is_empty(&self) -> bool {
        self.cluster.is_none() && self.namespaces.is_empty()
    }
}

impl Index {
    #[must_use]
    pub fn role(&self, name: &Name) -> Option<&Arc<Role>> {
        self.roles.get(name)
    }

    /// The role that a binding grants.
    #[must_use]
    pub fn role_of(&self, binding: &Binding) -> Option<Arc<Role>> {
        self.roles.get(&binding.role_name()?).cloned()
    }

    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    pub fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    pub(crate) fn user(&self, name: &str) -> Option<&Places> {
        self.users.get(name)
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Places> {
        self.groups.get(name)
    }

    pub fn set_role(&mut self, role: Role) {
        if self.roles.get(&role.name).is_some_and(|held| **held == role) {
            return;
        }
        let name = role.name.clone();
        self.roles.insert(name.clone(), Arc::new(role));
        self.resolve_anew(&name);
    }

    pub fn remove_role(&mut self, name: &Name) {
        if self.roles.remove(name).is_some() {
            self.resolve_anew(name);
        }
    }

    pub fn set_binding(&mut self, binding: Binding) {
        if self.bindings.get(&binding.name).is_some_and(|held| **held == binding) {
            return;
        }
        self.remove_binding(&binding.name);
        let binding = Arc::new(binding);
        let namespace = &binding.name.namespace;
        for subject in 0..binding.subjects.len() {
            let grant = Grant { binding: Arc::clone(&binding), subject };
            self.change_subject(&binding, subject, |places| {
                let grants = places
                    .get(namespace)
                    .map_or_else(|| Grants::default().with(grant.clone()), |held| held.with(grant.clone()));
                places.set(namespace, Some(grants));
            });
        }
        if let Some(role) = binding.role_name() {
            self.referrers.entry(role).or_default().insert(binding.name.clone());
        }
        self.bindings.insert(binding.name.clone(), binding);
    }

    pub fn remove_binding(&mut self, name: &Name) {
        let Some(binding) = self.bindings.remove(name) else { return };
        let namespace = &binding.name.namespace;
        for subject in 0..binding.subjects.len() {
            self.change_subject(&binding, subject, |places| {
                if let Some(held) = places.get(namespace) {
                    let rest = held.without(&binding);
                    places.set(namespace, rest);
                }
            });
        }
        if let Some(role) = binding.role_name()
            && let Some(referrers) = self.referrers.get_mut(&role)
        {
            referrers.remove(name);
            if referrers.is_empty() {
                self.referrers.remove(&role);
            }
        }
    }

    /// Replaces all roles of the cluster (or all of namespaces) by these.
    pub fn load_roles(&mut self, of_namespaces: bool, roles: impl IntoIterator<Item = Role>) {
        self.roles.retain(|name, _| name.namespace.is_empty() == of_namespaces);
        self.roles.extend(roles.into_iter().map(|role| (role.name.clone(), Arc::new(role))));
        self.rebuild();
    }

    /// Replaces all bindings of the cluster (or all of namespaces) by these.
    pub fn load_bindings(&mut self, of_namespaces: bool, bindings: impl IntoIterator<Item = Binding>) {
        self.bindings.retain(|name, _| name.namespace.is_empty() == of_namespaces);
        self.bindings.extend(bindings.into_iter().map(|binding| (binding.name.clone(), Arc::new(binding))));
        self.rebuild();
    }

    /// Derives everything from the roles and bindings: for many of them at once, in time proportional to their number.
    fn rebuild(&mut self) {
        let mut all: Vec<&Arc<Binding>> = self.bindings.values().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut referrers: HashMap<Name, OrdSet<Name>> = HashMap::default();
        let mut grants: BTreeMap<(Key, &Text), Vec<Grant>> = BTreeMap::new();
        for binding in all {
            if let Some(role) = binding.role_name() {
                referrers.entry(role).or_default().insert(binding.name.clone());
            }
            for subject in 0..binding.subjects.len() {
                let Some(key) = key(binding, subject) else { continue };
                let held = grants.entry((key, &binding.name.namespace)).or_default();
                // The first subject of a binding that is meant counts.
                if held.last().is_none_or(|last| !Arc::ptr_eq(&last.binding, binding)) {
                    held.push(Grant { binding: Arc::clone(binding), subject });
                }
            }
        }
        let (mut users, mut groups): (HashMap<Text, Places>, HashMap<Text, Places>) = Default::default();
        for ((key, namespace), held) in grants {
            let places = match key {
                Key::User(name) => users.entry(name).or_default(),
                Key::Group(name) => groups.entry(name).or_default(),
            };
            places.set(namespace, Some(Grants::new(held)));
        }
        (self.referrers, self.users, self.groups) = (referrers, users, groups);
    }

    /// Drops what was derived from the former state of a role.
    fn resolve_anew(&mut self, role: &Name) {
        let Some(referrers) = self.referrers.get(role) else { return };
        let mut concerned: BTreeSet<(Key, Text)> = BTreeSet::new();
        for binding in referrers.iter().filter_map(|name| self.bindings.get(name)) {
            let subjects = (0..binding.subjects.len()).filter_map(|subject| key(binding, subject));
            concerned.extend(subjects.map(|key| (key, binding.name.namespace.clone())));
        }
        for (key, namespace) in concerned {
            self.change_places(key, |places| {
                if let Some(held) = places.get(&namespace) {
                    let anew = held.unresolved();
                    places.set(&namespace, Some(anew));
                }
            });
        }
    }

    fn change_subject(&mut self, binding: &Binding, subject: usize, change: impl FnOnce(&mut Places)) {
        if let Some(key) = key(binding, subject) {
            self.change_places(key, change);
        }
    }

    fn change_places(&mut self, key: Key, change: impl FnOnce(&mut Places)) {
        let (map, name) = match key {
            Key::User(name) => (&mut self.users, name),
            Key::Group(name) => (&mut self.groups, name),
        };
        let places = map.entry(name.clone()).or_default();
        change(places);
        if places.is_empty() {
            map.remove(&name);
        }
    }
}

/// The map and the key of a subject.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    User(Text),
    Group(Text),
}

/// None for a subject that is no one: an account without a namespace.
fn key(binding: &Binding, subject: usize) -> Option<Key> {
    let subject = binding.subjects.get(subject)?;
    match subject.kind {
        SubjectKind::Group => Some(Key::Group(subject.name.clone())),
        SubjectKind::User | SubjectKind::ServiceAccount => subject.user(&binding.name.namespace).map(Key::User),
    }
}

#[cfg(test)]
impl Index {
    /// Whether every binding is known to its role, and no other is.
    pub(crate) fn referrers_are_exact(&self) -> bool {
        let known: usize = self.referrers.values().map(OrdSet::len).sum();
        known == self.bindings.len()
            && self.bindings.values().all(|binding| {
                let role = binding.role_name().and_then(|role| self.referrers.get(&role));
                role.is_some_and(|referrers| referrers.contains(&binding.name))
            })
    }
}
