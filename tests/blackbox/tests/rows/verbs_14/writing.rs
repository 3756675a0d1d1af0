//! Create and update.

use serde_json::{Value, json};

use crate::world::{Place, message, name, revision};

#[tokio::test]
async fn verbs_14_01_put_with_a_stale_revision_is_a_conflict() {
    let place = Place::new("v14-01").await;
    let stale = place.config_map("a").await;
    place.label("a", "turn", "1").await;
    let status = place.put(place.path("configmaps/a"), &stale).answer().await.refused(409, "Conflict");
    assert_eq!(
        message(&status),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
         please apply your changes to the latest version and try again"
    );
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
}

#[tokio::test]
async fn verbs_14_02_put_without_a_revision_where_it_is_needed() {
    let place = Place::new("v14-02").await;
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}});
    place.post(place.path_in("coordination.k8s.io/v1", "leases"), &lease).answer().await.expect(201);
    let path = place.path_in("coordination.k8s.io/v1", "leases/a");
    let status = place.put(path, &lease).answer().await.refused(422, "Invalid");
    let words = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!(message(&status), format!("leases.coordination.k8s.io \"a\" is invalid: {words}"));
}

#[tokio::test]
async fn verbs_14_03_post_with_a_revision_is_refused() {
    let place = Place::new("v14-03").await;
    let body = json!({"metadata": {"name": "a", "resourceVersion": "5"}});
    let answer = place.post(place.path("configmaps"), &body).answer().await;
    let status = answer.expect(500);
    assert_eq!(message(&status), "resourceVersion should not be set on objects to be created");
    assert_eq!(status.get("reason"), None, "{status}");
}

#[tokio::test]
async fn verbs_14_11_dry_run_stores_nothing() {
    let place = Place::new("v14-11").await;
    let path = place.path("configmaps?dryRun=All");
    let made = place.post(path, &json!({"metadata": {"name": "a"}})).answer().await.expect(201);
    assert_eq!(made["metadata"].get("resourceVersion"), None, "{made}");
    assert!(made["metadata"]["uid"].is_string(), "{made}");
    place.answer("configmaps/a").await.refused(404, "NotFound");

    let stored = place.config_map("b").await;
    let patch = json!({"data": {"k": "v"}});
    let path = place.path("configmaps/b?dryRun=All");
    let patched = place.patch("merge", path, &patch).answer().await.expect(200);
    assert_eq!((&patched["data"], revision(&patched)), (&patch["data"], revision(&stored)));
    place.delete(place.path("configmaps/b?dryRun=All")).answer().await.expect(200);
    assert_eq!(place.read("configmaps/b").await, stored);
    let status = place.delete(place.path("configmaps/b?dryRun=x")).answer().await.refused(422, "Invalid");
    assert!(message(&status).contains("dryRun: Unsupported value: [\"x\"]: supported values: \"All\""), "{status}");
}

#[tokio::test]
async fn verbs_14_12_unknown_fields_warn_fail_or_vanish() {
    let place = Place::new("v14-12").await;
    let make = async |name: &str, parameters: &str| {
        let body = json!({"metadata": {"name": name}, "date": {"k": "v"}});
        place.post(place.path(&format!("configmaps{parameters}")), &body).answer().await
    };
    for (name, parameters) in [("default", ""), ("warn", "?fieldValidation=Warn")] {
        let answer = make(name, parameters).await;
        assert_eq!(answer.header("warning"), "299 - \"unknown field \\\"date\\\"\"");
        assert_eq!(answer.expect(201).get("date"), None);
    }
    let status = make("strict", "?fieldValidation=Strict").await.refused(400, "BadRequest");
    let words = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: \
                 strict decoding error: unknown field \"date\"";
    assert_eq!(message(&status), words);
    place.answer("configmaps/strict").await.refused(404, "NotFound");
    let ignored = make("ignore", "?fieldValidation=Ignore").await;
    assert_eq!((ignored.code, ignored.header("warning")), (201, ""));
    let status = make("other", "?fieldValidation=Maybe").await.refused(422, "Invalid");
    assert!(message(&status).contains("\"\", \"Ignore\", \"Strict\", \"Warn\""), "{status}");

    // Twice the same field: the last wins, and is complained of likewise.
    let twice = r#"{"metadata": {"name": "twice"}, "data": {"k": "1"}, "data": {"k": "2"}}"#;
    let ask = place.ask("POST", place.path("configmaps")).header("Content-Type", "application/json").body(twice);
    let answer = ask.answer().await;
    assert_eq!(answer.header("warning"), "299 - \"duplicate field \\\"data\\\"\"");
    assert_eq!(answer.expect(201)["data"], json!({"k": "2"}));
}

#[tokio::test]
async fn pr_8_verbs_14_19_create_in_a_namespace_that_is_missing_or_ending() {
    let place = Place::new("v14-19").await;
    let body = json!({"metadata": {"name": "a"}});
    let status = place.post("/api/v1/namespaces/v14-19-missing/configmaps", &body).answer().await;
    let status = status.refused(404, "NotFound");
    assert_eq!(message(&status), "namespaces \"v14-19-missing\" not found");

    place.config_map("old").await;
    let ending = place.delete("/api/v1/namespaces/v14-19").answer().await.expect(200);
    assert_eq!(ending["status"]["phase"], "Terminating", "{ending}");
    let status = place.post(place.path("configmaps"), &body).answer().await.refused(403, "Forbidden");
    let words = "unable to create new content in namespace v14-19 because it is being terminated";
    assert_eq!(message(&status), format!("configmaps \"a\" is forbidden: {words}"));
    let cause = json!({"reason": "NamespaceTerminating", "message": "namespace v14-19 is being terminated",
        "field": "metadata.namespace"});
    assert_eq!(status["details"]["causes"], json!([cause]));
    // What is there can still be changed and removed.
    place.label("old", "still", "there").await;
    place.remove("configmaps/old").await;
}

#[tokio::test]
async fn verbs_14_30_body_of_3_mib_and_one_byte() {
    const LIMIT: usize = 3 * 1024 * 1024;
    let place = Place::new("v14-30").await;
    let send = async |size: usize| {
        let body = format!("{{\"metadata\": {{\"name\": \"a\"}}}}{}", " ".repeat(size));
        let ask = place.ask("POST", place.path("configmaps")).header("Content-Type", "application/json");
        ask.body(body[..size].to_owned()).answer().await
    };
    let status = send(LIMIT + 1).await.refused(413, "RequestEntityTooLarge");
    assert_eq!(message(&status), "Request entity too large: limit is 3145728");
    assert_eq!(name(&send(LIMIT).await.expect(201)), "a", "one byte less is read");
}

#[tokio::test]
async fn verbs_14_31_update_that_changes_nothing() {
    let place = Place::new("v14-31").await;
    let stored = place.config_map("a").await;
    let mut watch = place.watching(&format!("resourceVersion={}", revision(&stored))).await;
    let mut unconditional = stored.clone();
    unconditional["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let empty = json!({});
    let same: [Value; 4] = [
        place.put(place.path("configmaps/a"), &stored).answer().await.expect(200),
        place.put(place.path("configmaps/a"), &unconditional).answer().await.expect(200),
        place.patch("merge", place.path("configmaps/a"), &empty).answer().await.expect(200),
        place.patch("json", place.path("configmaps/a"), &json!([])).answer().await.expect(200),
    ];
    for answer in &same {
        assert_eq!(revision(answer), revision(&stored), "{answer}");
    }
    place.config_map("next").await;
    assert_eq!(watch.told().await.unwrap(), "ADDED next");
}

#[tokio::test]
async fn verbs_14_32_post_without_a_namespace() {
    let place = Place::new("v14-32").await;
    let body = json!({"metadata": {"name": "a", "namespace": "v14-32"}});
    place.post("/api/v1/pods", &body).answer().await.refused(405, "MethodNotAllowed");
}
