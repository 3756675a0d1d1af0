//! Admission webhooks over a memory store, with a caller that answers without a network.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use machinery::Status;
use machinery::json::{self, Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, PatchOptions, UpdateOptions};
use parking_lot::Mutex;
use registry::admission::webhooks::client::{CallFailure, HookAnswer, HookCaller, HookClient, HookTarget};
use registry::admission::webhooks::faults::Fault;
use registry::{
    Annotations, AuditLevel, Body, Context, Form, PatchBody, Registry, Settings, Target, View, WriteRequest,
};
use store::Retention;
use store::memory::MemoryStore;

/// Answers with the responses of a list, then allows; records what it is sent.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<Value>>,
    calls: Mutex<Vec<(String, Value, Duration)>>,
}

impl Script {
    fn say(&self, responses: &[Value]) {
        *self.answers.lock() = responses.iter().cloned().collect();
    }

    /// The paths that were called, and the requests of their reviews.
    fn take(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.calls.lock()).into_iter().map(|(path, request, _)| (path, request)).collect()
    }

    fn paths(&self) -> Vec<String> {
        self.take().into_iter().map(|(path, _)| path).collect()
    }
}

impl HookCaller for Script {
    fn call<'a>(&'a self, hook: &'a HookClient, review: Bytes, timeout: Duration) -> HookAnswer<'a> {
        let HookTarget::Url(url) = &hook.target else { panic!("the tests use URLs") };
        let path = url.rsplit('/').next().unwrap().to_owned();
        let review = json::from_slice(&review).unwrap().parsed().into_owned();
        self.calls.lock().push((path, review["request"].clone(), timeout));
        let response = self.answers.lock().pop_front().unwrap_or_else(|| json!({}));
        Box::pin(async move {
            tokio::task::yield_now().await;
            if let Some(seconds) = response.get("sleep").and_then(Value::as_u64) {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            if let Some(failure) = response.get("failure") {
                return Err(CallFailure::new(failure.as_str().unwrap()));
            }
            let mut response = response;
            for (member, value) in [("uid", review["request"]["uid"].clone()), ("allowed", json!(true))] {
                if response.get(member).is_none() {
                    response[member] = value;
                }
            }
            let version = review["apiVersion"].clone();
            let answer = json!({"kind": "AdmissionReview", "apiVersion": version, "response": response});
            Ok(Bytes::from(json::to_string(&answer)))
        })
    }
}

struct World {
    registry: Arc<Registry>,
    hook: Arc<Script>,
    ctx: Context,
}

impl World {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let hook = Arc::new(Script::default());
        let caller: Arc<dyn HookCaller> = hook.clone();
        let settings = Settings { hooks: Some(caller), ..settings };
        let store = Arc::new(MemoryStore::new(Retention::default()));
        World { registry: Registry::start(store, settings).await.unwrap(), hook, ctx: Context::default() }
    }

    /// `group:plural/namespace/name/subresource`, without the namespace for kinds that have none.
    fn target(&self, path: &str) -> Target {
        let parts: Vec<&str> = path.split('/').collect();
        let kinds = self.registry.kinds();
        let (group, plural) = parts[0].split_once(':').unwrap_or(("", parts[0]));
        let (plural, version) = plural.split_once('@').unwrap_or((plural, "v1"));
        let kind = Arc::clone(kinds.get(group, version, plural).expect("a served kind"));
        let at = |i: usize| parts.get(i).map(|part| (*part).to_owned());
        let (namespace, name, subresource) = if kind.namespaced { (at(1), at(2), at(3)) } else { (None, at(1), at(2)) };
        Target { kind, namespace, name, subresource }
    }

    async fn create_with(&self, path: &str, object: Value, options: &CreateOptions) -> Result<Value, Status> {
        let (target, body) = (self.target(path), self.body(path, object));
        let request = WriteRequest { target: &target, options, ctx: &self.ctx };
        self.registry.create(request, &body).await.map(|outcome| shown(&outcome.view))
    }

    async fn create(&self, path: &str, object: Value) -> Result<Value, Status> {
        self.create_with(path, object, &CreateOptions::default()).await
    }

    fn body(&self, path: &str, mut object: Value) -> Body {
        let target = self.target(path);
        object["kind"] = json!(target.kind.gvk.kind);
        object["apiVersion"] = json!(target.kind.group_version().to_string());
        Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json }
    }

    async fn put(&self, path: &str, object: Value) -> Result<Value, Status> {
        let (target, body) = (self.target(path), self.body(path, object));
        let request = WriteRequest { target: &target, options: &UpdateOptions::default(), ctx: &self.ctx };
        self.registry.update(request, &body).await.map(|outcome| shown(&outcome.view))
    }

    async fn patch(&self, path: &str, patch: Value, kind: PatchType, options: &PatchOptions) -> Result<Value, Status> {
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind };
        let request = WriteRequest { target: &self.target(path), options, ctx: &self.ctx };
        self.registry.patch(request, &body).await.map(|outcome| shown(&outcome.view))
    }

    async fn merge(&self, path: &str, patch: Value) -> Result<Value, Status> {
        self.patch(path, patch, PatchType::Merge, &PatchOptions::default()).await
    }

    async fn delete(&self, path: &str) -> Result<(), Status> {
        let request = WriteRequest { target: &self.target(path), options: &DeleteOptions::default(), ctx: &self.ctx };
        self.registry.delete(request).await.map(|_| ())
    }

    /// Creates a configuration of webhooks; each is the change of an ordinary one, which is called at its own path.
    async fn configure(&self, kind: &str, name: &str, webhooks: &[(&str, Value)]) {
        let webhooks = webhooks.iter().map(|(name, change)| {
            let mut webhook = json!({
                "name": format!("{name}.example.com"),
                "clientConfig": {"url": format!("https://hook.example.com/{name}")},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps"]}],
            });
            for (member, value) in change.as_object().into_iter().flatten() {
                webhook[member.as_str()] = value.clone();
            }
            webhook
        });
        let webhooks: Vec<Value> = webhooks.collect();
        let path = format!("admissionregistration.k8s.io:{kind}webhookconfigurations");
        self.create(&path, json!({"metadata": {"name": name}, "webhooks": webhooks})).await.unwrap();
    }
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

fn patch(operations: Value) -> Value {
    json!({"patch": STANDARD.encode(operations.to_string()), "patchType": "JSONPatch"})
}

const MAPS: &str = "configmaps/default";

#[tokio::test]
async fn ad_1_21_26_names_and_uids_come_after_the_mutating_phase() {
    let world = World::new().await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    world.configure("mutating", "m", &[("m", json!({"rules": rules}))]).await;
    world.configure("validating", "v", &[("v", json!({"rules": rules}))]).await;
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"generateName": "p-"}, "spec": spec, "status": {"phase": "Running"}});
    let created = world.create("pods/default", pod).await.unwrap();
    let calls = world.hook.take();
    let (mutating, validating) = (&calls[0].1, &calls[1].1);
    let metadata = &mutating["object"]["metadata"];
    assert!(metadata.get("uid").is_none() && metadata.get("creationTimestamp").is_none(), "{metadata}");
    assert!(metadata.get("name").is_none() && mutating.get("name").is_none());
    assert_eq!(mutating["object"]["spec"]["restartPolicy"], "Always", "defaulted");
    assert!(metadata["managedFields"].is_array());
    let metadata = &validating["object"]["metadata"];
    assert_eq!(validating["name"], created["metadata"]["name"]);
    assert_eq!((&metadata["name"], &metadata["uid"]), (&created["metadata"]["name"], &created["metadata"]["uid"]));
    assert_eq!((&metadata["generation"], &validating["object"]["status"]["phase"]), (&json!(1), &json!("Pending")));
}

#[tokio::test]
async fn ad_2_3_22_updates_of_every_kind_are_reviewed_as_what_they_are() {
    let world = World::new().await;
    world.create(MAPS, map("m")).await.unwrap();
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps", "leases"]}]);
    world.configure("validating", "v", &[("v", json!({"rules": rules}))]).await;
    let path = format!("{MAPS}/m");
    world.put(&path, json!({"metadata": {"name": "m"}, "data": {"k": "w"}})).await.unwrap();
    world.merge(&path, json!({"data": {"x": "1"}})).await.unwrap();
    let options = PatchOptions { field_manager: "a".to_owned(), ..PatchOptions::default() };
    let applied =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"z": "1"}});
    world.patch(&path, applied("m"), PatchType::Apply, &options).await.unwrap();
    world.patch(&format!("{MAPS}/new"), applied("new"), PatchType::Apply, &options).await.unwrap();
    world.put("coordination.k8s.io:leases/default/l", json!({"metadata": {"name": "l"}})).await.unwrap();
    let reviews = world.hook.take();
    let shown: Vec<String> = reviews
        .iter()
        .map(|(_, review)| {
            let old = if review["oldObject"].is_null() { "-" } else { "old" };
            format!("{} {} {old}", review["operation"].as_str().unwrap(), review["options"]["kind"].as_str().unwrap())
        })
        .collect();
    let update = "UPDATE UpdateOptions old";
    assert_eq!(shown, [update, update, update, "CREATE CreateOptions -", "CREATE CreateOptions -"]);
    assert_eq!(reviews[2].1["options"]["fieldManager"], "a");
}

#[tokio::test]
async fn ad_11_a_refusal_ends_the_phase_and_warnings_are_sent() {
    let world = World::new().await;
    world.configure("mutating", "m", &[("a", json!({})), ("b", json!({}))]).await;
    world.configure("validating", "v", &[("c", json!({}))]).await;
    world.hook.say(&[json!({"allowed": false, "warnings": ["careful"], "auditAnnotations": {"k": "v"}})]);
    world.create(MAPS, map("m")).await.unwrap_err();
    assert_eq!(world.hook.paths(), ["a"]);
    assert_eq!(world.ctx.warnings.take(), ["careful"]);
}

#[tokio::test]
async fn ad_13_managed_fields_that_a_webhook_breaks_are_put_back() {
    let world = World::new().await;
    world.configure("mutating", "m", &[("m", json!({}))]).await;
    world
        .hook
        .say(&[patch(json!([{"op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Nonsense"}]))]);
    let created = world.create(MAPS, map("m")).await.unwrap();
    assert_eq!(created["metadata"]["managedFields"][0]["operation"], "Update");
    let warning = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
                   admission controller; please fix your requests: operation must be `Apply` or `Update`";
    assert_eq!(world.ctx.warnings.take(), [warning]);
}

#[tokio::test]
async fn ad_14_an_applier_owns_what_it_sends_after_a_webhook_set_it() {
    let world = World::new().await;
    world.configure("mutating", "m", &[("m", json!({}))]).await;
    let add = patch(json!([{"op": "add", "path": "/data/x", "value": "1"}]));
    world.hook.say(std::slice::from_ref(&add));
    world.create(MAPS, map("m")).await.unwrap();
    let options = PatchOptions { field_manager: "a".to_owned(), ..PatchOptions::default() };
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"x": "1"}});
    let applied = world.patch(&format!("{MAPS}/m"), applied, PatchType::Apply, &options).await.unwrap();
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let own = managers.iter().find(|entry| entry["manager"] == "a").unwrap();
    assert_eq!(own["fieldsV1"]["f:data"], json!({"f:x": {}}));
}

#[tokio::test]
async fn ad_15_owners_that_a_webhook_doubles_are_removed() {
    let world = World::new().await;
    world.configure("mutating", "m", &[("m", json!({}))]).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    world.hook.say(&[patch(json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner]}]))]);
    let created = world.create(MAPS, map("m")).await.unwrap();
    assert_eq!(created["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    let warnings = world.ctx.warnings.take();
    let text = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; ";
    assert!(warnings[0].starts_with(text), "{warnings:?}");
}

#[tokio::test]
async fn ad_17_a_plugin_refuses_a_generated_name_by_its_prefix() {
    let world = World::new().await;
    let quota = json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "i"}], "priorityClassName": "none"}});
    let refused = world.create("pods/default", quota).await.unwrap_err();
    assert_eq!(refused.message, "pods \"p-\" is forbidden: no PriorityClass with name none was found");
}

#[tokio::test]
async fn ad_36_39_conditions_decide_whether_a_webhook_is_called() {
    let world = World::new().await;
    let condition = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    world
        .configure(
            "validating",
            "v",
            &[("no", condition("object.data.k == 'w'")), ("yes", condition("object.data.k == 'v'"))],
        )
        .await;
    world.create(MAPS, map("m")).await.unwrap();
    assert_eq!(world.hook.paths(), ["yes"]);
    let mut ignored = condition("object.spec.x == 1");
    ignored["failurePolicy"] = json!("Ignore");
    world.configure("validating", "w", &[("ignored", ignored)]).await;
    world.create(MAPS, map("n")).await.unwrap();
    assert_eq!(world.hook.paths(), ["yes"]);
    world.configure("validating", "x", &[("failing", condition("object.spec.x == 1"))]).await;
    let refused = world.create(MAPS, map("o")).await.unwrap_err();
    let text = "configmaps \"o\" is forbidden: expression 'object.spec.x == 1' resulted in error: no such key: spec";
    assert_eq!((refused.code, refused.message.as_str()), (403, text));
    assert!(world.hook.paths().is_empty(), "no webhook is called if one cannot be decided");
}

#[tokio::test]
async fn wh_23_a_patch_is_decoded_and_defaulted() {
    let world = World::new().await;
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"]}]);
    let policy = json!({"rules": rules, "reinvocationPolicy": "IfNeeded"});
    world.configure("mutating", "m", &[("m", policy)]).await;
    let port = json!({"op": "add", "path": "/spec/ports/-", "value": {"name": "b", "port": 81, "nope": 1}});
    world.hook.say(&[patch(json!([port]))]);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 80}]}});
    let created = world.create("services/default", service.clone()).await.unwrap();
    let added = &created["spec"]["ports"][1];
    assert_eq!((&added["protocol"], &added["targetPort"]), (&json!("TCP"), &json!(81)));
    assert!(added.get("nope").is_none(), "{added}");
    world.hook.take();
    // A patch whose result is the same object changes nothing, so that there is no second round.
    let same = json!([{"op": "replace", "path": "/metadata/name", "value": "t"}]);
    world.hook.say(&[patch(same)]);
    let mut other = service;
    other["metadata"]["name"] = json!("t");
    world.create("services/default", other).await.unwrap();
    assert_eq!(world.hook.take().len(), 1);
}

#[tokio::test]
async fn wh_24_25_warnings_and_annotations_of_an_answer() {
    let mut world = World::new().await;
    world.ctx.annotations = Annotations::recording();
    world.configure("validating", "v", &[("v", json!({}))]).await;
    let status = json!({"code": 500, "message": "is ignored"});
    world.hook.say(&[json!({"warnings": ["w"], "auditAnnotations": {"key": "value"}, "status": status})]);
    world.create(MAPS, map("m")).await.unwrap();
    assert_eq!(world.ctx.warnings.take(), ["w"]);
    assert_eq!(world.ctx.annotations.get()["v.example.com/key"], "value");
}

#[tokio::test]
async fn aud_24_25_26_27_wh_54_calls_are_annotated() {
    let mut world = World::new().await;
    world.ctx.annotations = Annotations::recording();
    world.ctx.annotations.set_level(AuditLevel::Request);
    let elsewhere =
        json!({"rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]});
    let ignored = json!({"failurePolicy": "Ignore"});
    world.configure("mutating", "m", &[("other", elsewhere.clone()), ("a", json!({})), ("b", ignored.clone())]).await;
    world.configure("validating", "v", &[("other", elsewhere), ("c", json!({})), ("d", ignored)]).await;
    let answers = [
        patch(json!([{"value": "1", "path": "/data/x", "op": "add"}])),
        json!({"failure": "gone"}),
        json!({}),
        json!({"failure": "gone"}),
    ];
    world.hook.say(&answers);
    world.create(MAPS, map("m")).await.unwrap();
    let annotations = world.ctx.annotations.get();
    let expected = [
        ("failed-open.mutation.webhook.admission.k8s.io/round_0_index_2", "b.example.com"),
        ("failed-open.validating.webhook.admission.k8s.io/round_0_index_1", "d.example.com"),
        (
            "mutation.webhook.admission.k8s.io/round_0_index_1",
            r#"{"configuration":"m","webhook":"a.example.com","mutated":true}"#,
        ),
        (
            "mutation.webhook.admission.k8s.io/round_0_index_2",
            r#"{"configuration":"m","webhook":"b.example.com","mutated":false}"#,
        ),
        (
            "patch.webhook.admission.k8s.io/round_0_index_1",
            r#"{"configuration":"m","webhook":"a.example.com","patch":[{"op":"add","path":"/data/x","value":"1"}],"patchType":"JSONPatch"}"#,
        ),
    ];
    for (key, value) in expected {
        assert_eq!(annotations.get(key).map(String::as_str), Some(value), "{key}");
    }
}

#[tokio::test]
async fn wh_34_a_patch_that_cannot_be_read_is_a_failed_call() {
    let world = World::new().await;
    world.configure("mutating", "m", &[("m", json!({}))]).await;
    let raw = |text: &str, kind: &str| json!({"patch": STANDARD.encode(text), "patchType": kind});
    for (answer, why) in [
        (raw("nope", "JSONPatch"), "received undecodable patch in webhook response: invalid character"),
        (raw("{}", "JSONPatch"), "received undecodable patch in webhook response: json: cannot unmarshal object"),
        (raw("[1]", "JSONPatch"), "received undecodable patch in webhook response: json: cannot unmarshal number"),
        (raw("[{\"op\":\"add\"}]", "Merge"), "unsupported patch type \"Merge\""),
    ] {
        world.hook.say(&[answer]);
        let refused = world.create(MAPS, map("m")).await.unwrap_err();
        assert_eq!(refused.code, 500);
        let text = format!("Internal error occurred: failed calling webhook \"m.example.com\": {why}");
        assert!(refused.message.starts_with(&text), "{}", refused.message);
    }
}

#[tokio::test]
async fn wh_35_37_38_41_failure_policies_and_what_they_do_not_decide() {
    let world = World::new().await;
    let ignored = json!({"failurePolicy": "Ignore"});
    world.configure("mutating", "m", &[("m", ignored.clone())]).await;
    world.hook.say(&[json!({"failure": "gone"})]);
    world.create(MAPS, map("m")).await.unwrap();
    world.hook.say(&[patch(json!([{"op": "add", "path": "/a", "value": 1}]))]);
    let refused = world.delete(&format!("{MAPS}/m")).await.unwrap_err();
    let text = "Internal error occurred: admission webhook \"m.example.com\" attempted to modify the object, which is not \
                supported for this operation";
    assert_eq!((refused.code, refused.message.as_str()), (500, text));
    world.hook.take();
    let path = "admissionregistration.k8s.io:mutatingwebhookconfigurations/m";
    world.delete(path).await.unwrap();
    world.create(MAPS, map("n")).await.unwrap();
    assert!(world.hook.paths().is_empty(), "deleted configurations no longer act");
}

#[tokio::test]
async fn wh_52_a_call_has_the_timeout_of_its_webhook() {
    let world = World::new().await;
    world
        .configure("validating", "v", &[("a", json!({"timeoutSeconds": 30})), ("b", json!({"timeoutSeconds": 2}))])
        .await;
    world.create(MAPS, map("m")).await.unwrap();
    let timeouts: Vec<u64> = world.hook.calls.lock().iter().map(|(_, _, timeout)| timeout.as_secs()).collect();
    assert_eq!(timeouts, [30, 2]);
}

#[tokio::test]
async fn wh_51_all_validating_webhooks_are_called() {
    let world = World::new().await;
    world.configure("validating", "v", &[("b", json!({})), ("a", json!({})), ("c", json!({}))]).await;
    let refusal = |message: &str| json!({"allowed": false, "status": {"message": message}});
    world.hook.say(&[refusal("b"), refusal("a"), json!({})]);
    let refused = world.create(MAPS, map("m")).await.unwrap_err();
    assert_eq!(refused.message, "admission webhook \"a.example.com\" denied the request: a");
    assert_eq!(world.hook.paths(), ["b", "a", "c"]);
}

#[tokio::test]
async fn ad_33_events_are_the_same_objects_in_two_groups() {
    let world = World::new().await;
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"]}]);
    world.configure("validating", "v", &[("v", json!({"rules": rules}))]).await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "message": "hello", "reason": "R"});
    world.create("events/default", event).await.unwrap();
    let (_, review) = world.hook.take().remove(0);
    assert_eq!(review["kind"], json!({"group": "events.k8s.io", "version": "v1", "kind": "Event"}));
    assert_eq!(review["requestResource"]["group"], "");
    assert_eq!(
        (&review["object"]["note"], &review["object"]["apiVersion"]),
        (&json!("hello"), &json!("events.k8s.io/v1"))
    );
}

#[tokio::test]
async fn ad_33_a_patch_in_another_version_is_converted_back() {
    let world = World::new().await;
    let rules = json!([{"operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "resources": ["horizontalpodautoscalers"]}]);
    world.configure("mutating", "m", &[("m", json!({"rules": rules}))]).await;
    world.hook.say(&[patch(
        json!([{"op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization", "value": 42}]),
    )]);
    let scaler = json!({"metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "maxReplicas": 3, "targetCPUUtilizationPercentage": 80}});
    let created = world.create("autoscaling:horizontalpodautoscalers@v1/default", scaler).await.unwrap();
    assert_eq!(created["apiVersion"], "autoscaling/v1");
    assert_eq!(created["spec"]["targetCPUUtilizationPercentage"], 42);
}

#[tokio::test]
async fn the_order_of_checks_on_create_is_that_of_the_reference() {
    let world = World::new().await;
    let stated = |name: &str| json!({"metadata": {"name": name, "resourceVersion": "5"}});
    let refused = world.create(MAPS, stated("Not Valid")).await.unwrap_err();
    assert_eq!(refused.code, 422, "validation comes first");
    let refused = world.create(MAPS, stated("m")).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (500, "resourceVersion should not be set on objects to be created")
    );
    let options = CreateOptions { dry_run: true, ..CreateOptions::default() };
    let shown = world.create_with(MAPS, stated("m"), &options).await.unwrap();
    assert_eq!(shown["metadata"]["resourceVersion"], "5");
}

#[tokio::test]
async fn wh_23_repeated_pods_are_changed_each_time() {
    let world = World::new().await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    let spec = json!({"containers": [{"name": "main", "image": "registry.example.com/a-long-name-of-an-image:1.2.3"}]});
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": spec});
    for name in ["a", "b", "c", "d"] {
        world.create("pods/default", pod(name)).await.unwrap();
    }
    world.configure("mutating", "m", &[("m", json!({"rules": rules}))]).await;
    for (name, image) in [("e", "one"), ("f", "two"), ("g", "two")] {
        let patched = patch(json!([{"op": "replace", "path": "/spec/containers/0/image", "value": image}]));
        world.hook.say(&[patched]);
        let created = world.create("pods/default", pod(name)).await.unwrap();
        assert_eq!(created["spec"]["containers"][0]["image"], image);
        assert_eq!(
            created["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent",
            "{name}: of the image that was sent"
        );
    }
    let plain = world.create("pods/default", pod("h")).await.unwrap();
    assert_eq!(plain["spec"]["containers"][0]["image"], spec["containers"][0]["image"]);
}

#[tokio::test(start_paused = true)]
async fn wh_39_a_request_whose_time_is_over_fails_although_a_webhook_is_ignored() {
    let world = World::new().await;
    let ignored = json!({"failurePolicy": "Ignore", "timeoutSeconds": 30});
    world.configure("mutating", "m", &[("a", ignored.clone()), ("b", ignored)]).await;
    let failed = |seconds: u64| json!({"sleep": seconds, "failure": "context deadline exceeded"});
    world.hook.say(&[failed(30), failed(5)]);
    let refused = world.create(MAPS, map("m")).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (504, "Timeout: request did not complete within requested timeout")
    );
    let left: Vec<u64> = world.hook.calls.lock().iter().map(|(_, _, timeout)| timeout.as_secs()).collect();
    assert_eq!(left[0], 30);
    assert!(left[1] <= 4, "what is left of the request's time: {left:?}");
}

#[tokio::test]
async fn wh_53_ad_50_a_changed_configuration_acts_at_once() {
    let world = World::new().await;
    world.configure("validating", "v", &[("a", json!({}))]).await;
    let path = "admissionregistration.k8s.io:validatingwebhookconfigurations/v";
    for round in 0..100 {
        let wanted = if round % 2 == 0 { "secrets" } else { "configmaps" };
        let rules = json!([{"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": [wanted]}]);
        world.patch(path, rules, PatchType::Json, &PatchOptions::default()).await.unwrap();
        let options = CreateOptions { dry_run: true, ..CreateOptions::default() };
        world.create_with(MAPS, map("m"), &options).await.unwrap();
        assert_eq!(world.hook.take().len(), round % 2, "round {round}");
    }
}

#[tokio::test]
async fn wh_40_an_object_that_cannot_be_converted_fails_the_request() {
    let world = World::new().await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    // Without a caller for conversions none is possible.
    let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://c.example.com/"}}});
    let spec = json!({
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [version("v1", true), version("v2", false)], "conversion": conversion,
    });
    world
        .create(
            "apiextensions.k8s.io:customresourcedefinitions",
            json!({"metadata": {"name": "things.example.com"}, "spec": spec}),
        )
        .await
        .unwrap();
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["things"]}]);
    world.configure("validating", "v", &[("a", json!({"rules": rules, "failurePolicy": "Ignore"}))]).await;
    let refused = world.create("example.com:things/default", json!({"metadata": {"name": "t"}})).await.unwrap_err();
    assert_eq!(refused.code, 500);
    assert!(
        refused.message.starts_with("Internal error occurred: conversion webhook for example.com/v1"),
        "{}",
        refused.message
    );
}

#[tokio::test]
async fn ad_7_a_concurrent_write_is_admitted_again() {
    let world = Arc::new(World::new().await);
    world.create(MAPS, map("m")).await.unwrap();
    world.configure("validating", "v", &[("a", json!({}))]).await;
    let writers = (0..8).map(|at| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.merge(&format!("{MAPS}/m"), json!({"data": {format!("k{at}"): "v"}})).await })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap().unwrap();
    }
    let calls = world.hook.take();
    assert!(calls.len() >= 8);
    // What was stored in the end was admitted with everything that was written before it.
    let last = calls.iter().map(|(_, review)| review["object"]["data"].as_object().unwrap().len()).max();
    assert_eq!(last, Some(9));
}

#[tokio::test]
async fn pl_24_25_26_27_policies_and_webhooks_come_after_plugins() {
    let mut world = World::new().await;
    world.configure("mutating", "m", &[("m", json!({}))]).await;
    world.configure("validating", "v", &[("v", json!({}))]).await;
    let rules = json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    for (plural, spec) in [
        ("validatingadmissionpolicies", json!({"matchConstraints": rules, "validations": [{"expression": "true"}]})),
        (
            "mutatingadmissionpolicies",
            json!({"matchConstraints": rules, "reinvocationPolicy": "Never", "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/data/x', value: 'y'}]"}}]}),
        ),
    ] {
        let path = format!("admissionregistration.k8s.io:{plural}");
        world.create(&path, json!({"metadata": {"name": "p"}, "spec": spec})).await.unwrap();
        let mut binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p"}});
        if plural.starts_with("validating") {
            binding["spec"]["validationActions"] = json!(["Deny"]);
        }
        let path = format!("admissionregistration.k8s.io:{}bindings", plural.replace("policies", "policy"));
        world.create(&path, binding).await.unwrap();
    }
    let trace = Arc::new(registry::admission::trace::Trace::default());
    world.ctx.trace = Some(Arc::clone(&trace));
    world.create(MAPS, map("m")).await.unwrap();
    let steps = trace.to_value();
    let shown: Vec<String> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            let kind = ["plugin", "policy", "webhook"].into_iter().find(|kind| step.get(*kind).is_some()).unwrap();
            format!("{} {kind}", step["phase"].as_str().unwrap())
        })
        .collect();
    let mut shown = shown;
    shown.dedup();
    let again = ["mutate plugin", "mutate policy", "mutate webhook"];
    let expected = [&again[..], &again[..], &["validate plugin", "validate policy", "validate webhook"][..]].concat();
    assert_eq!(shown, expected, "two rounds, since the policy changes the object");
}

#[tokio::test]
async fn bd_13_webhooks_own_what_they_set_if_asked() {
    let world = World::with(Settings { own_mutations: true, ..Settings::default() }).await;
    world.configure("mutating", "m", &[("m", json!({}))]).await;
    world.hook.say(&[patch(json!([{"op": "add", "path": "/data/x", "value": "1"}]))]);
    let created = world.create(MAPS, map("m")).await.unwrap();
    let managers = created["metadata"]["managedFields"].as_array().unwrap();
    let own = managers.iter().find(|entry| entry["manager"] == "admission:m.example.com").expect("a manager");
    assert_eq!(own["fieldsV1"], json!({"f:data": {"f:x": {}}}));
    assert_eq!(managers.len(), 2);
    let options = PatchOptions { field_manager: "a".to_owned(), ..PatchOptions::default() };
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"x": "2"}});
    let refused = world.patch(&format!("{MAPS}/m"), applied, PatchType::Apply, &options).await.unwrap_err();
    assert_eq!(refused.code, 409);
    assert!(refused.message.contains("admission:m.example.com"), "{}", refused.message);
}

#[tokio::test]
async fn bd_9_faults_test_the_failure_policy() {
    let world = World::new().await;
    world.configure("mutating", "m", &[("m", json!({}))]).await;
    let faults = world.registry.webhook_faults();
    for (fault, why) in [
        ("drop", "failed to call webhook: EOF"),
        ("code=503", "failed to call webhook: the server is currently unable to handle the request"),
        ("bad-uid", "received invalid webhook response: expected response.uid="),
        ("bad-patch", "doc is missing path"),
    ] {
        faults.set("m.example.com", Fault::parse(fault).unwrap()).unwrap();
        let refused = world.create(MAPS, map("m")).await.unwrap_err();
        assert!(refused.message.contains(why), "{fault}: {}", refused.message);
    }
    faults.remove("m.example.com");
    world.create(MAPS, map("m")).await.unwrap();
}

/// A webhook that converts `spec.host` of v1 to `spec.address` of v2, and back.
#[derive(Debug, Default)]
struct Conversion {
    wanted: Mutex<Vec<String>>,
}

impl registry::Webhooks for Conversion {
    fn post(
        &self,
        _: &Value,
        review: Bytes,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Bytes, CallFailure>> + Send>> {
        let review = json::from_slice(&review).unwrap().parsed().into_owned();
        let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap().to_owned();
        let (from, to) = if wanted.ends_with("/v2") { ("host", "address") } else { ("address", "host") };
        let objects = review["request"]["objects"].as_array().unwrap().iter().map(|object| {
            let mut object = object.clone();
            object["apiVersion"] = json!(wanted);
            object["spec"] = json!({to: object["spec"][from]});
            object
        });
        let objects: Vec<Value> = objects.collect();
        self.wanted.lock().push(wanted);
        let answer = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
            "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}});
        Box::pin(async move { Ok(Bytes::from(json::to_string(&answer))) })
    }
}

#[tokio::test]
async fn ad_33_cw_5_custom_resources_are_converted_by_their_webhook_for_a_rule_on_another_version() {
    let conversion = Arc::new(Conversion::default());
    let caller: Arc<dyn registry::Webhooks> = conversion.clone();
    let world = World::with(Settings { webhooks: Some(caller), ..Settings::default() }).await;
    let version = |name: &str, storage: bool, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"}}});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    let strategy = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://c.example.com/"}}});
    let spec = json!({
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [version("v1", true, "host"), version("v2", false, "address")], "conversion": strategy,
    });
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": spec});
    world.create("apiextensions.k8s.io:customresourcedefinitions", definition).await.unwrap();
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["things"]}]);
    world.configure("mutating", "m", &[("m", json!({"rules": rules}))]).await;
    world.configure("validating", "v", &[("v", json!({"rules": rules}))]).await;
    world.hook.say(&[patch(json!([{"op": "replace", "path": "/spec/address", "value": "changed"}]))]);
    let thing = json!({"metadata": {"name": "t"}, "spec": {"host": "sent"}});
    let created = world.create("example.com:things/default", thing).await.unwrap();
    // The patch of the webhook is in the version of its rule, and the answer in that of the request.
    assert_eq!((&created["apiVersion"], &created["spec"]), (&json!("example.com/v1"), &json!({"host": "changed"})));
    let calls = world.hook.take();
    let seen: Vec<(&str, &Value)> = calls.iter().map(|(path, call)| (path.as_str(), &call["object"]["spec"])).collect();
    assert_eq!(seen, [("m", &json!({"address": "sent"})), ("v", &json!({"address": "changed"}))]);
    for (_, call) in &calls {
        assert_eq!((&call["kind"]["version"], &call["requestKind"]["version"]), (&json!("v2"), &json!("v1")));
        assert_eq!(call["object"]["apiVersion"], "example.com/v2");
    }
    world.delete("example.com:things/default/t").await.unwrap();
    let calls = world.hook.take();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|(_, call)| call["oldObject"]["spec"] == json!({"address": "changed"})));
    assert!(conversion.wanted.lock().iter().any(|wanted| wanted == "example.com/v1"), "back to the request's version");
}

#[tokio::test]
async fn az_94_ad_30_a_review_is_validated_between_the_phases() {
    let world = World::new().await;
    let group = "authorization.k8s.io";
    let rules = json!([{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": ["*"]}]);
    world.configure("mutating", "m", &[("m", json!({"rules": rules}))]).await;
    world.configure("validating", "v", &[("v", json!({"rules": rules}))]).await;
    let path = "authorization.k8s.io:subjectaccessreviews";
    let target = world.target(path);
    let options = CreateOptions::default();
    let request = WriteRequest { target: &target, options: &options, ctx: &world.ctx };
    let body = world.body(path, json!({"spec": {"user": ""}}));
    let named = patch(json!([{"op": "replace", "path": "/spec/user", "value": "bob"}]));
    let has_user = |object: &Value| match object["spec"]["user"].as_str() {
        Some("") | None => Err(Status::bad_request("no user")),
        Some(_) => Ok(()),
    };
    let refused = world.registry.admit_unstored(request, &body, has_user).await.unwrap_err();
    assert_eq!(refused.message, "no user");
    assert_eq!(world.hook.paths(), ["m"], "what is not valid is not shown to validating webhooks");
    world.hook.say(&[named]);
    let admitted = world.registry.admit_unstored(request, &body, has_user).await.unwrap();
    assert_eq!(admitted["spec"]["user"], "bob", "the check sees what mutating webhooks made of it");
    assert_eq!(world.hook.paths(), ["m", "v"]);
}

#[tokio::test]
async fn ad_6_20_a_webhook_changes_the_options_of_a_connection() {
    let world = World::new().await;
    world.create("nodes", json!({"metadata": {"name": "n"}})).await.unwrap();
    let spec = json!({"nodeName": "n", "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]});
    world.create("pods/default", json!({"metadata": {"name": "p"}, "spec": spec})).await.unwrap();
    let rules =
        json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods/exec"]}]);
    world.configure("mutating", "m", &[("m", json!({"rules": rules}))]).await;
    let target = world.target("pods/default/p/exec");
    let query = machinery::query::Query::parse("command=ls&container=a&stdout=1");
    let connect = async || world.registry.connect(&target, &query, "", &world.ctx).await;
    let unchanged = connect().await.unwrap().unwrap();
    assert_eq!((unchanged.container.as_str(), unchanged.query), ("a", None));
    world.hook.say(&[patch(json!([
        {"op": "replace", "path": "/command", "value": ["sh", "-c", "ls"]},
        {"op": "replace", "path": "/container", "value": "b"},
        {"op": "add", "path": "/nope", "value": 1},
    ]))]);
    let changed = connect().await.unwrap().unwrap();
    assert_eq!(changed.container, "b");
    let query = changed.query.expect("the options were changed");
    assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "ls"]);
    assert_eq!((query.truth("stdout"), query.get("nope")), (Some(true), None));
    world.hook.say(&[patch(json!([{"op": "replace", "path": "/command", "value": "ls"}]))]);
    let refused = connect().await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.ends_with("command of the options has a value of the wrong type")),
        (500, true)
    );
}
