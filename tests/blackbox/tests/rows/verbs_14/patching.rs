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
