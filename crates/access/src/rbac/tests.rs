//! Decisions by whole sets of roles and bindings.

use machinery::json::{Value, json};

use super::objects::{Binding, Name, Role};
use super::*;
use crate::authorizer::{ResourceAttributes, What};

fn role(namespace: &str, name: &str, rules: Value) -> Role {
    Role::from_value(Name::new(namespace, name), &json!({"rules": rules}))
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: Value) -> Binding {
    let value = json!({"roleRef": {"kind": role.0, "name": role.1}, "subjects": subjects});
    Binding::from_value(Name::new(namespace, name), &value)
}

fn alice() -> User {
    User {
        name: "alice".to_owned(),
        groups: vec!["devs".to_owned(), "system:authenticated".to_owned()],
        ..User::default()
    }
}

fn account(namespace: &str, name: &str) -> User {
    User { name: format!("system:serviceaccount:{namespace}:{name}"), ..User::default() }
}

fn pods<'a>(namespace: &'a str, name: &'a str) -> What<'a> {
    What::Resource(ResourceAttributes { resource: "pods", namespace, name, ..ResourceAttributes::default() })
}

/// The reason that allowed a request, or the reason of the refusal.
fn ask(rbac: &Rbac, user: &User, verb: &str, what: What<'_>) -> Result<String, String> {
    let Verdict::Now(decision) = rbac.authorize(&Attributes { user, verb, what }) else { panic!("decided at once") };
    assert!(!decision.denied);
    if decision.allowed { Ok(decision.reason.to_string()) } else { Err(decision.reason.to_string()) }
}

fn read_pods() -> Value {
    json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}])
}

fn user(name: &str) -> Value {
    json!([{"kind": "User", "name": name}])
}

#[test]
fn az_30_bindings_are_additive_and_hold_in_their_place() {
    let rbac = Rbac::default();
    assert_eq!(ask(&rbac, &alice(), "get", pods("n", "p")), Err(String::new()));
    rbac.change(|index| {
        index.set_role(role("n", "reader", read_pods()));
        index.set_binding(binding("n", "b", ("Role", "reader"), user("alice")));
        index.set_role(role(
            "",
            "all",
            json!([
                {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods", "nodes"]},
                {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
            ]),
        ));
        index.set_binding(binding("n", "c", ("ClusterRole", "all"), user("alice")));
    });
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_ok());
    assert!(ask(&rbac, &alice(), "delete", pods("n", "p")).is_ok());
    assert!(ask(&rbac, &alice(), "delete", pods("m", "p")).is_err());
    assert!(ask(&rbac, &alice(), "delete", pods("", "p")).is_err());
    assert!(ask(&rbac, &alice(), "get", What::Path("/metrics")).is_err(), "paths are granted by the cluster only");
    rbac.change(|index| index.set_binding(binding("", "d", ("ClusterRole", "all"), user("alice"))));
    assert!(ask(&rbac, &alice(), "delete", pods("m", "p")).is_ok());
    assert!(ask(&rbac, &alice(), "delete", pods("", "p")).is_ok());
    assert!(ask(&rbac, &alice(), "get", What::Path("/metrics")).is_ok());
    assert!(ask(&rbac, &alice(), "update", pods("n", "p")).is_err());
}

#[test]
fn az_36_subjects() {
    let rbac = Rbac::default();
    let give = |subjects: Value| {
        rbac.change(|index| {
            index.set_role(role("", "reader", read_pods()));
            index.set_role(role("n", "reader", read_pods()));
            index.set_binding(binding("", "cluster", ("ClusterRole", "reader"), subjects.clone()));
            index.set_binding(binding("n", "own", ("Role", "reader"), subjects));
        });
    };
    let allowed = |user: &User, namespace: &str| ask(&rbac, user, "get", pods(namespace, "p")).is_ok();
    give(json!([{"kind": "Group", "name": "devs"}]));
    assert!(allowed(&alice(), "m"));
    assert!(!allowed(&User { name: "devs".to_owned(), ..User::default() }, "m"));
    give(json!([{"kind": "user", "name": "alice"}, {"kind": "Users", "name": "alice"}]));
    assert!(!allowed(&alice(), "m"), "kinds are case-sensitive");
    give(json!([{"kind": "User", "name": "*"}, {"kind": "Group", "name": "*"}]));
    assert!(!allowed(&alice(), "m"), "a star is a name");
    give(json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "m"}]));
    assert!(allowed(&account("m", "robot"), "x"));
    assert!(!allowed(&account("n", "robot"), "x"));
    give(json!([{"kind": "ServiceAccount", "name": "robot"}]));
    assert!(allowed(&account("n", "robot"), "n"), "of the namespace of the binding");
    assert!(!allowed(&account("n", "robot"), "x"), "a binding of the cluster has none");
    give(json!([{"kind": "User", "name": "system:serviceaccount:m:robot"}]));
    assert!(allowed(&account("m", "robot"), "x"));
    give(json!(null));
    assert!(!allowed(&alice(), "n"));
    assert!(rbac.index().user("alice").is_none(), "subjects without a grant are not kept");
}

#[test]
fn az_37_39_a_refusal_names_missing_roles_only() {
    let rbac = Rbac::default();
    rbac.change(|index| index.set_binding(binding("", "b", ("ClusterRole", "x"), user("alice"))));
    let missing = |name: &str| format!("RBAC: clusterrole.rbac.authorization.k8s.io \"{name}\" not found");
    assert_eq!(ask(&rbac, &alice(), "get", pods("n", "p")), Err(missing("x")));
    rbac.change(|index| {
        index.set_binding(binding("", "again", ("ClusterRole", "x"), json!([{"kind": "Group", "name": "devs"}])));
        index.set_binding(binding("n", "c", ("Role", "y"), user("alice")));
    });
    assert_eq!(ask(&rbac, &alice(), "get", pods("m", "p")), Err(missing("x")), "equal texts once");
    assert_eq!(
        ask(&rbac, &alice(), "get", pods("n", "p")),
        Err("RBAC: [clusterrole.rbac.authorization.k8s.io \"x\" not found, role.rbac.authorization.k8s.io \"y\" not found]"
            .to_owned())
    );
    rbac.change(|index| index.set_role(role("n", "y", read_pods())));
    assert_eq!(ask(&rbac, &alice(), "delete", pods("n", "p")), Err(missing("x")));
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_ok());
    rbac.change(|index| index.set_role(role("", "x", json!([]))));
    assert_eq!(ask(&rbac, &alice(), "delete", pods("n", "p")), Err(String::new()));
}

#[test]
fn a_binding_of_the_cluster_cannot_name_a_role_of_a_namespace() {
    let rbac = Rbac::default();
    rbac.change(|index| {
        index.set_role(role("", "r", read_pods()));
        index.set_binding(binding("", "b", ("Role", "r"), user("alice")));
        index.set_binding(binding("", "c", ("Other", "r"), user("bob")));
    });
    let missing = "RBAC: role.rbac.authorization.k8s.io \"r\" not found";
    assert_eq!(ask(&rbac, &alice(), "get", pods("n", "p")), Err(missing.to_owned()));
    let bob = User { name: "bob".to_owned(), ..User::default() };
    let unsupported = "RBAC: unsupported role reference kind: \"Other\"";
    assert_eq!(ask(&rbac, &bob, "get", pods("n", "p")), Err(unsupported.to_owned()));
}

#[test]
fn az_38_the_reason_names_binding_role_and_subject() {
    let rbac = Rbac::default();
    rbac.change(|index| {
        index.set_role(role("", "r", read_pods()));
        index.set_role(role("n", "r", json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}])));
        let robot = json!([{"kind": "ServiceAccount", "name": "robot"}, {"kind": "User", "name": "alice"}]);
        index.set_binding(binding("n", "c", ("Role", "r"), robot));
    });
    let robot = account("n", "robot");
    assert_eq!(
        ask(&rbac, &robot, "get", pods("n", "p")).unwrap(),
        "RBAC: allowed by RoleBinding \"c/n\" of Role \"r\" to ServiceAccount \"robot/n\""
    );
    assert_eq!(
        ask(&rbac, &alice(), "get", pods("n", "p")).unwrap(),
        "RBAC: allowed by RoleBinding \"c/n\" of Role \"r\" to User \"alice\""
    );
    rbac.change(|index| index.set_binding(binding("", "b", ("ClusterRole", "r"), user("alice"))));
    let cluster = "RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"r\" to User \"alice\"";
    assert_eq!(ask(&rbac, &alice(), "get", pods("n", "p")).unwrap(), cluster, "those of the cluster come first");
    let both = json!([{"kind": "Group", "name": "devs"}, {"kind": "User", "name": "alice"}]);
    rbac.change(|index| index.set_binding(binding("", "b", ("ClusterRole", "r"), both)));
    assert_eq!(
        ask(&rbac, &alice(), "get", pods("n", "p")).unwrap(),
        "RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"r\" to Group \"devs\"",
        "the first subject that the user is"
    );
}

#[test]
fn az_40_selectors_do_not_matter() {
    let rbac = Rbac::default();
    rbac.change(|index| {
        index.set_role(role("", "r", json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}])));
        index.set_binding(binding("", "b", ("ClusterRole", "r"), user("alice")));
    });
    let selectors =
        crate::Selectors { labels: crate::LabelTerms::Text("a=b"), fields: crate::FieldTerms::Text("metadata.name=p") };
    let pods = ResourceAttributes { resource: "pods", selectors, ..ResourceAttributes::default() };
    assert!(ask(&rbac, &alice(), "list", What::Resource(pods)).is_ok());
    assert!(ask(&rbac, &alice(), "watch", What::Resource(pods)).is_err());
}

#[test]
fn az_92_nodes_have_rights_that_cannot_be_listed() {
    use crate::node::{Graph, NodeAuthorizer};
    use crate::union::{Member, Union};
    let rbac: Arc<Rbac> = Arc::default();
    rbac.change(|index| {
        index.set_role(role("", "r", read_pods()));
        index.set_binding(binding("", "b", ("ClusterRole", "r"), json!([{"kind": "Group", "name": "system:nodes"}])));
    });
    let node = NodeAuthorizer::new(Arc::new(Graph::default()), Vec::new());
    let both = Union::new(vec![Member::new("Node", "node", Arc::new(node)), Member::new("RBAC", "rbac", rbac)]);
    let user = User { name: "system:node:a".to_owned(), groups: vec!["system:nodes".to_owned()], ..User::default() };
    let list = both.rules_for(&user, "n");
    assert_eq!((list.rules.len(), list.incomplete), (1, true));
    assert_eq!(list.errors, ["node authorizer does not support user rule resolution"]);
    let list = both.rules_for(&alice(), "n");
    assert_eq!((list.rules.len(), list.incomplete, list.errors.len()), (0, false, 0));
}

#[test]
fn az_42_changes_act_at_once() {
    let rbac = Rbac::default();
    rbac.change(|index| {
        index.set_role(role("", "r", read_pods()));
        index.set_binding(binding("", "b", ("ClusterRole", "r"), user("alice")));
    });
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_ok());
    rbac.change(|index| index.set_role(role("", "r", json!([]))));
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_err(), "a rule is taken away");
    rbac.change(|index| index.set_role(role("", "r", read_pods())));
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_ok());
    rbac.change(|index| index.set_binding(binding("", "b", ("ClusterRole", "r"), user("bob"))));
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_err(), "a subject is taken away");
    rbac.change(|index| index.set_binding(binding("", "b", ("ClusterRole", "r"), user("alice"))));
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_ok());
    rbac.change(|index| index.remove_role(&Name::new("", "r")));
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_err());
    rbac.change(|index| {
        index.set_role(role("", "r", read_pods()));
        index.remove_binding(&Name::new("", "b"));
    });
    assert_eq!(ask(&rbac, &alice(), "get", pods("n", "p")), Err(String::new()));
    assert!(rbac.index().referrers_are_exact());
}

#[test]
fn a_decision_by_a_former_index_does_not_disturb_the_current_one() {
    let rbac = Rbac::default();
    rbac.change(|index| {
        index.set_role(role("", "r", read_pods()));
        index.set_binding(binding("", "b", ("ClusterRole", "r"), user("alice")));
    });
    let former = rbac.index();
    rbac.change(|index| index.set_role(role("", "r", json!([]))));
    let alice = alice();
    let attributes = Attributes { user: &alice, verb: "get", what: pods("n", "p") };
    assert!(former.decide(&attributes).allowed, "it is resolved by the former role");
    assert!(!rbac.decide(&attributes).allowed, "which is not there any more");
}

#[test]
fn ba_3_ba_4_a_repeated_request_follows_every_change() {
    let rbac = Rbac::default();
    let other_groups = User { groups: vec!["system:authenticated".to_owned()], ..alice() };
    rbac.change(|index| index.set_role(role("n", "r", read_pods())));
    for _ in 0..3 {
        rbac.change(|index| {
            index.set_binding(binding("n", "b", ("Role", "r"), json!([{"kind": "Group", "name": "devs"}])));
        });
        for name in ["p", "q"] {
            assert!(ask(&rbac, &alice(), "get", pods("n", name)).is_ok());
            assert!(ask(&rbac, &other_groups, "get", pods("n", name)).is_err(), "the same name in other groups");
            assert!(ask(&rbac, &alice(), "get", pods("m", name)).is_err());
        }
        rbac.change(|index| index.remove_binding(&Name::new("n", "b")));
        assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_err());
    }
    // With a rule that names objects, each object is decided on by itself.
    rbac.change(|index| {
        let named = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}]);
        index.set_role(role("n", "r", named));
        index.set_binding(binding("n", "b", ("Role", "r"), user("alice")));
    });
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_ok());
    assert!(ask(&rbac, &alice(), "get", pods("n", "q")).is_err());
}

#[test]
fn a_load_replaces_what_was_there() {
    let rbac = Rbac::default();
    rbac.change(|index| {
        index.set_role(role("", "r", read_pods()));
        index.set_role(role("n", "r", read_pods()));
        index.set_binding(binding("", "b", ("ClusterRole", "r"), user("alice")));
        index.set_binding(binding("n", "b", ("Role", "r"), user("bob")));
    });
    rbac.change(|index| {
        index.load_bindings(false, [binding("", "c", ("ClusterRole", "r"), user("carol"))]);
    });
    let named = |name: &str| User { name: name.to_owned(), ..User::default() };
    assert!(ask(&rbac, &alice(), "get", pods("n", "p")).is_err());
    assert!(ask(&rbac, &named("carol"), "get", pods("n", "p")).is_ok());
    assert!(ask(&rbac, &named("bob"), "get", pods("n", "p")).is_ok(), "bindings of namespaces are apart");
    rbac.change(|index| index.load_roles(true, []));
    assert!(ask(&rbac, &named("bob"), "get", pods("n", "p")).is_err());
    assert!(ask(&rbac, &named("carol"), "get", pods("n", "p")).is_ok());
    assert!(rbac.index().referrers_are_exact());
}

#[test]
fn many_bindings_of_one_user_are_looked_up() {
    let rbac = Rbac::default();
    rbac.change(|index| {
        for n in 0..1000 {
            let rules = json!([
                {"verbs": ["get"], "apiGroups": [""], "resources": [format!("r{n}"), format!("r{n}/log")]},
                {"verbs": ["get"], "nonResourceURLs": [format!("/p{n}")]},
                {"verbs": ["update"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [format!("p{n}")]},
            ]);
            index.set_role(role("", &format!("role{n}"), rules));
            index.set_binding(binding("", &format!("b{n}"), ("ClusterRole", &format!("role{n}")), user("alice")));
        }
    });
    let log =
        |resource| What::Resource(ResourceAttributes { resource, subresource: "log", ..ResourceAttributes::default() });
    assert!(ask(&rbac, &alice(), "get", log("r999")).unwrap().contains("\"b999\" of ClusterRole \"role999\""));
    assert!(ask(&rbac, &alice(), "get", log("r1000")).is_err());
    assert!(ask(&rbac, &alice(), "update", pods("n", "p500")).unwrap().contains("\"b500\""));
    assert!(ask(&rbac, &alice(), "update", pods("n", "p1000")).is_err());
    assert!(ask(&rbac, &alice(), "get", What::Path("/p7")).is_ok());
    assert!(ask(&rbac, &alice(), "put", What::Path("/p7")).is_err());
    rbac.change(|index| index.remove_role(&Name::new("", "role7")));
    assert_eq!(
        ask(&rbac, &alice(), "get", What::Path("/p7")),
        Err("RBAC: clusterrole.rbac.authorization.k8s.io \"role7\" not found".to_owned())
    );
}

#[test]
fn masters_need_no_binding() {
    let master = User { name: "m".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() };
    let rbac = Rbac::default();
    assert_eq!(ask(&rbac, &master, "get", pods("n", "p")), Ok(String::new()));
    assert_eq!(ask(&rbac, &master, "", What::Path("/x")), Ok(String::new()));
}

#[test]
fn az_91_rules_of_a_user_in_the_order_of_their_bindings() {
    let rbac = Rbac::default();
    let rule = |verb: &str| json!([{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]);
    rbac.change(|index| {
        for (namespace, name) in [("", "z"), ("n", "a"), ("n", "b"), ("m", "c")] {
            index.set_role(role(namespace, name, rule(name)));
            let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
            let subjects = json!([{"kind": "Group", "name": "devs"}, {"kind": "User", "name": "alice"}]);
            index.set_binding(binding(namespace, name, (kind, name), subjects));
        }
        index.set_binding(binding("n", "lost", ("Role", "lost"), user("alice")));
    });
    let list = rbac.rules_for(&alice(), "n");
    let verbs: Vec<&str> = list.rules.iter().map(|rule| &*rule.verbs[0]).collect();
    assert_eq!(verbs, ["z", "a", "b"], "each binding once");
    assert_eq!(list.errors, ["role.rbac.authorization.k8s.io \"lost\" not found"]);
    assert!(!list.incomplete);
    let anywhere = rbac.index().granted_anywhere(&alice());
    assert_eq!(anywhere.len(), 5);
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A decision by a look at every binding.
fn decide_by_scan(roles: &[Role], bindings: &[Binding], user: &User, verb: &str, what: &What<'_>) -> bool {
    let namespace = match what {
        What::Resource(about) => about.namespace,
        What::Path(_) => "",
    };
    bindings.iter().any(|binding| {
        let place = &binding.name.namespace;
        let is_subject = binding.subjects.iter().any(|subject| match subject.user(place) {
            Some(name) => name == user.name,
            None => subject.kind == super::objects::SubjectKind::Group && user.in_group(&subject.name),
        });
        let role = binding.role_name().and_then(|name| roles.iter().find(|role| role.name == name));
        (place.is_empty() || place == namespace)
            && is_subject
            && role.is_some_and(|role| role.rules.iter().any(|rule| rule.allows(verb, what)))
    })
}

#[test]
fn any_sequence_of_changes_leads_to_the_decisions_of_a_scan() {
    const NAMESPACES: [&str; 3] = ["", "n", "m"];
    const VERBS: [&str; 4] = ["get", "list", "delete", "*"];
    const RESOURCES: [&str; 4] = ["pods", "secrets", "*", "pods/log"];
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let rbac = Rbac::default();
    let (mut roles, mut bindings): (Vec<Role>, Vec<Binding>) = Default::default();
    let mut numbers = Numbers(7);
    let mut allowed = 0;
    for step in 0..3000 {
        let name = Name::new(numbers.one(&NAMESPACES), numbers.one(&NAMES));
        match numbers.below(8) {
            0..=2 => {
                let names = if numbers.below(4) == 0 { json!([numbers.one(&["p", "q"])]) } else { json!([]) };
                let rules = json!([{
                    "verbs": [numbers.one(&VERBS)], "apiGroups": [""], "resources": [numbers.one(&RESOURCES)],
                    "resourceNames": names,
                }]);
                let role = role(&name.namespace, &name.name, rules);
                roles.retain(|held| held.name != name);
                roles.push(role.clone());
                rbac.change(|index| index.set_role(role));
            }
            3 => {
                roles.retain(|held| held.name != name);
                rbac.change(|index| index.remove_role(&name));
            }
            4 => {
                bindings.retain(|held| held.name != name);
                rbac.change(|index| index.remove_binding(&name));
            }
            5 if step % 50 == 0 => {
                let of_namespaces = numbers.below(2) == 0;
                let own = |name: &Name| name.namespace.is_empty() != of_namespaces;
                roles.retain(|held| !own(&held.name) || numbers.below(2) == 0);
                bindings.retain(|held| !own(&held.name) || numbers.below(2) == 0);
                rbac.change(|index| {
                    index.load_roles(of_namespaces, roles.iter().filter(|role| own(&role.name)).cloned());
                    index.load_bindings(of_namespaces, bindings.iter().filter(|held| own(&held.name)).cloned());
                });
            }
            _ => {
                let kind =
                    if name.namespace.is_empty() { "ClusterRole" } else { numbers.one(&["Role", "ClusterRole"]) };
                let subjects: Vec<Value> = (0..numbers.below(3))
                    .map(|_| json!({"kind": numbers.one(&["User", "Group", "ServiceAccount"]), "name": numbers.one(&NAMES)}))
                    .collect();
                let binding = binding(&name.namespace, &name.name, (kind, numbers.one(&NAMES)), json!(subjects));
                bindings.retain(|held| held.name != name);
                bindings.push(binding.clone());
                rbac.change(|index| index.set_binding(binding));
            }
        }
        for _ in 0..4 {
            let user = match numbers.below(3) {
                0 => account(numbers.one(&["n", "m"]), numbers.one(&NAMES)),
                _ => User {
                    name: numbers.one(&NAMES).to_owned(),
                    groups: vec![numbers.one(&NAMES).to_owned()],
                    ..User::default()
                },
            };
            let (verb, namespace) = (numbers.one(&VERBS), numbers.one(&NAMESPACES));
            // The later ones may be decisions that were kept.
            for name in ["p", "q", "p"] {
                let what = pods(namespace, name);
                let attributes = Attributes { user: &user, verb, what };
                let decision = rbac.decide(&attributes);
                let expected = decide_by_scan(&roles, &bindings, &user, verb, &what);
                assert_eq!(decision.allowed, expected, "step {step}: {} {verb} {what:?}", user.name);
                assert_eq!(decision, rbac.index().decide(&attributes), "step {step}: the reason is that of a search");
                allowed += u32::from(expected);
            }
        }
        assert!(rbac.index().referrers_are_exact(), "step {step}");
    }
    assert!(allowed > 500, "{allowed}");
}
