//! Refused requests: codes, reasons and messages.

use machinery::json::json;

use crate::world::World;

const NOT_FOUND: &str = "the server could not find the requested resource";
const NOT_ALLOWED: &str = "the server does not allow this method on the requested resource";

#[tokio::test]
async fn s02_14_24_and_25_nobody_and_wrong_tokens() {
    let world = World::start().await;
    let nobody = world.ask(false, "GET", "/api/v1/nodes", &[], "").await;
    assert_eq!(
        nobody.refusal(),
        (
            403,
            "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the \
             cluster scope"
                .to_owned()
        )
    );
    assert_eq!(nobody.json()["details"], json!({"kind": "nodes"}));
    assert_eq!(nobody.header("x-content-type-options"), "nosniff");
    let unknown = world.ask(false, "GET", "/nope", &[], "").await;
    assert_eq!(
        unknown.refusal(),
        (403, "forbidden: User \"system:anonymous\" cannot get path \"/nope\"".to_owned()),
        "authorization comes before routing"
    );
    for path in ["/api/v1/nodes", "/healthz"] {
        let wrong = world.ask(false, "GET", path, &[("authorization", "Bearer nope")], "").await;
        assert_eq!(wrong.refusal(), (401, "Unauthorized".to_owned()));
    }
    let alice = world.ask(false, "GET", "/api/v1/nodes", &[("authorization", "Bearer sesame")], "").await;
    assert_eq!(alice.code, 200);
}

#[tokio::test]
async fn every_answer_has_its_headers() {
    let world = World::start().await;
    for (path, code) in [("/api/v1/nodes", 200), ("/api/v1/nope", 404), ("/healthz", 200), ("/nope", 404)] {
        let answer = world.get(path).await;
        assert_eq!(answer.code, code);
        assert_eq!(answer.header("cache-control"), "no-cache, private", "{path}");
        assert_eq!(answer.header("audit-id").len(), 36, "{path}");
    }
    let echoed = world.get_with("/api/v1/nodes", &[("audit-id", "mine")]).await;
    assert_eq!(echoed.header("audit-id"), "mine");
}

#[tokio::test]
async fn s01_12_routers_words() {
    let world = World::start().await;
    for (method, path, code, message) in [
        ("GET", "/api/v1/nope", 404, NOT_FOUND),
        ("GET", "/apis/apps/v9", 404, NOT_FOUND),
        ("POST", "/api/v1/pods", 405, NOT_ALLOWED),
        ("PUT", "/api/v1/namespaces/default/pods", 405, NOT_ALLOWED),
        ("OPTIONS", "/api/v1/namespaces/default/pods", 405, NOT_ALLOWED),
    ] {
        let answer = world.ask(true, method, path, &[], "").await;
        assert_eq!(answer.refusal(), (code, message.to_owned()), "{method} {path}");
        assert_eq!(answer.json()["details"], json!({}));
        assert_eq!(answer.header("allow"), "");
    }
    for path in ["/nope", "/apis/nope", "/apis/nope.example.com/v1/things?watch=1"] {
        let answer = world.get(path).await;
        assert_eq!((answer.code, answer.text()), (404, "404 page not found\n"), "{path}");
        assert!(answer.header("content-type").starts_with("text/plain"));
    }
    let head = world.ask(true, "HEAD", "/api/v1/namespaces/default/pods", &[], "").await;
    assert_eq!((head.code, head.text()), (405, ""));
    assert_eq!(world.ask(true, "HEAD", "/apis", &[], "").await.code, 200);
}

#[tokio::test]
async fn s02_14_17_patches_of_no_known_kind() {
    let world = World::start().await;
    world.make_config_map("a", "v").await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    for content_type in [&[("content-type", "application/json")][..], &[]] {
        let answer = world.ask(true, "PATCH", path, content_type, "{}").await;
        assert_eq!(answer.refusal(), (415, "415: Unsupported Media Type".to_owned()));
    }
    let post =
        world.ask(true, "POST", "/api/v1/namespaces/default/configmaps", &[("content-type", "text/plain")], "{}");
    assert_eq!(post.await.code, 415);
}

#[tokio::test]
async fn deadlines_that_are_none_are_refused() {
    let world = World::start().await;
    let answer = world.get("/api/v1/nodes?timeout=soon").await;
    assert_eq!(
        answer.refusal(),
        (400, "invalid timeout specified in the request URL - time: invalid duration \"soon\"".to_owned())
    );
    assert_eq!(world.get("/api/v1/nodes?timeout=5s").await.code, 200);
}

#[tokio::test]
async fn s02_12_2_masters_speak_as_others_and_nobody_else_needs_a_rule_here() {
    let world = World::start().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let json_type = ("content-type", "application/json");
    let headers = [json_type, ("impersonate-user", "bob"), ("impersonate-group", "devs")];
    let bob = world.ask(true, "POST", path, &headers, body.clone()).await;
    assert_eq!(bob.code, 201);
    assert_eq!(
        bob.json()["status"]["userInfo"],
        json!({"username": "bob", "groups": ["devs", "system:authenticated"]})
    );
    let group_only = world.ask(true, "POST", path, &[json_type, ("impersonate-group", "devs")], body.clone()).await;
    assert_eq!(group_only.code, 400);
    let nobody = world.ask(false, "POST", path, &[json_type, ("impersonate-user", "bob")], body).await;
    assert_eq!(
        nobody.refusal(),
        (
            403,
            "selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:anonymous\" cannot \
             impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at \
             the cluster scope"
                .to_owned()
        )
    );
}
