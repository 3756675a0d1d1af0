//! Roles and bindings as objects: rights that follow them at once, aggregation, escalation, and the ones that every cluster has.

use std::sync::Arc;

use access::authorizer::{Attributes, ResourceAttributes, What};
use access::{Rbac, User};
use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, ListOptions, PatchOptions, UpdateOptions};
use registry::{Body, Context, Form, PatchBody, Registry, Settings, Target, View, WriteRequest};
use store::memory::MemoryStore;
use store::{ListQuery, Retention, Store};

const GROUP: &str = "rbac.authorization.k8s.io";

struct World {
    registry: Arc<Registry>,
    rbac: Arc<Rbac>,
}

fn user(name: &str) -> User {
    let groups = vec!["devs".to_owned(), "system:authenticated".to_owned()];
    User { name: name.to_owned(), groups, ..User::default() }
}

fn root() -> User {
    User { name: "root".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() }
}

fn new_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Retention::default()))
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
    machinery::json::from_slice(&segments.0.concat()).unwrap()
}

impl World {
    async fn new() -> Self {
        Self::on(new_store()).await
    }

    /// A server on this store.
    async fn on(store: Arc<dyn Store>) -> Self {
        let rbac: Arc<Rbac> = Arc::default();
        let settings = Settings { authorizer: Arc::clone(&rbac) as _, roles: Arc::clone(&rbac), ..Settings::default() };
        World { registry: Registry::start(store, settings).await.unwrap(), rbac }
    }

    /// `clusterroles/name` or `roles/namespace/name`.
    fn target(&self, path: &str) -> Target {
        let parts: Vec<&str> = path.split('/').collect();
        let kinds = self.registry.kinds();
        let group = if parts[0].contains("role") { GROUP } else { "" };
        let kind = Arc::clone(kinds.get(group, "v1", parts[0]).expect("a served kind"));
        let at = |i: usize| parts.get(i).map(|part| (*part).to_owned());
        let (namespace, name) = if kind.namespaced { (at(1), at(2)) } else { (None, at(1)) };
        Target { kind, namespace, name, subresource: None }
    }

    fn ctx(user: &User) -> Context {
        Context { user: Arc::new(user.clone()), user_agent: "test/1".to_owned(), ..Context::default() }
    }

    fn body(target: &Target, mut object: Value) -> Body {
        object["kind"] = json!(target.kind.gvk.kind);
        object["apiVersion"] = json!(target.kind.group_version().to_string());
        Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json }
    }

    async fn create_as(&self, user: &User, path: &str, object: Value) -> Result<Value, Status> {
        let target = self.target(path);
        let request = WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &Self::ctx(user) };
        let created = self.registry.create(request, &Self::body(&target, object)).await;
        created.map(|outcome| shown(&outcome.view))
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        self.create_as(&root(), path, object).await.unwrap()
    }

    async fn update_as(&self, user: &User, path: &str, object: Value) -> Result<Value, Status> {
        let target = self.target(path);
        let request = WriteRequest { target: &target, options: &UpdateOptions::default(), ctx: &Self::ctx(user) };
        let updated = self.registry.update(request, &Self::body(&target, object)).await;
        updated.map(|outcome| shown(&outcome.view))
    }

    async fn merge_as(&self, user: &User, path: &str, patch: Value) -> Result<Value, Status> {
        let target = self.target(path);
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let request = WriteRequest { target: &target, options: &PatchOptions::default(), ctx: &Self::ctx(user) };
        self.registry.patch(request, &body).await.map(|outcome| shown(&outcome.view))
    }

    async fn merge(&self, path: &str, patch: Value) -> Value {
        self.merge_as(&root(), path, patch).await.unwrap()
    }

    async fn delete(&self, path: &str) {
        let target = self.target(path);
        let request = WriteRequest { target: &target, options: &DeleteOptions::default(), ctx: &Self::ctx(&root()) };
        self.registry.delete(request).await.unwrap();
    }

    async fn get(&self, path: &str) -> Value {
        shown(&self.registry.get(&self.target(path), &GetOptions::default()).await.unwrap())
    }

    async fn names(&self, resource: &str) -> Vec<String> {
        let list = self.registry.list(&self.target(resource), &ListOptions::default()).await.unwrap();
        list.items.iter().map(|item| item.name().to_owned()).collect()
    }

    /// Whether a user may get pods in a namespace.
    fn may_get(&self, user: &User, resource: &str, namespace: &str) -> bool {
        let about = ResourceAttributes { resource, namespace, name: "p", ..ResourceAttributes::default() };
        self.rbac.decide(&Attributes { user, verb: "get", what: What::Resource(about) }).allowed
    }
}

fn role(name: &str, labels: Value, verb: &str, resource: &str) -> Value {
    let rules = json!([{"verbs": [verb], "apiGroups": [""], "resources": [resource]}]);
    json!({"metadata": {"name": name, "labels": labels}, "rules": rules})
}

fn binding(name: &str, role: (&str, &str), subject: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": role.0, "name": role.1},
        "subjects": [{"kind": "User", "apiGroup": GROUP, "name": subject}],
    })
}

fn verbs(role: &Value) -> Vec<String> {
    let rules = role["rules"].as_array().into_iter().flat_map(|rules| rules.iter());
    rules.map(|rule| rule["verbs"][0].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn ba_3_ba_4_a_binding_acts_when_its_write_is_answered() {
    let world = World::new().await;
    world.create("roles/default", role("reader", json!({}), "get", "pods")).await;
    for n in 0..1000 {
        let alice = user(&format!("alice-{n}"));
        assert!(!world.may_get(&alice, "pods", "default"));
        world.create("rolebindings/default", binding("b", ("Role", "reader"), &alice.name)).await;
        assert!(world.may_get(&alice, "pods", "default"), "binding {n}");
        assert!(!world.may_get(&alice, "pods", "kube-system"));
        world.delete("rolebindings/default/b").await;
        assert!(!world.may_get(&alice, "pods", "default"), "revocation {n}");
    }
    world.create("rolebindings/default", binding("b", ("Role", "reader"), "bob")).await;
    assert!(world.may_get(&user("bob"), "pods", "default"));
    world.merge("roles/default/reader", json!({"rules": []})).await;
    assert!(!world.may_get(&user("bob"), "pods", "default"), "a rule that is gone");
    world.delete("roles/default/reader").await;
    assert!(!world.may_get(&user("bob"), "pods", "default"));
}

#[tokio::test]
async fn ba_3_rights_follow_the_objects_of_other_servers_and_of_a_restart() {
    let store = new_store();
    let (one, two) = (World::on(Arc::clone(&store)).await, World::on(Arc::clone(&store)).await);
    one.create("clusterroles", role("reader", json!({}), "get", "pods")).await;
    one.create("clusterrolebindings", binding("b", ("ClusterRole", "reader"), "alice")).await;
    // A read that is fresh has seen what the other server was answered.
    two.get("clusterrolebindings/b").await;
    assert!(two.may_get(&user("alice"), "pods", "anywhere"));
    two.delete("clusterrolebindings/b").await;
    assert!(!two.may_get(&user("alice"), "pods", "anywhere"));
    one.names("clusterrolebindings").await;
    assert!(!one.may_get(&user("alice"), "pods", "anywhere"));
    one.create("clusterrolebindings", binding("c", ("ClusterRole", "reader"), "carol")).await;
    let three = World::on(store).await;
    assert!(three.may_get(&user("carol"), "pods", "anywhere"));
}

#[tokio::test]
async fn az_115_a_new_cluster_has_the_bootstrap_objects() {
    let world = World::new().await;
    assert_eq!(world.names("clusterroles").await.len(), 69);
    assert_eq!(world.names("clusterrolebindings").await.len(), 50);
    assert_eq!(world.names("roles").await.len(), 7);
    assert_eq!(world.names("rolebindings").await.len(), 7);
    let ready = world.registry.ready().await;
    assert!(ready.contains(&("poststarthook/rbac/bootstrap-roles".to_owned(), Ok(()))), "{ready:?}");
    let discovery = world.get("clusterroles/system:discovery").await;
    assert_eq!(discovery["metadata"]["labels"], json!({"kubernetes.io/bootstrapping": "rbac-defaults"}));
    assert_eq!(discovery["metadata"]["managedFields"][0]["manager"], "kube-apiserver");
}

#[tokio::test]
async fn az_116_each_start_restores_and_leaves_alone() {
    let store = new_store();
    let world = World::on(Arc::clone(&store)).await;
    world.delete("clusterroles/view").await;
    world.delete("rolebindings/kube-system/system:controller:token-cleaner").await;
    let extra = json!({"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]});
    let mut rules = world.get("clusterroles/system:aggregate-to-edit").await["rules"].as_array().unwrap().to_vec();
    rules.push(extra.clone());
    world.merge("clusterroles/system:aggregate-to-edit", json!({"rules": rules})).await;
    let protect = json!({"rbac.authorization.kubernetes.io/autoupdate": "false"});
    world.merge("clusterroles/system:discovery", json!({"rules": null, "metadata": {"annotations": protect}})).await;
    world.merge("clusterroles/system:basic-user", json!({"rules": null})).await;
    // Another role in the same binding.
    let mut masters = world.get("clusterrolebindings/cluster-admin").await;
    let uid = masters["metadata"]["uid"].clone();
    world.delete("clusterrolebindings/cluster-admin").await;
    masters = binding("cluster-admin", ("ClusterRole", "view"), "alice");
    let replaced = world.create("clusterrolebindings", masters).await;
    assert_ne!(replaced["metadata"]["uid"], uid);
    let revision = world.registry.cache().revision();
    assert_eq!(world.names("clusterroles").await.len(), 68, "nothing is restored between starts");
    assert_eq!(world.registry.cache().revision(), revision);
    drop(world);

    let world = World::on(Arc::clone(&store)).await;
    assert_eq!(world.names("clusterroles").await.len(), 69);
    assert_eq!(world.names("rolebindings").await.len(), 7);
    assert!(!world.get("clusterroles/view").await["rules"].as_array().unwrap().is_empty());
    let edit = world.get("clusterroles/system:aggregate-to-edit").await;
    assert_eq!(edit["rules"].as_array().unwrap().to_vec(), rules);
    assert!(world.get("clusterroles/edit").await["rules"].as_array().unwrap().contains(&extra));
    assert!(world.get("clusterroles/system:discovery").await["rules"].is_null());
    assert_eq!(world.get("clusterroles/system:basic-user").await["rules"].as_array().unwrap().len(), 3);
    let masters = world.get("clusterrolebindings/cluster-admin").await;
    assert_eq!(masters["roleRef"]["name"], "cluster-admin");
    assert_eq!(masters["subjects"].as_array().unwrap().len(), 1);
    let revision = world.registry.cache().revision();
    drop(world);

    let world = World::on(store).await;
    assert_eq!(world.registry.cache().revision(), revision, "a start that finds all as it should be writes nothing");
}

#[tokio::test]
async fn az_117_missing_namespaces_of_bootstrap_roles_are_created() {
    let store = new_store();
    drop(World::on(Arc::clone(&store)).await);
    // Not by a request: this namespace cannot be deleted.
    let everything = store.list(ListQuery::default()).await.unwrap();
    for entry in everything.entries.iter().filter(|entry| entry.key.as_str().contains("/kube-public")) {
        store.delete(entry.key.clone(), entry.revision).await.unwrap();
    }
    let world = World::on(store).await;
    world.get("namespaces/kube-public").await;
    world.get("roles/kube-public/system:controller:bootstrap-signer").await;
    world.get("rolebindings/kube-public/system:controller:bootstrap-signer").await;
    assert!(world.registry.ready().await.iter().all(|(_, check)| check.is_ok()));
}

#[tokio::test]
async fn az_122_ba_8_admin_edit_and_view_are_full_without_controllers() {
    let world = World::new().await;
    let count = async |name: &str| world.get(&format!("clusterroles/{name}")).await["rules"].as_array().unwrap().len();
    let (view, edit, admin) = (count("view").await, count("edit").await, count("admin").await);
    assert!(view >= 12 && edit > view && admin > edit, "{view} {edit} {admin}");
    let managers = world.get("clusterroles/view").await["metadata"]["managedFields"].clone();
    let manager = |entry: &Value| (entry["manager"].clone(), entry["operation"].clone(), entry["fieldsV1"].clone());
    assert!(
        managers.as_array().unwrap().iter().any(|entry| manager(entry)
            == (json!("clusterrole-aggregation-controller"), json!("Apply"), json!({"f:rules": {}}))),
        "{managers}"
    );
}

#[tokio::test]
async fn az_120_121_rules_follow_labels_before_the_write_is_answered() {
    let world = World::new().await;
    world.create("rolebindings/default", binding("b", ("ClusterRole", "view"), "alice")).await;
    assert!(!world.may_get(&user("alice"), "widgets", "default"));
    let label = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    world.create("clusterroles", role("mine", label.clone(), "get", "widgets")).await;
    assert!(world.may_get(&user("alice"), "widgets", "default"));
    for name in ["view", "edit", "admin"] {
        let aggregated = world.get(&format!("clusterroles/{name}")).await;
        assert!(aggregated["rules"].to_string().contains("widgets"), "{name}");
    }
    world.merge("clusterroles/mine", json!({"metadata": {"labels": null}})).await;
    assert!(!world.may_get(&user("alice"), "widgets", "default"), "without the label");
    assert!(!world.get("clusterroles/admin").await["rules"].to_string().contains("widgets"));
    world.merge("clusterroles/mine", json!({"metadata": {"labels": label}})).await;
    assert!(world.may_get(&user("alice"), "widgets", "default"));
    world.delete("clusterroles/mine").await;
    assert!(!world.may_get(&user("alice"), "widgets", "default"));
}

#[tokio::test]
async fn az_121_rules_that_a_user_writes_are_replaced() {
    let world = World::new().await;
    world.create("clusterroles", role("a", json!({"x": "1"}), "get", "pods")).await;
    let mut all = role("all", json!({}), "own", "pods");
    all["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"x": "1"}}]});
    let answered = world.create("clusterroles", all).await;
    assert_eq!(verbs(&answered), ["own"], "the answer is what was written");
    assert_eq!(verbs(&world.get("clusterroles/all").await), ["get"]);
    let own = json!([{"verbs": ["own"], "apiGroups": [""], "resources": ["pods"]}]);
    world.merge("clusterroles/all", json!({"rules": own})).await;
    assert_eq!(verbs(&world.get("clusterroles/all").await), ["get"]);
    world.merge("clusterroles/all", json!({"aggregationRule": null, "rules": own})).await;
    assert_eq!(verbs(&world.get("clusterroles/all").await), ["own"], "it collects nothing any more");
}

#[tokio::test]
async fn az_120_a_role_that_selects_nothing_keeps_what_was_written() {
    let world = World::new().await;
    let mut all = role("all", json!({}), "own", "pods");
    all["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"x": "1"}}]});
    world.create("clusterroles", all).await;
    assert_eq!(verbs(&world.get("clusterroles/all").await), ["own"]);
    world.create("clusterroles", role("a", json!({"x": "1"}), "get", "pods")).await;
    assert_eq!(verbs(&world.get("clusterroles/all").await), ["get"]);
    world.delete("clusterroles/a").await;
    assert_eq!(verbs(&world.get("clusterroles/all").await), [""; 0], "the collected rules are given up");
}

/// Alice may write roles and bindings, and get pods, in the namespace default.
async fn grant_writes(world: &World) {
    let rules = json!([
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["create", "update", "patch"], "apiGroups": [GROUP], "resources": ["roles", "rolebindings"]},
    ]);
    world.create("roles/default", json!({"metadata": {"name": "writer"}, "rules": rules})).await;
    world.create("rolebindings/default", binding("writer", ("Role", "writer"), "alice")).await;
}

fn refused(result: Result<Value, Status>) -> (u16, String) {
    let status = result.unwrap_err();
    (status.http_code(), status.message)
}

const ALICE: &str = "user \"alice\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
                     currently held:\n";

#[tokio::test]
async fn az_73_125_127_a_role_grants_no_more_than_its_writer_holds() {
    let world = World::new().await;
    grant_writes(&world).await;
    let alice = user("alice");
    world.create_as(&alice, "roles/default", role("own", json!({}), "get", "pods")).await.unwrap();
    let listing = r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#;
    let refusal = |name: &str| (403, format!("roles.{GROUP} \"{name}\" is forbidden: {ALICE}{listing}"));
    let more = || role("more", json!({}), "list", "pods");
    assert_eq!(refused(world.create_as(&alice, "roles/default", more()).await), refusal("more"));
    assert_eq!(
        refused(world.update_as(&alice, "roles/default/more", more()).await),
        refusal("more"),
        "a PUT that creates"
    );
    let rules = json!({"rules": more()["rules"]});
    assert_eq!(refused(world.merge_as(&alice, "roles/default/own", rules.clone()).await), refusal("own"));
    assert_eq!(refused(world.create_as(&alice, "roles/kube-system", more()).await).0, 403, "held in another namespace");
    world.merge_as(&alice, "roles/default/own", json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    world.create_as(&root(), "roles/default", more()).await.unwrap();
    world.merge_as(&alice, "roles/default/more", json!({"metadata": {"finalizers": ["a.b/c"]}})).await.unwrap();
    let labelled = world.merge_as(&alice, "roles/default/more", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(refused(labelled), refusal("more"), "a change of labels is checked, one of finalizers is not");
    let escalate =
        json!([{"verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["roles"], "resourceNames": ["more"]}]);
    world.create("roles/default", json!({"metadata": {"name": "escalator"}, "rules": escalate})).await;
    world.create("rolebindings/default", binding("escalator", ("Role", "escalator"), "alice")).await;
    world.merge_as(&alice, "roles/default/more", json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    assert_eq!(refused(world.merge_as(&alice, "roles/default/own", rules).await).0, 403, "another name");
}

#[tokio::test]
async fn az_127_missing_roles_of_the_writer_are_named() {
    let world = World::new().await;
    grant_writes(&world).await;
    world.create("rolebindings/default", binding("lost", ("Role", "lost"), "alice")).await;
    let (_, message) =
        refused(world.create_as(&user("alice"), "roles/default", role("r", json!({}), "list", "pods")).await);
    let end = "; resolution errors: [roles.rbac.authorization.k8s.io \"lost\" not found]";
    assert!(message.ends_with(end), "{message}");
}

#[tokio::test]
async fn az_128_aggregation_needs_everything() {
    let world = World::new().await;
    let rules = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    world.create("clusterroles", json!({"metadata": {"name": "almost"}, "rules": rules})).await;
    world.create("clusterrolebindings", binding("almost", ("ClusterRole", "almost"), "alice")).await;
    let mut all = role("all", json!({}), "get", "pods");
    all["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"x": "1"}}]});
    // `*` on `*` includes the verb escalate.
    world.create_as(&user("alice"), "clusterroles", all.clone()).await.unwrap();
    let rules = json!([
        {"verbs": ["get", "create", "patch"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]);
    world.create("clusterroles", json!({"metadata": {"name": "less"}, "rules": rules})).await;
    world.create("clusterrolebindings", binding("less", ("ClusterRole", "less"), "bob")).await;
    let why = "must have cluster-admin privileges to use the aggregationRule";
    let refusal = |name: &str| (403, format!("clusterroles.{GROUP} \"{name}\" is forbidden: {why}"));
    let patch = json!({"aggregationRule": null});
    assert_eq!(refused(world.merge_as(&user("bob"), "clusterroles/all", patch).await), refusal("all"));
    all["metadata"]["name"] = json!("other");
    assert_eq!(refused(world.create_as(&user("bob"), "clusterroles", all).await), refusal("other"));
    world.create("clusterrolebindings", binding("carol", ("ClusterRole", "cluster-admin"), "carol")).await;
    let patch = json!({"aggregationRule": null});
    world.merge_as(&user("carol"), "clusterroles/all", patch).await.unwrap();
}

#[tokio::test]
async fn az_74_129_130_a_binding_grants_no_more_than_its_writer_holds() {
    let world = World::new().await;
    grant_writes(&world).await;
    let alice = user("alice");
    world.create("roles/default", role("own", json!({}), "get", "pods")).await;
    world.create("roles/default", role("more", json!({}), "list", "pods")).await;
    let create = async |name: &str, role: (&str, &str)| {
        world.create_as(&alice, "rolebindings/default", binding(name, role, "bob")).await
    };
    create("own", ("Role", "own")).await.unwrap();
    let listing = r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#;
    assert_eq!(
        refused(create("more", ("Role", "more")).await),
        (403, format!("rolebindings.{GROUP} \"more\" is forbidden: {ALICE}{listing}"))
    );
    assert_eq!(
        refused(create("lost", ("ClusterRole", "lost")).await),
        (404, format!("rolebindings.{GROUP} \"lost\" not found"))
    );
    let rules = json!([{"verbs": ["create"], "apiGroups": [GROUP], "resources": ["clusterrolebindings"]}]);
    world.create("clusterroles", json!({"metadata": {"name": "wide"}, "rules": rules})).await;
    world.create("clusterrolebindings", binding("wide", ("ClusterRole", "wide"), "alice")).await;
    let wide = world.create_as(&alice, "clusterrolebindings", binding("x", ("Role", "own"), "bob")).await;
    assert_eq!(refused(wide), (400, "Namespace parameter required.".to_owned()));
    assert_eq!(
        refused(create("lost", ("Role", "lost")).await),
        (404, format!("rolebindings.{GROUP} \"lost\" not found"))
    );
    world.create("rolebindings/default", binding("lost", ("Role", "lost"), "bob")).await;
    world.create("rolebindings/default", binding("more", ("Role", "more"), "bob")).await;
    world.merge_as(&alice, "rolebindings/default/more", json!({"metadata": {"finalizers": ["a.b/c"]}})).await.unwrap();
    let subjects = json!({"subjects": null});
    assert_eq!(refused(world.merge_as(&alice, "rolebindings/default/more", subjects.clone()).await).0, 403);
    let bind =
        json!([{"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["roles"], "resourceNames": ["more", "lost"]}]);
    world.create("roles/default", json!({"metadata": {"name": "binder"}, "rules": bind})).await;
    world.create("rolebindings/default", binding("binder", ("Role", "binder"), "alice")).await;
    world.merge_as(&alice, "rolebindings/default/more", subjects.clone()).await.unwrap();
    world.merge_as(&alice, "rolebindings/default/lost", subjects).await.unwrap();
    assert_eq!(refused(create("all", ("ClusterRole", "cluster-admin")).await).0, 403);
}

#[tokio::test]
async fn az_41_rules_and_references_are_validated() {
    let world = World::new().await;
    let refusal = async |path: &str, rule: Value| {
        let object = json!({"metadata": {"name": "r"}, "rules": [rule]});
        let (code, message) = refused(world.create_as(&root(), path, object).await);
        (code, message.split_once("rules[0].").map(|(_, why)| why.to_owned()).unwrap_or(message))
    };
    let resources = |verbs: Value, groups: Value, resources: Value| json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
    for (path, rule, why) in [
        (
            "roles/default",
            resources(json!([]), json!([""]), json!(["pods"])),
            "verbs: Required value: verbs must contain at least one value",
        ),
        (
            "roles/default",
            resources(json!(["get"]), json!([]), json!(["pods"])),
            "apiGroups: Required value: resource rules must supply at least one api group",
        ),
        (
            "roles/default",
            resources(json!(["get"]), json!([""]), json!([])),
            "resources: Required value: resource rules must supply at least one resource",
        ),
    ] {
        assert_eq!(refusal(path, rule).await, (422, why.to_owned()));
    }
    let (_, why) = refusal("roles/default", json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})).await;
    assert!(why.contains("namespaced rules cannot apply to non-resource URLs"), "{why}");
    let both = json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "apiGroups": [""], "resources": ["pods"]});
    let (_, why) = refusal("clusterroles", both).await;
    assert!(why.contains("rules cannot apply to both regular resources and non-resource URLs"), "{why}");
    world.create("clusterrolebindings", binding("b", ("ClusterRole", "view"), "alice")).await;
    let other = json!({"roleRef": {"name": "edit"}});
    let (code, why) = refused(world.merge_as(&root(), "clusterrolebindings/b", other).await);
    assert!(code == 422 && why.contains("roleRef") && why.contains("cannot change roleRef"), "{why}");
}

#[tokio::test]
async fn az_131_deleting_needs_no_more_than_delete() {
    let world = World::new().await;
    world.create("roles/default", role("r", json!({}), "*", "*")).await;
    let target = world.target("roles/default/r");
    let ctx = World::ctx(&user("alice"));
    let request = WriteRequest { target: &target, options: &DeleteOptions::default(), ctx: &ctx };
    world.registry.delete(request).await.unwrap();
}
