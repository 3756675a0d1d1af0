//! Limits on size, number and time: each is enforced and counted.

use std::time::Duration;

use std::sync::Arc;

use access::authorizer::{Attributes, Authorizer, Decision, Verdict, What};
use server::limits::Limits;

use crate::world::World;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn s02_14_30_a_body_of_3_mib_and_one_is_too_large() {
    let world = World::start().await;
    let json_type = [("content-type", "application/json")];
    let answer = world.ask(true, "POST", MAPS, &json_type, vec![b' '; 3 * 1024 * 1024 + 1]).await;
    assert_eq!(answer.refusal(), (413, "Request entity too large: limit is 3145728".to_owned()));
    let far = world.ask(true, "POST", MAPS, &json_type, vec![b' '; 8 * 1024 * 1024]).await;
    assert_eq!(far.code, 413, "the answer is seen although the body was sent");
    let exact = world.ask(true, "POST", MAPS, &json_type, vec![b' '; 3 * 1024 * 1024]).await;
    assert_eq!(exact.code, 400, "as large as may be, and nothing in it");
    let metrics = world.get("/metrics").await;
    assert!(metrics.text().contains("dogwatch_limit_refusals_total{name=\"body_bytes_max\"} 2"));
}

#[tokio::test]
async fn requests_beyond_the_limit_get_429() {
    let world = World::with(Limits { inflight_reads_max: 0, inflight_writes_max: 0, ..Limits::default() }).await;
    let alice = [("authorization", "Bearer sesame"), ("content-type", "application/json")];
    for (method, path) in [("GET", "/api/v1/nodes"), ("POST", MAPS)] {
        let answer = world.ask(false, method, path, &alice, "{}").await;
        assert_eq!((answer.code, answer.text()), (429, "Too many requests, please try again later.\n"));
        assert_eq!(answer.header("retry-after"), "1");
    }
    assert_eq!(world.get("/api/v1/nodes").await.code, 200, "masters are exempt");
}

#[tokio::test]
async fn watches_beyond_the_limit_get_429() {
    let world = World::with(Limits { watches_max: 1, ..Limits::default() }).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1";
    let first = world.open(true, "GET", path, &[], "").await;
    assert_eq!(first.status(), 200);
    assert_eq!(world.get(path).await.code, 429);
    drop(first);
    let freed = async {
        while world.server.metrics().watches_open.taken() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), freed).await.expect("the slot is free within a second");
    assert_eq!(world.open(true, "GET", path, &[], "").await.status(), 200);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_times_out() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = World::with(Limits { request_timeout: Duration::from_millis(200), ..Limits::default() }).await;
    let mut stream = world.connect(true).await;
    let head =
        format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(answer.contains("Timeout: request did not complete within the allotted timeout"), "{answer}");
}

/// Panics for one path, denies another after a while, and allows the rest.
struct Unreliable;

impl Authorizer for Unreliable {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        match attributes.what {
            What::Path("/panic") => panic!("on purpose"),
            What::Path("/later") => Verdict::Later(Box::pin(async {
                tokio::task::yield_now().await;
                Decision::deny("on a bad day")
            })),
            _ => Verdict::Now(Decision::allow("")),
        }
    }
}

#[tokio::test]
async fn a_panic_is_an_answer_and_the_connection_lives_on() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = World::with_authorizer(Limits::default(), Arc::new(Unreliable)).await;
    let mut stream = world.connect(true).await;
    let mut ask = async |path: &str| {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let count = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut answer)).await.unwrap().unwrap();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    };
    let panicked = ask("/panic").await;
    assert!(panicked.starts_with("HTTP/1.1 500 ") && panicked.contains("\"reason\":\"InternalError\""), "{panicked}");
    assert!(ask("/healthz").await.ends_with("ok"));
    let metrics = world.get("/metrics").await;
    assert!(metrics.text().contains("dogwatch_request_panics_total 1"));
}

#[tokio::test]
async fn an_authorizer_may_take_its_time_and_give_a_reason() {
    let world = World::with_authorizer(Limits::default(), Arc::new(Unreliable)).await;
    assert_eq!(
        world.get("/later").await.refusal(),
        (403, "forbidden: User \"kubernetes-admin\" cannot get path \"/later\": on a bad day".to_owned())
    );
}
