//! The lab over real connections.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;

use crate::world::{PATIENCE, fault, fault_resource, map};

/// A running program, which ends with the test.
pub(crate) struct Program(Child);

impl Program {
    /// Stops the program as a user does; returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) async fn up(dir: &Path, more: &[&str]) -> (Program, Client) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
        .args(["up", "--memory", "--no-controllers", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let program = Program(child);
    assert!(lines.map_while(Result::ok).any(|line| line.starts_with("ready")), "the server is ready");
    let kubeconfig = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    (program, Client::try_from(config).unwrap())
}

#[tokio::test]
async fn lab_2_without_the_flag_the_group_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let (_program, client) = up(dir.path(), &[]).await;
    let groups = client.list_api_groups().await.unwrap();
    assert!(groups.groups.iter().all(|group| group.name != "lab.dogwatch.dev"));
    let faults: Api<kube::api::DynamicObject> = Api::all_with(client, &fault_resource());
    assert!(matches!(faults.list(&Default::default()).await, Err(kube::Error::Api(status)) if status.code == 404));
}

#[tokio::test]
async fn flt_3_flt_4_a_connection_is_closed_instead_of_an_answer_and_in_the_middle_of_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let (_program, client) = up(dir.path(), &["--lab"]).await;
    let faults: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &fault_resource());
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let spec = json!({
        "match": {"verbs": ["create"], "resources": ["configmaps"]}, "when": {"times": 1}, "effect": {"loseAnswer": {}},
    });
    faults.create(&PostParams::default(), &fault("lost", spec)).await.unwrap();
    let made = maps.create(&PostParams::default(), &map("a")).await;
    assert!(matches!(made, Err(kube::Error::HyperError(_) | kube::Error::Service(_))), "{made:?}");
    let stored = maps.get("a").await.unwrap();

    let revision = stored.metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &revision).await.unwrap().boxed();
    let spec = json!({
        "match": {"verbs": ["watch"], "resources": ["configmaps"]},
        "when": {"skip": 1, "times": 1},
        "effect": {"cut": {"abruptly": true}},
    });
    faults.create(&PostParams::default(), &fault("broken", spec)).await.unwrap();
    for name in ["b", "c"] {
        maps.create(&PostParams::default(), &map(name)).await.unwrap();
    }
    let mut next = async || tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes");
    assert!(matches!(next().await, Some(Ok(kube::api::WatchEvent::Added(_)))));
    // kube-rs takes a connection that ends too early for the end of the stream.
    assert!(!matches!(next().await, Some(Ok(_))), "the second event breaks off");
}

#[tokio::test]
async fn wld_1_wld_10_a_world_has_a_whole_kubeconfig_and_can_be_compared_with_main() {
    let dir = tempfile::tempdir().unwrap();
    let (_program, client) = up(dir.path(), &["--lab"]).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &map("shared")).await.unwrap();
    let resource = crate::worlds::resource("World", "worlds");
    let worlds: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut wanted = kube::api::DynamicObject::new("a", &resource);
    wanted.data = json!({"spec": {"from": {"world": "main"}}});
    let made = worlds.create(&PostParams::default(), &wanted).await.unwrap();
    let url = made.data["status"]["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with("https://127.0.0.1:") && url.ends_with("/worlds/a"), "{url}");

    let kubeconfig = Kubeconfig::from_yaml(made.data["status"]["kubeconfig"].as_str().unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let mut elsewhere = config.clone();
    elsewhere.cluster_url = url.strip_suffix("/worlds/a").unwrap().parse().unwrap();
    let inside: Api<ConfigMap> = Api::namespaced(Client::try_from(config).unwrap(), "default");
    let seen = inside.get("shared").await.unwrap().metadata.resource_version.unwrap();
    let mut events = inside.watch(&WatchParams::default(), &seen).await.unwrap().boxed();
    inside.create(&PostParams::default(), &map("own")).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes");
    assert!(matches!(event, Some(Ok(kube::api::WatchEvent::Added(_)))), "{event:?}");
    let outside: Api<ConfigMap> = Api::namespaced(Client::try_from(elsewhere).unwrap(), "default");
    let refused = outside.get("shared").await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 401), "its token is of no use in main");

    let compare = |before: &str, after: &str| {
        let kubeconfig = dir.path().join("kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
        command.args(["lab", "diff", before, after, "--kubeconfig"]).arg(kubeconfig).output().unwrap()
    };
    let differs = compare("main", "a");
    let text = String::from_utf8_lossy(&differs.stdout).into_owned();
    assert_eq!((differs.status.code(), text.as_str()), (Some(1), "+ configmap/own in default\n"));
    let equal = compare(&format!("main@{seen}"), &format!("a@{seen}"));
    assert_eq!((equal.status.code(), equal.stdout.len()), (Some(0), 0), "{}", String::from_utf8_lossy(&equal.stderr));
    assert_eq!(compare("main@x", "a").status.code(), Some(2));

    worlds.delete("a", &Default::default()).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, events.next()).await.expect("the watch ends");
    assert!(ended.is_none(), "{ended:?}");
}
