//! The rows that need a server of their own: history that is gone, a server that is killed, one without strangers.

use std::path::Path;

use blackbox::{Server, Wire};
use serde_json::json;
use store::Store as _;
use store::embedded::{EmbeddedOptions, EmbeddedStore};

use crate::world::{Place, message, name, names, revision};

/// Forgets all history, as time does, in the data of a server that is not running.
fn compact(data: &Path) {
    let data = data.to_owned();
    let compacted = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = EmbeddedStore::open(EmbeddedOptions::new(&data)).expect("the server let go of its data");
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
    let place = Place::on(Wire::to(&server), "r15-08").await;
    for turn in 0..20 {
        place.config_map(&format!("a{turn}")).await;
    }
    server.stop_change_and_restart(compact);
    let mut watch = place.watching("resourceVersion=1").await;
    assert_eq!(watch.code, 200);
    let event = watch.event().await.unwrap();
    assert_eq!(event["type"], "ERROR", "{event}");
    let status = &event["object"];
    assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")), "{status}");
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")), "{status}");
    let oldest = message(status).strip_prefix("too old resource version: 1 (").and_then(|rest| rest.strip_suffix(')'));
    let oldest = oldest.unwrap_or_else(|| panic!("{status}")).to_owned();
    assert_eq!(watch.event().await, None, "it ends right after");

    let mut usable = place.watching(&format!("resourceVersion={oldest}")).await;
    place.config_map("next").await;
    assert_eq!(usable.told().await.unwrap(), "ADDED next", "a watch from the revision it names succeeds");
    let status = place.answer("configmaps?resourceVersion=1&resourceVersionMatch=Exact").await.refused(410, "Expired");
    assert_eq!(message(&status), "The resourceVersion for the provided list is too old.");
}

#[tokio::test]
async fn list_watch_t_06_page_after_compaction_can_be_retried() {
    let mut server = Server::start();
    let place = Place::on(Wire::to(&server), "t06-compaction").await;
    place.config_maps(&["a", "b", "c", "d"]).await;
    let page = place.read("configmaps?limit=1").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    place.remove("configmaps/b").await;
    server.stop_change_and_restart(compact);
    let status = place.answer(&format!("configmaps?limit=1&continue={token}")).await.refused(410, "Expired");
    assert!(message(&status).starts_with("The provided continue parameter is too old"), "{status}");
    let token = status["metadata"]["continue"].as_str().unwrap();
    let page = place.read(&format!("configmaps?limit=1&continue={token}")).await;
    assert_eq!(names(&page), ["c"], "what is there now, after the last key of before");
    place.remove("configmaps/d").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let last = place.read(&format!("configmaps?limit=1&continue={token}")).await;
    assert_eq!((names(&last), revision(&last)), (vec!["d"], revision(&page)), "pinned again");
}

#[tokio::test]
async fn list_watch_15_22_watch_goes_on_after_a_kill() {
    let mut server = Server::start();
    let place = Place::on(Wire::to(&server), "r15-22").await;
    let begin = place.now().await;
    let mut watch = place.watching(&format!("resourceVersion={begin}")).await;
    let mut wanted = Vec::new();
    for turn in 0..10 {
        wanted.push(revision(&place.config_map(&format!("before-{turn}")).await));
    }
    // It has read some of it when the server goes.
    let (mut seen, mut last) = (Vec::new(), begin);
    for _ in 0..5 {
        last = revision(&watch.event().await.unwrap()["object"]);
        seen.push(last);
    }
    drop(watch);
    server.kill_and_restart();
    assert_eq!(names(&place.read("configmaps").await).len(), 10, "what was acknowledged is there");
    let mut watch = place.watching(&format!("resourceVersion={last}")).await;
    for turn in 0..10 {
        wanted.push(revision(&place.config_map(&format!("restarted-{turn}")).await));
    }
    while seen.len() < wanted.len() {
        let event = watch.event().await.unwrap();
        assert_eq!(event["type"], "ADDED", "{event}");
        seen.push(revision(&event["object"]));
    }
    assert_eq!(seen, wanted, "no gap, nothing twice, and revisions go on");
    let object = place.read("configmaps/before-0").await;
    assert_eq!((name(&object), revision(&object)), ("before-0", wanted[0]));
}

#[tokio::test]
async fn verbs_14_24_nobody_is_refused_where_strangers_are_not_known() {
    let server = Server::start_with(&["--no-anonymous"]);
    let place = Place::on(Wire::to(&server), "v14-24").await;
    let status = place.getting("configmaps").without_certificate().answer().await.refused(401, "Unauthorized");
    assert_eq!(message(&status), "Unauthorized");
    assert_eq!(place.getting("configmaps").answer().await.code, 200);
}
