//! Health, version, metrics, discovery, OpenAPI: the paths other than resources.

use std::path::Path;
use std::sync::Arc;

use access::authorizer::AuthenticatedOnly;
use bytes::Bytes;
use machinery::Revision;
use machinery::clock::Clock;
use machinery::json::json;
use server::limits::Limits;
use store::error::{EngineError, ReadError, WatchError, WriteError};
use store::memory::MemoryStore;
use store::{Changes, Entry, HealthCheck, Key, ListQuery, Prefix, Retention, Snapshot, Stats, Store, StoreFuture};

use crate::world::World;

#[tokio::test]
async fn s02_10_2_health_is_open_to_all() {
    let world = World::start().await;
    for path in ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/shutdown"] {
        let answer = world.ask(false, "GET", path, &[], "").await;
        assert_eq!((answer.code, answer.text()), (200, "ok"), "{path}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    }
    assert_eq!(world.get("/healthz/nope").await.text(), "404 page not found\n");
}

#[tokio::test]
async fn s02_14_29_checks_can_be_excluded() {
    let world = World::start().await;
    let verbose = world.get("/readyz?verbose&exclude=ping").await;
    assert!(verbose.text().contains("[+]ping excluded: ok\n"), "{}", verbose.text());
    assert!(verbose.text().ends_with("readyz check passed\n"));
}

#[tokio::test]
async fn a_stopping_server_is_alive_and_not_ready() {
    let world = World::start().await;
    let ready = tower_answer(&world, "/readyz").await;
    assert_eq!(ready.0, 200);
    world.trigger.drain();
    world.running.await.unwrap();
    let (server, pki) = (world.server, world.pki);
    drop(pki);
    assert_eq!(in_process(&server, "/livez").await.0, 200);
    let (code, text) = in_process(&server, "/readyz").await;
    assert_eq!(code, 500);
    assert!(
        text.contains("[-]shutdown failed: reason withheld\n") && text.ends_with("readyz check failed\n"),
        "{text}"
    );
}

/// A store in memory with health checks that a test sets.
struct Ailing {
    store: MemoryStore,
    health: parking_lot::Mutex<Vec<HealthCheck>>,
}

impl Store for Ailing {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        self.store.get(key)
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        self.store.list(query)
    }

    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.store.create(key, value)
    }

    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.store.update(key, value, expected)
    }

    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.store.delete(key, expected)
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

    fn health(&self) -> StoreFuture<'_, Vec<HealthCheck>> {
        let health = self.health.lock().clone();
        Box::pin(async { health })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.store.close()
    }
}

#[tokio::test]
async fn readiness_names_what_the_store_reports_and_liveness_what_a_restart_helps() {
    let ailing = Ailing { store: MemoryStore::new(Retention::default()), health: parking_lot::Mutex::default() };
    let store = Arc::new(ailing);
    let passed = || HealthCheck::passed("store-space");
    *store.health.lock() = vec![passed(), HealthCheck::passed("store-sync")];
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let world = World::on(shared, Limits::default(), Arc::new(AuthenticatedOnly), Clock::system()).await;
    assert_eq!(world.get("/readyz?verbose").await.code, 200);
    assert_eq!(world.get("/readyz/store-space").await.text(), "ok");

    *store.health.lock() = vec![HealthCheck::failed("store-space", "/data is full", false)];
    let strangers = world.ask(false, "GET", "/readyz?verbose", &[], "").await;
    assert_eq!(strangers.code, 500);
    assert!(strangers.text().contains("[-]store-space failed: reason withheld\n"), "{}", strangers.text());
    let verbose = world.get("/readyz?verbose").await;
    assert!(verbose.text().contains("[-]store-space failed: /data is full\n"), "{}", verbose.text());
    assert_eq!(world.get("/livez").await.code, 200, "a restart does not help");

    *store.health.lock() = vec![passed(), HealthCheck::failed("store-sync", "a sync failed", true)];
    let live = world.get("/livez?verbose").await;
    assert_eq!(live.code, 500);
    assert!(live.text().contains("[-]store-sync failed: a sync failed\n"), "{}", live.text());
    assert!(live.text().contains("[+]store-space ok\n"), "{}", live.text());
}

async fn tower_answer(world: &World, path: &str) -> (u16, String) {
    in_process(&world.server, path).await
}

async fn in_process(server: &server::Server, path: &str) -> (u16, String) {
    use http_body_util::{BodyExt as _, Empty};
    use tower_service::Service as _;
    let request = http::Request::get(path).body(Empty::<bytes::Bytes>::new()).unwrap();
    let answer = server.in_process(access::identity::User::anonymous()).call(request).await.unwrap();
    let code = answer.status().as_u16();
    (code, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn version_is_what_clients_compare() {
    let world = World::start().await;
    let version = world.ask(false, "GET", "/version", &[], "").await;
    assert_eq!(version.code, 200);
    assert_eq!((&version.json()["major"], &version.json()["minor"]), (&json!("1"), &json!("36")));
    assert!(version.json()["gitVersion"].as_str().unwrap().starts_with("v1.36."));
}

#[tokio::test]
async fn metrics_count_requests() {
    let world = World::start().await;
    world.get("/api/v1/namespaces/default/pods").await;
    world.get("/api/v1/namespaces/default/pods/none").await;
    let text = world.get("/metrics").await;
    assert!(text.header("content-type").starts_with("application/openmetrics-text"));
    let text = text.text();
    let rest = "group=\"\",version=\"v1\",resource=\"pods\",subresource=\"\"";
    for line in [
        format!(
            "apiserver_request_total{{verb=\"LIST\",dry_run=\"\",{rest},scope=\"namespace\",component=\"apiserver\",code=\"200\"}} 1"
        ),
        format!(
            "apiserver_request_total{{verb=\"GET\",dry_run=\"\",{rest},scope=\"resource\",component=\"apiserver\",code=\"404\"}} 1"
        ),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn s02_14_28_aggregated_discovery_is_tagged() {
    let world = World::start().await;
    let accept = ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json");
    for path in ["/api", "/apis"] {
        let answer = world.get_with(path, &[accept]).await;
        assert_eq!(
            answer.header("content-type"),
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        assert_eq!(answer.header("cache-control"), "public");
        assert_eq!(answer.json()["kind"], "APIGroupDiscoveryList");
        let etag = answer.header("etag").to_owned();
        let again = world.get_with(path, &[accept, ("if-none-match", &etag)]).await;
        assert_eq!((again.code, again.text()), (304, ""));
        assert_eq!(again.header("etag"), etag);
    }
    let plain = world.get("/apis").await;
    assert_eq!((plain.header("content-type"), &plain.json()["kind"]), ("application/json", &json!("APIGroupList")));
    let core = world.get("/api").await.json();
    let address = core["serverAddressByClientCIDRs"][0]["serverAddress"].as_str().unwrap().to_owned();
    assert_eq!(address, world.address.to_string());
    assert_eq!(world.get("/apis/apps/v1").await.json()["kind"], "APIResourceList");
    assert!(world.get("/").await.json()["paths"].as_array().unwrap().contains(&json!("/apis/apps/v1")));
}

#[tokio::test]
async fn s02_10_3_documents_are_packed_and_named_by_their_hash() {
    let world = World::start().await;
    let index = world.get("/openapi/v3").await;
    let url = index.json()["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let named = world.get_with(&url, &[("accept-encoding", "gzip")]).await;
    assert_eq!((named.code, named.header("content-encoding")), (200, "gzip"));
    assert_eq!(named.header("cache-control"), "public, immutable");
    let plain = world.get("/openapi/v3/apis/apps/v1").await;
    assert!(named.body.len() * 3 < plain.body.len(), "{} and {}", named.body.len(), plain.body.len());
    assert_eq!(plain.header("cache-control"), "no-cache, private");
    assert_eq!(plain.json()["openapi"], "3.0.0");
    assert_eq!(plain.header("etag"), named.header("etag"));
    assert_eq!(plain.header("vary"), "Accept");
    let known = [("if-none-match", plain.header("etag"))];
    let again = world.get_with("/openapi/v3/apis/apps/v1", &known).await;
    assert_eq!((again.code, again.body.len()), (304, 0));
    let old = world.get("/openapi/v3/apis/apps/v1?hash=0").await;
    assert_eq!((old.code, old.header("location")), (301, url.as_str()));
    for accept in ["text/html", "application/yaml"] {
        for path in ["/openapi/v2", "/openapi/v3/version"] {
            assert_eq!(world.get_with(path, &[("accept", accept)]).await.code, 406, "{accept} {path}");
        }
    }
    assert_eq!(world.get("/openapi/v2").await.json()["swagger"], "2.0");
    let message = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let second = world.get_with("/openapi/v2", &[("accept", message)]).await;
    assert_eq!(second.header("content-type"), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
}
