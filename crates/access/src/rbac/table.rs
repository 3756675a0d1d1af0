//! Finds the rule of a request among very many, without trying them one by one.
//!
//! A rule on resources is entered once for each combination of group, resource, verb and name that it lists, stars as they are.
//! A request is looked up under the few combinations that could allow it: its own texts, and a star in the place of each.
//!
//! ```text
//!   rule     {groups: [""], resources: ["pods", "pods/log"], verbs: ["get"]}  ─►  ("", pods, get, any)  ("", pods/log, get, any)
//!   request  get pods/log "p"  ─►  {"", *} × {pods/log, */log, *} × {get, *} × {any, p}
//! ```

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

use super::rule::{Rule, has};
use crate::authorizer::{ResourceAttributes, What};

/// Most combinations that one rule is entered under. A rule with more is tried by itself.
const COMBINATIONS_MAX: usize = 4096;

/// Number of a rule among those of the table.
pub(crate) type RuleId = u32;

/// Hashes of group, resource, verb and name.
type Key = [u64; 4];

/// Rules by what they allow.
pub(crate) struct Table {
    resources: HashMap<Key, RuleId, RandomState>,
    /// Hashes of path and verb, for paths without a star.
    paths: HashMap<[u64; 2], RuleId, RandomState>,
    /// Rules that are not in the maps: those with too many combinations, and those on paths that end in a star.
    others: Vec<RuleId>,
    hasher: RandomState,
    all: u64,
    any_name: u64,
    has_names: bool,
}

impl Table {
    pub(crate) fn new<'r>(rules: impl Iterator<Item = &'r Rule> + Clone) -> Self {
        let hasher = RandomState::default();
        let mut table = Table {
            resources: HashMap::default(),
            paths: HashMap::default(),
            others: Vec::new(),
            all: hasher.hash_one("*"),
            // No text hashes like this number.
            any_name: hasher.hash_one(0_u64),
            has_names: false,
            hasher,
        };
        let all: Vec<&Rule> = rules.collect();
        for (id, rule) in all.iter().enumerate() {
            if !table.enter(id as RuleId, rule, &all) {
                table.others.push(id as RuleId);
            }
        }
        table
    }

    /// Enters a rule into the maps. Returns whether that is all of it.
    fn enter(&mut self, id: RuleId, rule: &Rule, all: &[&Rule]) -> bool {
        let sizes = [rule.groups.len(), rule.resources.len(), rule.verbs.len(), rule.names.len().max(1)];
        if sizes
            .iter()
            .try_fold(1, |product: usize, size| product.checked_mul(*size))
            .is_none_or(|n| n > COMBINATIONS_MAX)
            || rule.paths.len().saturating_mul(rule.verbs.len()) > COMBINATIONS_MAX
        {
            return false;
        }
        let mut complete = true;
        let names: Vec<Option<&str>> =
            if rule.names.is_empty() { vec![None] } else { rule.names.iter().map(|name| Some(&**name)).collect() };
        self.has_names |= !rule.names.is_empty();
        for group in &rule.groups {
            for resource in &rule.resources {
                for verb in &rule.verbs {
                    for name in &names {
                        let key = [self.hash(group), self.hash(resource), self.hash(verb), self.hash_name(*name)];
                        let first = *self.resources.entry(key).or_insert(id);
                        // Two texts may have the same hash: then the second is not in the map.
                        let there = all[first as usize];
                        complete &= first == id
                            || (has(&there.groups, group)
                                && has(&there.resources, resource)
                                && has(&there.verbs, verb)
                                && name.map_or(there.names.is_empty(), |name| has(&there.names, name)));
                    }
                }
            }
        }
        for path in &rule.paths {
            if path.ends_with('*') {
                complete = false;
                continue;
            }
            for verb in &rule.verbs {
                let first = *self.paths.entry([self.hash(path), self.hash(verb)]).or_insert(id);
                let there = all[first as usize];
                complete &= first == id || (has(&there.paths, path) && has(&there.verbs, verb));
            }
        }
        complete
    }

    fn hash(&self, text: &str) -> u64 {
        self.hasher.hash_one(text)
    }

    fn hash_name(&self, name: Option<&str>) -> u64 {
        name.map_or(self.any_name, |name| self.hash(name))
    }

    /// The first rule found that allows a request. `allows` checks a candidate.
    pub(crate) fn find(&self, verb: &str, what: &What<'_>, allows: impl Fn(RuleId) -> bool) -> Option<RuleId> {
        let found = match what {
            What::Resource(about) => self.find_resource(verb, about, &allows),
            What::Path(path) => {
                let path = self.hash(path);
                let verbs = [self.hash(verb), self.all];
                verbs.into_iter().find_map(|verb| self.paths.get(&[path, verb]).copied().filter(|id| allows(*id)))
            }
        };
        found.or_else(|| self.others.iter().copied().find(|id| allows(*id)))
    }

    fn find_resource(
        &self,
        verb: &str,
        about: &ResourceAttributes<'_>,
        allows: &impl Fn(RuleId) -> bool,
    ) -> Option<RuleId> {
        let groups = [self.hash(about.group), self.all];
        let verbs = [self.hash(verb), self.all];
        let (own, of_any) = if about.subresource.is_empty() {
            (self.hash(about.resource), None)
        } else {
            let joined = format!("{}/{}", about.resource, about.subresource);
            (self.hash(&joined), Some(self.hash(&format!("*/{}", about.subresource))))
        };
        let resources = [Some(own), of_any, Some(self.all)];
        let names = [Some(self.any_name), self.has_names.then(|| self.hash(about.name))];
        for group in groups {
            for resource in resources.into_iter().flatten() {
                for verb in verbs {
                    for name in names.into_iter().flatten() {
                        let found = self.resources.get(&[group, resource, verb, name]).copied();
                        if let Some(id) = found.filter(|id| allows(*id)) {
                            return Some(id);
                        }
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    /// A table finds a rule exactly if one of them allows the request.
    #[test]
    fn finds_what_a_scan_finds() {
        let words = [
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
            json!({"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*/scale", "deployments"]}),
            json!({"verbs": ["list"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a", "b"]}),
            json!({"verbs": ["update"], "apiGroups": ["", "apps"], "resources": ["pods/log", "pods/*"]}),
            json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/a/*"]}),
            json!({"verbs": ["*"], "nonResourceURLs": ["/metrics"]}),
            json!({"verbs": ["get"], "apiGroups": [""], "resources": (0..5000).map(|n| format!("r{n}")).collect::<Vec<_>>()}),
        ];
        let rules: Vec<Rule> = words.iter().map(Rule::from_value).collect();
        let table = Table::new(rules.iter());
        let (mut allowed, mut refused) = (0, 0);
        let mut compare = |verb: &str, what: What<'_>| {
            let found = table.find(verb, &what, |id| rules[id as usize].allows(verb, &what)).is_some();
            assert_eq!(found, rules.iter().any(|rule| rule.allows(verb, &what)), "{verb} {what:?}");
            if found { allowed += 1 } else { refused += 1 }
        };
        for verb in ["get", "list", "update", "*", ""] {
            for group in ["", "apps", "*", "batch"] {
                for resource in ["pods", "deployments", "r4999", "*"] {
                    for subresource in ["", "log", "scale", "*"] {
                        for name in ["", "a", "c"] {
                            let about = ResourceAttributes {
                                group,
                                resource,
                                subresource,
                                name,
                                ..ResourceAttributes::default()
                            };
                            compare(verb, What::Resource(about));
                        }
                    }
                }
            }
            for path in ["/healthz", "/healthz/x", "/a/b", "/a", "/metrics", "*"] {
                compare(verb, What::Path(path));
            }
        }
        assert!(allowed > 50 && refused > 50, "{allowed} {refused}");
    }
}
