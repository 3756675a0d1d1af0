//! Reviews (02 §12.4): computed from the user of the request and from the authorizer.

use machinery::json::{Value, json};

use crate::world::World;

async fn review(world: &World, group: &str, path: &str, body: Value) -> (u16, Value) {
    let answer = world.post(&format!("/apis/{group}/v1/{path}"), &body).await;
    (answer.code, answer.json())
}

#[tokio::test]
async fn who_am_i() {
    let world = World::start().await;
    let (code, body) = review(&world, "authentication.k8s.io", "selfsubjectreviews", json!({})).await;
    assert_eq!(code, 201);
    let user = &body["status"]["userInfo"];
    assert_eq!(user["username"], "kubernetes-admin");
    assert_eq!(user["groups"], json!(["system:masters", "system:authenticated"]));
}

#[tokio::test]
async fn access_reviews_follow_the_authorizer() {
    let world = World::start().await;
    let ask =
        async |spec: Value| review(&world, "authorization.k8s.io", "subjectaccessreviews", json!({"spec": spec})).await;
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let (code, body) = ask(json!({"user": "alice", "resourceAttributes": pods})).await;
    assert_eq!((code, &body["status"]), (201, &json!({"allowed": false})));
    let (_, body) = ask(json!({"groups": ["system:masters"], "resourceAttributes": pods})).await;
    assert_eq!(body["status"], json!({"allowed": true}));
    let (code, body) = ask(json!({"resourceAttributes": pods})).await;
    assert_eq!(
        (code, body["message"].as_str().unwrap()),
        (
            422,
            ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must \
             be specified"
        )
    );
    assert_eq!(ask(json!({"user": "alice"})).await.0, 422);
    let (code, body) = review(
        &world,
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        json!({"spec": {"resourceAttributes": pods}}),
    )
    .await;
    assert_eq!((code, &body["status"]), (201, &json!({"allowed": true})));
}

#[tokio::test]
async fn au_60_is_a_token_good() {
    let world = World::start().await;
    let ask = async |spec: Value| review(&world, "authentication.k8s.io", "tokenreviews", json!({"spec": spec})).await;
    let (_, good) = ask(json!({"token": "sesame"})).await;
    assert_eq!(
        good["status"],
        json!({
            "authenticated": true,
            "user": {"username": "alice", "groups": ["system:authenticated"]},
            "audiences": ["https://kubernetes.default.svc.cluster.local"],
        })
    );
    let (_, bad) = ask(json!({"token": "nope"})).await;
    assert_eq!(bad["status"], json!({"user": {}, "error": "invalid bearer token"}));
    assert_eq!(ask(json!({})).await.0, 400);
}

#[tokio::test]
async fn s02_14_23_a_review_is_no_table() {
    let world = World::start().await;
    let body = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}).to_string();
    let headers = [("content-type", "application/json"), ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let answer =
        world.ask(true, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &headers, body).await;
    assert_eq!(answer.code, 406, "{}", answer.text());
}
