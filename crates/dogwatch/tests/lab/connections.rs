//! Connections that a fault refuses or cuts, over real TLS.

use std::path::Path;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::wire::up;
use crate::world::{PATIENCE, code, fault, fault_resource, map};

/// A client with a connection of its own, which asks for this server name in its handshake.
async fn client(dir: &Path, server_name: Option<&str>) -> Client {
    let kubeconfig = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.tls_server_name = server_name.map(str::to_owned);
    Client::try_from(config).unwrap()
}

/// Whether a client with a new connection is served.
async fn is_served(dir: &Path, server_name: Option<&str>) -> bool {
    let client = client(dir, server_name).await;
    match client.apiserver_version().await {
        Ok(_) => true,
        Err(kube::Error::Service(_) | kube::Error::HyperError(_)) => false,
        Err(other) => panic!("{other:?}"),
    }
}

fn faults(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &fault_resource())
}

async fn refuse(client: &Client, name: &str, spec: Value) -> kube::Result<DynamicObject> {
    faults(client).create(&PostParams::default(), &fault(name, spec)).await
}

#[tokio::test]
async fn flt_12_new_connections_of_a_server_name_are_refused_and_open_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (_program, connected) = up(dir.path(), &["--lab"]).await;
    assert!(is_served(dir.path(), Some("kubernetes")).await);
    refuse(&connected, "by-name", json!({"effect": {"refuseConnections": {"serverNames": ["kube*"]}}})).await.unwrap();
    assert!(!is_served(dir.path(), Some("kubernetes")).await);
    assert!(is_served(dir.path(), None).await, "a client without a server name is not meant");
    let status = faults(&connected).get("by-name").await.unwrap().data["status"].clone();
    let last = &status["lastHit"];
    assert_eq!((&last["serverName"], &last["source"]), (&json!("kubernetes"), &json!("127.0.0.1")), "{status}");
    faults(&connected).delete("by-name", &Default::default()).await.unwrap();
    assert!(is_served(dir.path(), Some("kubernetes")).await, "service is normal at once");

    let once = json!({"effect": {"refuseConnections": {}}, "when": {"times": 1}});
    refuse(&connected, "once", once).await.unwrap();
    assert!(!is_served(dir.path(), None).await);
    assert!(is_served(dir.path(), None).await);
}

#[tokio::test]
async fn flt_12_lab_4_open_connections_are_cut_and_one_can_always_get_out() {
    let dir = tempfile::tempdir().unwrap();
    let (_program, connected) = up(dir.path(), &["--lab"]).await;
    let maps: Api<ConfigMap> = Api::namespaced(connected.clone(), "default");
    let revision = maps.create(&PostParams::default(), &map("a")).await.unwrap().metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &revision).await.unwrap().boxed();
    let out = client(dir.path(), Some("lab.dogwatch.dev")).await;

    let all = json!(["0.0.0.0/0", "::/0"]);
    refuse(&out, "all", json!({"effect": {"refuseConnections": {"sources": all}}})).await.unwrap();
    assert!(!is_served(dir.path(), None).await);
    assert!(is_served(dir.path(), Some("lab.dogwatch.dev")).await);
    let through_out: Api<ConfigMap> = Api::namespaced(out.clone(), "default");
    through_out.create(&PostParams::default(), &map("b")).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("the watch is open");
    assert!(matches!(event, Some(Ok(WatchEvent::Added(_)))), "{event:?}");

    let cut = json!({"effect": {"refuseConnections": {"sources": all, "cutExisting": true}}});
    refuse(&out, "cut", cut).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, events.next()).await.expect("the watch ends");
    assert!(!matches!(ended, Some(Ok(_))), "{ended:?}");
    assert!(maps.get("a").await.is_err(), "its client has no connection and gets none");
    for name in ["all", "cut"] {
        faults(&out).delete(name, &Default::default()).await.unwrap();
    }
    assert!(is_served(dir.path(), None).await);
    maps.get("a").await.unwrap();
}

#[tokio::test]
async fn flt_12_lab_5_a_fault_without_bounds_or_with_parts_of_requests_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_program, client) = up(dir.path(), &["--lab"]).await;
    for (spec, field) in [
        (json!({"effect": {"refuseConnections": {}}}), "spec.effect.refuseConnections"),
        (json!({"effect": {"refuseConnections": {"sources": ["everyone"]}}}), "spec.effect.refuseConnections.sources"),
        (json!({"match": {"verbs": ["get"]}, "effect": {"refuseConnections": {"sources": ["::1"]}}}), "spec.match"),
    ] {
        let refused = refuse(&client, "wrong", spec).await;
        let Err(kube::Error::Api(status)) = &refused else { panic!("{refused:?}") };
        assert!(status.message.contains(&format!("{field}:")), "{}", status.message);
        assert_eq!(code(refused), 422);
    }
    refuse(&client, "right", json!({"match": {}, "effect": {"refuseConnections": {"sources": ["::1"]}}}))
        .await
        .unwrap();
}
