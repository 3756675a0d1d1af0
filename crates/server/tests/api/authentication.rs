//! Credentials over a socket: certificates on open connections, refusals before routing, impersonation, and what the server
//! tells others about its tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::SignedDuration;
use machinery::clock::Clock;
use machinery::json::json;
use server::certs::{Leaf, Pki};

use crate::world::{PATIENCE, World};

/// A connection that stays open between requests.
async fn connection(world: &World, leaf: &Leaf) -> SendRequest<Full<Bytes>> {
    let (sender, connection) = http1::handshake(TokioIo::new(world.connect_with(Some(leaf)).await)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn get(connection: &mut SendRequest<Full<Bytes>>, path: &str) -> u16 {
    let request = Request::get(path).header("host", "x").body(Full::default()).unwrap();
    let response = connection.send_request(request).await.unwrap();
    let code = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    code
}

#[tokio::test]
async fn au_14_a_foreign_certificate_is_a_401_and_no_broken_handshake() {
    let world = World::start().await;
    let foreign = Pki::in_memory(&[], Clock::system().now()).unwrap();
    let mut connection = connection(&world, &foreign.admin).await;
    assert_eq!(get(&mut connection, "/api").await, 401);
    assert_eq!(get(&mut connection, "/healthz").await, 401, "AU-2: also on open paths");
}

#[tokio::test]
async fn au_15_ba_13_a_certificate_ends_on_an_open_connection() {
    let ahead = Arc::new(AtomicI64::new(0));
    let hours = Arc::clone(&ahead);
    let clock =
        Clock::from_fn(move || Clock::system().now() + SignedDuration::from_hours(hours.load(Ordering::Relaxed)));
    let world = World::with_clock(clock).await;
    let mut connection = connection(&world, &world.pki.admin).await;
    assert_eq!(get(&mut connection, "/api").await, 200);
    ahead.store(24 * 400, Ordering::Relaxed);
    assert_eq!(get(&mut connection, "/api").await, 401);
    ahead.store(0, Ordering::Relaxed);
    assert_eq!(get(&mut connection, "/api").await, 200);
}

#[tokio::test]
async fn au_5_a_token_after_two_blanks_is_ignored_with_a_warning() {
    let world = World::start().await;
    let answer = world.ask(false, "GET", "/api", &[("authorization", "Bearer  sesame")], "").await;
    assert_eq!(answer.code, 403);
    assert_eq!(
        answer.header("warning"),
        "299 - \"the provided Authorization header contains extra space before the bearer token, and is ignored\""
    );
}

#[tokio::test]
async fn au_75_76_a_401_comes_before_routing() {
    let world = World::start().await;
    for (method, path) in [("GET", "/nope"), ("PUT", "/api"), ("POST", "/apis/no/such/kinds"), ("GET", "/healthz")] {
        let answer = world.ask(false, method, path, &[("authorization", "Bearer nope")], "").await;
        assert_eq!(
            answer.json(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
                "reason": "Unauthorized", "code": 401,
            }),
            "{method} {path}"
        );
        assert_eq!(answer.header("cache-control"), "no-cache, private");
        assert!(answer.headers.contains_key("audit-id") && !answer.headers.contains_key("www-authenticate"));
        assert!(!answer.headers.contains_key("x-kubernetes-pf-flowschema-uid"));
    }
}

/// The reference does not let clients without credentials keep connections of HTTP/2.
#[tokio::test]
async fn http2_ends_after_a_response_without_credentials() {
    for (token, ends) in [(None, true), (Some("Bearer nope"), true), (Some("Bearer sesame"), false)] {
        let world = World::start().await;
        let io = TokioIo::new(world.connect_h2().await);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut request = Request::get("https://x/healthz");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        assert!(!response.headers().contains_key("connection"));
        response.into_body().collect().await.unwrap();
        assert_eq!(code, if token == Some("Bearer nope") { 401 } else { 200 });
        if ends {
            tokio::time::timeout(PATIENCE, connection).await.expect("the server ends the connection").unwrap().unwrap();
        } else {
            let again = Request::get("https://x/healthz").header("authorization", "Bearer sesame");
            assert_eq!(sender.send_request(again.body(Full::default()).unwrap()).await.unwrap().status(), 200);
        }
    }
}

#[tokio::test]
async fn au_62_im_10_a_review_names_the_impersonated_user() {
    let world = World::start().await;
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let headers = [("content-type", "application/json"), ("impersonate-user", "bob"), ("impersonate-group", "devs")];
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = world.ask(true, "POST", path, &headers, body.clone()).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    let found = answer.json();
    assert_eq!(found["status"]["userInfo"], json!({"username": "bob", "groups": ["devs", "system:authenticated"]}));
    assert!(found["metadata"]["creationTimestamp"].is_string());
    let anonymous = world.ask(false, "POST", path, &[("content-type", "application/json")], body).await;
    assert_eq!(anonymous.code, 403);
}

#[tokio::test]
async fn im_13_refusals_are_not_for_browsers() {
    let world = World::start().await;
    let refused = world.ask(false, "GET", "/api", &[("impersonate-user", "bob")], "").await;
    assert_eq!(refused.code, 403);
    assert!(refused.text().contains("cannot impersonate-on:user-info:get path \\\"/api\\\""), "{}", refused.text());
    assert_eq!(refused.header("x-content-type-options"), "nosniff");
    let nameless = world.ask(true, "GET", "/api", &[("impersonate-group", "devs")], "").await;
    assert_eq!(nameless.code, 400);
    assert_eq!(nameless.header("x-content-type-options"), "nosniff");
}

#[tokio::test]
async fn au_72_others_can_verify_tokens() {
    let world = World::start().await;
    let document = world.get("/.well-known/openid-configuration").await;
    assert_eq!(document.code, 200);
    assert_eq!(document.header("content-type"), "application/json");
    assert_eq!(document.header("cache-control"), "public, max-age=3600");
    assert_eq!(
        document.json(),
        json!({
            "issuer": "https://kubernetes.default.svc.cluster.local",
            "jwks_uri": format!("https://{}/openid/v1/jwks", world.address),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    );
    let keys = world.get("/openid/v1/jwks").await;
    assert_eq!(keys.header("content-type"), "application/jwk-set+json");
    let key = &keys.json()["keys"][0];
    assert_eq!(
        (key["kty"].as_str(), key["use"].as_str(), key["alg"].as_str()),
        (Some("EC"), Some("sig"), Some("ES256"))
    );
    assert!(key["kid"].is_string() && key["x"].is_string() && key.get("d").is_none());
    assert_eq!(world.ask(false, "GET", "/openid/v1/jwks", &[], "").await.code, 403, "not for strangers");
}
