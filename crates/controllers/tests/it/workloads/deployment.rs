//! Deployments (DP-*) and the sequences of section 12.
//!
//! - `order`: the order of decisions in a run, and the conditions of the new replica set
//! - `scaling`: the sizes of replica sets, and the events about them

mod order;
mod scaling;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::stage::{Recording, Stage, until};

const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const BOTH: &str = "deployment,replicaset";

fn deployment(replicas: i32) -> Value {
    json!({
        "metadata": {"name": "web", "annotations": {"cause": "create"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    })
}

fn image(tag: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": format!("i:{tag}")}]}}}})
}

fn image_of(set: &ReplicaSet) -> String {
    let template = set.spec.as_ref().unwrap().template.as_ref().unwrap();
    template.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
}

fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().unwrap().replicas.unwrap()
}

fn condition(deployment: &Deployment, kind: &str) -> (String, String) {
    let conditions = deployment.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map(|condition| (condition.status, condition.reason.unwrap_or_default())).unwrap_or_default()
}

fn is(deployment: &Deployment, kind: &str, status: &str, reason: &str) -> bool {
    condition(deployment, kind) == (status.to_owned(), reason.to_owned())
}

/// replicas, updated, ready, available, unavailable
fn counts(deployment: &Deployment) -> [i32; 5] {
    let status = deployment.status.clone().unwrap_or_default();
    [
        status.replicas,
        status.updated_replicas,
        status.ready_replicas,
        status.available_replicas,
        status.unavailable_replicas,
    ]
    .map(|count| count.unwrap_or(0))
}

fn is_complete(deployment: &Deployment, replicas: i32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    counts(deployment) == [replicas, replicas, replicas, replicas, 0]
        && status.observed_generation == deployment.metadata.generation
        && is(deployment, "Progressing", "True", "NewReplicaSetAvailable")
}

/// A deployment whose pods all run.
async fn running(stage: &Stage, wanted: Value) -> Deployment {
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap() as i32;
    stage.create::<Deployment>(wanted).await;
    stage.until_active(replicas as usize).await;
    stage.run_all().await;
    stage.until::<Deployment>("web", "complete", |d| is_complete(d, replicas)).await
}

async fn sets(stage: &Stage) -> Vec<ReplicaSet> {
    let mut sets = stage.all::<ReplicaSet>().await;
    sets.sort_by_key(|set| set.annotations()[REVISION].parse::<i64>().unwrap());
    sets
}

/// The changes of the replica sets' sizes, by the tag of their image: `2: 0→1`.
fn scale_steps(recording: &Recording<ReplicaSet>, known: &[ReplicaSet]) -> Vec<String> {
    let mut sizes: std::collections::HashMap<String, i32> =
        known.iter().map(|set| (set.name_any(), size(set))).collect();
    let mut steps = Vec::new();
    for (_, set) in recording.seen() {
        let before = sizes.insert(set.name_any(), size(&set)).unwrap_or(0);
        if before != size(&set) {
            steps.push(format!("{}: {before}→{}", image_of(&set).replace("i:", ""), size(&set)));
        }
    }
    steps
}

#[tokio::test]
async fn dp_12_sequence_12_2_create() {
    let stage = Stage::with(BOTH).await;
    let (deployments, sets, pods) =
        (stage.record::<Deployment>().await, stage.record::<ReplicaSet>().await, stage.record::<Pod>().await);
    let done = running(&stage, deployment(3)).await;
    let seen = until("the last write", async || {
        let seen = deployments.about("web");
        is_complete(&seen.last()?.1, 3).then_some(seen)
    })
    .await;

    // Rows 1, 3 and 4 of the deployment.
    assert_eq!(seen[0].0, "ADDED");
    assert_eq!((seen[0].1.metadata.generation, counts(&seen[0].1)), (Some(1), [0; 5]));
    let noted = &seen[1].1;
    assert_eq!(noted.annotations()[REVISION], "1");
    assert!(is(noted, "Progressing", "True", "NewReplicaSetCreated"));
    assert_eq!(noted.status.as_ref().unwrap().observed_generation.unwrap_or(0), 0);
    let observed = &seen[2].1;
    assert_eq!((observed.status.as_ref().unwrap().observed_generation, counts(observed)), (Some(1), [0, 0, 0, 0, 3]));
    assert!(is(observed, "Available", "False", "MinimumReplicasUnavailable"));
    assert!(seen.iter().skip(1).all(|(kind, _)| *kind == "MODIFIED"));
    assert!(seen.iter().any(|(_, d)| is(d, "Progressing", "True", "ReplicaSetUpdated")));
    assert!(seen.iter().all(|(_, d)| counts(d).iter().all(|count| *count <= 3)));
    assert!(is(&done, "Available", "True", "MinimumReplicasAvailable"));
    let conditions = done.status.clone().unwrap().conditions.unwrap();
    assert_eq!(conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Available", "Progressing"]);

    // Row 2: one replica set, with its size, before the status of the deployment has it.
    assert_eq!((sets.count("ADDED"), pods.count("ADDED")), (1, 3));
    let set = &sets.seen()[0].1;
    let version = |text: Option<String>| text.unwrap().parse::<u64>().unwrap();
    assert!(version(set.resource_version()) < version(noted.resource_version()));
    assert_eq!(size(set), 3);
    let hash = &set.labels()["pod-template-hash"];
    assert_eq!(set.name_any(), format!("web-{hash}"));
    let spec = set.spec.as_ref().unwrap();
    assert_eq!(&spec.selector.match_labels.as_ref().unwrap()["pod-template-hash"], hash);
    let template = spec.template.as_ref().unwrap().metadata.as_ref().unwrap();
    assert_eq!(&template.labels.as_ref().unwrap()["pod-template-hash"], hash);
    let annotations = [
        ("cause", "create"),
        (REVISION, "1"),
        ("deployment.kubernetes.io/desired-replicas", "3"),
        ("deployment.kubernetes.io/max-replicas", "4"),
    ];
    assert!(annotations.iter().all(|(name, value)| set.annotations()[*name] == *value), "{:?}", set.annotations());
    assert_eq!(set.annotations().len(), annotations.len());
    let owner = &set.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.clone()), ("Deployment", done.uid().unwrap()));
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
    let managers: Vec<&str> = set.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(managers, ["kube-controller-manager"]);
    // The first pod alone, then two together (slow start): all three belong to the set.
    assert!(pods.seen().iter().all(|(_, pod)| pod.owner_references()[0].name == set.name_any()));
    let messages = stage.until_events("web", "ScalingReplicaSet", 1).await;
    assert_eq!(messages, [format!("Scaled up replica set {} from 0 to 3", set.name_any())]);
    assert_eq!(stage.until_events(&set.name_any(), "SuccessfulCreate", 3).await.len(), 3);

    // Rows 4, 5 and 7 of the replica set: observed before it has pods, then counted up.
    let seen = until("the last report of the set", async || {
        let seen = sets.seen();
        (seen.last()?.1.status.as_ref()?.available_replicas == Some(3)).then_some(seen)
    })
    .await;
    assert!(seen.iter().skip(1).all(|(kind, _)| *kind == "MODIFIED"));
    let reports: Vec<_> = seen.iter().filter_map(|(_, set)| set.status.clone()).collect();
    let first = reports.iter().find(|status| status.observed_generation == Some(1)).unwrap();
    assert_eq!((first.replicas, first.fully_labeled_replicas.unwrap_or(0)), (0, 0));
    let last = reports.last().unwrap();
    assert_eq!((last.replicas, last.fully_labeled_replicas, last.ready_replicas), (3, Some(3), Some(3)));
    let number = |count: Option<i32>| count.unwrap_or(0);
    let rising = |count: &dyn Fn(&k8s_openapi::api::apps::v1::ReplicaSetStatus) -> i32| {
        reports.windows(2).all(|pair| count(&pair[0]) <= count(&pair[1]))
    };
    assert!(rising(&|status| status.replicas) && rising(&|status| number(status.available_replicas)));
}

#[tokio::test]
async fn sequence_12_3_scale_up_and_down() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(3)).await;
    let pods = stage.record::<Pod>().await;
    let progress = |d: &Deployment| {
        let conditions = d.status.clone().unwrap().conditions.unwrap();
        conditions.into_iter().find(|c| c.type_ == "Progressing").unwrap()
    };
    let before = progress(&stage.until::<Deployment>("web", "there", |_| true).await);

    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 5}})).await;
    let grown = stage
        .until::<Deployment>("web", "observed", |d| d.status.as_ref().unwrap().observed_generation == Some(2))
        .await;
    assert_eq!(grown.metadata.generation, Some(2));
    assert_eq!(counts(&grown)[3..], [3, 2], "available and not");
    assert!(is(&grown, "Available", "False", "MinimumReplicasUnavailable"), "3 of 5, and 4 must be available");
    let set = stage.all::<ReplicaSet>().await.remove(0);
    assert_eq!((size(&set), set.metadata.generation), (5, Some(2)));
    assert_eq!(set.annotations()["deployment.kubernetes.io/desired-replicas"], "5");
    assert_eq!(set.annotations()["deployment.kubernetes.io/max-replicas"], "7");
    stage.until_active(5).await;
    stage.run_all().await;
    let five = stage.until::<Deployment>("web", "complete", |d| is_complete(d, 5)).await;
    assert_eq!((pods.count("ADDED"), progress(&five)), (2, before.clone()), "scaling is no progress");

    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 2}})).await;
    stage
        .until::<Deployment>("web", "shrinking", |d| {
            counts(d) == [2, 2, 2, 2, 0] && d.status.as_ref().unwrap().terminating_replicas == Some(3)
        })
        .await;
    let leaving: Vec<Pod> =
        stage.all::<Pod>().await.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).collect();
    assert_eq!(leaving.len(), 3);
    for pod in &leaving {
        stage.end(&pod.name_any()).await;
    }
    let two = stage
        .until::<Deployment>("web", "shrunk", |d| d.status.as_ref().unwrap().terminating_replicas == Some(0))
        .await;
    assert_eq!((counts(&two), progress(&two)), ([2, 2, 2, 2, 0], before));
    let shrunk = stage.all::<ReplicaSet>().await.remove(0);
    assert_eq!(size(&shrunk), 2);
    assert_eq!(shrunk.annotations()["deployment.kubernetes.io/desired-replicas"], "2");
    assert_eq!(shrunk.annotations()["deployment.kubernetes.io/max-replicas"], "3");
    let set = stage.all::<ReplicaSet>().await.remove(0).name_any();
    let messages = stage.until_events("web", "ScalingReplicaSet", 3).await;
    for step in ["up replica set {} from 3 to 5", "down replica set {} from 5 to 2"] {
        assert!(messages.contains(&format!("Scaled {}", step.replace("{}", &set))), "{messages:?}");
    }

    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 0}})).await;
    let none = stage.until::<Deployment>("web", "empty", |d| counts(d) == [0; 5]).await;
    assert!(is(&none, "Available", "True", "MinimumReplicasAvailable"));
    assert_eq!(progress(&none), progress(&two));
    assert_eq!(size(&stage.all::<ReplicaSet>().await[0]), 0);
}

/// Rolls from `i:1` to `i:2`, one new pod available at a time, and returns the changes of the sets' sizes.
async fn roll(replicas: i32) -> Vec<String> {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(replicas)).await;
    let known = stage.all::<ReplicaSet>().await;
    let (recording, deployments) = (stage.record::<ReplicaSet>().await, stage.record::<Deployment>().await);
    stage.patch::<Deployment>("web", image("2")).await;
    let mut available = 0;
    while available < replicas {
        // Nothing changes any more: every controller has observed and written everything.
        let waiting = settled(&stage).await;
        let next = waiting.into_iter().next().expect("a new pod waits");
        stage.run(&next.name_any()).await;
        available += 1;
    }
    let done = stage.until::<Deployment>("web", "complete", |d| is_complete(d, replicas)).await;
    assert_eq!(done.annotations()[REVISION], "2");
    let (most, fewest) = (replicas + (replicas + 3) / 4, replicas - replicas / 4);
    for (_, seen) in deployments.seen() {
        let [all, .., available, _] = counts(&seen);
        assert!(all <= most && available >= fewest, "{:?}", counts(&seen));
    }
    scale_steps(&recording, &known)
}

/// Waits until the controllers have nothing more to do, and returns the new pods that are not running.
async fn settled(stage: &Stage) -> Vec<Pod> {
    until("a rollout that waits for pods", async || {
        // Pods that are being deleted end.
        for pod in stage.all::<Pod>().await.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            stage.end(&pod.name_any()).await;
        }
        let (d, sets, pods) =
            (stage.until::<Deployment>("web", "there", |_| true).await, sets_of(stage).await, stage.active().await);
        let of = |set: &ReplicaSet| {
            pods.iter().filter(|pod| pod.owner_references()[0].uid == set.uid().unwrap()).count() as i32
        };
        let ready = |set: &ReplicaSet| {
            pods.iter()
                .filter(|pod| {
                    pod.owner_references()[0].uid == set.uid().unwrap() && super::stage::phase(pod) == "Running"
                })
                .count() as i32
        };
        let told = sets.iter().all(|set| {
            let status = set.status.clone().unwrap_or_default();
            of(set) == size(set)
                && status.replicas == size(set)
                && status.available_replicas.unwrap_or(0) == ready(set)
                && status.observed_generation == set.metadata.generation
        });
        let sum = |count: &dyn Fn(&ReplicaSet) -> i32| sets.iter().map(count).sum::<i32>();
        let all = counts(&d)[0] == sum(&size)
            && counts(&d)[3] == sum(&ready)
            && d.status.as_ref().unwrap().observed_generation == d.metadata.generation;
        let waiting: Vec<Pod> = pods.iter().filter(|pod| super::stage::phase(pod) == "Pending").cloned().collect();
        let replicas = d.spec.as_ref().unwrap().replicas.unwrap();
        let budget = (replicas + 3) / 4;
        let old: i32 = sets.iter().filter(|set| image_of(set) == "i:1").map(size).sum();
        let new: i32 = sets.iter().filter(|set| image_of(set) == "i:2").map(size).sum();
        // The next step by the arithmetic: settled when there is none.
        let can_grow = new < replicas && old + new < replicas + budget;
        let can_shrink = old > 0 && sum(&ready) > replicas - replicas / 4;
        (told && all && !can_grow && !can_shrink && !waiting.is_empty()).then_some(waiting)
    })
    .await
}

async fn sets_of(stage: &Stage) -> Vec<ReplicaSet> {
    stage.all::<ReplicaSet>().await
}

#[tokio::test]
async fn sequence_12_4_rollout_of_three() {
    assert_eq!(roll(3).await, ["2: 0→1", "1: 3→2", "2: 1→2", "1: 2→1", "2: 2→3", "1: 1→0"]);
}

#[tokio::test]
async fn sequence_12_4_rollout_of_one_and_of_four() {
    assert_eq!(roll(1).await, ["2: 0→1", "1: 1→0"]);
    let four = ["2: 0→1", "1: 4→3", "2: 1→2", "1: 3→2", "2: 2→3", "1: 2→1", "2: 3→4", "1: 1→0"];
    assert_eq!(roll(4).await, four);
}

#[tokio::test]
async fn dp_19_sequence_12_4_undo_goes_back_to_the_old_replica_set() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(2)).await;
    let first = stage.all::<ReplicaSet>().await.remove(0);
    let _nodes = stage.nodes();
    stage.patch::<Deployment>("web", image("2")).await;
    stage.until::<Deployment>("web", "rolled out", |d| is_complete(d, 2) && d.annotations()[REVISION] == "2").await;
    let recording = stage.record::<ReplicaSet>().await;
    stage.patch::<Deployment>("web", image("1")).await;
    stage.until::<Deployment>("web", "rolled back", |d| is_complete(d, 2) && d.annotations()[REVISION] == "3").await;
    assert_eq!(recording.count("ADDED"), 0, "no replica set is made");
    let sets = sets(&stage).await;
    assert_eq!(
        sets.iter().map(|set| (image_of(set), size(set))).collect::<Vec<_>>(),
        [("i:2".into(), 0), ("i:1".into(), 2)]
    );
    assert_eq!(sets[1].uid(), first.uid());
    assert_eq!((sets[1].annotations()[REVISION].as_str(), sets[1].annotations()[HISTORY].as_str()), ("3", "1"));
}

#[tokio::test]
async fn dp_6_a_rollback_by_annotation() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(1)).await;
    let _nodes = stage.nodes();
    let mut second = image("2");
    second["metadata"] = json!({"annotations": {"cause": "second"}});
    stage.patch::<Deployment>("web", second).await;
    stage.until::<Deployment>("web", "rolled out", |d| is_complete(d, 1) && d.annotations()[REVISION] == "2").await;
    let ask = |revision: &str| json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": revision}}});
    stage.patch::<Deployment>("web", ask("0")).await;
    let back = stage
        .until::<Deployment>("web", "rolled back", |d| is_complete(d, 1) && d.annotations()[REVISION] == "3")
        .await;
    let template = back.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!(template.containers[0].image.as_deref(), Some("i:1"));
    assert_eq!(back.annotations()["cause"], "create", "the annotations of that revision come back too");
    assert!(!back.annotations().contains_key("deprecated.deployment.rollback.to"));
    assert_eq!(
        stage.until_events("web", "DeploymentRollback", 1).await,
        [r#"Rolled back deployment "web" to revision 1"#]
    );
    stage.patch::<Deployment>("web", ask("77")).await;
    stage
        .until::<Deployment>("web", "left alone", |d| {
            !d.annotations().contains_key("deprecated.deployment.rollback.to")
        })
        .await;
    let told = stage.until_events("web", "DeploymentRollbackRevisionNotFound", 1).await;
    assert_eq!(told, ["Unable to find the revision to rollback to."]);
}

#[tokio::test]
async fn dp_4_dp_5_sequence_12_4_a_paused_deployment_scales_but_does_not_roll() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(2)).await;
    let _nodes = stage.nodes();
    stage.patch::<Deployment>("web", json!({"spec": {"paused": true}})).await;
    stage.until::<Deployment>("web", "paused", |d| is(d, "Progressing", "Unknown", "DeploymentPaused")).await;
    let generation = stage.patch::<Deployment>("web", image("2")).await.metadata.generation;
    stage
        .until::<Deployment>("web", "observed", |d| d.status.as_ref().unwrap().observed_generation == generation)
        .await;
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 3}})).await;
    stage.until::<Deployment>("web", "scaled", |d| counts(d)[3] == 3).await;
    assert_eq!(stage.all::<ReplicaSet>().await.len(), 1, "no replica set for the new template");
    let writes = stage.record::<Deployment>().await;
    stage.patch::<Deployment>("web", json!({"spec": {"paused": null}})).await;
    stage.until::<Deployment>("web", "rolled out", |d| is_complete(d, 3) && d.annotations()[REVISION] == "2").await;
    let seen = writes.about("web");
    assert!(seen.iter().any(|(_, d)| is(d, "Progressing", "Unknown", "DeploymentResumed")), "{seen:?}");
}

#[tokio::test]
async fn dp_25_recreate_waits_until_the_last_old_pod_is_gone() {
    let stage = Stage::with(BOTH).await;
    let mut wanted = deployment(2);
    wanted["spec"]["strategy"] = json!({"type": "Recreate"});
    running(&stage, wanted).await;
    let sets = stage.record::<ReplicaSet>().await;
    stage.patch::<Deployment>("web", image("2")).await;
    let leaving =
        stage.until_count::<Pod>("two pods that leave", 2, |pod| pod.metadata.deletion_timestamp.is_some()).await;
    stage.end(&leaving[0].name_any()).await;
    stage
        .until::<Deployment>("web", "nearly empty", |d| {
            d.status.as_ref().unwrap().terminating_replicas == Some(1) && counts(d)[0] == 0
        })
        .await;
    assert_eq!(sets.count("ADDED"), 0, "one old pod is still there");
    stage.end(&leaving[1].name_any()).await;
    let new = stage.until_active(2).await;
    assert!(new.iter().all(|pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("i:2")));
    stage.run_all().await;
    stage.until::<Deployment>("web", "complete", |d| is_complete(d, 2)).await;
    let made = sets.seen().into_iter().find(|(kind, _)| *kind == "ADDED").unwrap().1;
    assert_eq!(size(&made), 2, "made with its size");
}

#[tokio::test]
async fn dp_24_history_beyond_the_limit_is_deleted() {
    let stage = Stage::with(BOTH).await;
    let mut wanted = deployment(1);
    wanted["spec"]["revisionHistoryLimit"] = json!(1);
    running(&stage, wanted).await;
    let _nodes = stage.nodes();
    for tag in ["2", "3", "4"] {
        stage.patch::<Deployment>("web", image(tag)).await;
        stage.until::<Deployment>("web", "rolled out", |d| is_complete(d, 1) && d.annotations()[REVISION] == tag).await;
    }
    let kept = until("two replica sets", async || {
        let sets = sets(&stage).await;
        (sets.len() == 2).then_some(sets)
    })
    .await;
    assert_eq!(kept.iter().map(image_of).collect::<Vec<_>>(), ["i:3", "i:4"]);
}

#[tokio::test]
async fn dp_15_a_collision_leads_to_another_name() {
    let stage = Stage::with(BOTH).await;
    stage.create::<Deployment>(deployment(1)).await;
    let first = until("a replica set", async || stage.all::<ReplicaSet>().await.pop()).await;
    stage.until::<Deployment>("web", "noted", |d| d.annotations().contains_key(REVISION)).await;
    // The name is taken by a set with another template that is none of the deployment's.
    stage.delete::<Deployment>("web", &DeleteParams::default()).await;
    stage.delete::<ReplicaSet>(&first.name_any(), &DeleteParams::default()).await;
    stage
        .create::<ReplicaSet>(json!({
            "metadata": {"name": first.name_any()},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "other"}},
                "template": {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "c", "image": "i:9"}]}},
            },
        }))
        .await;
    stage.create::<Deployment>(deployment(1)).await;
    let made = until("another replica set", async || {
        stage.all::<ReplicaSet>().await.into_iter().find(|set| set.name_any() != first.name_any())
    })
    .await;
    assert!(made.name_any().starts_with("web-"));
    let collided = stage.until::<Deployment>("web", "observed", |d| counts(d)[0] == 1).await;
    assert_eq!(collided.status.unwrap().collision_count, Some(1));
}

#[tokio::test]
async fn dp_16_a_replica_set_that_cannot_be_made_is_told() {
    let stage = Stage::with(BOTH).await;
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"count/replicasets.apps": "0"}}});
    stage.create::<ResourceQuota>(quota).await;
    stage
        .until::<ResourceQuota>("none", "in force", |quota| quota.status.as_ref().is_some_and(|s| s.hard.is_some()))
        .await;
    let writes = stage.record::<Deployment>().await;
    stage.create::<Deployment>(deployment(1)).await;
    let failing =
        stage.until::<Deployment>("web", "failing", |d| is(d, "Progressing", "False", "ReplicaSetCreateError")).await;
    let message = stage.until_events("web", "ReplicaSetCreateError", 1).await.remove(0);
    assert!(
        message.starts_with("Failed to create new replica set \"web-") && message.contains("exceeded quota: none"),
        "{message}"
    );
    assert_eq!(failing.status.unwrap().conditions.unwrap()[0].message.as_deref(), Some(message.as_str()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(writes.count("MODIFIED") <= 2, "{} writes", writes.count("MODIFIED"));
}

#[tokio::test]
async fn dp_2_sequence_12_5_an_orphaned_replica_set_is_adopted_again() {
    let stage = Stage::with("deployment,replicaset,garbagecollector").await;
    running(&stage, deployment(2)).await;
    let set = stage.all::<ReplicaSet>().await.remove(0);
    let names = |pods: &[Pod]| pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let before = names(&stage.active().await);
    stage.delete::<Deployment>("web", &DeleteParams::orphan()).await;
    crate::world::until_gone(&stage.api::<Deployment>(), "web").await;
    let alone = stage.until::<ReplicaSet>(&set.name_any(), "alone", |set| set.owner_references().is_empty()).await;
    assert_eq!(alone.uid(), set.uid());
    let pods = stage.record::<Pod>().await;
    let again: Deployment = stage.create(deployment(2)).await;
    let adopted = stage.until::<ReplicaSet>(&set.name_any(), "adopted", |set| !set.owner_references().is_empty()).await;
    assert_eq!(adopted.owner_references()[0].uid, again.uid().unwrap());
    stage.until::<Deployment>("web", "complete", |d| counts(d) == [2, 2, 2, 2, 0]).await;
    assert_eq!((names(&stage.active().await), pods.seen().len()), (before, 0), "no pod changed");
}

#[tokio::test]
async fn sequence_12_5_background_and_nothing_is_written_afterwards() {
    let stage = Stage::with("deployment,replicaset,garbagecollector").await;
    running(&stage, deployment(2)).await;
    {
        // A second set, so that there is history.
        let _nodes = stage.nodes();
        stage.patch::<Deployment>("web", image("2")).await;
        stage.until::<Deployment>("web", "rolled out", |d| is_complete(d, 2) && d.annotations()[REVISION] == "2").await;
        stage.until_count::<Pod>("two pods", 2, |_| true).await;
    }
    let known = stage.all::<ReplicaSet>().await;
    for set in &known {
        // Until it has nothing more to write about the rollout.
        let quiet = |set: &ReplicaSet| {
            let status = set.status.clone().unwrap_or_default();
            status.terminating_replicas.unwrap_or(0) == 0 && status.observed_generation == set.metadata.generation
        };
        stage.until::<ReplicaSet>(&set.name_any(), "quiet", quiet).await;
    }
    stage.until::<Deployment>("web", "quiet", |d| d.status.as_ref().unwrap().terminating_replicas == Some(0)).await;
    let (deployments, sets, pods) =
        (stage.record::<Deployment>().await, stage.record::<ReplicaSet>().await, stage.record::<Pod>().await);
    stage.delete::<Deployment>("web", &DeleteParams::background()).await;
    let leaving =
        stage.until_count::<Pod>("two pods that leave", 2, |pod| pod.metadata.deletion_timestamp.is_some()).await;
    for pod in &leaving {
        stage.end(&pod.name_any()).await;
    }
    until("all of it", async || (pods.count("DELETED") == 2).then_some(())).await;
    let kinds = |seen: &[(&'static str, ReplicaSet)]| seen.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
    assert_eq!(deployments.seen().iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["DELETED"]);
    for set in &known {
        assert_eq!(kinds(&sets.about(&set.name_any())), ["DELETED"]);
    }
    for pod in &leaving {
        let seen = pods.about(&pod.name_any());
        assert_eq!(seen.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["MODIFIED", "MODIFIED", "DELETED"]);
    }
    assert_eq!(pods.count("ADDED"), 0);
}

#[tokio::test]
async fn sequence_12_5_a_replica_set_deleted_by_hand_is_made_again() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(1)).await;
    let old = stage.all::<ReplicaSet>().await.remove(0);
    stage.delete::<ReplicaSet>(&old.name_any(), &DeleteParams::default()).await;
    let new = stage.until::<ReplicaSet>(&old.name_any(), "made again", |set| set.uid() != old.uid()).await;
    assert_eq!((new.annotations()[REVISION].as_str(), size(&new)), ("1", 1));
}

#[tokio::test]
async fn dp_36_nothing_is_written_when_nothing_changes() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(2)).await;
    let set = sets(&stage).await.remove(0).name_any();
    let (deployments, sets) = (stage.record::<Deployment>().await, stage.record::<ReplicaSet>().await);
    // A label of the deployment wakes its controller, which has nothing to write; the pod wakes the other.
    stage.patch::<Deployment>("web", json!({"metadata": {"labels": {"wake": "up"}}})).await;
    let pod = stage.active().await.remove(0).name_any();
    stage.patch::<Pod>(&pod, json!({"metadata": {"annotations": {"wake": "up"}}})).await;
    // Keys are reconciled in order: once a later deployment has its pod, both controllers have seen these changes.
    let mut later = deployment(1);
    later["metadata"]["name"] = json!("later");
    later["spec"]["selector"]["matchLabels"]["app"] = json!("later");
    later["spec"]["template"]["metadata"]["labels"]["app"] = json!("later");
    stage.create::<Deployment>(later).await;
    stage
        .until::<Deployment>("later", "counted", |d| d.status.as_ref().is_some_and(|status| status.replicas == Some(1)))
        .await;
    assert_eq!((deployments.about("web").len(), sets.about(&set).len()), (1, 0));
}

#[tokio::test]
async fn sequence_12_4_a_rollout_that_never_gets_ready_stops_and_is_late() {
    let stage = Stage::with(BOTH).await;
    let mut wanted = deployment(3);
    wanted["spec"]["progressDeadlineSeconds"] = json!(1);
    running(&stage, wanted).await;
    stage.patch::<Deployment>("web", image("broken")).await;
    let late =
        stage.until::<Deployment>("web", "late", |d| is(d, "Progressing", "False", "ProgressDeadlineExceeded")).await;
    assert!(is(&late, "Available", "True", "MinimumReplicasAvailable"));
    let sizes: Vec<(String, i32)> = sets(&stage).await.iter().map(|set| (image_of(set), size(set))).collect();
    assert_eq!(sizes, [("i:1".into(), 3), ("i:broken".into(), 1)]);
    let writes = stage.record::<Deployment>().await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(writes.seen().len(), 0, "a stuck rollout is quiet");
}

#[tokio::test]
async fn dp_26_scaling_in_the_middle_of_a_rollout_is_shared() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(10)).await;
    stage.patch::<Deployment>("web", image("2")).await;
    until("8 old and 5 new", async || {
        let sizes: Vec<i32> = sets(&stage).await.iter().map(size).collect();
        (sizes == [8, 5]).then_some(())
    })
    .await;
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 20}})).await;
    // 20 and a surge of 5: 8 of 13 and 5 of 13 of 25.
    until("15 old and 10 new", async || {
        let sizes: Vec<i32> = sets(&stage).await.iter().map(size).collect();
        (sizes == [15, 10]).then_some(())
    })
    .await;
    let noted = |set: &ReplicaSet| set.annotations()["deployment.kubernetes.io/max-replicas"].clone();
    assert!(sets(&stage).await.iter().all(|set| noted(set) == "25"));
}

#[tokio::test]
async fn dp_3_a_deployment_that_is_being_deleted_reports_and_does_nothing_else() {
    let stage = Stage::with(BOTH).await;
    let mut wanted = deployment(2);
    wanted["metadata"]["finalizers"] = json!(["example.com/wait"]);
    running(&stage, wanted).await;
    stage.delete::<Deployment>("web", &DeleteParams::default()).await;
    let pod = stage.active().await.remove(0).name_any();
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 5}})).await;
    stage.delete::<Pod>(&pod, &DeleteParams::default()).await;
    stage
        .until::<Deployment>("web", "told", |d| {
            counts(d)[3] == 1 && d.status.as_ref().unwrap().observed_generation == d.metadata.generation
        })
        .await;
    assert_eq!(size(&stage.all::<ReplicaSet>().await[0]), 2, "the replica set keeps its size");
    stage.patch::<Deployment>("web", json!({"metadata": {"finalizers": null}})).await;
    crate::world::until_gone(&stage.api::<Deployment>(), "web").await;
}

/// Reports as the controller of replica sets would, having looked at the set as it is now.
async fn report(stage: &Stage, tag: &str, available: i32) {
    let set = set_of(stage, tag).await;
    let status = json!({
        "replicas": available,
        "readyReplicas": available,
        "availableReplicas": available,
        "observedGeneration": set.metadata.generation,
    });
    let patch = Patch::Merge(json!({ "status": status }));
    stage.api::<ReplicaSet>().patch_status(&set.name_any(), &PatchParams::default(), &patch).await.unwrap();
}

async fn set_of(stage: &Stage, tag: &str) -> ReplicaSet {
    let sets = stage.all::<ReplicaSet>().await;
    sets.into_iter().find(|set| image_of(set) == format!("i:{tag}")).expect("a replica set of this image")
}

async fn until_size(stage: &Stage, tag: &str, wanted: i32) {
    stage
        .until_count::<ReplicaSet>(&format!("{wanted} of {tag}"), 1, |set| {
            image_of(set) == format!("i:{tag}") && size(set) == wanted
        })
        .await;
}

/// The deployment has looked at everything that was reported before this.
async fn until_available(stage: &Stage, available: i32) {
    stage.until::<Deployment>("web", "reported", |d| counts(d)[3] == available).await;
}

/// A deployment of twenty in the middle of its second template: the first set wants fifteen, the second ten. The first still
/// reports twenty, as a replica set does that has counted its pods before it deletes some (RS-8).
async fn half_way(stage: &Stage) {
    stage.create::<Deployment>(deployment(20)).await;
    stage.until_count::<ReplicaSet>("the first replica set", 1, |set| size(set) == 20).await;
    report(stage, "1", 20).await;
    until_available(stage, 20).await;
    stage.patch::<Deployment>("web", image("2")).await;
    until_size(stage, "2", 10).await;
    until_size(stage, "1", 15).await;
    report(stage, "1", 20).await;
}

#[tokio::test]
async fn dp_23_a_set_that_has_just_shrunk_is_not_counted_by_what_it_had() {
    let stage = Stage::with("deployment").await;
    half_way(&stage).await;
    report(&stage, "2", 10).await;
    until_available(&stage, 30).await;
    until_size(&stage, "2", 20).await;
    assert_eq!(size(&set_of(&stage, "1").await), 5, "with the ten new ones fifteen are available");
}

#[tokio::test]
async fn dp_23_pods_that_a_set_lost_before_it_grew_again_do_not_count() {
    let stage = Stage::with("deployment").await;
    half_way(&stage).await;
    report(&stage, "2", 10).await;
    until_size(&stage, "2", 20).await;
    until_size(&stage, "1", 5).await;
    report(&stage, "2", 20).await;
    until_size(&stage, "1", 0).await;
    // Its controller has not looked at the first set since it reported twenty, and now that is the new one again.
    stage.patch::<Deployment>("web", image("1")).await;
    until_size(&stage, "1", 10).await;
    until_size(&stage, "2", 15).await;
    report(&stage, "2", 15).await;
    stage.patch::<Deployment>("web", json!({"metadata": {"annotations": {"look": "again"}}})).await;
    let looked = stage.until::<Deployment>("web", "looked at", |d| {
        d.status.as_ref().and_then(|status| status.observed_generation) == d.metadata.generation
    });
    looked.await;
    assert_eq!(size(&set_of(&stage, "2").await), 15, "its ten pods are not there yet");
    report(&stage, "1", 10).await;
    until_size(&stage, "2", 5).await;
}

#[tokio::test]
async fn dp_23_pods_that_run_are_not_broken_because_their_set_did_not_say_so_yet() {
    let stage = Stage::with("deployment,disruption").await;
    half_way(&stage).await;
    report(&stage, "1", 5).await;
    until_available(&stage, 5).await;
    let first = set_of(&stage, "1").await;
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": first.name_any(), "uid": first.uid(), "controller": true,
    });
    for index in 0..15 {
        let name = format!("p{index}");
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        });
        stage.create::<Pod>(pod).await;
        stage.run(&name).await;
    }
    // All controllers see the same pods: what one has counted, the others know.
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    stage.create::<PodDisruptionBudget>(json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let healthy =
        |budget: &PodDisruptionBudget| budget.status.as_ref().map_or(0, |status| status.current_healthy.unwrap_or(0));
    stage.until::<PodDisruptionBudget>("web", "counted", |budget| healthy(budget) == 15).await;

    // The second set's ten pods are broken. All of the first set's run, though it reports five: none of them may go.
    stage.patch::<Deployment>("web", image("3")).await;
    until_size(&stage, "2", 0).await;
    until_size(&stage, "3", 10).await;
    assert_eq!(size(&set_of(&stage, "1").await), 15);
}
