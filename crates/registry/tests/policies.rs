//! Admission policies over a memory store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::authorizer::{Attributes, Decision, RuleList, Verdict, What};
use access::{Authorizer, User};
use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, PatchOptions, UpdateOptions};
use registry::{Annotations, Body, Context, Form, PatchBody, Registry, Settings, Target, View, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

const GROUP: &str = "admissionregistration.k8s.io";

struct World {
    registry: Arc<Registry>,
}

/// What a write was answered, and what came with it.
struct Answer {
    result: Result<Value, Status>,
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
}

impl Answer {
    fn message(&self) -> &str {
        self.result.as_ref().expect_err("the write is refused").message.as_str()
    }

    fn causes(&self) -> Vec<&str> {
        let status = self.result.as_ref().expect_err("the write is refused");
        status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.message.as_str()).collect()
    }
}

impl World {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        World { registry: Registry::start(store, settings).await.unwrap() }
    }

    /// `group:plural/namespace/name/subresource`, without the namespace for kinds that have none. `v2:` names a version.
    fn target(&self, path: &str) -> Target {
        let parts: Vec<&str> = path.split('/').collect();
        let kinds = self.registry.kinds();
        let (group, plural) = parts[0].split_once(':').unwrap_or(("", parts[0]));
        let (group, version) = group.split_once('@').unwrap_or((group, "v1"));
        let kind = Arc::clone(kinds.get(group, version, plural).expect("a served kind"));
        let at = |i: usize| parts.get(i).map(|part| (*part).to_owned());
        let (namespace, name, subresource) = if kind.namespaced { (at(1), at(2), at(3)) } else { (None, at(1), at(2)) };
        Target { kind, namespace, name, subresource }
    }

    async fn create_as(&self, user: User, path: &str, object: Value) -> Answer {
        let ctx = Context { user: Arc::new(user), annotations: Annotations::recording(), ..Context::default() };
        self.create_with(ctx, path, object).await
    }

    /// A create that is answered with everything that is known of it.
    async fn create_explained(&self, path: &str, object: Value) -> Answer {
        self.create_with(Context { explains: true, ..Context::default() }, path, object).await
    }

    async fn create_with(&self, ctx: Context, path: &str, mut object: Value) -> Answer {
        let target = self.target(path);
        object["kind"] = json!(target.kind.gvk.kind);
        object["apiVersion"] = json!(target.kind.group_version().to_string());
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let options = CreateOptions { field_manager: "test".to_owned(), ..CreateOptions::default() };
        let created = self.registry.create(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await;
        let result = created.map(|outcome| shown(&outcome.view));
        Answer { result, warnings: ctx.warnings.take(), annotations: ctx.annotations.get() }
    }

    async fn create(&self, path: &str, object: Value) -> Answer {
        self.create_as(User::default(), path, object).await
    }

    async fn merge(&self, path: &str, patch: Value) -> Result<Value, Status> {
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let (target, options, ctx) = (self.target(path), PatchOptions::default(), Context::default());
        let patched = self.registry.patch(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await;
        patched.map(|outcome| shown(&outcome.view))
    }

    async fn update(&self, path: &str, object: Value) -> Result<Value, Status> {
        let (target, options, ctx) = (self.target(path), UpdateOptions::default(), Context::default());
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let updated = self.registry.update(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await;
        updated.map(|outcome| shown(&outcome.view))
    }

    async fn delete(&self, path: &str) -> Result<(), Status> {
        let (options, ctx) = (DeleteOptions::default(), Context::default());
        let target = self.target(path);
        self.registry.delete(WriteRequest { target: &target, options: &options, ctx: &ctx }).await.map(|_| ())
    }

    async fn get(&self, path: &str) -> Value {
        shown(&self.registry.get(&self.target(path), &GetOptions::default()).await.unwrap())
    }

    /// A policy on creates and updates of config maps, with `spec` added.
    async fn policy(&self, name: &str, spec: Value) {
        self.policy_for(name, json!([rule("", "configmaps", &["CREATE", "UPDATE"])]), spec).await;
    }

    async fn policy_for(&self, name: &str, rules: Value, mut spec: Value) {
        if spec.get("matchConstraints").is_none() {
            spec["matchConstraints"] = json!({"resourceRules": rules});
        }
        let plural = if spec.get("mutations").is_some() { "mutating" } else { "validating" };
        if plural == "mutating" && spec.get("reinvocationPolicy").is_none() {
            spec["reinvocationPolicy"] = json!("Never");
        }
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.create(&format!("{GROUP}:{plural}admissionpolicies"), object).await.result.unwrap();
    }

    /// A binding of the same name as its policy.
    async fn bind(&self, name: &str, mut spec: Value) {
        self.bind_as(name, name, &mut spec).await;
    }

    async fn bind_as(&self, name: &str, policy: &str, spec: &mut Value) {
        let plural = if spec.get("validationActions").is_some() { "validating" } else { "mutating" };
        spec["policyName"] = json!(policy);
        let object = json!({"metadata": {"name": name}, "spec": spec.clone()});
        self.create(&format!("{GROUP}:{plural}admissionpolicybindings"), object).await.result.unwrap();
    }

    /// A validating policy, bound to refuse.
    async fn deny(&self, name: &str, spec: Value) {
        self.policy(name, spec).await;
        self.bind(name, json!({"validationActions": ["Deny"]})).await;
    }

    /// A mutating policy, bound.
    async fn mutate(&self, name: &str, spec: Value) {
        self.policy(name, spec).await;
        self.bind(name, json!({})).await;
    }

    async fn map(&self, name: &str, data: Value) -> Answer {
        self.create("configmaps/default", json!({"metadata": {"name": name}, "data": data})).await
    }
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

fn rule(group: &str, resource: &str, operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": operations})
}

fn validations(expressions: &[&str]) -> Value {
    expressions.iter().map(|expression| json!({"expression": expression})).collect::<Vec<_>>().into()
}

fn denied(policy: &str, why: &str) -> String {
    format!(
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}"
    )
}

#[tokio::test]
async fn vap_1_a_policy_acts_only_where_it_is_bound() {
    let world = World::new().await;
    world.policy("p", json!({"validations": validations(&["false"])})).await;
    world.map("a", json!({})).await.result.unwrap();
    world.bind("other", json!({"validationActions": ["Deny"]})).await;
    world.map("b", json!({})).await.result.unwrap();
    world.bind_as("b", "p", &mut json!({"validationActions": ["Deny"]})).await;
    let refused = world.map("c", json!({})).await;
    assert!(refused.message().contains("ValidatingAdmissionPolicy 'p' with binding 'b' denied request"));
    world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/b")).await.unwrap();
    world.map("c", json!({})).await.result.unwrap();
}

#[tokio::test]
async fn bd_1_vap_38_a_policy_acts_as_soon_as_its_write_is_answered() {
    let world = World::new().await;
    world.bind("p", json!({"validationActions": ["Deny"]})).await;
    let dry_run = CreateOptions { dry_run: true, ..CreateOptions::default() };
    let target = world.target("configmaps/default");
    let body = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json }
    };
    for round in 0..1_000 {
        let name = format!("m{round}");
        world.policy("p", json!({"validations": validations(&[&format!("object.metadata.name != '{name}'")])})).await;
        let ctx = Context::default();
        let request = WriteRequest { target: &target, options: &dry_run, ctx: &ctx };
        assert_eq!(world.registry.create(request, &body(&name)).await.map(|_| ()).unwrap_err().code, 422, "{round}");
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        assert!(world.registry.create(request, &body(&name)).await.is_ok(), "{round}");
    }
}

#[tokio::test]
async fn ad_51_52_53_bindings_params_and_labels_act_at_once() {
    let world = World::new().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": validations(&["object.data.k == params.data.k"]),
        "matchConstraints": {"resourceRules": [rule("", "configmaps", &["CREATE"])], "namespaceSelector": {"matchLabels": {"env": "prod"}}}});
    world.policy("p", spec).await;
    world.map("limits", json!({"k": "1"})).await.result.unwrap();
    for round in 0..20 {
        let params = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
        world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
        world.map(&format!("a{round}"), json!({"k": "2"})).await.result.expect("the namespace is not selected");
        world.merge("namespaces/default", json!({"metadata": {"labels": {"env": "prod"}}})).await.unwrap();
        assert!(world.map("b", json!({"k": "2"})).await.result.is_err());
        world.merge("configmaps/default/limits", json!({"data": {"k": "2"}})).await.unwrap();
        world.map(&format!("b{round}"), json!({"k": "2"})).await.result.expect("the params changed");
        world.merge("configmaps/default/limits", json!({"data": {"k": "1"}})).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
        world.map(&format!("c{round}"), json!({"k": "2"})).await.result.expect("the binding is gone");
        world.merge("namespaces/default", json!({"metadata": {"labels": {"env": null}}})).await.unwrap();
    }
}

fn type_checked(policy: &Value) -> &Value {
    assert_eq!(policy["status"]["observedGeneration"], policy["metadata"]["generation"]);
    &policy["status"]["typeChecking"]
}

#[tokio::test]
async fn vap_37_bd_11_types_are_checked_with_the_write() {
    let world = World::new().await;
    let path = format!("{GROUP}:validatingadmissionpolicies");
    let policy = |rules: Value, spec: Value| {
        let mut spec = spec;
        spec["matchConstraints"] = json!({"resourceRules": rules});
        json!({"metadata": {"name": "p"}, "spec": spec})
    };
    let deployments = || json!([rule("apps", "deployments", &["CREATE"])]);
    let both = || json!([rule("apps", "deployments", &["CREATE"]), rule("", "pods", &["CREATE"])]);
    let one = |text: &str| json!({"validations": validations(&[text])});
    let issue = |kind: &str, text: &str, at: usize, field: &str| {
        format!("{kind}: ERROR: <input>:1:{at}: undefined field '{field}'\n | {text}\n | {}^\n", ".".repeat(at - 1))
            .replace("\\n", "\n")
    };
    let warned = |field: &str, text: String| json!({"expressionWarnings": [{"fieldRef": field, "warning": text}]});
    let deployment = "apps/v1, Kind=Deployment";
    for (rules, spec, want, header) in [
        (
            deployments(),
            one("object.spec.nope == 1"),
            warned("spec.validations[0].expression", issue(deployment, "object.spec.nope == 1", 12, "nope")),
            Some("spec.validations[0].expression: apps/v1, Kind=Deployment: undefined field 'nope'"),
        ),
        (
            both(),
            one("object.spec.replicas > 1"),
            warned(
                "spec.validations[0].expression",
                issue("/v1, Kind=Pod", "object.spec.replicas > 1", 12, "replicas"),
            ),
            Some("spec.validations[0].expression: /v1, Kind=Pod: undefined field 'replicas'"),
        ),
        (
            deployments(),
            json!({"validations": [{"expression": "oldObject.spec.replicas > 1", "messageExpression": "object.nope"}]}),
            Value::Null,
            None,
        ),
        (
            deployments(),
            one("object.spec.template.spec.containers.all(c, c.image != '' && c.name.size() > 1)"),
            json!({}),
            None,
        ),
        (json!([rule("apps", "*", &["CREATE"])]), one("object.nope == 1"), json!({}), None),
        (json!([rule("*", "deployments", &["CREATE"])]), one("object.nope == 1"), json!({}), None),
        (json!([rule("apps", "deployments/scale", &["CREATE"])]), one("object.nope == 1"), json!({}), None),
        (json!([rule("nope.example.com", "widgets", &["CREATE"])]), one("object.nope == 1"), json!({}), None),
        (
            deployments(),
            json!({"variables": [{"name": "n", "expression": "object.spec.nope"}], "validations": validations(&["variables.n > 1"])}),
            json!({}),
            None,
        ),
    ] {
        let answer = world.create_explained(&path, policy(rules, spec.clone())).await;
        if want.is_null() {
            // The message does not have the type of a text, which is refused at once.
            assert!(answer.result.is_err());
            continue;
        }
        assert_eq!(answer.result.unwrap()["status"], json!({}), "the answer is the policy as it was written");
        let stored = world.get(&format!("{path}/p")).await;
        assert_eq!(*type_checked(&stored), want, "{spec}");
        assert_eq!(answer.warnings, header.into_iter().collect::<Vec<_>>());
        let managers = stored["metadata"]["managedFields"].as_array().unwrap();
        let status = managers.iter().find(|entry| entry["manager"] == "validatingadmissionpolicy-status").unwrap();
        assert_eq!((&status["operation"], &status["subresource"]), (&json!("Apply"), &json!("status")));
        world.delete(&format!("{path}/p")).await.unwrap();
    }
    world.create(&path, policy(deployments(), one("object.spec.nope == 1"))).await.result.unwrap();
    world
        .merge(&format!("{path}/p"), json!({"spec": {"validations": validations(&["has(object.spec.paused)"])}}))
        .await
        .unwrap();
    let stored = world.get(&format!("{path}/p")).await;
    assert!(type_checked(&stored).get("expressionWarnings").is_none(), "{}", stored["status"]);
    assert_eq!(stored["metadata"]["generation"], 2);
}

#[tokio::test]
async fn vap_3_20_expressions_read_the_request() {
    let world = World::new().await;
    world.merge("namespaces/default", json!({"metadata": {"labels": {"env": "prod"}}})).await.unwrap();
    for expression in [
        "object.data.k == 'v' && oldObject == null",
        "request.name == 'a' && request.namespace == 'default' && request.operation == 'CREATE'",
        "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && !has(request.subResource)",
        "request.userInfo.username == 'alice' && request.userInfo.groups == ['g']",
        "request.options.fieldManager == 'test' && !request.dryRun",
        "namespaceObject.metadata.name == 'default' && namespaceObject.metadata.labels['env'] == 'prod'",
        "namespaceObject.status.phase == 'Active' && !has(namespaceObject.metadata.namespace)",
        "has(object.metadata.uid) && has(object.metadata.creationTimestamp) && has(object.metadata.managedFields)",
        "object.kind == 'ConfigMap' && object.apiVersion == 'v1'",
    ] {
        let name = "a";
        world
            .deny("p", json!({"validations": [{"expression": format!("!({expression})"), "message": "so it is"}]}))
            .await;
        let user = User { name: "alice".to_owned(), groups: vec!["g".to_owned()], ..User::default() };
        let answer =
            world.create_as(user, "configmaps/default", json!({"metadata": {"name": name}, "data": {"k": "v"}})).await;
        assert_eq!(answer.message(), denied("p", "so it is"), "{expression}");
        let status = answer.result.unwrap_err();
        assert_eq!((status.code, status.reason()), (422, "Invalid"));
        let details = status.details.unwrap();
        assert_eq!((details.name.as_str(), details.kind.as_str()), ("a", "configmaps"));
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
    }
}

#[tokio::test]
async fn vap_3_27_deletes_and_updates_have_the_old_object() {
    let world = World::new().await;
    let rules = json!([rule("", "configmaps", &["DELETE", "UPDATE"])]);
    let spec = json!({"validations": [
        {"expression": "object != null || oldObject.metadata.name != 'kept'", "message": "it stays"},
        {"expression": "object == null || object.data.n != oldObject.data.n", "message": "it must change"},
    ]});
    world.policy_for("p", rules, spec).await;
    world.bind("p", json!({"validationActions": ["Deny"]})).await;
    world.map("kept", json!({"n": "1"})).await.result.unwrap();
    world.map("other", json!({"n": "1"})).await.result.unwrap();
    assert!(world.delete("configmaps/default/kept").await.unwrap_err().message.ends_with("it stays"));
    world.delete("configmaps/default/other").await.unwrap();
    let refused = world.merge("configmaps/default/kept", json!({"data": {"o": "1"}})).await.unwrap_err();
    assert!(refused.message.ends_with("it must change"), "{}", refused.message);
    world.merge("configmaps/default/kept", json!({"data": {"n": "2"}})).await.unwrap();
}

#[tokio::test]
async fn vap_4_variables_fail_only_where_they_are_used() {
    let world = World::new().await;
    let variables = json!([
        {"name": "data", "expression": "has(object.data) ? object.data : {}"},
        {"name": "bad", "expression": "variables.data.filter(k, variables.data[k] == '1')"},
        {"name": "broken", "expression": "object.nope"},
    ]);
    world
        .deny(
            "p",
            json!({"variables": variables, "validations": [
                {"expression": "variables.bad.size() == 0", "messageExpression": "'bad: ' + variables.bad.join(', ')"},
                {"expression": "!('use' in variables.data) || variables.broken == 1"},
            ]}),
        )
        .await;
    assert_eq!(world.map("a", json!({"x": "1"})).await.message(), denied("p", "bad: x"));
    let why = "expression '!('use' in variables.data) || variables.broken == 1' resulted in error: composited variable \
               \"broken\" fails to evaluate: no such key: nope";
    assert_eq!(world.map("a", json!({"use": "x"})).await.message(), denied("p", why));
    world.map("a", json!({"x": "2"})).await.result.unwrap();
}

#[tokio::test]
async fn vap_5_6_messages_and_errors() {
    let world = World::new().await;
    let long = "x".repeat(6000);
    for (rule, why) in [
        (json!({"expression": "  false  "}), "failed expression: false"),
        (json!({"expression": "false", "message": " fixed "}), "fixed"),
        (json!({"expression": "false", "message": "fixed", "messageExpression": "' made ' + request.name"}), "made a"),
        (json!({"expression": "false", "message": "fixed", "messageExpression": "'  '"}), "fixed"),
        (json!({"expression": "false", "message": "fixed", "messageExpression": "'a\\nb'"}), "fixed"),
        (json!({"expression": "false", "message": "fixed", "messageExpression": "string(object.nope)"}), "fixed"),
        (json!({"expression": "false", "messageExpression": format!("'{long}'")}), "failed expression: false"),
        (
            json!({"expression": "object.nope == 1", "message": "fixed"}),
            "expression 'object.nope == 1' resulted in error: no such key: nope",
        ),
    ] {
        world.deny("p", json!({"validations": [rule]})).await;
        assert_eq!(world.map("a", json!({})).await.message(), denied("p", why));
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
    }
    world.deny("p", json!({"failurePolicy": "Ignore", "validations": validations(&["object.nope == 1"])})).await;
    world.map("a", json!({})).await.result.unwrap();
}

#[tokio::test]
async fn vap_7_too_costly_expressions_are_errors() {
    let world = World::new().await;
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let nested =
        |names: &[&str]| names.iter().fold("a > 0".to_owned(), |text, name| format!("{list}.all({name}, {text})"));
    let (one, part) = (nested(&["a", "b", "c", "d", "e", "f"]), nested(&["a", "b", "c", "d"]));
    world.deny("p", json!({"validations": validations(&[&one])})).await;
    let refused = world.map("a", json!({})).await;
    assert!(refused.message().ends_with("resulted in error: operation cancelled: actual cost limit exceeded"));
    world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
    let all: Vec<&str> = std::iter::repeat_n(part.as_str(), 250).collect();
    world.policy("p", json!({"validations": validations(&all)})).await;
    let why = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(world.map("a", json!({})).await.message(), denied("p", why));
}

#[tokio::test]
async fn vap_8_audit_annotations_are_collected_and_their_errors_deny() {
    let world = World::new().await;
    let annotation = |key: &str, text: &str| json!({"key": key, "valueExpression": text});
    let annotations =
        json!([annotation("a", "'  ' + object.data.k"), annotation("none", "null"), annotation("empty", "' '")]);
    world.policy("p", json!({"auditAnnotations": annotations, "validations": validations(&["true"])})).await;
    world.bind_as("b1", "p", &mut json!({"validationActions": ["Deny"]})).await;
    world.bind_as("b2", "p", &mut json!({"validationActions": ["Deny"]})).await;
    let answer = world.map("a", json!({"k": "v"})).await;
    assert_eq!(answer.annotations.get("p/a").map(String::as_str), Some("v"));
    assert!(!answer.annotations.contains_key("p/none") && !answer.annotations.contains_key("p/empty"));
    world.policy("q", json!({"auditAnnotations": [annotation("a", "string(object.data.nope)")]})).await;
    world.bind("q", json!({"validationActions": ["Warn"]})).await;
    let why = "expression 'string(object.data.nope)' resulted in error: no such key: nope";
    assert_eq!(world.map("a", json!({"k": "v"})).await.message(), denied("q", why));
    world
        .policy("r", json!({"auditAnnotations": [annotation("a", "authorizer.path('/').check('get').reason()")]}))
        .await;
    world.bind("r", json!({"validationActions": ["Deny"]})).await;
    assert!(world.map("b", json!({"k": "v", "nope": ""})).await.message().contains("no such attribute(s): authorizer"));
}

/// Allows what its text names, at once or later, and counts the questions.
struct Rights {
    later: bool,
    asked: Arc<AtomicUsize>,
}

impl Authorizer for Rights {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let text = match attributes.what {
            What::Path(path) => path.to_owned(),
            What::Resource(what) => {
                format!("{} {} {} {} {}", what.group, what.resource, what.subresource, what.namespace, what.name)
            }
        };
        let question = format!("{} {} {text}", attributes.user.name, attributes.verb);
        let allowed = [
            "alice get /metrics",
            "alice approve apps deployments scale n d",
            "alice do  configmaps  default a",
            "system:serviceaccount:n:s get  pods   ",
        ];
        let decision = match allowed.contains(&question.as_str()) {
            true => Decision::allow("granted"),
            false => Decision::no_opinion(),
        };
        if !self.later {
            self.asked.fetch_add(1, Ordering::SeqCst);
            return Verdict::Now(decision);
        }
        let asked = Arc::clone(&self.asked);
        Verdict::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            asked.fetch_add(1, Ordering::SeqCst);
            decision
        }))
    }

    fn rules_for(&self, _: &User, _: &str) -> RuleList {
        RuleList::default()
    }
}

#[tokio::test]
async fn vap_10_the_authorizer_is_asked_once_for_equal_checks() {
    for later in [false, true] {
        let asked = Arc::new(AtomicUsize::new(0));
        let authorizer = Arc::new(Rights { later, asked: Arc::clone(&asked) });
        let world = World::with(Settings { authorizer, ..Settings::default() }).await;
        let checks = [
            "authorizer.path('/metrics').check('get').allowed()",
            "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('d').check('approve').reason() == 'granted'",
            "authorizer.requestResource.check('do').allowed()",
            "authorizer.serviceAccount('n', 's').group('').resource('pods').check('get').allowed()",
            "!authorizer.group('').resource('pods').check('get').allowed()",
            "authorizer.path('/metrics').check('get').allowed() && variables.may",
        ];
        let variables = json!([{"name": "may", "expression": "authorizer.path('/metrics').check('get').allowed()"}]);
        world.deny("p", json!({"variables": variables, "validations": validations(&checks)})).await;
        asked.store(0, Ordering::SeqCst);
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        let object = json!({"metadata": {"name": "a"}});
        let answer = world.create_as(user("alice"), "configmaps/default", object.clone()).await;
        answer.result.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 5, "later: {later}");
        let refused = world.create_as(user("bob"), "configmaps/default", object).await;
        assert!(refused.message().ends_with(&format!("failed expression: {}", checks[0])));
    }
}

#[tokio::test]
async fn vap_15_16_17_19_params() {
    let world = World::new().await;
    let limits =
        |name: &str, max: &str| json!({"metadata": {"name": name, "labels": {"use": "yes"}}, "data": {"max": max}});
    world.create("configmaps/default", limits("limits", "3")).await.result.unwrap();
    world.create("configmaps/default", limits("strict", "1")).await.result.unwrap();
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
        {"expression": "params == null || int(object.data.k) <= int(params.data.max)", "messageExpression": "'at most ' + params.data.max"}]});
    let bind = async |params: Value| {
        world.policy("p", spec.clone()).await;
        world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
    };
    let unbind = async || {
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
    };
    let none = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    for (params, value, why) in [
        (json!({"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}), "5", Some("at most 3")),
        (json!({"name": "limits", "parameterNotFoundAction": "Deny"}), "5", Some("at most 3")),
        (json!({"name": "limits", "parameterNotFoundAction": "Deny"}), "2", None),
        (
            json!({"selector": {"matchLabels": {"use": "yes"}}, "parameterNotFoundAction": "Deny"}),
            "2",
            Some("at most 1"),
        ),
        (json!({"name": "none", "parameterNotFoundAction": "Deny"}), "2", Some(none)),
        (json!({"selector": {"matchLabels": {"use": "no"}}, "parameterNotFoundAction": "Deny"}), "2", Some(none)),
        (json!({"name": "none", "parameterNotFoundAction": "Allow"}), "9", None),
    ] {
        bind(params.clone()).await;
        let answer = world.map("a", json!({"k": value})).await;
        match why {
            Some(why) => assert_eq!(answer.message(), denied("p", why), "{params}"),
            None => {
                answer.result.unwrap();
                world.delete("configmaps/default/a").await.unwrap();
            }
        }
        unbind().await;
    }
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "Namespace"}, "validations": validations(&["params.metadata.name == 'other'"])});
    world.policy("p", spec).await;
    let params = json!({"name": "default", "namespace": "default", "parameterNotFoundAction": "Deny"});
    world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
    let why = "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
    assert_eq!(world.map("a", json!({})).await.message(), denied("p", why));
}

#[tokio::test]
async fn vap_15_a_cluster_scoped_request_has_no_namespace_for_params() {
    let world = World::new().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": validations(&["true"])});
    world.policy_for("p", json!([rule("", "nodes", &["CREATE"])]), spec).await;
    let params = json!({"name": "x", "parameterNotFoundAction": "Allow"});
    world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
    let refused = world.create("nodes", json!({"metadata": {"name": "n"}})).await;
    let why = "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
    assert!(refused.message().ends_with(why), "{}", refused.message());
}

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": {"type": "integer", "default": 7}, "a": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}}}}}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
    json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
        "versions": [version("v1", true), version("v2", false)]}})
}

#[tokio::test]
async fn vap_18_ad_55_a_param_kind_is_known_as_soon_as_it_is_defined() {
    let world = World::new().await;
    let spec = json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Thing"}, "validations": [
        {"expression": "int(object.data.k) <= params.spec.n", "messageExpression": "'at most %d'.format([params.spec.n])"}]});
    world.policy("p", spec).await;
    let params = json!({"name": "t", "parameterNotFoundAction": "Deny"});
    world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
    let why = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed \
               to find resource referenced by paramKind: 'example.com/v1, Kind=Thing'";
    assert_eq!(world.map("a", json!({"k": "1"})).await.message(), why);
    world.create("apiextensions.k8s.io:customresourcedefinitions", definition()).await.result.unwrap();
    while world.registry.kinds().get("example.com", "v1", "things").is_none() {
        tokio::task::yield_now().await;
    }
    world.create("example.com:things/default", json!({"metadata": {"name": "t"}, "spec": {}})).await.result.unwrap();
    assert_eq!(world.map("a", json!({"k": "8"})).await.message(), denied("p", "at most 7"));
    world.map("a", json!({"k": "7"})).await.result.unwrap();
}

#[tokio::test]
async fn vap_21_the_reason_decides_about_the_code() {
    let world = World::new().await;
    for (reason, code) in [("Forbidden", 403), ("Invalid", 422), ("RequestEntityTooLarge", 413)] {
        world.deny("p", json!({"validations": [{"expression": "false", "message": "no", "reason": reason}]})).await;
        let answer = world.map("a", json!({})).await;
        assert_eq!(answer.message(), denied("p", "no"));
        let status = answer.result.unwrap_err();
        assert_eq!((status.code, status.reason()), (code, reason));
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
    }
}

#[tokio::test]
async fn vap_22_23_bd_2_3_denials_are_in_the_order_of_names_and_all_are_shown() {
    let world = World::new().await;
    world.deny("b", json!({"validations": [{"expression": "false", "message": "b1"}, {"expression": "false", "message": "b2"}]})).await;
    world.deny("a", json!({"validations": [{"expression": "false", "message": "a1"}]})).await;
    assert_eq!(world.map("a", json!({})).await.causes().len(), 1, "as the reference shows it");
    let object = json!({"metadata": {"name": "a"}});
    let answer = world.create_explained("configmaps/default", object).await;
    assert_eq!(answer.message(), denied("a", "a1"));
    let cause = |policy: &str, why: &str| {
        format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}")
    };
    assert_eq!(answer.causes(), [cause("a", "a1"), cause("b", "b1"), cause("b", "b2")]);
}

#[tokio::test]
async fn vap_24_25_30_actions() {
    let world = World::new().await;
    let rules = json!({"validations": [{"expression": "object.data.k < 'x'", "message": "no & <never>"}]});
    world.policy("p", rules).await;
    world.bind("p", json!({"validationActions": ["Warn", "Audit"]})).await;
    let answer = world.map("a", json!({"k": "x"})).await;
    assert_eq!(answer.warnings, ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': no & <never>"]);
    let value = r#"[{"message":"no \u0026 \u003cnever\u003e","policy":"p","binding":"p","expressionIndex":0,"validationActions":["Warn","Audit"]}]"#;
    let key = "validation.policy.admission.k8s.io/validation_failure";
    assert_eq!(answer.annotations.get(key).map(String::as_str), Some(value));
    answer.result.unwrap();
    // Errors follow the actions too.
    let answer = world.map("b", json!({})).await;
    assert!(answer.warnings[0].ends_with("resulted in error: no such key: data"), "{:?}", answer.warnings);
    answer.result.unwrap();
}

#[tokio::test]
async fn vap_27_subresources_are_named_by_rules() {
    let world = World::new().await;
    let spec =
        |message: &str| json!({"validations": [{"expression": "object.spec.replicas <= 5", "message": message}]});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    world.create("apps:deployments/default", deployment).await.result.unwrap();
    world.policy_for("p", json!([rule("apps", "deployments", &["*"])]), spec("too many")).await;
    world.bind("p", json!({"validationActions": ["Deny"]})).await;
    let refused = world.merge("apps:deployments/default/d", json!({"spec": {"replicas": 6}})).await.unwrap_err();
    let why =
        "deployments.apps \"d\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: too many";
    assert_eq!((refused.code, refused.message.as_str()), (422, why));
    let scale = |replicas: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}});
    let update_scale = async |replicas: i64| {
        let (target, options, ctx) =
            (world.target("apps:deployments/default/d/scale"), UpdateOptions::default(), Context::default());
        let body = Body { bytes: Bytes::from(scale(replicas).to_string()), media: MediaType::Json };
        world
            .registry
            .update_scale(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body)
            .await
            .map(|_| ())
    };
    update_scale(3).await.unwrap();
    world.policy_for("q", json!([rule("apps", "deployments/scale", &["*"])]), spec("too large a scale")).await;
    world.bind("q", json!({"validationActions": ["Deny"]})).await;
    assert!(update_scale(6).await.unwrap_err().message.ends_with("too large a scale"));
}

#[tokio::test]
async fn ad_30_38_policies_do_not_see_policies_and_may_be_narrowed() {
    let world = World::new().await;
    let everything = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]);
    world.policy_for("p", everything, json!({"validations": validations(&["false"])})).await;
    let narrow = json!({"resourceRules": [rule("", "configmaps", &["CREATE"])], "excludeResourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"], "resourceNames": ["free"]}]});
    world.bind("p", json!({"validationActions": ["Deny"], "matchResources": narrow})).await;
    assert!(world.map("a", json!({})).await.result.is_err());
    world.map("free", json!({})).await.result.unwrap();
    world.create("secrets/default", json!({"metadata": {"name": "s"}})).await.result.unwrap();
    world.bind_as("all", "p", &mut json!({"validationActions": ["Deny"]})).await;
    assert!(world.create("secrets/default", json!({"metadata": {"name": "t"}})).await.result.is_err());
    let hooks = json!({"metadata": {"name": "h"}, "webhooks": []});
    assert!(world.create(&format!("{GROUP}:validatingwebhookconfigurations"), hooks).await.result.is_err());
    world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
    world.create("secrets/default", json!({"metadata": {"name": "t"}})).await.result.unwrap();
}

#[tokio::test]
async fn map_3_4_7_14_mutations_run_in_order_and_own_nothing() {
    let world = World::new().await;
    let apply = |text: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}});
    let patch = |text: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}});
    world
        .mutate("p", json!({"variables": [{"name": "who", "expression": "request.name"}], "mutations": [
            apply("Object{data: {'n': '1'}}"),
            patch("[JSONPatch{op: 'test', path: '/data/n', value: '1'}, JSONPatch{op: 'add', path: '/data/n', value: '2'}]"),
            apply("Object{data: {'seen': object.data.n}, metadata: Object.metadata{labels: {'by': variables.who}}}"),
            patch("[JSONPatch{op: 'test', path: '/data/n', value: 'other'}, JSONPatch{op: 'remove', path: '/data'}]"),
        ]}))
        .await;
    let created = world.map("a", json!({"k": "v"})).await.result.unwrap();
    assert_eq!(created["data"], json!({"k": "v", "n": "2", "seen": "2"}));
    assert_eq!(created["metadata"]["labels"], json!({"by": "a"}));
    let owned = &created["metadata"]["managedFields"];
    assert_eq!(owned.as_array().unwrap().len(), 1);
    assert_eq!(owned[0]["fieldsV1"]["f:data"], json!({".": {}, "f:k": {}}));
    assert_eq!(world.get("configmaps/default/a").await["data"], created["data"]);
}

#[tokio::test]
async fn map_7_sidecars_get_their_defaults_and_pass_the_plugins_again() {
    let world = World::new().await;
    let text = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh:1', restartPolicy: 'Always'}]}}";
    let spec = json!({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}]});
    world.policy_for("p", json!([rule("", "pods", &["CREATE"])]), spec).await;
    world.bind("p", json!({})).await;
    let range =
        json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}});
    world.create("limitranges/default", range).await.result.unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = world.create("pods/default", pod).await.result.unwrap();
    let mesh = &created["spec"]["initContainers"][0];
    assert_eq!(
        (&mesh["imagePullPolicy"], &mesh["terminationMessagePath"]),
        (&json!("IfNotPresent"), &json!("/dev/termination-log"))
    );
    assert_eq!(mesh["resources"]["limits"]["cpu"], "1", "plugins see it in the second round");
}

#[tokio::test]
async fn map_8_9_policies_run_by_name_and_again_if_needed() {
    let world = World::new().await;
    let append = |text: &str| {
        let expression = format!("[JSONPatch{{op: 'add', path: '/data/k', value: object.data.k + '{text}'}}]");
        json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}])
    };
    world.mutate("b", json!({"mutations": append("b")})).await;
    world.mutate("a", json!({"reinvocationPolicy": "IfNeeded", "mutations": append("a")})).await;
    let created = world.map("m", json!({"k": ""})).await.result.unwrap();
    assert_eq!(created["data"]["k"], "aba", "a runs again because b changed the object after it");
}

#[tokio::test]
async fn map_10_errors_are_collected() {
    let world = World::new().await;
    let apply = |text: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}});
    let patch = |text: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}});
    let broken = [
        apply("Object{data: {'x': object.data.none}}"),
        patch("[JSONPatch{op: 'remove', path: '/data/none'}]"),
        apply("Object{nope: 1}"),
        apply("Object{metadata: Object.wrong{}}"),
    ];
    world.mutate("p", json!({"mutations": broken})).await;
    let answer = world.map("a", json!({"k": "v"})).await;
    let cause = |why: &str| format!("policy 'p' with binding 'p' denied request: {why}");
    let causes = [
        cause("expression 'Object{data: {'x': object.data.none}}' resulted in error: no such key: none"),
        cause(
            "JSON Patch: error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
        ),
        cause(
            "error applying patch: failed to convert patch object to typed object: .nope: field not declared in schema",
        ),
        cause(
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.metadata\", which matches field name path \
             from root Object type",
        ),
    ];
    assert_eq!(answer.causes(), causes);
    assert_eq!(answer.message(), causes[0]);
    let status = answer.result.unwrap_err();
    assert_eq!((status.code, status.reason()), (403, "Invalid"));
    world
        .merge(&format!("{GROUP}:mutatingadmissionpolicies/p"), json!({"spec": {"failurePolicy": "Ignore"}}))
        .await
        .unwrap();
    let created = world.map("a", json!({"k": "v"})).await.result.unwrap();
    assert_eq!(created["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn map_10_12_params_and_configuration() {
    let world = World::new().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'max': params.data.max}}"}}],
        "matchConditions": [{"name": "only", "expression": "object.metadata.name == 'a'"}]});
    world.policy("p", spec).await;
    world.bind("p", json!({"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}})).await;
    let answer = world.map("a", json!({})).await;
    let why = "policy 'p' with binding 'p' denied request: failed to configure binding: no params found for policy binding with \
               `Deny` parameterNotFoundAction";
    assert_eq!(answer.message(), why);
    let status = answer.result.unwrap_err();
    assert_eq!((status.code, status.reason()), (403, "Forbidden"));
    world
        .merge(&format!("{GROUP}:mutatingadmissionpolicies/p"), json!({"spec": {"failurePolicy": "Ignore"}}))
        .await
        .unwrap();
    world.map("limits", json!({"max": "3"})).await.result.unwrap();
    world
        .merge(&format!("{GROUP}:mutatingadmissionpolicies/p"), json!({"spec": {"failurePolicy": "Fail"}}))
        .await
        .unwrap();
    let created = world.map("a", json!({})).await.result.unwrap();
    assert_eq!(created["data"], json!({"max": "3"}));
    assert_eq!(world.get("configmaps/default/limits").await["data"], json!({"max": "3"}));
}

#[tokio::test]
async fn map_6_patches_are_decoded_strictly() {
    let world = World::new().await;
    let patch = |text: &str| json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}], "failurePolicy": "Ignore"});
    for (text, why) in [
        ("[JSONPatch{op: 'add', path: '/nope', value: '5'}]", "strict decoding error: unknown field \"nope\""),
        (
            "[JSONPatch{op: 'add', path: '/data/x', value: 5}]",
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
    ] {
        world.mutate("p", patch(text)).await;
        let answer = world.map("a", json!({"k": "v"})).await;
        assert_eq!(answer.message(), format!("Internal error occurred: {why}"));
        assert_eq!(answer.result.unwrap_err().code, 500);
        world.delete(&format!("{GROUP}:mutatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:mutatingadmissionpolicybindings/p")).await.unwrap();
    }
}

#[tokio::test]
async fn map_11_ad_33_custom_resources_in_two_versions() {
    let world = World::new().await;
    world.create("apiextensions.k8s.io:customresourcedefinitions", definition()).await.result.unwrap();
    while world.registry.kinds().get("example.com", "v2", "things").is_none() {
        tokio::task::yield_now().await;
    }
    let spec = json!({"mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{spec: Object.spec{a: object.apiVersion}}"}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/n', value: 3}]"}}]});
    world.policy_for("p", json!([rule("example.com", "things", &["CREATE"])]), spec).await;
    world.bind("p", json!({})).await;
    for version in ["example.com", "example.com@v2"] {
        let created = world
            .create(&format!("{version}:things/default"), json!({"metadata": {"generateName": "t-"}, "spec": {}}))
            .await;
        let created = created.result.unwrap();
        assert_eq!(created["spec"], json!({"a": "example.com/v1", "n": 3}), "{version}");
    }
}

#[tokio::test]
async fn map_1_deletes_are_not_seen() {
    let world = World::new().await;
    let mutations =
        json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/nope'}]"}}]);
    world.policy_for("p", json!([rule("", "configmaps", &["*"])]), json!({"mutations": mutations, "matchConditions": [{"name": "no-create", "expression": "request.operation != 'CREATE'"}]})).await;
    world.bind("p", json!({})).await;
    world.map("a", json!({"k": "v"})).await.result.unwrap();
    let current = world.get("configmaps/default/a").await;
    assert!(
        world
            .update("configmaps/default/a", current)
            .await
            .unwrap_err()
            .message
            .starts_with("policy 'p' with binding 'p'")
    );
    world.delete("configmaps/default/a").await.unwrap();
}

#[tokio::test]
async fn vap_26_a_validating_policy_sees_what_mutating_ones_did() {
    let world = World::new().await;
    let mutations =
        json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'x': '1'}}"}}]);
    world.mutate("m", json!({"mutations": mutations})).await;
    world.deny("v", json!({"validations": [{"expression": "!has(object.data.x)", "message": "x is there"}]})).await;
    assert_eq!(world.map("a", json!({})).await.message(), denied("v", "x is there"));
}
