//! Patches and apply.

use serde_json::{Value, json};

use crate::world::{Namespace, message, revision};

/// Applies to a ConfigMap as this manager.
async fn apply(ns: &Namespace, manager: &str, parameters: &str, data: Value) -> blackbox::wire::Response {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let path = ns.path(&format!("configmaps/a?fieldManager={manager}{parameters}"));
    ns.patch("apply", path, &body).send().await
}

#[tokio::test]
async fn verbs_14_13_apply_conflict_and_force() {
    let ns = Namespace::new("v14-13").await;
    apply(&ns, "one", "", json!({"k": "1"})).await.expect(201);
    let status = apply(&ns, "two", "", json!({"k": "2"})).await.refused(409, "Conflict");
    assert_eq!(message(&status), "Apply failed with 1 conflict: conflict with \"one\": .data.k");
    let cause = &status["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["field"]), (&json!("FieldManagerConflict"), &json!(".data.k")), "{status}");
    assert_eq!(ns.read("configmaps/a").await["data"], json!({"k": "1"}), "nothing was written");
    let forced = apply(&ns, "two", "&force=true", json!({"k": "2"})).await.expect(200);
    assert_eq!(forced["data"], json!({"k": "2"}));
    let managers: Vec<_> =
        forced["metadata"]["managedFields"].as_array().unwrap().iter().map(|m| &m["manager"]).collect();
    assert_eq!(managers, ["two"], "the other owns nothing any longer");
    let again = apply(&ns, "two", "", json!({"k": "2"})).await.expect(200);
    assert_eq!(revision(&again), revision(&forced));
}

#[tokio::test]
async fn verbs_14_14_apply_of_an_unknown_field() {
    let ns = Namespace::new("v14-14").await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "date": {"k": "v"}});
    let status = ns.patch("apply", ns.path("configmaps/a?fieldManager=one"), &body).send().await.expect(500);
    assert!(message(&status).ends_with(".date: field not declared in schema"), "{status}");
    let start = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): ";
    assert!(message(&status).starts_with(start), "{status}");
    ns.get_response("configmaps/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn verbs_14_15_json_patch_whose_test_fails() {
    let ns = Namespace::new("v14-15").await;
    let made = ns.create("configmaps", &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let patch = json!([
        {"op": "test", "path": "/data/k", "value": "other"},
        {"op": "replace", "path": "/data/k", "value": "new"},
    ]);
    let status = ns.patch("json", ns.path("configmaps/a"), &patch).send().await.refused(422, "Invalid");
    assert_eq!(message(&status), "the server rejected our request due to an error in our request");
    assert_eq!(ns.read("configmaps/a").await, made);
    let good =
        json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "n"}]);
    let patched = ns.patch("json", ns.path("configmaps/a"), &good).send().await.expect(200);
    assert_eq!(patched["data"], json!({"k": "n"}));
}

#[tokio::test]
async fn verbs_14_17_patch_of_plain_json() {
    let ns = Namespace::new("v14-17").await;
    ns.config_map("a").await;
    let plain = ns.request("PATCH", ns.path("configmaps/a")).json(&json!({})).send().await;
    let status = plain.refused(415, "UnsupportedMediaType");
    assert!(message(&status).contains("415: Unsupported Media Type"), "{status}");
    let unnamed = ns.request("PATCH", ns.path("configmaps/a")).body("{}").send().await;
    unnamed.refused(415, "UnsupportedMediaType");
    let parameters = ns.request("PATCH", ns.path("configmaps/a")).body(r#"{"data": {"k": "v"}}"#);
    let parameters = parameters.header("Content-Type", "application/merge-patch+json; charset=utf-8").send().await;
    assert_eq!(parameters.expect(200)["data"], json!({"k": "v"}));
}

/// Defines a kind for the test, and waits until it is served.
async fn define(ns: &Namespace, group: &str) -> String {
    let definition = json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    ns.post(definitions, &definition).send().await.expect(201);
    let end = std::time::Instant::now() + blackbox::process::DEADLINE;
    loop {
        let made = ns.get(format!("{definitions}/things.{group}")).send().await.expect(200);
        let conditions = made["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True") {
            return ns.path_in(&format!("{group}/v1"), "things");
        }
        assert!(std::time::Instant::now() < end, "{made}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn verbs_14_16_strategic_patch_of_a_custom_resource() {
    let ns = Namespace::new("v14-16").await;
    let things = define(&ns, "v1416.example.com").await;
    let body =
        json!({"apiVersion": "v1416.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"a": "1"}});
    let made = ns.post(&things, &body).send().await.expect(201);
    let patch = json!({"spec": {"a": "2"}});
    ns.patch("strategic-merge", format!("{things}/x"), &patch).send().await.refused(415, "UnsupportedMediaType");
    assert_eq!(ns.get(format!("{things}/x")).send().await.expect(200), made);
    let merged = ns.patch("merge", format!("{things}/x"), &patch).send().await.expect(200);
    assert_eq!(merged["spec"]["a"], "2", "another patch does");
}

#[tokio::test]
async fn verbs_14_21_a_custom_resource_as_a_table() {
    let ns = Namespace::new("v14-21").await;
    let things = define(&ns, "v1421.example.com").await;
    let body = json!({"apiVersion": "v1421.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    ns.post(&things, &body).send().await.expect(201);
    let table = ns.get(&things).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").send().await;
    let table = table.expect(200);
    let columns: Vec<&Value> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(columns, [&json!("Name"), &json!("Age")]);
    assert_eq!((&table["kind"], &table["rows"][0]["cells"][0]), (&json!("Table"), &json!("x")));
}
