//! CustomResourceDefinitions over a memory store: served kinds, validation, conversion, removal.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use machinery::Status;
use machinery::json::{self, Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, ListOptions, PatchOptions, UpdateOptions};
use machinery::query::Query;
use parking_lot::Mutex;
use registry::admission::webhooks::client::CallFailure;
use registry::{
    Body, Context, Form, Outcome, PatchBody, Registry, Settings, Target, View, WatchView, Webhooks, WriteRequest,
};
use store::Retention;
use store::memory::MemoryStore;

const CRDS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "example.com/v1/things/default";

struct World {
    registry: Arc<Registry>,
    store: Arc<MemoryStore>,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        Self::on(store).await
    }

    async fn on(store: Arc<MemoryStore>) -> Self {
        Self::with(store, Settings::default()).await
    }

    async fn with_webhooks(webhooks: Arc<dyn Webhooks>) -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        Self::with(store, Settings { webhooks: Some(webhooks), ..Settings::default() }).await
    }

    async fn with(store: Arc<MemoryStore>, settings: Settings) -> Self {
        let registry = Registry::start(store.clone(), settings).await.unwrap();
        World { registry, store }
    }

    /// `group/version/plural[/namespace][/name[/subresource]]`
    fn try_target(&self, path: &str) -> Option<Target> {
        let parts: Vec<&str> = path.split('/').collect();
        let kind = Arc::clone(self.registry.kinds().get(parts[0], parts[1], parts[2])?);
        let at = |i: usize| parts.get(i).filter(|part| !part.is_empty()).map(|part| (*part).to_owned());
        let (namespace, name, subresource) = if kind.namespaced { (at(3), at(4), at(5)) } else { (None, at(3), at(4)) };
        Some(Target { kind, namespace, name, subresource })
    }

    fn target(&self, path: &str) -> Target {
        self.try_target(path).expect("a served kind")
    }

    async fn create(&self, path: &str, object: Value) -> Result<Value, Status> {
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let outcome = self
            .registry
            .create(
                WriteRequest {
                    target: &self.target(path),
                    options: &CreateOptions::default(),
                    ctx: &Context::default(),
                },
                &body,
            )
            .await;
        outcome.map(value)
    }

    async fn update(&self, path: &str, object: Value) -> Result<Value, Status> {
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        self.registry
            .update(
                WriteRequest {
                    target: &self.target(path),
                    options: &UpdateOptions::default(),
                    ctx: &Context::default(),
                },
                &body,
            )
            .await
            .map(value)
    }

    async fn merge(&self, path: &str, patch: Value) -> Result<Value, Status> {
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let (target, options, ctx) = (self.target(path), PatchOptions::default(), Context::default());
        let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
        match target.subresource.as_deref() {
            Some("scale") => self.registry.patch_scale(request, &body).await.map(value),
            _ => self.registry.patch(request, &body).await.map(value),
        }
    }

    async fn apply(&self, path: &str, manager: &str, object: Value) -> Result<Value, Status> {
        let body = PatchBody { bytes: Bytes::from(object.to_string()), kind: PatchType::Apply };
        let options = PatchOptions { field_manager: manager.to_owned(), ..PatchOptions::default() };
        self.registry
            .patch(WriteRequest { target: &self.target(path), options: &options, ctx: &Context::default() }, &body)
            .await
            .map(value)
    }

    async fn get(&self, path: &str) -> Result<Value, Status> {
        let (target, options) = (self.target(path), GetOptions::default());
        match target.subresource.as_deref() {
            Some("scale") => self.registry.get_scale(&target, &options).await.map(|view| shown(&view)),
            _ => self.registry.get(&target, &options).await.map(|view| shown(&view)),
        }
    }

    async fn delete(&self, path: &str) -> Result<Value, Status> {
        self.registry
            .delete(WriteRequest {
                target: &self.target(path),
                options: &DeleteOptions::default(),
                ctx: &Context::default(),
            })
            .await
            .map(value)
    }

    async fn list(&self, path: &str, query: &str) -> Result<Value, Status> {
        let options = ListOptions::from_query(&Query::parse(query))?;
        let list = self.registry.list(&self.target(path), &options).await?;
        let segments = list.render(&Form::default(), machinery::Clock::system().now())?;
        Ok(json::from_slice(&segments.concat()).unwrap())
    }

    async fn watch(&self, path: &str, query: &str) -> WatchView {
        let options = ListOptions::from_query(&Query::parse(query)).unwrap();
        self.registry.watch(&self.target(path), &options).await.unwrap()
    }

    /// Creates a definition and waits until it is established.
    async fn define(&self, definition: Value) -> Value {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        self.create(CRDS, definition).await.unwrap();
        self.condition(&name, "Established", "True").await
    }

    async fn condition(&self, name: &str, kind: &str, status: &str) -> Value {
        let path = format!("{CRDS}/{name}");
        until(async || {
            let definition = self.get(&path).await.unwrap();
            let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|c| c["type"] == kind && c["status"] == status).then_some(definition)
        })
        .await
    }
}

/// Waits for a condition; the limit is only there so that a broken server ends the test.
async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it happens")
}

fn value(outcome: Outcome) -> Value {
    shown(&outcome.view)
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
    json::from_slice(&segments.concat()).unwrap()
}

fn version(name: &str, storage: bool, spec: Value) -> Value {
    let properties = json!({"spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}}}});
    json!({"name": name, "served": true, "storage": storage,
           "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
}

fn definition(versions: Vec<Value>) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
                 "versions": versions}})
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

fn simple() -> Value {
    definition(vec![version("v1", true, json!({"a": {"type": "string"}, "n": {"type": "integer", "default": 3}}))])
}

/// The next event of a watch, or none when it ended.
async fn event(watch: &mut WatchView) -> Option<Value> {
    let next = async {
        loop {
            let frames = watch.frames(1).await?;
            let text = frames.segments.concat();
            if !text.is_empty() {
                return Some(json::from_slice(&text).unwrap());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), next).await.expect("an event or the end")
}

#[tokio::test]
async fn verbs_14_21_a_definition_is_served_once_established() {
    let world = World::new().await;
    assert!(world.try_target(THINGS).is_none());
    let definition = world.define(simple()).await;
    assert_eq!(definition["status"]["acceptedNames"], definition["spec"]["names"]);
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let made = world.create(THINGS, thing("x", json!({"a": "1"}))).await.unwrap();
    assert_eq!((&made["spec"], &made["metadata"]["generation"]), (&json!({"a": "1", "n": 3}), &json!(1)));
    let list = world.list(THINGS, "").await.unwrap();
    assert_eq!((&list["kind"], &list["metadata"]["continue"]), (&json!("ThingList"), &json!("")));
    assert_eq!(list["items"][0]["kind"], "Thing");
    let kinds = world.registry.kinds();
    let resources = registry::discovery::resources(&kinds, "example.com", "v1").unwrap();
    assert_eq!(resources["resources"][0]["shortNames"], json!(["th"]));
    assert_eq!(resources["resources"][0]["verbs"][0], "delete");
}

#[tokio::test]
async fn verbs_14_22_defaults_come_and_unknown_fields_go() {
    let world = World::new().await;
    world.define(simple()).await;
    let ctx = Context::default();
    let object = thing("x", json!({"a": "1", "bogus": true, "n": null}));
    let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
    let made = world
        .registry
        .create(WriteRequest { target: &world.target(THINGS), options: &CreateOptions::default(), ctx: &ctx }, &body)
        .await
        .map(value)
        .unwrap();
    assert_eq!(made["spec"], json!({"a": "1", "n": 3}));
    assert_eq!(ctx.warnings.take(), [r#"unknown field "spec.bogus""#]);
    let refused = world.create(THINGS, thing("y", json!({"a": 5}))).await.unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(refused.message.contains(r#"spec.a: Invalid value: "integer": spec.a in body must be of type string"#));
}

#[tokio::test]
async fn defaults_that_come_later_are_shown_of_what_was_stored_before() {
    let world = World::new().await;
    world
        .define(definition(vec![version("v1", true, json!({"a": {"type": "string"}, "old": {"type": "string"}}))]))
        .await;
    world.create(THINGS, thing("x", json!({"a": "1", "old": "2"}))).await.unwrap();
    let later = version("v1", true, json!({"a": {"type": "string"}, "new": {"type": "string", "default": "d"}}));
    world.merge(&format!("{CRDS}/things.example.com"), json!({"spec": {"versions": [later]}})).await.unwrap();
    assert_eq!(world.get(&format!("{THINGS}/x")).await.unwrap()["spec"], json!({"a": "1", "new": "d"}));
    assert_eq!(world.list(THINGS, "").await.unwrap()["items"][0]["spec"], json!({"a": "1", "new": "d"}));
    let patched = world.merge(&format!("{THINGS}/x"), json!({"spec": {"a": "2"}})).await.unwrap();
    assert_eq!(patched["spec"], json!({"a": "2", "new": "d"}));
}

#[tokio::test]
async fn names_that_are_taken_are_not_accepted_until_they_are_free() {
    let world = World::new().await;
    world.define(simple()).await;
    let mut second = simple();
    second["metadata"]["name"] = json!("others.example.com");
    second["spec"]["names"] = json!({"plural": "others", "kind": "Thing", "listKind": "Others"});
    world.create(CRDS, second).await.unwrap();
    let refused = world.condition("others.example.com", "NamesAccepted", "False").await;
    assert_eq!(refused["status"]["conditions"][0]["reason"], "KindConflict");
    assert_eq!(refused["status"]["conditions"][0]["message"], r#""Thing" is already in use"#);
    assert!(world.try_target("example.com/v1/others/default").is_none());
    world.delete(&format!("{CRDS}/things.example.com")).await.unwrap();
    world.condition("others.example.com", "Established", "True").await;
    assert!(world.try_target("example.com/v1/others/default").is_some());
}

#[tokio::test]
async fn a_definition_is_removed_with_its_instances() {
    let world = World::new().await;
    world.define(simple()).await;
    let mut held = thing("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.create(THINGS, held).await.unwrap();
    world.create(THINGS, thing("free", json!({}))).await.unwrap();
    let marked = world.delete(&format!("{CRDS}/things.example.com")).await.unwrap();
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    until(async || (world.list(THINGS, "").await.unwrap()["items"].as_array()?.len() == 1).then_some(())).await;
    let refused = world.create(THINGS, thing("late", json!({}))).await.unwrap_err();
    assert_eq!(refused.code, 403);
    assert!(
        refused.message.ends_with("create not allowed while custom resource definition is terminating"),
        "{refused}"
    );
    let verbs = registry::discovery::resources(&world.registry.kinds(), "example.com", "v1").unwrap();
    assert_eq!(verbs["resources"][0]["verbs"], json!(["delete", "deletecollection", "get", "list", "watch"]));
    world.merge(&format!("{THINGS}/held"), json!({"metadata": {"finalizers": null}})).await.unwrap();
    until(async || world.get(&format!("{CRDS}/things.example.com")).await.err()).await;
    assert!(world.try_target(THINGS).is_none());
}

#[tokio::test]
async fn watches_end_when_the_spec_changes_or_the_definition_is_removed() {
    let world = World::new().await;
    world.define(simple()).await;
    let mut first = world.watch(THINGS, "watch=1").await;
    world.create(THINGS, thing("x", json!({}))).await.unwrap();
    assert_eq!(event(&mut first).await.unwrap()["type"], "ADDED");
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    world.merge(&format!("{CRDS}/things.example.com"), labelled).await.unwrap();
    world.merge(&format!("{THINGS}/x"), json!({"spec": {"a": "1"}})).await.unwrap();
    assert_eq!(event(&mut first).await.unwrap()["type"], "MODIFIED", "labels of the definition end nothing");
    let names = json!({"spec": {"names": {"shortNames": ["tg"]}}});
    world.merge(&format!("{CRDS}/things.example.com"), names).await.unwrap();
    assert!(event(&mut first).await.is_none());
    let mut second = world.watch(THINGS, "watch=1&resourceVersion=0").await;
    assert_eq!(event(&mut second).await.unwrap()["type"], "ADDED");
    world.delete(&format!("{CRDS}/things.example.com")).await.unwrap();
    assert_eq!(event(&mut second).await.unwrap()["type"], "DELETED");
    assert!(event(&mut second).await.is_none());
}

#[tokio::test]
async fn a_restart_brings_definitions_and_instances_back() {
    let world = World::new().await;
    world.define(simple()).await;
    world.create(THINGS, thing("x", json!({"a": "1"}))).await.unwrap();
    let again = World::on(Arc::clone(&world.store)).await;
    assert_eq!(again.get(&format!("{THINGS}/x")).await.unwrap()["spec"], json!({"a": "1", "n": 3}));
    again.create(THINGS, thing("y", json!({}))).await.unwrap();
    // Two servers on one store: each follows what the other does.
    until(async || world.get(&format!("{THINGS}/y")).await.ok()).await;
    let second = version("v2", false, json!({"a": {"type": "string"}}));
    let first = simple()["spec"]["versions"][0].clone();
    again.merge(&format!("{CRDS}/things.example.com"), json!({"spec": {"versions": [first, second]}})).await.unwrap();
    until(async || world.try_target("example.com/v2/things/default")).await;
}

#[tokio::test]
async fn versions_without_a_converter_differ_in_name_and_schema() {
    let world = World::new().await;
    let first = version("v1", true, json!({"a": {"type": "string"}, "b": {"type": "string", "default": "B"}}));
    let second = version("v2", false, json!({"a": {"type": "string"}, "c": {"type": "integer", "default": 3}}));
    world.define(definition(vec![first, second])).await;
    world.create(THINGS, thing("x", json!({"a": "1"}))).await.unwrap();
    let other = world.get("example.com/v2/things/default/x").await.unwrap();
    assert_eq!((&other["apiVersion"], &other["spec"]), (&json!("example.com/v2"), &json!({"a": "1"})));
    let mut body = thing("y", json!({"a": "2", "c": 4}));
    body["apiVersion"] = json!("example.com/v2");
    world.create("example.com/v2/things/default", body).await.unwrap();
    assert_eq!(world.get(&format!("{THINGS}/y")).await.unwrap()["spec"], json!({"a": "2", "b": "B"}));
    let refused = world.create("example.com/v2/things/default", thing("z", json!({}))).await.unwrap_err();
    assert_eq!(refused.code, 400);
    let removed = version("v2", true, json!({"a": {"type": "string"}}));
    let patch = json!({"spec": {"versions": [removed]}});
    let refused = world.merge(&format!("{CRDS}/things.example.com"), patch).await.unwrap_err();
    assert!(refused.message.contains("v1 was previously a storage version"), "{refused}");
}

#[tokio::test]
async fn owners_of_a_version_that_is_gone_stop_an_apply_and_are_forgotten_by_an_update() {
    let world = World::new().await;
    let spec = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let (old, kept) = (version("v1alpha1", false, spec.clone()), version("v1", true, spec));
    world.define(definition(vec![old, kept.clone()])).await;
    let mut first = thing("x", json!({"a": "1"}));
    first["apiVersion"] = json!("example.com/v1alpha1");
    world.apply("example.com/v1alpha1/things/default/x", "one", first).await.unwrap();
    let path = format!("{THINGS}/x");
    world.apply(&path, "two", thing("x", json!({"b": "2"}))).await.unwrap();
    world.merge(&format!("{CRDS}/things.example.com"), json!({"spec": {"versions": [kept]}})).await.unwrap();
    until(async || world.try_target("example.com/v1alpha1/things/default").is_none().then_some(())).await;
    for (manager, configuration) in [("two", json!({"b": "3"})), ("two", json!({"a": "conflict"})), ("one", json!({}))]
    {
        let refused = world.apply(&path, manager, thing("x", configuration)).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (500, "request to convert CR to an invalid group/version: example.com/v1alpha1")
        );
    }
    let refused = world.apply(&path, "two", json!({"apiVersion": "v1", "kind": "Thing"})).await.unwrap_err();
    assert_eq!(refused.code, 400, "a configuration of another kind is refused as such");
    let updated = world.merge(&path, json!({"spec": {"b": "4"}})).await.unwrap();
    assert_eq!(updated["metadata"].get("managedFields"), None, "{updated}");
    world.apply(&path, "two", thing("x", json!({"b": "4"}))).await.unwrap();
}

#[tokio::test]
async fn subresources_write_their_part_and_no_other() {
    let world = World::new().await;
    let mut only = version("v1", true, json!({"replicas": {"type": "integer"}, "a": {"type": "string"}}));
    only["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.phase"}});
    world.define(definition(vec![only])).await;
    let mut new = thing("x", json!({"replicas": 1}));
    new["status"] = json!({"phase": "ignored"});
    let made = world.create(THINGS, new).await.unwrap();
    assert!(made.get("status").is_none());
    let part = json!({"spec": {"a": "no"}, "status": {"replicas": 1, "phase": "a=b"}});
    let status = world.merge(&format!("{THINGS}/x/status"), part).await.unwrap();
    assert_eq!((&status["spec"], &status["metadata"]["generation"]), (&json!({"replicas": 1}), &json!(1)));
    let scale = world.get(&format!("{THINGS}/x/scale")).await.unwrap();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]), (&json!(1), &json!({"replicas": 1, "selector": "a=b"})));
    let scaled = world.merge(&format!("{THINGS}/x/scale"), json!({"spec": {"replicas": 5}})).await.unwrap();
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(5)));
    let after = world.get(&format!("{THINGS}/x")).await.unwrap();
    assert_eq!((&after["spec"]["replicas"], &after["metadata"]["generation"]), (&json!(5), &json!(2)));

    // The reference cannot convert the Scale that an apply creates, unless the number stays the same.
    let apply = async |replicas: i64| {
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x"},
            "spec": {"replicas": replicas}});
        let body = PatchBody { bytes: Bytes::from(scale.to_string()), kind: PatchType::Apply };
        let options = PatchOptions { field_manager: "one".to_owned(), force: true, ..PatchOptions::default() };
        let target = world.target(&format!("{THINGS}/x/scale"));
        let request = WriteRequest { target: &target, options: &options, ctx: &Context::default() };
        world.registry.patch_scale(request, &body).await.map(value)
    };
    let refused = apply(6).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            500,
            "failed to convert new object (/x; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to \
             an invalid group/version: autoscaling/v1"
        )
    );
    assert_eq!(apply(5).await.unwrap()["spec"]["replicas"], 5);
    assert_eq!(world.get(&format!("{THINGS}/x")).await.unwrap()["spec"]["replicas"], 5);
}

/// A rule that is added later does not apply to stored objects; other writes are warned about, through every subresource.
#[tokio::test]
async fn rules_that_do_not_hold_of_what_did_not_change_are_warnings() {
    let world = World::new().await;
    let mut only = version("v1", true, json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    only["subresources"] = json!({"status": {}});
    world.define(definition(vec![only.clone()])).await;
    world.create(THINGS, thing("x", json!({"a": "old"}))).await.unwrap();
    only["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["a"] =
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == 'new'", "message": "is old"}]});
    world.merge(&format!("{CRDS}/things.example.com"), json!({"spec": {"versions": [only]}})).await.unwrap();
    let write = async |subresource: &str, patch: Value| {
        let ctx = Context::default();
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let target = world.target(&format!("{THINGS}/x{subresource}"));
        let code = world
            .registry
            .patch(WriteRequest { target: &target, options: &PatchOptions::default(), ctx: &ctx }, &body)
            .await
            .map_err(|status| status.code);
        (code.err(), ctx.warnings.take())
    };
    let warned = vec![r#"spec.a: Invalid value: "old": is old"#.to_owned()];
    assert_eq!(write("", json!({"spec": {"b": "1"}})).await, (None, warned.clone()));
    assert_eq!(write("/status", json!({"status": {"phase": "p"}})).await, (None, warned.clone()));
    assert_eq!(write("", json!({"metadata": {"labels": {"a": "/"}}})).await, (Some(422), warned));
    // Rules are not evaluated for an object of the wrong type, so there is no warning.
    assert_eq!(write("", json!({"spec": {"b": 1}})).await, (Some(422), vec![]));
    assert_eq!(write("", json!({"spec": {"a": "other"}})).await, (Some(422), vec![]));
}

#[tokio::test]
async fn selectable_fields_select_in_lists_and_watches() {
    let world = World::new().await;
    let mut only = version("v1", true, json!({"color": {"type": "string"}, "n": {"type": "integer"}}));
    only["selectableFields"] = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.n"}]);
    world.define(definition(vec![only])).await;
    let mut watch = world.watch(THINGS, "watch=1&fieldSelector=spec.color%3Dred").await;
    world.create(THINGS, thing("x", json!({"color": "blue", "n": 5}))).await.unwrap();
    world.create(THINGS, thing("y", json!({"color": "red"}))).await.unwrap();
    let red = world.list(THINGS, "fieldSelector=spec.color%3Dred").await.unwrap();
    assert_eq!(red["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.list(THINGS, "fieldSelector=spec.n%3D5").await.unwrap()["items"][0]["metadata"]["name"], "x");
    assert_eq!(event(&mut watch).await.unwrap()["object"]["metadata"]["name"], "y");
    world.merge(&format!("{THINGS}/x"), json!({"spec": {"color": "red"}})).await.unwrap();
    assert_eq!(event(&mut watch).await.unwrap()["type"], "ADDED");
    let refused = world.list(THINGS, "fieldSelector=spec.other%3D1").await.unwrap_err();
    assert_eq!(refused.message, "field label not supported: spec.other");
}

#[tokio::test]
async fn apply_uses_the_schema_of_the_definition() {
    let world = World::new().await;
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}});
    world.define(definition(vec![version("v1", true, json!({"l": list}))])).await;
    let path = format!("{THINGS}/x");
    world.apply(&path, "one", thing("x", json!({"l": [{"k": "a", "v": "1"}]}))).await.unwrap();
    let both = world.apply(&path, "two", thing("x", json!({"l": [{"k": "b", "v": "2"}]}))).await.unwrap();
    assert_eq!(both["spec"]["l"], json!([{"k": "a", "v": "1"}, {"k": "b", "v": "2"}]));
    let conflict = world.apply(&path, "two", thing("x", json!({"l": [{"k": "a", "v": "9"}]}))).await.unwrap_err();
    assert_eq!(conflict.code, 409);
}

/// Converts `spec.host` and `spec.port` of v1 to `spec.address` of v2, and back.
#[derive(Debug, Default)]
struct Converter {
    asked: AtomicUsize,
    failing: Mutex<Option<String>>,
    /// It does not answer.
    stuck: AtomicBool,
}

impl Webhooks for Converter {
    fn post(&self, client: &Value, review: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, CallFailure>> + Send>> {
        assert_eq!(client["url"], "https://converter.example.com/");
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(why) = self.failing.lock().clone() {
            return Box::pin(async move { Err(CallFailure::new(why)) });
        }
        if self.stuck.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        let review = json::from_slice(&review).unwrap();
        let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap();
        let objects = review["request"]["objects"].as_array().unwrap().iter().map(|object| convert(object, wanted));
        let objects: Value = objects.collect();
        let answer = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
            "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}});
        Box::pin(async move { Ok(Bytes::from(json::to_string(&answer))) })
    }
}

fn convert(object: &Value, wanted: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = json!(wanted);
    let spec = &object["spec"];
    object["spec"] = if wanted.ends_with("v2") {
        json!({"address": format!("{}:{}", spec["host"].as_str().unwrap(), spec["port"])})
    } else {
        let address = spec["address"].as_str().unwrap().to_owned();
        let (host, port) = address.split_once(':').unwrap();
        json!({"host": host, "port": port.parse::<i64>().unwrap()})
    };
    object
}

/// v1 is stored, v2 is what a webhook makes of it.
fn converted_by_webhook() -> Value {
    let first = version("v1", true, json!({"host": {"type": "string"}, "port": {"type": "integer"}}));
    let second = version("v2", false, json!({"address": {"type": "string"}}));
    let mut both = definition(vec![first, second]);
    both["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": "https://converter.example.com/"}, "conversionReviewVersions": ["v1"]}});
    both
}

#[tokio::test]
async fn a_webhook_converts_what_is_read_written_and_watched() {
    let converter = Arc::new(Converter::default());
    let world = World::with_webhooks(converter.clone()).await;
    world.define(converted_by_webhook()).await;
    let second = "example.com/v2/things/default";
    world.create(THINGS, thing("x", json!({"host": "a", "port": 1}))).await.unwrap();
    assert_eq!(converter.asked.load(Ordering::Relaxed), 0, "what is stored as it came needs no converter");
    let mut watch = world.watch(second, "watch=1&resourceVersion=0").await;
    assert_eq!(event(&mut watch).await.unwrap()["object"]["spec"], json!({"address": "a:1"}));
    let x = world.get(&format!("{second}/x")).await.unwrap();
    assert_eq!((&x["apiVersion"], &x["spec"]), (&json!("example.com/v2"), &json!({"address": "a:1"})));
    assert_eq!(converter.asked.load(Ordering::Relaxed), 1, "a converted object is kept");

    let mut body = thing("y", json!({"address": "b:2"}));
    body["apiVersion"] = json!("example.com/v2");
    let made = world.create(second, body).await.unwrap();
    assert_eq!(made["spec"], json!({"address": "b:2"}));
    assert_eq!(world.get(&format!("{THINGS}/y")).await.unwrap()["spec"], json!({"host": "b", "port": 2}));
    assert_eq!(event(&mut watch).await.unwrap()["object"]["spec"], json!({"address": "b:2"}));
    let patched = world.merge(&format!("{second}/y"), json!({"spec": {"address": "c:3"}})).await.unwrap();
    assert_eq!((&patched["spec"], &patched["metadata"]["generation"]), (&json!({"address": "c:3"}), &json!(2)));
    let mut put = patched.clone();
    put["spec"]["address"] = json!("d:4");
    assert_eq!(world.update(&format!("{second}/y"), put).await.unwrap()["spec"], json!({"address": "d:4"}));
    let list = world.list(second, "").await.unwrap();
    let addresses: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|item| &item["spec"]["address"]).collect();
    assert_eq!(addresses, [&json!("a:1"), &json!("d:4")]);

    *converter.failing.lock() = Some("it is ill".to_owned());
    world.create(THINGS, thing("z", json!({"host": "z", "port": 9}))).await.unwrap();
    let refused = world.list(second, "").await.unwrap_err();
    assert_eq!(refused.code, 500);
    assert_eq!(refused.message, "conversion webhook for example.com/v1, Kind=Thing failed: it is ill");
    while let Some(last) = event(&mut watch).await {
        if last["type"] == "ERROR" {
            assert!(last["object"]["message"].as_str().unwrap().ends_with("it is ill"));
            assert!(event(&mut watch).await.is_none(), "a watch that cannot be converted ends");
            return;
        }
    }
    panic!("the watch ended without an error event");
}

#[tokio::test]
async fn no_bookmark_passes_an_object_that_is_being_converted() {
    let converter = Arc::new(Converter::default());
    let world = World::with_webhooks(converter.clone()).await;
    world.define(converted_by_webhook()).await;
    // Its bookmark is due two seconds before its end.
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=4";
    let mut watch = world.watch("example.com/v2/things/default", query).await;
    converter.stuck.store(true, Ordering::Relaxed);
    let made = world.create(THINGS, thing("x", json!({"host": "a", "port": 1}))).await.unwrap();
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    while let Some(event) = event(&mut watch).await {
        assert_eq!(event["type"], "BOOKMARK");
        assert!(revision(&event["object"]) < revision(&made), "{event} promises that {made} was sent");
    }
}

#[tokio::test]
async fn hostile_schemas_are_refused_quickly() {
    let world = World::new().await;
    let begin = std::time::Instant::now();
    let refused = async |spec: Value| {
        let refused = world.create(CRDS, definition(vec![version("v1", true, spec)])).await.unwrap_err();
        assert_eq!(refused.code, 422, "{refused}");
        refused.message
    };
    assert!(refused(json!({"a": {"$ref": "#/definitions/a"}})).await.contains("$ref is not supported"));
    assert!(refused(json!({"a": {}})).await.contains("must not be empty for specified object fields"));
    let hostile = "(((a{1,1000}){1,1000}){1,1000})";
    let message = refused(json!({"a": {"type": "string", "pattern": hostile}})).await;
    assert!(message.contains("must be a valid regular expression"), "{message}");
    let mut wide = machinery::json::Map::default();
    for i in 0..20_000 {
        wide.insert(format!("f{i}"), json!({"type": "string", "default": 5}));
    }
    let message = refused(Value::Object(wide)).await;
    assert!(message.len() > 1000);
    let mut deep = json!({"type": "string"});
    for _ in 0..50 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    let mut fine = definition(vec![version("v1", true, json!({"a": deep}))]);
    fine["metadata"]["name"] = json!("things.example.com");
    world.create(CRDS, fine).await.unwrap();
    // Generous: a debug build on a busy machine takes about a second.
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}
