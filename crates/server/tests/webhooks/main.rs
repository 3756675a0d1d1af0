//! Calls of webhooks by their URL: what is sent, and what failures the registry gets. The webhooks are real TLS servers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outbound::Kubeconfig;
use outbound::testing::{Authority, Leaf, Reply, Seen, TestServer};
use registry::admission::webhooks::client::{CallFailure, HookCaller as _, HookClient, HookTarget};
use server::limits::Limits;
use server::metrics::Metrics;
use server::webhooks::credentials::HookCredentials;
use server::webhooks::{HttpsWebhooks, MissingWebhooks, WebhookSettings};

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn webhooks(settings: WebhookSettings) -> HttpsWebhooks {
    let limits = Limits::default();
    HttpsWebhooks::new(&limits, &Arc::new(Metrics::new(&limits)), settings)
}

fn hook(url: &str, bundle: &str) -> HookClient {
    HookClient { target: HookTarget::Url(url.to_owned()), ca_bundle: Bytes::copy_from_slice(bundle.as_bytes()) }
}

async fn serve(leaf: Leaf, script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> TestServer {
    TestServer::start(leaf, script).await
}

async fn call(webhooks: &HttpsWebhooks, hook: &HookClient) -> Result<Bytes, CallFailure> {
    webhooks.call(hook, Bytes::from_static(b"{\"review\":1}"), TEN_SECONDS).await
}

#[tokio::test]
async fn wh_1_a_review_is_posted_with_its_time_limit() {
    let authority = Authority::new();
    let server = serve(authority.leaf(&["127.0.0.1"]), |_| Reply::text("{}")).await;
    let webhooks = webhooks(WebhookSettings::default());
    let hook = hook(&server.url("/validate/"), &authority.pem);
    let answer = webhooks.call(&hook, Bytes::from_static(b"{}"), Duration::from_millis(9_500)).await.unwrap();
    assert_eq!(answer, "{}");
    let seen = &server.requests()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/validate?timeout=10s"));
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.header("accept"), "application/json, */*");
    assert_eq!(seen.header("user-agent"), "kube-apiserver-admission");
    assert_eq!(seen.header("authorization"), "");
}

/// The pattern of controller-runtime's test environment: a URL, and the server's own certificate as the bundle.
#[tokio::test]
async fn wh_6_a_url_with_the_servers_own_certificate_as_bundle_works() {
    let leaf = Leaf::self_signed(&["127.0.0.1"]);
    let bundle = leaf.cert_pem.clone();
    let server = serve(leaf, |_| Reply::text("{}")).await;
    let webhooks = webhooks(WebhookSettings::default());
    for _ in 0..3 {
        call(&webhooks, &hook(&server.url("/x"), &bundle)).await.unwrap();
    }
    assert_eq!(server.connections(), 1, "connections are kept");
}

#[tokio::test]
async fn wh_31_failures_to_connect_have_the_texts_of_the_reference() {
    let authority = Authority::new();
    let webhooks = webhooks(WebhookSettings::default());
    let failure = call(&webhooks, &hook("https://127.0.0.1:1/x", &authority.pem)).await.unwrap_err();
    assert_eq!(
        failure.text,
        "Post \"https://127.0.0.1:1/x?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    assert!(!failure.skip);
    let server = serve(Authority::new().leaf(&["127.0.0.1"]), |_| Reply::text("{}")).await;
    for bundle in [authority.pem.as_str(), "", " \n"] {
        let failure = call(&webhooks, &hook(&server.url("/a"), bundle)).await.unwrap_err();
        let why = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
        assert_eq!(failure.text, format!("Post \"{}\": {why}", server.url("/a?timeout=10s")));
    }
    let failure = call(&webhooks, &hook(&server.url("/a"), "nonsense")).await.unwrap_err();
    assert_eq!(failure.text, "unable to load root certificates: unable to parse bytes as PEM block");
}

#[tokio::test]
async fn wh_31_a_webhook_that_hangs_costs_its_time_limit() {
    let authority = Authority::new();
    let server = serve(authority.leaf(&["127.0.0.1"]), |request| match request.path.as_str() {
        "/silent?timeout=1s" => Reply::never(),
        _ => Reply::endless(0),
    })
    .await;
    let webhooks = webhooks(WebhookSettings::default());
    for (path, text) in [
        ("/silent", format!("Post \"{}\": context deadline exceeded", server.url("/silent?timeout=1s"))),
        (
            "/drips",
            "unexpected error when reading response body. Please retry. Original error: context deadline exceeded"
                .to_owned(),
        ),
    ] {
        let hook = hook(&server.url(path), &authority.pem);
        let failure = webhooks.call(&hook, Bytes::from_static(b"{}"), Duration::from_millis(300)).await.unwrap_err();
        assert_eq!(failure.text, text);
    }
}

#[tokio::test]
async fn wh_33_codes_that_are_no_success_are_failures() {
    let authority = Authority::new();
    let server = serve(authority.leaf(&["127.0.0.1"]), |request| match request.path.as_str() {
        "/302?timeout=10s" => Reply::text("").status(302).header("location", "https://127.0.0.1:1/"),
        "/404?timeout=10s" => Reply::text("").status(404),
        "/500?timeout=10s" => Reply::text("oops").status(500).header("content-type", "text/plain"),
        _ => Reply::text(""),
    })
    .await;
    let webhooks = webhooks(WebhookSettings::default());
    for (path, text) in [
        ("/302", "the server responded with the status code 302 but did not return more information"),
        ("/404", "the server could not find the requested resource"),
        ("/500", "an error on the server (\"oops\") has prevented the request from succeeding"),
        ("/empty", "0-length response with status code: 200 and content type: application/json"),
    ] {
        let failure = call(&webhooks, &hook(&server.url(path), &authority.pem)).await.unwrap_err();
        assert_eq!(failure.text, text);
    }
}

#[tokio::test]
async fn wh_9_an_answer_without_end_is_refused_and_its_memory_released() {
    let authority = Authority::new();
    let server = serve(authority.leaf(&["127.0.0.1"]), |_| Reply::endless(64 * 1024)).await;
    let limits = Limits { webhook_response_bytes_max: 1_000_000, ..Limits::default() };
    let metrics = Arc::new(Metrics::new(&limits));
    let webhooks = HttpsWebhooks::new(&limits, &metrics, WebhookSettings::default());
    let failure = call(&webhooks, &hook(&server.url("/"), &authority.pem)).await.unwrap_err();
    assert_eq!(
        failure.text,
        "unexpected error when reading response body. Please retry. Original error: the answer has more than 1000000 bytes"
    );
    assert_eq!(metrics.webhook_bytes.taken(), 0);
    let limits = Limits { webhook_bytes_total_max: 500_000, ..Limits::default() };
    let metrics = Arc::new(Metrics::new(&limits));
    let webhooks = HttpsWebhooks::new(&limits, &metrics, WebhookSettings::default());
    let failure = call(&webhooks, &hook(&server.url("/"), &authority.pem)).await.unwrap_err();
    assert!(failure.text.ends_with("the answers of all calls are too large together"), "{failure}");
    assert_eq!(metrics.webhook_bytes.taken(), 0);
}

#[tokio::test]
async fn wh_8_an_overloaded_webhook_is_asked_again() {
    let authority = Authority::new();
    let server = serve(authority.leaf(&["127.0.0.1"]), {
        let calls = std::sync::atomic::AtomicUsize::new(0);
        move |request| {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let always = request.path.starts_with("/always");
            if call < 2 || always { Reply::text("").status(429).header("retry-after", "0") } else { Reply::text("{}") }
        }
    })
    .await;
    let webhooks = webhooks(WebhookSettings::default());
    call(&webhooks, &hook(&server.url("/"), &authority.pem)).await.unwrap();
    assert_eq!(server.requests().len(), 3);
    let failure = call(&webhooks, &hook(&server.url("/always"), &authority.pem)).await.unwrap_err();
    assert_eq!(failure.text, "the server has received too many requests and has asked us to try again later");
    assert_eq!(server.requests().len(), 3 + 11, "one call and ten more");
}

#[tokio::test]
async fn wh_7_credentials_are_those_of_the_kubeconfig_for_the_host() {
    let authority = Authority::new();
    let server = serve(authority.leaf(&["127.0.0.1"]), |_| Reply::text("{}")).await;
    let text = format!("users: [{{name: '{}', user: {{token: secret}}}}]", server.address());
    let kubeconfig = Kubeconfig::parse(text.as_bytes(), std::path::Path::new(".")).unwrap();
    let credentials = HookCredentials::new(kubeconfig);
    let webhooks = webhooks(WebhookSettings { credentials, ..WebhookSettings::default() });
    call(&webhooks, &hook(&server.url("/"), &authority.pem)).await.unwrap();
    assert_eq!(server.requests()[0].header("authorization"), "Bearer secret");
}

#[tokio::test]
async fn bd_7_a_webhook_that_nothing_serves_is_skipped_if_asked() {
    let authority = Authority::new();
    let webhooks = webhooks(WebhookSettings { missing: MissingWebhooks::Skip, ..WebhookSettings::default() });
    assert!(call(&webhooks, &hook("https://127.0.0.1:1/", &authority.pem)).await.unwrap_err().skip);
    let server = serve(authority.leaf(&["127.0.0.1"]), |_| Reply::text("").status(500)).await;
    let failure = call(&webhooks, &hook(&server.url("/"), &authority.pem)).await.unwrap_err();
    assert!(!failure.skip, "a webhook that answers is not missing");
}

#[tokio::test]
async fn bd_6_webhooks_behind_services_are_trusted_by_the_certificate_that_was_made_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let now = machinery::clock::Clock::system().now();
    let authority = server::certs::webhooks::open(dir.path(), ["hook.n.svc".to_owned()].into_iter(), now).unwrap();
    let file = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let leaf = Leaf { cert_pem: file("tls.crt"), key_pem: file("tls.key"), chain_pem: String::new() };
    let server = serve(leaf, |_| Reply::text("{}")).await;
    let url = server.url("");
    let address = url.trim_start_matches("https://");
    let mut services = outbound::ServiceAddresses::default();
    services.add(&format!("n/hook={address}")).unwrap();
    services.add(&format!("n/other={address}")).unwrap();
    let settings = WebhookSettings { services, services_ca: authority.into(), ..WebhookSettings::default() };
    let webhooks = webhooks(settings);
    let behind = |name: &str, bundle: &str| HookClient {
        target: HookTarget::Service {
            namespace: "n".to_owned(),
            name: name.to_owned(),
            path: String::new(),
            port: 443,
        },
        ca_bundle: Bytes::copy_from_slice(bundle.as_bytes()),
    };
    assert_eq!(call(&webhooks, &behind("hook", "")).await.unwrap(), "{}");
    let refused = call(&webhooks, &behind("other", "")).await.unwrap_err();
    assert!(refused.text.contains("x509: certificate is valid for"), "{}", refused.text);
    let refused = call(&webhooks, &behind("hook", &Authority::new().pem)).await.unwrap_err();
    assert!(refused.text.contains("unknown authority"), "the caBundle decides where there is one: {}", refused.text);
    let refused = call(&webhooks, &hook(&server.url("/"), "")).await.unwrap_err();
    assert!(
        refused.text.contains("unknown authority"),
        "a URL is trusted by the roots of the system: {}",
        refused.text
    );
}
