//! Nodes under the Node authorizer.

use dogwatch::testing::Authorization;
use machinery::json::json;

use crate::world::World;

const CORE: &str = "/api/v1/namespaces/default";
const NODE: &str = "system:node:n";

#[tokio::test]
async fn az_135_az_137_a_node_reads_what_its_pods_lead_to() {
    let world = World::with(Authorization::of_modes(&["Node", "RBAC"]).unwrap()).await;
    for name in ["s", "t"] {
        world.make(&format!("{CORE}/secrets"), json!({"metadata": {"name": name}})).await;
    }
    let none = |name: &str| {
        format!(
            "secrets \"{name}\" is forbidden: User \"system:node:n\" cannot get resource \"secrets\" in API group \"\" in \
             the namespace \"default\": no relationship found between node 'n' and this object"
        )
    };
    let secret = |name: &str| format!("{CORE}/secrets/{name}");
    let refused = world.get(NODE, &secret("s")).await;
    assert_eq!((refused.code, refused.message()), (403, none("s")));
    let volumes = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    world.make_pod("p", json!({"nodeName": "n", "volumes": volumes})).await;
    assert_eq!(world.get(NODE, &secret("s")).await.code, 200, "as soon as the pod is there");
    assert_eq!(world.get(NODE, &format!("{CORE}/secrets?fieldSelector=metadata.name%3Ds")).await.code, 200);
    assert_eq!(world.get(NODE, &secret("t")).await.message(), none("t"));
    assert_eq!(world.get("system:node:m", &secret("s")).await.code, 403);
    let all = world.get(NODE, &format!("{CORE}/secrets")).await;
    assert!(all.message().ends_with(": No Object name found"), "{}", all.message());
    // A role may still allow what the Node authorizer has no opinion on.
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["t"]}]);
    world.grant(NODE, false, rules).await;
    assert_eq!(world.get(NODE, &secret("t")).await.code, 200);
    let path = format!("{CORE}/pods/p?gracePeriodSeconds=0");
    assert_eq!(world.ask("root", "DELETE", &path, None).await.code, 200);
    assert_eq!(world.get(NODE, &secret("s")).await.code, 403, "as soon as the pod is gone");
}

#[tokio::test]
async fn az_135_a_volume_of_a_claim_leads_to_its_secret() {
    let world = World::with(Authorization::of_modes(&["Node", "RBAC"]).unwrap()).await;
    let volume = json!({
        "metadata": {"name": "v"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": "claim"},
            "csi": {
                "driver": "d", "volumeHandle": "h",
                "nodeStageSecretRef": {"namespace": "default", "name": "key"},
            },
        },
    });
    world.make("/api/v1/persistentvolumes", volume).await;
    world.make(&format!("{CORE}/secrets"), json!({"metadata": {"name": "key"}})).await;
    assert_eq!(world.get(NODE, "/api/v1/persistentvolumes/v").await.code, 403);
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]);
    world.make_pod("p", json!({"nodeName": "n", "volumes": volumes})).await;
    assert_eq!(world.get(NODE, "/api/v1/persistentvolumes/v").await.code, 200);
    assert_eq!(world.get(NODE, &format!("{CORE}/secrets/key")).await.code, 200);
    assert_eq!(world.get("system:node:m", &format!("{CORE}/secrets/key")).await.code, 403);
}

#[tokio::test]
async fn az_136_a_node_reads_its_own_node_and_pods() {
    let world = World::with(Authorization::of_modes(&["Node", "RBAC"]).unwrap()).await;
    world.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    world.make_pod("p", json!({"nodeName": "n"})).await;
    for (path, code) in [
        ("/api/v1/nodes/n", 200),
        ("/api/v1/nodes/m", 403),
        ("/api/v1/nodes", 403),
        ("/api/v1/nodes?fieldSelector=metadata.name%3Dn", 200),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dn", 200),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dm", 403),
        ("/api/v1/pods", 403),
        ("/api/v1/services", 200),
        ("/apis/apps/v1/deployments", 403),
    ] {
        let answer = world.get(NODE, path).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
    }
    // Without the mode, a node is a user like others.
    let world = World::with(Authorization::default()).await;
    assert_eq!(world.get(NODE, "/api/v1/nodes/n").await.code, 403);
}
