//! Requests whose end two readers could understand differently: what follows them is never answered as a request.

use std::time::Duration;

use server::limits::Limits;

use crate::world::World;

/// The request behind the ambiguous one, and what its answer contains.
const HIDDEN: &str = "GET /who HTTP/1.1\r\nHost: x\r\n\r\n";
const ANSWER: &str = "kubernetes-admin";

/// Heads, and what comes between each and the hidden request.
const AMBIGUOUS: [(&str, &str); 13] = [
    ("Content-Length: 0\r\nContent-Length: 31", ""),
    ("Content-Length: 0, 31", ""),
    ("Content-Length: +0", ""),
    ("Content-Length: -1", ""),
    ("Content-Length: 0x0", ""),
    ("Content-Length: 99999999999999999999999", ""),
    ("Content-Length : 0", ""),
    ("Transfer-Encoding : chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: xchunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked, identity", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "-1\r\n"),
    ("Transfer-Encoding: chunked", "fffffffffffffffff\r\n"),
    ("X: a\rTransfer-Encoding: chunked", "0\r\n\r\n"),
];

#[tokio::test]
async fn a_request_behind_an_ambiguous_one_is_not_answered() {
    let soon = Duration::from_millis(100);
    let limits = Limits { idle_timeout: soon, header_read_timeout: soon, ..Limits::default() };
    let world = World::with(limits).await;
    let mut plain = world.http1().await;
    plain.send(&format!("POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n{HIDDEN}")).await;
    assert!(plain.rest().await.contains(ANSWER), "with one length, two requests are two requests");
    for (head, between) in AMBIGUOUS {
        let mut client = world.http1().await;
        client.send(&format!("POST /length HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n{between}{HIDDEN}")).await;
        let answers = client.rest().await;
        assert!(!answers.contains(ANSWER), "{head:?}: {answers}");
    }
}
