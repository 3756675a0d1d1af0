//! Delete and finalizers.

use serde_json::{Value, json};

use crate::world::{Place, message, names};

fn deletion(object: &Value) -> &Value {
    &object["metadata"]["deletionTimestamp"]
}

#[tokio::test]
async fn verbs_14_04_delete_twice() {
    let place = Place::new("v14-04").await;
    place.config_map("a").await;
    place.remove("configmaps/a").await;
    let status = place.delete(place.path("configmaps/a")).answer().await.refused(404, "NotFound");
    assert_eq!(message(&status), "configmaps \"a\" not found");
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
}

#[tokio::test]
async fn verbs_14_05_delete_of_another_uid() {
    let place = Place::new("v14-05").await;
    let made = place.config_map("a").await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
    for ask in
        [place.delete(place.path("configmaps/a")).json(&options), place.delete(place.path("configmaps/a?uid=other"))]
    {
        let status = ask.answer().await.refused(409, "Conflict");
        let words = format!(
            "the UID in the precondition (other) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated"
        );
        assert_eq!(message(&status), format!("Operation cannot be fulfilled on ConfigMap \"a\": {words}"));
    }
    place.delete(place.path(&format!("configmaps/a?uid={uid}"))).answer().await.expect(200);
}

#[tokio::test]
async fn verbs_14_06_delete_answers_with_the_uid() {
    let place = Place::new("v14-06").await;
    let made = place.config_map("a").await;
    let status = place.delete(place.path("configmaps/a")).answer().await.expect(200);
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    let details = json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]});
    assert_eq!(status["details"], details);
    assert_eq!(status.get("code"), None, "{status}");
}

#[tokio::test]
async fn verbs_14_07_scheduled_pod_has_its_grace() {
    let place = Place::new("v14-07").await;
    let pod = place.pod("a", Some("n1")).await;
    let deleted = place.delete(place.path("pods/a")).answer().await.expect(200);
    assert_eq!(deleted["kind"], "Pod", "the object, not a Status");
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 30);
    let moment = |value: &Value| {
        let time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time = serde_json::from_value(value.clone()).unwrap();
        time.0.as_second()
    };
    let grace = moment(deletion(&deleted)) - moment(&pod["metadata"]["creationTimestamp"]);
    assert!((30..90).contains(&grace), "{grace} s after it was created a moment ago");
    assert_eq!(deletion(&place.read("pods/a").await), deletion(&deleted), "it is still there");
    place.delete(place.path("pods/a?gracePeriodSeconds=0")).answer().await.expect(200);
    place.answer("pods/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn verbs_14_08_unscheduled_pod_goes_at_once() {
    let place = Place::new("v14-08").await;
    place.pod("a", None).await;
    let deleted = place.delete(place.path("pods/a")).answer().await.expect(200);
    assert_eq!((&deleted["kind"], &deleted["metadata"]["deletionGracePeriodSeconds"]), (&json!("Pod"), &json!(0)));
    place.answer("pods/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn verbs_14_09_finalizer_holds_the_object() {
    let place = Place::new("v14-09").await;
    place.make("configmaps", &json!({"metadata": {"name": "a", "finalizers": ["example.com/held"]}})).await;
    let deleted = place.delete(place.path("configmaps/a")).answer().await.expect(200);
    assert_eq!(deleted["kind"], "ConfigMap", "the object, not a Status");
    let held = place.read("configmaps/a").await;
    assert!(deletion(&held).is_string(), "{held}");
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    place.merge("configmaps/a", &json!({"metadata": {"finalizers": null}})).await;
    place.answer("configmaps/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn verbs_14_10_no_new_finalizers_while_deleting() {
    let place = Place::new("v14-10").await;
    place.make("configmaps", &json!({"metadata": {"name": "a", "finalizers": ["example.com/one"]}})).await;
    place.remove("configmaps/a").await;
    let patch = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two"]}});
    let answer = place.patch("merge", place.path("configmaps/a"), &patch).answer().await;
    let status = answer.refused(422, "Invalid");
    let cause = &status["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["field"]), (&json!("FieldValueForbidden"), &json!("metadata.finalizers")));
    let words = "no new finalizers can be added if the object is being deleted, found new finalizers";
    assert!(message(&status).contains(words), "{status}");
}

#[tokio::test]
async fn verbs_14_18_deletecollection_takes_what_is_selected() {
    let place = Place::new("v14-18").await;
    place.labelled("a", "app", "web").await;
    place.labelled("b", "app", "db").await;
    place.labelled("c", "app", "web").await;
    let list = place.delete(place.path("configmaps?labelSelector=app%3Dweb")).answer().await.expect(200);
    assert_eq!((&list["kind"], names(&list)), (&json!("ConfigMapList"), vec!["a", "c"]));
    assert_eq!(names(&place.read("configmaps").await), ["b"]);
}

#[tokio::test]
async fn verbs_14_20_default_namespace_stays() {
    let place = Place::new("v14-20").await;
    for namespace in ["default", "kube-system", "kube-public"] {
        let status = place.delete(format!("/api/v1/namespaces/{namespace}")).answer().await.refused(403, "Forbidden");
        let words = format!("namespaces \"{namespace}\" is forbidden: this namespace may not be deleted");
        assert_eq!(message(&status), words);
    }
}
