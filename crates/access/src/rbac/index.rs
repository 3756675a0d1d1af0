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

use std::sync::Arc;

use foldhash::quality::RandomState;
use imbl::shared_ptr::DefaultSharedPtr;
use imbl::{GenericHashMap, OrdSet};
use machinery::json::Text;

use super::grants::{Grant, Grants};
use super::objects::{Binding, Name, Role};

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

    #[must_use]
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    #[must_use]
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
        let mut gone: Vec<Name> =
            self.roles.keys().filter(|name| name.namespace.is_empty() != of_namespaces).cloned().collect();
        gone.sort_unstable();
        for role in roles {
            if let Ok(at) = gone.binary_search(&role.name) {
                gone.remove(at);
            }
            self.set_role(role);
        }
        gone.iter().for_each(|name| self.remove_role(name));
    }

    /// Replaces all bindings of the cluster (or all of namespaces) by these.
    pub fn load_bindings(&mut self, of_namespaces: bool, bindings: impl IntoIterator<Item = Binding>) {
        let mut gone: Vec<Name> =
            self.bindings.keys().filter(|name| name.namespace.is_empty() != of_namespaces).cloned().collect();
        gone.sort_unstable();
        for binding in bindings {
            if let Ok(at) = gone.binary_search(&binding.name) {
                gone.remove(at);
            }
            self.set_binding(binding);
        }
        gone.iter().for_each(|name| self.remove_binding(name));
    }

    /// Drops what was derived from the former state of a role.
    fn resolve_anew(&mut self, role: &Name) {
        let Some(referrers) = self.referrers.get(role).cloned() else { return };
        for name in &referrers {
            let Some(binding) = self.bindings.get(name).cloned() else { continue };
            for subject in 0..binding.subjects.len() {
                self.change_subject(&binding, subject, |places| {
                    if let Some(held) = places.get(&name.namespace) {
                        let anew = held.unresolved();
                        places.set(&name.namespace, Some(anew));
                    }
                });
            }
        }
    }

    fn change_subject(&mut self, binding: &Binding, subject: usize, change: impl FnOnce(&mut Places)) {
        let Some(subject) = binding.subjects.get(subject) else { return };
        let (map, key) = match subject.user(&binding.name.namespace) {
            Some(user) => (&mut self.users, user),
            None if subject.kind == super::objects::SubjectKind::Group => (&mut self.groups, subject.name.clone()),
            // An account without a namespace is no user.
            None => return,
        };
        let places = map.entry(key.clone()).or_default();
        change(places);
        if places.is_empty() {
            map.remove(&key);
        }
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
