//! Reviews, credentials, discovery and health.

use serde_json::json;

use crate::world::{Namespace, message};

#[tokio::test]
async fn verbs_14_23_review_is_no_table() {
    let ns = Namespace::new("v14-23").await;
    let body = json!({"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let reviewed = ns.post(path, &body).send().await.expect(201);
    assert_eq!(reviewed["status"]["allowed"], true, "{reviewed}");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let status = ns.post(path, &body).header("Accept", accept).send().await.refused(406, "NotAcceptable");
    assert!(message(&status).ends_with(" does not support being converted to a Table"), "{status}");
}

#[tokio::test]
async fn verbs_14_24_nobody_is_anonymous() {
    let ns = Namespace::new("v14-24a").await;
    let status = ns.get_request("configmaps").without_certificate().send().await.refused(403, "Forbidden");
    assert!(message(&status).contains("User \"system:anonymous\" cannot list resource \"configmaps\""), "{status}");
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(ns.get(path).without_certificate().send().await.code, 200, "{path}");
    }
}

#[tokio::test]
async fn verbs_14_25_wrong_token_is_worse_than_none() {
    let ns = Namespace::new("v14-25").await;
    let request = ns.get_request("configmaps").without_certificate().header("Authorization", "Bearer wrong");
    request.send().await.refused(401, "Unauthorized");
    let other = ns.get_request("configmaps").without_certificate().header("Authorization", "Basic d3Jvbmc6d3Jvbmc=");
    other.send().await.refused(403, "Forbidden");
}

#[tokio::test]
async fn verbs_14_28_discovery_is_not_sent_twice() {
    let ns = Namespace::new("v14-28").await;
    let form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for path in ["/api", "/apis"] {
        let first = ns.get(path).header("Accept", form).send().await;
        assert_eq!(first.header("content-type"), form);
        assert_eq!(first.header("vary"), "Accept");
        let tag = first.header("etag");
        assert!(tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        assert_eq!(first.expect(200)["kind"], "APIGroupDiscoveryList");
        let again = ns.get(path).header("Accept", form).header("If-None-Match", tag).send().await;
        assert_eq!((again.code, again.body.len()), (304, 0));
        let changed = ns.get(path).header("Accept", form).header("If-None-Match", "\"old\"").send().await;
        assert_eq!(changed.code, 200);
    }
}

#[tokio::test]
async fn verbs_14_29_health_checks_can_be_excluded() {
    let ns = Namespace::new("v14-29").await;
    let answer = ns.get("/readyz?verbose&exclude=ping").send().await;
    assert_eq!(answer.code, 200);
    assert!(answer.text().lines().any(|line| line == "[+]ping excluded: ok"), "{}", answer.text());
    assert_eq!(answer.text().trim_end().lines().last(), Some("readyz check passed"));
    assert_eq!(ns.get("/readyz").send().await.text(), "ok");
}
