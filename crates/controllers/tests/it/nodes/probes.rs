//! Probes: what they look at, what follows from their results.

use dogwatch::testing::Server;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use serde_json::json;

use super::{NODES, make_pod, pod_condition, pods, settings, told, until_running};
use crate::world::until;

fn ready(pod: &Pod) -> bool {
    pod_condition(pod, "Ready") == "True"
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    statuses.first().map(|status| status.restart_count).unwrap_or_default()
}

/// The events of a reason about a pod; waits until there is one.
async fn events_of(server: &Server, name: &str, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(server.client(), "default");
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    loop {
        let all = events.list(&Default::default()).await.unwrap().items;
        let found: Vec<String> = all
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(name))
            .filter(|event| event.reason.as_deref() == Some(reason))
            .filter_map(|event| event.message)
            .collect();
        if !found.is_empty() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "no {reason} about {name}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prb_1_a_readiness_probe_decides_about_the_conditions() {
    let server = Server::with_controllers(settings(NODES)).await;
    make_pod(&server, "p", |pod| {
        pod["spec"]["containers"][0]["command"] =
            json!(["sh", "-c", "sleep 2; touch /tmp/ready; sleep 4; rm /tmp/ready; sleep 600"]);
        pod["spec"]["containers"][0]["readinessProbe"] =
            json!({"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    })
    .await;
    let running = until(&pods(&server), "p", "running", |pod| super::phase(pod) == "Running").await;
    assert!(!ready(&running), "not before its probe has passed");
    until(&pods(&server), "p", "ready", ready).await;
    let after = until(&pods(&server), "p", "unready", |pod| !ready(pod)).await;
    assert_eq!(pod_condition(&after, "ContainersReady"), "False");
    assert_eq!(restarts(&after), 0);
    let texts = events_of(&server, "p", "Unhealthy").await;
    let expected = "Readiness probe failed: cat: can't open '/tmp/ready': No such file or directory\n";
    assert!(texts.iter().any(|text| text.trim() == expected.trim()), "{texts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prb_2_a_liveness_probe_restarts_its_container() {
    let server = Server::with_controllers(settings(NODES)).await;
    make_pod(&server, "p", |pod| {
        pod["metadata"]["annotations"] = json!({"nodes.dogwatch/liveness": "fails after 1s"});
        pod["spec"]["containers"][0]["livenessProbe"] =
            json!({"httpGet": {"path": "/healthz", "port": 80}, "periodSeconds": 1, "failureThreshold": 2});
    })
    .await;
    let pod = until(&pods(&server), "p", "restarted", |pod| restarts(pod) >= 1).await;
    let status = pod.status.unwrap().container_statuses.unwrap()[0].clone();
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 137);
    let texts = events_of(&server, "p", "Unhealthy").await;
    assert!(texts.contains(&"Liveness probe failed: HTTP probe failed with statuscode: 503".to_owned()), "{texts:?}");
    let texts = events_of(&server, "p", "Killing").await;
    assert!(texts.contains(&"Container c failed liveness probe, will be restarted".to_owned()), "{texts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prb_3_a_startup_probe_comes_before_the_others() {
    let server = Server::with_controllers(settings(NODES)).await;
    make_pod(&server, "p", |pod| {
        pod["metadata"]["annotations"] = json!({"nodes.dogwatch/startup": "passes after 2s",
            "nodes.dogwatch/liveness": "fails for 1s"});
        pod["spec"]["containers"][0]["startupProbe"] =
            json!({"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 30});
    })
    .await;
    let running = until(&pods(&server), "p", "running", |pod| super::phase(pod) == "Running").await;
    let status = running.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].clone();
    assert_eq!((status.started, status.ready), (Some(false), false));
    let pod = until_running(&server, "p").await;
    let status = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].clone();
    assert_eq!((status.started, restarts(&pod)), (Some(true), 0), "liveness was not probed before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prb_4_probes_of_ports_pass_unless_something_else_is_prescribed() {
    let server = Server::with_controllers(settings(NODES)).await;
    make_pod(&server, "p", |pod| {
        let probe = json!({"httpGet": {"path": "/", "port": 80}});
        pod["spec"]["containers"][0]["readinessProbe"] = probe.clone();
        pod["spec"]["containers"][0]["livenessProbe"] = probe;
        pod["spec"]["containers"][0]["startupProbe"] = json!({"tcpSocket": {"port": 80}});
        pod["spec"]["containers"][0]["image"] = json!("example.com/app");
    })
    .await;
    let pod = until_running(&server, "p").await;
    assert_eq!(restarts(&pod), 0);
    make_pod(&server, "flaps", |pod| {
        pod["metadata"]["annotations"] = json!({"nodes.dogwatch/readiness": "flaps every 1s"});
    })
    .await;
    for _ in 0..2 {
        until(&pods(&server), "flaps", "ready", ready).await;
        until(&pods(&server), "flaps", "unready", |pod| !ready(pod)).await;
    }
    let _ = told(&server.client(), "flaps", 1).await;
}
