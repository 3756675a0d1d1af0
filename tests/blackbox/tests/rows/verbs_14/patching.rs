//! Patches and apply.

use serde_json::{Value, json};

use crate::world::{Place, message, revision};

/// Applies to a ConfigMap as this manager.
async fn apply(place: &Place, manager: &str, parameters: &str, data: Value) -> blackbox::wire::Answer {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let path = place.path(&format!("configmaps/a?fieldManager={manager}{parameters}"));
    place.patch("apply", path, &body).answer().await
}

#[tokio::test]
async fn verbs_14_13_apply_conflict_and_force() {
    let place = Place::new("v14-13").await;
    apply(&place, "one", "", json!({"k": "1"})).await.expect(201);
    let status = apply(&place, "two", "", json!({"k": "2"})).await.refused(409, "Conflict");
    assert_eq!(message(&status), "Apply failed with 1 conflict: conflict with \"one\": .data.k");
    let cause = &status["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["field"]), (&json!("FieldManagerConflict"), &json!(".data.k")), "{status}");
    let forced = apply(&place, "two", "&force=true", json!({"k": "2"})).await.expect(200);
    assert_eq!(forced["data"], json!({"k": "2"}));
    let managers: Vec<_> =
        forced["metadata"]["managedFields"].as_array().unwrap().iter().map(|m| &m["manager"]).collect();
    assert_eq!(managers, ["two"], "the other owns nothing any longer");
    let again = apply(&place, "two", "", json!({"k": "2"})).await.expect(200);
    assert_eq!(revision(&again), revision(&forced));
}

#[tokio::test]
async fn verbs_14_14_apply_of_an_unknown_field() {
    let place = Place::new("v14-14").await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "date": {"k": "v"}});
    let status = place.patch("apply", place.path("configmaps/a?fieldManager=one"), &body).answer().await.expect(500);
    assert!(message(&status).ends_with(".date: field not declared in schema"), "{status}");
    let start = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): ";
    assert!(message(&status).starts_with(start), "{status}");
}

#[tokio::test]
async fn verbs_14_15_json_patch_whose_test_fails() {
    let place = Place::new("v14-15").await;
    let made = place.make("configmaps", &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let patch = json!([
        {"op": "test", "path": "/data/k", "value": "other"},
        {"op": "replace", "path": "/data/k", "value": "new"},
    ]);
    let status = place.patch("json", place.path("configmaps/a"), &patch).answer().await.refused(422, "Invalid");
    assert_eq!(message(&status), "the server rejected our request due to an error in our request");
    assert_eq!(place.read("configmaps/a").await, made);
    let good =
        json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "n"}]);
    let patched = place.patch("json", place.path("configmaps/a"), &good).answer().await.expect(200);
    assert_eq!(patched["data"], json!({"k": "n"}));
}

#[tokio::test]
async fn verbs_14_17_patch_of_plain_json() {
    let place = Place::new("v14-17").await;
    place.config_map("a").await;
    let plain = place.ask("PATCH", place.path("configmaps/a")).json(&json!({})).answer().await;
    let status = plain.refused(415, "UnsupportedMediaType");
    assert!(message(&status).contains("415: Unsupported Media Type"), "{status}");
    let unnamed = place.ask("PATCH", place.path("configmaps/a")).body("{}").answer().await;
    unnamed.refused(415, "UnsupportedMediaType");
    let parameters = place.ask("PATCH", place.path("configmaps/a")).body(r#"{"data": {"k": "v"}}"#);
    let parameters = parameters.header("Content-Type", "application/merge-patch+json; charset=utf-8").answer().await;
    assert_eq!(parameters.expect(200)["data"], json!({"k": "v"}));
}

/// A kind of the test's own; waits until it is served.
async fn define(place: &Place, group: &str) -> String {
    let definition = json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    place.post(definitions, &definition).answer().await.expect(201);
    let end = std::time::Instant::now() + blackbox::process::DEADLINE;
    loop {
        let made = place.get(format!("{definitions}/things.{group}")).answer().await.expect(200);
        let conditions = made["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True") {
            return place.path_in(&format!("{group}/v1"), "things");
        }
        assert!(std::time::Instant::now() < end, "{made}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn verbs_14_16_strategic_patch_of_a_custom_resource() {
    let place = Place::new("v14-16").await;
    let things = define(&place, "v1416.example.com").await;
    let body =
        json!({"apiVersion": "v1416.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"a": "1"}});
    let made = place.post(&things, &body).answer().await.expect(201);
    let patch = json!({"spec": {"a": "2"}});
    place.patch("strategic-merge", format!("{things}/x"), &patch).answer().await.refused(415, "UnsupportedMediaType");
    assert_eq!(place.get(format!("{things}/x")).answer().await.expect(200), made);
    let merged = place.patch("merge", format!("{things}/x"), &patch).answer().await.expect(200);
    assert_eq!(merged["spec"]["a"], "2", "another patch does");
}

#[tokio::test]
async fn verbs_14_21_a_custom_resource_as_a_table() {
    let place = Place::new("v14-21").await;
    let things = define(&place, "v1421.example.com").await;
    let body = json!({"apiVersion": "v1421.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    place.post(&things, &body).answer().await.expect(201);
    let table = place.get(&things).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").answer().await;
    let table = table.expect(200);
    let columns: Vec<&Value> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(columns, [&json!("Name"), &json!("Age")]);
    assert_eq!((&table["kind"], &table["rows"][0]["cells"][0]), (&json!("Table"), &json!("x")));
}
