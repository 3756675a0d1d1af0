//! The order of decisions in a run (DP-1, DP-7, DP-8), and the conditions of the new replica set (DP-17, DP-18).

use std::sync::Arc;

use bytes::Bytes;
use dogwatch::testing::Server;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use store::memory::MemoryStore;
use store::{ListQuery, Prefix, Retention, Store as _};

use super::super::stage::{Stage, settings, until};
use super::{BOTH, REVISION, condition, deployment, image, is, is_complete, running, scale_steps, size};
use crate::between::{Between, Turn};

fn version(object: &impl kube::Resource) -> u64 {
    object.meta().resource_version.as_deref().unwrap().parse().unwrap()
}

fn observed(deployment: &Deployment) -> i64 {
    deployment.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0)
}

#[tokio::test]
async fn dp_1_a_deployment_that_is_gone_needs_nothing() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(1)).await;
    let set = stage.all::<ReplicaSet>().await.remove(0);
    // No garbage collector runs: its set still names it.
    stage.delete::<Deployment>("web", &DeleteParams::background()).await;
    let told = stage.events("web", "ScalingReplicaSet").await;
    let (deployments, sets) = (stage.record::<Deployment>().await, stage.record::<ReplicaSet>().await);
    stage.patch::<ReplicaSet>(&set.name_any(), json!({"metadata": {"labels": {"wake": "up"}}})).await;
    // Another deployment is answered, so the change before it was seen.
    let mut later = deployment(1);
    later["metadata"]["name"] = json!("later");
    later["spec"]["selector"] = json!({"matchLabels": {"app": "later"}});
    later["spec"]["template"]["metadata"]["labels"] = json!({"app": "later"});
    stage.create::<Deployment>(later).await;
    stage.until::<Deployment>("later", "observed", |d| observed(d) == 1).await;
    assert!(deployments.about("web").is_empty());
    assert_eq!(sets.about(&set.name_any()).len(), 1, "the label and nothing else");
    assert_eq!(stage.events("web", "ScalingReplicaSet").await, told);
}

#[tokio::test]
async fn dp_1_an_empty_selector_is_told_and_only_the_generation_is_observed() {
    // The server lets no such deployment in: it is made in the store.
    let store = Arc::new(MemoryStore::new(Retention::default()));
    let server = Server::start_on(store.clone()).await;
    let api: Api<Deployment> = Api::namespaced(server.client(), "default");
    let wanted: Deployment = serde_json::from_value(deployment(2)).unwrap();
    api.create(&PostParams::default(), &wanted).await.unwrap();
    let all = store.list(ListQuery::prefix(Prefix::everything())).await.unwrap();
    let entry = all.entries.iter().find(|entry| entry.key.as_str().ends_with("/default/web")).unwrap();
    let mut stored: Value = serde_json::from_slice(&entry.value).unwrap();
    stored["spec"]["selector"] = json!({});
    store.update(entry.key.clone(), Bytes::from(stored.to_string()), entry.revision).await.unwrap();
    drop(server);

    let server = Server::with_controllers_on(store, settings(BOTH)).await;
    let api: Api<Deployment> = Api::namespaced(server.client(), "default");
    let seen = crate::world::until(&api, "web", "observed", |d| observed(d) == 1).await;
    let status = serde_json::to_value(seen.status.unwrap()).unwrap();
    assert_eq!(status, json!({"observedGeneration": 1}), "and nothing else");
    let events: Api<Event> = Api::namespaced(server.client(), "default");
    let event = until("an event", async || events.list(&Default::default()).await.unwrap().items.pop()).await;
    assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("SelectingAll")));
    let sets: Api<ReplicaSet> = Api::namespaced(server.client(), "default");
    assert!(sets.list(&Default::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn dp_7_a_change_of_scale_comes_before_the_rollout() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(3)).await;
    let known = stage.all::<ReplicaSet>().await;
    let (deployments, sets) = (stage.record::<Deployment>().await, stage.record::<ReplicaSet>().await);
    let mut both = image("2");
    both["spec"]["replicas"] = json!(5);
    stage.patch::<Deployment>("web", both).await;
    let steps = until("two steps", async || {
        let steps = scale_steps(&sets, &known);
        (steps.len() >= 2).then_some(steps)
    })
    .await;
    assert_eq!(steps[..2], ["1: 3→5", "2: 0→2"], "the old set is scaled, then the new one comes");
    // In between the status was written: the run of the scale ended there.
    let seen = sets.seen();
    let scaled = seen.iter().find(|(_, set)| size(set) == 5).unwrap();
    let made = seen.iter().find(|(kind, _)| *kind == "ADDED").unwrap();
    let reported = until("the report", async || {
        let seen = deployments.about("web");
        seen.into_iter().find(|(_, d)| observed(d) == 2)
    })
    .await;
    let between = version(&scaled.1)..version(&made.1);
    assert!(between.contains(&version(&reported.1)), "{} in {between:?}", version(&reported.1));
}

#[tokio::test]
async fn dp_7_sets_without_replicas_do_not_count() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(2)).await;
    let _nodes = stage.nodes();
    let done = async |revision: &str, replicas: i32| {
        let done = |d: &Deployment| is_complete(d, replicas) && d.annotations()[REVISION] == revision;
        stage.until::<Deployment>("web", "rolled out", done).await;
    };
    stage.patch::<Deployment>("web", image("2")).await;
    done("2", 2).await;
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 3}})).await;
    done("2", 3).await;
    let desired = |set: &ReplicaSet| set.annotations()["deployment.kubernetes.io/desired-replicas"].clone();
    let all = super::sets(&stage).await;
    assert_eq!(all.iter().map(desired).collect::<Vec<_>>(), ["2", "3"], "history keeps the number of its time");
    // And still the next template is rolled out.
    stage.patch::<Deployment>("web", image("3")).await;
    done("3", 3).await;
}

#[tokio::test]
async fn dp_8_the_strategy_decides_what_goes_first() {
    for (strategy, expected) in [
        ("Recreate", ["1: 2→0", "2: 0→2"].as_slice()),
        ("RollingUpdate", ["2: 0→1", "1: 2→1", "2: 1→2", "1: 1→0"].as_slice()),
    ] {
        let stage = Stage::with(BOTH).await;
        let mut wanted = deployment(2);
        wanted["spec"]["strategy"] = json!({"type": strategy});
        running(&stage, wanted).await;
        let known = stage.all::<ReplicaSet>().await;
        let sets = stage.record::<ReplicaSet>().await;
        let _nodes = stage.nodes();
        stage.patch::<Deployment>("web", image("2")).await;
        stage.until::<Deployment>("web", "rolled out", |d| is_complete(d, 2) && d.annotations()[REVISION] == "2").await;
        assert_eq!(scale_steps(&sets, &known), expected, "{strategy}");
    }
}

#[tokio::test]
async fn dp_17_the_revision_is_noted_with_the_status_and_is_no_new_generation() {
    let stage = Stage::with("deployment,replicaset,garbagecollector").await;
    let deployments = stage.record::<Deployment>().await;
    running(&stage, deployment(1)).await;
    let set = stage.all::<ReplicaSet>().await.remove(0);
    let noted = deployments.about("web")[1].1.clone();
    assert_eq!(noted.annotations()[REVISION], set.annotations()[REVISION]);
    assert_eq!(noted.metadata.generation, Some(1));
    let progress = noted.status.as_ref().unwrap().conditions.as_ref().unwrap()[0].clone();
    assert_eq!((progress.type_.as_str(), progress.status.as_str()), ("Progressing", "True"));
    assert_eq!(progress.reason.as_deref(), Some("NewReplicaSetCreated"));
    assert_eq!(progress.message, Some(format!("Created new replica set {:?}", set.name_any())));
    // The manager of the annotation owns it through the status.
    let field = format!("f:{REVISION}");
    let owner = noted.managed_fields().iter().find(|entry| {
        entry.fields_v1.as_ref().is_some_and(|fields| fields.0["f:metadata"]["f:annotations"].get(&field).is_some())
    });
    assert_eq!(owner.and_then(|entry| entry.subresource.as_deref()), Some("status"));
    // The second revision likewise.
    let _nodes = stage.nodes();
    stage.patch::<Deployment>("web", image("2")).await;
    let second =
        stage.until::<Deployment>("web", "rolled out", |d| is_complete(d, 1) && d.annotations()[REVISION] == "2").await;
    assert_eq!(second.metadata.generation, Some(2), "the template, and nothing else");
    // An annotation of another manager is one.
    let annotated = stage.patch::<Deployment>("web", json!({"metadata": {"annotations": {"by": "hand"}}})).await;
    assert_eq!(annotated.metadata.generation, Some(3));

    // A set that is there already is found, not made.
    stage.delete::<Deployment>("web", &DeleteParams::orphan()).await;
    crate::world::until_gone(&stage.api::<Deployment>(), "web").await;
    let mut again = deployment(1);
    again["spec"]["template"]["spec"]["containers"][0]["image"] = json!("i:2");
    let deployments = stage.record::<Deployment>().await;
    stage.create::<Deployment>(again).await;
    let found = until("a set that was found", async || {
        deployments.about("web").into_iter().find(|(_, d)| is(d, "Progressing", "True", "FoundNewReplicaSet"))
    })
    .await
    .1;
    let taken = stage.all::<ReplicaSet>().await.into_iter().find(|set| super::image_of(set) == "i:2").unwrap();
    let message = found.status.as_ref().unwrap().conditions.as_ref().unwrap()[0].message.clone();
    assert_eq!(message, Some(format!("Found new replica set {:?}", taken.name_any())));
    assert_eq!((found.metadata.generation, &found.annotations()[REVISION]), (Some(1), &taken.annotations()[REVISION]));
}

#[tokio::test]
async fn dp_18_a_status_write_that_conflicts_is_tried_again_and_the_states_are_the_same() {
    let server = Server::start().await;
    let refused = parking_lot::Mutex::new(0);
    // The second status write of the first run fails, as it does where the first one was not read again.
    let between = Between::new(server.client(), move |asked| {
        if asked.line() != "PUT /apis/apps/v1/namespaces/default/deployments/web/status" {
            return Turn::Pass;
        }
        *refused.lock() += 1;
        if *refused.lock() == 2 { Turn::Refuse(409) } else { Turn::Pass }
    });
    let _running = between.run(settings(BOTH));
    let stage = Stage::on(server);
    let (deployments, sets) = (stage.record::<Deployment>().await, stage.record::<ReplicaSet>().await);
    let _nodes = stage.nodes();
    stage.create::<Deployment>(deployment(2)).await;
    stage.until::<Deployment>("web", "complete", |d| is_complete(d, 2)).await;
    let mut states: Vec<(i64, String)> =
        deployments.about("web").iter().map(|(_, d)| (observed(d), condition(d, "Progressing").1)).collect();
    states.dedup();
    let first: Vec<(i64, &str)> = states.iter().take(3).map(|(seen, reason)| (*seen, reason.as_str())).collect();
    assert_eq!(first, [(0, ""), (0, "NewReplicaSetCreated"), (1, "NewReplicaSetCreated")]);
    assert_eq!(states.last().unwrap(), &(1, "NewReplicaSetAvailable".to_owned()));
    assert_eq!(sets.count("ADDED"), 1);
    let writes = between.asked_like("PUT /apis/apps/v1/namespaces/default/deployments/web/status");
    assert!(writes.len() > 2, "the refused write came again");
}
