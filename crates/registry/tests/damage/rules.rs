//! Objects that forbid, limit or reserve something and cannot be read: what they might forbid is refused.

use std::path::Path;
use std::sync::Arc;

use access::authorizer::{Attributes, ResourceAttributes, What};
use access::{Rbac, User};
use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, PatchOptions};
use registry::{Body, Context, PatchBody, Registry, Settings, Target, WriteRequest};
use store::Store;
use store::embedded::{EmbeddedOptions, EmbeddedStore};

use crate::{flip, is_internal_and_names};

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

struct World {
    registry: Arc<Registry>,
    rbac: Arc<Rbac>,
    store: Arc<EmbeddedStore>,
}

impl World {
    async fn open(dir: &Path) -> Self {
        let store = Arc::new(EmbeddedStore::open(EmbeddedOptions::new(dir)).expect("the store opens"));
        let rbac: Arc<Rbac> = Arc::default();
        let settings = Settings { authorizer: Arc::clone(&rbac) as _, roles: Arc::clone(&rbac), ..Settings::default() };
        let registry = Registry::start(Arc::clone(&store) as Arc<dyn Store>, settings).await;
        World { registry: registry.expect("the registry starts"), rbac, store }
    }

    /// Closes the store, damages every value with the text `needle`, and opens it again.
    async fn damage(self, dir: &Path, needle: &str) -> Self {
        self.store.close().await;
        flip(dir, needle);
        World::open(dir).await
    }

    /// `GROUP/PLURAL` in a namespace, or cluster-wide if that is empty.
    fn target(&self, resource: &str, namespace: &str, name: Option<&str>) -> Target {
        let (group, plural) = resource.rsplit_once('/').unwrap_or(("", resource));
        let kind = Arc::clone(self.registry.kinds().get(group, "v1", plural).expect("a served kind"));
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty()).map(str::to_owned);
        Target { kind, namespace, name: name.map(str::to_owned), subresource: None }
    }

    async fn create_as(&self, user: &User, target: &Target, mut object: Value) -> Result<(), Status> {
        if object.get("kind").is_none() {
            object["kind"] = json!(target.kind.gvk.kind);
            object["apiVersion"] = json!(target.kind.group_version().to_string());
        }
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let ctx = Context { user: Arc::new(user.clone()), ..Context::default() };
        let request = WriteRequest { target, options: &CreateOptions::default(), ctx: &ctx };
        match target.subresource.as_deref() {
            Some("eviction") => self.registry.evict(request, &body).await.map(drop),
            _ => self.registry.create(request, &body).await.map(drop),
        }
    }

    async fn create(&self, resource: &str, namespace: &str, object: Value) -> Result<(), Status> {
        self.create_as(&root(), &self.target(resource, namespace, None), object).await
    }

    async fn merge(&self, target: &Target, patch: Value) -> Result<(), Status> {
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let ctx = Context { user: Arc::new(root()), ..Context::default() };
        let request = WriteRequest { target, options: &PatchOptions::default(), ctx: &ctx };
        self.registry.patch(request, &body).await.map(drop)
    }
}

fn root() -> User {
    User { name: "root".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() }
}

fn noted(name: &str, needle: &str) -> Value {
    json!({"name": name, "annotations": {"a": needle}})
}

/// One object of each kind of rule, with a text of its own.
fn rules() -> Vec<(&'static str, &'static str, Value)> {
    let constraints = json!({"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}]});
    let policy = |extra: Value| {
        let mut spec = json!({"matchConstraints": constraints, "failurePolicy": "Fail"});
        extra.as_object().into_iter().flatten().for_each(|(name, value)| spec[name] = value.clone());
        spec
    };
    let hook = json!([{
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": constraints["resourceRules"],
    }]);
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/metadata/labels/a'}]"}});
    let changes = policy(json!({"mutations": [mutation], "reinvocationPolicy": "Never"}));
    vec![
        (
            "validatingadmissionpolicies",
            "NEEDLE-A",
            json!({"spec": policy(json!({"validations": [{"expression": "true"}]}))}),
        ),
        (
            "validatingadmissionpolicybindings",
            "NEEDLE-B",
            json!({"spec": {"policyName": "x", "validationActions": ["Deny"]}}),
        ),
        ("mutatingadmissionpolicies", "NEEDLE-C", json!({"spec": changes})),
        ("mutatingadmissionpolicybindings", "NEEDLE-D", json!({"spec": {"policyName": "x"}})),
        ("validatingwebhookconfigurations", "NEEDLE-E", json!({"webhooks": hook})),
        ("mutatingwebhookconfigurations", "NEEDLE-F", json!({"webhooks": hook})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_policy_or_webhook_refuses_the_writes_that_it_might_refuse() {
    let whole = tempfile::tempdir().unwrap();
    let world = World::open(whole.path()).await;
    for (plural, needle, mut object) in rules() {
        object["metadata"] = noted("rule", needle);
        world.create(&format!("{ADMISSION}/{plural}"), "", object).await.unwrap();
    }
    world.create("configmaps", "default", json!({"metadata": {"name": "before"}})).await.expect("none applies");
    world.store.close().await;
    for (plural, needle, _) in rules() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(whole.path().join("store.db"), dir.path().join("store.db")).unwrap();
        flip(dir.path(), needle);
        let world = World::open(dir.path()).await;
        let refused = world.create("configmaps", "default", json!({"metadata": {"name": "a"}})).await;
        let refused = refused.expect_err(plural);
        assert!(is_internal_and_names(&refused, &format!("{ADMISSION}/{plural}/rule")), "{refused}");
        let target = world.target("configmaps", "default", Some("before"));
        let refused = world.merge(&target, json!({"data": {"k": "v"}})).await.expect_err(plural);
        assert!(is_internal_and_names(&refused, plural), "{refused}");
        // Policies are never asked about policies, and webhooks not about webhooks, so that these can be mended.
        let mut other = rules().into_iter().find(|(of, ..)| *of == plural).map(|(_, _, object)| object).unwrap();
        other["metadata"] = json!({"name": "other"});
        world.create(&format!("{ADMISSION}/{plural}"), "", other).await.expect(plural);
        let damage = world.registry.damage();
        assert!(damage.iter().any(|line| line.contains("writes that it might apply to are refused")), "{damage:?}");
        world.store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_params_are_an_error_of_their_policy_and_not_absent() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]});
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "params.data.open == 'yes'"}],
    });
    let policies = format!("{ADMISSION}/validatingadmissionpolicies");
    world.create(&policies, "", json!({"metadata": {"name": "p"}, "spec": spec})).await.unwrap();
    let reference = json!({"name": "settings", "namespace": "default", "parameterNotFoundAction": "Allow"});
    let spec = json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": reference});
    let bindings = format!("{ADMISSION}/validatingadmissionpolicybindings");
    world.create(&bindings, "", json!({"metadata": {"name": "b"}, "spec": spec})).await.unwrap();
    let settings = json!({"metadata": noted("settings", "NEEDLE"), "data": {"open": "no"}});
    world.create("configmaps", "default", settings).await.unwrap();
    let secret = || json!({"metadata": {"name": "s"}});
    world.create("secrets", "default", secret()).await.expect_err("the policy denies it");
    let world = world.damage(dir.path(), "NEEDLE").await;
    let refused = world.create("secrets", "default", secret()).await.expect_err("it must not be taken for absent");
    assert!(refused.message.contains("core/configmaps/default/settings"), "{refused}");
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_namespace_refuses_pods_whose_level_is_not_known() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "note": "NEEDLE"});
    world.create("namespaces", "", json!({"metadata": {"name": "tight", "labels": labels}})).await.unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.create("pods", "tight", pod).await.unwrap();
    let world = world.damage(dir.path(), "NEEDLE").await;
    let patch = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let refused =
        world.merge(&world.target("pods", "tight", Some("p")), patch).await.expect_err("its level is not known");
    assert!(is_internal_and_names(&refused, "core/namespaces/tight"), "{refused}");
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_service_keeps_its_address_and_a_damaged_budget_its_pods() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let service = |name: &str| json!({"metadata": noted(name, "NEEDLE"), "spec": {"ports": [{"port": 80}]}});
    world.create("services", "default", service("hidden")).await.unwrap();
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}});
    world
        .create("policy/poddisruptionbudgets", "default", json!({"metadata": noted("few", "NEEDLE"), "spec": spec}))
        .await
        .unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.create("pods", "default", pod).await.unwrap();
    let status = Target { subresource: Some("status".to_owned()), ..world.target("pods", "default", Some("p")) };
    world.merge(&status, json!({"status": {"phase": "Running"}})).await.unwrap();
    let world = world.damage(dir.path(), "NEEDLE").await;

    let refused = world.create("services", "default", service("next")).await.expect_err("the address may be taken");
    assert!(is_internal_and_names(&refused, "core/services/default/hidden"), "{refused}");
    let headless = json!({"metadata": {"name": "none"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}});
    world.create("services", "default", headless).await.expect("it needs no address");

    let eviction = Target { subresource: Some("eviction".to_owned()), ..world.target("pods", "default", Some("p")) };
    let object = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let refused = world.create_as(&root(), &eviction, object).await.expect_err("the budget may cover it");
    assert!(is_internal_and_names(&refused, "policy/poddisruptionbudgets/default/few"), "{refused}");
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_role_or_binding_grants_nothing_and_cannot_be_bound() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let bind = |role: &str, name: &str| {
        let subject = json!({"kind": "User", "apiGroup": RBAC, "name": name});
        let role_ref = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role});
        json!({"metadata": {"name": format!("{role}-{name}")}, "subjects": [subject], "roleRef": role_ref})
    };
    let (roles, bindings) = (format!("{RBAC}/clusterroles"), format!("{RBAC}/clusterrolebindings"));
    world.create(&roles, "", json!({"metadata": noted("lost", "NEEDLE"), "rules": rules})).await.unwrap();
    world.create(&roles, "", json!({"metadata": {"name": "kept"}, "rules": rules})).await.unwrap();
    world.create(&bindings, "", bind("lost", "ann")).await.unwrap();
    let mut unreadable = bind("kept", "bob");
    unreadable["metadata"]["annotations"] = json!({"a": "NEEDLE"});
    world.create(&bindings, "", unreadable).await.unwrap();
    world.create(&bindings, "", bind("kept", "cat")).await.unwrap();
    let user = |name: &str| User { name: name.to_owned(), ..User::default() };
    let reads = |world: &World, name: &str| {
        let secrets = ResourceAttributes { resource: "secrets", ..ResourceAttributes::default() };
        let user = user(name);
        let attributes = Attributes { user: &user, verb: "get", what: What::Resource(secrets) };
        world.rbac.decide(&attributes).allowed
    };
    assert!(["ann", "bob", "cat"].iter().all(|name| reads(&world, name)));
    let world = world.damage(dir.path(), "NEEDLE").await;
    assert_eq!(["ann", "bob", "cat"].map(|name| reads(&world, name)), [false, false, true]);
    // What the role grants is not known, so only users with the verb `bind` may bind it.
    let refused = world.create_as(&user("cat"), &world.target(&bindings, "", None), bind("lost", "cat")).await;
    refused.expect_err("it may grant more than the user holds");
    world.store.close().await;
}
