//! Plugins that run only where they are enabled.

use machinery::json::{Value, json};

use crate::world::World;

const CORE: &str = "/api/v1/namespaces/default";

#[tokio::test]
async fn pl_18_external_addresses_are_denied_where_that_is_enabled() {
    let service = || json!({"metadata": {"name": "s"}, "spec": {"externalIPs": ["1.2.3.4"], "ports": [{"port": 80}]}});
    let path = format!("{CORE}/services");
    let world = World::with_plugins(&["DenyServiceExternalIPs"]).await;
    let refused = world.ask("root", "POST", &path, Some(service())).await;
    let why = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
    assert_eq!((refused.code, refused.message()), (403, why.to_owned()));
    assert_eq!(World::start().await.ask("root", "POST", &path, Some(service())).await.code, 201);
}

#[tokio::test]
async fn images_are_pulled_and_pods_tolerate_what_they_ask_for() {
    let world = World::with_plugins(&["AlwaysPullImages", "ExtendedResourceToleration", "PodNodeSelector"]).await;
    let annotation = json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "a=b"}}});
    let kind = "application/merge-patch+json";
    assert_eq!(world.ask_as("root", "PATCH", "/api/v1/namespaces/default", kind, Some(annotation)).await.code, 200);
    let requests = json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}});
    let container = json!({"name": "c", "image": "i:1", "resources": requests});
    let spec = &world.make_pod("p", json!({"containers": [container]})).await["spec"];
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
    let wanted = json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
    assert!(spec["tolerations"].as_array().unwrap().contains(&wanted), "{}", spec["tolerations"]);
    assert_eq!(spec["nodeSelector"], json!({"a": "b"}));
    let pod = json!({
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"a": "c"}},
    });
    let refused = world.ask("root", "POST", &format!("{CORE}/pods"), Some(pod)).await;
    let why = "pods \"q\" is forbidden: pod node label selector conflicts with its namespace node label selector";
    assert_eq!((refused.code, refused.message()), (403, why.to_owned()));
}

#[tokio::test]
async fn az_79_owners_are_set_by_users_who_may_delete() {
    let world = World::with_plugins(&["OwnerReferencesPermissionEnforcement"]).await;
    let rules = |verbs: Value| {
        json!([
            {"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"]},
        ])
    };
    world.grant("alice", false, rules(json!(["create", "patch"]))).await;
    world.make_pod("p", json!({})).await;
    let owner = |blocks: bool| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "blockOwnerDeletion": blocks});
    let path = format!("{CORE}/configmaps");
    let create = async |name: &str, blocks: bool| {
        let object = json!({"metadata": {"name": name, "ownerReferences": [owner(blocks)]}});
        world.ask("alice", "POST", &path, Some(object)).await
    };
    assert_eq!(create("a", false).await.code, 201, "who creates an object need not create it");
    let refused = create("b", true).await;
    let why =
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    assert!(refused.code == 403 && refused.message().ends_with(why), "{}", refused.text());
    let kind = "application/merge-patch+json";
    let patch = async |owners: Value| {
        let body = json!({"metadata": {"ownerReferences": owners}});
        world.ask_as("alice", "PATCH", &format!("{path}/a"), kind, Some(body)).await
    };
    let refused = patch(json!([])).await;
    let why = "cannot set an ownerRef on a resource you can't delete: , <nil>";
    assert!(refused.code == 403 && refused.message().ends_with(why), "{}", refused.text());
    world.grant("alice", false, rules(json!(["create", "patch", "delete"]))).await;
    assert_eq!(patch(json!([])).await.code, 200);
}

#[tokio::test]
async fn namespaces_affinity_and_everything_can_be_refused() {
    let world = World::with_plugins(&["NamespaceExists", "LimitPodHardAntiAffinityTopology", "AlwaysAdmit"]).await;
    let term = json!([{"topologyKey": "zone", "labelSelector": {}}]);
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "affinity": affinity},
    });
    let refused = world.ask("root", "POST", &format!("{CORE}/pods"), Some(pod)).await;
    let why = "has TopologyKey zone but only key kubernetes.io/hostname is allowed";
    assert!(refused.code == 403 && refused.message().ends_with(why), "{}", refused.text());
    world.make_config_map("c").await;
    let world = World::with_plugins(&["AlwaysDeny"]).await;
    let refused =
        world.ask("root", "POST", &format!("{CORE}/configmaps"), Some(json!({"metadata": {"name": "c"}}))).await;
    assert_eq!(refused.code, 403, "{}", refused.text());
}
