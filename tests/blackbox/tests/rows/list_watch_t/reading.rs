//! URLs, selectors, lists and pages.

use std::time::Duration;

use serde_json::json;

use crate::world::{Namespace, message, name, names, revision};

#[tokio::test]
async fn list_watch_t_01_watch_parameter_on_an_item_is_ignored() {
    let ns = Namespace::new("t01-item").await;
    let made = ns.config_map("a").await;
    assert_eq!(ns.read("configmaps/a?watch=1").await, made);
}

#[tokio::test]
async fn list_watch_t_01_watch_of_a_missing_name_stays_open() {
    let ns = Namespace::new("t01-name").await;
    ns.config_map("other").await;
    let mut watch = ns.watching("fieldSelector=metadata.name%3Dx").await;
    assert_eq!(watch.code, 200);
    ns.config_maps(&["another", "x"]).await;
    assert_eq!(watch.summary().await.unwrap(), "ADDED x", "it was open, and silent until then");
}

#[tokio::test]
async fn list_watch_t_01_namespace_that_does_not_exist_is_empty() {
    let ns = Namespace::new("t01-nowhere").await;
    let path = "/api/v1/namespaces/there-is-no-such/configmaps";
    let list = ns.get(path).send().await.expect(200);
    assert_eq!(list["items"], json!([]));
    assert!(revision(&list) > 0);
    let mut watch = ns.watch(format!("{path}?watch=1&timeoutSeconds=1")).await;
    assert_eq!(watch.code, 200);
    assert_eq!(watch.event().await, None);
}

#[tokio::test]
async fn list_watch_t_03_notin_matches_what_has_no_such_label() {
    let ns = Namespace::new("t03-notin").await;
    ns.config_map("none").await;
    ns.labelled("x", "a", "x").await;
    ns.labelled("y", "a", "y").await;
    let select = async |selector: &str| {
        let list = ns.read(&format!("configmaps?labelSelector={selector}")).await;
        names(&list).join(" ")
    };
    assert_eq!(select("a+notin+(x)").await, "none y");
    assert_eq!(select("a!%3Dx").await, "none y");
    assert_eq!(select("a+in+(x)").await, "x");
    assert_eq!(select("!a").await, "none");
    assert_eq!(select("a").await, "x y");
}

#[tokio::test]
async fn list_watch_t_03_selectors_that_are_none() {
    let ns = Namespace::new("t03-bad").await;
    for (selector, words) in [
        ("a,", "found '', expected: identifier after ','"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a+in", "unable to parse requirement: found '' expected: '('"),
        ("-a%3Db", "unable to parse requirement: "),
    ] {
        let status = ns.get_response(&format!("configmaps?labelSelector={selector}")).await.refused(400, "BadRequest");
        assert!(message(&status).contains(words), "{status}");
        ns.get_response(&format!("configmaps?watch=1&labelSelector={selector}")).await.refused(400, "BadRequest");
    }
}

#[tokio::test]
async fn list_watch_t_05_list_has_what_was_just_created() {
    let ns = Namespace::new("t05-fresh").await;
    for turn in 0..20 {
        let made = ns.config_map(&format!("a{turn:02}")).await;
        let list = ns.read("configmaps").await;
        assert_eq!(name(list["items"].as_array().unwrap().last().unwrap()), name(&made));
        assert!(revision(&list) >= revision(&made));
    }
}

#[tokio::test]
async fn list_watch_t_05_list_in_the_future_waits_and_gives_up_in_every_mode() {
    let ns = Namespace::new("t05-future").await;
    let wanted = ns.now().await + 1_000_000;
    for parameters in [format!("resourceVersion={wanted}&resourceVersionMatch=NotOlderThan"), {
        format!("resourceVersion={wanted}&resourceVersionMatch=Exact")
    }] {
        let answer = ns.get_response(&format!("configmaps?{parameters}")).await;
        let status = answer.refused(504, "Timeout");
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{status}");
        let waited = Duration::from_millis(2500)..Duration::from_secs(8);
        assert!(waited.contains(&answer.took), "it waits about 3 s: {:?}", answer.took);
    }
}

#[tokio::test]
async fn list_watch_t_05_list_in_the_near_future_is_answered_when_it_comes() {
    let ns = Namespace::new("t05-soon").await;
    let wanted = ns.now().await + 1;
    let path = format!("configmaps?resourceVersion={wanted}");
    let (answer, _) = futures::join!(ns.get_response(&path), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        ns.config_map("a").await
    });
    assert!(revision(&answer.expect(200)) >= wanted);
}

#[tokio::test]
async fn list_watch_t_05_limit_is_ignored_at_revision_0() {
    let ns = Namespace::new("t05-zero").await;
    ns.config_maps(&["a", "b", "c", "d", "e"]).await;
    let list = ns.read("configmaps?limit=2&resourceVersion=0").await;
    assert_eq!(names(&list).len(), 5);
    assert_eq!(list["metadata"].get("continue"), None, "{}", list["metadata"]);
}

#[tokio::test]
async fn list_watch_t_05_limit_with_a_revision_is_the_state_at_that_revision() {
    let ns = Namespace::new("t05-exact").await;
    ns.config_maps(&["a", "b", "c"]).await;
    let then = ns.now().await;
    ns.remove("configmaps/a").await;
    ns.label("b", "changed", "later").await;
    let page = ns.read(&format!("configmaps?limit=2&resourceVersion={then}")).await;
    assert_eq!(names(&page), ["a", "b"]);
    assert_eq!(revision(&page), then);
    assert_eq!(page["items"][1]["metadata"].get("labels"), None);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = ns.read(&format!("configmaps?limit=2&continue={token}")).await;
    assert_eq!((names(&rest), revision(&rest)), (vec!["c"], then));
}

#[tokio::test]
async fn list_watch_t_06_walk_over_400_in_pages_of_17() {
    let ns = Namespace::new("t06-walk").await;
    let mut connection = ns.connection().await;
    for number in 0..400 {
        let body = json!({"metadata": {"name": format!("object-{number:04}")}});
        connection.send(ns.post(ns.path("configmaps"), &body)).await.expect(201);
    }
    let (mut seen, mut token, mut pinned) = (Vec::new(), String::new(), None);
    loop {
        let path = ns.path(&format!("configmaps?limit=17&continue={token}"));
        let page = connection.send(ns.get(path)).await.expect(200);
        let pinned = *pinned.get_or_insert(revision(&page));
        assert_eq!(revision(&page), pinned, "one revision for the whole walk");
        seen.extend(names(&page).into_iter().map(str::to_owned));
        let remaining = &page["metadata"]["remainingItemCount"];
        match page["metadata"]["continue"].as_str() {
            Some(next) => {
                assert_eq!(names(&page).len(), 17);
                assert_eq!(remaining.as_u64().unwrap() + seen.len() as u64, 400);
                token = next.to_owned();
            }
            None => {
                assert!(remaining.is_null());
                break;
            }
        }
        // Concurrent changes are not part of the walk.
        if seen.len() == 34 {
            connection.send(ns.delete(ns.path("configmaps/object-0399"))).await.expect(200);
            ns.config_map("object-0100-late").await;
        }
    }
    let wanted: Vec<_> = (0..400).map(|number| format!("object-{number:04}")).collect();
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn list_watch_t_06_what_is_deleted_between_pages_still_appears() {
    let ns = Namespace::new("t06-deleted").await;
    ns.config_maps(&["a", "b", "c"]).await;
    let page = ns.read("configmaps?limit=1").await;
    ns.remove("configmaps/b").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = ns.read(&format!("configmaps?continue={token}")).await;
    assert_eq!(names(&rest), ["b", "c"]);
    assert_eq!(names(&ns.read("configmaps").await), ["a", "c"]);
}
