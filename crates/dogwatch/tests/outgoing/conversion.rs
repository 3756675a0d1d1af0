//! Conversion webhooks that are found by their Service.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::json::{self, Value, json};
use outbound::ServiceAddresses;
use outbound::testing::{Authority, Reply, Seen, TestServer};
use server::webhooks::{MissingWebhooks, WebhookSettings};

use crate::world::{World, host_address};

const THINGS_V1: &str = "/apis/example.com/v1/namespaces/default/things";
const THINGS_V2: &str = "/apis/example.com/v2/namespaces/default/things";
const PREFIX: &str = "conversion webhook for example.com/v1, Kind=Thing failed: ";

/// Moves `spec.old` to `spec.new` and back.
fn convert(seen: &Seen) -> Value {
    let review: Value = json::from_str(&seen.body).unwrap();
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap();
    let convert = |object: &Value| {
        let mut object = object.clone();
        let (from, to) = if wanted.ends_with("v2") { ("old", "new") } else { ("new", "old") };
        object["spec"] = json!({to: object["spec"][from]});
        object["apiVersion"] = wanted.into();
        object
    };
    let objects: Value = review["request"]["objects"].as_array().unwrap().iter().map(convert).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
        "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

fn answer(review: &Value) -> Reply {
    Reply::text(&json::to_string(review))
}

async fn define(world: &World, client: &Value) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema},
                {"name": "v2", "served": true, "storage": false, "schema": schema},
            ],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}},
        },
    });
    world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.object();
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"old": 1}});
    world.post(THINGS_V1, &thing).await.object();
}

fn service_client(authority: &Authority) -> Value {
    json!({"service": {"namespace": "shop", "name": "hook", "path": "/convert"}, "caBundle": STANDARD.encode(&authority.pem)})
}

#[tokio::test]
async fn cw_1_a_service_is_found_by_its_slices() {
    let authority = Authority::new();
    // Without a network the call fails, and its text names the address of the slice.
    let host = host_address();
    let listen = host.map_or_else(|| "127.0.0.1:0".to_owned(), |host| format!("{host}:0"));
    let leaf = authority.leaf(&["hook.shop.svc"]);
    let server = TestServer::start_at(&listen, leaf, |seen| answer(&convert(seen))).await;
    let world = World::new().await;
    world.service("shop", "hook").await;
    define(&world, &service_client(&authority)).await;
    if host.is_none() {
        world.slice("shop", "hook", "198.51.100.1:9443").await;
        let message = world.get(&format!("{THINGS_V2}/a")).await.message();
        assert!(message.contains("dial tcp 198.51.100.1:9443: "), "{message}");
        return;
    }
    world.slice("shop", "hook", &server.address()).await;
    assert_eq!(world.get(&format!("{THINGS_V2}/a")).await.object()["spec"], json!({"new": 1}));
    let seen = &server.requests()[0];
    assert_eq!(seen.path, "/convert?timeout=30s");
    assert_eq!(seen.header("host"), "hook.shop.svc:443");
    assert_eq!(seen.server_name, "hook.shop.svc");
    assert_eq!(seen.header("authorization"), "");
}

#[tokio::test]
async fn cw_4_a_webhook_is_called_only_where_it_is_needed() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |seen| answer(&convert(seen))).await;
    let world = World::new().await;
    define(&world, &json!({"url": server.url("/c"), "caBundle": STANDARD.encode(&authority.pem)})).await;
    assert_eq!(world.get(&format!("{THINGS_V1}/a")).await.object()["spec"], json!({"old": 1}));
    assert_eq!(server.requests().len(), 0, "the stored version needs no webhook");
    let thing = json!({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": "b"}, "spec": {"new": 2}});
    world.post(THINGS_V2, &thing).await.object();
    assert_eq!(world.get(&format!("{THINGS_V1}/b")).await.object()["spec"], json!({"old": 2}));
    let before = server.requests().len();
    let listed = world.get(THINGS_V2).await.object();
    assert_eq!(listed["items"].as_array().map(|items| items.len()), Some(2));
    assert!(server.requests().len() <= before + 1, "a list needs one call");
}

#[tokio::test]
async fn cw_2_failures_name_the_url_and_the_reason() {
    let authority = Authority::new();
    let world = World::new().await;
    define(&world, &service_client(&authority)).await;
    let url = "Post \"https://hook.shop.svc:443/convert?timeout=30s\": ";
    let failure = async |why: &str| {
        let response = world.get(&format!("{THINGS_V2}/a")).await;
        assert_eq!(response.code.as_u16(), 500, "{}", response.text);
        assert_eq!(response.message(), format!("{PREFIX}{url}{why}"));
    };
    failure("service \"hook\" not found").await;
    world.service("shop", "hook").await;
    failure("no endpoints available for service \"hook\"").await;
    let mut service = world.get("/api/v1/namespaces/shop/services/hook").await.object();
    service["spec"]["ports"][0]["port"] = json!(80);
    world.put("/api/v1/namespaces/shop/services/hook", &service).await.object();
    failure("no service port 443 found for service \"hook\"").await;
    service["metadata"] = json!({"name": "hook", "annotations": {"dogwatch.dev/endpoint": "127.0.0.1:1"}});
    world.put("/api/v1/namespaces/shop/services/hook", &service).await.object();
    failure("dial tcp 127.0.0.1:1: connect: connection refused").await;
}

#[tokio::test]
async fn cw_2_answers_that_do_not_fit_are_named() {
    let authority = Authority::new();
    let script = |seen: &Seen| {
        let mut review = convert(seen);
        let objects = review["response"]["convertedObjects"].clone();
        match seen.path.split('?').next().unwrap_or_default() {
            "/count" => review["response"]["convertedObjects"] = json!([]),
            "/name" => review["response"]["convertedObjects"][0]["metadata"]["name"] = json!("other"),
            "/failed" => review["response"]["result"] = json!({"status": "Failed", "message": "no way"}),
            "/garbage" => return Reply::text("<html>"),
            "/empty" => return Reply::text(""),
            "/500" => return Reply::text("oops").status(500).header("content-type", "text/plain"),
            _ => review["response"]["convertedObjects"] = objects,
        }
        answer(&review)
    };
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), script).await;
    for (path, why) in [
        ("/count", "conversion webhook for example.com/v1, Kind=Thing returned 0 objects, expected 1".to_owned()),
        (
            "/name",
            "conversion webhook for example.com/v1, Kind=Thing returned invalid converted object at index 0: must have the \
             same name: a != other"
                .to_owned(),
        ),
        ("/failed", format!("{PREFIX}no way")),
        ("/garbage", format!("{PREFIX}couldn't get version/kind; json parse error: ")),
        ("/empty", format!("{PREFIX}0-length response with status code: 200 and content type: application/json")),
        ("/500", format!("{PREFIX}an error on the server (\"oops\") has prevented the request from succeeding")),
    ] {
        let world = World::new().await;
        define(&world, &json!({"url": server.url(path), "caBundle": STANDARD.encode(&authority.pem)})).await;
        let response = world.get(&format!("{THINGS_V2}/a")).await;
        assert_eq!(response.code.as_u16(), 500);
        assert!(response.message().starts_with(&why), "{}", response.message());
    }
}

#[tokio::test]
async fn cw_3_without_a_bundle_the_roots_of_the_system_count() {
    let server = TestServer::start(Authority::new().leaf(&["127.0.0.1"]), |seen| answer(&convert(seen))).await;
    let world = World::new().await;
    define(&world, &json!({"url": server.url("/c")})).await;
    let why = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let message = world.get(&format!("{THINGS_V2}/a")).await.message();
    assert_eq!(message, format!("{PREFIX}Post \"{}\": {why}", server.url("/c?timeout=30s")));
}

#[tokio::test]
async fn cw_5_a_watch_of_another_version_is_converted() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |seen| answer(&convert(seen))).await;
    let world = World::new().await;
    define(&world, &json!({"url": server.url("/c"), "caBundle": STANDARD.encode(&authority.pem)})).await;
    let watched = world.get(&format!("{THINGS_V2}?watch=true&timeoutSeconds=1")).await;
    let event: Value = json::from_str(watched.text.lines().next().unwrap_or_default()).unwrap();
    assert_eq!(event["object"]["spec"], json!({"new": 1}), "{event}");
}

#[tokio::test]
async fn bd_6_a_service_without_pods_has_an_address_from_the_start_or_an_annotation() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["hook.shop.svc"]), |seen| answer(&convert(seen))).await;
    let mut services = ServiceAddresses::default();
    services.add(&format!("shop/hook={}", server.address())).unwrap();
    let world = World::with(WebhookSettings { services, ..WebhookSettings::default() }).await;
    define(&world, &service_client(&authority)).await;
    world.get(&format!("{THINGS_V2}/a")).await.object();

    for annotation in [("dogwatch.dev/endpoint", server.address()), ("dogwatch.dev/url", server.url(""))] {
        let world = World::new().await;
        world.service("shop", "hook").await;
        let mut service = world.get("/api/v1/namespaces/shop/services/hook").await.object();
        service["metadata"]["annotations"] = json!({annotation.0: annotation.1});
        world.put("/api/v1/namespaces/shop/services/hook", &service).await.object();
        define(&world, &service_client(&authority)).await;
        world.get(&format!("{THINGS_V2}/a")).await.object();
    }
}

#[tokio::test]
async fn wh_5_an_external_name_is_called_at_the_port() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["hook.shop.svc"]), |seen| answer(&convert(seen))).await;
    let port: u16 = server.address().rsplit_once(':').unwrap().1.parse().unwrap();
    let world = World::new().await;
    world.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.object();
    let service = json!({"metadata": {"name": "hook"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    world.post("/api/v1/namespaces/shop/services", &service).await.object();
    let mut client = service_client(&authority);
    client["service"]["port"] = json!(port);
    define(&world, &client).await;
    world.get(&format!("{THINGS_V2}/a")).await.object();
    assert_eq!(server.requests()[0].header("host"), format!("hook.shop.svc:{port}"));
}

#[tokio::test]
async fn bd_7_a_missing_converter_changes_only_the_version_if_asked() {
    let authority = Authority::new();
    let world = World::with(WebhookSettings { missing: MissingWebhooks::Skip, ..WebhookSettings::default() }).await;
    define(&world, &service_client(&authority)).await;
    let thing = world.get(&format!("{THINGS_V2}/a")).await.object();
    assert_eq!((&thing["apiVersion"], &thing["spec"]), (&json!("example.com/v2"), &json!({"old": 1})));
}
