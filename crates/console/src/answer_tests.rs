//! Tests of the answers: files, tokens, and who is kept out.

use super::*;

fn console() -> Console {
    Console::new(b"secret", vec!["api.example".to_owned()])
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Bytes> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Bytes::from(body.to_owned())).unwrap()
}

fn code(method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    console().answer(&request(method, path, headers, ""), 0).status().as_u16()
}

const HOST: (&str, &str) = ("host", "127.0.0.1:6443");

#[test]
fn files_are_compressed_and_revalidated() {
    let (console, gzip) = (console(), ("accept-encoding", "br, gzip"));
    let first = console.answer(&request("GET", PATH, &[HOST, gzip], ""), 0);
    assert_eq!(first.status(), 200);
    assert_eq!(first.headers()["content-encoding"], "gzip");
    assert_eq!(first.headers()["content-type"], "text/html; charset=utf-8");
    let plain = console.answer(&request("GET", PATH, &[HOST], ""), 0);
    assert!(plain.body().starts_with(b"<!doctype html>") && plain.headers().get("content-encoding").is_none());
    let etag = first.headers()["etag"].to_str().unwrap();
    let again = console.answer(&request("GET", PATH, &[HOST, ("if-none-match", etag)], ""), 0);
    assert_eq!((again.status().as_u16(), again.body().len()), (304, 0));
    assert_eq!(console.answer(&request("GET", "/console", &[HOST], ""), 0).headers()["location"], "/console/");
}

#[test]
fn every_answer_has_the_policy() {
    for path in [PATH, "/console/nothing", "/console/token"] {
        let answer = console().answer(&request("GET", path, &[HOST], ""), 0);
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    }
}

#[test]
fn names_of_other_hosts_are_refused() {
    for own in ["127.0.0.1:6443", "localhost:1", "LOCALHOST", "[::1]:6443", "10.0.0.7", "api.example:6443"] {
        assert_eq!(code("GET", PATH, &[("host", own)]), 200, "{own}");
    }
    for other in ["", "evil.example", "127.0.0.1.evil.example:6443", "localhost.evil.example", "evil.example:6443"] {
        assert_eq!(code("GET", PATH, &[("host", other)]), 403, "{other}");
    }
    assert_eq!(code("GET", PATH, &[HOST, ("host", "evil.example")]), 403);
}

#[test]
fn a_code_becomes_a_token_for_pages_of_this_origin() {
    let console = console();
    let code = console.visitors().issue_code(0);
    let post = |headers: &[(&str, &str)], body: &str| console.answer(&request("POST", TOKEN_PATH, headers, body), 1);
    for foreign in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        assert_eq!(post(&[HOST, foreign], &code).status(), 403, "{foreign:?}");
    }
    let own = [HOST, ("origin", "https://127.0.0.1:6443"), ("sec-fetch-site", "same-origin")];
    assert_eq!(post(&own, "wrong").status(), 401);
    let answer = post(&own, &code);
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["cache-control"]),
        (200, &HeaderValue::from_static("no-store"))
    );
    let answer: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    let token = answer["token"].as_str().unwrap();
    assert!(console.visitors().is_valid(token, 2));
    assert_eq!(post(&own, &code).status(), 401, "a code works once");
    let bearer = format!("Bearer {token}");
    assert_eq!(post(&[own[0], own[1], ("authorization", &bearer)], "").status(), 200);
    assert_eq!(post(&[own[0], own[1], ("authorization", "Bearer dwc.1.2.3")], "").status(), 401);
}

#[test]
fn other_methods_are_refused() {
    for method in ["PUT", "DELETE", "OPTIONS", "POST"] {
        assert_eq!(code(method, PATH, &[HOST]), 405, "{method}");
    }
    assert_eq!(code("GET", "/console/../secret", &[HOST]), 404);
}
