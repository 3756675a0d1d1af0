//! Bounds on what one client can hold or delay: places, bodies, unread responses, selectors, the pool for heavy requests.

use std::time::Duration;

use machinery::json::json;
use server::limits::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{PATIENCE, World};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ALICE: [(&str, &str); 2] = [("authorization", "Bearer sesame"), ("content-type", "application/json")];

/// Sends the head of a write, and its body only after the server had time to refuse it.
async fn refused_early(world: &World, admin: bool, path: &str, more: &str) -> String {
    let mut stream = world.connect(admin).await;
    let body = json!({"metadata": {"name": "there"}}).to_string();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    stream.write_all(body.as_bytes()).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut read = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("an end").unwrap();
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_refusal_before_the_body_is_read_reaches_the_client() {
    let world = World::start().await;
    world.make_config_map("there", "").await;
    for (code, admin, path, more) in [
        (404, true, "/apis/nope.example.com/v1/namespaces/default/things", ""),
        (403, false, MAPS, ""),
        (401, false, MAPS, "Authorization: Bearer nope\r\n"),
        (415, true, MAPS, "Content-Type: text/plain\r\n"),
        (409, true, MAPS, ""),
    ] {
        let answers = refused_early(&world, admin, path, more).await;
        assert!(answers.starts_with(&format!("HTTP/1.1 {code} ")), "{code}: {answers}");
        assert!(answers.contains("HTTP/1.1 200 OK"), "the connection is still usable: {answers}");
    }
}

#[tokio::test]
async fn a_connection_with_too_much_unread_is_closed_and_the_refusal_is_seen() {
    let world = World::with(Limits { discard_bytes_max: 10, ..Limits::default() }).await;
    let answers = refused_early(&world, false, MAPS, "").await;
    assert!(answers.starts_with("HTTP/1.1 403 "), "{answers}");
    assert!(answers.contains("connection: close\r\n"), "{answers}");
    assert!(!answers.contains("HTTP/1.1 200"), "{answers}");
}

#[tokio::test]
async fn a_client_that_waits_for_continue_is_not_asked_for_the_body_of_a_refused_request() {
    let world = World::start().await;
    let mut stream = world.connect(false).await;
    let head = format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("an end").unwrap();
    let answer = String::from_utf8(read).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn writes_whose_body_does_not_arrive_hold_no_place() {
    let limits = Limits {
        inflight_writes_max: 2,
        body_grace: Duration::from_millis(100),
        body_bytes_per_second_min: 1 << 20,
        ..Limits::default()
    };
    let world = World::with(limits).await;
    let mut slow = Vec::new();
    for _ in 0..10 {
        let mut stream = world.connect(false).await;
        let head = format!(
            "POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sesame\r\nContent-Type: application/json\r\n\
             Content-Length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let body = json!({"metadata": {"name": "quick"}}).to_string();
    assert_eq!(world.ask(false, "POST", MAPS, &ALICE, body).await.code, 201);
    for stream in &mut slow {
        let mut read = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("an end").unwrap();
        let answer = String::from_utf8(read).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("connection: close\r\n"), "{answer}");
    }
    assert_eq!(world.server.metrics().body_bytes.taken(), 0);
}

#[tokio::test]
async fn bodies_of_all_requests_share_a_budget() {
    let world = World::with(Limits { body_bytes_total_max: 1000, ..Limits::default() }).await;
    let answer = world.post(MAPS, &json!({"metadata": {"name": "x"}, "data": {"k": "v".repeat(2000)}})).await;
    let (code, message) = answer.refusal();
    assert_eq!(
        (code, message.as_str()),
        (429, "the bodies of all requests are too large together, please try again later")
    );
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(world.post(MAPS, &json!({"metadata": {"name": "x"}})).await.code, 201);
}

#[tokio::test]
async fn responses_that_are_rendered_and_unread_are_bounded() {
    let limits = Limits { unsent_bytes_max: 20 << 20, unsent_wait: Duration::from_millis(50), ..Limits::default() };
    let world = World::with(limits).await;
    for n in 0..8 {
        world.make_config_map(&format!("large-{n}"), &"x".repeat(1 << 20)).await;
    }
    let list = format!("{MAPS}?pretty=1");
    let mut unread = Vec::new();
    let refused = loop {
        let response = world.open(true, "GET", &list, &[], "").await;
        if response.status() != 200 {
            break response.status();
        }
        unread.push(response);
        assert!(unread.len() < 10, "{} bytes are held", world.server.metrics().unsent_bytes.taken());
    };
    assert_eq!(refused, 429);
    assert!(!unread.is_empty());
    assert_eq!(world.get(MAPS).await.code, 200, "the stored form shares its bytes");
    drop(unread);
    let began = tokio::time::Instant::now();
    while world.get(&list).await.code != 200 {
        assert!(began.elapsed() < PATIENCE, "the bytes of a client that left are free again");
    }
}

#[tokio::test]
async fn an_unread_response_keeps_its_place() {
    let world = World::with(Limits { inflight_reads_max: 4, ..Limits::default() }).await;
    for n in 0..8 {
        world.make_config_map(&format!("large-{n}"), &"x".repeat(1 << 20)).await;
    }
    let first = world.open(false, "GET", MAPS, &ALICE, "").await;
    let second = world.open(false, "GET", MAPS, &ALICE, "").await;
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    assert_eq!(world.ask(false, "GET", "/version", &ALICE, "").await.code, 429, "half of the places are alice's");
    drop((first, second));
    let began = tokio::time::Instant::now();
    while world.ask(false, "GET", "/version", &ALICE, "").await.code != 200 {
        assert!(began.elapsed() < PATIENCE, "the places of responses whose client left are free again");
    }
}

#[tokio::test]
async fn selectors_of_watches_share_a_budget() {
    let world = World::with(Limits { watch_selector_bytes_max: 1 << 20, ..Limits::default() }).await;
    let distinct: Vec<String> = (0..4000).map(|n| format!("!k{n}")).collect();
    let path = format!("{MAPS}?watch=1&labelSelector={}", distinct.join(","));
    let mut open = Vec::new();
    let refused = loop {
        let response = world.open(true, "GET", &path, &[], "").await;
        if response.status() != 200 {
            break response.status();
        }
        open.push(response);
        assert!(open.len() < 10);
    };
    assert_eq!(refused, 429);
    let repeated = format!("{MAPS}?watch=1&labelSelector={}", ["!z"; 4000].join(","));
    assert_eq!(
        world.open(true, "GET", &repeated, &[], "").await.status(),
        200,
        "a term that is repeated costs nothing"
    );
}

#[tokio::test]
async fn heavy_requests_run_on_the_pool_and_are_refused_when_too_many_wait() {
    let world = World::with(Limits { heavy_waiting_max: 0, ..Limits::default() }).await;
    let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(40_000)}});
    let answer = world.post(MAPS, &large).await;
    assert_eq!(answer.refusal(), (429, "too many large requests are waiting, please try again later".to_owned()));
    assert_eq!(world.post(MAPS, &json!({"metadata": {"name": "small"}})).await.code, 201);
    assert_eq!(world.get(&format!("{MAPS}?labelSelector={}", ["!z"; 2000].join(","))).await.code, 429);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(world.post(definitions, &json!({})).await.code, 429, "a definition is heavy whatever its size");
    let metrics = world.get("/metrics").await;
    assert!(
        metrics.text().contains("dogwatch_limit_refusals_total{name=\"heavy_waiting_max\"} 3"),
        "{}",
        metrics.text()
    );
    assert!(metrics.text().contains("dogwatch_limit_used{name=\"heavy_bytes_max\"} 0"), "{}", metrics.text());
}

#[tokio::test]
async fn heavy_requests_get_the_same_answers() {
    // With these limits, everything that may be heavy is.
    let heavy = Limits { heavy_bytes_min: 0, heavy_query_bytes_min: 0, heavy_checks_min: 0, ..Limits::default() };
    let (heavy, light) = (World::with(heavy).await, World::start().await);
    let json_type = [("content-type", "application/json"), ("accept", "application/yaml")];
    let patch = [("content-type", "application/merge-patch+json")];
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let one = format!("{MAPS}/one");
    for (method, path, headers, body) in [
        ("POST", MAPS, &json_type[..], r#"{"metadata":{"name":"one"},"unknown":1}"#),
        ("POST", MAPS, &json_type[..1], r#"{"metadata":{"name":"one"}}"#),
        ("POST", MAPS, &json_type[..1], "{"),
        ("PATCH", one.as_str(), &patch[..], r#"{"data":{"k":"v"}}"#),
        ("GET", one.as_str(), &table[..], ""),
        ("GET", MAPS, &table[..], ""),
        ("GET", MAPS, &json_type[1..], ""),
        ("GET", "/api/v1/configmaps?labelSelector=!z&pretty=1", &[], ""),
        ("GET", "/api/v1/configmaps?labelSelector=!!", &[], ""),
        ("DELETE", one.as_str(), &[], ""),
        ("DELETE", MAPS, &[], ""),
    ] {
        let ask = |world| World::ask(world, true, method, path, headers, body.to_owned());
        let (one, other) = (ask(&heavy).await, ask(&light).await);
        assert_eq!(one.code, other.code, "{method} {path}");
        assert_eq!(one.header("warning"), other.header("warning"), "{method} {path}");
        assert_eq!(one.header("content-type"), other.header("content-type"), "{method} {path}");
        let kinds = |text: &str| text.matches("kind").count();
        assert_eq!(kinds(one.text()), kinds(other.text()), "{method} {path}: {}\n{}", one.text(), other.text());
    }
    let used = heavy.server.metrics();
    assert_eq!((used.heavy_bytes.taken(), used.heavy_waiting.taken(), used.unsent_bytes.taken()), (0, 0, 0));
}

#[tokio::test]
async fn connect_is_refused() {
    let world = World::start().await;
    let mut stream = world.connect(true).await;
    stream.write_all(b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut read = Vec::new();
    // The connection may end without the last message of TLS.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("an end");
    let answer = String::from_utf8(read).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}
