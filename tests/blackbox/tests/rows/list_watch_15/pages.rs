//! Limits, counts and the order of lists.

use serde_json::json;

use crate::world::{Namespace, names};

#[tokio::test]
async fn list_watch_15_17_remaining_items_are_counted() {
    let ns = Namespace::new("r15-17").await;
    ns.config_maps(&["a", "b", "c"]).await;
    let page = ns.read("configmaps?limit=1").await;
    assert_eq!(names(&page), ["a"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 2, "{page}");
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = ns.read(&format!("configmaps?limit=2&continue={token}")).await;
    assert_eq!(names(&rest), ["b", "c"]);
    assert_eq!(rest["metadata"], json!({"resourceVersion": page["metadata"]["resourceVersion"]}), "the last page");
}

#[tokio::test]
async fn list_watch_15_18_remaining_items_are_not_counted_with_a_selector() {
    let ns = Namespace::new("r15-18").await;
    for name in ["a", "b", "c"] {
        ns.labelled(name, "app", "web").await;
    }
    for selector in ["labelSelector=app%3Dweb", "fieldSelector=metadata.name!%3Dz"] {
        let page = ns.read(&format!("configmaps?limit=1&{selector}")).await;
        assert_eq!(names(&page), ["a"]);
        assert!(page["metadata"]["continue"].is_string(), "{page}");
        assert_eq!(page["metadata"].get("remainingItemCount"), None, "{page}");
    }
}

#[tokio::test]
async fn list_watch_15_19_order_is_that_of_the_keys() {
    // `-` sorts before `/`, which separates a namespace from a name.
    let first = Namespace::new("r15-19").await;
    let second = Namespace::new("r15-19-b").await;
    first.labelled("one", "row", "r15-19").await;
    second.labelled("two", "row", "r15-19").await;
    let list = first.get("/api/v1/configmaps?labelSelector=row%3Dr15-19").send().await.expect(200);
    assert_eq!(names(&list), ["two", "one"]);
    let mut watch = first.watch("/api/v1/configmaps?watch=1&labelSelector=row%3Dr15-19").await;
    assert_eq!(watch.summary().await.unwrap(), "ADDED two");
    assert_eq!(watch.summary().await.unwrap(), "ADDED one");
}
