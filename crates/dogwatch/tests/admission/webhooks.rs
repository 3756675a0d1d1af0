//! Webhooks, from the request of a client to its answer.

use machinery::json::{Value, json};
use outbound::testing::{Reply, free_address};

use crate::hook::{Hook, configure, patched};
use crate::world::{MAPS, World, admin, map, pod};

const CREATE: &[&str] = &["CREATE"];
const CONFIG_MAPS: &[&str] = &["configmaps"];

fn label_patch() -> Value {
    json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])
}

#[tokio::test]
async fn chain_11_1_a_patch_is_stored_and_owned_by_no_manager() {
    let (world, hook) = (World::new().await, Hook::patching(label_patch()).await);
    hook.mutates(&world, CREATE, CONFIG_MAPS).await;
    let created = world.post(MAPS, &map("m")).await;
    assert_eq!(created.code, 201);
    assert_eq!(created.body["metadata"]["labels"], json!({"a": "b"}));
    let stored = world.get(&format!("{MAPS}/m")).await.object();
    assert_eq!(stored["metadata"]["labels"], json!({"a": "b"}));
    let managers = stored["metadata"]["managedFields"].to_string();
    assert!(managers.contains("f:data") && !managers.contains("f:labels"), "{managers}");
}

#[tokio::test]
async fn chain_11_2_ad_12_a_dry_run_is_reviewed_and_not_stored() {
    let (world, hook) = (World::new().await, Hook::patching(label_patch()).await);
    hook.mutates(&world, CREATE, CONFIG_MAPS).await;
    let created = world.post(&format!("{MAPS}?dryRun=All"), &map("m")).await.object();
    assert_eq!(created["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(world.get(&format!("{MAPS}/m")).await.code, 404);
    assert_eq!(hook.reviews()[0]["dryRun"], true);
}

#[tokio::test]
async fn chain_11_3_a_refusal_has_the_status_of_the_webhook() {
    let world = World::new().await;
    let hook = Hook::new(|_| json!({"allowed": false, "status": {"code": 418, "message": "no", "reason": "Teapot"}}));
    let hook = hook.await;
    hook.validates(&world, CREATE, CONFIG_MAPS).await;
    let refused = world.post(MAPS, &map("m")).await;
    assert_eq!((refused.code, &refused.body["reason"]), (418, &json!("Teapot")));
    assert_eq!(refused.message(), r#"admission webhook "h.example.com" denied the request: no"#);
}

#[tokio::test]
async fn chain_11_4_a_refusal_may_say_nothing() {
    let (world, hook) = (World::new().await, Hook::new(|_| json!({"allowed": false})).await);
    hook.validates(&world, CREATE, CONFIG_MAPS).await;
    let refused = world.post(MAPS, &map("m")).await;
    assert_eq!(refused.code, 400);
    assert_eq!(refused.message(), r#"admission webhook "h.example.com" denied the request without explanation"#);
}

#[tokio::test]
async fn chain_11_5_wh_31_35_a_webhook_that_is_not_there_fails_by_its_policy() {
    let (world, hook) = (World::new().await, Hook::open().await);
    let mut webhook = hook.webhook("h.example.com", CREATE, CONFIG_MAPS);
    let address = free_address().await;
    webhook["clientConfig"]["url"] = json!(format!("https://{address}/hook"));
    configure(&world, "validating", "hooks", &[webhook.clone()]).await;
    let refused = world.post(MAPS, &map("m")).await;
    let text = format!(
        "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post \
         \"https://{address}/hook?timeout=10s\": dial tcp {address}: connect: connection refused"
    );
    assert_eq!((refused.code, refused.message()), (500, text.as_str()));
    assert_eq!(refused.body["details"]["causes"][0]["message"], text.trim_start_matches("Internal error occurred: "));
    webhook["failurePolicy"] = json!("Ignore");
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks";
    world.merge(path, &json!({"webhooks": [webhook]})).await.object();
    assert_eq!(world.post(MAPS, &map("m")).await.code, 201);
}

#[tokio::test]
async fn chain_11_6_wh_52_a_slow_webhook_fails_by_its_timeout() {
    let (world, hook) = (World::new().await, Hook::replying(|_| Reply::never()).await);
    let mut webhook = hook.webhook("h.example.com", CREATE, CONFIG_MAPS);
    webhook["timeoutSeconds"] = json!(1);
    configure(&world, "validating", "hooks", &[webhook]).await;
    let refused = world.post(MAPS, &map("m")).await;
    assert_eq!(refused.code, 500);
    assert!(refused.message().contains("?timeout=1s\": context deadline exceeded"), "{}", refused.message());
}

#[tokio::test]
async fn chain_11_7_wh_32_another_uid_is_no_answer() {
    let (world, hook) = (World::new().await, Hook::new(|_| json!({"uid": "other"})).await);
    hook.validates(&world, CREATE, CONFIG_MAPS).await;
    let refused = world.post(MAPS, &map("m")).await;
    assert_eq!(refused.code, 500);
    let text = "failed calling webhook \"h.example.com\": received invalid webhook response: expected response.uid=";
    assert!(refused.message().contains(text), "{}", refused.message());
}

#[tokio::test]
async fn chain_11_8_a_validating_webhook_changes_nothing() {
    let (world, hook) = (World::new().await, Hook::patching(label_patch()).await);
    hook.validates(&world, CREATE, CONFIG_MAPS).await;
    let refused = world.post(MAPS, &map("m")).await;
    assert_eq!(refused.code, 500);
    assert!(refused.message().ends_with("validating webhook may not return response.patch"), "{}", refused.message());
}

#[tokio::test]
async fn chain_11_9_wh_36_a_patch_that_does_not_apply_fails_whatever_the_policy() {
    let world = World::new().await;
    let hook = Hook::patching(json!([{"op": "replace", "path": "/nope/x", "value": 1}])).await;
    let mut webhook = hook.webhook("h.example.com", CREATE, CONFIG_MAPS);
    webhook["failurePolicy"] = json!("Ignore");
    configure(&world, "mutating", "hooks", &[webhook]).await;
    let refused = world.post(MAPS, &map("m")).await;
    let text = "Internal error occurred: replace operation does not apply: doc is missing path: /nope/x: missing value";
    assert_eq!((refused.code, refused.message()), (500, text));
}

#[tokio::test]
async fn chain_11_10_a_patched_object_must_be_valid() {
    let world = World::new().await;
    let hook = Hook::patching(json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "not valid!"}}])).await;
    hook.mutates(&world, CREATE, CONFIG_MAPS).await;
    let refused = world.post(MAPS, &map("m")).await;
    assert_eq!((refused.code, &refused.body["reason"]), (422, &json!("Invalid")));
    assert_eq!(refused.body["details"]["causes"][0]["field"], "metadata.labels");
}

/// Appends a letter to an annotation.
async fn appending(letter: &'static str) -> Hook {
    Hook::new(move |request| {
        let annotations = &request["object"]["metadata"]["annotations"];
        let before = annotations["order"].as_str().unwrap_or_default().to_owned();
        patched(&json!([{"op": "add", "path": "/metadata/annotations", "value": {"order": before + letter}}]))
    })
    .await
}

#[tokio::test]
async fn chain_11_11_wh_50_configurations_are_called_in_the_order_of_their_names() {
    let world = World::new().await;
    let mut hooks = Vec::new();
    for (name, letter) in [("z", "z"), ("a.b", "."), ("a-b", "-"), ("a", "a")] {
        let hook = appending(letter).await;
        configure(&world, "mutating", name, &[hook.webhook("h.example.com", CREATE, CONFIG_MAPS)]).await;
        hooks.push(hook);
    }
    let created = world.post(MAPS, &map("m")).await.object();
    assert_eq!(created["metadata"]["annotations"]["order"], "a-.z", "in byte order");
}

#[tokio::test]
async fn chain_11_12_ad_10_a_webhook_is_called_again_after_a_later_change() {
    let world = World::new().await;
    let first = Hook::open().await;
    let second = Hook::patching(json!([{"op": "add", "path": "/data/x", "value": "1"}])).await;
    let mut again = first.webhook("a.example.com", CREATE, CONFIG_MAPS);
    again["reinvocationPolicy"] = json!("IfNeeded");
    let later = second.webhook("b.example.com", CREATE, CONFIG_MAPS);
    configure(&world, "mutating", "hooks", &[again, later]).await;
    world.post(MAPS, &map("m")).await.object();
    let seen: Vec<Value> = first.reviews().iter().map(|review| review["object"]["data"].clone()).collect();
    assert_eq!(seen, [json!({"k": "v"}), json!({"k": "v", "x": "1"})], "before and after the change");
    assert_eq!(second.reviews().len(), 1);
    let uids: Vec<Value> = first.reviews().iter().map(|review| review["uid"].clone()).collect();
    assert_ne!(uids[0], uids[1]);
}

#[tokio::test]
async fn chain_11_13_ad_35_the_labels_of_the_old_object_count_too() {
    let (world, hook) = (World::new().await, Hook::open().await);
    let mut webhook = hook.webhook("h.example.com", &["UPDATE"], CONFIG_MAPS);
    webhook["objectSelector"] = json!({"matchLabels": {"x": "1"}});
    configure(&world, "validating", "hooks", &[webhook]).await;
    let mut labelled = map("m");
    labelled["metadata"]["labels"] = json!({"x": "1"});
    world.post(MAPS, &labelled).await.object();
    world.merge(&format!("{MAPS}/m"), &json!({"metadata": {"labels": {"x": null}}})).await.object();
    assert_eq!(hook.reviews().len(), 1);
    world.merge(&format!("{MAPS}/m"), &json!({"data": {"y": "1"}})).await.object();
    assert_eq!(hook.reviews().len(), 1, "neither state has the label");
}

#[tokio::test]
async fn chain_11_14_ad_34_objects_without_a_namespace_pass_its_selector() {
    let (world, hook) = (World::new().await, Hook::open().await);
    let mut webhook = hook.webhook("h.example.com", CREATE, &["clusterroles", "configmaps"]);
    webhook["namespaceSelector"] = json!({"matchLabels": {"env": "test"}});
    configure(&world, "validating", "hooks", &[webhook]).await;
    let role = json!({"metadata": {"name": "r"}, "rules": []});
    world.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.object();
    assert_eq!(hook.reviews().len(), 1);
    world.post(MAPS, &map("m")).await.object();
    assert_eq!(hook.reviews().len(), 1, "the namespace has another label");
    world.merge("/api/v1/namespaces/default", &json!({"metadata": {"labels": {"env": "test"}}})).await.object();
    world.post(MAPS, &map("n")).await.object();
    assert_eq!(hook.reviews().len(), 2, "labels of a namespace act at once");
}

#[tokio::test]
async fn chain_11_15_ad_4_5_deletions_have_an_old_object_only() {
    let (world, hook) = (World::new().await, Hook::open().await);
    hook.validates(&world, &["DELETE"], &["configmaps", "pods"]).await;
    world.post(MAPS, &map("a")).await.object();
    world.post(MAPS, &map("b")).await.object();
    world.delete(&format!("{MAPS}/a")).await.object();
    let review = hook.reviews().remove(0);
    assert_eq!((&review["object"], &review["name"]), (&Value::Null, &json!("a")));
    assert_eq!(review["oldObject"]["metadata"]["name"], "a");
    assert_eq!(world.delete(&format!("{MAPS}/a")).await.code, 404, "an object that is not there is not reviewed");
    world.delete(&format!("{MAPS}?labelSelector=!x")).await.object();
    let reviews = hook.reviews();
    assert_eq!(reviews.len(), 2);
    assert!(reviews[1].get("name").is_none(), "{}", reviews[1]);
    assert_eq!(reviews[1]["oldObject"]["metadata"]["name"], "b");
    // A pod without a node is marked and then removed: two deletions.
    world.post("/api/v1/namespaces/default/pods", &pod("p")).await.object();
    world.delete("/api/v1/namespaces/default/pods/p").await.object();
    let reviews = hook.reviews();
    assert_eq!(reviews.len(), 4);
    let marked = |review: &Value| review["oldObject"]["metadata"].get("deletionTimestamp").is_some();
    assert!(!marked(&reviews[2]) && marked(&reviews[3]));
}

#[tokio::test]
async fn chain_11_16_ad_6_20_a_connection_has_its_options_as_object() {
    let (world, hook) = (World::new().await, Hook::closed("no shells").await);
    hook.validates(&world, &["CONNECT"], &["pods/exec", "pods/proxy", "pods/portforward"]).await;
    let path = "/api/v1/namespaces/default/pods/none";
    let refused = world.post(&format!("{path}/exec?command=ls&command=-l&container=c&stdout=true"), &Value::Null).await;
    assert_eq!(refused.message(), r#"admission webhook "h.example.com" denied the request: no shells"#);
    let review = hook.reviews().remove(0);
    let options = json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "container": "c", "command": ["ls", "-l"]});
    assert_eq!(review["object"], options);
    assert_eq!((&review["options"], &review["oldObject"]), (&Value::Null, &Value::Null));
    assert_eq!((&review["name"], &review["subResource"]), (&json!("none"), &json!("exec")));
    assert_eq!(world.get(&format!("{path}/proxy/a/b")).await.code, 400, "before the pod is looked up");
    assert_eq!(hook.reviews()[1]["object"]["path"], "/a/b");
    world.post(&format!("{path}/portforward?ports=80,81"), &Value::Null).await;
    assert_eq!(hook.reviews()[2]["object"]["ports"], json!([80, 81]));
    assert_eq!(world.post(&format!("{path}/exec?dryRun=All"), &Value::Null).await.message(), "dryRun is not supported");
}

/// The review of each call is a connection that needs the webhook again.
#[tokio::test]
async fn wh_5_a_webhook_that_calls_itself_through_the_server_fails() {
    let world = World::new().await;
    let path = "/api/v1/namespaces/default/pods/x/proxy";
    let webhook = json!({
        "name": "h.example.com",
        "clientConfig": {"service": {"namespace": "default", "name": "kubernetes", "path": path}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/proxy"]}],
    });
    configure(&world, "validating", "hooks", &[webhook]).await;
    let refused = world.post(path, &Value::Null).await;
    assert_eq!(refused.code, 500, "{}", refused.body);
    let message = refused.message();
    assert!(message.contains("the server already calls itself 8 times for this request"), "{message}");
    assert_eq!(message.matches("failed calling webhook").count(), 9, "the first request and eight calls: {message}");
    assert_eq!(world.post(MAPS, &map("m")).await.code, 201, "the server lives");
}

#[tokio::test]
async fn chain_11_17_ad_23_33_objects_are_converted_to_the_version_of_the_rule() {
    let (world, hook) = (World::new().await, Hook::open().await);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    });
    world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.object();
    let mut webhook = hook.webhook("h.example.com", &["*"], &["things"]);
    webhook["rules"][0]["apiVersions"] = json!(["v1"]);
    let mut exact = webhook.clone();
    exact["name"] = json!("exact.example.com");
    exact["matchPolicy"] = json!("Exact");
    configure(&world, "validating", "hooks", &[webhook, exact]).await;
    let path = "/apis/example.com/v1beta1/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v1beta1", "kind": "Thing", "metadata": {"name": "t"}});
    world.post(path, &thing).await.object();
    world.delete(&format!("{path}/t")).await.object();
    let reviews = hook.reviews();
    assert_eq!(reviews.len(), 2, "the exact one is not called");
    for (review, object) in [(&reviews[0], "object"), (&reviews[1], "oldObject")] {
        assert_eq!((&review["kind"]["version"], &review["requestKind"]["version"]), (&json!("v1"), &json!("v1beta1")));
        assert_eq!(review["resource"]["version"], "v1");
        assert_eq!(review["requestResource"]["version"], "v1beta1");
        assert_eq!(review[object]["apiVersion"], "example.com/v1");
    }
}

#[tokio::test]
async fn chain_11_26_vap_26_a_policy_refuses_before_webhooks_are_called() {
    let (world, hook) = (World::new().await, Hook::closed("the webhook").await);
    hook.validates(&world, CREATE, CONFIG_MAPS).await;
    crate::policies::validating(
        &world,
        "p",
        json!([{"expression": "false", "message": "the policy"}]),
        json!(["Deny"]),
    )
    .await;
    let refused = world.post(MAPS, &map("m")).await;
    assert!(refused.message().ends_with("denied request: the policy"), "{}", refused.message());
    assert!(hook.reviews().is_empty());
}

#[tokio::test]
async fn chain_11_27_a_quota_is_not_charged_for_what_a_webhook_refuses() {
    let (world, hook) = (World::new().await, Hook::closed("no").await);
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"configmaps": "5"});
    world.post(quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.object();
    let used = json!({"configmaps": "5"});
    world.merge(&format!("{quotas}/q/status"), &json!({"status": {"hard": hard, "used": used}})).await.object();
    hook.validates(&world, CREATE, CONFIG_MAPS).await;
    let refused = world.post(MAPS, &map("m")).await;
    assert!(refused.message().ends_with("denied the request: no"), "{}", refused.message());
    assert_eq!(world.get(&format!("{quotas}/q")).await.object()["status"]["used"], used);
}

#[tokio::test]
async fn chain_11_28_ad_9_an_eviction_is_admitted_as_itself() {
    let (world, deletes, evictions) = (World::new().await, Hook::open().await, Hook::open().await);
    let webhooks = [
        deletes.webhook("deletes.example.com", &["DELETE"], &["pods"]),
        evictions.webhook("evictions.example.com", CREATE, &["pods/eviction"]),
    ];
    configure(&world, "validating", "hooks", &webhooks).await;
    world.post("/api/v1/namespaces/default/pods", &pod("p")).await.object();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    world.post("/api/v1/namespaces/default/pods/p/eviction", &eviction).await.object();
    assert_eq!(world.get("/api/v1/namespaces/default/pods/p").await.code, 404);
    assert!(deletes.reviews().is_empty());
    let review = evictions.reviews().remove(0);
    assert_eq!((&review["kind"]["kind"], &review["operation"]), (&json!("Eviction"), &json!("CREATE")));
}

#[tokio::test]
async fn wh_1_a_review_is_posted_as_json() {
    let (world, hook) = (World::new().await, Hook::open().await);
    hook.validates(&world, CREATE, CONFIG_MAPS).await;
    world.post(MAPS, &map("m")).await.object();
    let seen = hook.server.requests().remove(0);
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/hook?timeout=10s"));
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.header("accept"), "application/json, */*");
    assert_eq!(seen.header("user-agent"), "kube-apiserver-admission");
}

#[tokio::test]
async fn wh_33_a_code_of_failure_has_a_text() {
    for (code, text) in [
        (404, "the server could not find the requested resource"),
        (500, "an error on the server (\"oops\") has prevented the request from succeeding"),
        (400, "the server rejected our request for an unknown reason"),
        (503, "the server is currently unable to handle the request"),
        (302, "the server responded with the status code 302 but did not return more information"),
    ] {
        let (world, hook) = (World::new().await, Hook::replying(move |_| Reply::text("oops").status(code)).await);
        hook.validates(&world, CREATE, CONFIG_MAPS).await;
        let refused = world.post(MAPS, &map("m")).await;
        assert_eq!(refused.code, 500);
        let expected = format!(
            "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: {text}"
        );
        assert_eq!(refused.message(), expected);
    }
}

#[tokio::test]
async fn ad_30_webhooks_see_reviews_but_no_configurations() {
    let (world, hook) = (World::new().await, Hook::open().await);
    hook.validates(&world, &["*"], &["*/*"]).await;
    let review = json!({"spec": {"token": "t"}});
    world.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.object();
    let access = json!({"spec": {"user": "u", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
    world.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &access).await.object();
    let kinds: Vec<Value> = hook.reviews().iter().map(|review| review["kind"]["kind"].clone()).collect();
    assert_eq!(kinds, [json!("TokenReview"), json!("SubjectAccessReview")]);
    configure(&world, "mutating", "others", &[]).await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks";
    world.delete(path).await.object();
    assert_eq!(hook.reviews().len(), 2, "a webhook cannot keep itself");
}

#[tokio::test]
async fn ad_8_reads_are_not_admitted() {
    let (world, hook) = (World::new().await, Hook::closed("no").await);
    world.post(MAPS, &map("m")).await.object();
    hook.validates(&world, &["*"], &["*/*"]).await;
    world.get(&format!("{MAPS}/m")).await.object();
    world.get(MAPS).await.object();
    assert!(hook.reviews().is_empty());
}

#[tokio::test]
async fn ad_9_scale_token_and_binding_are_admitted_as_what_is_sent() {
    let (world, hook) = (World::new().await, Hook::open().await);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    world.post(deployments, &json!({"metadata": {"name": "d"}, "spec": spec})).await.object();
    world.post("/api/v1/namespaces/default/pods", &pod("p")).await.object();
    world.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "sa"}})).await.object();
    hook.validates(&world, &["*"], &["*/scale", "*/token", "*/binding"]).await;
    world.merge(&format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 3}})).await.object();
    world.post("/api/v1/namespaces/default/serviceaccounts/sa/token", &json!({"spec": {}})).await.object();
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    world.post("/api/v1/namespaces/default/pods/p/binding", &binding).await.object();
    let reviews = hook.reviews();
    let shown: Vec<(&str, &str)> =
        reviews.iter().map(|r| (r["kind"]["kind"].as_str().unwrap(), r["operation"].as_str().unwrap())).collect();
    assert_eq!(shown, [("Scale", "UPDATE"), ("TokenRequest", "CREATE"), ("Binding", "CREATE")]);
    let replicas = |object: &str| reviews[0][object]["spec"]["replicas"].clone();
    assert_eq!((replicas("oldObject"), replicas("object")), (json!(1), json!(3)));
}

#[tokio::test]
async fn ad_24_the_user_is_the_impersonated_one() {
    let (world, hook) = (World::new().await, Hook::open().await);
    hook.validates(&world, CREATE, CONFIG_MAPS).await;
    let request = http::Request::post(MAPS)
        .header("content-type", "application/json")
        .header("impersonate-user", "alice")
        .header("impersonate-group", "system:masters")
        .header("impersonate-extra-team", "blue");
    world.send(admin(), request.body(map("m").to_string().into()).unwrap()).await.object();
    let user = &hook.reviews()[0]["userInfo"];
    assert_eq!((&user["username"], &user["extra"]["team"]), (&json!("alice"), &json!(["blue"])));
}

#[tokio::test]
async fn bd_1_a_configuration_acts_between_its_write_and_its_delete() {
    let (world, hook) = (World::new().await, Hook::closed("no").await);
    let webhook = hook.webhook("h.example.com", CREATE, CONFIG_MAPS);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    for round in 0..1000 {
        let name = format!("hooks-{round}");
        world.post(path, &json!({"metadata": {"name": name}, "webhooks": [webhook]})).await.object();
        assert_eq!(world.post(&format!("{MAPS}?dryRun=All"), &map("m")).await.code, 400, "round {round}");
        world.delete(&format!("{path}/{name}")).await.object();
        assert_eq!(world.post(&format!("{MAPS}?dryRun=All"), &map("m")).await.code, 201, "round {round}");
    }
}
