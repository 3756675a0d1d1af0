//! The rows that need a server of their own: compacted history, a killed server, one without anonymous access.

use std::path::Path;

use blackbox::{Server, Wire};
use serde_json::json;
use store::Store as _;
use store::embedded::{EmbeddedOptions, EmbeddedStore};

use crate::world::{Namespace, message, name, names, revision};

/// Compacts all history in the data of a stopped server, as happens with time.
fn compact(data: &Path) {
    let data = data.to_owned();
    let compacted = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = EmbeddedStore::open(EmbeddedOptions::new(&data)).expect("the server has released its data");
            let now = store.current_revision().await.unwrap();
            store.compact(now).await.unwrap();
            store.close().await;
        });
    });
    compacted.join().unwrap();
}

#[tokio::test]
async fn list_watch_15_08_watch_from_before_history_is_expired() {
    let mut server = Server::start();
    let ns = Namespace::on(Wire::to(&server), "r15-08").await;
    for turn in 0..20 {
        ns.config_map(&format!("a{turn}")).await;
    }
    server.stop_change_and_restart(compact);
    let mut watch = ns.watching("resourceVersion=1").await;
    assert_eq!(watch.code, 200);
    let event = watch.event().await.unwrap();
    assert_eq!(event["type"], "ERROR", "{event}");
    let status = &event["object"];
    assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")), "{status}");
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")), "{status}");
    let oldest = message(status).strip_prefix("too old resource version: 1 (").and_then(|rest| rest.strip_suffix(')'));
    let oldest = oldest.unwrap_or_else(|| panic!("{status}")).to_owned();
    assert_eq!(watch.event().await, None, "it ends right after");

    let mut usable = ns.watching(&format!("resourceVersion={oldest}")).await;
    ns.config_map("next").await;
    assert_eq!(usable.summary().await.unwrap(), "ADDED next", "a watch from the revision it names succeeds");
    let status =
        ns.get_response("configmaps?resourceVersion=1&resourceVersionMatch=Exact").await.refused(410, "Expired");
    assert_eq!(message(&status), "The resourceVersion for the provided list is too old.");
}

#[tokio::test]
async fn list_watch_t_06_page_after_compaction_can_be_retried() {
    let mut server = Server::start();
    let ns = Namespace::on(Wire::to(&server), "t06-compaction").await;
    ns.config_maps(&["a", "b", "c", "d"]).await;
    let page = ns.read("configmaps?limit=1").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    ns.remove("configmaps/b").await;
    server.stop_change_and_restart(compact);
    let status = ns.get_response(&format!("configmaps?limit=1&continue={token}")).await.refused(410, "Expired");
    assert!(message(&status).starts_with("The provided continue parameter is too old"), "{status}");
    let token = status["metadata"]["continue"].as_str().unwrap();
    let page = ns.read(&format!("configmaps?limit=1&continue={token}")).await;
    assert_eq!(names(&page), ["c"], "the current state, after the last key of the first page");
    ns.remove("configmaps/d").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let last = ns.read(&format!("configmaps?limit=1&continue={token}")).await;
    assert_eq!((names(&last), revision(&last)), (vec!["d"], revision(&page)), "pinned again");
}

#[tokio::test]
async fn list_watch_15_22_watch_goes_on_after_a_kill() {
    let mut server = Server::start();
    let ns = Namespace::on(Wire::to(&server), "r15-22").await;
    let begin = ns.now().await;
    let mut watch = ns.watching(&format!("resourceVersion={begin}")).await;
    let mut wanted = Vec::new();
    for turn in 0..10 {
        wanted.push(revision(&ns.config_map(&format!("before-{turn}")).await));
    }
    // It has read some of the events when the server is killed.
    let (mut seen, mut last) = (Vec::new(), begin);
    for _ in 0..5 {
        last = revision(&watch.event().await.unwrap()["object"]);
        seen.push(last);
    }
    drop(watch);
    server.kill_and_restart();
    assert_eq!(names(&ns.read("configmaps").await).len(), 10, "what was acknowledged is there");
    let mut watch = ns.watching(&format!("resourceVersion={last}")).await;
    for turn in 0..10 {
        wanted.push(revision(&ns.config_map(&format!("restarted-{turn}")).await));
    }
    while seen.len() < wanted.len() {
        let event = watch.event().await.unwrap();
        assert_eq!(event["type"], "ADDED", "{event}");
        seen.push(revision(&event["object"]));
    }
    assert_eq!(seen, wanted, "no gap, nothing twice, and revisions go on");
    let object = ns.read("configmaps/before-0").await;
    assert_eq!((name(&object), revision(&object)), ("before-0", wanted[0]));
}

#[tokio::test]
async fn verbs_14_24_nobody_is_refused_where_strangers_are_not_known() {
    let server = Server::start_with(&["--no-anonymous"]);
    let ns = Namespace::on(Wire::to(&server), "v14-24").await;
    let status = ns.get_request("configmaps").without_certificate().send().await.refused(401, "Unauthorized");
    assert_eq!(message(&status), "Unauthorized");
    assert_eq!(ns.get_request("configmaps").send().await.code, 200);
}
