//! Decides on a request by the current index.

use std::collections::BTreeSet;
use std::sync::Arc;

use machinery::json::Text;
use smallvec::SmallVec;

use super::grants::{Grants, Resolved};
use super::index::{Index, Places};
use super::objects::{Binding, Role};
use crate::authorizer::{Attributes, Decision, RuleList, What};
use crate::identity::User;

/// The grants of a user by name and of its groups.
type Held<'i> = SmallVec<[&'i Places; 8]>;

/// A binding of a user with its role, for explanations.
#[derive(Clone, Debug)]
pub struct Granted {
    pub binding: Arc<Binding>,
    /// The subject through which it is granted.
    pub subject: usize,
    /// None if the role does not exist.
    pub role: Option<Arc<Role>>,
}

/// A decision, and what it depends on.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// Whether a rule of the user names objects, so that the decision may be another one for another object.
    pub(super) by_name: bool,
}

impl Index {
    /// Decides by the bindings of the cluster, then by those of the namespace of the request.
    #[must_use]
    pub fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        self.decided(attributes).decision
    }

    /// As [`Index::decide`], with what the decision depends on.
    pub(super) fn decided(&self, attributes: &Attributes<'_>) -> Decided {
        let held = self.held(attributes.user);
        let mut by_name = false;
        let namespace = match attributes.what {
            What::Resource(about) => about.namespace,
            What::Path(_) => "",
        };
        for grants in held.iter().filter_map(|places| places.cluster.as_deref()) {
            by_name |= self.resolved(grants).has_names;
            if let Some(reason) = self.find(attributes, grants, &held, "") {
                return Decided { decision: Decision::allow(reason), by_name };
            }
        }
        for grants in held.iter().filter_map(|places| places.in_namespace(namespace)) {
            by_name |= self.resolved(grants).has_names;
            if let Some(reason) = self.find(attributes, grants, &held, namespace) {
                return Decided { decision: Decision::allow(reason), by_name };
            }
        }
        Decided { decision: self.refusal(&held, namespace), by_name }
    }

    fn held(&self, user: &User) -> Held<'_> {
        self.user(&user.name).into_iter().chain(user.groups.iter().filter_map(|group| self.group(group))).collect()
    }

    fn resolved<'i>(&'i self, grants: &'i Grants) -> &'i Resolved {
        grants.resolved(|binding| self.role_of(binding))
    }

    /// The reason why these grants allow a request.
    fn find(&self, attributes: &Attributes<'_>, grants: &Grants, held: &Held<'_>, namespace: &str) -> Option<Text> {
        let resolved = self.resolved(grants);
        let at = resolved.find(attributes.verb, &attributes.what)?;
        let grant = &grants.bindings()[at];
        if grant.subject > 0 {
            // The reason names the first subject of the binding that the user is.
            let others = held.iter().filter_map(|places| place(places, namespace));
            let first = others.filter_map(|grants| grants.subject_of(&grant.binding)).min();
            if let Some(subject) = first.and_then(|first| grant.binding.subjects.get(first)) {
                return Some(grant.binding.reason(subject).into());
            }
        }
        Some(resolved.roles[at].reason.clone())
    }

    /// Names the roles that are missing: one of them might have allowed the request.
    fn refusal(&self, held: &Held<'_>, namespace: &str) -> Decision {
        let mut missing = Vec::new();
        self.missing_roles(held, "", &mut missing);
        if !namespace.is_empty() {
            self.missing_roles(held, namespace, &mut missing);
        }
        if missing.is_empty() {
            return Decision::no_opinion();
        }
        Decision::no_opinion_because(format!("RBAC: {}", joined(&missing)))
    }

    fn missing_roles(&self, held: &Held<'_>, namespace: &str, missing: &mut Vec<String>) {
        let mut texts = BTreeSet::new();
        for grants in held.iter().filter_map(|places| place(places, namespace)) {
            let resolved = self.resolved(grants);
            if resolved.has_missing {
                let absent = grants.bindings().iter().zip(&resolved.roles).filter(|(_, role)| role.role.is_none());
                texts.extend(absent.map(|(grant, _)| grant.binding.missing_role()));
            }
        }
        missing.extend(texts);
    }

    /// The bindings of a user that hold in a namespace, those of the cluster first, each once.
    #[must_use]
    pub fn granted(&self, user: &User, namespace: &str) -> Vec<Granted> {
        let held = self.held(user);
        let mut granted = self.granted_in(&held, "");
        if !namespace.is_empty() {
            granted.extend(self.granted_in(&held, namespace));
        }
        granted
    }

    /// All bindings of a user, in whatever namespace.
    #[must_use]
    pub fn granted_anywhere(&self, user: &User) -> Vec<Granted> {
        let held = self.held(user);
        let namespaces: BTreeSet<&Text> = held.iter().flat_map(|places| places.namespaces.keys()).collect();
        let mut granted = self.granted_in(&held, "");
        granted.extend(namespaces.into_iter().flat_map(|namespace| self.granted_in(&held, namespace)));
        granted
    }

    fn granted_in(&self, held: &Held<'_>, namespace: &str) -> Vec<Granted> {
        let mut granted: Vec<Granted> = Vec::new();
        for grants in held.iter().filter_map(|places| place(places, namespace)) {
            for (grant, resolved) in grants.bindings().iter().zip(&self.resolved(grants).roles) {
                let (binding, role) = (Arc::clone(&grant.binding), resolved.role.clone());
                granted.push(Granted { binding, subject: grant.subject, role });
            }
        }
        let order = |granted: &Granted| (granted.binding.name.clone(), granted.subject);
        granted.sort_by_cached_key(order);
        granted.dedup_by(|later, first| later.binding.name == first.binding.name);
        granted
    }

    /// The rules of a user in a namespace, as the roles state them, and the roles that are missing.
    #[must_use]
    pub fn rules_for(&self, user: &User, namespace: &str) -> RuleList {
        let mut list = RuleList::default();
        let mut known = BTreeSet::new();
        for granted in self.granted(user, namespace) {
            match &granted.role {
                Some(role) => list.rules.extend(role.rules.iter().cloned()),
                None => {
                    let missing = granted.binding.missing_role();
                    if known.insert(missing.clone()) {
                        list.errors.push(missing);
                    }
                }
            }
        }
        list
    }
}

fn place<'i>(places: &&'i Places, namespace: &str) -> Option<&'i Grants> {
    if namespace.is_empty() {
        places.cluster.as_deref()
    } else {
        places.namespaces.get(namespace).map(|grants| &**grants)
    }
}

/// Several errors as one text: equal ones once, more than one in brackets.
#[must_use]
pub fn joined(errors: &[String]) -> String {
    let mut known = BTreeSet::new();
    let unique: Vec<&str> = errors.iter().map(String::as_str).filter(|error| known.insert(*error)).collect();
    match unique.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
