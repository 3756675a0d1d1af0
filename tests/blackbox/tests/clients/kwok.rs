//! KWOK's published stages and definitions, from its Go module, and what is not simulated of them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use blackbox::{Server, tools};

/// Reads published files below `kustomize`, as one file of documents.
fn published(files: &[&str]) -> String {
    let folder = tools::installed("stages/kwok");
    let read = |file: &&str| fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    files.iter().map(|file| format!("---\n{}\n", read(file))).collect()
}

/// A server with these stages. The folder of the file lives as long as the result.
fn server_with(text: &str) -> (Server, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().expect("the temporary folder can be written");
    let file = folder.path().join("stages.yaml");
    fs::write(&file, text).expect("the temporary folder can be written");
    let path = file.to_str().expect("a plain path").to_owned();
    (Server::with_controllers(&["--memory", "--nodes", "1", "--stages", &path]), folder)
}

fn pod(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{metadata}}}\nspec: {{containers: [{{name: c, image: i}}]{spec}}}\n"
    )
}

fn wait(server: &Server, what: &str, condition: &str) {
    server.kubectl(&format!("wait {what} --for={condition} --timeout=120s")).ok();
}

#[test]
fn kw_6_the_published_fast_stages_run() {
    let fast = ["stage/pod/fast/pod-ready.yaml", "stage/pod/fast/pod-complete.yaml", "stage/pod/fast/pod-delete.yaml"];
    let nodes = ["stage/node/fast/node-initialize.yaml", "stage/node/heartbeat/node-heartbeat.yaml"];
    let (server, _folder) = server_with(&published(&[&fast[..], &nodes[..]].concat()));
    server.kubectl_with("create -f -", &pod("p", "", ", initContainers: [{name: i, image: j}]")).ok();
    wait(&server, "pod/p", "condition=Ready");
    let address = server.kubectl("get pod p -o jsonpath={.status.podIP}").ok();
    assert!(address.starts_with("10.128."), "{address}");
    server.kubectl("create job j --image=i").ok();
    wait(&server, "job/j", "condition=Complete");
    server.kubectl("delete pod p --timeout=60s").ok();
    wait(&server, "node/node-1", "condition=Ready");
}

#[test]
fn kw_6_the_published_general_and_chaos_stages_run() {
    let general = ["create", "init-container-running", "init-container-completed", "ready", "complete", "delete"];
    let general: Vec<String> = general.iter().map(|name| format!("stage/pod/general/pod-{name}.yaml")).collect();
    let mut files: Vec<&str> = general.iter().map(String::as_str).collect();
    files.extend(["stage/pod/chaos/pod-container-running-failed.yaml", "stage/node/chaos/node-not-ready.yaml"]);
    files.push("stage/node/fast/node-initialize.yaml");
    let (server, _folder) = server_with(&published(&files));
    server.kubectl_with("create -f -", &pod("p", "", ", initContainers: [{name: i, image: j}]")).ok();
    wait(&server, "pod/p", "condition=Ready");
    let events = server.kubectl("events --for pod/p").ok();
    assert!(events.contains("Created container"), "{events}");
    let label = ", labels: {pod-container-running-failed.stage.kwok.x-k8s.io: 'true'}, \
         annotations: {pod-container-running-failed.stage.kwok.x-k8s.io/reason: Broken, \
         pod-container-running-failed.stage.kwok.x-k8s.io/exit-code: '7'}";
    server.kubectl_with("create -f -", &pod("bad", label, "")).ok();
    wait(&server, "pod/bad", "jsonpath={.status.phase}=Failed");
    let ended = server.kubectl("get pod bad -o jsonpath={.status.containerStatuses[0].state.terminated}").ok();
    assert!(ended.contains("Broken") && ended.contains("\"exitCode\":7"), "{ended}");
    server.kubectl("delete pod p bad --timeout=120s").ok();
}

#[test]
fn kw_6_stages_are_custom_resources_too() {
    let server = Server::with_controllers(&["--memory", "--nodes", "1"]);
    let folder: PathBuf = tools::installed("stages/kwok/crd/bases");
    server.kubectl(&format!("create -f {}", folder.display())).ok();
    wait(&server, "crd/stages.kwok.x-k8s.io", "condition=Established");
    let stage = "apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: done}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: NotIn, values: [Succeeded]}
  next:
    statusTemplate: |
      phase: Succeeded
      message: {{ .metadata.name | Quote }}
";
    server.kubectl_with("create -f -", stage).ok();
    server.kubectl_with("create -f -", &pod("p", "", "")).ok();
    wait(&server, "pod/p", "jsonpath={.status.message}=p");
}

/// A file may have rules about containers and usage without any stage: pods then behave as they do without a file.
#[test]
fn kw_4_rules_of_a_file_alone_act() {
    let log = tempfile::NamedTempFile::new().expect("the temporary folder can be written");
    fs::write(log.path(), "2026-01-01T00:00:00Z stdout F said by the file\n").expect("the file can be written");
    let rules = format!(
        "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: ClusterLogs\nmetadata: {{name: l}}\nspec:\n  logs: [{{containers: [c], logsFile: {}}}]\n---\n\
         apiVersion: kwok.x-k8s.io/v1alpha1\nkind: ClusterResourceUsage\nmetadata: {{name: u}}\nspec:\n  usages: [{{usage: {{cpu: {{value: 123m}}, memory: {{value: 7Mi}}}}}}]\n",
        log.path().display()
    );
    let (server, _folder) = server_with(&rules);
    server.kubectl_with("create -f -", &pod("p", "", "")).ok();
    wait(&server, "pod/p", "condition=Ready");
    assert_eq!(server.kubectl("logs p").ok().trim(), "said by the file");
    let usage = server.kubectl("top pod p --no-headers").ok();
    assert_eq!(usage.split_whitespace().collect::<Vec<_>>(), ["p", "123m", "7Mi"], "{usage}");
}

#[test]
fn kw_5_published_files_that_are_not_simulated_are_refused_by_name() {
    let folder = tempfile::TempDir::new().expect("the temporary folder can be written");
    let file = folder.path().join("stages.yaml");
    fs::write(&file, published(&["stage/volume/fast/pv-bind.yaml"])).expect("the temporary folder can be written");
    let output = Command::new(tools::dogwatch())
        .args(["up", "--memory", "--listen", "127.0.0.1:0", "--stages"])
        .arg(&file)
        .output()
        .expect("the program starts");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("Stage \"pv-bind\": it is about PersistentVolume of v1"), "{text}");
}

/// What `helm test` does: it creates the pods of a chart that have the hook, and waits until each has ended.
#[test]
fn cmd_13_the_pod_of_a_chart_test_succeeds() {
    let server = Server::with_controllers(&["--memory"]);
    let test = |name: &str, command: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{helm.sh/hook: test}}}}\nspec: \
             {{restartPolicy: Never, containers: [{{name: wget, image: busybox, command: {command}}}]}}\n"
        )
    };
    server.kubectl_with("create -f -", &test("good", "[wget], args: ['web:80']")).ok();
    server.kubectl_with("create -f -", &test("bad", "[sh, -c, 'echo no; exit 1']")).ok();
    wait(&server, "pod/good", "jsonpath={.status.phase}=Succeeded");
    wait(&server, "pod/bad", "jsonpath={.status.phase}=Failed");
    assert_eq!(server.kubectl("logs bad").ok(), "no\n");
}
