//! A server that is killed between any two of its writes: the next server on the same store finishes what was begun.
//!
//! Each scenario is run once to count its writes, and then once for each number of writes after which the server dies.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, PatchOptions};
use registry::{Body, Context, Form, PatchBody, Registry, Settings, Target, View, WriteRequest};
use store::memory::MemoryStore;
use store::{ListQuery, Prefix, Retention, Store};
use testkit::killable_store::KillableStore;

const NAMESPACE: &str = "default";
const DEFINITION: &str = "things.example.com";

/// Long enough for the slowest machine; nothing waits for it in a run that passes.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Server {
    registry: Arc<Registry>,
}

impl Server {
    async fn start(store: Arc<dyn Store>) -> Self {
        Server { registry: Registry::start(store, Settings::default()).await.expect("the registry starts") }
    }

    fn target(&self, group: &str, plural: &str, name: Option<&str>, subresource: Option<&str>) -> Target {
        let kinds = self.registry.kinds();
        let kind = Arc::clone(kinds.get(group, "v1", plural).expect("a served kind"));
        let namespace = kind.namespaced.then(|| NAMESPACE.to_owned());
        Target { kind, namespace, name: name.map(str::to_owned), subresource: subresource.map(str::to_owned) }
    }

    async fn create(&self, group: &str, plural: &str, mut object: Value) -> Result<Value, Status> {
        let target = self.target(group, plural, None, None);
        object["kind"] = json!(target.kind.gvk.kind);
        object["apiVersion"] = json!(target.kind.group_version().to_string());
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let (options, ctx) = (CreateOptions::default(), Context::default());
        let created = self.registry.create(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body);
        created.await.map(|outcome| shown(&outcome.view))
    }

    async fn patch(&self, plural: &str, name: &str, subresource: Option<&str>, patch: Value) -> Result<Value, Status> {
        let target = self.target("", plural, Some(name), subresource);
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let (options, ctx) = (PatchOptions::default(), Context::default());
        let patched = self.registry.patch(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body);
        patched.await.map(|outcome| shown(&outcome.view))
    }

    async fn delete(&self, group: &str, plural: &str, name: &str, grace: Option<i64>) -> Result<(), Status> {
        let target = self.target(group, plural, Some(name), None);
        let options = DeleteOptions { grace_period_seconds: grace, ..DeleteOptions::default() };
        let ctx = Context::default();
        self.registry.delete(WriteRequest { target: &target, options: &options, ctx: &ctx }).await.map(|_| ())
    }

    /// Creates a quota and waits until it counts.
    async fn create_quota(&self) -> Result<(), Status> {
        self.create("", "resourcequotas", quota()).await?;
        let target = self.target("", "resourcequotas", Some("q"), None);
        while shown(&self.registry.get(&target, &GetOptions::default()).await?)["status"]["used"]["pods"].is_null() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Starts the task that corrects quotas, as a server does.
    fn keep_counts(&self) -> tokio::task::JoinHandle<()> {
        tokio::spawn(registry::reserve::quota::recount::keep_counts(Arc::clone(&self.registry)))
    }
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), jiff::Timestamp::UNIX_EPOCH).expect("it can be shown");
    serde_json::from_slice(&segments.concat()).expect("JSON")
}

/// Every stored object by key, but for roles and bindings: every cluster has more than a hundred, and no step writes one.
async fn stored(store: &dyn Store, prefix: &str) -> Vec<(String, Value)> {
    let listed = store.list(ListQuery::prefix(Prefix::new(prefix))).await.expect("a memory store can be read");
    let parse = |bytes: &[u8]| serde_json::from_slice(bytes).expect("JSON");
    let entries =
        listed.entries.iter().filter(|entry| !entry.key.collection().starts_with("rbac.authorization.k8s.io/"));
    entries.map(|entry| (entry.key.to_string(), parse(&entry.value))).collect()
}

async fn wait_until<F: Future<Output = Vec<String>>>(what: &str, problems: impl Fn() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // Longer each time: with a paused clock a pause costs nothing, but each look reads the whole store.
    let mut pause = Duration::from_millis(5);
    loop {
        let found = problems().await;
        if found.is_empty() {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: {found:?}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// What a killed server left that no one would have looked at again.
async fn unfinished(store: &dyn Store) -> Vec<String> {
    let mut problems = Vec::new();
    let mut counts = std::collections::HashMap::<&str, usize>::new();
    let all = stored(store, "").await;
    for (key, object) in &all {
        let (metadata, finalizers) = (&object["metadata"], &object["metadata"]["finalizers"]);
        let held = finalizers.as_array().is_some_and(|finalizers| !finalizers.is_empty())
            || object["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        let waits = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() > 0;
        if metadata["deletionTimestamp"].is_string() && !held && !waits {
            problems.push(format!("{key} is marked and not removed"));
        }
        if key.starts_with("apiextensions.k8s.io/") && metadata["deletionTimestamp"].is_string() {
            problems.push(format!("{key} is still being deleted"));
        }
        for plural in ["pods", "services"] {
            *counts.entry(plural).or_default() += usize::from(key.starts_with(&format!("core/{plural}/{NAMESPACE}/")));
        }
    }
    for (key, quota) in all.iter().filter(|(key, _)| key.starts_with("core/resourcequotas/")) {
        for (name, count) in &counts {
            let used = quota["status"]["used"][*name].as_str().unwrap_or_default();
            if used != count.to_string() {
                problems.push(format!("{key} counts {used} {name}, there are {count}"));
            }
        }
    }
    let is_defined = all.iter().any(|(key, _)| key.starts_with("apiextensions.k8s.io/"));
    let instances = all.iter().filter(|(key, _)| key.starts_with("example.com/things/"));
    problems.extend(instances.filter(|_| !is_defined).map(|(key, _)| format!("{key} has no definition")));
    problems
}

type Steps = fn(Server) -> Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Runs the steps with a server that dies after each number of writes; then a new server must finish what was begun, and the
/// steps can be taken by it.
async fn kill_everywhere(prepare: Steps, steps: Steps) -> usize {
    let mut kills = 0;
    for writes in 0.. {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
        let killable = KillableStore::new(Arc::clone(&store), usize::MAX);
        let server = Server::start(Arc::clone(&killable) as _).await;
        let counting = server.keep_counts();
        prepare(server.clone()).await.expect("the server lives");
        wait_until("before the kill", || unfinished(&*store)).await;
        killable.die_after(writes);
        let outcome = steps(server.clone()).await;
        let survived = outcome.is_ok() && !killable.is_dead();
        counting.abort();
        drop(server);
        let next = Server::start(Arc::clone(&store)).await;
        let counting = next.keep_counts();
        wait_until(&format!("after {writes} writes"), || unfinished(&*store)).await;
        // What is not there is created, and what is there is deleted, as if nothing had happened.
        if let Err(status) = steps(next.clone()).await {
            assert!(status.is_already_exists() || status.is_not_found(), "after {writes} writes: {status}");
        }
        wait_until(&format!("after {writes} writes and another run"), || unfinished(&*store)).await;
        counting.abort();
        if survived {
            return kills;
        }
        kills += 1;
    }
    kills
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn quota() -> Value {
    json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10", "services": "10"}}})
}

#[tokio::test]
async fn a_killed_deletion_of_pods_is_finished() {
    let prepare: Steps = |server| {
        Box::pin(async move {
            server.create_quota().await?;
            for name in ["unscheduled", "forced", "shortened", "held"] {
                let mut pod = pod(name);
                if name != "unscheduled" {
                    pod["spec"]["nodeName"] = json!("n");
                }
                if name == "held" {
                    pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
                }
                server.create("", "pods", pod).await?;
            }
            Ok(())
        })
    };
    let steps: Steps = |server| {
        Box::pin(async move {
            let missing = |deleted: Result<(), Status>| match deleted {
                Err(status) if status.is_not_found() => Ok(()),
                other => other,
            };
            missing(server.delete("", "pods", "unscheduled", None).await)?;
            missing(server.delete("", "pods", "forced", Some(0)).await)?;
            missing(server.delete("", "pods", "shortened", Some(30)).await)?;
            missing(server.delete("", "pods", "shortened", Some(0)).await)?;
            missing(server.delete("", "pods", "held", Some(0)).await)?;
            let released = json!({"metadata": {"finalizers": null}});
            missing(server.patch("pods", "held", None, released).await.map(|_| ()))
        })
    };
    let kills = kill_everywhere(prepare, steps).await;
    // Each pod is marked, removed and released from the quota.
    assert!(kills >= 12, "{kills}");
}

#[tokio::test]
async fn a_killed_create_leaves_no_share_and_no_address() {
    let prepare: Steps = |server| {
        Box::pin(async move {
            server.create_quota().await?;
            Ok(())
        })
    };
    let steps: Steps = |server| {
        Box::pin(async move {
            let there = |created: Result<Value, Status>| match created {
                Err(status) if !status.is_already_exists() => Err(status),
                _ => Ok(()),
            };
            there(server.create("", "pods", pod("a")).await)?;
            let spec =
                json!({"type": "NodePort", "clusterIP": "10.96.7.7", "ports": [{"port": 80, "nodePort": 30_777}]});
            let service = json!({"metadata": {"name": "s"}, "spec": spec});
            let target = server.target("", "services", Some("s"), None);
            if server.registry.get(&target, &GetOptions::default()).await.is_err() {
                server.create("", "services", service).await?;
            }
            server.delete("", "services", "s", None).await?;
            server.delete("", "pods", "a", None).await
        })
    };
    let kills = kill_everywhere(prepare, steps).await;
    assert!(kills >= 8, "{kills}");
}

#[tokio::test]
async fn a_killed_removal_of_a_definition_is_finished() {
    let prepare: Steps = |server| {
        Box::pin(async move {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
            let definition = json!({
                "metadata": {"name": DEFINITION},
                "spec": {
                    "group": "example.com", "scope": "Namespaced", "versions": [version],
                    "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                },
            });
            server.create("apiextensions.k8s.io", "customresourcedefinitions", definition).await?;
            while server.registry.kinds().get("example.com", "v1", "things").is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for name in ["a", "b", "c"] {
                server.create("example.com", "things", json!({"metadata": {"name": name}})).await?;
            }
            Ok(())
        })
    };
    let steps: Steps = |server| {
        Box::pin(async move {
            server.delete("apiextensions.k8s.io", "customresourcedefinitions", DEFINITION, None).await?;
            // The removal is a task of the server: it ends with the definition, or with the server.
            let target = server.target("apiextensions.k8s.io", "customresourcedefinitions", Some(DEFINITION), None);
            for _ in 0..100 {
                if server.registry.get(&target, &GetOptions::default()).await.is_err() {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(Status::internal("the definition is still there"))
        })
    };
    let kills = kill_everywhere(prepare, steps).await;
    // The mark, three instances, and the removal.
    assert!(kills >= 5, "{kills}");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_another_server_left_is_finished_by_a_server_that_runs() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
    let lasting = Server::start(Arc::clone(&store)).await;
    let killable = KillableStore::new(Arc::clone(&store), usize::MAX);
    let killed = Server::start(Arc::clone(&killable) as _).await;
    killed.create("", "pods", pod("a")).await.expect("it is created");
    killable.die_after(1);
    assert!(killed.delete("", "pods", "a", Some(0)).await.is_err());
    drop(killed);
    assert_eq!(unfinished(&*store).await.len(), 1);
    wait_until("another server runs", || unfinished(&*store)).await;
    drop(lasting);
}
