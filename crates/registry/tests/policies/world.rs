//! A registry on a memory store, with policies in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::User;
use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, PatchOptions, UpdateOptions};
use registry::{Annotations, Body, Context, Form, PatchBody, Registry, Settings, Target, View, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

pub(super) const GROUP: &str = "admissionregistration.k8s.io";

pub(super) struct World {
    pub(super) registry: Arc<Registry>,
}

/// What a write was answered, and what came with it.
pub(super) struct Answer {
    pub(super) result: Result<Value, Status>,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Answer {
    pub(super) fn message(&self) -> &str {
        self.result.as_ref().expect_err("the write is refused").message.as_str()
    }

    pub(super) fn causes(&self) -> Vec<&str> {
        let status = self.result.as_ref().expect_err("the write is refused");
        status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.message.as_str()).collect()
    }
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(super) async fn with(settings: Settings) -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        World { registry: Registry::start(store, settings).await.unwrap() }
    }

    /// `group:plural/namespace/name/subresource`, without the namespace for kinds that have none. `v2:` names a version.
    pub(super) fn target(&self, path: &str) -> Target {
        let parts: Vec<&str> = path.split('/').collect();
        let kinds = self.registry.kinds();
        let (group, plural) = parts[0].split_once(':').unwrap_or(("", parts[0]));
        let (group, version) = group.split_once('@').unwrap_or((group, "v1"));
        let kind = Arc::clone(kinds.get(group, version, plural).expect("a served kind"));
        let at = |i: usize| parts.get(i).map(|part| (*part).to_owned());
        let (namespace, name, subresource) = if kind.namespaced { (at(1), at(2), at(3)) } else { (None, at(1), at(2)) };
        Target { kind, namespace, name, subresource }
    }

    pub(super) async fn create_as(&self, user: User, path: &str, object: Value) -> Answer {
        let ctx = Context { user: Arc::new(user), annotations: Annotations::recording(), ..Context::default() };
        self.create_with(ctx, path, object).await
    }

    /// A create that is answered with everything that is known of it.
    pub(super) async fn create_explained(&self, path: &str, object: Value) -> Answer {
        self.create_with(Context { explains: true, ..Context::default() }, path, object).await
    }

    pub(super) async fn create_with(&self, ctx: Context, path: &str, mut object: Value) -> Answer {
        let target = self.target(path);
        object["kind"] = json!(target.kind.gvk.kind);
        object["apiVersion"] = json!(target.kind.group_version().to_string());
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let options = CreateOptions { field_manager: "test".to_owned(), ..CreateOptions::default() };
        let created = self.registry.create(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await;
        let result = created.map(|outcome| shown(&outcome.view));
        Answer { result, warnings: ctx.warnings.take(), annotations: ctx.annotations.get() }
    }

    pub(super) async fn create(&self, path: &str, object: Value) -> Answer {
        self.create_as(User::default(), path, object).await
    }

    pub(super) async fn merge(&self, path: &str, patch: Value) -> Result<Value, Status> {
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let (target, options, ctx) = (self.target(path), PatchOptions::default(), Context::default());
        let patched = self.registry.patch(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await;
        patched.map(|outcome| shown(&outcome.view))
    }

    pub(super) async fn update(&self, path: &str, object: Value) -> Result<Value, Status> {
        let (target, options, ctx) = (self.target(path), UpdateOptions::default(), Context::default());
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let updated = self.registry.update(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await;
        updated.map(|outcome| shown(&outcome.view))
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), Status> {
        let (options, ctx) = (DeleteOptions::default(), Context::default());
        let target = self.target(path);
        self.registry.delete(WriteRequest { target: &target, options: &options, ctx: &ctx }).await.map(|_| ())
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        shown(&self.registry.get(&self.target(path), &GetOptions::default()).await.unwrap())
    }

    /// A policy on creates and updates of config maps, with `spec` added.
    pub(super) async fn policy(&self, name: &str, spec: Value) {
        self.policy_for(name, json!([rule("", "configmaps", &["CREATE", "UPDATE"])]), spec).await;
    }

    pub(super) async fn policy_for(&self, name: &str, rules: Value, mut spec: Value) {
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
    pub(super) async fn bind(&self, name: &str, mut spec: Value) {
        self.bind_as(name, name, &mut spec).await;
    }

    pub(super) async fn bind_as(&self, name: &str, policy: &str, spec: &mut Value) {
        let plural = if spec.get("validationActions").is_some() { "validating" } else { "mutating" };
        spec["policyName"] = json!(policy);
        let object = json!({"metadata": {"name": name}, "spec": spec.clone()});
        self.create(&format!("{GROUP}:{plural}admissionpolicybindings"), object).await.result.unwrap();
    }

    /// A validating policy, bound to refuse.
    pub(super) async fn deny(&self, name: &str, spec: Value) {
        self.policy(name, spec).await;
        self.bind(name, json!({"validationActions": ["Deny"]})).await;
    }

    /// A mutating policy, bound.
    pub(super) async fn mutate(&self, name: &str, spec: Value) {
        self.policy(name, spec).await;
        self.bind(name, json!({})).await;
    }

    pub(super) async fn map(&self, name: &str, data: Value) -> Answer {
        self.create("configmaps/default", json!({"metadata": {"name": name}, "data": data})).await
    }
}

pub(super) fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

pub(super) fn rule(group: &str, resource: &str, operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": operations})
}

pub(super) fn validations(expressions: &[&str]) -> Value {
    expressions.iter().map(|expression| json!({"expression": expression})).collect::<Vec<_>>().into()
}

pub(super) fn denied(policy: &str, why: &str) -> String {
    format!(
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}"
    )
}

pub(super) fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": {"type": "integer", "default": 7}, "a": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}}}}}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
    json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
        "versions": [version("v1", true), version("v2", false)]}})
}
