//! Explanations of refusals, the roles that a user needs, and clients of other users.

use std::panic::AssertUnwindSafe;

use dogwatch::testing::{Authorization, Server};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use machinery::json::json;

use crate::world::World;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn ba_1_the_server_explains_decisions_to_masters() {
    let world = World::start().await;
    world.grant("alice", false, json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}])).await;
    let path = "/debug/access?as=alice&verb=list&resource=configmaps&namespace=default";
    let explained = world.get("root", path).await.json();
    assert_eq!(explained["allowed"], false);
    assert_eq!(
        explained["sentences"][0],
        "RoleBinding \"of-alice\" in namespace \"default\" of Role \"of-alice\": verb \"list\" is not among \"get\""
    );
    // The remedy is what it says.
    for (object, place) in explained["remedy"].as_array().unwrap().iter().zip(["roles", "rolebindings"]) {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/default/{place}");
        world.make(&path, object.clone()).await;
    }
    assert_eq!(world.get("alice", MAPS).await.code, 200);
    let allowed = world.get("root", path).await.json();
    assert_eq!(allowed["allowed"], true);
    assert_eq!(allowed["bindings"][0]["binding"], "RoleBinding \"list-configmaps\" in namespace \"default\"");
    assert_eq!(world.get("alice", path).await.code, 403, "only masters see the rights of others");
    world.grant("alice", true, json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}])).await;
    assert_eq!(world.get("alice", path).await.code, 403, "whatever roles they have");
    assert_eq!(world.get("root", "/debug/access?verb=list").await.code, 400);
}

#[tokio::test]
async fn ba_2_a_403_names_near_misses_only_if_asked_to() {
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]);
    let mut messages = Vec::new();
    for explain_forbidden in [false, true] {
        let mut authorization = Authorization::default();
        authorization.explain_forbidden = explain_forbidden;
        let world = World::with(authorization).await;
        world.grant("alice", false, rules.clone()).await;
        let refused = world.get("alice", MAPS).await.json();
        let causes = refused["details"]["causes"].as_array().map_or(0, Vec::len);
        assert_eq!(causes > 0, explain_forbidden, "{refused}");
        messages.push(refused["message"].clone());
    }
    assert_eq!(messages[0], messages[1]);
}

#[tokio::test]
async fn ba_5_the_least_roles_are_those_for_what_a_user_did() {
    let world = World::start().await;
    let user = "system:serviceaccount:default:op";
    world.make_config_map("a").await;
    let rules = json!([{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["configmaps"]}]);
    world.grant(user, false, rules).await;
    assert_eq!(world.get(user, &format!("{MAPS}/a")).await.code, 200);
    assert_eq!(world.get(user, "/api/v1/nodes").await.code, 403);
    let path = format!("/debug/access/roles?user={user}");
    let report = world.get("root", &path).await.json();
    let least = report["least"].as_array().unwrap();
    let role = least.iter().find(|object| object["kind"] == "Role").unwrap();
    assert_eq!(role["metadata"]["namespace"], "default");
    assert_eq!(role["rules"], json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]));
    let missing = &report["missing"][0];
    assert_eq!(missing["kind"], "ClusterRole");
    assert_eq!(missing["rules"], json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["nodes"]}]));
    assert_eq!(report["beyond"][0]["rules"][0]["verbs"], json!(["delete"]));
    assert_eq!(report["refused"][0]["rules"][0]["resources"], json!(["nodes"]));
    let nothing = world.get("root", &format!("{path}&from=2999-01-01T00:00:00Z")).await.json();
    assert_eq!(nothing["least"], json!([]));
    assert_eq!(world.get("root", &format!("{path}&from=soon")).await.code, 400);
    assert_eq!(world.get(user, &path).await.code, 403);
}

#[tokio::test]
async fn ba_6_a_strict_client_fails_the_test_on_a_refusal() {
    let ends = |refused: bool| async move {
        let server = Server::start().await;
        let client = server.strict_client_as("system:serviceaccount:default:op", &[]);
        if refused {
            let maps: Api<ConfigMap> = Api::namespaced(client, "default");
            assert!(maps.list(&ListParams::default()).await.is_err());
            assert_eq!(server.refusals().len(), 1);
        }
        drop(server);
    };
    assert!(AssertUnwindSafe(ends(false)).catch_unwind().await.is_ok());
    assert!(AssertUnwindSafe(ends(true)).catch_unwind().await.is_err());
}

#[tokio::test]
async fn ba_6_a_client_acts_as_a_service_account_with_its_groups() {
    let world = World::start().await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = world.ask("system:serviceaccount:default:op", "POST", path, Some(review)).await;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(answer.json()["status"]["userInfo"]["groups"], json!(groups));
}
