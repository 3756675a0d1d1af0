//! Decides on the requests of nodes: their own objects, and what their pods lead to.
//!
//! A refusal is no opinion with a reason, so that a role may still allow the request.

use std::sync::Arc;

use super::graph::Graph;
use super::references::Kind;
use crate::authorizer::{Attributes, Authorizer, Decision, ResourceAttributes, RuleList, Verdict, What};
use crate::identity::User;
use crate::rbac::rule::Rule;

/// Group of all nodes.
pub const NODES: &str = "system:nodes";
/// The user name of a node begins with this.
const NODE_USER: &str = "system:node:";
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// The name of the node that a user is; none for users that are no nodes.
#[must_use]
pub fn node_name(user: &User) -> Option<&str> {
    user.name.strip_prefix(NODE_USER).filter(|_| user.in_group(NODES))
}

/// Authorizes nodes.
pub struct NodeAuthorizer {
    graph: Arc<Graph>,
    /// What every node may do with the other kinds.
    rules: Vec<Rule>,
}

impl NodeAuthorizer {
    #[must_use]
    pub fn new(graph: Arc<Graph>, rules: Vec<Rule>) -> Self {
        NodeAuthorizer { graph, rules }
    }

    fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = node_name(attributes.user) else { return Decision::no_opinion() };
        if node.is_empty() {
            let user = machinery::go_text::quote(&attributes.user.name);
            return Decision::no_opinion_because(format!("unknown node for user {user}"));
        }
        let allowed = match &attributes.what {
            What::Resource(about) => {
                let request = Request { graph: &self.graph, node, verb: attributes.verb, about };
                match request.decide() {
                    Some(result) => result,
                    None => self.by_rules(attributes),
                }
            }
            What::Path(_) => self.by_rules(attributes),
        };
        match allowed {
            Ok(()) => Decision::allow(""),
            Err(reason) => Decision::no_opinion_because(reason),
        }
    }

    fn by_rules(&self, attributes: &Attributes<'_>) -> Result<(), String> {
        let allows = self.rules.iter().any(|rule| rule.allows(attributes.verb, &attributes.what));
        if allows { Ok(()) } else { Err(String::new()) }
    }
}

impl Authorizer for NodeAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        Verdict::Now(self.decide(attributes))
    }

    fn rules_for(&self, user: &User, _: &str) -> RuleList {
        if node_name(user).is_some() { RuleList::unsupported("node") } else { RuleList::default() }
    }
}

/// A node's request for a resource. Results are `Ok` if it is allowed, else the reason, which may be empty.
struct Request<'a> {
    graph: &'a Graph,
    node: &'a str,
    verb: &'a str,
    about: &'a ResourceAttributes<'a>,
}

impl Request<'_> {
    /// None for kinds that all nodes may use alike.
    fn decide(&self) -> Option<Result<(), String>> {
        let about = self.about;
        Some(match (about.group, about.resource) {
            ("", "secrets") => self.read(Kind::Secret),
            ("", "configmaps") => self.read(Kind::ConfigMap),
            ("", "persistentvolumeclaims") if about.subresource == "status" => match self.verb {
                "update" | "patch" => self.used(Kind::Claim),
                _ => refuse("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => self.get(|| self.used(Kind::Claim)),
            ("", "persistentvolumes") => self.get(|| self.known(self.graph.has_volume(self.node, about.name))),
            ("resource.k8s.io", "resourceclaims") => self.get(|| self.used(Kind::ResourceClaim)),
            ("storage.k8s.io", "volumeattachments") => {
                self.get(|| self.known(self.graph.has_attachment(self.node, about.name)))
            }
            ("", "serviceaccounts") => self.account(),
            ("coordination.k8s.io", "leases") => self.lease(),
            ("storage.k8s.io", "csinodes") => self.csi_node(),
            ("resource.k8s.io", "resourceslices") => self.slice(),
            ("", "nodes") => self.own_node(),
            ("", "pods") => self.pod(),
            // Not served; the reference has no rule for them either while they are off.
            ("certificates.k8s.io", "podcertificaterequests") => refuse(""),
            _ => return None,
        })
    }

    /// Allows what the graph knows.
    fn known(&self, known: bool) -> Result<(), String> {
        match (self.about.name.is_empty(), known) {
            (true, _) => refuse("No Object name found"),
            (false, true) => Ok(()),
            (false, false) => Err(format!("no relationship found between node '{}' and this object", self.node)),
        }
    }

    fn used(&self, kind: Kind) -> Result<(), String> {
        self.known(self.graph.leads_to(self.node, kind, self.about.namespace, self.about.name))
    }

    /// `get` of one object.
    fn get(&self, allowed: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        match (self.verb, self.about.subresource) {
            ("get", "") => allowed(),
            ("get", _) => refuse("cannot get subresource"),
            _ => refuse("can only get individual resources of this type"),
        }
    }

    /// `get`, and `list` and `watch` of one name.
    fn read(&self, kind: Kind) -> Result<(), String> {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return refuse("can only read resources of this type");
        }
        if !self.about.subresource.is_empty() {
            return refuse("cannot read subresource");
        }
        if self.about.namespace.is_empty() {
            return refuse("can only read namespaced object of this type");
        }
        self.used(kind)
    }

    /// The account of a pod on the node, and tokens for it.
    fn account(&self) -> Result<(), String> {
        match (self.verb, self.about.subresource) {
            ("get", "") => self.read(Kind::Account),
            ("create", "token") if !self.about.name.is_empty() => self.used(Kind::Account),
            ("create", _) if !self.about.name.is_empty() => {
                refuse("can only create token subresource of serviceaccount")
            }
            _ => refuse("can only create tokens for individual service accounts"),
        }
    }

    /// The node's own lease. The name of a created one is not known yet; admission checks it.
    fn lease(&self) -> Result<(), String> {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return refuse("can only get, create, update, patch, or delete a node lease");
        }
        if self.about.namespace != LEASES {
            return Err(format!("can only access leases in the \"{LEASES}\" system namespace"));
        }
        if self.verb != "create" && self.about.name != self.node {
            return refuse("can only access node lease with the same name as the requesting node");
        }
        Ok(())
    }

    fn csi_node(&self) -> Result<(), String> {
        match self.about.subresource {
            "" if matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") => {}
            "" => return refuse("can only get, create, update, patch, or delete a CSINode"),
            _ => return refuse("cannot authorize CSINode subresources"),
        }
        if self.verb != "create" && self.about.name != self.node {
            return refuse("can only access CSINode with the same name as the requesting node");
        }
        Ok(())
    }

    /// The slices of the node's devices. Admission checks the node of a created one.
    fn slice(&self) -> Result<(), String> {
        if !self.about.subresource.is_empty() {
            return refuse("cannot authorize ResourceSlice subresources");
        }
        match self.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.known(self.graph.has_slice(self.node, self.about.name)),
            "watch" | "list" | "deletecollection" => {
                if self.about.selectors.fields.require("spec.nodeName", self.node) {
                    return Ok(());
                }
                refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    /// The Node object. Admission limits writes to the node's own.
    fn own_node(&self) -> Result<(), String> {
        let (node, name) = (self.node, self.about.name);
        match (self.about.subresource, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") if name == node => Ok(()),
            ("", "get" | "list" | "watch") if name.is_empty() => {
                Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            ("", "get" | "list" | "watch") => {
                Err(format!("node '{node}' cannot read '{name}', only its own Node object"))
            }
            _ => refuse(""),
        }
    }

    /// Pods of the node. Admission limits writes to mirrors, and status and evictions to the node's own pods.
    fn pod(&self) -> Result<(), String> {
        let about = self.about;
        let own = || self.known(self.graph.has_pod(self.node, about.namespace, about.name));
        match (about.subresource, self.verb) {
            ("", "get") => own(),
            ("", "list" | "watch") => {
                if about.selectors.fields.require("spec.nodeName", self.node) {
                    Ok(())
                } else if about.name.is_empty() {
                    refuse("can only list/watch pods with spec.nodeName field selector")
                } else {
                    own()
                }
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => refuse(""),
        }
    }
}

fn refuse(reason: &str) -> Result<(), String> {
    Err(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::references::Pod;
    use super::*;
    use crate::selectors::{FieldTerms, Selectors};

    fn graph() -> Arc<Graph> {
        let graph = Graph::default();
        let objects = [(Kind::Secret, "s"), (Kind::ConfigMap, "c"), (Kind::Account, "robot"), (Kind::Claim, "claim")];
        let objects = objects.map(|(kind, name)| (kind, name.to_owned())).to_vec();
        graph.set_pod("a", "p", Some(Pod { node: "n".to_owned(), objects }));
        graph.set_attachment("att", Some("n"));
        Arc::new(graph)
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        }
    }

    /// Decides on `verb group/resource[/subresource] namespace/name[?fieldSelector]`.
    fn ask(node: &str, request: &str) -> Result<(), String> {
        let (request, selector) = request.split_once('?').unwrap_or((request, ""));
        let words: Vec<&str> = request.split(' ').collect();
        let kind: Vec<&str> = words[1].split('/').collect();
        let (namespace, name) = words[2].split_once('/').unwrap();
        let fields = if selector.is_empty() { FieldTerms::None } else { FieldTerms::Text(selector) };
        let what = What::Resource(ResourceAttributes {
            group: kind[0],
            resource: kind[1],
            subresource: kind.get(2).copied().unwrap_or_default(),
            namespace,
            name,
            selectors: Selectors { fields, ..Selectors::default() },
            ..ResourceAttributes::default()
        });
        let user = user(&format!("system:node:{node}"), &[NODES]);
        let authorizer = NodeAuthorizer::new(graph(), Vec::new());
        let decision = authorizer.decide(&Attributes { user: &user, verb: words[0], what });
        assert!(!decision.denied, "a refusal is no opinion");
        if decision.allowed { Ok(()) } else { Err(decision.reason.to_string()) }
    }

    fn none(node: &str) -> Result<(), String> {
        Err(format!("no relationship found between node '{node}' and this object"))
    }

    #[test]
    fn az_135_objects_of_pods_on_the_node_may_be_read() {
        for request in [
            "get /secrets a/s",
            "list /secrets a/s",
            "watch /configmaps a/c",
            "get /persistentvolumeclaims a/claim",
            "update /persistentvolumeclaims/status a/claim",
            "get /serviceaccounts a/robot",
            "get storage.k8s.io/volumeattachments /att",
            "get /pods a/p",
        ] {
            assert_eq!(ask("n", request), Ok(()), "{request}");
            assert_eq!(ask("m", request), none("m"), "{request}");
        }
        for (request, reason) in [
            ("list /secrets a/", "No Object name found"),
            ("delete /secrets a/s", "can only read resources of this type"),
            ("get /secrets/x a/s", "cannot read subresource"),
            ("list /secrets /s", "can only read namespaced object of this type"),
            ("list /persistentvolumeclaims a/claim", "can only get individual resources of this type"),
            ("get /persistentvolumes/status /v", "cannot get subresource"),
        ] {
            assert_eq!(ask("n", request), Err(reason.to_owned()), "{request}");
        }
    }

    #[test]
    fn az_136_own_objects_only() {
        let refused = |reason: &str| Err(reason.to_owned());
        for (request, expected) in [
            ("get /nodes /n", Ok(())),
            ("list /nodes /n", Ok(())),
            ("list /nodes /", refused("node 'n' cannot read all nodes, only its own Node object")),
            ("get /nodes /m", refused("node 'n' cannot read 'm', only its own Node object")),
            ("delete /nodes /n", refused("")),
            ("patch /nodes/status /n", Ok(())),
            ("get /nodes/proxy /n", refused("")),
            ("list /pods /?spec.nodeName=n", Ok(())),
            ("list /pods a/", refused("can only list/watch pods with spec.nodeName field selector")),
            ("list /pods /?spec.nodeName=m", refused("can only list/watch pods with spec.nodeName field selector")),
            ("list /pods /?spec.nodeName!=n", refused("can only list/watch pods with spec.nodeName field selector")),
            ("watch /pods a/p", Ok(())),
            ("create /pods/eviction a/p", Ok(())),
            ("patch /pods a/p", refused("")),
            ("create /serviceaccounts/token a/robot", Ok(())),
            ("create /serviceaccounts/token a/other", none("n")),
            ("create /serviceaccounts a/", refused("can only create tokens for individual service accounts")),
            ("get coordination.k8s.io/leases kube-node-lease/n", Ok(())),
            ("create coordination.k8s.io/leases kube-node-lease/", Ok(())),
            (
                "list coordination.k8s.io/leases kube-node-lease/",
                refused("can only get, create, update, patch, or delete a node lease"),
            ),
            (
                "get coordination.k8s.io/leases a/n",
                refused("can only access leases in the \"kube-node-lease\" system namespace"),
            ),
            (
                "get coordination.k8s.io/leases kube-node-lease/m",
                refused("can only access node lease with the same name as the requesting node"),
            ),
            ("get storage.k8s.io/csinodes /n", Ok(())),
            (
                "get storage.k8s.io/csinodes /m",
                refused("can only access CSINode with the same name as the requesting node"),
            ),
            ("list resource.k8s.io/resourceslices /?spec.nodeName=n", Ok(())),
            (
                "list resource.k8s.io/resourceslices /",
                refused("can only list/watch/deletecollection resourceslices with nodeName field selector"),
            ),
        ] {
            assert_eq!(ask("n", request), expected, "{request}");
        }
    }

    #[test]
    fn az_135_a_node_has_the_name_and_the_group() {
        assert_eq!(node_name(&user("system:node:n", &[NODES])), Some("n"));
        assert_eq!(node_name(&user("system:node:n", &[])), None);
        assert_eq!(node_name(&user("n", &[NODES])), None);
        let authorizer = NodeAuthorizer::new(graph(), vec![Rule::every_resource()]);
        let services = What::Resource(ResourceAttributes { resource: "services", ..ResourceAttributes::default() });
        let decide = |user: &User| authorizer.decide(&Attributes { user, verb: "list", what: services });
        assert!(decide(&user("system:node:n", &[NODES])).allowed, "other kinds by the rules of all nodes");
        assert_eq!(decide(&user("n", &[NODES])), Decision::no_opinion());
        let nameless = decide(&user("system:node:", &[NODES]));
        assert_eq!(nameless.reason, "unknown node for user \"system:node:\"");
        assert!(authorizer.rules_for(&user("system:node:n", &[NODES]), "a").incomplete);
        assert!(!authorizer.rules_for(&user("alice", &[]), "a").incomplete);
    }
}
