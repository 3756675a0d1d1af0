//! Events that wake a replica set (RS-12), writes that it waits for (RS-14), and writes that it does not retry (PR-8).

use dogwatch::testing::Server;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;

use super::replicas::{counts, replica_set};
use super::stage::{Stage, settings, until};
use crate::between::{Between, Turn};

#[tokio::test]
async fn rs_12_a_pod_that_changes_hands_wakes_both() {
    let stage = Stage::with("replicaset").await;
    for name in ["one", "two"] {
        stage.create::<ReplicaSet>(replica_set(name, 1)).await;
        stage.until::<ReplicaSet>(name, "counted", |set| counts(set)[0] == 1).await;
    }
    let of = async |name: &str| -> Vec<String> {
        let uid = stage.until::<ReplicaSet>(name, "there", |_| true).await.uid().unwrap();
        let mut pods = stage.active().await;
        pods.retain(|pod| pod.owner_references().first().is_some_and(|owner| owner.uid == uid));
        pods.iter().map(kube::ResourceExt::name_any).collect()
    };
    // By its labels: the first releases it and makes another, the second adopts it and has one too many.
    let moved = of("one").await.remove(0);
    let seen = stage.record::<Pod>().await;
    stage.patch::<Pod>(&moved, json!({"metadata": {"labels": {"app": "two"}}})).await;
    until("one pod each, and one gone", async || {
        let each = of("one").await.len() == 1 && of("two").await.len() == 1;
        (each && !of("one").await.contains(&moved) && seen.count("DELETED") == 1).then_some(())
    })
    .await;
    let adopted = seen
        .about(&moved)
        .into_iter()
        .find(|(_, pod)| pod.owner_references().first().is_some_and(|owner| owner.name == "two"));
    assert!(adopted.is_some(), "the second took it over");
    assert_eq!(stage.until_events("one", "SuccessfulCreate", 2).await.len(), 2);
    assert_eq!(stage.until_events("two", "SuccessfulDelete", 1).await.len(), 1);

    // By its owner: nothing else about it changes.
    let moved = of("one").await.remove(0);
    let second = stage.until::<ReplicaSet>("two", "there", |_| true).await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "two", "uid": second.uid(),
        "controller": true, "blockOwnerDeletion": true}]);
    let hands = json!({"metadata": {"ownerReferences": owner, "labels": {"app": "two"}}});
    stage.patch::<Pod>(&moved, hands).await;
    assert_eq!(stage.until_events("one", "SuccessfulCreate", 3).await.len(), 3, "the old owner misses one");
    assert_eq!(stage.until_events("two", "SuccessfulDelete", 2).await.len(), 2, "the new owner has too many");
    until("one pod each", async || (of("one").await.len() == 1 && of("two").await.len() == 1).then_some(())).await;
}

#[tokio::test]
async fn rs_14_nothing_is_decided_before_its_own_writes_are_seen() {
    let server = Server::start().await;
    let (open, gate) = watch::channel(true);
    let between = Between::new(server.client(), move |asked| {
        if asked.path == "/api/v1/pods" && asked.is_watch() { Turn::Held(gate.clone()) } else { Turn::Pass }
    });
    let _running = between.run(settings("replicaset"));
    let stage = Stage::on(server);
    stage.create::<ReplicaSet>(replica_set("first", 1)).await;
    stage.until::<ReplicaSet>("first", "counted", |set| counts(set)[0] == 1).await;
    // From here on pods are written at once and seen late.
    open.send_replace(false);
    stage.create::<ReplicaSet>(replica_set("web", 3)).await;
    stage.until_active(4).await;
    stage
        .until::<ReplicaSet>("web", "observed", |set| {
            set.status.as_ref().is_some_and(|status| status.observed_generation == Some(1))
        })
        .await;
    // It is woken, more than once, and others that are woken after it are served.
    for round in 0..5 {
        stage.patch::<ReplicaSet>("web", json!({"metadata": {"annotations": {"round": round.to_string()}}})).await;
        let other = format!("other-{round}");
        stage.create::<ReplicaSet>(replica_set(&other, 1)).await;
        stage.until_events(&other, "SuccessfulCreate", 1).await;
    }
    let made = || between.asked_like("POST /api/v1/namespaces/default/pods").len();
    assert_eq!(made(), 9, "one, three and five: none was made twice");
    open.send_replace(true);
    stage.until::<ReplicaSet>("web", "counted", |set| counts(set)[0] == 3).await;
    assert_eq!(made(), 9);
    // Nor before its own status is seen: the same status is not written again.
    let said = between.asked_like("PUT /apis/apps/v1/namespaces/default/replicasets/web/status").len();
    assert_eq!(said, 2, "no pods, then three");
}

#[tokio::test]
async fn pr_8_in_a_namespace_that_is_going_nothing_is_made_told_or_tried_again() {
    let server = Server::start().await;
    let between = Between::new(server.client(), |_| Turn::Pass);
    let _running = between.run(settings("deployment,replicaset"));
    let client = server.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let going: Namespace = serde_json::from_value(json!({"metadata": {"name": "going"}})).unwrap();
    namespaces.create(&PostParams::default(), &going).await.unwrap();
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), "going");
    let set: ReplicaSet = serde_json::from_value(replica_set("web", 1)).unwrap();
    sets.create(&PostParams::default(), &set).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "going");
    let pod = until("a pod", async || pods.list(&ListParams::default()).await.unwrap().items.pop()).await;
    crate::world::until(&sets, "web", "counted", |set| counts(set)[0] == 1).await;
    // No namespace controller runs: the namespace stays as it is.
    namespaces.delete("going", &DeleteParams::default()).await.unwrap();
    let posts = "POST /api/v1/namespaces/going/pods";
    let before = between.asked_like(posts).len();
    pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
    until("an attempt", async || (between.asked_like(posts).len() > before).then_some(())).await;
    // The set is well: no failure is noted.
    let left = crate::world::until(&sets, "web", "empty", |set| counts(set)[0] == 0).await;
    assert_eq!(left.status.unwrap().conditions, None);
    // Others are reconciled meanwhile; a retry would have followed after 5, 10, 20 ms.
    let stage = Stage::on(server);
    stage.create::<ReplicaSet>(replica_set("other", 2)).await;
    stage.until_events("other", "SuccessfulCreate", 2).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    // A run follows the loss of the pod and one the report of it; each may try once.
    let attempts = between.asked_like(posts).len() - before;
    assert!(attempts <= 2, "{attempts} attempts");
    let told = between.asked().into_iter().filter(|asked| asked.path.ends_with("/events") && asked.method == "POST");
    let failures: Vec<_> = told.filter(|asked| asked.body["reason"] == "FailedCreate").collect();
    assert!(failures.is_empty(), "{failures:?}");
}
