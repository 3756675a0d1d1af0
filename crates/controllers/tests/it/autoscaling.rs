//! Autoscalers: their bounds, their conditions, and a workload that follows a load.

use std::time::Duration;

use controllers::settings::Timing;
use controllers::{Selection, Settings, Stages};
use dogwatch::testing::Server;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{PATIENCE, until};

struct World {
    server: Server,
    deployments: Api<Deployment>,
    scalers: Api<HorizontalPodAutoscaler>,
}

impl World {
    async fn start(controllers: &str) -> Self {
        let timing = Timing {
            autoscaling: Duration::from_millis(100),
            autoscaling_stabilization: Duration::from_millis(300),
            autoscaling_initialization: Duration::ZERO,
            ..Timing::default()
        };
        let settings = Settings {
            selection: Selection::parse(controllers).unwrap(),
            nodes: 1,
            stages: Stages::immediate(),
            timing,
            ..Settings::default()
        };
        let server = Server::with_controllers(settings).await;
        let client = server.client();
        let (deployments, scalers) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
        World { server, deployments, scalers }
    }

    async fn deployment(&self, name: &str, replicas: i32, cpu: &str) {
        let labels = json!({"app": name});
        let container = json!({"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "500m"}}});
        let template = json!({
            "metadata": {"labels": labels, "annotations": {"nodes.dogwatch/cpu": cpu}},
            "spec": {"containers": [container]},
        });
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
        let made = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.deployments.create(&PostParams::default(), &made).await.unwrap();
    }

    async fn scaler(&self, name: &str, target: &str, spec: Value) {
        let mut made = json!({"metadata": {"name": name}, "spec": spec});
        made["spec"]["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
        let made = serde_json::from_value(made).unwrap();
        self.scalers.create(&PostParams::default(), &made).await.unwrap();
    }

    async fn until_size(&self, name: &str, what: &str, fits: impl Fn(i32) -> bool) {
        let size = |web: &Deployment| web.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        until(&self.deployments, name, what, |web| fits(size(web))).await;
    }

    /// Waits until a condition of an autoscaler is so, as `Status Reason: message`.
    async fn until_said(&self, name: &str, kind: &str, text: &str) -> HorizontalPodAutoscaler {
        until(&self.scalers, name, text, |scaler| said(scaler, kind).starts_with(text)).await
    }

    async fn event(&self, about: &str, reason: &str) -> String {
        let events: Api<Event> = Api::default_namespaced(self.server.client());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let list = events.list(&ListParams::default()).await.unwrap();
            let is_it = |event: &&Event| {
                event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason)
            };
            if let Some(found) = list.items.iter().find(is_it) {
                return found.message.clone().unwrap_or_default();
            }
            assert!(tokio::time::Instant::now() < deadline, "no event {reason} about {about}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn said(scaler: &HorizontalPodAutoscaler, kind: &str) -> String {
    let conditions = scaler.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == kind);
    found.map_or_else(String::new, |found| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{} {}: {}", found.status, text(&found.reason), text(&found.message))
    })
}

fn utilization(percent: i32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
}

const ALL: &str = "scheduler,nodes,nodelifecycle,deployment,replicaset,horizontalpodautoscaling";

#[tokio::test]
async fn hpa_1_hpa_18_a_deployment_follows_a_load_up_and_down() {
    let world = World::start(ALL).await;
    world.deployment("web", 1, "shared(square(200m,1500m,6s))").await;
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": utilization(50)});
    world.scaler("web", "web", spec).await;
    world.until_said("web", "ScalingActive", "True ValidMetricFound").await;
    world.until_size("web", "six", |size| size == 6).await;
    let said = world.event("web", "SuccessfulRescale").await;
    assert!(said.starts_with("New size: "), "{said}");
    world.until_size("web", "one again", |size| size == 1).await;
    let scaler = world.until_said("web", "ScalingActive", "True ValidMetricFound").await;
    let status = scaler.status.unwrap();
    assert!(status.last_scale_time.is_some(), "{status:?}");
    let metric = serde_json::to_value(&status.current_metrics.unwrap()[0]).unwrap();
    assert_eq!(metric["resource"]["name"], "cpu", "{metric}");
    world.server.stop().await;
}

#[tokio::test]
async fn hpa_2_hpa_14_what_cannot_be_measured_changes_nothing() {
    let world = World::start(ALL).await;
    world.deployment("web", 2, "1m").await;
    let metrics = json!([
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "1"}}},
        utilization(50)[0],
    ]);
    world.scaler("one", "web", json!({"maxReplicas": 9, "metrics": metrics})).await;
    // The other metric would shrink the target, which is not done while one is unknown.
    let scaler = world.until_said("one", "ScalingActive", "False FailedGetExternalMetric").await;
    assert_eq!(scaler.status.unwrap().current_replicas, Some(2));
    let event = world.event("one", "FailedComputeMetricsReplicas").await;
    assert!(event.starts_with("invalid metrics (") && event.contains("failed to get queue external metric"), "{event}");
    world.scaler("two", "web", json!({"maxReplicas": 9, "metrics": utilization(50)})).await;
    let why = "False AmbiguousSelector: pods by selector app=web are controlled by multiple HPAs: [{one default} {two default}]";
    world.until_said("two", "ScalingActive", why).await;
    world.server.stop().await;
}

#[tokio::test]
async fn hpa_3_hpa_16_an_autoscaler_keeps_its_bounds_and_says_that_nothing_is_measured() {
    let world = World::start("horizontalpodautoscaling").await;
    world.deployment("web", 9, "1m").await;
    world.scaler("web", "web", json!({"maxReplicas": 5})).await;
    world.until_size("web", "five", |size| size == 5).await;
    let expected = "New size: 5; reason: Current number of replicas above Spec.MaxReplicas";
    assert_eq!(world.event("web", "SuccessfulRescale").await, expected);
    let failed = "False FailedGetResourceMetric: the HPA was unable to compute the replica count: failed to get cpu \
                  utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: \
                  the server could not find the requested resource (get pods.metrics.k8s.io)";
    let scaler = world.until_said("web", "ScalingActive", failed).await;
    let able = "True SucceededGetScale: the HPA controller was able to get the target's current scale";
    assert_eq!(said(&scaler, "AbleToScale"), able);
    // A change of its spec is seen at once.
    let more = Patch::Merge(json!({"spec": {"minReplicas": 6, "maxReplicas": 7}}));
    world.scalers.patch("web", &PatchParams::default(), &more).await.unwrap();
    world.until_size("web", "six", |size| size == 6).await;
    world.deployment("off", 0, "1m").await;
    world.scaler("off", "off", json!({"maxReplicas": 5})).await;
    world.until_said("off", "ScalingActive", "False ScalingDisabled: scaling is disabled").await;
    world.scaler("lost", "lost", json!({"maxReplicas": 5})).await;
    let lost = "False FailedGetScale: the HPA controller was unable to get the target's current scale: deployments.apps \
                \"lost\" not found";
    world.until_said("lost", "AbleToScale", lost).await;
    world.server.stop().await;
}
