//! Service addresses, node ports and quota shares: a write that is not made holds none of them, on whichever server and for
//! whatever reason it ended.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::{MediaType, PatchType};
use machinery::options::{CreateOptions, DeleteOptions, GetOptions, PatchOptions};
use registry::{Body, Context, Form, PatchBody, Registry, Settings, Target, View, WriteRequest};
use store::error::EngineError;
use store::memory::MemoryStore;
use store::{
    Changes, Entry, Key, ListQuery, Prefix, ReadError, Retention, Revision, Snapshot, Stats, Store, StoreFuture,
    WatchError, WriteError,
};

/// The outcome of the next writes of services.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// They never return.
    Stall,
    /// They are made, and their answer is lost.
    LoseAnswer,
    /// They are not made, and their answer is lost.
    LoseWrite,
    /// This many updates find another revision.
    Conflict(usize),
}

/// A memory store whose writes of services fail on demand.
struct FaultyStore {
    store: MemoryStore,
    fault: parking_lot::Mutex<Fault>,
    stalled: AtomicUsize,
}

impl FaultyStore {
    fn new() -> Arc<Self> {
        let store = MemoryStore::new(Retention::default());
        Arc::new(FaultyStore { store, fault: parking_lot::Mutex::default(), stalled: AtomicUsize::new(0) })
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    fn fault_of(&self, key: &Key) -> Fault {
        if key.as_str().starts_with("core/services/") { *self.fault.lock() } else { Fault::None }
    }

    async fn write(
        &self,
        fault: Fault,
        write: StoreFuture<'_, Result<Revision, WriteError>>,
    ) -> Result<Revision, WriteError> {
        match fault {
            Fault::Stall => {
                self.stalled.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            }
            Fault::LoseAnswer => {
                write.await?;
                Err(WriteError::Unknown("the answer was lost".to_owned()))
            }
            Fault::LoseWrite => Err(WriteError::Unknown("the answer was lost".to_owned())),
            Fault::None | Fault::Conflict(_) => write.await,
        }
    }

    async fn wait_until_stalled(&self) {
        let stalled = async {
            while self.stalled.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), stalled).await.expect("the write reaches the store");
        self.stalled.store(0, Ordering::Relaxed);
    }
}

impl Store for FaultyStore {
    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        let fault = self.fault_of(&key);
        Box::pin(async move { self.write(fault, self.store.create(key, value)).await })
    }
    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        let fault = self.fault_of(&key);
        if let Fault::Conflict(left @ 1..) = fault {
            self.set(Fault::Conflict(left - 1));
            return Box::pin(async move {
                let current = self.store.get(&key).await.expect("a memory store can be read");
                Err(WriteError::Conflict { key, expected, current })
            });
        }
        Box::pin(async move { self.write(fault, self.store.update(key, value, expected)).await })
    }
    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.store.delete(key, expected)
    }
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        self.store.get(key)
    }
    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        self.store.list(query)
    }
    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        self.store.watch(prefix, after)
    }
    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        self.store.compact(at)
    }
    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        self.store.current_revision()
    }
    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        self.store.oldest_revision(prefix)
    }
    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        self.store.backup(to)
    }
    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        self.store.stats()
    }
    fn close(&self) -> StoreFuture<'_, ()> {
        self.store.close()
    }
}

/// One server on a store.
#[derive(Clone)]
struct Server {
    registry: Arc<Registry>,
}

impl Server {
    async fn start(store: &Arc<FaultyStore>, settings: Settings) -> Self {
        Server { registry: Registry::start(Arc::clone(store) as Arc<dyn Store>, settings).await.unwrap() }
    }

    fn target(&self, plural: &str, name: Option<&str>, subresource: Option<&str>) -> Target {
        let kind = Arc::clone(self.registry.kinds().get("", "v1", plural).expect("a served kind"));
        Target {
            kind,
            namespace: Some("default".to_owned()),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        }
    }

    async fn create_with(&self, plural: &str, object: Value, options: CreateOptions) -> Result<Value, Status> {
        let target = self.target(plural, None, None);
        let mut object = object;
        object["kind"] = json!(target.kind.gvk.kind);
        object["apiVersion"] = json!("v1");
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let created = self
            .registry
            .create(WriteRequest { target: &target, options: &options, ctx: &Context::default() }, &body)
            .await;
        created.map(|outcome| shown(&outcome.view))
    }

    async fn create(&self, object: Value) -> Result<Value, Status> {
        self.create_with("services", object, CreateOptions::default()).await
    }

    /// As [`Server::create`], again and again while the address or port is still reserved.
    async fn create_soon(&self, object: Value) -> Value {
        let created = async {
            loop {
                match self.create(object.clone()).await {
                    Ok(created) => return created,
                    Err(status) if status.message.contains("already allocated") => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(status) => panic!("{}", status.message),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), created).await.expect("it is released")
    }

    async fn merge(&self, plural: &str, name: &str, subresource: Option<&str>, patch: Value) -> Result<Value, Status> {
        let body = PatchBody { bytes: Bytes::from(patch.to_string()), kind: PatchType::Merge };
        let target = self.target(plural, Some(name), subresource);
        let patched = self
            .registry
            .patch(WriteRequest { target: &target, options: &PatchOptions::default(), ctx: &Context::default() }, &body)
            .await;
        patched.map(|outcome| shown(&outcome.view))
    }

    async fn delete(&self, name: &str) {
        let target = self.target("services", Some(name), None);
        self.registry
            .delete(WriteRequest { target: &target, options: &DeleteOptions::default(), ctx: &Context::default() })
            .await
            .unwrap();
    }

    /// A quota of `hard`, of which `used` is counted as taken.
    async fn quota(&self, hard: Value, used: Value) {
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
        self.create_with("resourcequotas", quota, CreateOptions::default()).await.unwrap();
        let status = json!({"status": {"hard": hard, "used": used}});
        self.merge("resourcequotas", "q", Some("status"), status).await.unwrap();
    }

    async fn used(&self, resource: &str) -> String {
        let target = self.target("resourcequotas", Some("q"), None);
        let quota = shown(&self.registry.get(&target, &GetOptions::default()).await.unwrap());
        quota["status"]["used"][resource].as_str().unwrap_or_default().to_owned()
    }

    async fn wait_for_usage(&self, resource: &str, expected: &str) {
        let counted = async {
            while self.used(resource).await != expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), counted).await.expect("the share is released");
    }
}

fn shown(view: &View) -> Value {
    let segments = view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": spec});
    if service["spec"]["ports"].is_null() {
        service["spec"]["ports"] = json!([{"port": 80}]);
    }
    service
}

fn node_port(name: &str) -> Value {
    service(name, json!({"type": "NodePort"}))
}

fn fixed(name: &str) -> Value {
    service(name, json!({"type": "NodePort", "clusterIP": "10.96.7.7", "ports": [{"port": 80, "nodePort": 30_777}]}))
}

fn ports(from: u16, to: u16) -> Settings {
    Settings { node_ports: from..=to, ..Settings::default() }
}

#[tokio::test]
async fn an_address_that_is_freed_through_another_server_can_be_given_out_again() {
    let store = FaultyStore::new();
    let (a, b) = (Server::start(&store, Settings::default()).await, Server::start(&store, Settings::default()).await);
    a.create(fixed("s")).await.unwrap();
    for (server, other) in [(&a, &b), (&b, &a)] {
        let refused = server.create(fixed("t")).await.unwrap_err();
        assert!(refused.message.contains("provided IP is already allocated"), "{}", refused.message);
        other.delete("s").await;
        server.create(fixed("s")).await.unwrap();
    }
}

#[tokio::test]
async fn an_address_that_an_update_gave_up_through_another_server_can_be_given_out_again() {
    let store = FaultyStore::new();
    let (a, b) = (Server::start(&store, Settings::default()).await, Server::start(&store, Settings::default()).await);
    a.create(fixed("s")).await.unwrap();
    let plain = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": null}]}});
    b.merge("services", "s", None, plain).await.unwrap();
    let mut other = fixed("t");
    other["spec"]["clusterIP"] = json!("10.96.7.8");
    a.create(other).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_dropped_in_the_middle_holds_nothing() {
    let store = FaultyStore::new();
    let server = Server::start(&store, Settings::default()).await;
    server.quota(json!({"services": "1"}), json!({"services": "0"})).await;
    store.set(Fault::Stall);
    let create = {
        let server = server.clone();
        tokio::spawn(async move { server.create(fixed("s")).await })
    };
    store.wait_until_stalled().await;
    assert_eq!(server.used("services").await, "1");
    create.abort();
    assert!(create.await.unwrap_err().is_cancelled());
    store.set(Fault::None);
    server.wait_for_usage("services", "0").await;
    server.create_soon(fixed("t")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_is_dropped_in_the_middle_holds_nothing() {
    let store = FaultyStore::new();
    let server = Server::start(&store, ports(30_000, 30_000)).await;
    server.create(service("s", json!({}))).await.unwrap();
    server.quota(json!({"services.nodeports": "1"}), json!({"services.nodeports": "0"})).await;
    store.set(Fault::Stall);
    let update = {
        let server = server.clone();
        tokio::spawn(async move { server.merge("services", "s", None, json!({"spec": {"type": "NodePort"}})).await })
    };
    store.wait_until_stalled().await;
    assert_eq!(server.used("services.nodeports").await, "1");
    update.abort();
    assert!(update.await.unwrap_err().is_cancelled());
    store.set(Fault::None);
    server.wait_for_usage("services.nodeports", "0").await;
    let mut only_port = node_port("t");
    only_port["spec"]["ports"][0]["nodePort"] = json!(30_000);
    server.create_soon(only_port).await;
}

#[tokio::test]
async fn an_update_that_is_made_again_after_conflicts_draws_one_port() {
    let store = FaultyStore::new();
    let server = Server::start(&store, ports(30_000, 30_002)).await;
    server.create(service("s", json!({}))).await.unwrap();
    store.set(Fault::Conflict(20));
    let updated = server.merge("services", "s", None, json!({"spec": {"type": "NodePort"}})).await.unwrap();
    assert!(updated["spec"]["ports"][0]["nodePort"].is_u64(), "{updated}");
    for name in ["t", "u"] {
        let created = server.create(node_port(name)).await.unwrap();
        assert!(created["spec"]["ports"][0]["nodePort"].is_u64(), "{created}");
    }
}

#[tokio::test]
async fn three_thousand_refused_updates_leave_every_port_free() {
    let store = FaultyStore::new();
    let server = Server::start(&store, Settings::default()).await;
    server.create(service("s", json!({}))).await.unwrap();
    server.quota(json!({"services.nodeports": "0"}), json!({"services.nodeports": "0"})).await;
    for _ in 0..3000 {
        let refused = server.merge("services", "s", None, json!({"spec": {"type": "NodePort"}})).await.unwrap_err();
        assert!(refused.message.contains("exceeded quota"), "{}", refused.message);
    }
    let roomy = json!({"status": {"hard": {"services.nodeports": "10"}}});
    server.merge("resourcequotas", "q", Some("status"), roomy).await.unwrap();
    let updated = server.merge("services", "s", None, json!({"spec": {"type": "NodePort"}})).await.unwrap();
    assert!(updated["spec"]["ports"][0]["nodePort"].is_u64(), "{updated}");
}

#[tokio::test]
async fn a_dry_run_and_a_refusal_hold_nothing() {
    let store = FaultyStore::new();
    let server = Server::start(&store, ports(30_000, 30_001)).await;
    let dry_run = CreateOptions { dry_run: true, ..CreateOptions::default() };
    let balanced = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "clusterIP": "10.96.7.7"});
    for _ in 0..5 {
        server.create_with("services", service("s", balanced.clone()), dry_run.clone()).await.unwrap();
        let mut invalid = service("s", balanced.clone());
        invalid["spec"]["sessionAffinity"] = json!("Sometimes");
        assert_eq!(server.create(invalid.clone()).await.unwrap_err().code, 422);
        assert_eq!(server.create_with("services", invalid, dry_run.clone()).await.unwrap_err().code, 422);
        let mut outside = service("s", balanced.clone());
        outside["spec"]["clusterIP"] = json!("192.168.0.1");
        assert_eq!(server.create(outside).await.unwrap_err().code, 422);
    }
    let created = server.create(service("s", balanced)).await.unwrap();
    assert!(created["spec"]["healthCheckNodePort"].is_u64() && created["spec"]["ports"][0]["nodePort"].is_u64());
    assert_ne!(created["spec"]["healthCheckNodePort"], created["spec"]["ports"][0]["nodePort"]);
}

#[tokio::test]
async fn a_write_of_unknown_outcome_keeps_its_quota_share_and_its_addresses_only_if_it_was_made() {
    for (fault, made) in [(Fault::LoseAnswer, true), (Fault::LoseWrite, false)] {
        let store = FaultyStore::new();
        let server = Server::start(&store, Settings::default()).await;
        server.quota(json!({"services": "5"}), json!({"services": "0"})).await;
        store.set(fault);
        assert_eq!(server.create(fixed("s")).await.unwrap_err().code, 504);
        store.set(Fault::None);
        assert_eq!(server.used("services").await, "1");
        if made {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let refused = server.create(fixed("t")).await.unwrap_err();
            assert!(refused.message.contains("provided IP is already allocated"), "{}", refused.message);
        } else {
            server.create_soon(fixed("t")).await;
        }
    }
}
