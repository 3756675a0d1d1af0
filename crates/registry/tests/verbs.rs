//! The verbs over a memory store: writes, and what readers see of them.

use std::sync::Arc;

use bytes::Bytes;
use machinery::continue_token::ContinueToken;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, ListOptions, PatchOptions, UpdateOptions};
use machinery::query::Query;
use machinery::{Revision, Status};
use registry::{Body, Context, Form, Outcome, PatchBody, Registry, Settings, Target, View, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

struct World {
    registry: Arc<Registry>,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        World { registry: Registry::start(store, Settings::default()).await.unwrap() }
    }

    fn target(&self, path: &str) -> Target {
        let parts: Vec<&str> = path.split('/').collect();
        let kinds = self.registry.kinds();
        let (group, plural) = parts[0].split_once(':').unwrap_or(("", parts[0]));
        let kind = Arc::clone(kinds.get(group, "v1", plural).expect("a served kind"));
        let at = |i: usize| parts.get(i).filter(|part| !part.is_empty()).map(|part| (*part).to_owned());
        let (namespace, name, subresource) = if kind.namespaced { (at(1), at(2), at(3)) } else { (None, at(1), at(2)) };
        Target { kind, namespace, name, subresource }
    }

    async fn create(&self, path: &str, object: Value) -> Result<Value, Status> {
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let ctx = Context { user_agent: "test/1".into(), ..Context::default() };
        let (target, options) = (self.target(path), CreateOptions::default());
        let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
        match target.subresource.as_deref() {
            Some("binding") => self.registry.bind(request, &body).await.map(value),
            Some("eviction") => self.registry.evict(request, &body).await.map(value),
            _ => self.registry.create(request, &body).await.map(value),
        }
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

    async fn get(&self, path: &str) -> Result<Value, Status> {
        let view = self.registry.get(&self.target(path), &GetOptions::default()).await?;
        Ok(shown(&view))
    }

    async fn delete(&self, path: &str) -> Result<Value, Status> {
        self.delete_with(path, DeleteOptions::default()).await
    }

    async fn delete_with(&self, path: &str, options: DeleteOptions) -> Result<Value, Status> {
        self.registry
            .delete(WriteRequest { target: &self.target(path), options: &options, ctx: &Context::default() })
            .await
            .map(value)
    }

    async fn list(&self, path: &str, query: &str) -> Result<Value, Status> {
        let options = ListOptions::from_query(&Query::parse(query))?;
        let list = self.registry.list(&self.target(path), &options).await?;
        let segments = list.render(&Form::default(), machinery::Clock::system().now())?;
        Ok(serde_json::from_slice(&segments.concat()).unwrap())
    }
}

fn value(outcome: Outcome) -> Value {
    shown(&outcome.view)
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "img"}]});
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn an_object_is_created_read_listed_and_deleted() {
    let world = World::new().await;
    let created = world.create("configmaps/default", config_map("a")).await.unwrap();
    assert!(created["metadata"]["uid"].is_string() && created["metadata"]["resourceVersion"].is_string());
    assert_eq!(world.get("configmaps/default/a").await.unwrap(), created);
    let list = world.list("configmaps/default", "").await.unwrap();
    assert_eq!(list["items"][0]["data"], json!({"k": "v"}));
    assert!(list["items"][0].get("kind").is_none(), "items of a built-in kind carry no kind");
    let gone = world.delete("configmaps/default/a").await.unwrap();
    assert_eq!((gone["status"].as_str(), &gone["details"]["uid"]), (Some("Success"), &created["metadata"]["uid"]));
    assert_eq!(world.get("configmaps/default/a").await.unwrap_err().code, 404);
}

#[tokio::test]
async fn an_acknowledged_write_is_in_every_later_read_also_in_those_that_take_what_is_there() {
    let world = World::new().await;
    for n in 0..200 {
        let made = world.create("configmaps/default", config_map(&format!("m{n}"))).await.unwrap();
        let list = world.list("configmaps/default", "resourceVersion=0").await.unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "m{n}");
        assert_eq!(list["items"][0]["metadata"], made["metadata"]);
        world.delete(&format!("configmaps/default/m{n}")).await.unwrap();
        let list = world.list("configmaps/default", "resourceVersion=0").await.unwrap();
        assert_eq!(list["items"], json!([]));
    }
}

#[tokio::test]
async fn default_namespaces_are_there_and_others_must_be() {
    let world = World::new().await;
    let names = world.list("namespaces", "").await.unwrap();
    let names: Vec<_> = names["items"].as_array().unwrap().iter().map(|n| n["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let refused = world.create("configmaps/nowhere", config_map("a")).await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (404, "namespaces \"nowhere\" not found"));
    assert_eq!(world.delete("namespaces/default").await.unwrap_err().code, 403);
}

#[tokio::test]
async fn a_stale_revision_conflicts_and_a_write_that_changes_nothing_is_none() {
    let world = World::new().await;
    let first = world.create("configmaps/default", config_map("a")).await.unwrap();
    let second = world.merge("configmaps/default/a", json!({"data": {"x": "y"}})).await.unwrap();
    assert_ne!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    assert_eq!(world.update("configmaps/default/a", first).await.unwrap_err().code, 409);
    let same = world.update("configmaps/default/a", second.clone()).await.unwrap();
    assert_eq!(same, second);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let world = World::new().await;
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    world.create("configmaps/default", object).await.unwrap();
    let marked = world.delete("configmaps/default/a").await.unwrap();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(world.get("configmaps/default/a").await.unwrap(), marked);
    world.merge("configmaps/default/a", json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert_eq!(world.get("configmaps/default/a").await.unwrap_err().code, 404);
}

#[tokio::test]
async fn an_update_cannot_change_when_an_object_was_deleted() {
    let world = World::new().await;
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    world.create("configmaps/default", object.clone()).await.unwrap();
    let marked = world.delete("configmaps/default/a").await.unwrap();
    let mut sent = marked.clone();
    sent["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    sent["data"] = json!({"k": "v"});
    let updated = world.update("configmaps/default/a", sent).await.unwrap();
    assert_eq!(updated["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    assert_eq!(updated["data"], json!({"k": "v"}));
    let patch = json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}});
    assert_eq!(world.merge("configmaps/default/a", patch.clone()).await.unwrap(), updated, "a patch changes nothing");
    // An update cannot mark an object as deleted.
    world.create("configmaps/default", config_map("b")).await.unwrap();
    let refused = world.merge("configmaps/default/b", patch).await.unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(refused.message.contains("metadata.deletionTimestamp"), "{refused}");
}

#[tokio::test]
async fn a_pod_on_a_node_is_deleted_gracefully_and_one_without_at_once() {
    let world = World::new().await;
    world.create("pods/default", pod("placed", Some("n1"))).await.unwrap();
    world.create("pods/default", pod("free", None)).await.unwrap();
    let leaving = world.delete("pods/default/placed").await.unwrap();
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(world.get("pods/default/placed").await.is_ok());
    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    world.delete_with("pods/default/placed", now).await.unwrap();
    assert_eq!(world.get("pods/default/placed").await.unwrap_err().code, 404);
    let gone = world.delete("pods/default/free").await.unwrap();
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(world.get("pods/default/free").await.unwrap_err().code, 404);
}

#[tokio::test]
async fn pages_show_the_moment_of_the_first_one() {
    let world = World::new().await;
    for n in 0..5 {
        world.create("configmaps/default", config_map(&format!("m{n}"))).await.unwrap();
    }
    let first = world.list("configmaps/default", "limit=2").await.unwrap();
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    world.delete("configmaps/default/m3").await.unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = world.list("configmaps/default", &format!("limit=2&continue={token}")).await.unwrap();
    let names: Vec<_> = second["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["m2", "m3"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn every_page_says_how_many_follow() {
    let world = World::new().await;
    for namespace in ["default", "kube-system"] {
        for n in 0..7 {
            let mut object = config_map(&format!("m{n}"));
            object["metadata"]["namespace"] = json!(namespace);
            world.create(&format!("configmaps/{namespace}"), object).await.unwrap();
        }
    }
    world.delete("configmaps/default/m6").await.unwrap();
    for path in ["configmaps/default", "configmaps"] {
        let all = world.list(path, "").await.unwrap();
        let revision = all["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let total = all["items"].as_array().unwrap().len();
        let (mut query, mut seen) = ("limit=2".to_owned(), 0);
        loop {
            let page = world.list(path, &query).await.unwrap();
            seen += page["items"].as_array().unwrap().len();
            let Some(token) = page["metadata"]["continue"].as_str() else { break };
            assert_eq!(page["metadata"]["remainingItemCount"], total - seen, "{path} after {seen}");
            query = format!("limit=2&continue={token}");
            // Later pages show the moment of the first one.
            let later = config_map(&format!("later-{total}-{seen}"));
            world.create("configmaps/default", later).await.unwrap();
        }
        assert_eq!(seen, total, "{path}");
        // A token of another server does not have the number of objects left.
        let name = if path.contains('/') { "m1" } else { "default/m1" };
        let token = ContinueToken::after(name, Revision(revision)).encode();
        let page = world.list(path, &format!("limit=2&continue={token}")).await.unwrap();
        let before = all["items"].as_array().unwrap().iter().position(|item| item["metadata"]["name"] == "m1").unwrap();
        assert_eq!(page["metadata"]["remainingItemCount"], total - before - 3, "{path}");
    }
}

#[tokio::test]
async fn generated_names_have_their_prefix() {
    let world = World::new().await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g".repeat(70)}});
    let made = world.create("configmaps/default", object).await.unwrap();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.len() == 63 && name.starts_with(&"g".repeat(58)), "{name}");
}

#[tokio::test]
async fn a_namespace_with_a_generated_name_has_it_as_a_label() {
    let world = World::new().await;
    for labels in [json!(null), json!({"own": "x"}), json!({"kubernetes.io/metadata.name": "wrong"})] {
        let metadata = json!({"generateName": "gen-", "labels": labels});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        let made = world.create("namespaces", object).await.unwrap();
        let name = &made["metadata"]["name"];
        assert_eq!(&made["metadata"]["labels"]["kubernetes.io/metadata.name"], name, "{made}");
        let stored = world.get(&format!("namespaces/{}", name.as_str().unwrap())).await.unwrap();
        assert_eq!(stored["metadata"]["labels"], made["metadata"]["labels"]);
    }
}

#[tokio::test]
async fn a_binding_gives_a_pod_its_node_once() {
    let world = World::new().await;
    world.create("pods/default", pod("p", None)).await.unwrap();
    let binding = |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    world.create("pods/default/p/binding", binding("n1")).await.unwrap();
    let bound = world.get("pods/default/p").await.unwrap();
    assert_eq!(
        (&bound["spec"]["nodeName"], &bound["status"]["conditions"][0]["type"]),
        (&json!("n1"), &json!("PodScheduled"))
    );
    let again = world.create("pods/default/p/binding", binding("n2")).await.unwrap_err();
    assert_eq!(
        again.message,
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
    );
}

#[tokio::test]
async fn a_bound_pod_is_where_its_node_is() {
    let world = World::new().await;
    let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}});
    world.create("nodes", node).await.unwrap();
    world.create("pods/default", pod("p", None)).await.unwrap();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"}});
    world.create("pods/default/p/binding", binding).await.unwrap();
    let bound = world.get("pods/default/p").await.unwrap();
    let expected = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
    assert_eq!(bound["metadata"]["labels"], expected);
}

#[tokio::test]
async fn services_get_addresses_of_their_own() {
    let world = World::new().await;
    let service = |name: &str, ip: Option<&str>| {
        let mut spec = json!({"ports": [{"port": 80}]});
        if let Some(ip) = ip {
            spec["clusterIP"] = json!(ip);
        }
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    };
    let first = world.create("services/default", service("a", None)).await.unwrap();
    let ip = first["spec"]["clusterIP"].as_str().unwrap();
    assert!(ip.starts_with("10.96."), "{ip}");
    assert_eq!(world.create("services/default", service("b", Some(ip))).await.unwrap_err().code, 422);
    world.delete("services/default/a").await.unwrap();
    world.create("services/default", service("b", Some(ip))).await.unwrap();
}

#[tokio::test]
async fn a_scaler_owns_replicas_that_had_an_owner() {
    let world = World::new().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}, "spec": spec});
    world.create("apps:replicasets/default", set).await.unwrap();
    let scale = world.merge("apps:replicasets/default/r/scale", json!({"spec": {"replicas": 3}})).await.unwrap();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    assert!(scale["metadata"].get("managedFields").is_none());
    let after = world.get("apps:replicasets/default/r").await.unwrap();
    let managers = after["metadata"]["managedFields"].as_array().unwrap();
    let scaler = managers.iter().find(|manager| manager["subresource"] == "scale").unwrap();
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    let maker = managers.iter().find(|manager| manager.get("subresource").is_none()).unwrap();
    assert!(maker["fieldsV1"]["f:spec"].get("f:replicas").is_none(), "it was taken over");
    assert_eq!(after["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_scale_of_a_workload_is_an_object_with_metadata() {
    let world = World::new().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}, "spec": spec});
    world.create("apps:replicasets/default", set).await.unwrap();
    let scale = async |change: Value| world.merge("apps:replicasets/default/r/scale", change).await;
    let refused = scale(json!({"spec": {"replicas": -1}})).await.unwrap_err();
    assert_eq!(
        refused.message,
        r#"Scale.autoscaling "r" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"#
    );
    let refused = scale(json!({"metadata": {"labels": {"a b": "c"}}})).await.unwrap_err();
    assert!(refused.message.starts_with(r#"Scale.autoscaling "r" is invalid: metadata.labels: "#), "{refused}");
    assert_eq!(scale(json!({"spec": {"replicas": 2}})).await.unwrap()["spec"]["replicas"], 2);
}
