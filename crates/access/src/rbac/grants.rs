//! What one subject is granted in one place: the cluster, or a namespace.

use std::fmt;
use std::sync::{Arc, OnceLock};

use machinery::json::Text;

use super::objects::{Binding, Role};
use super::rule::Rule;
use super::table::Table;
use crate::authorizer::What;

/// Number of rules from which on they are looked up in a [`Table`] instead of one by one.
const TABLE_RULES_MIN: usize = 96;

/// A binding with the subject in it through which it is granted.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) binding: Arc<Binding>,
    pub(crate) subject: usize,
}

/// The bindings of a subject, by name, with their roles once they were needed.
#[derive(Default)]
pub(crate) struct Grants {
    bindings: Vec<Grant>,
    resolved: OnceLock<Resolved>,
}

/// The bindings with their roles.
pub(crate) struct Resolved {
    /// One for each binding.
    pub(crate) roles: Vec<ResolvedRole>,
    /// Rules as (binding, rule), if there are many.
    table: Option<(Table, Vec<(u32, u32)>)>,
    pub(crate) has_missing: bool,
    /// Whether a rule names objects.
    pub(crate) has_names: bool,
}

pub(crate) struct ResolvedRole {
    /// None if the role does not exist.
    pub(crate) role: Option<Arc<Role>>,
    /// The reason of a decision, which decisions share.
    pub(crate) reason: Text,
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.bindings).finish()
    }
}

impl Grants {
    /// Grants by the names of their bindings.
    pub(crate) fn new(bindings: Vec<Grant>) -> Self {
        Grants { bindings, resolved: OnceLock::new() }
    }

    pub(crate) fn bindings(&self) -> &[Grant] {
        &self.bindings
    }

    /// The grants with one more, or with another state of one.
    pub(crate) fn with(&self, grant: Grant) -> Self {
        let mut bindings = self.bindings.clone();
        match bindings.binary_search_by(|held| held.binding.name.cmp(&grant.binding.name)) {
            // The first subject of a binding that is meant counts.
            Ok(at) if Arc::ptr_eq(&bindings[at].binding, &grant.binding) => {}
            Ok(at) => bindings[at] = grant,
            Err(at) => bindings.insert(at, grant),
        }
        Grants::new(bindings)
    }

    /// The grants without a binding; none if it was the last.
    pub(crate) fn without(&self, binding: &Binding) -> Option<Self> {
        let bindings: Vec<Grant> =
            self.bindings.iter().filter(|held| held.binding.name != binding.name).cloned().collect();
        (!bindings.is_empty()).then(|| Grants::new(bindings))
    }

    /// The same grants, to be resolved anew because a role changed. Also if they were not resolved yet: a reader of the former
    /// index may do that at any time, by the former role.
    pub(crate) fn unresolved(&self) -> Self {
        Grants::new(self.bindings.clone())
    }

    /// The subject through which a binding is granted.
    pub(crate) fn subject_of(&self, binding: &Binding) -> Option<usize> {
        let at = self.bindings.binary_search_by(|held| held.binding.name.cmp(&binding.name)).ok()?;
        Some(self.bindings[at].subject)
    }

    pub(crate) fn resolved(&self, role_of: impl Fn(&Binding) -> Option<Arc<Role>>) -> &Resolved {
        self.resolved.get_or_init(|| Resolved::new(&self.bindings, role_of))
    }
}

impl Resolved {
    fn new(bindings: &[Grant], role_of: impl Fn(&Binding) -> Option<Arc<Role>>) -> Self {
        let resolve = |grant: &Grant| ResolvedRole {
            role: role_of(&grant.binding),
            reason: grant.binding.reason(&grant.binding.subjects[grant.subject]).into(),
        };
        let roles: Vec<ResolvedRole> = bindings.iter().map(resolve).collect();
        let count: usize = roles.iter().map(|resolved| resolved.rules().len()).sum();
        let table = (count >= TABLE_RULES_MIN).then(|| {
            let rules = roles.iter().flat_map(ResolvedRole::rules);
            let places =
                roles.iter().zip(0..).flat_map(|(role, at)| (0..).take(role.rules().len()).map(move |rule| (at, rule)));
            (Table::new(rules), places.collect())
        });
        let has_missing = roles.iter().any(|resolved| resolved.role.is_none());
        let has_names = roles.iter().flat_map(ResolvedRole::rules).any(|rule| !rule.names.is_empty());
        Resolved { roles, table, has_missing, has_names }
    }

    /// The first binding found that allows a request.
    pub(crate) fn find(&self, verb: &str, what: &What<'_>) -> Option<usize> {
        let Some((table, places)) = &self.table else {
            return self.roles.iter().position(|role| role.rules().iter().any(|rule| rule.allows(verb, what)));
        };
        let found = table.find(verb, what, |id| {
            let (at, rule) = places[id as usize];
            self.roles[at as usize].rules()[rule as usize].allows(verb, what)
        });
        found.map(|id| places[id as usize].0 as usize)
    }
}

impl ResolvedRole {
    pub(crate) fn rules(&self) -> &[Rule] {
        self.role.as_ref().map_or(&[], |role| &role.rules)
    }
}
