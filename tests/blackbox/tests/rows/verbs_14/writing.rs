//! Create and update.

use serde_json::{Value, json};

use crate::world::{Namespace, message, name, revision};

#[tokio::test]
async fn verbs_14_01_put_with_a_stale_revision_is_a_conflict() {
    let ns = Namespace::new("v14-01").await;
    let stale = ns.config_map("a").await;
    ns.label("a", "turn", "1").await;
    let status = ns.put(ns.path("configmaps/a"), &stale).send().await.refused(409, "Conflict");
    assert_eq!(
        message(&status),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
         please apply your changes to the latest version and try again"
    );
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
}

#[tokio::test]
async fn verbs_14_02_put_without_a_revision_where_it_is_needed() {
    let ns = Namespace::new("v14-02").await;
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}});
    ns.post(ns.path_in("coordination.k8s.io/v1", "leases"), &lease).send().await.expect(201);
    let path = ns.path_in("coordination.k8s.io/v1", "leases/a");
    let status = ns.put(path, &lease).send().await.refused(422, "Invalid");
    let words = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!(message(&status), format!("leases.coordination.k8s.io \"a\" is invalid: {words}"));
}

#[tokio::test]
async fn verbs_14_03_post_with_a_revision_is_refused() {
    let ns = Namespace::new("v14-03").await;
    let body = json!({"metadata": {"name": "a", "resourceVersion": "5"}});
    let answer = ns.post(ns.path("configmaps"), &body).send().await;
    let status = answer.expect(500);
    assert_eq!(message(&status), "resourceVersion should not be set on objects to be created");
    assert_eq!(status.get("reason"), None, "{status}");
}

#[tokio::test]
async fn verbs_14_11_dry_run_stores_nothing() {
    let ns = Namespace::new("v14-11").await;
    let path = ns.path("configmaps?dryRun=All");
    let made = ns.post(path, &json!({"metadata": {"name": "a"}})).send().await.expect(201);
    assert_eq!(made["metadata"].get("resourceVersion"), None, "{made}");
    assert!(made["metadata"]["uid"].is_string(), "{made}");
    ns.get_response("configmaps/a").await.refused(404, "NotFound");

    let stored = ns.config_map("b").await;
    let patch = json!({"data": {"k": "v"}});
    let path = ns.path("configmaps/b?dryRun=All");
    let patched = ns.patch("merge", path, &patch).send().await.expect(200);
    assert_eq!((&patched["data"], revision(&patched)), (&patch["data"], revision(&stored)));
    ns.delete(ns.path("configmaps/b?dryRun=All")).send().await.expect(200);
    assert_eq!(ns.read("configmaps/b").await, stored);
    let status = ns.delete(ns.path("configmaps/b?dryRun=x")).send().await.refused(422, "Invalid");
    assert!(message(&status).contains("dryRun: Unsupported value: [\"x\"]: supported values: \"All\""), "{status}");
}

#[tokio::test]
async fn verbs_14_12_unknown_fields_warn_fail_or_vanish() {
    let ns = Namespace::new("v14-12").await;
    let make = async |name: &str, parameters: &str| {
        let body = json!({"metadata": {"name": name}, "date": {"k": "v"}});
        ns.post(ns.path(&format!("configmaps{parameters}")), &body).send().await
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
    ns.get_response("configmaps/strict").await.refused(404, "NotFound");
    let ignored = make("ignore", "?fieldValidation=Ignore").await;
    assert_eq!((ignored.code, ignored.header("warning")), (201, ""));
    let status = make("other", "?fieldValidation=Maybe").await.refused(422, "Invalid");
    assert!(message(&status).contains("\"\", \"Ignore\", \"Strict\", \"Warn\""), "{status}");

    // A duplicate field: the last one wins, with a warning.
    let twice = r#"{"metadata": {"name": "twice"}, "data": {"k": "1"}, "data": {"k": "2"}}"#;
    let request = ns.request("POST", ns.path("configmaps")).header("Content-Type", "application/json").body(twice);
    let answer = request.send().await;
    assert_eq!(answer.header("warning"), "299 - \"duplicate field \\\"data\\\"\"");
    assert_eq!(answer.expect(201)["data"], json!({"k": "2"}));
}

#[tokio::test]
async fn pr_8_verbs_14_19_create_in_a_namespace_that_is_missing_or_ending() {
    let ns = Namespace::new("v14-19").await;
    let body = json!({"metadata": {"name": "a"}});
    let status = ns.post("/api/v1/namespaces/v14-19-missing/configmaps", &body).send().await;
    let status = status.refused(404, "NotFound");
    assert_eq!(message(&status), "namespaces \"v14-19-missing\" not found");

    ns.config_map("old").await;
    let ending = ns.delete("/api/v1/namespaces/v14-19").send().await.expect(200);
    assert_eq!(ending["status"]["phase"], "Terminating", "{ending}");
    let status = ns.post(ns.path("configmaps"), &body).send().await.refused(403, "Forbidden");
    let words = "unable to create new content in namespace v14-19 because it is being terminated";
    assert_eq!(message(&status), format!("configmaps \"a\" is forbidden: {words}"));
    let cause = json!({"reason": "NamespaceTerminating", "message": "namespace v14-19 is being terminated",
        "field": "metadata.namespace"});
    assert_eq!(status["details"]["causes"], json!([cause]));
    // Existing objects can still be changed and removed.
    ns.label("old", "still", "there").await;
    ns.remove("configmaps/old").await;
}

#[tokio::test]
async fn verbs_14_30_body_of_3_mib_and_one_byte() {
    const LIMIT: usize = 3 * 1024 * 1024;
    let ns = Namespace::new("v14-30").await;
    let send = async |size: usize| {
        let body = format!("{{\"metadata\": {{\"name\": \"a\"}}}}{}", " ".repeat(size));
        let request = ns.request("POST", ns.path("configmaps")).header("Content-Type", "application/json");
        request.body(body[..size].to_owned()).send().await
    };
    let status = send(LIMIT + 1).await.refused(413, "RequestEntityTooLarge");
    assert_eq!(message(&status), "Request entity too large: limit is 3145728");
    assert_eq!(name(&send(LIMIT).await.expect(201)), "a", "one byte less is read");
}

#[tokio::test]
async fn verbs_14_31_update_that_changes_nothing() {
    let ns = Namespace::new("v14-31").await;
    let stored = ns.config_map("a").await;
    let mut watch = ns.watching(&format!("resourceVersion={}", revision(&stored))).await;
    let mut unconditional = stored.clone();
    unconditional["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let empty = json!({});
    let same: [Value; 4] = [
        ns.put(ns.path("configmaps/a"), &stored).send().await.expect(200),
        ns.put(ns.path("configmaps/a"), &unconditional).send().await.expect(200),
        ns.patch("merge", ns.path("configmaps/a"), &empty).send().await.expect(200),
        ns.patch("json", ns.path("configmaps/a"), &json!([])).send().await.expect(200),
    ];
    for answer in &same {
        assert_eq!(revision(answer), revision(&stored), "{answer}");
    }
    ns.config_map("next").await;
    assert_eq!(watch.summary().await.unwrap(), "ADDED next");
}

#[tokio::test]
async fn verbs_14_32_post_without_a_namespace() {
    let ns = Namespace::new("v14-32").await;
    let body = json!({"metadata": {"name": "a", "namespace": "v14-32"}});
    ns.post("/api/v1/pods", &body).send().await.refused(405, "MethodNotAllowed");
}
