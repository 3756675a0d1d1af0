//! The test ideas in the sections of the verbs: create, apply.

use serde_json::{Value, json};

use crate::world::{Namespace, message, name, revision};

#[tokio::test]
async fn verbs_t_02_post_twice() {
    let ns = Namespace::new("v02-twice").await;
    let made = ns.config_map("a").await;
    let again = ns.post(ns.path("configmaps"), &json!({"metadata": {"name": "a"}})).send().await;
    let status = again.refused(409, "AlreadyExists");
    assert_eq!(message(&status), "configmaps \"a\" already exists");
    assert_eq!(ns.read("configmaps/a").await, made);
}

#[tokio::test]
async fn verbs_t_02_what_the_server_sets_is_not_taken() {
    let ns = Namespace::new("v02-uid").await;
    let metadata = json!({"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5});
    let made = ns.create("configmaps", &json!({"metadata": metadata})).await;
    assert_ne!(made["metadata"]["uid"], "mine");
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36, "a UUID");
    assert!(!made["metadata"]["creationTimestamp"].as_str().unwrap().starts_with("2001"), "{made}");
    assert_eq!(made["metadata"].get("deletionTimestamp"), None);
    assert_eq!(made["metadata"].get("deletionGracePeriodSeconds"), None);
}

#[tokio::test]
async fn pr_7_verbs_t_02_long_generated_name_is_cut() {
    let ns = Namespace::new("v02-generate").await;
    let prefix = "x".repeat(70);
    let made = ns.create("configmaps", &json!({"metadata": {"generateName": prefix}})).await;
    assert_eq!(name(&made).len(), 63);
    let (kept, random) = name(&made).split_at(58);
    assert_eq!(kept, &prefix[..58]);
    assert!(random.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{random}");
    let body = json!({"metadata": {}});
    let status = ns.post(ns.path("configmaps"), &body).send().await.refused(422, "Invalid");
    assert!(message(&status).contains("metadata.name: Required value: name or generateName is required"), "{status}");
}

/// Applies to a Deployment as this manager.
async fn apply(ns: &Namespace, manager: &str, parameters: &str, replicas: Option<u32>) -> blackbox::wire::Response {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}},
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
    }
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec});
    let path = ns.path_in("apps/v1", &format!("deployments/a?fieldManager={manager}{parameters}"));
    ns.patch("apply", path, &body).send().await
}

fn owners(object: &Value) -> Vec<&str> {
    let fields = object["metadata"]["managedFields"].as_array().unwrap();
    let owning = fields.iter().filter(|entry| entry["fieldsV1"]["f:spec"].get("f:replicas").is_some());
    owning.map(|entry| entry["manager"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn verbs_t_05_apply_of_what_another_owns() {
    let ns = Namespace::new("v05-conflict").await;
    let made = apply(&ns, "one", "", Some(1)).await.expect(201);
    assert_eq!(owners(&made), ["one"]);
    let status = apply(&ns, "two", "", Some(2)).await.refused(409, "Conflict");
    assert_eq!(status["details"]["causes"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(status["details"]["causes"][0]["field"], ".spec.replicas");
    let forced = apply(&ns, "two", "&force=true", Some(2)).await.expect(200);
    assert_eq!((&forced["spec"]["replicas"], owners(&forced)), (&json!(2), vec!["two"]));
}

#[tokio::test]
async fn verbs_t_05_apply_without_a_field_removes_it() {
    let ns = Namespace::new("v05-omitted").await;
    apply(&ns, "one", "", Some(3)).await.expect(201);
    let without = apply(&ns, "one", "", None).await.expect(200);
    // Without an owner, the field has its default again.
    assert_eq!((&without["spec"]["replicas"], owners(&without).len()), (&json!(1), 0));
}

#[tokio::test]
async fn verbs_t_05_apply_of_the_same_changes_nothing() {
    let ns = Namespace::new("v05-same").await;
    let made = apply(&ns, "one", "", Some(3)).await.expect(201);
    let again = apply(&ns, "one", "", Some(3)).await.expect(200);
    assert_eq!(revision(&again), revision(&made));
    assert_eq!(again["metadata"]["managedFields"], made["metadata"]["managedFields"]);
    let status = apply(&ns, "", "", Some(3)).await.refused(422, "Invalid");
    assert!(message(&status).contains("fieldManager: Required value: is required for apply patch"), "{status}");
}
