//! Attributes of requests: which right each method and path needs.

use machinery::json::{Value, json};

use crate::world::World;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn rule(verb: &str) -> Value {
    json!([{"verbs": [verb], "apiGroups": [""], "resources": ["configmaps"]}])
}

/// Requests with the verb that they need. Each is answered with something else than 403 if the user has it.
fn requests() -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("GET", format!("{MAPS}/a"), "get"),
        ("HEAD", format!("{MAPS}/a"), "get"),
        ("GET", MAPS.to_owned(), "list"),
        ("HEAD", MAPS.to_owned(), "list"),
        ("GET", format!("{MAPS}?fieldSelector=metadata.name%3Da"), "list"),
        ("GET", format!("{MAPS}?watch=1&timeoutSeconds=1"), "watch"),
        ("GET", "/api/v1/watch/namespaces/default/configmaps?timeoutSeconds=1".to_owned(), "watch"),
        ("GET", "/api/v1/watch/namespaces/default/configmaps/a?timeoutSeconds=1".to_owned(), "watch"),
        ("POST", format!("{MAPS}?dryRun=All"), "create"),
        ("PUT", format!("{MAPS}/a?dryRun=All"), "update"),
        ("PATCH", format!("{MAPS}/a?dryRun=All"), "patch"),
        ("DELETE", format!("{MAPS}/a?dryRun=All"), "delete"),
        ("DELETE", format!("{MAPS}?dryRun=All"), "deletecollection"),
    ]
}

#[tokio::test]
async fn az_15_16_18_20_each_method_needs_its_verb_and_no_other() {
    let world = World::start().await;
    world.make_config_map("a").await;
    for granted in ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"] {
        world.grant("alice", false, rule(granted)).await;
        for (method, path, needed) in requests() {
            let body = json!({"metadata": {"name": "a"}});
            let body = matches!(method, "POST" | "PUT" | "PATCH").then_some(body);
            let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let answer = world.ask_as("alice", method, &path, kind, body).await;
            let expected = granted == needed;
            assert_eq!(
                answer.code != 403,
                expected,
                "{method} {path} with {granted}: {} {}",
                answer.code,
                answer.text()
            );
        }
    }
}

#[tokio::test]
async fn az_17_24_33_a_name_in_the_field_selector_counts_for_list_and_watch_only() {
    let world = World::start().await;
    world.make_config_map("a").await;
    let verbs = json!(["list", "watch", "deletecollection", "create"]);
    let rules = json!([{"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]}]);
    world.grant("alice", false, rules).await;
    for (query, code) in [
        ("fieldSelector=metadata.name%3Da", 200),
        ("fieldSelector=metadata.name%3Da&watch=1&timeoutSeconds=1", 200),
        ("fieldSelector=metadata.name%3Db", 403),
        ("fieldSelector=metadata.name!%3Da", 403),
        ("", 403),
    ] {
        assert_eq!(world.get("alice", &format!("{MAPS}?{query}")).await.code, code, "{query}");
    }
    let deleted = world.ask("alice", "DELETE", &format!("{MAPS}?fieldSelector=metadata.name%3Da"), None).await;
    assert_eq!(deleted.code, 403);
    // The name of a POST is not an attribute.
    let created = world.ask("alice", "POST", MAPS, Some(json!({"metadata": {"name": "a"}}))).await;
    assert_eq!(created.code, 403, "{}", created.text());
}

#[tokio::test]
async fn az_19_a_role_in_a_namespace_grants_the_namespace_itself() {
    let world = World::start().await;
    world.grant("alice", false, json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"]}])).await;
    assert_eq!(world.get("alice", "/api/v1/namespaces/default").await.code, 200);
    let other = world.get("alice", "/api/v1/namespaces/kube-system").await;
    assert_eq!(other.code, 403);
    assert!(other.message().ends_with("in the namespace \"kube-system\""), "{}", other.message());
    assert_eq!(world.get("alice", "/api/v1/namespaces/default/status").await.code, 403);
}

#[tokio::test]
async fn az_22_az_23_authorization_comes_before_routing() {
    let world = World::start().await;
    for path in ["/apis/nope/v1/x", "/api/v1/namespaces/none/pods/p", "/api/v1/nope", "/nope", "/api/v1/proxy/nodes/x"]
    {
        assert_eq!(world.get("alice", path).await.code, 403, "{path}");
        assert_eq!(world.get("root", path).await.code, 404, "{path}");
    }
    let path = world.get("alice", "/%3Cb%3E&").await;
    assert_eq!(path.message(), "forbidden: User \"alice\" cannot get path \"/&lt;b&gt;&amp;\"");
    assert_eq!(path.headers["x-content-type-options"], "nosniff");
    // All authenticated users may discover.
    assert_eq!(world.get("alice", "/api/v1").await.code, 200);
    assert_eq!(world.get("alice", "/apis/apps").await.code, 200);
}
