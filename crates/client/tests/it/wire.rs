//! The content of requests and the decoding of responses.

use client::Error;
use client::list_watch::{ListItem, ListerWatcher, WatchItem};
use client::wire::Params;
use futures::StreamExt;
use testkit::fake_server::*;
use testkit::log_capture::{Level, LogCapture};

use super::*;

#[tokio::test]
async fn lw_01_namespace_and_selectors_are_in_both_verbs() {
    let server = FakeServer::start().await;
    server.answer(Answer::status(422, "Invalid"));
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::watch().hold());
    let source = ApiListWatch::namespaced::<Pod>(client_of(&server), "team")
        .labels("app in (a, b)")
        .fields("spec.nodeName=n1")
        .tweak(|params| params.timeout_seconds = params.timeout_seconds.map(|_| 77));
    let config = InformerConfig { reflector: quick(), ..InformerConfig::default() };
    let informer = SharedInformer::<Pod>::new(source, config);
    tokio::spawn(informer.start(CancellationToken::new()).unwrap());
    server.wait_for_requests(3).await;
    for request in server.requests() {
        assert_eq!(request.path, "/api/v1/namespaces/team/pods");
        assert_eq!(request.query("labelSelector"), Some("app in (a, b)"));
        assert_eq!(request.query("fieldSelector"), Some("spec.nodeName=n1"));
        assert_eq!(request.query("timeoutSeconds").unwrap_or("77"), "77", "the modifier has the last word");
        assert_eq!(request.header("accept"), Some("application/json"));
    }
}

#[tokio::test]
async fn lw_02_list_answers_one_page() {
    let server = FakeServer::start().await;
    server.answer(Answer::list_page(10, vec![pod("a", 1)], Some("more")));
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    let items: Vec<_> = source.list(Params::default()).await.unwrap().collect().await;
    assert!(
        matches!(&items[..], [Ok(ListItem::Object(_)), Ok(ListItem::End(end))] if end.continue_token.as_deref() == Some("more"))
    );
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn k_10_lw_03_a_dropped_watch_closes_its_connection() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(added(&pod("a", 1))).hold());
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    let mut stream = source.watch(Params::default()).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(WatchItem::Added(_)))));
    drop((stream, source));
    server.all_closed().await;
}

#[tokio::test]
async fn k_04_a_failed_watch_keeps_its_status_and_its_retry_after() {
    let server = FakeServer::start().await;
    server.answer(Answer::status(429, "TooManyRequests").header("Retry-After", "7"));
    server.answer(Answer::json(503, &serde_json::json!("<html>an apology</html>")));
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    let error = source.watch(Params::default()).await.err().unwrap();
    assert!(error.is_too_many_requests());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    let error = source.watch(Params::default()).await.err().unwrap();
    assert_eq!(error.code(), Some(503));
    assert!(error.to_string().contains("an apology"), "{error}");
}

#[tokio::test]
async fn k_06_kubes_own_retries_are_off() {
    let server = FakeServer::start().await;
    server.answer(Answer::status(503, "ServiceUnavailable"));
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    assert_eq!(source.list(Params::default()).await.err().unwrap().code(), Some(503));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn k_09_json_is_requested_without_compression() {
    let server = FakeServer::start().await;
    server.answer(Answer::list(10, vec![pod("a", 1)]));
    server.answer(Answer::watch().line(added(&pod("b", 2))).hold());
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    let items: Vec<_> = source.list(Params::default()).await.unwrap().collect().await;
    assert!(matches!(&items[..], [Ok(ListItem::Object(_)), Ok(ListItem::End(_))]));
    let mut stream = source.watch(Params::default()).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(WatchItem::Added(_)))));
    for request in server.requests() {
        let forms = (request.header("accept"), request.header("accept-encoding"));
        assert_eq!(forms, (Some("application/json"), Some("identity")));
    }
}

#[tokio::test]
async fn rc_02_retry_after_is_honoured_with_every_status() {
    let server = FakeServer::start().await;
    for code in [500, 503] {
        server.answer(Answer::status(code, "InternalError").header("Retry-After", "1"));
    }
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::watch().hold());
    let config = InformerConfig { reflector: listing(), ..InformerConfig::default() };
    let informer = SharedInformer::<Pod>::new(ApiListWatch::all::<Pod>(client_of(&server)), config);
    tokio::spawn(informer.start(CancellationToken::new()).unwrap());
    server.wait_for_requests(4).await;
    let requests = server.requests();
    for pair in requests[..3].windows(2) {
        assert!(pair[1].at - pair[0].at >= Duration::from_secs(1), "{:?}", pair[1].at - pair[0].at);
    }
}

#[tokio::test]
async fn rc_04_a_handshake_without_a_response_times_out() {
    // It accepts the connection and sends nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: http::Uri = format!("https://{}", silent.local_addr().unwrap()).parse().unwrap();
    let mut config = kube::Config::new(url);
    assert_eq!(config.connect_timeout, Some(Duration::from_secs(30)), "unless one says otherwise");
    config.connect_timeout = Some(Duration::from_millis(200));
    config.accept_invalid_certs = true;
    let source = ApiListWatch::all::<Pod>(connect::from_config(config).unwrap());
    let answer = tokio::time::timeout(PATIENCE, source.list(Params::default())).await.expect("it is left");
    assert!(answer.is_err());
    let answer = tokio::time::timeout(PATIENCE, source.watch(Params::default())).await.expect("it is left");
    assert!(answer.err().is_some_and(|error| error.is_unreachable() && error.to_string().contains("timed out")));
}

#[tokio::test]
async fn a_watch_has_a_connection_of_its_own_and_takes_it_along() {
    let server = FakeServer::start().await;
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::watch().line(added(&pod("a", 11))).hold());
    server.answer(Answer::list(11, vec![]));
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    let list = async || source.list(Params::default()).await.expect("a list").count().await;
    assert_eq!(list().await, 1, "its end");
    let mut watch = source.watch(Params::default()).await.expect("a watch");
    assert!(matches!(watch.next().await, Some(Ok(WatchItem::Added(_)))));
    assert_eq!(list().await, 1);
    let requests = server.requests();
    assert_eq!(requests[0].peer, requests[2].peer, "lists share a connection");
    assert_ne!(requests[0].peer, requests[1].peer);
    for request in &requests {
        let host = server.url().trim_start_matches("http://").to_owned();
        assert_eq!((request.path.as_str(), request.header("host")), ("/api/v1/pods", Some(host.as_str())));
    }
    drop(source);
    drop(watch);
    server.all_closed().await;
}

#[tokio::test]
async fn a_watch_has_the_same_credentials_as_a_list() {
    let server = FakeServer::start().await;
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::watch().hold());
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.auth_info = serde_json::from_value(serde_json::json!({"token": "t", "as": "someone"})).unwrap();
    let source = ApiListWatch::all::<Pod>(connect::from_config(config).unwrap());
    let _list = source.list(Params::default()).await.expect("a list");
    let _watch = source.watch(Params::default()).await.expect("a watch");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.header("authorization"), Some("Bearer t"), "{}", request.summary());
        assert_eq!(request.header("impersonate-user"), Some("someone"), "{}", request.summary());
    }
}

#[tokio::test]
async fn a_refused_watch_returns_its_reason_over_its_own_connection_too() {
    let server = FakeServer::start().await;
    server.answer(Answer::status(403, "Forbidden"));
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    let error = source.watch(Params::default()).await.err().expect("it is refused");
    assert!(error.is_denied(), "{error}");
    server.all_closed().await;
}

#[tokio::test]
async fn k_13_warnings_are_logged_and_do_not_disturb() {
    let log = LogCapture::start();
    for (level, quiet) in [(Level::WARN, false), (Level::DEBUG, true)] {
        let server = FakeServer::start().await;
        server.answer(Answer::list(10, vec![]).header("Warning", "299 - \"v1beta1 is deprecated\""));
        let source = ApiListWatch::all::<Pod>(client_of(&server));
        let source = if quiet { source.without_warnings() } else { source };
        let items: Vec<_> = source.list(Params::default()).await.unwrap().collect().await;
        assert!(matches!(&items[..], [Ok(ListItem::End(_))]));
        let lines = log.take("client");
        assert!(
            matches!(&lines[..], [line] if line.level == level && line.text.contains("v1beta1 is deprecated")),
            "{lines:?}"
        );
    }
}

#[tokio::test]
async fn a_table_is_an_error_of_the_list() {
    let server = FakeServer::start().await;
    server.answer(Answer::json(200, &serde_json::json!({"kind": "Table", "metadata": {}, "rows": []})));
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    let items: Vec<_> = source.list(Params::default()).await.unwrap().collect().await;
    assert!(matches!(&items[..], [Err(Error::Decode { .. })]));
}
