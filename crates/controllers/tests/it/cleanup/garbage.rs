//! The garbage collector, rule by rule.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{Watched, config_map, config_maps, make, make_namespace, patch, reference, server};
use crate::world::{until, until_gone};

const GC: &str = "garbagecollector";

/// Waits until the collector has processed earlier events: it deletes another object that has no owner.
async fn settle(client: &kube::Client, name: &str) {
    let owner = config_map(client, &format!("default/{name}-owner"), &[]).await;
    config_map(client, &format!("default/{name}"), &[reference(&owner, false)]).await;
    let api = config_maps(client, "default");
    api.delete(&owner.name_any(), &DeleteParams::default()).await.unwrap();
    until_gone(&api, name).await;
}

#[tokio::test]
async fn gc_1_every_kind_is_collected_and_events_are_not() {
    let server = server(GC).await;
    let client = server.client();
    let owner = config_map(&client, "default/owner", &[]).await;
    let owners = json!([reference(&owner, false)]);
    let secret: Secret = make(&client, json!({"metadata": {"name": "s", "ownerReferences": owners}})).await;
    let event: Event = make(
        &client,
        json!({"metadata": {"name": "e", "namespace": "default", "ownerReferences": owners},
               "involvedObject": {"namespace": "default", "name": "x"}}),
    )
    .await;
    config_maps(&client, "default").delete("owner", &DeleteParams::default()).await.unwrap();
    until_gone(&Api::<Secret>::namespaced(client.clone(), "default"), &secret.name_any()).await;
    settle(&client, "later").await;
    let events = Api::<Event>::namespaced(client, "default");
    assert!(events.get_opt(&event.name_any()).await.unwrap().is_some());
}

#[tokio::test]
async fn gc_1_custom_resources_own_and_are_owned_as_soon_as_they_are_served() {
    let server = server(GC).await;
    let client = server.client();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let established = |crd: &CustomResourceDefinition| {
        let conditions = crd.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    };
    until(&definitions, "widgets.example.com", "established", established).await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &kind);
    let widget = |name: &str, owners: serde_json::Value| -> DynamicObject {
        let kind = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "ownerReferences": owners}});
        serde_json::from_value(kind).unwrap()
    };
    let top = widgets.create(&PostParams::default(), &widget("top", json!([]))).await.unwrap();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "top", "uid": top.uid(), "blockOwnerDeletion": true});
    widgets.create(&PostParams::default(), &widget("below", json!([owner]))).await.unwrap();
    config_map(&client, "default/map", std::slice::from_ref(&owner)).await;
    // Widgets cannot be patched strategically: their references are replaced.
    let both = json!([owner, {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-00000000000d"}]);
    widgets.create(&PostParams::default(), &widget("mixed", both)).await.unwrap();
    let freed = |widget: &DynamicObject| widget.owner_references().len() == 1;
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    while !freed(&widgets.get("mixed").await.unwrap()) {
        assert!(tokio::time::Instant::now() < deadline, "a reference to nobody stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    widgets.delete("top", &DeleteParams::foreground()).await.unwrap();
    until_gone(&config_maps(&client, "default"), "map").await;
    for name in ["below", "mixed", "top"] {
        while widgets.get_opt(name).await.unwrap().is_some() {
            assert!(tokio::time::Instant::now() < deadline, "{name} is still there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn gc_3_a_dependent_of_nobody_goes_and_one_whose_owner_is_there_stays() {
    let server = server(GC).await;
    let client = server.client();
    let gone = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-0000-0000-00000000000a"});
    let owner = config_map(&client, "default/owner", &[]).await;
    let another = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-0000-0000-00000000000b"});
    let api = config_maps(&client, "default");
    config_map(&client, "default/of-nobody", std::slice::from_ref(&gone)).await;
    config_map(&client, "default/of-another", &[another]).await;
    config_map(&client, "default/of-both", &[gone, reference(&owner, true)]).await;
    until_gone(&api, "of-nobody").await;
    until_gone(&api, "of-another").await;
    let kept = until(&api, "of-both", "freed", |map| map.owner_references().len() == 1).await;
    assert_eq!(kept.owner_references()[0].name, "owner");
}

#[tokio::test]
async fn gc_6_somebody_who_writes_often_does_not_keep_it_alive() {
    let server = server(GC).await;
    let client = server.client();
    let owner = config_map(&client, "default/owner", &[]).await;
    config_map(&client, "default/busy", &[reference(&owner, false)]).await;
    let api = config_maps(&client, "default");
    let writer = {
        let api = api.clone();
        tokio::spawn(async move {
            for count in 0.. {
                let change = kube::api::Patch::Merge(json!({"data": {"count": count.to_string()}}));
                if api.patch("busy", &Default::default(), &change).await.is_err() {
                    return;
                }
            }
        })
    };
    api.delete("owner", &DeleteParams::default()).await.unwrap();
    until_gone(&api, "busy").await;
    writer.await.unwrap();
}

#[tokio::test]
async fn gc_7_an_owner_waits_only_for_dependents_that_block() {
    let server = server(GC).await;
    let client = server.client();
    let api = config_maps(&client, "default");
    let owner = config_map(&client, "default/owner", &[]).await;
    for (name, blocks) in [("blocks", true), ("does-not", false)] {
        config_map(&client, &format!("default/{name}"), &[reference(&owner, blocks)]).await;
        patch(&api, name, json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
    }
    settle(&client, "seen").await;
    api.delete("owner", &DeleteParams::foreground()).await.unwrap();
    for name in ["blocks", "does-not"] {
        until(&api, name, "deleting", |map| map.metadata.deletion_timestamp.is_some()).await;
    }
    settle(&client, "waited").await;
    assert!(api.get_opt("owner").await.unwrap().is_some(), "one dependent blocks");
    patch(&api, "blocks", json!({"metadata": {"finalizers": null}})).await;
    until_gone(&api, "owner").await;
    assert!(api.get_opt("does-not").await.unwrap().is_some());
    patch(&api, "does-not", json!({"metadata": {"finalizers": null}})).await;
    until_gone(&api, "does-not").await;
}

#[tokio::test]
async fn gc_7_a_circle_of_owners_ends() {
    let server = server(GC).await;
    let client = server.client();
    let api = config_maps(&client, "default");
    let a = config_map(&client, "default/a", &[]).await;
    let b = config_map(&client, "default/b", &[reference(&a, true)]).await;
    let c = config_map(&client, "default/c", &[reference(&b, true)]).await;
    patch(&api, "a", json!({"metadata": {"ownerReferences": [reference(&c, true)]}})).await;
    config_map(&client, "default/self", &[]).await;
    let own = api.get("self").await.unwrap();
    patch(&api, "self", json!({"metadata": {"ownerReferences": [reference(&own, true)]}})).await;
    settle(&client, "seen").await;
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 4, "nobody is without an owner");
    api.delete("a", &DeleteParams::foreground()).await.unwrap();
    api.delete("self", &DeleteParams::foreground()).await.unwrap();
    for name in ["a", "b", "c", "self"] {
        until_gone(&api, name).await;
    }
}

#[tokio::test]
async fn gc_8_orphans_stay_and_the_owner_goes() {
    let server = server(GC).await;
    let client = server.client();
    let api = config_maps(&client, "default");
    let owner = config_map(&client, "default/owner", &[]).await;
    let other = config_map(&client, "default/other", &[]).await;
    for name in 0..30 {
        config_map(&client, &format!("default/d{name}"), &[reference(&owner, true), reference(&other, true)]).await;
    }
    settle(&client, "seen").await;
    api.delete("owner", &DeleteParams::orphan()).await.unwrap();
    until_gone(&api, "owner").await;
    for name in 0..30 {
        let orphan = api.get(&format!("d{name}")).await.unwrap();
        let owners: Vec<String> = orphan.owner_references().iter().map(|owner| owner.name.clone()).collect();
        assert_eq!(owners, ["other"]);
    }
}

#[tokio::test]
async fn gc_9_an_owner_in_another_namespace_is_no_owner() {
    let server = server(GC).await;
    let client = server.client();
    make_namespace(&client, "other").await;
    let owner = config_map(&client, "other/owner", &[]).await;
    settle(&client, "seen").await;
    config_map(&client, "default/misled", &[reference(&owner, false)]).await;
    until_gone(&config_maps(&client, "default"), "misled").await;
    let events = Api::<Event>::namespaced(client, "default");
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    let event = loop {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        if let Some(event) = all.into_iter().find(|event| event.reason.as_deref() == Some("OwnerRefInvalidNamespace")) {
            break event;
        }
        assert!(tokio::time::Instant::now() < deadline, "no event");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let expected = format!(
        "ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {}] does not exist in namespace \"default\"",
        owner.uid().unwrap()
    );
    assert_eq!(event.message.as_deref(), Some(expected.as_str()));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("garbage-collector-controller"));
    assert_eq!(event.involved_object.name.as_deref(), Some("misled"));
}

#[tokio::test]
async fn gc_9_a_cluster_scoped_object_of_a_namespaced_owner_is_left_alone() {
    let server = server(GC).await;
    let client = server.client();
    let roles = Api::<ClusterRole>::all(client.clone());
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-0000-0000-00000000000c"}]);
    let role = serde_json::from_value(json!({"metadata": {"name": "odd", "ownerReferences": owners}})).unwrap();
    let made = roles.create(&PostParams::default(), &role).await.unwrap();
    settle(&client, "first").await;
    settle(&client, "second").await;
    assert_eq!(roles.get("odd").await.unwrap().resource_version(), made.resource_version());
}

#[tokio::test]
async fn gc_10_the_version_in_a_reference_may_be_another() {
    let server = server(GC).await;
    let client = server.client();
    let scaler: HorizontalPodAutoscaler = make(
        &client,
        json!({"metadata": {"name": "scaler"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
    )
    .await;
    let mut owner = reference(&scaler, false);
    owner["apiVersion"] = json!("autoscaling/v1");
    config_map(&client, "default/dependent", &[owner]).await;
    settle(&client, "seen").await;
    let api = config_maps(&client, "default");
    assert!(api.get_opt("dependent").await.unwrap().is_some());
    let scalers = Api::<HorizontalPodAutoscaler>::namespaced(client, "default");
    scalers.delete("scaler", &DeleteParams::default()).await.unwrap();
    until_gone(&api, "dependent").await;
}

#[tokio::test]
async fn gc_11_what_is_being_deleted_is_left_alone_and_nothing_is_written_for_ever() {
    let server = server(GC).await;
    let client = server.client();
    let api = config_maps(&client, "default");
    let owner = config_map(&client, "default/owner", &[]).await;
    config_map(&client, "default/stuck", &[reference(&owner, true)]).await;
    patch(&api, "stuck", json!({"metadata": {"finalizers": ["example.com/nobody"]}})).await;
    settle(&client, "seen").await;
    let watched = Watched::start::<ConfigMap>(&client).await;
    api.delete("owner", &DeleteParams::foreground()).await.unwrap();
    until(&api, "stuck", "deleting", |map| map.metadata.deletion_timestamp.is_some()).await;
    for round in ["a", "b", "c"] {
        settle(&client, round).await;
    }
    // One write each and no more, however long the finalizer stays.
    let finalizers = |object: &kube::core::DynamicObject| object.finalizers().join(",");
    assert_eq!(watched.about("owner", finalizers), ["MODIFIED foregroundDeletion"]);
    assert_eq!(watched.about("stuck", finalizers), ["MODIFIED example.com/nobody"]);
    patch(&api, "stuck", json!({"metadata": {"finalizers": null}})).await;
    until_gone(&api, "owner").await;
    let last = |name: &str| watched.deletions().iter().position(|deleted| deleted == name);
    watched.until_deleted("owner", finalizers).await;
    assert!(last("stuck") < last("owner"));
}
