//! The flow of a request: the first FlowSchema that matches it, and the priority level that it names.
//!
//! Schemas are ordered by precedence, then by name, and indexed by their subjects: a request is compared only with those that
//! name its user or one of its groups.

use std::collections::HashMap;
use std::sync::Arc;

use access::authorizer::{ResourceAttributes, What};
use access::identity::{MASTERS, User};
use bytes::Bytes;
use foldhash::fast::RandomState;
use machinery::json::Value;

const ALL: &str = "*";
const ACCOUNT: &str = "system:serviceaccount:";

/// Schemas that are tried; those that come later are left out, except `catch-all`.
const SCHEMAS_MAX: usize = 1000;

/// Priority levels, and the schemas that assign requests to them.
#[derive(Debug, Default)]
pub struct FlowTable {
    pub levels: Vec<Arc<PriorityLevel>>,
    /// In the order in which they are tried, with the places of their levels.
    schemas: Vec<(Arc<FlowSchema>, usize)>,
    index: Index,
    /// Whether the first schema is `exempt` as it must be: members of `system:masters` need no search then.
    masters_first: bool,
}

/// A priority level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityLevel {
    pub name: String,
    pub uid: Bytes,
    /// None if requests of this level are never limited.
    pub limit: Option<LevelLimit>,
}

/// The share of a level in the server's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelLimit {
    pub shares: u32,
    /// Percentage of the share that other levels may use while it is idle.
    pub lendable_percent: u32,
    /// Longest queue of one flow; none refuses what is beyond the limit.
    pub queue_length: Option<usize>,
}

/// The flow of a request.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    pub schema: &'a FlowSchema,
    pub level: &'a PriorityLevel,
    /// The place of the level in [`FlowTable::levels`].
    pub at: usize,
    /// The place of the schema in [`FlowTable::schemas`].
    pub schema_at: usize,
}

/// A FlowSchema.
#[derive(Debug)]
pub struct FlowSchema {
    pub name: String,
    pub uid: Bytes,
    pub(super) level: String,
    /// What its condition `Dangling` says; none without one.
    pub(super) reported_dangling: Option<bool>,
    precedence: i64,
    rules: Vec<Rule>,
}

#[derive(Debug, Default)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    User(String),
    Group(String),
    /// Namespace and name of a service account.
    Account(String, String),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Vec<String>,
    urls: Vec<String>,
}

/// Schemas by the subjects that they name, each list in order.
#[derive(Debug, Default)]
struct Index {
    users: HashMap<String, Vec<u32>, RandomState>,
    groups: HashMap<String, Vec<u32>, RandomState>,
    /// By namespace: accounts of any or of certain names.
    accounts: HashMap<String, Vec<u32>, RandomState>,
    anyone: Vec<u32>,
}

impl FlowTable {
    /// Builds the table of objects. Schemas whose level does not exist are left out.
    pub(super) fn new<'a>(
        levels: impl Iterator<Item = &'a Arc<PriorityLevel>>,
        schemas: impl Iterator<Item = &'a Arc<FlowSchema>>,
    ) -> Self {
        let mut table = FlowTable { levels: levels.map(Arc::clone).collect(), ..FlowTable::default() };
        table.levels.sort_by(|a, b| a.name.cmp(&b.name));
        let level = |name: &str| table.levels.binary_search_by(|level| level.name.as_str().cmp(name)).ok();
        table.schemas = schemas.filter_map(|schema| Some((Arc::clone(schema), level(&schema.level)?))).collect();
        table.schemas.sort_by(|(a, _), (b, _)| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        if table.schemas.len() > SCHEMAS_MAX {
            let rest = table.schemas.split_off(SCHEMAS_MAX);
            table.schemas.extend(rest.into_iter().filter(|(schema, _)| schema.name == "catch-all"));
        }
        table.index = Index::new(&table.schemas);
        table.masters_first = table.schemas.first().is_some_and(|(first, _)| {
            first.name == "exempt" && first.subjects().any(|one| *one == Subject::Group(MASTERS.to_owned()))
        });
        table
    }

    /// Finds the flow of a request. None before the objects of every cluster are there.
    #[must_use]
    pub fn classify(&self, user: &User, verb: &str, what: &What<'_>) -> Option<Flow<'_>> {
        let schema_at = if self.masters_first && user.is_master() {
            0
        } else {
            let matches =
                |at: &usize| self.schemas.get(*at).is_some_and(|(schema, _)| schema.matches(user, verb, what));
            self.index.candidates(user).map(|at| at as usize).find(matches)?
        };
        let (schema, at) = self.schemas.get(schema_at)?;
        Some(Flow { schema, level: self.levels.get(*at)?, at: *at, schema_at })
    }

    /// The schemas in the order in which they are tried.
    pub fn schemas(&self) -> impl Iterator<Item = &FlowSchema> {
        self.schemas.iter().map(|(schema, _)| &**schema)
    }
}

impl Index {
    fn new(schemas: &[(Arc<FlowSchema>, usize)]) -> Self {
        let mut index = Index::default();
        for (at, (schema, _)) in schemas.iter().enumerate() {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            for subject in schema.subjects() {
                let list = match subject {
                    Subject::User(name) | Subject::Group(name) if name == ALL => &mut index.anyone,
                    Subject::User(name) => index.users.entry(name.clone()).or_default(),
                    Subject::Group(name) => index.groups.entry(name.clone()).or_default(),
                    Subject::Account(namespace, _) => index.accounts.entry(namespace.clone()).or_default(),
                };
                if list.last() != Some(&at) {
                    list.push(at);
                }
            }
        }
        index
    }

    /// The schemas that name a user or one of its groups, in order. One may occur more than once.
    fn candidates<'a>(&'a self, user: &'a User) -> impl Iterator<Item = u32> {
        let account = user.name.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'));
        let mut lists: smallvec::SmallVec<[&[u32]; 8]> = smallvec::SmallVec::new();
        let mut add = |list: Option<&'a Vec<u32>>| {
            if let Some(list) = list.filter(|list| !list.is_empty()) {
                lists.push(list);
            }
        };
        add(Some(&self.anyone));
        add(self.users.get(&user.name));
        add(account.and_then(|(namespace, _)| self.accounts.get(namespace)));
        user.groups.iter().for_each(|group| add(self.groups.get(group)));
        std::iter::from_fn(move || {
            // Most users are named by one list.
            if let [only] = lists.as_mut_slice() {
                let (first, rest) = only.split_first()?;
                *only = rest;
                return Some(*first);
            }
            let list = lists.iter_mut().filter(|list| !list.is_empty()).min_by_key(|list| list.first().copied())?;
            let (first, rest) = list.split_first()?;
            *list = rest;
            Some(*first)
        })
    }
}

impl PriorityLevel {
    pub(super) fn read(object: &Value) -> Self {
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let limited = &object["spec"]["limited"];
        let limit = (object["spec"]["type"] != "Exempt").then(|| LevelLimit {
            shares: number(&limited["nominalConcurrencyShares"]).unwrap_or(30),
            lendable_percent: number(&limited["lendablePercent"]).unwrap_or_default().min(100),
            queue_length: (limited["limitResponse"]["type"] == "Queue")
                .then(|| number(&limited["limitResponse"]["queuing"]["queueLengthLimit"]).unwrap_or(50) as usize),
        });
        PriorityLevel { name: text(&object["metadata"]["name"]), uid: uid(object), limit }
    }
}

impl FlowSchema {
    pub(super) fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        FlowSchema {
            name: text(&object["metadata"]["name"]),
            uid: uid(object),
            level: text(&spec["priorityLevelConfiguration"]["name"]),
            reported_dangling: reported_dangling(&object["status"]["conditions"]),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            rules: spec["rules"].as_array().into_iter().flatten().map(Rule::read).collect(),
        }
    }

    fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.rules.iter().flat_map(|rule| &rule.subjects)
    }

    fn matches(&self, user: &User, verb: &str, what: &What<'_>) -> bool {
        self.rules.iter().any(|rule| {
            let is_target = match what {
                What::Resource(about) => rule.resources.iter().any(|rule| rule.matches(verb, about)),
                What::Path(path) => rule.paths.iter().any(|rule| rule.matches(verb, path)),
            };
            // The index has found it by a subject, so this is the part that is likely to match.
            is_target && rule.subjects.iter().any(|subject| subject.matches(user))
        })
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let list = |name: &str| rule[name].as_array().into_iter().flatten();
        Rule {
            subjects: list("subjects").filter_map(Subject::read).collect(),
            resources: list("resourceRules")
                .map(|rule| ResourceRule {
                    verbs: texts(&rule["verbs"]),
                    groups: texts(&rule["apiGroups"]),
                    resources: texts(&rule["resources"]),
                    namespaces: texts(&rule["namespaces"]),
                    cluster_scope: rule["clusterScope"].as_bool().unwrap_or_default(),
                })
                .collect(),
            paths: list("nonResourceRules")
                .map(|rule| PathRule { verbs: texts(&rule["verbs"]), urls: texts(&rule["nonResourceURLs"]) })
                .collect(),
        }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Self> {
        match subject["kind"].as_str()? {
            "User" => Some(Subject::User(subject["user"]["name"].as_str()?.to_owned())),
            "Group" => Some(Subject::Group(subject["group"]["name"].as_str()?.to_owned())),
            "ServiceAccount" => {
                let account = &subject["serviceAccount"];
                Some(Subject::Account(account["namespace"].as_str()?.to_owned(), account["name"].as_str()?.to_owned()))
            }
            _ => None,
        }
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == ALL || *name == user.name,
            Subject::Group(name) => name == ALL || user.in_group(name),
            Subject::Account(namespace, name) => user
                .name
                .strip_prefix(ACCOUNT)
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(of, account)| of == namespace && (name == ALL || name == account)),
        }
    }
}

/// Whether a list holds a text, or is the wildcard alone.
fn holds(list: &[String], text: &str) -> bool {
    matches!(list, [only] if only == ALL) || list.iter().any(|one| one == text)
}

impl ResourceRule {
    fn matches(&self, verb: &str, about: &ResourceAttributes<'_>) -> bool {
        let by_resource = match about.subresource {
            "" => holds(&self.resources, about.resource),
            sub => {
                matches!(self.resources.as_slice(), [only] if only == ALL)
                    || self.resources.iter().any(|one| one.split_once('/') == Some((about.resource, sub)))
            }
        };
        by_resource
            && holds(&self.verbs, verb)
            && holds(&self.groups, about.group)
            && if about.namespace.is_empty() { self.cluster_scope } else { holds(&self.namespaces, about.namespace) }
    }
}

impl PathRule {
    fn matches(&self, verb: &str, path: &str) -> bool {
        holds(&self.verbs, verb)
            && self.urls.iter().any(|url| {
                // A URL is also the prefix of those below it, with or without a star at its end.
                let prefix = url.strip_suffix('*').unwrap_or(url);
                let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
                url == ALL || url == path || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
            })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn reported_dangling(conditions: &Value) -> Option<bool> {
    let mut conditions = conditions.as_array()?.iter();
    let dangling = conditions.find(|condition| condition["type"] == "Dangling")?;
    Some(dangling["status"] == "True")
}

fn uid(object: &Value) -> Bytes {
    Bytes::from(text(&object["metadata"]["uid"]))
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::bootstrap;
    use machinery::json::json;

    fn table(more: &[Value]) -> FlowTable {
        let mut objects: Vec<Value> = bootstrap::objects().map(|object| object.value()).collect();
        objects.extend_from_slice(more);
        let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
        let levels: Vec<_> = of("PriorityLevelConfiguration").map(|one| Arc::new(PriorityLevel::read(one))).collect();
        let schemas: Vec<_> = of("FlowSchema").map(|one| Arc::new(FlowSchema::read(one))).collect();
        FlowTable::new(levels.iter(), schemas.iter())
    }

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        User { name: name.to_owned(), groups, ..User::default() }.authenticated()
    }

    fn resource<'a>(group: &'a str, resource: &'a str, namespace: &'a str) -> What<'a> {
        What::Resource(ResourceAttributes { group, resource, namespace, ..ResourceAttributes::default() })
    }

    fn flow(table: &FlowTable, user: &User, verb: &str, what: &What<'_>) -> String {
        let flow = table.classify(user, verb, what).expect("a flow");
        format!("{}/{}", flow.schema.name, flow.level.name)
    }

    #[test]
    fn apf_5_6_requests_have_the_flows_of_the_reference() {
        let table = table(&[]);
        let (pods, nodes) = (resource("", "pods", "n"), resource("", "nodes", ""));
        let leases = resource("coordination.k8s.io", "leases", "kube-system");
        let anonymous = User::anonymous();
        let account = user("system:serviceaccount:shop:a", &["system:serviceaccounts", "system:serviceaccounts:shop"]);
        let system = user("system:serviceaccount:kube-system:a", &["system:serviceaccounts"]);
        let node = user("system:node:n1", &["system:nodes"]);
        let manager = user("system:kube-controller-manager", &[]);
        let alice = user("alice", &[]);
        for (user, verb, what, expected) in [
            (&user("root", &["system:masters"]), "list", &pods, "exempt/exempt"),
            (&user("root", &["system:masters"]), "get", &What::Path("/healthz"), "exempt/exempt"),
            (&anonymous, "get", &What::Path("/healthz"), "probes/exempt"),
            (&anonymous, "get", &What::Path("/livez/ping"), "probes/exempt"),
            (&anonymous, "get", &What::Path("/livezzz"), "global-default/global-default"),
            (&anonymous, "post", &What::Path("/healthz"), "global-default/global-default"),
            (&alice, "get", &What::Path("/readyz"), "probes/exempt"),
            (&alice, "list", &pods, "global-default/global-default"),
            (&account, "list", &pods, "service-accounts/workload-low"),
            (&system, "list", &pods, "kube-system-service-accounts/workload-high"),
            (&system, "update", &leases, "system-leader-election/leader-election"),
            (&system, "delete", &leases, "kube-system-service-accounts/workload-high"),
            (&manager, "get", &leases, "system-leader-election/leader-election"),
            (&manager, "watch", &pods, "kube-controller-manager/workload-high"),
            (&user("system:kube-scheduler", &[]), "watch", &pods, "kube-scheduler/workload-high"),
            (&node, "patch", &nodes, "system-node-high/node-high"),
            (&node, "update", &leases, "system-node-high/node-high"),
            (&node, "get", &pods, "system-nodes/system"),
        ] {
            assert_eq!(flow(&table, user, verb, what), expected, "{} {verb} {what:?}", user.name);
        }
    }

    fn schema(name: &str, precedence: i64, level: &str, rule: Value) -> Value {
        json!({"kind": "FlowSchema", "metadata": {"name": name, "uid": name}, "spec": {
            "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "rules": [rule]}})
    }

    #[test]
    fn apf_5_the_lowest_precedence_decides_then_the_name() {
        let rule = json!({"subjects": [{"kind": "User", "user": {"name": "alice"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"], "namespaces": ["n"]}]});
        let everyone = json!({"subjects": [{"kind": "Group", "group": {"name": "*"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]});
        let table = table(&[
            schema("b", 50, "system", rule.clone()),
            schema("a", 50, "workload-low", rule),
            schema("dangling", 3, "missing", everyone.clone()),
            schema("cluster", 60, "system", everyone),
        ]);
        let alice = user("alice", &[]);
        let log = What::Resource(ResourceAttributes {
            resource: "pods",
            subresource: "log",
            namespace: "n",
            ..ResourceAttributes::default()
        });
        assert_eq!(flow(&table, &alice, "get", &log), "a/workload-low");
        assert_eq!(flow(&table, &alice, "list", &log), "global-default/global-default", "another verb");
        assert_eq!(flow(&table, &user("bob", &[]), "get", &log), "global-default/global-default");
        assert_eq!(flow(&table, &alice, "get", &resource("", "pods", "n")), "global-default/global-default");
        assert_eq!(
            flow(&table, &alice, "get", &resource("", "nodes", "")),
            "cluster/system",
            "of the cluster scope only"
        );
    }

    #[test]
    fn apf_5_masters_are_compared_where_another_schema_comes_first() {
        let rule = json!({"subjects": [{"kind": "Group", "group": {"name": "system:masters"}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/metrics*"]}]});
        let table = table(&[schema("aaa", 1, "system", rule)]);
        let root = user("root", &["system:masters"]);
        assert_eq!(flow(&table, &root, "get", &What::Path("/metrics/x")), "aaa/system");
        assert_eq!(flow(&table, &root, "get", &What::Path("/version")), "exempt/exempt");
    }

    #[test]
    fn apf_5_beyond_the_bound_only_the_last_schema_is_kept() {
        let rule = json!({"subjects": [{"kind": "User", "user": {"name": "alice"}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/x"]}]});
        let many: Vec<Value> = (0..1100).map(|n| schema(&format!("s{n:04}"), 9000, "system", rule.clone())).collect();
        let table = table(&many);
        assert_eq!(table.schemas.len(), SCHEMAS_MAX + 1);
        assert_eq!(flow(&table, &user("alice", &[]), "get", &What::Path("/x")), "s0000/system");
        assert_eq!(flow(&table, &user("bob", &[]), "get", &What::Path("/x")), "catch-all/catch-all");
    }

    #[test]
    fn without_objects_there_is_no_flow() {
        let table = FlowTable::new(std::iter::empty(), std::iter::empty());
        assert!(table.classify(&User::anonymous(), "get", &What::Path("/")).is_none());
    }
}
