//! The smallest roles for what a user did, compared with the roles it has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use machinery::json::{Text, Value, json};

use super::manifest;
use crate::identity::User;
use crate::rbac::covering::missing_rules;
use crate::rbac::index::Index;
use crate::rbac::rule::Rule;

/// Groups that a user has without doing anything for it.
const EVERYONE: [&str; 2] = [crate::identity::AUTHENTICATED, "system:serviceaccounts"];

/// Something that a user did or tried: a verb on a resource in a namespace, or on a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    pub verb: String,
    /// Of a resource; a path has none.
    pub group: String,
    /// `pods` or `pods/log`; empty for a path.
    pub resource: String,
    /// Empty for the cluster, and for requests over all namespaces.
    pub namespace: String,
    /// Empty for a resource.
    pub path: String,
    /// The objects by name, sorted; empty if any request named none, or if there were too many names to keep.
    pub names: Vec<String>,
}

impl Action {
    fn rule(&self) -> Rule {
        let one = |text: &str| vec![Text::new(text)];
        if self.resource.is_empty() {
            return Rule { verbs: one(&self.verb), paths: one(&self.path), ..Rule::default() };
        }
        Rule {
            verbs: one(&self.verb),
            groups: one(&self.group),
            resources: one(&self.resource),
            names: self.names.iter().map(Text::new).collect(),
            paths: Vec::new(),
        }
    }
}

/// What a user did in a time.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pub user: User,
    pub allowed: Vec<Action>,
    pub refused: Vec<Action>,
}

impl Usage {
    /// The same without the names of objects: roles for it allow every object of a resource.
    #[must_use]
    pub fn of_any_name(mut self) -> Self {
        for action in self.allowed.iter_mut().chain(&mut self.refused) {
            action.names.clear();
        }
        self
    }

    /// The smallest roles for everything that the user did and tried, by namespace; those of the cluster under the empty name.
    #[must_use]
    pub fn least(&self) -> BTreeMap<String, Vec<Rule>> {
        group(self.allowed.iter().chain(&self.refused))
    }

    /// The same without what all authenticated users and service accounts may do.
    #[must_use]
    pub fn of_its_own(&self, index: &Index) -> Usage {
        let everyone = User { groups: EVERYONE.map(str::to_owned).to_vec(), ..User::default() };
        let own = |actions: &[Action]| {
            let kept = actions.iter().filter(|action| {
                let held = index.rules_for(&everyone, &action.namespace).rules;
                !missing_rules(&held, &[action.rule()]).is_empty()
            });
            kept.cloned().collect()
        };
        Usage { user: self.user.clone(), allowed: own(&self.allowed), refused: self.refused.clone() }
    }

    /// What the user did or tried and its present roles do not allow, by namespace.
    #[must_use]
    pub fn missing(&self, index: &Index) -> BTreeMap<String, Vec<Rule>> {
        let lacking = self.allowed.iter().chain(&self.refused).filter(|action| {
            let held = index.rules_for(&self.user, &action.namespace).rules;
            !missing_rules(&held, &[action.rule()]).is_empty()
        });
        group(lacking)
    }

    /// Rules of the user's roles that it did not need, by namespace. Those that all authenticated users have do not count.
    #[must_use]
    pub fn beyond(&self, index: &Index) -> BTreeMap<String, Vec<Rule>> {
        let own: Vec<String> =
            self.user.groups.iter().filter(|group| !EVERYONE.contains(&group.as_str())).cloned().collect();
        let user = User { groups: own, ..self.user.clone() };
        let mut beyond: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
        for granted in index.granted_anywhere(&user) {
            let place = granted.binding.name.namespace.to_string();
            let used: Vec<Rule> = self
                .allowed
                .iter()
                .chain(&self.refused)
                .filter(|action| place.is_empty() || action.namespace == place)
                .map(Action::rule)
                .collect();
            let rules = granted.role.iter().flat_map(|role| &role.rules);
            let unused = rules.flat_map(|rule| missing_rules(&used, std::slice::from_ref(rule)));
            beyond.entry(place).or_default().extend(unused);
        }
        beyond.retain(|_, rules| {
            *rules = merge(std::mem::take(rules));
            !rules.is_empty()
        });
        beyond
    }

    /// Roles and bindings as objects.
    #[must_use]
    pub fn manifests(&self, rules: &BTreeMap<String, Vec<Rule>>) -> Vec<Value> {
        let account = self.user.name.rsplit(':').next().unwrap_or_default();
        let name = manifest::object_name(account);
        let objects = rules.iter().flat_map(|(namespace, rules)| {
            [manifest::role(namespace, &name, rules), manifest::binding(namespace, &name, &self.user)]
        });
        objects.collect()
    }

    /// The report of `dogwatch access roles`.
    #[must_use]
    pub fn report(&self, index: &Index) -> Value {
        let rules = |rules: &BTreeMap<String, Vec<Rule>>| -> Vec<Value> {
            let of = |(namespace, rules): (&String, &Vec<Rule>)| json!({"namespace": namespace, "rules": rules.iter().map(Rule::to_value).collect::<Vec<Value>>()});
            rules.iter().map(of).collect()
        };
        let missing = self.missing(index);
        json!({
            "user": self.user.name,
            "least": self.manifests(&self.of_its_own(index).least()),
            "missing": self.manifests(&missing),
            "refused": rules(&group(&self.refused)),
            "beyond": rules(&self.beyond(index)),
        })
    }
}

fn group<'a>(actions: impl IntoIterator<Item = &'a Action>) -> BTreeMap<String, Vec<Rule>> {
    let mut found: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
    for action in actions {
        found.entry(action.namespace.clone()).or_default().push(action.rule());
    }
    found.into_iter().map(|(namespace, rules)| (namespace, merge(rules))).collect()
}

/// Joins rules: verbs of the same resource first, then resources of the same group and verbs, then paths of the same verbs.
fn merge(rules: Vec<Rule>) -> Vec<Rule> {
    let rules =
        join(rules, |rule| Rule { verbs: Vec::new(), ..rule.clone() }, |joined, rule| joined.verbs.extend(rule.verbs));
    let bare = |rule: &Rule| Rule { resources: Vec::new(), paths: Vec::new(), ..rule.clone() };
    join(rules, bare, |joined, rule| {
        joined.resources.extend(rule.resources);
        joined.paths.extend(rule.paths);
    })
}

/// Joins the rules with the same key; their parts are sorted, each once.
fn join(rules: Vec<Rule>, key: impl Fn(&Rule) -> Rule, add: impl Fn(&mut Rule, Rule)) -> Vec<Rule> {
    let mut joined: BTreeMap<Rule, Rule> = BTreeMap::new();
    for rule in rules {
        match joined.entry(key(&rule)) {
            Entry::Occupied(mut held) => add(held.get_mut(), rule),
            Entry::Vacant(free) => {
                free.insert(rule);
            }
        }
    }
    let mut rules: Vec<Rule> = joined.into_values().collect();
    for parts in rules.iter_mut().flat_map(|rule| [&mut rule.verbs, &mut rule.resources, &mut rule.paths]) {
        parts.sort_unstable();
        parts.dedup();
    }
    rules.sort_unstable_by(|a, b| (&a.groups, &a.verbs, &a.resources).cmp(&(&b.groups, &b.verbs, &b.resources)));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rbac::objects::{Binding, Name, Role};

    fn action(verb: &str, group: &str, resource: &str, namespace: &str) -> Action {
        let text = |text: &str| text.to_owned();
        Action {
            verb: text(verb),
            group: text(group),
            resource: text(resource),
            namespace: text(namespace),
            path: String::new(),
            names: Vec::new(),
        }
    }

    fn usage() -> Usage {
        Usage {
            user: User { name: "system:serviceaccount:n:op".to_owned(), ..User::default() }.authenticated(),
            allowed: vec![
                action("list", "", "pods", "n"),
                action("get", "", "pods", "n"),
                action("list", "", "configmaps", "n"),
                action("get", "", "configmaps", "n"),
                action("watch", "apps", "deployments", ""),
            ],
            refused: vec![action("patch", "apps", "deployments/status", "n")],
        }
    }

    fn index() -> Index {
        let mut index = Index::default();
        let rules = json!({"rules": [
            {"verbs": ["get", "list", "delete"], "apiGroups": [""], "resources": ["pods", "configmaps"]},
        ]});
        index.set_role(Role::from_value(Name::new("n", "op"), &rules));
        let binding = json!({
            "roleRef": {"kind": "Role", "name": "op"},
            "subjects": [{"kind": "ServiceAccount", "name": "op", "namespace": "n"}],
        });
        index.set_binding(Binding::from_value(Name::new("n", "op"), &binding));
        index
    }

    fn shown(rules: &BTreeMap<String, Vec<Rule>>) -> Vec<Value> {
        rules.iter().flat_map(|(place, rules)| rules.iter().map(move |rule| json!([place, rule.to_value()]))).collect()
    }

    #[test]
    fn ba_5_the_least_roles_are_split_by_namespace_and_merged() {
        assert_eq!(
            shown(&usage().least()),
            [
                json!(["", {"verbs": ["watch"], "apiGroups": ["apps"], "resources": ["deployments"]}]),
                json!(["n", {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps", "pods"]}]),
                json!(["n", {"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["deployments/status"]}]),
            ]
        );
        let manifests = usage().manifests(&usage().least());
        let kinds: Vec<&str> = manifests.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
        assert_eq!(manifests[3]["subjects"][0]["kind"], "ServiceAccount");
    }

    #[test]
    fn ba_5_missing_is_what_present_roles_do_not_allow_and_beyond_what_was_not_needed() {
        assert_eq!(
            shown(&usage().missing(&index())),
            [
                json!(["", {"verbs": ["watch"], "apiGroups": ["apps"], "resources": ["deployments"]}]),
                json!(["n", {"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["deployments/status"]}]),
            ]
        );
        assert_eq!(
            shown(&usage().beyond(&index())),
            [json!(["n", {"verbs": ["delete"], "apiGroups": [""], "resources": ["configmaps", "pods"]}])]
        );
        let report = usage().report(&index());
        assert_eq!(report["refused"][0]["rules"][0]["resources"], json!(["deployments/status"]));
    }

    #[test]
    fn ba_5_roles_can_name_the_objects() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let usage = Usage {
            user: User { name: "op".to_owned(), ..User::default() },
            allowed: vec![
                Action { names: names(&["a", "b"]), ..action("get", "", "configmaps", "n") },
                Action { names: names(&["a", "b"]), ..action("patch", "", "configmaps", "n") },
                Action { names: names(&["a"]), ..action("delete", "", "configmaps", "n") },
                action("create", "", "configmaps", "n"),
            ],
            refused: Vec::new(),
        };
        let rule = |verbs: &[&str], names: &[&str]| {
            let mut rule = json!({"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"]});
            if !names.is_empty() {
                rule["resourceNames"] = json!(names);
            }
            json!(["n", rule])
        };
        assert_eq!(
            shown(&usage.least()),
            [rule(&["create"], &[]), rule(&["delete"], &["a"]), rule(&["get", "patch"], &["a", "b"])]
        );
        assert_eq!(shown(&usage.of_any_name().least()), [rule(&["create", "delete", "get", "patch"], &[])]);
    }

    #[test]
    fn ba_5_what_everyone_may_do_is_left_out() {
        let mut index = index();
        let rules = json!({"rules": [{"verbs": ["watch"], "apiGroups": ["apps"], "resources": ["deployments"]}]});
        index.set_role(Role::from_value(Name::new("", "common"), &rules));
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "common"},
            "subjects": [{"kind": "Group", "name": "system:authenticated"}],
        });
        index.set_binding(Binding::from_value(Name::new("", "common"), &binding));
        assert!(!usage().of_its_own(&index).least().contains_key(""));
        let kinds = |report: &Value| -> Vec<String> {
            let objects = report["least"].as_array().unwrap().iter();
            objects.map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(kinds(&usage().report(&index)), ["Role", "RoleBinding"]);
    }

    #[test]
    fn ba_5_the_least_roles_allow_exactly_what_was_done() {
        let usage = usage();
        let mut index = Index::default();
        for (namespace, rules) in usage.least() {
            index.set_role(Role { name: Name::new(namespace.as_str(), "op"), rules });
            let object = manifest::binding(&namespace, "op", &usage.user);
            index.set_binding(Binding::from_value(Name::new(namespace.as_str(), "op"), &object));
        }
        assert!(usage.missing(&index).is_empty());
        assert!(usage.beyond(&index).is_empty());
    }
}
