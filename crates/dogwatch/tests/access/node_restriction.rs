//! What the credentials of a node write, with the plugin NodeRestriction.

use machinery::json::{Value, json};

use crate::world::{Answer, World};

const CORE: &str = "/api/v1/namespaces/default";
const NODE: &str = "system:node:n";

async fn world() -> World {
    World::with_plugins(&["NodeRestriction"]).await
}

async fn patch(world: &World, path: &str, body: Value) -> Answer {
    world.ask_as(NODE, "PATCH", path, "application/merge-patch+json", Some(body)).await
}

fn refused(answer: &Answer, why: &str) {
    assert_eq!(answer.code, 403, "{}", answer.text());
    assert!(answer.message().ends_with(why), "{} does not end in {why}", answer.message());
}

#[tokio::test]
async fn az_138_a_node_writes_its_own_node() {
    let world = world().await;
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let create = async |object: Value| world.ask(NODE, "POST", "/api/v1/nodes", Some(object)).await;
    refused(
        &create(node("m", json!({}))).await,
        "nodes \"m\" is forbidden: node \"n\" is not allowed to modify node \"m\"",
    );
    let labels = json!({"node-restriction.kubernetes.io/x": "y"});
    let why = "node \"n\" is not allowed to set the following labels: node-restriction.kubernetes.io/x";
    refused(&create(node("n", labels)).await, why);
    assert_eq!(create(node("n", json!({"kubernetes.io/hostname": "n"}))).await.code, 201);
    let taints = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    refused(&patch(&world, "/api/v1/nodes/n", taints).await, "node \"n\" is not allowed to modify taints");
    let owner =
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]}});
    refused(&patch(&world, "/api/v1/nodes/n", owner).await, "node \"n\" is not allowed to modify ownerReferences");
    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/master": "", "kubernetes.io/x": ""}}});
    let why =
        "nodes \"n\" is forbidden: is not allowed to modify labels: kubernetes.io/x, node-role.kubernetes.io/master";
    refused(&patch(&world, "/api/v1/nodes/n", label).await, why);
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(patch(&world, "/api/v1/nodes/n/status", status).await.code, 200);
    assert_eq!(patch(&world, "/api/v1/nodes/n", json!({"spec": {"unschedulable": true}})).await.code, 200);
}

#[tokio::test]
async fn az_138_a_node_creates_mirror_pods_only() {
    let world = world().await;
    let uid = world.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true});
    let pod = |name: &str, owners: Vec<Value>, more: Value| {
        let mut pod = json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": owners},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
        });
        for (member, value) in more.as_object().into_iter().flatten() {
            pod["spec"][&**member] = value.clone();
        }
        pod
    };
    let create = async |pod: Value| world.ask(NODE, "POST", &format!("{CORE}/pods"), Some(pod)).await;
    let mut plain = pod("p", vec![owner.clone()], json!({}));
    plain["metadata"]["annotations"] = json!({});
    let why = "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n\" can only create mirror pods";
    refused(&create(plain).await, why);
    let none = "node \"n\" can only create pods with an owner reference set to itself";
    refused(&create(pod("p", vec![], json!({}))).await, none);
    let elsewhere = "node \"n\" can only create pods with spec.nodeName set to itself";
    refused(&create(pod("p", vec![owner.clone()], json!({"nodeName": "m"}))).await, elsewhere);
    let account = pod("p", vec![owner.clone()], json!({"serviceAccountName": "a"}));
    refused(&create(account).await, "node \"n\" can not create pods that reference serviceaccounts");
    let secret = json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]});
    refused(
        &create(pod("p", vec![owner.clone()], secret)).await,
        "node \"n\" can not create pods that reference secrets",
    );
    let mut other = owner.clone();
    other["uid"] = json!("other");
    assert_eq!(create(pod("p", vec![other], json!({}))).await.code, 403);
    let made = create(pod("p", vec![owner], json!({}))).await;
    assert_eq!(made.code, 201, "{}", made.text());
}

#[tokio::test]
async fn az_138_a_node_changes_and_evicts_its_own_pods() {
    let world = world().await;
    world.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    world.make_pod("own", json!({"nodeName": "n"})).await;
    world.make_pod("other", json!({"nodeName": "m"})).await;
    let running = || json!({"status": {"phase": "Running"}});
    assert_eq!(patch(&world, &format!("{CORE}/pods/own/status"), running()).await.code, 200);
    let why =
        "pods \"other\" is forbidden: node \"n\" can only update pod status for pods with spec.nodeName set to itself";
    refused(&patch(&world, &format!("{CORE}/pods/other/status"), running()).await, why);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let why = "node \"n\" cannot update labels through pod status";
    refused(&patch(&world, &format!("{CORE}/pods/own/status"), labels).await, why);
    let evict = async |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        world.ask(NODE, "POST", &format!("{CORE}/pods/{name}/eviction?dryRun=All"), Some(eviction)).await
    };
    assert_eq!(evict("own").await.code, 201);
    refused(&evict("other").await, "node n can only evict pods with spec.nodeName set to itself");
    let delete = async |name: &str| world.ask(NODE, "DELETE", &format!("{CORE}/pods/{name}?dryRun=All"), None).await;
    assert_eq!(delete("own").await.code, 200);
    refused(&delete("other").await, "node \"n\" can only delete pods with spec.nodeName set to itself");
}

#[tokio::test]
async fn az_138_a_node_asks_for_tokens_of_its_pods() {
    let world = world().await;
    world.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    world.make(&format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "robot"}})).await;
    let token = json!({"serviceAccountToken": {"path": "t", "audience": "vault"}});
    let volumes = json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "u"}}, token]}}]);
    let own = json!({"nodeName": "n", "serviceAccountName": "robot", "volumes": volumes});
    let uid = world.make_pod("own", own).await["metadata"]["uid"].clone();
    let ask = async |spec: Value| {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        world.ask(NODE, "POST", &format!("{CORE}/serviceaccounts/robot/token"), Some(request)).await
    };
    let bound = |uid: &Value| json!({"apiVersion": "v1", "kind": "Pod", "name": "own", "uid": uid});
    refused(&ask(json!({})).await, "serviceaccounts \"robot\" is forbidden: node requested token not bound to a pod");
    let without = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "own"}});
    refused(&ask(without).await, "node requested token with a pod binding without a uid");
    let stale = ask(json!({"boundObjectRef": bound(&json!("x"))})).await;
    refused(&stale, "The object might have been deleted and then recreated");
    let made = ask(json!({"boundObjectRef": bound(&uid)})).await;
    assert_eq!(made.code, 201, "{}", made.text());
    assert_eq!(ask(json!({"boundObjectRef": bound(&uid), "audiences": ["vault"]})).await.code, 201);
    let why = "audience \"other\" not found in pod spec volume, system:node:n is not authorized to request tokens for this audience";
    refused(&ask(json!({"boundObjectRef": bound(&uid), "audiences": ["other"]})).await, why);
}

#[tokio::test]
async fn az_138_leases_and_others_are_those_of_the_node() {
    let world = world().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let create = async |path: &str, name: &str, more: Value| {
        let mut object = json!({"metadata": {"name": name}});
        for (member, value) in more.as_object().into_iter().flatten() {
            object[&**member] = value.clone();
        }
        world.ask(NODE, "POST", path, Some(object)).await
    };
    assert_eq!(create(leases, "n", json!({})).await.code, 201);
    let why = "can only access node lease with the same name as the requesting node";
    refused(&create(leases, "m", json!({})).await, why);
    let nodes = "/apis/storage.k8s.io/v1/csinodes";
    assert_eq!(create(nodes, "n", json!({"spec": {"drivers": []}})).await.code, 201);
    let why = "can only access CSINode with the same name as the requesting node";
    refused(&create(nodes, "m", json!({"spec": {"drivers": []}})).await, why);
    // Other users are not nodes, whatever they are called.
    let other = world.ask("root", "POST", leases, Some(json!({"metadata": {"name": "m"}}))).await;
    assert_eq!(other.code, 201, "{}", other.text());
}

#[tokio::test]
async fn az_138_nodes_ask_for_certificates_under_their_own_name() {
    let world = world().await;
    // CN=system:node:n1, O=system:nodes.
    let request = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHdk1HTUNBUUF3TURFVk1CTUdBMVVFQ2d3TWMzbHpkR1Z0T201dlpHVnpNUmN3RlFZRFZRUUREQTV6ZVhOMApaVzA2Ym05a1pUcHVNVEFxTUFVR0F5dGxjQU1oQUpSV3d4elhmNnlKQXY3RnBLdEh2MDIyWE40WDMvYWZva3JsCm4rdFBzSnJ3b0FBd0JRWURLMlZ3QTBFQUVYTkFKcnJuREU5ZnpwaXZQMFFKUDd1VEw5US9HNUhrZVR5Qmw2VkQKaFNndy91SmVqalllMFh4ME9QSW9XZnhodFlMU2ZxV1lsV1AreU1JVHN4MmtCUT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";
    let create = async |user: &str, name: &str, signer: &str| {
        let spec = json!({"request": request, "signerName": signer, "usages": ["digital signature", "client auth"]});
        let object = json!({"metadata": {"name": name}, "spec": spec});
        world.ask(user, "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", Some(object)).await
    };
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    refused(&create(NODE, "a", signer).await, "can only create a node CSR with CN=system:node:n");
    let own = create("system:node:n1", "b", signer).await;
    assert_eq!(own.code, 201, "{}", own.text());
    assert_eq!(create(NODE, "c", "example.com/s").await.code, 201, "other signers decide for themselves");
}

#[tokio::test]
async fn az_138_a_node_reports_the_size_of_a_claim_and_nothing_else() {
    let world = world().await;
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    world.make(&format!("{CORE}/persistentvolumeclaims"), claim).await;
    // The claim is used by a pod on the node, so that the node may write its status.
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    world.make_pod("p", json!({"nodeName": "n", "volumes": volumes})).await;
    let status = format!("{CORE}/persistentvolumeclaims/c/status");
    let sized = patch(&world, &status, json!({"status": {"capacity": {"storage": "1Gi"}}})).await;
    assert_eq!(sized.code, 200, "{}", sized.text());
    let bound = patch(&world, &status, json!({"status": {"phase": "Bound"}})).await;
    refused(&bound, "node \"n\" is not allowed to update fields other than status.quantity and status.conditions");
}
