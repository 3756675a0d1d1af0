//! Finds, for a request, those of many webhooks or policies that may apply to it. Every write asks; most find none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::super::plugin::{Attributes, Operation};
use super::criteria::Criteria;
use super::rule::{Names, Operations, Rule};

/// Most pairs of a group and a resource that are kept of one entry. A short object can name very many of them; one that
/// does is found for every resource, and only its rules decide.
const PAIRS_MAX: usize = 256;

/// Webhooks or policies in their order, by the resources that their rules name. Immutable: a change makes a new one.
#[derive(Debug)]
pub(crate) struct Index<T> {
    entries: Vec<Arc<T>>,
    by_resource: HashMap<Box<str>, Vec<Place>>,
    any_resource: Vec<Place>,
}

/// An entry under one of the resources it names.
#[derive(Clone, Debug)]
struct Place {
    entry: usize,
    /// None for all groups.
    group: Option<Box<str>>,
    operations: Operations,
}

impl Place {
    /// Events are the same objects in two groups, so their group is left to the rules. Versions always are.
    fn concerns(&self, operation: Operation, group: &str, plural: &str) -> bool {
        self.operations.has(operation) && self.group.as_deref().is_none_or(|own| own == group || plural == "events")
    }
}

/// How many pairs of a group and a resource rules name.
fn pairs(rules: &[Rule]) -> usize {
    let of_rule = |rule: &Rule| match &rule.groups {
        Names::Any => rule.resources.len(),
        Names::These(groups) => groups.len().saturating_mul(rule.resources.len()),
    };
    rules.iter().map(of_rule).fold(0, usize::saturating_add)
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Index { entries: Vec::new(), by_resource: HashMap::new(), any_resource: Vec::new() }
    }
}

impl<T> Index<T> {
    /// `criteria` returns those of an entry.
    pub(crate) fn new(entries: Vec<Arc<T>>, criteria: impl Fn(&T) -> &Criteria) -> Self {
        let mut index = Index::default();
        for (at, entry) in entries.iter().enumerate() {
            index.place(at, criteria(entry));
        }
        index.entries = entries;
        index
    }

    fn place(&mut self, entry: usize, criteria: &Criteria) {
        let Some(rules) = &criteria.rules else {
            let operations = Operations::all();
            return self.any_resource.push(Place { entry, group: None, operations });
        };
        if pairs(rules) > PAIRS_MAX {
            let operations = rules.iter().fold(Operations::default(), |all, rule| all.and(rule.operations));
            return self.any_resource.push(Place { entry, group: None, operations });
        }
        // Rules often name a resource more than once, as `pods` and `pods/status`: it gets one place.
        let mut named: BTreeMap<(Option<&str>, Option<&str>), Operations> = BTreeMap::new();
        for rule in rules {
            for resource in &rule.resources {
                let mut add = |group| {
                    let operations = named.entry((resource.plural.as_deref(), group)).or_default();
                    *operations = operations.and(rule.operations);
                };
                match &rule.groups {
                    Names::Any => add(None),
                    Names::These(groups) => groups.iter().for_each(|group| add(Some(group))),
                }
            }
        }
        for ((plural, group), operations) in named {
            let places = match plural {
                Some(plural) => self.by_resource.entry(plural.into()).or_default(),
                None => &mut self.any_resource,
            };
            places.push(Place { entry, group: group.map(Into::into), operations });
        }
    }

    fn places(&self, attributes: &Attributes<'_>) -> impl Iterator<Item = &Place> {
        let kind = &attributes.target.kind;
        let (group, plural, operation) = (kind.gvk.group.as_str(), kind.plural.as_str(), attributes.operation);
        let named = if self.by_resource.is_empty() { None } else { self.by_resource.get(plural) };
        let all = self.any_resource.iter().chain(named.into_iter().flatten());
        all.filter(move |place| place.concerns(operation, group, plural))
    }

    /// Whether anything may apply to a request. Takes no lock and allocates nothing.
    pub(crate) fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        !self.entries.is_empty() && self.places(attributes).next().is_some()
    }

    /// The entries that may apply to a request, in their order.
    pub(crate) fn candidates(&self, attributes: &Attributes<'_>) -> Vec<Arc<T>> {
        let mut found: Vec<usize> = self.places(attributes).map(|place| place.entry).collect();
        found.sort_unstable();
        found.dedup();
        found.into_iter().filter_map(|at| self.entries.get(at).cloned()).collect()
    }

    /// All entries in their order.
    pub(crate) fn all(&self) -> &[Arc<T>] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::{Value, json};

    use super::super::super::plugin::Options;
    use super::super::rule::Asked;
    use super::*;
    use crate::request::{Context, Target};

    fn target(group: &str, plural: &str) -> Target {
        let kind = Arc::clone(crate::kinds::builtin().get(group, "v1", plural).unwrap());
        Target { kind, namespace: Some("default".to_owned()), name: None, subresource: None }
    }

    fn found(rules: &[Value], operation: Operation, group: &str, plural: &str) -> Vec<usize> {
        let entries = rules
            .iter()
            .enumerate()
            .map(|(at, rule)| Arc::new((at, Criteria::of_webhook(&json!({"rules": [rule]})).unwrap())));
        let index = Index::new(entries.collect(), |(_, criteria)| criteria);
        let (target, ctx) = (target(group, plural), Context::default());
        let attributes = Attributes::new(operation, &target, Options::None, &ctx);
        let found: Vec<usize> = index.candidates(&attributes).iter().map(|entry| entry.0).collect();
        assert_eq!(index.concerns(&attributes), !found.is_empty());
        found
    }

    #[test]
    fn requests_find_what_may_apply_to_them_in_order() {
        let rule = |operations: &[&str], group: &str, resource: &str| json!({"operations": operations, "apiGroups": [group], "apiVersions": ["v7"], "resources": [resource]});
        let rules = [
            rule(&["CREATE"], "", "pods"),
            rule(&["*"], "*", "*"),
            rule(&["UPDATE"], "", "pods/status"),
            rule(&["CREATE", "UPDATE"], "apps", "*/*"),
            rule(&["CREATE"], "events.k8s.io", "events"),
            rule(&["DELETE"], "*", "configmaps"),
        ];
        assert_eq!(found(&rules, Operation::Create, "", "pods"), [0, 1]);
        assert_eq!(found(&rules, Operation::Update, "", "pods"), [1, 2]);
        assert_eq!(found(&rules, Operation::Update, "apps", "deployments"), [1, 3]);
        assert_eq!(found(&rules, Operation::Create, "", "events"), [1, 3, 4], "the same objects in another group");
        assert_eq!(found(&rules[2..], Operation::Delete, "", "configmaps"), [3]);
        assert_eq!(found(&rules[2..], Operation::Create, "", "configmaps"), [0; 0]);
        assert_eq!(found(&[], Operation::Create, "", "pods"), [0; 0]);
    }

    #[test]
    fn a_rule_that_names_a_resource_twice_is_found_once() {
        let twice = json!({"operations": ["*"], "apiGroups": ["", "*"], "apiVersions": ["*"], "resources": ["pods", "pods/*", "*"]});
        assert_eq!(found(&[twice], Operation::Create, "", "pods"), [0]);
    }

    /// How many places an entry with these rules has, and whether the index finds it and a rule matches.
    fn looked_up(rules: &[Value], operation: Operation, group: &str, plural: &str) -> (usize, [bool; 2]) {
        let criteria = Criteria::of_webhook(&json!({"rules": rules})).unwrap();
        let index = Index::new(vec![Arc::new(criteria)], |criteria| criteria);
        let places = index.any_resource.len() + index.by_resource.values().map(Vec::len).sum::<usize>();
        let (target, ctx) = (target(group, plural), Context::default());
        let attributes = Attributes::new(operation, &target, Options::None, &ctx);
        let found = index.candidates(&attributes);
        let asked = Asked::of(&attributes);
        let matches = found.iter().any(|entry| entry.rules.iter().flatten().any(|rule| rule.matches(&asked)));
        (places, [!found.is_empty(), matches])
    }

    #[test]
    fn an_entry_that_names_very_much_has_one_place_and_its_rules_decide() {
        let rule = |groups: usize, resources: usize| {
            let groups: Vec<String> = (1..groups).map(|at| format!("g{at}")).chain([String::new()]).collect();
            let resources: Vec<String> = (1..resources).map(|at| format!("r{at}")).chain(["pods".to_owned()]).collect();
            json!({"operations": ["CREATE"], "apiGroups": groups, "apiVersions": ["v1"], "resources": resources})
        };
        let in_one_rule = vec![rule(100, 100)];
        let in_many_rules = vec![rule(2, 2); PAIRS_MAX / 4 + 1];
        for rules in [in_one_rule, in_many_rules] {
            assert_eq!(looked_up(&rules, Operation::Create, "", "pods"), (1, [true, true]));
            assert_eq!(looked_up(&rules, Operation::Create, "", "configmaps"), (1, [true, false]));
            assert_eq!(looked_up(&rules, Operation::Create, "apps", "deployments"), (1, [true, false]));
            assert_eq!(looked_up(&rules, Operation::Delete, "", "pods"), (1, [false, false]));
        }
        let at_the_bound = [rule(2, PAIRS_MAX / 2)];
        assert_eq!(looked_up(&at_the_bound, Operation::Create, "", "pods"), (PAIRS_MAX, [true, true]));
        assert_eq!(looked_up(&at_the_bound, Operation::Create, "", "configmaps"), (PAIRS_MAX, [false, false]));
    }

    #[test]
    fn rules_that_name_the_same_share_a_place() {
        let rule = |operation: &str, resource: &str| json!({"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource, resource]});
        let rules = [rule("CREATE", "pods"), rule("DELETE", "pods")];
        assert_eq!(looked_up(&rules, Operation::Create, "", "pods"), (1, [true, true]));
        assert_eq!(looked_up(&rules, Operation::Delete, "", "pods"), (1, [true, true]));
        assert_eq!(looked_up(&rules, Operation::Update, "", "pods"), (1, [false, false]));
    }
}
