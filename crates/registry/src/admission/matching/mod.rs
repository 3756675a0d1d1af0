//! Which requests a webhook or a policy applies to.
//!
//! ```text
//!   Index     by resource, group and operation: is there anything at all? (every write asks this)
//!   Criteria  rules, excluded rules, selectors, match policy of one webhook, policy or binding
//!   Matcher   compares criteria with a request; looks up namespaces and other versions of the resource
//!   Matched   the version of the resource that a rule named: objects are converted to it
//! ```

pub(crate) mod criteria;
pub(crate) mod index;
mod rule;

use std::fmt;
use std::sync::Arc;

use machinery::json::Value;
use machinery::labels::Selector;
use machinery::{GroupResource, GroupVersionKind, Status};
use schema::kind::Kind;

pub(crate) use criteria::Criteria;
pub(crate) use index::Index;

use super::plugin::{Attributes, Operation, States};
use crate::collections::NAMESPACES;
use crate::kinds::definitions::Definitions;
use crate::storage::Storage;
use rule::{Asked, Rule};

/// Compares criteria with requests.
#[derive(Clone)]
pub(crate) struct Matcher {
    storage: Storage,
    definitions: Arc<Definitions>,
}

/// A request that criteria match.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matched {
    /// The kind of another version (or group) of the resource that a rule names; none if it names the resource as asked for.
    pub(crate) other: Option<Arc<Kind>>,
}

/// Why criteria do not match a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmatched {
    Rules,
    ExcludedRules,
    NamespaceSelector,
    ObjectSelector,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unmatched::Rules => "no rule matches",
            Unmatched::ExcludedRules => "excluded by a rule",
            Unmatched::NamespaceSelector => "namespaceSelector does not match",
            Unmatched::ObjectSelector => "objectSelector does not match",
        })
    }
}

/// The kind that objects of a request have in one version of its resource: that of its subresource, if that has its own.
fn kind_in<'k>(kind: &'k Kind, subresource: Option<&str>) -> &'k GroupVersionKind {
    subresource.and_then(|name| kind.subresource(name)).map_or(&kind.gvk, |subresource| &subresource.gvk)
}

impl Matched {
    /// The kind of the objects, as the rule names it.
    pub(crate) fn kind<'k>(&'k self, attributes: &Attributes<'k>) -> &'k GroupVersionKind {
        match &self.other {
            Some(other) => kind_in(other, attributes.subresource()),
            None => attributes.kind(),
        }
    }

    /// The served kind whose resource the rule names.
    pub(crate) fn resource<'k>(&'k self, attributes: &Attributes<'k>) -> &'k Arc<Kind> {
        self.other.as_ref().unwrap_or(&attributes.target.kind)
    }
}

impl Matcher {
    pub(crate) fn new(storage: Storage, definitions: Arc<Definitions>) -> Self {
        Matcher { storage, definitions }
    }

    /// Compares a request with criteria. The error is that of a namespace that does not exist: a request that matches
    /// otherwise is refused by it.
    pub(crate) async fn find(
        &self,
        criteria: &Criteria,
        attributes: &Attributes<'_>,
        states: States<'_>,
    ) -> Result<Result<Matched, Unmatched>, Status> {
        let namespace = self.matches_namespace(&criteria.namespaces, attributes, states).await;
        if matches!(namespace, Ok(false)) {
            return Ok(Err(Unmatched::NamespaceSelector));
        }
        let selects = |object: Option<&Value>| object.is_some_and(|object| selects(&criteria.objects, object));
        if !criteria.objects.is_everything() && !selects(states.new) && !selects(states.old) {
            return Ok(Err(Unmatched::ObjectSelector));
        }
        if self.find_rule(&criteria.excluded, criteria.exact, attributes).is_some() {
            return Ok(Err(Unmatched::ExcludedRules));
        }
        let found = match &criteria.rules {
            None => Some(Matched::default()),
            Some(rules) => self.find_rule(rules, criteria.exact, attributes),
        };
        let Some(matched) = found else { return Ok(Err(Unmatched::Rules)) };
        namespace.map(|_| Ok(matched))
    }

    /// Finds the first rule for the resource as asked for, else the first for another version of it.
    fn find_rule(&self, rules: &[Rule], exact: bool, attributes: &Attributes<'_>) -> Option<Matched> {
        let asked = Asked::of(attributes);
        if rules.iter().any(|rule| rule.matches(&asked)) {
            return Some(Matched::default());
        }
        if exact || !rules.iter().any(|rule| rule.may_match_another_version(&asked)) {
            return None;
        }
        let (kinds, kind) = (self.definitions.kinds(), &attributes.target.kind);
        let others = kinds.in_collection(&kind.collection).filter(|other| {
            other.gvk != kind.gvk && asked.subresource.is_none_or(|name| other.subresource(name).is_some())
        });
        let others: Vec<&Arc<Kind>> = others.collect();
        let pairs = rules.iter().flat_map(|rule| others.iter().map(move |other| (rule, other)));
        let mut named = pairs.filter(|(rule, other)| rule.matches(&asked.in_version(other)));
        named.next().map(|(_, other)| Matched { other: Some(Arc::clone(other)) })
    }

    /// Whether the namespace of a request is selected. Requests without one always are; a namespace itself has its own labels.
    async fn matches_namespace(
        &self,
        selector: &Selector,
        attributes: &Attributes<'_>,
        states: States<'_>,
    ) -> Result<bool, Status> {
        let is_namespace = attributes.target.kind.collection == NAMESPACES;
        let name = attributes.namespace();
        if selector.is_everything() || name.is_empty() && !is_namespace {
            return Ok(true);
        }
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if let Some(namespace) = states.new.filter(|_| is_namespace && written && attributes.subresource().is_none()) {
            return Ok(selects(selector, namespace));
        }
        let known = self.storage.cached(NAMESPACES, None, name);
        let found = if known.is_some() { known } else { self.storage.current_named(NAMESPACES, None, name).await? };
        match found {
            Some(item) => Ok(selector.matches_sorted(item.labels())),
            None => Err(Status::not_found(&GroupResource::new("", "namespaces"), name)),
        }
    }

    /// The kinds that are served now.
    pub(crate) fn kinds(&self) -> Arc<schema::kinds::Kinds> {
        self.definitions.kinds()
    }
}

/// Whether a selector selects an object by its labels. Objects without metadata (options of a connection) are never selected.
fn selects(selector: &Selector, object: &Value) -> bool {
    object.get("metadata").is_some_and(|metadata| selector.matches_value(&metadata["labels"]))
}
