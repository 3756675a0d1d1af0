//! The end of a namespace, rule by rule.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use controllers::settings::Timing;
use controllers::{Selection, Settings, Stages};
use dogwatch::testing::Server;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{Watched, config_map, config_maps, make, make_namespace, patch, server};
use crate::between::{Between, Turn};
use crate::world::{until, until_gone};

const CONTROLLER: &str = "namespace";

fn namespaces(client: &Client) -> Api<Namespace> {
    Api::all(client.clone())
}

async fn delete(client: &Client, name: &str) {
    namespaces(client).delete(name, &DeleteParams::default()).await.unwrap();
}

fn condition(namespace: &Namespace, kind: &str) -> Option<(String, String, String)> {
    let conditions = namespace.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone()?, found.message.clone()?))
}

/// A pod on a node, which no node agent stops.
async fn running_pod(client: &Client, namespace: &str, grace_seconds: i64) -> Pod {
    let spec = json!({
        "nodeName": "node", "terminationGracePeriodSeconds": grace_seconds, "containers": [{"name": "c", "image": "i"}],
    });
    make(client, json!({"metadata": {"name": "pod", "namespace": namespace}, "spec": spec})).await
}

#[tokio::test]
async fn ns_2_ns_7_an_empty_namespace_goes() {
    let server = server(CONTROLLER).await;
    let client = server.client();
    make_namespace(&client, "empty").await;
    let watched = Watched::start::<Namespace>(&client).await;
    delete(&client, "empty").await;
    let say = |namespace: &DynamicObject| namespace.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
    let told = watched.until_deleted("empty", say).await;
    assert_eq!(told.first().map(String::as_str), Some("MODIFIED Terminating"));
    assert_eq!(told.last().map(String::as_str), Some("DELETED Terminating"));
    // Terminating, conditions written once, deleted.
    assert_eq!(told.len(), 3, "{told:?}");
}

#[tokio::test]
async fn ns_4_pods_go_before_everything_else() {
    let server = server(CONTROLLER).await;
    let client = server.client();
    make_namespace(&client, "full").await;
    config_map(&client, "full/needed", &[]).await;
    running_pod(&client, "full", 30).await;
    delete(&client, "full").await;
    let pods = Api::<Pod>::namespaced(client.clone(), "full");
    until(&pods, "pod", "terminating", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    let remaining = "NamespaceContentRemaining";
    let namespace =
        until(&namespaces(&client), "full", "said to be waiting", |ns| condition(ns, remaining).is_some()).await;
    let (status, reason, message) = condition(&namespace, remaining).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "SomeResourcesRemain"));
    assert_eq!(message, "Some resources are remaining: pods. has 1 resource instances");
    assert!(config_maps(&client, "full").get_opt("needed").await.unwrap().is_some(), "a pod may need it");
    // The node stops the pod, and the rest follows at once: not after half of the grace period.
    let ended = tokio::time::Instant::now();
    pods.delete("pod", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_gone(&namespaces(&client), "full").await;
    assert!(ended.elapsed().as_secs() < 15, "it waited for the grace period");
}

#[tokio::test]
async fn ns_5_ns_6_what_finalizers_hold_is_said_and_nothing_is_written_twice() {
    let server = server(CONTROLLER).await;
    let client = server.client();
    make_namespace(&client, "held").await;
    for name in ["a", "b"] {
        config_map(&client, &format!("held/{name}"), &[]).await;
        let api = config_maps(&client, "held");
        patch(&api, name, json!({"metadata": {"finalizers": ["example.com/nobody"]}})).await;
    }
    let watched = Watched::start::<Namespace>(&client).await;
    delete(&client, "held").await;
    let remaining = "NamespaceFinalizersRemaining";
    let namespace =
        until(&namespaces(&client), "held", "said to be held", |ns| condition(ns, remaining).is_some()).await;
    let said = |kind: &str| {
        condition(&namespace, kind).map(|(status, reason, message)| format!("{status} {reason}: {message}"))
    };
    assert_eq!(
        said("NamespaceContentRemaining").as_deref(),
        Some("True SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances")
    );
    assert_eq!(
        said(remaining).as_deref(),
        Some(
            "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/nobody in 2 resource instances"
        )
    );
    assert_eq!(
        said("NamespaceDeletionContentFailure").as_deref(),
        Some("False ContentDeleted: All content successfully deleted, may be waiting on finalization")
    );
    assert_eq!(
        said("NamespaceDeletionDiscoveryFailure").as_deref(),
        Some("False ResourcesDiscovered: All resources successfully discovered")
    );
    for name in ["a", "b"] {
        patch(&config_maps(&client, "held"), name, json!({"metadata": {"finalizers": null}})).await;
    }
    // The next round follows after half of the finalizers' time, and a second.
    let told = watched.until_deleted("held", |namespace| namespace.data["status"].to_string()).await;
    let mut states = told.clone();
    states.dedup();
    assert_eq!(told, states, "a write says something else than the one before");
    // A round may fall between the two that were let go.
    assert!(told.len() <= 5, "marked, held, half free, free, gone: {told:?}");
}

#[tokio::test]
async fn ns_7_a_finalizer_of_somebody_else_keeps_the_namespace() {
    let server = server(CONTROLLER).await;
    let client = server.client();
    let namespace = json!({"metadata": {"name": "kept"}, "spec": {"finalizers": ["example.com/other"]}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    let api = namespaces(&client);
    api.create(&PostParams::default(), &namespace).await.unwrap();
    config_map(&client, "kept/inside", &[]).await;
    delete(&client, "kept").await;
    until_gone(&Api::<ConfigMap>::namespaced(client.clone(), "kept"), "inside").await;
    let finalizers = |namespace: &Namespace| namespace.spec.clone().unwrap_or_default().finalizers.unwrap_or_default();
    let mut last = until(&api, "kept", "free of ours", |ns| finalizers(ns) == ["example.com/other"]).await;
    last.spec.get_or_insert_default().finalizers = None;
    api.replace_subresource("finalize", "kept", &PostParams::default(), &last).await.unwrap();
    until_gone(&api, "kept").await;
    assert_eq!(last.name_any(), "kept");
}

/// The namespace controller alone, that begins so long after an event.
fn after(start: Duration) -> Settings {
    let timing = Timing { namespace_start: start, ..Timing::default() };
    Settings { selection: Selection::parse(CONTROLLER).unwrap(), timing, ..Settings::default() }
}

#[tokio::test]
async fn ns_3_it_begins_a_while_after_the_event_and_with_a_live_read() {
    assert_eq!(Timing::default().namespace_start, Duration::from_secs(5));
    let server = Server::start().await;
    let client = server.client();
    let between = Between::new(server.client(), |_| Turn::Pass);
    let wait = Duration::from_millis(1500);
    let _running = between.run(after(wait));
    make_namespace(&client, "slow").await;
    config_map(&client, "slow/inside", &[]).await;
    let asked = tokio::time::Instant::now();
    delete(&client, "slow").await;
    until_gone(&namespaces(&client), "slow").await;
    let about: Vec<_> =
        between.asked().into_iter().filter(|asked| asked.path.starts_with("/api/v1/namespaces/slow")).collect();
    assert_eq!(about[0].line(), "GET /api/v1/namespaces/slow");
    assert!(about[0].at - asked >= wait, "after {:?}", about[0].at - asked);
}

#[tokio::test]
async fn ns_8_what_fails_is_tried_again_and_keeps_nobody_waiting() {
    let server = Server::start().await;
    let client = server.client();
    let refusals = AtomicUsize::new(0);
    let removal = "DELETE /api/v1/namespaces/stuck/configmaps";
    let between = Between::new(server.client(), move |asked| {
        let refuse = asked.line() == removal && refusals.fetch_add(1, Ordering::Relaxed) < 5;
        if refuse { Turn::Refuse(500) } else { Turn::Pass }
    });
    let _running = between.run(after(Duration::from_millis(50)));
    for name in ["stuck", "other"] {
        make_namespace(&client, name).await;
        config_map(&client, &format!("{name}/inside"), &[]).await;
    }
    let watched = Watched::start::<Namespace>(&client).await;
    delete(&client, "stuck").await;
    delete(&client, "other").await;
    until_gone(&namespaces(&client), "other").await;
    until_gone(&namespaces(&client), "stuck").await;
    let failure = |namespace: &DynamicObject| {
        let conditions = namespace.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let failure = conditions.iter().find(|c| c["type"] == "NamespaceDeletionContentFailure").cloned();
        failure.map(|c| format!("{} {}", c["status"], c["reason"])).unwrap_or_default()
    };
    let told = watched.until_deleted("stuck", failure).await;
    assert!(told.contains(&r#"MODIFIED "True" "ContentDeletionFailed""#.to_owned()), "{told:?}");
    let other = watched.about("other", failure);
    assert!(!other.iter().any(|line| line.contains("ContentDeletionFailed")), "{other:?}");
    assert_eq!(between.asked_like(removal).len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_5_of_a_namespace() {
    let mut settings = after(Duration::from_millis(200));
    let everything = "namespace,deployment,replicaset,scheduler,nodes,nodelifecycle,garbagecollector";
    settings.selection = Selection::parse(everything).unwrap();
    (settings.nodes, settings.stages) = (1, Stages::immediate());
    let server = Server::with_controllers(settings).await;
    let client = server.client();
    make_namespace(&client, "team").await;
    config_map(&client, "team/settings", &[]).await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    make::<Deployment>(&client, json!({"metadata": {"name": "web", "namespace": "team"}, "spec": spec})).await;
    let deployments = Api::<Deployment>::namespaced(client.clone(), "team");
    until(&deployments, "web", "available", |d| d.status.as_ref().is_some_and(|s| s.available_replicas == Some(2)))
        .await;
    let names = Watched::start::<Namespace>(&client).await;
    let pods = Watched::start::<Pod>(&client).await;
    let others = [
        Watched::start::<Deployment>(&client).await,
        Watched::start::<ReplicaSet>(&client).await,
        Watched::start::<ConfigMap>(&client).await,
    ];
    delete(&client, "team").await;
    let phase = |namespace: &DynamicObject| namespace.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
    let told = names.until_deleted("team", phase).await;
    assert_eq!(told[0], "MODIFIED Terminating");
    assert!(told[1..told.len() - 1].iter().all(|line| line == "MODIFIED Terminating"), "{told:?}");
    let removals = |watched: &Watched| -> Vec<u64> {
        let events = watched.events.lock();
        let gone =
            events.iter().filter(|(kind, object)| kind == "DELETED" && object.namespace().as_deref() == Some("team"));
        gone.map(|(_, object)| object.resource_version().unwrap().parse().unwrap()).collect()
    };
    let pods_gone = removals(&pods);
    assert_eq!(pods_gone.len(), 2);
    let events = pods.events.lock();
    assert!(!events.iter().any(|(kind, _)| kind == "ADDED"), "none is made in a namespace that is going");
    for watched in &others {
        let gone = removals(watched);
        assert!(!gone.is_empty() && gone.iter().min() > pods_gone.iter().max(), "{gone:?} after {pods_gone:?}");
    }
}
