//! A registry over a store with damaged values: everything else is served, and nothing is left out in silence.

mod rules;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use machinery::Status;
use machinery::json::json;
use machinery::media::MediaType;
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, ListOptions};
use machinery::query::Query;
use registry::{Body, Context, Registry, Settings, Target, WriteRequest};
use store::Store;
use store::embedded::{EmbeddedOptions, EmbeddedStore};

struct World {
    registry: Arc<Registry>,
    store: Arc<EmbeddedStore>,
}

impl World {
    async fn open(dir: &Path) -> Self {
        let store = Arc::new(EmbeddedStore::open(EmbeddedOptions::new(dir)).expect("the store opens"));
        let registry = Registry::start(Arc::clone(&store) as Arc<dyn Store>, Settings::default()).await;
        World { registry: registry.expect("the registry starts"), store }
    }

    async fn close(self) {
        self.store.close().await;
    }

    fn target(&self, plural: &str, namespace: Option<&str>, name: Option<&str>) -> Target {
        let kind = Arc::clone(self.registry.kinds().get("", "v1", plural).expect("a served kind"));
        Target { kind, namespace: namespace.map(str::to_owned), name: name.map(str::to_owned), subresource: None }
    }

    async fn create(&self, namespace: &str, name: &str, text: &str) -> Result<(), Status> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": text}});
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let (target, ctx) = (self.target("configmaps", Some(namespace), None), Context::default());
        let request = WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &ctx };
        self.registry.create(request, &body).await.map(drop)
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<(), Status> {
        let target = self.target("configmaps", Some(namespace), Some(name));
        self.registry.get(&target, &GetOptions::default()).await.map(drop)
    }

    async fn delete(&self, namespace: &str, name: &str) -> Result<(), Status> {
        let (target, ctx) = (self.target("configmaps", Some(namespace), Some(name)), Context::default());
        let request = WriteRequest { target: &target, options: &DeleteOptions::default(), ctx: &ctx };
        self.registry.delete(request).await.map(drop)
    }

    async fn list(&self, plural: &str, namespace: Option<&str>, query: &str) -> Result<usize, Status> {
        let options = ListOptions::from_query(&Query::parse(query))?;
        let list = self.registry.list(&self.target(plural, namespace, None), &options).await?;
        Ok(list.items.len())
    }
}

/// Flips one bit of every `needle` in the store's file: pages also have remains of cells that were moved.
fn flip(dir: &Path, needle: &str) {
    let file = dir.join("store.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let found = |at: &usize| bytes[*at..].starts_with(needle.as_bytes());
    let places: Vec<usize> = (0..bytes.len()).filter(found).collect();
    assert!(!places.is_empty(), "values are stored as they are");
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(&file, bytes).unwrap();
}

fn is_internal_and_names(status: &Status, key: &str) -> bool {
    let text = status.to_string();
    text.contains("Internal error occurred") && text.contains(key)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_value_fails_what_would_contain_it_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for (namespace, name, text) in
        [("default", "good", "x"), ("default", "bad", "NEEDLE"), ("kube-system", "other", "y")]
    {
        world.create(namespace, name, text).await.unwrap();
    }
    world.close().await;
    flip(dir.path(), "NEEDLE");

    let world = World::open(dir.path()).await;
    let key = "core/configmaps/default/bad";
    world.get("default", "good").await.expect("not damaged");
    assert_eq!(world.list("configmaps", Some("kube-system"), "").await.unwrap(), 1, "another namespace");
    assert!(world.list("namespaces", None, "").await.unwrap() >= 4, "another kind");
    assert_eq!(world.list("configmaps", Some("default"), "fieldSelector=metadata.name%3Dgood").await.unwrap(), 1);
    for refused in [
        world.get("default", "bad").await,
        world.delete("default", "bad").await,
        world.create("default", "bad", "new").await,
        world.list("configmaps", Some("default"), "").await.map(drop),
        world.list("configmaps", None, "").await.map(drop),
        world.list("configmaps", Some("default"), "limit=1").await.map(drop),
        world.list("configmaps", Some("default"), "labelSelector=a%3Db").await.map(drop),
        world.list("configmaps", Some("default"), "resourceVersion=0").await.map(drop),
        world.list("configmaps", Some("default"), "fieldSelector=metadata.name%3Dbad").await.map(drop),
    ] {
        let status = refused.expect_err("it must not be taken for absent");
        assert!(is_internal_and_names(&status, key), "{status}");
    }
    world.create("default", "next", "z").await.expect("writes go on");
    let [damage] = &world.registry.damage()[..] else { panic!("{:?}", world.registry.damage()) };
    assert!(damage.contains(key) && damage.contains("store.db"), "{damage}");
    assert!(world.registry.ready().await.iter().all(|(_, check)| check.is_ok()), "ready all the same");
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_object_of_the_server_itself_is_no_reason_not_to_start() {
    let dir = tempfile::tempdir().unwrap();
    World::open(dir.path()).await.close().await;
    flip(dir.path(), "For pods that must not be moved from their node.");
    let world = World::open(dir.path()).await;
    let damage = world.registry.damage();
    assert!(matches!(&damage[..], [one] if one.contains("system-node-critical")), "{damage:?}");
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_quota_refuses_what_it_might_count() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "annotations": {"a": "NEEDLE"}},
        "spec": {"hard": {"count/configmaps": "1"}},
    });
    let body = Body { bytes: Bytes::from(quota.to_string()), media: MediaType::Json };
    let (target, ctx) = (world.target("resourcequotas", Some("default"), None), Context::default());
    let request = WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &ctx };
    world.registry.create(request, &body).await.unwrap();
    world.close().await;
    flip(dir.path(), "NEEDLE");

    let world = World::open(dir.path()).await;
    let refused = world.create("default", "a", "x").await.expect_err("it may be one too many");
    assert!(is_internal_and_names(&refused, "core/resourcequotas/default/few"), "{refused}");
    world.create("kube-system", "a", "x").await.expect("it limits no other namespace");
    world.close().await;
}
