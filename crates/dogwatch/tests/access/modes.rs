//! Authorization modes and their union.

use dogwatch::testing::Authorization;
use machinery::json::json;

use crate::world::World;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn az_1_az_3_roles_decide_by_default_and_masters_need_none() {
    let world = World::start().await;
    assert_eq!(world.get("root", MAPS).await.code, 200);
    let refused = world.get("alice", MAPS).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message(),
        "configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" in the namespace \
         \"default\""
    );
    let review = json!({"spec": {"groups": ["system:masters"], "resourceAttributes": {"verb": "x", "resource": "y"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = world.ask("root", "POST", path, Some(review)).await;
    assert_eq!(answer.json()["status"], json!({"allowed": true}));
}

#[tokio::test]
async fn az_3_always_allow_lets_every_user_do_everything() {
    let world = World::with(Authorization::of_modes(&["AlwaysAllow"]).unwrap()).await;
    assert_eq!(world.get("alice", MAPS).await.code, 200);
    let created = world.ask("alice", "POST", MAPS, Some(json!({"metadata": {"name": "a"}}))).await;
    assert_eq!(created.code, 201);
}

#[tokio::test]
async fn az_4_always_deny_refuses_with_its_reason() {
    let world = World::with(Authorization::of_modes(&["AlwaysDeny"]).unwrap()).await;
    let refused = world.get("alice", MAPS).await;
    assert_eq!(refused.code, 403);
    assert!(refused.message().ends_with("in the namespace \"default\": Everything is forbidden."));
    assert_eq!(world.get("root", MAPS).await.code, 200);
}

#[tokio::test]
async fn ba_3_ba_4_a_binding_acts_on_the_next_request_and_so_does_its_end() {
    let world = World::start().await;
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]);
    world.grant("alice", false, rules).await;
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let object = json!({
        "metadata": {"name": "of-alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "of-alice"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
    });
    for round in 0..1000 {
        assert_eq!(world.get("alice", MAPS).await.code, 200, "round {round}");
        world.revoke("alice").await;
        assert_eq!(world.get("alice", MAPS).await.code, 403, "round {round}");
        world.make(binding, object.clone()).await;
    }
}
