//! APIServices: those of this server, and group versions that a small aggregated server serves.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use machinery::json::{Value, json};
use outbound::ServiceAddresses;
use outbound::testing::{Authority, Reply, Seen, TestServer};
use server::webhooks::WebhookSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{Response, World, host_address, user};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.wardle.example.com";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// An aggregated server with one resource, `flunders`.
async fn wardle(authority: &Authority) -> TestServer {
    TestServer::with_clients_if_given(authority.leaf(&["wardle.shop.svc"]), answer).await
}

fn answer(seen: &Seen) -> Reply {
    match seen.path.split('?').next().unwrap_or_default() {
        "/apis/wardle.example.com/v1" => Reply::text(
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"wardle.example.com/v1","resources":[
            {"name":"flunders","singularName":"flunder","namespaced":true,"kind":"Flunder","verbs":["get","list"]}]}"#,
        ),
        "/apis" => Reply::text("not here").status(404),
        "/apis/wardle.example.com/v1/flunders" if seen.path.contains("watch=") => Reply::endless(8),
        "/apis/wardle.example.com/v1/large" => Reply::text(&"x".repeat(3_000_000)),
        "/apis/wardle.example.com/v1/redirect" => Reply::text("").status(302).header("location", "https://elsewhere/"),
        "/apis/wardle.example.com/v1/namespaces/default/flunders/a/exec" => Reply::upgrade(),
        _ => Reply::text(&format!("{} {} {}", seen.method, seen.path, seen.body)).status(201).header("x-mine", "1"),
    }
}

fn api_service(authority: &Authority) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
        "spec": {
            "group": "wardle.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
            "service": {"namespace": "shop", "name": "wardle"}, "caBundle": STANDARD.encode(&authority.pem),
        },
    })
}

fn condition(object: &Value) -> (String, String, String) {
    let condition = &object["status"]["conditions"][0];
    let text = |member: &str| condition[member].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Waits until an object has what is looked for; fails the test after a while.
pub(crate) async fn wait_for(world: &World, path: &str, mut found: impl FnMut(&Response) -> bool) -> Response {
    let mut last = None;
    for _ in 0..1500 {
        let response = world.get(path).await;
        if found(&response) {
            return response;
        }
        last = Some(response);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{path} stays {last:?}");
}

async fn wait_for_reason(world: &World, reason: &str) -> (String, String, String) {
    let path = format!("{SERVICES}/{NAME}");
    condition(&wait_for(world, &path, |response| condition(&response.json()).1 == reason).await.json())
}

async fn world_with(server: &TestServer) -> World {
    let mut services = ServiceAddresses::default();
    services.add(&format!("shop/wardle={}", server.address())).unwrap();
    World::with(WebhookSettings { services, ..WebhookSettings::default() }).await
}

/// A world with an aggregated server that can be used.
async fn aggregated(authority: &Authority) -> (World, TestServer) {
    let server = wardle(authority).await;
    let world = world_with(&server).await;
    world.post(SERVICES, &api_service(authority)).await.object();
    let found = wait_for_reason(&world, "Passed").await;
    assert_eq!(found, ("True".to_owned(), "Passed".to_owned(), "all checks passed".to_owned()));
    (world, server)
}

#[tokio::test]
async fn agg_1_every_group_version_of_this_server_has_an_object() {
    let world = World::new().await;
    let apps = world.get(&format!("{SERVICES}/v1.apps")).await.object();
    assert_eq!(apps["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart");
    assert_eq!(
        apps["spec"],
        json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15})
    );
    let expected = ("True".to_owned(), "Local".to_owned(), "Local APIServices are always available".to_owned());
    assert_eq!(condition(&apps), expected);
    let core = world.get(&format!("{SERVICES}/v1.")).await.object();
    assert_eq!(core["spec"], json!({"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}));
    let groups = world.get("/apis").await.object();
    for group in groups["groups"].as_array().unwrap().iter().filter(|group| group["name"] != "apiregistration.k8s.io") {
        for version in group["versions"].as_array().unwrap().iter() {
            let (group, version) = (group["name"].as_str().unwrap(), version["version"].as_str().unwrap());
            world.get(&format!("{SERVICES}/{version}.{group}")).await.object();
        }
    }
}

#[tokio::test]
async fn agg_1_group_versions_of_definitions_come_and_go_with_them() {
    let world = World::new().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let path = format!("{SERVICES}/v1.example.com");
    world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.object();
    let made = wait_for(&world, &path, |response| response.code == 200).await.json();
    assert_eq!(made["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(
        made["spec"],
        json!({"group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
    );
    assert_eq!(condition(&made).1, "Local");
    world.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com").await.object();
    wait_for(&world, &path, |response| response.code == 404).await;
}

#[tokio::test]
async fn agg_2_an_object_must_be_named_by_its_group_version() {
    let world = World::new().await;
    let mut service = api_service(&Authority::new());
    service["metadata"]["name"] = json!("v2.wardle.example.com");
    service["spec"]["versionPriority"] = json!(0);
    let refused = world.post(SERVICES, &service).await;
    assert_eq!(refused.code, 422);
    let message = refused.message();
    for part in
        ["must be `spec.version+\".\"+spec.group`: \"v1.wardle.example.com\"", "spec.versionPriority: Invalid value: 0"]
    {
        assert!(message.contains(part), "{message}");
    }
    let made = world.post(SERVICES, &api_service(&Authority::new())).await.object();
    assert_eq!(made["spec"]["service"]["port"], 443, "the default");
}

#[tokio::test]
async fn agg_4_agg_5_a_server_that_cannot_be_used_is_unavailable_with_the_reason() {
    let authority = Authority::new();
    let world = World::new().await;
    let made = world.post(SERVICES, &api_service(&authority)).await.object();
    assert_eq!(made["status"], json!({}));
    let found = wait_for_reason(&world, "ServiceNotFound").await;
    assert_eq!((found.0.as_str(), found.2.as_str()), ("False", "service/wardle in \"shop\" is not present"));

    let refused = world.get("/apis/wardle.example.com/v1/flunders").await;
    assert_eq!((refused.code.as_u16(), refused.text.as_str()), (503, "service unavailable\n"));
    assert_eq!(refused.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(world.get("/apis/wardle.example.com/v1").await.code, 503);
    let groups = world.get("/apis").await.object();
    let names: Vec<_> = groups["groups"].as_array().unwrap().iter().map(|group| group["name"].clone()).collect();
    assert_eq!(names.last(), Some(&json!("wardle.example.com")));
    assert_eq!(names.first(), Some(&json!("apiregistration.k8s.io")));
    assert_eq!(world.get("/apis/wardle.example.com").await.object()["preferredVersion"]["version"], "v1");
    assert_eq!(stale(&world).await, "Stale");

    world.service("shop", "wardle").await;
    let found = wait_for_reason(&world, "EndpointsNotFound").await;
    assert_eq!(found.2, "cannot find endpointslices for service/wardle in \"shop\"");
    let mut slice = json!({
        "metadata": {"name": "wardle-1", "labels": {"kubernetes.io/service-name": "wardle"}},
        "addressType": "IPv4", "ports": [{"name": "other", "port": 1}], "endpoints": [{"addresses": ["198.51.100.1"]}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    world.post(slices, &slice).await.object();
    let found = wait_for_reason(&world, "MissingEndpoints").await;
    assert_eq!(found.2, "endpointslices for service/wardle in \"shop\" have no addresses with port name \"\"");
    slice["metadata"]["labels"] = json!({});
    world.delete(&format!("{slices}/wardle-1")).await.object();
    let mut service = world.get("/api/v1/namespaces/shop/services/wardle").await.object();
    service["spec"]["ports"][0]["port"] = json!(80);
    world.put("/api/v1/namespaces/shop/services/wardle", &service).await.object();
    let found = wait_for_reason(&world, "ServicePortError").await;
    assert_eq!(found.2, "service/wardle in \"shop\" is not listening on port 443");
    service["metadata"] = json!({"name": "wardle", "annotations": {"dogwatch.dev/endpoint": "127.0.0.1:1"}});
    world.put("/api/v1/namespaces/shop/services/wardle", &service).await.object();
    let found = wait_for_reason(&world, "FailedDiscoveryCheck").await;
    let url = "https://127.0.0.1:1/apis/wardle.example.com/v1";
    assert_eq!(
        found.2,
        format!(
            "failing or missing response from {url}: Get \"{url}\": dial tcp 127.0.0.1:1: connect: connection refused"
        )
    );
}

/// The freshness of the aggregated group version.
async fn stale(world: &World) -> String {
    let request = Request::get("/apis").header("accept", AGGREGATED).body(Bytes::new()).unwrap();
    let list = world.send(user("admin", &["system:masters"]), request).await.object();
    let groups = list["items"].as_array().unwrap();
    let group = groups.iter().find(|group| group["metadata"]["name"] == "wardle.example.com").unwrap();
    group["versions"][0]["freshness"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn agg_6_requests_are_passed_on_with_their_user() {
    let authority = Authority::new();
    let (world, server) = aggregated(&authority).await;
    let request = Request::post("/apis/wardle.example.com/v1/namespaces/default/flunders?fieldManager=me")
        .header("x-remote-user", "root")
        .header("authorization", "Bearer stolen")
        .header("content-type", "application/json")
        .body(Bytes::from_static(b"{\"a\":1}"))
        .unwrap();
    let mut alice = user("alice", &["devs", "system:masters"]);
    alice.uid = "7".to_owned();
    let response = world.send(alice, request).await;
    assert_eq!(response.code, 201);
    assert_eq!(response.headers["x-mine"], "1");
    let path = "/apis/wardle.example.com/v1/namespaces/default/flunders?fieldManager=me";
    assert_eq!(response.text, format!("POST {path} {{\"a\":1}}"));
    let seen = server.requests().into_iter().find(|seen| seen.path == path).unwrap();
    assert_eq!(seen.header("x-remote-user"), "alice");
    assert_eq!(seen.header("x-remote-uid"), "7");
    let groups: Vec<_> = seen.headers.get_all("x-remote-group").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(groups, ["devs", "system:masters", "system:authenticated"]);
    assert_eq!(seen.header("authorization"), "");
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.server_name, "wardle.shop.svc");
    assert_eq!(seen.client_certificates, 1, "the certificate of the front proxy");
    let check = server.requests().into_iter().find(|seen| seen.path == "/apis/wardle.example.com/v1").unwrap();
    assert_eq!(check.header("x-remote-user"), "system:kube-aggregator");

    let large = world.get("/apis/wardle.example.com/v1/large").await;
    assert_eq!((large.code.as_u16(), large.text.len()), (200, 3_000_000));
    let redirect = world.get("/apis/wardle.example.com/v1/redirect").await;
    assert_eq!(redirect.code, 502);
    assert_eq!(redirect.text, "the backend attempted to redirect this request, which is not permitted\n");
}

#[tokio::test]
async fn agg_7_this_server_authorizes_first() {
    let authority = Authority::new();
    let (world, server) = aggregated(&authority).await;
    let path = "/apis/wardle.example.com/v1/namespaces/default/flunders";
    let response = world.send(user("bob", &[]), Request::get(path).body(Bytes::new()).unwrap()).await;
    assert_eq!(response.code, 403);
    assert_eq!(
        response.message(),
        "flunders.wardle.example.com is forbidden: User \"bob\" cannot list resource \"flunders\" in API group \
         \"wardle.example.com\" in the namespace \"default\""
    );
    assert!(server.requests().iter().all(|seen| seen.path != path));
}

#[tokio::test]
async fn agg_8_discovery_is_merged() {
    let authority = Authority::new();
    let (world, _server) = aggregated(&authority).await;
    wait_for(&world, "/apis", |response| response.text.contains("wardle")).await;
    let request = || Request::get("/apis").header("accept", AGGREGATED).body(Bytes::new()).unwrap();
    let list = world.send(user("admin", &["system:masters"]), request()).await.object();
    let groups = list["items"].as_array().unwrap();
    let group = groups.iter().find(|group| group["metadata"]["name"] == "wardle.example.com").unwrap();
    assert_eq!(group["versions"][0]["freshness"], "Current");
    assert_eq!(group["versions"][0]["resources"][0]["resource"], "flunders");
    assert_eq!(group["versions"][0]["resources"][0]["responseKind"]["kind"], "Flunder");
    // The same as without the other server, but for its group.
    let plain = World::new().await;
    let own = plain.send(user("admin", &["system:masters"]), request()).await.object();
    let others: Value =
        groups.iter().filter(|group| group["metadata"]["name"] != "wardle.example.com").cloned().collect();
    assert_eq!(others, own["items"]);
    let (merged, own) = (world.get("/apis").await.object(), plain.get("/apis").await.object());
    let others: Value = merged["groups"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|group| group["name"] != "wardle.example.com")
        .cloned()
        .collect();
    assert_eq!(others, own["groups"]);
}

#[tokio::test]
async fn agg_9_slices_that_were_written_by_hand_are_honoured() {
    let authority = Authority::new();
    // A slice must not have a loopback address; without a network there is no other.
    let Some(host) = host_address() else { return };
    let leaf = authority.leaf(&["wardle.shop.svc"]);
    let server = TestServer::start_at(&format!("{host}:0"), leaf, answer).await;
    let world = World::new().await;
    world.post(SERVICES, &api_service(&authority)).await.object();
    world.service("shop", "wardle").await;
    world.slice("shop", "wardle", &server.address()).await;
    wait_for_reason(&world, "Passed").await;
    assert_eq!(world.get("/apis/wardle.example.com/v1/flunders").await.code, 201);
}

#[tokio::test]
async fn agg_3_agg_10_a_definition_loses_its_paths_and_gets_them_back() {
    let authority = Authority::new();
    let server = wardle(&authority).await;
    let world = world_with(&server).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "flunders.wardle.example.com"},
        "spec": {"group": "wardle.example.com", "scope": "Namespaced", "names": {"plural": "flunders", "kind": "Flunder"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.object();
    let path = format!("{SERVICES}/{NAME}");
    let local = wait_for(&world, &path, |response| response.code == 200).await.json();
    let things = "/apis/wardle.example.com/v1/flunders";
    assert_eq!(world.get(things).await.object()["kind"], "FlunderList");
    // Without the label the object is the user's.
    let mut remote = api_service(&authority);
    remote["metadata"] = json!({"name": NAME, "resourceVersion": local["metadata"]["resourceVersion"]});
    world.put(&path, &remote).await.object();
    wait_for_reason(&world, "Passed").await;
    assert_eq!(world.get(things).await.code, 201, "the other server");
    world.delete(&path).await.object();
    let back = wait_for(&world, things, |response| response.code == 200).await.json();
    assert_eq!(back["kind"], "FlunderList");
    let again = wait_for(&world, &path, |response| response.code == 200).await.json();
    assert_eq!(condition(&again).1, "Local");
}

#[tokio::test]
async fn ba_11_an_annotation_names_the_url_of_the_server() {
    let authority = Authority::new();
    let server = wardle(&authority).await;
    let world = World::new().await;
    let mut service = api_service(&authority);
    service["metadata"]["annotations"] = json!({"dogwatch.dev/url": server.url("")});
    world.post(SERVICES, &service).await.object();
    wait_for_reason(&world, "Passed").await;
    assert_eq!(world.get("/apis/wardle.example.com/v1/flunders").await.code, 201);
}

#[tokio::test]
async fn agg_5_agg_6_a_server_that_stops_is_noticed_and_its_text_passed_on() {
    let authority = Authority::new();
    let (world, server) = aggregated(&authority).await;
    let address = server.address();
    server.stop().await;
    // Until the next check it counts as available, and the failure is that of the connection.
    let response = world.get("/apis/wardle.example.com/v1/flunders").await;
    assert_eq!(response.code, 503);
    assert_eq!(response.text, format!("dial tcp {address}: connect: connection refused\n"));
}

#[tokio::test]
async fn agg_6_watches_are_streamed_and_upgrades_joined() {
    let authority = Authority::new();
    let (world, _server) = aggregated(&authority).await;
    let address = world.listen().await;
    let ask = async |head: &str| {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let request = format!("GET {head}\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", crate::world::TOKEN);
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    };
    let mut watch = ask("/apis/wardle.example.com/v1/flunders?watch=true HTTP/1.1").await;
    let text = read_until(&mut watch, "xxxxxxxx").await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    drop(watch);
    let path = "/apis/wardle.example.com/v1/namespaces/default/flunders/a/exec";
    let mut stream = ask(&format!("{path} HTTP/1.1\r\nconnection: upgrade\r\nupgrade: echo")).await;
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    stream.write_all(b"ping").await.unwrap();
    assert!(read_until(&mut stream, "ping").await.ends_with("ping"));
}

async fn read_until(stream: &mut tokio::net::TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.contains(end) {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the connection ended after {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    text
}
