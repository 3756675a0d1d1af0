//! Delete and finalizers.

use serde_json::{Value, json};

use crate::world::{Namespace, message, names};

fn deletion(object: &Value) -> &Value {
    &object["metadata"]["deletionTimestamp"]
}

#[tokio::test]
async fn verbs_14_04_delete_twice() {
    let ns = Namespace::new("v14-04").await;
    ns.config_map("a").await;
    ns.remove("configmaps/a").await;
    let status = ns.delete(ns.path("configmaps/a")).send().await.refused(404, "NotFound");
    assert_eq!(message(&status), "configmaps \"a\" not found");
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
}

#[tokio::test]
async fn verbs_14_05_delete_of_another_uid() {
    let ns = Namespace::new("v14-05").await;
    let made = ns.config_map("a").await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
    for request in [ns.delete(ns.path("configmaps/a")).json(&options), ns.delete(ns.path("configmaps/a?uid=other"))] {
        let status = request.send().await.refused(409, "Conflict");
        let words = format!(
            "the UID in the precondition (other) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated"
        );
        assert_eq!(message(&status), format!("Operation cannot be fulfilled on ConfigMap \"a\": {words}"));
    }
    ns.delete(ns.path(&format!("configmaps/a?uid={uid}"))).send().await.expect(200);
}

#[tokio::test]
async fn verbs_14_06_delete_answers_with_the_uid() {
    let ns = Namespace::new("v14-06").await;
    let made = ns.config_map("a").await;
    let status = ns.delete(ns.path("configmaps/a")).send().await.expect(200);
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    let details = json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]});
    assert_eq!(status["details"], details);
    assert_eq!(status.get("code"), None, "{status}");
}

#[tokio::test]
async fn verbs_14_07_scheduled_pod_has_its_grace() {
    let ns = Namespace::new("v14-07").await;
    let pod = ns.pod("a", Some("n1")).await;
    let deleted = ns.delete(ns.path("pods/a")).send().await.expect(200);
    assert_eq!(deleted["kind"], "Pod", "the object, not a Status");
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 30);
    let moment = |value: &Value| {
        let time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time = serde_json::from_value(value.clone()).unwrap();
        time.0.as_second()
    };
    let (earliest, latest) = (moment(&pod["metadata"]["creationTimestamp"]), blackbox::clock::now().as_second());
    let due = moment(deletion(&deleted)) - 30;
    assert!((earliest..=latest).contains(&due), "deleted at {due}, between {earliest} and {latest}");
    assert_eq!(deletion(&ns.read("pods/a").await), deletion(&deleted), "it is still there");
    ns.delete(ns.path("pods/a?gracePeriodSeconds=0")).send().await.expect(200);
    ns.get_response("pods/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn verbs_14_08_unscheduled_pod_goes_at_once() {
    let ns = Namespace::new("v14-08").await;
    ns.pod("a", None).await;
    let deleted = ns.delete(ns.path("pods/a")).send().await.expect(200);
    assert_eq!((&deleted["kind"], &deleted["metadata"]["deletionGracePeriodSeconds"]), (&json!("Pod"), &json!(0)));
    ns.get_response("pods/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn verbs_14_09_finalizer_holds_the_object() {
    let ns = Namespace::new("v14-09").await;
    ns.create("configmaps", &json!({"metadata": {"name": "a", "finalizers": ["example.com/held"]}})).await;
    let deleted = ns.delete(ns.path("configmaps/a")).send().await.expect(200);
    assert_eq!(deleted["kind"], "ConfigMap", "the object, not a Status");
    let held = ns.read("configmaps/a").await;
    assert!(deletion(&held).is_string(), "{held}");
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    ns.merge("configmaps/a", &json!({"metadata": {"finalizers": null}})).await;
    ns.get_response("configmaps/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn verbs_14_10_no_new_finalizers_while_deleting() {
    let ns = Namespace::new("v14-10").await;
    ns.create("configmaps", &json!({"metadata": {"name": "a", "finalizers": ["example.com/one"]}})).await;
    ns.remove("configmaps/a").await;
    let patch = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two"]}});
    let answer = ns.patch("merge", ns.path("configmaps/a"), &patch).send().await;
    let status = answer.refused(422, "Invalid");
    let cause = &status["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["field"]), (&json!("FieldValueForbidden"), &json!("metadata.finalizers")));
    let words = "no new finalizers can be added if the object is being deleted, found new finalizers";
    assert!(message(&status).contains(words), "{status}");
    let held = ns.read("configmaps/a").await;
    assert_eq!(held["metadata"]["finalizers"], json!(["example.com/one"]), "nothing was written");
}

#[tokio::test]
async fn verbs_14_18_deletecollection_takes_what_is_selected() {
    let ns = Namespace::new("v14-18").await;
    ns.labelled("a", "app", "web").await;
    ns.labelled("b", "app", "db").await;
    ns.labelled("c", "app", "web").await;
    let list = ns.delete(ns.path("configmaps?labelSelector=app%3Dweb")).send().await.expect(200);
    assert_eq!((&list["kind"], names(&list)), (&json!("ConfigMapList"), vec!["a", "c"]));
    assert_eq!(names(&ns.read("configmaps").await), ["b"]);
}

#[tokio::test]
async fn verbs_14_20_default_namespace_stays() {
    let ns = Namespace::new("v14-20").await;
    for namespace in ["default", "kube-system", "kube-public"] {
        let status = ns.delete(format!("/api/v1/namespaces/{namespace}")).send().await.refused(403, "Forbidden");
        let words = format!("namespaces \"{namespace}\" is forbidden: this namespace may not be deleted");
        assert_eq!(message(&status), words);
        let stays = ns.get(format!("/api/v1/namespaces/{namespace}")).send().await.expect(200);
        assert_eq!((&stays["status"]["phase"], deletion(&stays)), (&json!("Active"), &json!(null)), "{stays}");
    }
}
