//! ClusterRoles that collect the rules of others: those whose labels their selectors match.
//!
//! The rules are written into the role itself, by an apply of their own field manager, as the controller of the reference does
//! it. Here a task of the server does it ([`follow`]), so that it needs no controllers; a write of a role is answered when the task
//! has come that far ([`settle`]), so that the next request finds the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access::User;
use access::rbac::objects::Name;
use access::rbac::rule::Rule;
use futures::future::try_join_all;
use machinery::Status;
use machinery::json::{Text, Value, json};
use machinery::labels::Selector;
use machinery::options::PatchOptions;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{GROUP, Roles};
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::versions;
use crate::write::apply;
use crate::write::update::{Author, rewrite};

const CONTROLLER: &str = "clusterrole-aggregation-controller";
/// Most bytes of the texts in the rules of an aggregated role: as large as a role that a client can send. One that would be larger
/// stays as it is.
const RULES_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Wait after a failure, before the aggregated roles are written again.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait of a request for the aggregated roles that follow from its write.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// The labels and selectors of all ClusterRoles, and how far the aggregated ones follow them.
pub(super) struct Aggregation {
    roles: Mutex<BTreeMap<Text, Arc<Labelled>>>,
    /// Counts changes that may concern an aggregated role.
    changes: watch::Sender<u64>,
    /// The count up to which the aggregated roles were written, or could not be.
    followed: watch::Sender<u64>,
}

/// What aggregation needs of a ClusterRole.
struct Labelled {
    labels: Value,
    /// None for a role that collects nothing.
    selectors: Option<Vec<Selector>>,
}

impl Default for Aggregation {
    fn default() -> Self {
        Aggregation { roles: Mutex::default(), changes: watch::Sender::new(0), followed: watch::Sender::new(0) }
    }
}

impl Labelled {
    fn of(role: &Value) -> Self {
        let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
        // A selector that cannot be read selects nothing.
        let parsed = |selector: &Value| Selector::from_label_selector(selector).unwrap_or_else(|_| Selector::nothing());
        let selectors = selectors.into_iter().flat_map(|selectors| selectors.iter()).map(parsed);
        let selectors = role["aggregationRule"].is_object().then(|| selectors.collect());
        Labelled { labels: role["metadata"]["labels"].clone(), selectors }
    }

    fn selects(&self, labels: &Value) -> bool {
        self.selectors.iter().flatten().any(|selector| selector.matches_value(labels))
    }

    /// The positions of the roles whose rules it collects, by selector and then by name; none if it collects nothing.
    fn selected(&self, roles: &[(Text, Arc<Labelled>)]) -> Option<Vec<usize>> {
        let matching = |selector: &Selector| -> Vec<usize> {
            let all = roles.iter().enumerate();
            all.filter(|(_, (_, role))| selector.matches_value(&role.labels)).map(|(at, _)| at).collect()
        };
        self.selectors.as_ref().map(|selectors| selectors.iter().flat_map(matching).collect())
    }
}

impl Aggregation {
    pub(super) fn load(&self, items: &[(Name, Value)]) {
        *self.roles.lock() =
            items.iter().map(|(name, role)| (name.name.clone(), Arc::new(Labelled::of(role)))).collect();
        self.changes.send_modify(|count| *count += 1);
    }

    /// Begins as another one is, which may not have followed all changes.
    pub(super) fn copy(&self, other: &Aggregation) {
        self.roles.lock().clone_from(&other.roles.lock());
        if *other.followed.borrow() < *other.changes.borrow() {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Takes the new state of a ClusterRole; none if it is gone.
    pub(super) fn change(&self, name: &str, role: Option<&Value>) {
        let mut roles = self.roles.lock();
        let next = role.map(|role| Arc::new(Labelled::of(role)));
        let before = match next {
            Some(next) => roles.insert(name.into(), next),
            None => roles.remove(name),
        };
        let states = [before.as_ref(), roles.get(name)];
        let concerned = states
            .into_iter()
            .flatten()
            .any(|state| state.selectors.is_some() || roles.values().any(|collector| collector.selects(&state.labels)));
        drop(roles);
        if concerned {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// The aggregated roles whose rules are not those of the roles they select, with the rules they should have.
    fn outdated(&self, rules_of: impl Fn(&Text) -> Vec<Rule>) -> Vec<(Text, Vec<Rule>)> {
        // Copied, because the cache's feed waits for the lock in `change`.
        let roles: Vec<(Text, Arc<Labelled>)> =
            self.roles.lock().iter().map(|(name, role)| (name.clone(), Arc::clone(role))).collect();
        let selected: Vec<Option<Vec<usize>>> = roles.iter().map(|(_, role)| role.selected(&roles)).collect();
        let mut outdated = Vec::new();
        for (at, (name, _)) in roles.iter().enumerate().filter(|(at, _)| selected[*at].is_some()) {
            let mut known: BTreeSet<Rule> = BTreeSet::new();
            let collected = sources(at, &selected).into_iter().flat_map(|source| rules_of(&roles[source].0));
            let rules: Vec<Rule> = collected.filter(|rule| known.insert(rule.clone())).collect();
            if rules_of(name) != rules && is_bounded(name, &rules) {
                outdated.push((name.clone(), rules));
            }
        }
        outdated
    }
}

/// The roles with rules of their own that a collector reaches, directly or through other collectors, in the order in which it
/// collects them. The rules stored in collectors do not count, since they are a result: so roles that collect from each other in
/// a ring have one answer, and writing it changes nothing about the answers of the others.
fn sources(collector: usize, selected: &[Option<Vec<usize>>]) -> Vec<usize> {
    let mut sources = Vec::new();
    let mut visited = vec![false; selected.len()];
    visited[collector] = true;
    // Not recursive: the length of a chain is up to clients.
    let mut open = vec![selected[collector].iter().flatten()];
    while let Some(next) = open.last_mut() {
        match next.next() {
            None => {
                open.pop();
            }
            // What was visited added its rules already.
            Some(&other) if std::mem::replace(&mut visited[other], true) => {}
            Some(&other) => match &selected[other] {
                Some(_) => open.push(selected[other].iter().flatten()),
                None => sources.push(other),
            },
        }
    }
    sources
}

fn is_bounded(name: &Text, rules: &[Rule]) -> bool {
    let parts = |rule: &Rule| -> usize {
        let all = [&rule.verbs, &rule.groups, &rule.resources, &rule.names, &rule.paths];
        all.into_iter().flatten().map(|text| text.len()).sum()
    };
    let bytes: usize = rules.iter().map(parts).sum();
    if bytes > RULES_BYTES_MAX {
        tracing::warn!(%name, bytes, "an aggregated role would be too large and is not written");
    }
    bytes <= RULES_BYTES_MAX
}

impl Roles {
    fn outdated(&self) -> Vec<(Text, Vec<Rule>)> {
        let index = self.rbac.index();
        let rules_of = |name: &Text| index.role(&Name::new("", name.clone())).map(|role| role.rules.clone());
        self.aggregation.outdated(|name| rules_of(name).unwrap_or_default())
    }
}

/// Waits until the aggregated roles follow the changes made before this call. Not for long: a webhook may keep them from being
/// written, or may itself wait for this request.
pub(crate) async fn settle(registry: &Registry) {
    let aggregation = &registry.roles().aggregation;
    let made = *aggregation.changes.borrow();
    if *aggregation.followed.borrow() >= made {
        return;
    }
    let mut followed = aggregation.followed.subscribe();
    let _ = tokio::time::timeout(SETTLE_MAX, followed.wait_for(|followed| *followed >= made)).await;
}

/// Writes the aggregated roles after each change, whichever server made it, for as long as the registry lives.
pub(crate) async fn follow(registry: Weak<Registry>) {
    let Some(mut changes) = registry.upgrade().map(|registry| registry.roles().aggregation.changes.subscribe()) else {
        return;
    };
    // A fork whose roles are those of its origin has nothing to write yet.
    let is_followed = registry.upgrade().is_none_or(|registry| {
        let aggregation = &registry.roles().aggregation;
        *aggregation.followed.borrow() >= *aggregation.changes.borrow()
    });
    if is_followed && changes.changed().await.is_err() {
        return;
    }
    loop {
        changes.mark_unchanged();
        let Some(alive) = registry.upgrade() else { return };
        let written = write_outdated(&alive).await;
        drop(alive);
        if let Err(status) = written {
            tracing::warn!(%status, "aggregated roles cannot be written; another attempt follows");
            tokio::time::sleep(RETRY).await;
        } else if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Writes the aggregated roles that do not follow the changes made before this call.
pub(super) async fn write_outdated(registry: &Registry) -> Result<(), Status> {
    let aggregation = &registry.roles().aggregation;
    let made = *aggregation.changes.borrow();
    // Together, so that the store syncs them once.
    let outdated = registry.roles().outdated();
    let written = try_join_all(outdated.iter().map(|(name, rules)| write(registry, name, rules))).await;
    aggregation.followed.send_modify(|followed| *followed = made.max(*followed));
    written.map(|_| ())
}

/// Applies the rules of an aggregated role. Without any, the manager gives up the rules that it owns, and only those.
async fn write(registry: &Registry, name: &Text, rules: &[Rule]) -> Result<(), Status> {
    let kinds = registry.kinds();
    let kind = kinds.get(GROUP, "v1", "clusterroles").ok_or_else(|| Status::internal("clusterroles are not served"))?;
    let target = Target { kind: Arc::clone(kind), namespace: None, name: Some(name.to_string()), subresource: None };
    let mut configuration = json!({
        "kind": kind.gvk.kind,
        "apiVersion": kind.group_version().to_string(),
        "metadata": {"name": name.as_str()},
    });
    if !rules.is_empty() {
        configuration["rules"] = rules.iter().map(Rule::to_value).collect::<Vec<Value>>().into();
    }
    let options = PatchOptions { field_manager: CONTROLLER.to_owned(), force: true, ..PatchOptions::default() };
    let ctx = Context { user: Arc::new(controller()), ..Context::default() };
    let attributes = Attributes::new(Operation::Update, &target, Options::None, &ctx);
    let author = Author { applied: true, ..Author::through(CONTROLLER, None) };
    let written = rewrite(registry, &attributes, &author, |old| {
        let mut shown = old.clone();
        versions::show(kind, &mut shown)?;
        let mut new = apply::applied(registry, &target, Some(&shown), &configuration, &options)?;
        schema::defaults::apply(kind, &mut new, None);
        Ok(new)
    });
    match written.await {
        // It was deleted in the meantime, which is a change of its own.
        Err(status) if status.is_not_found() => Ok(()),
        Err(status) => Err(status),
        Ok(_) => Ok(()),
    }
}

/// The user of these writes, as admission sees it.
fn controller() -> User {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    User {
        name: format!("system:serviceaccount:kube-system:{CONTROLLER}"),
        groups: groups.map(str::to_owned).into(),
        ..User::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verb: &str) -> Rule {
        Rule { verbs: vec![verb.into()], ..Rule::default() }
    }

    #[test]
    fn az_121_a_role_without_selectors_collects_nothing() {
        let aggregation = Aggregation::default();
        aggregation.change("all", Some(&json!({"metadata": {}, "aggregationRule": {}})));
        aggregation.change("plain", Some(&json!({"metadata": {}})));
        assert_eq!(aggregation.outdated(|_| vec![rule("get")]), [("all".into(), Vec::new())]);
    }

    fn role(labels: Value, selectors: Value) -> Value {
        json!({"metadata": {"labels": labels}, "aggregationRule": {"clusterRoleSelectors": selectors}})
    }

    #[test]
    fn az_120_rules_are_collected_by_selector_then_by_name_each_once() {
        let aggregation = Aggregation::default();
        for (name, labels) in [("b", json!({"x": "1"})), ("a", json!({"x": "1"})), ("c", json!({"y": "1"}))] {
            aggregation.change(name, Some(&json!({"metadata": {"labels": labels}})));
        }
        let before = *aggregation.changes.borrow();
        aggregation.change("other", Some(&json!({"metadata": {"labels": {"z": "1"}}})));
        assert_eq!(*aggregation.changes.borrow(), before, "it concerns no role");
        let selectors = json!([{"matchLabels": {"y": "1"}}, {"matchLabels": {"x": "1"}}]);
        aggregation.change("all", Some(&role(json!({"x": "1"}), selectors)));
        assert_eq!(*aggregation.changes.borrow(), before + 1);
        let rules_of = |name: &Text| match name.as_str() {
            "a" => vec![rule("get"), rule("list")],
            "b" => vec![rule("list"), rule("watch")],
            "c" => vec![rule("create")],
            _ => vec![rule("own")],
        };
        let verbs = ["create", "get", "list", "watch"].map(rule).to_vec();
        assert_eq!(aggregation.outdated(rules_of), [("all".into(), verbs)], "not its own");
    }

    #[test]
    fn az_121_chains_settle_and_cycles_end() {
        let aggregation = Aggregation::default();
        let collects = |label: &str, of: &str| role(json!({label: "1"}), json!([{"matchLabels": {of: "1"}}]));
        aggregation.change("admin", Some(&collects("none", "to-admin")));
        aggregation.change("edit", Some(&collects("to-admin", "to-edit")));
        aggregation.change("view", Some(&collects("to-edit", "to-view")));
        aggregation.change("part", Some(&json!({"metadata": {"labels": {"to-view": "1"}}})));
        let rules_of = |name: &Text| if name == "part" { vec![rule("get")] } else { Vec::new() };
        let names: Vec<(Text, Vec<Rule>)> =
            ["admin", "edit", "view"].map(|name| (name.into(), vec![rule("get")])).into();
        assert_eq!(aggregation.outdated(rules_of), names);
        aggregation.change("part", Some(&collects("to-view", "to-admin")));
        let _ = aggregation.outdated(rules_of);
        aggregation.change("part", None);
        assert_eq!(aggregation.outdated(|_| Vec::new()), []);
    }

    #[test]
    fn az_121_a_ring_settles() {
        let aggregation = Aggregation::default();
        let collects = |label: &str, of: &str| role(json!({label: "1"}), json!([{"matchLabels": {of: "1"}}]));
        for (name, of) in [("a", "b"), ("b", "c"), ("c", "a")] {
            aggregation.change(name, Some(&collects(name, of)));
            let part = json!({"metadata": {"labels": {of: "1"}}});
            aggregation.change(&format!("part-of-{name}"), Some(&part));
        }
        let names = ["a", "b", "c", "part-of-a", "part-of-b", "part-of-c"];
        let mut stored: BTreeMap<Text, Vec<Rule>> = names.map(|name| (name.into(), vec![rule(name)])).into();
        let outdated = aggregation.outdated(|name| stored[name].clone());
        let rules = |parts: [&str; 3]| parts.map(|part| rule(&format!("part-of-{part}"))).to_vec();
        let expected = [("a", ["c", "b", "a"]), ("b", ["a", "c", "b"]), ("c", ["b", "a", "c"])]
            .map(|(name, parts)| (name.into(), rules(parts)));
        assert_eq!(outdated, expected);
        stored.extend(outdated);
        assert_eq!(aggregation.outdated(|name| stored[name].clone()), []);
        // Without anything to collect, what circulated is gone as well.
        for name in ["part-of-a", "part-of-b", "part-of-c"] {
            aggregation.change(name, None);
        }
        let outdated = aggregation.outdated(|name| stored[name].clone());
        assert_eq!(outdated, ["a", "b", "c"].map(|name| (name.into(), Vec::new())));
        stored.extend(outdated);
        assert_eq!(aggregation.outdated(|name| stored[name].clone()), []);
    }

    #[test]
    fn roles_can_be_read_and_changed_while_rules_are_collected() {
        let aggregation = Aggregation::default();
        aggregation.change("all", Some(&role(json!({}), json!([{"matchLabels": {"x": "1"}}]))));
        aggregation.change("part", Some(&json!({"metadata": {"labels": {"x": "1"}}})));
        let rules_of = |name: &Text| {
            assert!(aggregation.roles.try_lock().is_some(), "the feed would wait");
            vec![rule(name)]
        };
        assert_eq!(aggregation.outdated(rules_of), [("all".into(), vec![rule("part")])]);
    }

    #[test]
    fn a_role_that_would_be_too_large_stays() {
        let aggregation = Aggregation::default();
        aggregation.change("all", Some(&role(json!({}), json!([{"matchLabels": {"x": "1"}}]))));
        for name in ["a", "b"] {
            aggregation.change(name, Some(&json!({"metadata": {"labels": {"x": "1"}}})));
        }
        let rules =
            |bytes: usize| move |name: &Text| if name == "all" { Vec::new() } else { vec![rule(&name.repeat(bytes))] };
        assert_eq!(aggregation.outdated(rules(1000)).len(), 1);
        assert_eq!(aggregation.outdated(rules(2 * 1024 * 1024)), []);
    }
}
