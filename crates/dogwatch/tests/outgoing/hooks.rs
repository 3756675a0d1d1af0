//! Admission webhooks as real projects configure them, and webhooks that misbehave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::json::{self, Value, json};
use outbound::ServiceAddresses;
use outbound::testing::{Authority, Leaf, Reply, Seen, TestServer};
use server::webhooks::{MissingWebhooks, WebhookSettings};

use crate::world::World;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

/// The answer to a review: allowed, with a JSON patch if there is one.
fn allowed(seen: &Seen, patch: Option<&Value>) -> Reply {
    let review: Value = json::from_str(&seen.body).unwrap_or_default();
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if let Some(patch) = patch {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = STANDARD.encode(json::to_string(patch)).into();
    }
    reply(response)
}

fn denied(seen: &Seen, why: &str) -> Reply {
    let review: Value = json::from_str(&seen.body).unwrap_or_default();
    reply(json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": why, "code": 403}}))
}

fn reply(response: Value) -> Reply {
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    Reply::text(&json::to_string(&review)).header("content-type", "application/json")
}

/// A configuration with one webhook for config maps.
fn configuration(kind: &str, client: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "hooks"},
        "webhooks": [{
            "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    })
}

async fn validating(world: &World, client: &Value) {
    world.post(VALIDATING, &configuration("ValidatingWebhookConfiguration", client)).await.object();
}

fn by_url(server: &TestServer, bundle: &str) -> Value {
    json!({"url": server.url("/hook"), "caBundle": STANDARD.encode(bundle)})
}

/// The shape of cert-manager's manifests: both configurations lead to one Service in its own namespace, the bundle is that of an
/// authority, a selector leaves out a namespace, and the resources are custom.
#[tokio::test]
async fn wh_5_the_configuration_of_cert_manager_reaches_a_service() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["cert-manager-webhook", "cert-manager-webhook.cert-manager.svc"]);
    let server = TestServer::start(leaf, |seen| match seen.path.split('?').next().unwrap_or_default() {
        "/mutate" => {
            let patch = json!([{"op": "add", "path": "/metadata/annotations", "value": {"mutated": "yes"}}]);
            allowed(seen, Some(&patch))
        }
        _ if seen.body.contains("\"secretName\":\"\"") => {
            denied(seen, "spec.secretName: Required value: must be specified")
        }
        _ => allowed(seen, None),
    })
    .await;
    let mut services = ServiceAddresses::default();
    services.add(&format!("cert-manager/cert-manager-webhook:443={}", server.address())).unwrap();
    let world = World::with(WebhookSettings { services, ..WebhookSettings::default() }).await;
    world.service("cert-manager", "cert-manager-webhook").await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "certificates.cert-manager.io"},
        "spec": {"group": "cert-manager.io", "scope": "Namespaced",
            "names": {"plural": "certificates", "kind": "Certificate", "shortNames": ["cert"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.object();
    let webhook = |path: &str, operations: &[&str]| {
        json!({
            "name": "webhook.cert-manager.io", "admissionReviewVersions": ["v1"], "matchPolicy": "Equivalent",
            "timeoutSeconds": 30, "failurePolicy": "Fail", "sideEffects": "None",
            "rules": [{"apiGroups": ["cert-manager.io", "acme.cert-manager.io"], "apiVersions": ["v1"],
                "operations": operations, "resources": ["*/*"]}],
            "namespaceSelector": {"matchExpressions": [
                {"key": "cert-manager.io/disable-validation", "operator": "NotIn", "values": ["true"]}]},
            "clientConfig": {"caBundle": STANDARD.encode(&authority.pem), "service": {
                "name": "cert-manager-webhook", "namespace": "cert-manager", "path": path}},
        })
    };
    for (path, kind, hook) in [
        (MUTATING, "MutatingWebhookConfiguration", webhook("/mutate", &["CREATE"])),
        (VALIDATING, "ValidatingWebhookConfiguration", webhook("/validate", &["CREATE", "UPDATE"])),
    ] {
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "cert-manager-webhook"}, "webhooks": [hook],
        });
        world.post(path, &configuration).await.object();
    }
    let certificate = |name: &str, secret: &str| {
        json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": name},
            "spec": {"secretName": secret, "issuerRef": {"name": "ca"}}})
    };
    let certificates = "/apis/cert-manager.io/v1/namespaces/default/certificates";
    let made = world.post(certificates, &certificate("a", "tls")).await.object();
    assert_eq!(made["metadata"]["annotations"]["mutated"], "yes");
    let refused = world.post(certificates, &certificate("b", "")).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message(),
        "admission webhook \"webhook.cert-manager.io\" denied the request: spec.secretName: Required value: must be specified"
    );
    let paths: Vec<String> = server.requests().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths[..2], ["/mutate?timeout=30s", "/validate?timeout=30s"]);
    assert_eq!(server.requests()[0].server_name, "cert-manager-webhook.cert-manager.svc");
}

/// The pattern of controller-runtime's test environment: it replaces the Service by a URL on loopback, and the bundle by the serving
/// certificate itself.
#[tokio::test]
async fn wh_4_wh_6_the_configuration_of_controller_runtime_reaches_a_url() {
    let leaf = Leaf::self_signed(&["127.0.0.1"]);
    let bundle = leaf.cert_pem.clone();
    let server = TestServer::start(leaf, |seen| denied(seen, "not today")).await;
    let world = World::new().await;
    validating(&world, &by_url(&server, &bundle)).await;
    let refused = world.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(refused.message(), "admission webhook \"hook.example.com\" denied the request: not today");
    let seen = &server.requests()[0];
    assert_eq!(seen.path, "/hook?timeout=10s");
    let review: Value = json::from_str(&seen.body).unwrap();
    assert_eq!(review["request"]["object"]["metadata"]["name"], "a");
}

#[tokio::test]
async fn wh_31_failures_to_call_are_internal_errors_with_the_reason() {
    let authority = Authority::new();
    let world = World::new().await;
    let client = json!({"service": {"namespace": "shop", "name": "hook"}, "caBundle": STANDARD.encode(&authority.pem)});
    validating(&world, &client).await;
    let failed = async |why: &str| {
        let response = world.post(CONFIG_MAPS, &config_map("a")).await;
        assert_eq!(response.code, 500, "{}", response.text);
        let cause = format!(
            "failed calling webhook \"hook.example.com\": failed to call webhook: Post \"https://hook.shop.svc:443/?timeout=10s\": {why}"
        );
        assert_eq!(response.message(), format!("Internal error occurred: {cause}"));
        assert_eq!(response.json()["details"]["causes"][0]["message"], cause);
    };
    failed("service \"hook\" not found").await;
    world.service("shop", "hook").await;
    failed("no endpoints available for service \"hook\"").await;
    let service = json!({"metadata": {"name": "hook", "annotations": {"dogwatch.dev/endpoint": "127.0.0.1:1"}},
        "spec": {"ports": [{"port": 443}]}});
    world.delete("/api/v1/namespaces/shop/services/hook").await.object();
    world.post("/api/v1/namespaces/shop/services", &service).await.object();
    failed("dial tcp 127.0.0.1:1: connect: connection refused").await;
}

#[tokio::test]
async fn bd_7_a_webhook_that_nothing_serves_is_skipped_with_a_warning_if_asked() {
    let authority = Authority::new();
    let world = World::with(WebhookSettings { missing: MissingWebhooks::Skip, ..WebhookSettings::default() }).await;
    let client = json!({"url": "https://127.0.0.1:1/x", "caBundle": STANDARD.encode(&authority.pem)});
    validating(&world, &client).await;
    let made = world.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let warning = made.headers.get("warning").and_then(|value| value.to_str().ok()).unwrap_or_default();
    assert!(warning.contains("hook.example.com"), "{warning}");
}

#[tokio::test]
async fn wh_9_webhooks_that_misbehave_fail_in_their_time_and_others_do_not_notice() {
    let authority = Authority::new();
    let script = |seen: &Seen| match seen.path.split('?').next().unwrap_or_default() {
        "/hangs" => Reply::never(),
        "/drips" => Reply::endless(0),
        "/floods" => Reply::endless(1024 * 1024),
        _ => Reply::text("").status(307).header("location", "https://127.0.0.1:1/"),
    };
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), script).await;
    let world = World::new().await;
    for path in ["/hangs", "/drips", "/floods", "/redirects"] {
        let client = json!({"url": server.url(path), "caBundle": STANDARD.encode(&authority.pem)});
        let mut configuration = configuration("ValidatingWebhookConfiguration", &client);
        configuration["webhooks"][0]["timeoutSeconds"] = json!(1);
        world.post(VALIDATING, &configuration).await.object();
        let began = Instant::now();
        let object = config_map("a");
        let (refused, other) = tokio::join!(world.post(CONFIG_MAPS, &object), world.get("/api/v1/namespaces/default"));
        assert_eq!((refused.code.as_u16(), other.code.as_u16()), (500, 200), "{path}");
        assert!(began.elapsed() < Duration::from_secs(20), "{path} is not bounded");
        let prefix = "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: ";
        assert!(refused.message().starts_with(prefix), "{}", refused.message());
        world.delete(&format!("{VALIDATING}/hooks")).await.object();
    }
    let metrics = world.get("/metrics").await.text;
    assert!(metrics.contains("dogwatch_limit_used{name=\"webhook_bytes_total_max\"} 0"), "all memory is released");
    assert!(metrics.contains("dogwatch_webhook_calls_total{purpose=\"admission\",outcome=\"timeout\"}"), "{metrics}");
}

/// A webhook that writes the kind that it is called for: each write calls it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn wh_9_a_webhook_that_calls_back_in_a_loop_ends_with_its_time() {
    let authority = Authority::new();
    let world = Arc::new(World::new().await);
    let address = world.listen().await;
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), {
        move |seen| {
            let review: Value = json::from_str(&seen.body).unwrap_or_default();
            let depth = review["request"]["name"].as_str().map_or(0, str::len);
            // Blocks a thread of the runtime while it waits, as a simple server would.
            let name = "a".repeat(depth + 1);
            let answer = tokio::task::block_in_place(|| create(&address, &name));
            if answer.contains(" 201 ") { allowed(seen, None) } else { denied(seen, "the call back failed") }
        }
    })
    .await;
    let client = by_url(&server, &authority.pem);
    let mut configuration = configuration("ValidatingWebhookConfiguration", &client);
    configuration["webhooks"][0]["timeoutSeconds"] = json!(1);
    world.post(VALIDATING, &configuration).await.object();
    let began = Instant::now();
    let refused = world.post(CONFIG_MAPS, &config_map("a")).await;
    assert!(!refused.code.is_success(), "{}", refused.text);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(server.requests().len() > 1, "it was called back");
    world.delete(&format!("{VALIDATING}/hooks")).await.object();
    world.post(CONFIG_MAPS, &config_map("after")).await.object();
}

/// Creates a config map over a socket; returns the head of the answer. Gives up after a moment, since the write may wait.
fn create(address: &str, name: &str) -> String {
    use std::io::{Read as _, Write as _};
    let body = json::to_string(&config_map(name));
    let Ok(mut stream) = std::net::TcpStream::connect(address) else { return String::new() };
    let _ = stream.set_read_timeout(Some(Duration::from_millis(300)));
    let request = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        crate::world::TOKEN,
        body.len()
    );
    let mut head = [0; 64];
    let read = stream.write_all(request.as_bytes()).and_then(|()| stream.read(&mut head)).unwrap_or_default();
    String::from_utf8_lossy(&head[..read]).into_owned()
}

/// A webhook at `kubernetes.default.svc` is this server itself, which passes the review on to an aggregated server.
#[tokio::test]
async fn wh_5_a_webhook_at_the_server_itself_is_served_by_an_aggregated_server() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["admission.shop.svc"]), |seen| {
        if seen.method == "GET" {
            Reply::text("{\"resources\":[]}")
        } else {
            denied(seen, &seen.header("x-remote-user"))
        }
    })
    .await;
    let mut services = ServiceAddresses::default();
    services.add(&format!("shop/admission={}", server.address())).unwrap();
    let world = World::with(WebhookSettings { services, ..WebhookSettings::default() }).await;
    let service = json!({
        "metadata": {"name": "v1.admission.example.com"},
        "spec": {"group": "admission.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "shop", "name": "admission"}, "caBundle": STANDARD.encode(&authority.pem)},
    });
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    world.post(services, &service).await.object();
    let path = format!("{services}/v1.admission.example.com");
    crate::aggregation::wait_for(&world, &path, |found| found.text.contains("\"Passed\"")).await;
    let hook = json!({"service": {"namespace": "default", "name": "kubernetes", "path": "/apis/admission.example.com/v1/reviews"}});
    validating(&world, &hook).await;
    let refused = world.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(refused.message(), "admission webhook \"hook.example.com\" denied the request: system:apiserver");
}
