//! The audit log of the program and of the library.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use dogwatch::testing::{Entry, Server};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;

fn event(entry: &Entry) -> Value {
    match entry {
        Entry::Event(text) => serde_json::from_slice(text).unwrap(),
        other => panic!("{other:?} is not an event"),
    }
}

#[tokio::test]
async fn ba_7_a_test_reads_what_its_requests_did_between_its_marks() {
    let server = Server::start().await;
    let mut events = server.audit();
    let client = server.client_as("alice", &["system:masters"]);
    let mut map = ConfigMap { data: Some([("k".to_owned(), "v".to_owned())].into()), ..ConfigMap::default() };
    map.metadata.name = Some("a".to_owned());
    server.mark("maps");
    Api::<ConfigMap>::namespaced(client.clone(), "default").create(&PostParams::default(), &map).await.unwrap();
    server.mark("secrets");
    let mut secret = Secret { string_data: Some([("k".to_owned(), "v".to_owned())].into()), ..Secret::default() };
    secret.metadata.name = Some("s".to_owned());
    Api::<Secret>::namespaced(client, "default").create(&PostParams::default(), &secret).await.unwrap();
    let all = events.take();
    assert_eq!((&all[0], &all[2]), (&Entry::Mark("maps".to_owned()), &Entry::Mark("secrets".to_owned())));
    let (first, second) = (event(&all[1]), event(&all[3]));
    assert_eq!((&first["user"]["username"], &first["verb"]), (&"alice".into(), &"create".into()));
    assert_eq!(
        (&first["requestObject"]["data"]["k"], &first["responseObject"]["kind"]),
        (&"v".into(), &"ConfigMap".into())
    );
    assert_eq!((&second["level"], &second["objectRef"]["name"]), (&"Metadata".into(), &"s".into()));
    assert!(second.get("requestObject").is_none() && second.get("responseObject").is_none());
    server.stop().await;
    assert_eq!(events.next_entry().await, None, "the stream ends with the server");
}

fn dogwatch(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dogwatch")).args(arguments).output().unwrap()
}

/// Starts a server and waits until it is ready.
fn up(dir: &Path, more: &[&str]) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
        .args(["up", "--memory", "--no-controllers", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.starts_with("ready")), "the server is ready");
    child
}

#[test]
fn ba_7_the_program_writes_a_log_that_has_everything_after_it_has_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| dir.path().join(name).display().to_string();
    let (log, kubeconfig, objects) = (text("audit.log"), text("kubeconfig"), text("objects.yaml"));
    let mut server = up(dir.path(), &["--audit", &log, "--audit-log-mode", "batch"]);
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
    std::fs::write(&objects, yaml).unwrap();
    let applied = dogwatch(&["apply", "--kubeconfig", &kubeconfig, "-f", &objects]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let id = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    let log = std::fs::read_to_string(&log).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let patch = |name: &str| {
        let found = events.iter().find(|event| event["verb"] == "patch" && event["objectRef"]["name"] == name);
        found.unwrap_or_else(|| panic!("the patch of {name} is missing in\n{log}"))
    };
    assert_eq!(patch("a")["requestObject"]["kind"], "ConfigMap");
    assert_eq!(patch("s")["level"], "Metadata");
}

#[test]
fn aud_1_7_a_policy_that_cannot_be_used_is_one_sentence_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, data) = (dir.path().join("policy.yaml"), dir.path().join("data"));
    let (policy_text, data_text) = (policy.display().to_string(), data.display().to_string());
    for (content, why) in [
        (None, "No such file or directory"),
        (Some("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []"), "loaded illegal policy with 0 rules"),
        (Some("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]"), "rules[0].level: Unsupported value"),
        (Some("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: ["), "yaml"),
    ] {
        if let Some(content) = content {
            std::fs::write(&policy, content).unwrap();
        }
        let flags = [
            "up",
            "--memory",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &data_text,
            "--audit-policy-file",
            &policy_text,
        ];
        let output = dogwatch(&flags);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("error: ") && error.contains(&policy_text) && error.contains(why), "{error}");
        assert!(!data.exists(), "nothing is opened before the policy is read");
    }
}
