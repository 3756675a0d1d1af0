//! Traces of admission, and refusals that name everything.

use dogwatch::cluster::Access;
use machinery::json::{Value, json};

use crate::hook::{Hook, configure};
use crate::world::{MAPS, Response, World, admin, map, user};

const CREATE: &[&str] = &["CREATE"];

fn traced_write(object: &Value) -> http::Request<bytes::Bytes> {
    let request = http::Request::post(format!("{MAPS}?dryRun=All"))
        .header("content-type", "application/json")
        .header("dogwatch-trace-admission", "1");
    request.body(object.to_string().into()).unwrap()
}

async fn traced(world: &World, object: &Value) -> (Response, Value) {
    let answer = world.send(admin(), traced_write(object)).await;
    let id = answer.headers["audit-id"].to_str().unwrap().to_owned();
    let trace = world.get(&format!("/debug/admission/{id}")).await;
    (answer, trace.body)
}

fn step<'t>(trace: &'t Value, kind: &str, name: &str) -> Vec<&'t Value> {
    trace["steps"].as_array().unwrap().iter().filter(|step| step[kind] == name).collect()
}

#[tokio::test]
async fn bd_4_a_trace_shows_every_step() {
    let world = World::new().await;
    let changing = Hook::patching(json!([{"op": "add", "path": "/data/x", "value": "1"}])).await;
    let mut other = changing.webhook("other.example.com", CREATE, &["configmaps"]);
    other["objectSelector"] = json!({"matchLabels": {"a": "b"}});
    let hook = changing.webhook("h.example.com", CREATE, &["configmaps"]);
    configure(&world, "mutating", "hooks", &[hook, other]).await;
    let refusing = Hook::closed("no").await;
    refusing.validates(&world, CREATE, &["configmaps"]).await;
    crate::policies::validating(&world, "p", json!([{"expression": "true"}]), json!(["Deny"])).await;
    let (answer, trace) = traced(&world, &map("m")).await;
    assert_eq!(answer.code, 400);
    assert_eq!((&trace["method"], &trace["code"]), (&json!("POST"), &json!(400)));
    let changed = step(&trace, "webhook", "h.example.com");
    assert_eq!(changed[0]["verdict"], "changed");
    assert_eq!(changed[0]["patch"], json!([{"op": "add", "path": "/data/x", "value": "1"}]));
    assert_eq!(changed[0]["configuration"], "hooks");
    let skipped = step(&trace, "webhook", "other.example.com");
    assert_eq!(
        (&skipped[0]["verdict"], &skipped[0]["why"]),
        (&json!("unmatched"), &json!("objectSelector does not match"))
    );
    assert_eq!(step(&trace, "policy", "p")[0]["verdict"], "admitted");
    let refused = changed.last().unwrap();
    assert_eq!((&refused["phase"], &refused["verdict"]), (&json!("validate"), &json!("refused")));
    assert!(!step(&trace, "plugin", "NamespaceLifecycle").is_empty());
    assert_eq!(world.get(&format!("{MAPS}/m")).await.code, 404);
}

#[tokio::test]
async fn bd_4_traces_are_for_administrators() {
    let world = World::new().await;
    let (answer, _) = traced(&world, &map("m")).await;
    let id = answer.headers["audit-id"].to_str().unwrap();
    for path in [format!("/debug/admission/{id}"), "/debug/admission".to_owned()] {
        let request = http::Request::get(path).body(bytes::Bytes::new()).unwrap();
        assert_eq!(world.send(user("bob", &[]), request).await.code, 403);
    }
    assert_eq!(world.get("/debug/admission/none").await.code, 404);
}

#[tokio::test]
async fn bd_4_only_administrators_request_traces() {
    let world = World::new().await;
    let binding = json!({
        "metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    world.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.object();
    let hook = Hook::closed("no").await;
    let webhooks = ["a", "b"].map(|name| hook.webhook(&format!("{name}.example.com"), CREATE, &["configmaps"]));
    configure(&world, "validating", "hooks", &webhooks).await;
    let refused = world.send(user("bob", &[]), traced_write(&map("m"))).await;
    assert_eq!(refused.message(), r#"admission webhook "a.example.com" denied the request: no"#);
    assert!(!refused.headers.contains_key("dogwatch-admission-steps"));
    assert!(refused.body["details"]["causes"].is_null(), "{}", refused.body);
    assert_eq!(world.get("/debug/admission").await.body, json!([]));
    // An administrator may look at what happens to another user's write.
    let mut request = traced_write(&map("m"));
    request.headers_mut().insert("impersonate-user", "bob".parse().unwrap());
    let refused = world.send(admin(), request).await;
    assert!(refused.headers.contains_key("dogwatch-admission-steps"), "{}", refused.body);
    assert_eq!(world.get("/debug/admission").await.body.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn bd_4_all_writes_are_traced_if_asked() {
    let access = Access { traced_writes: 1, ..Access::default() };
    let world = World::with(access, Default::default(), Default::default()).await;
    for name in ["a", "b"] {
        world.post(MAPS, &map(name)).await.object();
    }
    assert_eq!(world.get("/debug/admission").await.body.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn bd_2_3_further_refusals_are_causes_if_asked() {
    for explains in [false, true] {
        let access = Access { explain_refusals: explains, ..Access::default() };
        let world = World::with(access, Default::default(), Default::default()).await;
        let hook = Hook::closed("no").await;
        let webhooks =
            ["c", "a", "b"].map(|name| hook.webhook(&format!("{name}.example.com"), CREATE, &["configmaps"]));
        configure(&world, "validating", "hooks", &webhooks).await;
        for _ in 0..5 {
            let refused = world.post(MAPS, &map("m")).await;
            assert_eq!(refused.message(), r#"admission webhook "a.example.com" denied the request: no"#);
            let causes: Vec<&str> = refused.body["details"]["causes"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|cause| cause["message"].as_str())
                .collect();
            let others = [
                r#"admission webhook "b.example.com" denied the request: no"#,
                r#"admission webhook "c.example.com" denied the request: no"#,
            ];
            assert_eq!(causes, if explains { &others[..] } else { &[] });
        }
    }
}

#[tokio::test]
async fn bd_5_a_refused_field_names_the_webhook_that_set_it() {
    let access = Access { explain_refusals: true, ..Access::default() };
    let world = World::with(access, Default::default(), Default::default()).await;
    let hook = Hook::patching(json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "not valid!"}}])).await;
    hook.mutates(&world, CREATE, &["configmaps"]).await;
    let refused = world.post(MAPS, &map("m")).await;
    let causes = refused.body["details"]["causes"].as_array().unwrap();
    let last = causes.last().unwrap()["message"].as_str().unwrap();
    assert!(last.starts_with("metadata.labels: ") && last.ends_with("(set by webhook \"h.example.com\")"), "{last}");
}
