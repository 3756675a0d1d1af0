//! Tests of the logs of containers.

use super::*;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

fn pod(annotations: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]},
        "status": {"phase": "Running",
            "conditions": [{"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]},
    }))
    .unwrap()
}

async fn read(containers: &Containers, pod: &Pod, wanted: LogWanted) -> String {
    let mut text = Vec::new();
    let found = state::instance(pod, "c", wanted.previous).unwrap();
    let current: CurrentPod = Arc::new(|| None);
    containers.write_log(pod, "c", found, wanted, current, &mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

fn appended(texts: &[&str]) -> Containers {
    let containers = Containers::default();
    for (number, text) in (0..).zip(texts) {
        let at = Timestamp::from_second(1_767_225_600 + number).unwrap();
        containers.logs().append("u", "c", Line { at, is_error: false, text: (*text).into() });
    }
    containers
}

#[tokio::test]
async fn lg_1_a_container_without_lines_has_a_short_log() {
    let text = read(&Containers::default(), &pod(json!({})), LogWanted::default()).await;
    assert_eq!(text, "container c of pod p started (simulated, image nginx)\nlistening on port 80\nready\n");
}

#[tokio::test]
async fn lg_2_lines_are_selected_by_number_time_and_size() {
    let containers = appended(&["one", "two", "three"]);
    let pod = pod(json!({}));
    let all = LogWanted::default();
    assert_eq!(read(&containers, &pod, all.clone()).await, "one\ntwo\nthree\n");
    assert_eq!(read(&containers, &pod, LogWanted { tail_lines: Some(1), ..all.clone() }).await, "three\n");
    assert_eq!(read(&containers, &pod, LogWanted { tail_lines: Some(0), ..all.clone() }).await, "");
    assert_eq!(read(&containers, &pod, LogWanted { limit_bytes: Some(6), ..all.clone() }).await, "one\ntw");
    let since = "2026-01-01T00:00:01Z".parse().ok();
    assert_eq!(read(&containers, &pod, LogWanted { since, ..all.clone() }).await, "two\nthree\n");
    let stamped = read(&containers, &pod, LogWanted { timestamps: true, tail_lines: Some(1), ..all }).await;
    assert_eq!(stamped, "2026-01-01T00:00:02.000000000Z three\n");
}

#[tokio::test]
async fn lg_5_annotations_overrule_what_a_container_wrote() {
    let containers = appended(&["one"]);
    let prescribed = pod(json!({"nodes.dogwatch/logs": "first\nsecond\n"}));
    assert_eq!(read(&containers, &prescribed, LogWanted::default()).await, "first\nsecond\n");
}

#[tokio::test]
async fn lg_6_a_followed_log_ends_with_its_container() {
    let containers = Arc::new(appended(&["one"]));
    let pod = pod(json!({}));
    let found = state::instance(&pod, "c", false).unwrap();
    let (mut reader, writer) = tokio::io::duplex(1024);
    let gone = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let current: CurrentPod = {
        let (pod, gone) = (pod.clone(), gone.clone());
        Arc::new(move || (!gone.load(std::sync::atomic::Ordering::SeqCst)).then(|| pod.clone()))
    };
    let writing = tokio::spawn({
        let (containers, wanted) = (containers.clone(), LogWanted { follow: true, ..LogWanted::default() });
        async move { containers.write_log(&pod, "c", found, wanted, current, writer).await }
    });
    let mut text = [0; 4];
    reader.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"one\n");
    containers.logs().append("u", "c", Line { at: Timestamp::UNIX_EPOCH, is_error: false, text: "two".into() });
    reader.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"two\n");
    containers.logs().remove("u");
    gone.store(true, std::sync::atomic::Ordering::SeqCst);
    writing.await.unwrap().unwrap();
    assert_eq!(reader.read(&mut text).await.unwrap(), 0);
}

#[tokio::test]
async fn lg_7_a_client_that_leaves_ends_the_log() {
    let containers = appended(&["one"]);
    let pod = pod(json!({}));
    let found = state::instance(&pod, "c", false).unwrap();
    let (reader, writer) = tokio::io::duplex(2);
    drop(reader);
    let current: CurrentPod = Arc::new(|| None);
    let wanted = LogWanted { follow: true, ..LogWanted::default() };
    assert!(containers.write_log(&pod, "c", found, wanted, current, writer).await.is_err());
}
