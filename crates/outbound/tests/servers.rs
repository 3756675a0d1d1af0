//! Calls of real TLS servers: what is trusted, what is refused and with which text, which connections are shared, what is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use outbound::testing::{Authority, Leaf, Reply, TestServer, acceptor};
use outbound::{
    Budget, Charge, Client, ClientLimits, Credential, Endpoint, ErrorKind, Identity, Kubeconfig, Request, Roots,
    TlsOptions,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn client() -> Client {
    Client::new(ClientLimits::default())
}

fn trusting(client: &Client, pem: &str) -> outbound::Tls {
    client.tls(&TlsOptions { roots: Roots::bundle(pem), ..TlsOptions::default() }).unwrap()
}

async fn post(client: &Client, url: &str, roots: &str) -> Result<outbound::Answer, outbound::Error> {
    let endpoint = Endpoint::new(url, trusting(client, roots)).unwrap();
    client.send(&endpoint, Request::post_json("{}").timeout(Duration::from_secs(10))).await
}

#[tokio::test]
async fn wh_4_a_url_is_called_and_its_connection_kept() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |_| Reply::text("fine")).await;
    let client = client();
    let url = server.url("/validate?timeout=10s");
    for _ in 0..3 {
        let answer = post(&client, &url, &authority.pem).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"fine"[..]));
    }
    assert_eq!(server.connections(), 1);
    let seen = server.requests();
    assert_eq!(seen[0].method, Method::POST);
    assert_eq!(seen[0].path, "/validate?timeout=10s");
    assert_eq!(seen[0].header("host"), server.address());
    assert_eq!(seen[0].header("content-type"), "application/json");
    assert_eq!(seen[0].body, "{}");
}

#[tokio::test]
async fn wh_6_connections_are_shared_per_configuration() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |_| Reply::text("")).await;
    let client = client();
    let other = Authority::new();
    post(&client, &server.url("/a"), &authority.pem).await.unwrap();
    post(&client, &server.url("/b"), &authority.pem).await.unwrap();
    post(&client, &server.url("/c"), &format!("{}{}", authority.pem, other.pem)).await.unwrap();
    assert_eq!(server.connections(), 2, "other roots have connections of their own");
}

#[tokio::test]
async fn a_kept_connection_that_ended_is_replaced() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |_| Reply::text("").last()).await;
    let client = client();
    for _ in 0..3 {
        post(&client, &server.url("/"), &authority.pem).await.unwrap();
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_read_on_a_kept_connection_that_fails_is_sent_again() {
    let authority = Authority::new();
    // Closes each connection when it gets its second request.
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), {
        let calls = AtomicUsize::new(0);
        move |_| if calls.fetch_add(1, Ordering::Relaxed) == 1 { Reply::close() } else { Reply::text("") }
    })
    .await;
    let client = client();
    let endpoint = Endpoint::new(&server.url("/"), trusting(&client, &authority.pem)).unwrap();
    client.send(&endpoint, Request::get()).await.unwrap();
    client.send(&endpoint, Request::get()).await.unwrap();
    assert_eq!((server.requests().len(), server.connections()), (3, 2));
}

#[tokio::test]
async fn wh_6_a_leaf_in_the_bundle_is_trusted_as_go_trusts_it() {
    let authority = Authority::new();
    for leaf in [authority.leaf(&["127.0.0.1"]), Leaf::self_signed(&["127.0.0.1"])] {
        let server = TestServer::start(leaf.clone(), |_| Reply::text("")).await;
        post(&client(), &server.url("/"), &leaf.cert_pem).await.unwrap();
        let other = authority.leaf(&["127.0.0.1"]);
        let error = post(&client(), &server.url("/"), &other.cert_pem).await.unwrap_err();
        assert_eq!(error.why(), "tls: failed to verify certificate: x509: certificate signed by unknown authority");
    }
}

#[tokio::test]
async fn wh_6_a_leaf_in_the_bundle_is_no_authority_for_others() {
    let authority = Authority::new();
    let (leaf, signed_by_leaf) = authority.leaf_that_signs(&["127.0.0.1"]);
    let server = TestServer::start(signed_by_leaf, |_| Reply::text("")).await;
    let error = post(&client(), &server.url("/"), &leaf.cert_pem).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
}

#[tokio::test]
async fn wh_6_an_authority_that_serves_itself_is_trusted_in_the_bundle() {
    let authority = Authority::named(&["127.0.0.1"]);
    let server = TestServer::start(authority.own_leaf(), |_| Reply::text("")).await;
    post(&client(), &server.url("/"), &authority.pem).await.unwrap();
}

#[tokio::test]
async fn wh_6_an_intermediate_authority_leads_to_the_root() {
    let authority = Authority::new();
    let server = TestServer::start(authority.intermediate().leaf(&["127.0.0.1"]), |_| Reply::text("")).await;
    post(&client(), &server.url("/"), &authority.pem).await.unwrap();
}

#[tokio::test]
async fn wh_31_certificates_that_are_not_accepted_have_the_texts_of_go() {
    let authority = Authority::new();
    let prefix = "tls: failed to verify certificate: x509: ";
    for (leaf, why) in [
        (Authority::new().leaf(&["127.0.0.1"]), "certificate signed by unknown authority".to_owned()),
        (
            authority.leaf(&["10.0.0.1", "10.0.0.2"]),
            "certificate is valid for 10.0.0.1, 10.0.0.2, not 127.0.0.1".to_owned(),
        ),
        (
            authority.leaf(&["a.example"]),
            "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs".to_owned(),
        ),
        (authority.client_leaf(&["127.0.0.1"]), "certificate specifies an incompatible key usage".to_owned()),
    ] {
        let server = TestServer::start(leaf, |_| Reply::text("")).await;
        let url = server.url("/");
        let error = post(&client(), &url, &authority.pem).await.unwrap_err();
        assert_eq!(error.to_string(), format!("Post \"{url}\": {prefix}{why}"));
    }
    let server = TestServer::start(authority.leaf(&["a.example", "b.example"]), |_| Reply::text("")).await;
    let client = client();
    let tls = trusting(&client, &authority.pem);
    let endpoint = Endpoint::new("https://c.example:443/x", tls).unwrap().at(server.address());
    let error = client.send(&endpoint, Request::get()).await.unwrap_err();
    let why = "certificate is valid for a.example, b.example, not c.example";
    assert_eq!(error.to_string(), format!("Get \"https://c.example:443/x\": {prefix}{why}"));
}

#[tokio::test]
async fn wh_31_a_certificate_outside_its_time_has_the_text_of_go() {
    let authority = Authority::new();
    for (leaf, relation) in [
        (authority.leaf_of_years(2001, 2002), "is after 2002-01-01T00:00:00Z"),
        (authority.leaf_of_years(2090, 2091), "is before 2090-01-01T00:00:00Z"),
    ] {
        let pem = leaf.cert_pem.clone();
        let server = TestServer::start(leaf, |_| Reply::text("")).await;
        // The leaf itself is trusted, which does not make it valid.
        let error = post(&client(), &server.url("/"), &format!("{}{pem}", authority.pem)).await.unwrap_err();
        let prefix =
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time ";
        assert!(error.why().starts_with(prefix) && error.why().ends_with(relation), "{error}");
    }
}

#[tokio::test]
async fn wh_31_an_authority_outside_its_time_vouches_for_no_server() {
    let (expired, later, valid) = (Authority::of_years(2001, 2002), Authority::of_years(2090, 2091), Authority::new());
    let other = Authority::of_years(2003, 2004);
    let bundle = format!("{}{}{}{}", other.pem, expired.pem, later.pem, valid.pem);
    let prefix = "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time ";
    for (authority, relation) in
        [(&expired, "is after 2002-01-01T00:00:00Z"), (&later, "is before 2090-01-01T00:00:00Z")]
    {
        for leaf in [authority.leaf(&["127.0.0.1"]), authority.intermediate().leaf(&["127.0.0.1"])] {
            let server = TestServer::start(leaf, |_| Reply::text("")).await;
            for roots in [&authority.pem, &bundle] {
                let error = post(&client(), &server.url("/"), roots).await.unwrap_err();
                assert!(error.why().starts_with(prefix) && error.why().ends_with(relation), "{error}");
            }
        }
    }
    // The others of the bundle still vouch, and an authority that is not in it is still unknown.
    let server = TestServer::start(valid.leaf(&["127.0.0.1"]), |_| Reply::text("")).await;
    post(&client(), &server.url("/"), &bundle).await.unwrap();
    let server = TestServer::start(Authority::new().leaf(&["127.0.0.1"]), |_| Reply::text("")).await;
    let error = post(&client(), &server.url("/"), &bundle).await.unwrap_err();
    assert!(error.why().ends_with("x509: certificate signed by unknown authority"), "{error}");
}

#[tokio::test]
async fn each_connection_verifies_the_server_again() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |_| Reply::text("").last()).await;
    let client = client();
    for _ in 0..2 {
        post(&client, &server.url("/"), &authority.pem).await.unwrap();
    }
    assert_eq!(server.connections(), 2);
    assert!(server.requests().iter().all(|seen| !seen.is_resumed), "a resumed session is not verified");
}

#[tokio::test]
async fn wh_31_a_certificate_that_has_only_a_common_name_is_refused() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf_with_common_name_only("c.example"), |_| Reply::text("")).await;
    let client = client();
    let endpoint = |host: &str| {
        Endpoint::new(&format!("https://{host}/"), trusting(&client, &authority.pem)).unwrap().at(server.address())
    };
    let error = client.send(&endpoint("c.example"), Request::get()).await.unwrap_err();
    assert!(error.why().ends_with("x509: certificate relies on legacy Common Name field, use SANs instead"), "{error}");
    let error = client.send(&endpoint("d.example"), Request::get()).await.unwrap_err();
    assert!(
        error.why().ends_with("x509: certificate is not valid for any names, but wanted to match d.example"),
        "{error}"
    );
}

#[tokio::test]
async fn wh_5_the_address_of_a_service_differs_from_its_name() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["hook.shop.svc"]), |_| Reply::text("")).await;
    let client = client();
    let tls = trusting(&client, &authority.pem);
    let endpoint = Endpoint::new("https://hook.shop.svc:443/x?timeout=5s", tls).unwrap().at(server.address());
    client.send(&endpoint, Request::post_json("{}")).await.unwrap();
    assert_eq!(server.requests()[0].header("host"), "hook.shop.svc:443");
    assert_eq!(server.requests()[0].server_name, "hook.shop.svc");
}

#[tokio::test]
async fn wh_31_servers_that_cannot_be_reached_have_the_texts_of_go() {
    let authority = Authority::new();
    let error = post(&client(), "https://127.0.0.1:1/x?timeout=10s", &authority.pem).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Post \"https://127.0.0.1:1/x?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    assert!(error.is_unreachable());
    let error = post(&client(), "https://no-such-host.invalid/", &authority.pem).await.unwrap_err();
    assert_eq!(error.why(), "dial tcp: lookup no-such-host.invalid: no such host");
    let plain = TestServer::plain(|_| Reply::text("")).await;
    let error = post(&client(), &plain.url("/").replace("http:", "https:"), &authority.pem).await.unwrap_err();
    assert_eq!(error.why(), "http: server gave HTTP response to HTTPS client");
    let closing = TestServer::start(authority.leaf(&["127.0.0.1"]), |_| Reply::close()).await;
    let error = post(&client(), &closing.url("/"), &authority.pem).await.unwrap_err();
    assert_eq!((error.why(), error.kind()), ("EOF", ErrorKind::Closed));
    assert!(!error.is_unreachable());
}

#[tokio::test]
async fn wh_31_a_call_ends_with_its_time() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |request| match request.path.as_str() {
        "/silent" => Reply::never(),
        _ => Reply::endless(0),
    })
    .await;
    let client = client();
    for (path, reading) in [("/silent", false), ("/dripping", true)] {
        let endpoint = Endpoint::new(&server.url(path), trusting(&client, &authority.pem)).unwrap();
        let request = Request::get().timeout(Duration::from_millis(300));
        let error = client.send(&endpoint, request).await.unwrap_err();
        assert_eq!((error.why(), error.kind()), ("context deadline exceeded", ErrorKind::Timeout));
        assert_eq!(error.while_reading(), reading, "{path}");
    }
}

#[tokio::test]
async fn wh_9_redirects_are_answers() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |_| {
        Reply::text("").status(302).header("location", "https://127.0.0.1:1/")
    })
    .await;
    let answer = post(&client(), &server.url("/"), &authority.pem).await.unwrap();
    assert_eq!(answer.status, StatusCode::FOUND);
}

#[derive(Debug)]
struct Shared(Arc<AtomicUsize>, usize);

struct Share(Arc<AtomicUsize>, usize, usize);

impl Budget for Shared {
    fn charge(&self) -> Box<dyn Charge> {
        Box::new(Share(Arc::clone(&self.0), 0, self.1))
    }
}

impl Charge for Share {
    fn grow(&mut self, bytes: usize) -> bool {
        self.1 += bytes;
        self.0.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.2
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn wh_9_an_answer_is_bounded_alone_and_together_with_others() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |request| match request.path.as_str() {
        "/endless" => Reply::endless(64 * 1024),
        _ => Reply::text(&"x".repeat(60_000)),
    })
    .await;
    let used = Arc::new(AtomicUsize::new(0));
    let client = Client::new(ClientLimits { answer_bytes_max: 100_000, ..ClientLimits::default() })
        .with_budget(Arc::new(Shared(Arc::clone(&used), 100_000)));
    let error = post(&client, &server.url("/endless"), &authority.pem).await.unwrap_err();
    assert_eq!((error.why(), error.kind()), ("the answer has more than 100000 bytes", ErrorKind::TooLarge));
    assert_eq!(used.load(Ordering::Relaxed), 0, "a failed answer is released");
    let held = post(&client, &server.url("/"), &authority.pem).await.unwrap();
    assert_eq!(used.load(Ordering::Relaxed), 60_000, "an answer is charged while it is used");
    let error = post(&client, &server.url("/"), &authority.pem).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBudget);
    drop(held);
    assert_eq!(used.load(Ordering::Relaxed), 0);
    post(&client, &server.url("/"), &authority.pem).await.unwrap();
}

/// Go reads the end of a connection as the end of an answer without a length, though TLS has a message for it.
#[tokio::test]
async fn an_answer_may_end_with_its_connection() {
    let authority = Authority::new();
    let acceptor = acceptor(&authority.leaf(&["127.0.0.1"]));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        for answer in ["HTTP/1.0 200 OK\r\n\r\nfine", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine"] {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            // Closed without a `close_notify` message.
        }
    });
    assert_eq!(&post(&client(), &url, &authority.pem).await.unwrap().body[..], b"fine");
    let error = post(&client(), &url, &authority.pem).await.unwrap_err();
    assert!(error.why().ends_with("unexpected EOF"), "{error}");
    server.await.unwrap();
}

#[tokio::test]
async fn wh_7_a_client_certificate_and_a_token_are_sent() {
    let authority = Authority::new();
    let server = TestServer::with_clients(authority.leaf(&["127.0.0.1"]), &authority.pem, |_| Reply::text("")).await;
    let client = client();
    let mine = authority.client_leaf(&["caller"]);
    let identity = Identity { certificate_pem: mine.cert_pem.into(), key_pem: mine.key_pem.into() };
    let roots = Roots::bundle(authority.pem.as_str());
    let tls = client.tls(&TlsOptions { roots, identity: Some(identity), server_name: None }).unwrap();
    let endpoint = Endpoint::new(&server.url("/"), tls).unwrap().with_credential(Credential::bearer("secret"));
    client.send(&endpoint, Request::get()).await.unwrap();
    assert_eq!(server.requests()[0].header("authorization"), "Bearer secret");
    assert_eq!(server.requests()[0].client_certificates, 1);
    assert!(!format!("{endpoint:?}").contains("secret"));
    let error = post(&client, &server.url("/"), &authority.pem).await.unwrap_err();
    assert_eq!(error.why(), "remote error: tls: certificate required");
}

#[tokio::test]
async fn a_kubeconfig_is_an_endpoint() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["hook.example"]), |_| Reply::text("")).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.crt"), &authority.pem).unwrap();
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nclusters:\n- name: c\n  cluster: \
         {{server: '{}', certificate-authority: ca.crt, tls-server-name: hook.example}}\nusers: [{{name: u, user: {{username: \
         a, password: b}}}}]\n",
        server.url("/authorize")
    );
    std::fs::write(folder.path().join("config"), text).unwrap();
    let client = client();
    let endpoint = Kubeconfig::read(&folder.path().join("config")).unwrap().endpoint(&client).unwrap();
    client.send(&endpoint, Request::post_json("{}")).await.unwrap();
    let seen = &server.requests()[0];
    assert_eq!(seen.path, "/authorize");
    assert_eq!(seen.header("authorization"), "Basic YTpi");
}

#[tokio::test]
async fn any_certificate_is_accepted_where_verification_is_off() {
    let server = TestServer::start(Leaf::self_signed(&["other"]), |_| Reply::text("")).await;
    let client = client();
    let tls = client.tls(&TlsOptions { roots: Roots::Unverified, ..TlsOptions::default() }).unwrap();
    let endpoint = Endpoint::new(&server.url("/"), tls).unwrap();
    client.send(&endpoint, Request::get()).await.unwrap();
}

#[tokio::test]
async fn cw_3_without_a_bundle_the_roots_of_the_system_count() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |_| Reply::text("")).await;
    let error = post(&client(), &server.url("/"), "").await.unwrap_err();
    assert_eq!(error.why(), "tls: failed to verify certificate: x509: certificate signed by unknown authority");
}

/// Roots are read once in a process, and found by its environment: the call is made by a process of its own.
#[tokio::test]
async fn cw_3_a_server_that_the_roots_of_the_system_vouch_for_is_called_without_a_bundle() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |_| Reply::text("")).await;
    let roots = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(roots.path(), &authority.pem).unwrap();
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "calls_a_url_of_the_environment"])
        .env("SSL_CERT_FILE", roots.path())
        .env(URL_VARIABLE, server.url("/"))
        .output();
    let output = child.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(server.requests().len(), 1);
}

const URL_VARIABLE: &str = "OUTBOUND_TEST_URL";

/// The other half of the test above; alone it has nothing to call.
#[tokio::test]
async fn calls_a_url_of_the_environment() {
    if let Ok(url) = std::env::var(URL_VARIABLE) {
        post(&client(), &url, "").await.unwrap();
    }
}

#[tokio::test]
async fn a_bundle_without_a_certificate_is_refused() {
    let options = TlsOptions { roots: Roots::bundle("nonsense"), ..TlsOptions::default() };
    let error = client().tls(&options).unwrap_err();
    assert_eq!(error.to_string(), "unable to load root certificates: unable to parse bytes as PEM block");
}

#[tokio::test]
async fn bd_8_a_loopback_address_that_refuses_is_tried_again_if_asked() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["127.0.0.1"]);
    let address = outbound::testing::free_address().await;
    let client = client();
    let endpoint = Endpoint::new(&format!("https://{address}/"), trusting(&client, &authority.pem)).unwrap();
    let request = Request { refused_wait: Duration::from_secs(20), ..Request::get() };
    let call = {
        let (client, endpoint) = (client.clone(), endpoint.clone());
        tokio::spawn(async move { client.send(&endpoint, request).await })
    };
    let server = TestServer::start_at(&address, leaf, |_| Reply::text("")).await;
    call.await.unwrap().unwrap();
    assert_eq!(server.connections(), 1);
    drop(server);
    let error = post(&client, "https://127.0.0.1:1/", &authority.pem).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "not by default");
}

#[tokio::test]
async fn agg_6_bodies_are_streamed_and_upgrades_passed_on() {
    let authority = Authority::new();
    let server = TestServer::start(authority.leaf(&["127.0.0.1"]), |request| match request.path.as_str() {
        "/watch" => Reply::endless(10),
        _ => Reply::upgrade(),
    })
    .await;
    let client = client();
    let endpoint = Endpoint::new(&server.url(""), trusting(&client, &authority.pem)).unwrap();
    let request = http::Request::builder().uri("/watch").body(outbound::empty()).unwrap();
    let mut watch = client.open(&endpoint, request).await.unwrap();
    let first = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(!first.is_empty());
    drop(watch);
    let request = http::Request::builder()
        .uri("/exec")
        .header("connection", "upgrade")
        .header("upgrade", "echo")
        .body(outbound::empty())
        .unwrap();
    let mut response = client.open(&endpoint, request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    let mut stream = hyper_util::rt::TokioIo::new(upgraded);
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"ping").await.unwrap();
    let mut back = [0; 4];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut back).await.unwrap();
    assert_eq!(&back, b"ping");
}
