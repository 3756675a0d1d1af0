//! A command whose server is recorded, and a server that shows the recording again.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, VersionMatch, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;

use crate::world::{PATIENCE, code, map};

const PROGRAM: &str = env!("CARGO_BIN_EXE_dogwatch");

/// Makes a config map, changes it after a second, and makes another.
const SCRIPT: &str = r#"
set -e
test "$USE_EXISTING_CLUSTER" = true
test -x "$KUBEBUILDER_ASSETS/kube-apiserver"
map() { printf '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"x":"%s"}}' "$1" "$2" > "$0.json"; "$DOGWATCH" apply -f "$0.json"; }
map a 1
sleep 1
map a 2
map b 1
echo written
exit 7
"#;

/// A recording of the script.
fn record(dir: &Path) -> (PathBuf, Output) {
    let (script, file) = (dir.join("script.sh"), dir.join("run.recording"));
    std::fs::write(&script, SCRIPT).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "record", "--no-controllers"]).arg(&file).args(["--", "bash"]).arg(script);
    let output = command.env("DOGWATCH", PROGRAM).output().unwrap();
    (file, output)
}

struct Replayed {
    child: Child,
    client: Client,
}

impl Drop for Replayed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves a recording until the test ends; returns when it plays.
async fn replay(dir: &Path, file: &Path, words: &[&str]) -> Replayed {
    let kubeconfig = dir.join("replay.kubeconfig");
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "replay"]).arg(file).arg("--kubeconfig").arg(&kubeconfig).args(words);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("playing")), "the server is ready");
    // What it says later has a reader for as long as it runs.
    std::thread::spawn(move || lines.for_each(drop));
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Replayed { child, client: Client::try_from(config).unwrap() }
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

/// Waits until the config map `b` is there: the last that was recorded.
async fn wait_for_the_end(client: &Client) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while maps(client).get_opt("b").await.unwrap().is_none() {
        assert!(tokio::time::Instant::now() < deadline, "everything is played");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn see_5_a_command_is_recorded_and_every_revision_can_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (file, output) = record(dir.path());
    assert_eq!(output.status.code(), Some(7), "the exit code of the command: {output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("written\n"), "{output:?}");

    let replayed = replay(dir.path(), &file, &["--speed", "0"]).await;
    let client = &replayed.client;
    wait_for_the_end(client).await;
    let now = maps(client).get("a").await.unwrap();
    assert_eq!(now.data.as_ref().unwrap()["x"], "2");
    let last = now.metadata.resource_version.unwrap();
    let before: u64 = last.parse::<u64>().unwrap() - 1;
    let exactly = ListParams::default().at(&before.to_string()).matching(VersionMatch::Exact);
    let past = maps(client).list(&exactly).await.unwrap();
    let texts: Vec<&str> =
        past.items.iter().filter_map(|map| map.data.as_ref()?.get("x").map(String::as_str)).collect();
    assert_eq!(texts, ["1"], "the state of revision {before}");

    let refused = maps(client).create(&PostParams::default(), &map("c")).await;
    assert_eq!(code(refused), 403, "a recording cannot be changed");

    let kubeconfig = dir.path().join("replay.kubeconfig");
    let timeline = Command::new(PROGRAM).args(["lab", "timeline", "cm/a", "--kubeconfig"]).arg(&kubeconfig).output();
    let timeline = String::from_utf8(timeline.unwrap().stdout).unwrap();
    let lines: Vec<&str> = timeline.lines().collect();
    assert_eq!(lines.len(), 2, "{timeline}");
    assert!(lines[0].contains("ADDED ConfigMap/a  by dogwatch") && lines[1].contains("~data.x"), "{timeline}");
    let request = "/apis/lab.dogwatch.dev/v1/requests?fieldSelector=verb%3Dpatch,name%3Da";
    let requests: Value = client.request(Request::get(request).body(Vec::new()).unwrap()).await.unwrap();
    let recorded = requests["items"].as_array().unwrap();
    assert_eq!(recorded.len(), 2, "the requests of the command: {requests}");
    assert_eq!(recorded[1]["status"]["revision"].to_string(), last);
}

#[tokio::test]
async fn see_5_watches_see_the_changes_again_at_their_pace() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = record(dir.path());
    let replayed = replay(dir.path(), &file, &["--speed", "0.5"]).await;
    let events = maps(&replayed.client).watch(&WatchParams::default().fields("metadata.namespace=default"), "0").await;
    let mut events = events.unwrap().boxed();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes");
        match event {
            Some(Ok(WatchEvent::Added(map) | WatchEvent::Modified(map))) => {
                let is_own = map.data.as_ref().is_some_and(|data| data.contains_key("x"));
                seen.extend(is_own.then(|| (map.metadata.name.unwrap(), tokio::time::Instant::now())));
            }
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "a", "b"]);
    let pause = seen[1].1 - seen[0].1;
    assert!(pause > Duration::from_millis(1500), "a second at half the speed: {pause:?}");
}

#[test]
fn see_5_a_bad_file_is_refused_with_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notes.txt");
    std::fs::write(&file, "hello").unwrap();
    let output = Command::new(PROGRAM).args(["lab", "replay"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, format!("error: {} cannot be replayed: it is not a recording\n", file.display()));
    let output =
        Command::new(PROGRAM).args(["lab", "record"]).arg(dir.path().join("no/run")).args(["--", "true"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2), "a file that cannot be written");
}
