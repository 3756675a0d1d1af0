//! Containers that do what their commands say.

use controllers::Settings;
use dogwatch::testing::Server;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams, WatchParams};
use serde_json::{Value, json};

use super::{NODES, Watched, make_pod, phase, pods, settings, told, told_of, until_running};
use crate::world::until;

fn sh(text: &str) -> Value {
    json!(["/bin/sh", "-c", text])
}

async fn world() -> Server {
    Server::with_controllers(settings(NODES)).await
}

/// A pod of one container with a command.
async fn make(server: &Server, name: &str, policy: &str, text: &str) -> Pod {
    make_pod(server, name, |pod| {
        pod["spec"]["restartPolicy"] = json!(policy);
        pod["spec"]["containers"][0]["image"] = json!("busybox");
        pod["spec"]["containers"][0]["command"] = sh(text);
    })
    .await
}

fn container(pod: &Pod, name: &str) -> ContainerStatus {
    let status = pod.status.clone().unwrap_or_default();
    let all = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
    all.into_iter().find(|status| status.name == name).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd_9_a_pod_ends_with_the_code_of_its_command() {
    let server = world().await;
    make(&server, "good", "Never", "echo hi; true").await;
    make(&server, "bad", "Never", "echo reason > /dev/termination-log; sleep 0.2; exit 3").await;
    make(&server, "again", "OnFailure", "exit 0").await;
    make(&server, "runs", "Never", "sleep infinity").await;
    for name in ["good", "again"] {
        until(&pods(&server), name, "succeeded", |pod| phase(pod) == "Succeeded").await;
    }
    let bad = until(&pods(&server), "bad", "failed", |pod| phase(pod) == "Failed").await;
    let ended = container(&bad, "c").state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (3, Some("Error")));
    assert_eq!(ended.message.as_deref(), Some("reason\n"));
    until_running(&server, "runs").await;
}

/// A node has 254 addresses; podgc keeps far more ended pods than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_12_ended_pods_keep_no_address() {
    let server = world().await;
    for at in 0..260 {
        make(&server, &format!("ended-{at}"), "Never", "true").await;
    }
    for at in 0..260 {
        until(&pods(&server), &format!("ended-{at}"), "succeeded", |pod| phase(pod) == "Succeeded").await;
    }
    make(&server, "last", "Never", "sleep infinity").await;
    let address = until_running(&server, "last").await.status.and_then(|status| status.pod_ip);
    assert!(address.as_deref().is_some_and(|address| address.starts_with("10.128.0.")), "{address:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd_10_each_container_restarts_for_itself() {
    let server = world().await;
    make_pod(&server, "p", |pod| {
        pod["spec"]["containers"] = json!([
            {"name": "crashes", "image": "busybox", "command": sh("exit 2")},
            {"name": "runs", "image": "busybox", "command": ["sleep", "1000000"]},
        ]);
    })
    .await;
    let pod = until(&pods(&server), "p", "restarted twice", |pod| container(pod, "crashes").restart_count >= 2).await;
    assert_eq!(phase(&pod), "Running");
    assert_eq!(container(&pod, "runs").restart_count, 0);
    assert!(container(&pod, "runs").state.unwrap().running.is_some());
    let last = container(&pod, "crashes").last_state.unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 2);
    let events = told(&server.client(), "p", 8).await;
    let back_off = events.iter().find(|event| event.reason.as_deref() == Some("BackOff")).unwrap();
    let text = back_off.message.as_deref().unwrap();
    assert!(text.starts_with("Back-off restarting failed container crashes in pod p_default("), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd_11_init_containers_and_sidecars_follow_their_commands() {
    let server = world().await;
    let flag = "if [ -f /data/once ]; then exit 0; else touch /data/once; exit 1; fi";
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    make_pod(&server, "retries", |pod| {
        pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        pod["spec"]["initContainers"] = json!([
            {"name": "i", "image": "busybox", "command": sh(flag), "volumeMounts": mounts},
            {"name": "side", "image": "busybox", "command": sh("sleep 1; exit 5"), "restartPolicy": "Always"},
        ]);
        pod["spec"]["containers"][0]["command"] = sh("test -f /data/once && sleep 1000");
        pod["spec"]["containers"][0]["volumeMounts"] = mounts.clone();
    })
    .await;
    let pod = until_running(&server, "retries").await;
    assert_eq!(container(&pod, "i").restart_count, 1);
    assert_eq!(container(&pod, "i").state.unwrap().terminated.unwrap().exit_code, 0);
    assert_eq!(container(&pod, "c").restart_count, 0, "it found the file of the volume");
    until(&pods(&server), "retries", "a sidecar restarted", |pod| container(pod, "side").restart_count >= 1).await;
    make_pod(&server, "fails", |pod| {
        pod["spec"]["restartPolicy"] = json!("Never");
        pod["spec"]["initContainers"] = json!([{"name": "i", "image": "busybox", "command": sh("exit 7")}]);
    })
    .await;
    let pod = until(&pods(&server), "fails", "failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(container(&pod, "i").state.unwrap().terminated.unwrap().exit_code, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd_12_a_deleted_container_stops_on_term_or_is_killed() {
    let server = world().await;
    make(&server, "handles", "Never", "trap 'echo bye; exit 9' TERM; while true; do sleep 0.1; done").await;
    make(&server, "ignores", "Never", "sleep 1000").await;
    for name in ["handles", "ignores"] {
        until_running(&server, name).await;
    }
    let watched = Watched::pods(server.client(), WatchParams::default()).await;
    pods(&server).delete("handles", &DeleteParams::default()).await.unwrap();
    pods(&server).delete("ignores", &DeleteParams::default().grace_period(1)).await.unwrap();
    for name in ["handles", "ignores"] {
        crate::world::until_gone(&pods(&server), name).await;
    }
    let code = |name: &str| {
        let events = watched.so_far();
        let pod = events.iter().rev().find(|(_, pod)| pod["metadata"]["name"] == name).unwrap().1.clone();
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].clone()
    };
    assert_eq!((code("handles"), code("ignores")), (json!(9), json!(137)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd_13_jobs_of_the_conformance_tests() {
    let mut all = settings(&format!("{NODES},job"));
    all.timing.job_batch = std::time::Duration::from_millis(10);
    let server = Server::with_controllers(Settings { ..all }).await;
    let jobs: Api<Job> = Api::namespaced(server.client(), "default");
    let once = "if [[ -r /data/foo ]]\nthen\nexit 0\nelse\ntouch /data/foo\nexit 1\nfi";
    let job = |name: &str, policy: &str, volume: Value, container: Value| -> Job {
        let mut container = container;
        container["name"] = json!("c");
        container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        let value = json!({"metadata": {"name": name}, "spec": {"backoffLimit": 6, "completions": 2, "parallelism": 2,
            "template": {"spec": {"restartPolicy": policy, "volumes": [volume], "containers": [container]}}}});
        serde_json::from_value(value).unwrap()
    };
    let empty = json!({"name": "data", "emptyDir": {}});
    for job in [
        job("fails-once", "OnFailure", empty.clone(), json!({"image": "busybox", "command": sh(once)})),
        job("not-simulated", "Never", empty.clone(), json!({"image": "perl", "command": ["perl", "-e", "print 1"]})),
        job("without", "Never", empty.clone(), json!({"image": "busybox"})),
        job("runs", "Never", empty, json!({"image": "registry.k8s.io/pause:3.10"})),
    ] {
        jobs.create(&PostParams::default(), &job).await.unwrap();
    }
    for name in ["fails-once", "not-simulated", "without"] {
        until(&jobs, name, "complete", |job| job.status.as_ref().and_then(|status| status.succeeded) == Some(2)).await;
    }
    let running = until(&jobs, "runs", "ready", |job| job.status.as_ref().and_then(|s| s.ready) == Some(2)).await;
    assert_eq!(running.status.unwrap().active, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd_14_a_command_that_is_not_understood_runs_and_an_event_says_so() {
    let server = world().await;
    make(&server, "p", "Never", "node server.js").await;
    until_running(&server, "p").await;
    let event = told_of(&server.client(), "p", "CommandNotSimulated").await;
    assert!(event.message.as_deref().unwrap().contains("`node`"), "{event:?}");
    make_pod(&server, "q", |pod| {
        pod["metadata"]["annotations"] = json!({"nodes.dogwatch/readiness": "sometimes"});
    })
    .await;
    until_running(&server, "q").await;
    let event = told_of(&server.client(), "q", "InvalidAnnotation").await;
    assert!(event.message.as_deref().unwrap().contains("readiness: \"sometimes\" should be"), "{event:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cmd_15_annotations_overrule_commands() {
    let server = world().await;
    make_pod(&server, "p", |pod| {
        pod["spec"]["restartPolicy"] = json!("Never");
        pod["spec"]["containers"][0]["command"] = sh("sleep infinity");
        pod["metadata"]["annotations"] = json!({"nodes.dogwatch/exit-after": "10ms", "nodes.dogwatch/exit-code": "4"});
    })
    .await;
    let pod = until(&pods(&server), "p", "failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(container(&pod, "c").state.unwrap().terminated.unwrap().exit_code, 4);
}
