//! kubectl with controllers and nodes: everyday commands for deployments, jobs, nodes and namespaces.
//!
//! Timeouts are generous: they end a hanging test and do not measure speed.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use blackbox::process::DEADLINE;
use blackbox::{Process, Server};

use super::cells;

fn server() -> Server {
    Server::with_controllers(&["--memory"])
}

/// Creates `deployment.apps/web` and waits for its running pods.
fn with_web(replicas: u32) -> Server {
    let server = server();
    server.kubectl(&format!("create deployment web --image=nginx:1 --replicas={replicas}")).ok();
    rolled_out(&server);
    server
}

/// A deployment, with additional metadata and spec of its pods.
fn manifest(name: &str, replicas: u32, metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata:
      labels: {{app: {name}}}
      {metadata}
    spec:
      containers: [{{name: app, image: nginx}}]
      {spec}
"
    )
}

fn rolled_out(server: &Server) -> String {
    server.kubectl("rollout status deployment/web --timeout=60s").ok()
}

/// Waits until the output of a command satisfies `wanted`, and returns the output.
fn until(server: &Server, line: &str, what: &str, wanted: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + DEADLINE;
    loop {
        let output = server.kubectl(line);
        let text = format!("{}{}", output.stdout, output.stderr);
        if wanted(&text) {
            return text;
        }
        assert!(Instant::now() < end, "{line}: not {what}:\n{text}");
        sleep(Duration::from_millis(50));
    }
}

fn field(server: &Server, object: &str, path: &str) -> String {
    server.kubectl(&format!("get {object} -o 'jsonpath={{{path}}}'")).ok()
}

/// The pods of web: name, ready, status.
fn pods(server: &Server) -> Vec<(String, String, String)> {
    let table = server.kubectl("get pods -l app=web --no-headers").ok();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        (cells[0].to_owned(), cells[1].to_owned(), cells[2].to_owned())
    };
    table.lines().map(row).collect()
}

fn names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn kubectl_13_1_2_create_deployment_ends_in_running_pods() {
    let server = server();
    // This pod is never scheduled. Once the watch has shown it, the watch shows all later pods from their creation on.
    until(&server, "get serviceaccounts -o name", "an account for pods", |text| text.contains("default"));
    let waits = r#"{"spec": {"schedulerName": "nobody"}}"#;
    server.kubectl(&format!("run waits --image=nginx --overrides='{waits}'")).ok();
    let mut watch = Process::start(server.kubectl_command("get pods -w --output-watch-events"));
    watch.line_where("the pod that was there", |line| line.contains("waits"));
    server.kubectl("create deployment web --image=nginx --replicas=3").ok();
    let said = rolled_out(&server);
    assert!(said.ends_with("deployment \"web\" successfully rolled out\n"), "{said}");
    let running = pods(&server);
    assert_eq!(running.len(), 3);
    assert!(running.iter().all(|(_, ready, status)| ready == "1/1" && status == "Running"), "{running:?}");
    // The phases of each pod in the watch.
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while seen.len() < 3 || seen.values().any(|lines| lines.last().is_none_or(|last| !last.ends_with("Running"))) {
        let line = watch.line_where("an event of a pod", |line| line.contains(" web-"));
        let cells: Vec<&str> = line.split_whitespace().collect();
        seen.entry(cells[1].to_owned()).or_default().push(format!("{} {} {}", cells[0], cells[2], cells[3]));
    }
    let expected =
        ["ADDED 0/1 Pending", "MODIFIED 0/1 Pending", "MODIFIED 0/1 ContainerCreating", "MODIFIED 1/1 Running"];
    for (name, lines) in &seen {
        assert_eq!(lines, &expected, "{name}");
    }
    let name = &running[0].0;
    server.kubectl("wait --for=condition=Available deployment/web --timeout=60s").ok();
    // The same for its deletion.
    server.kubectl(&format!("delete pod {name}")).ok();
    let mut ends = Vec::new();
    while ends.last().is_none_or(|last: &String| last != "DELETED") {
        let line = watch.line_where("an event of the pod", |line| line.contains(name.as_str()));
        ends.push(line.split_whitespace().next().unwrap_or_default().to_owned());
    }
    assert!(ends.len() >= 3 && ends[..ends.len() - 1].iter().all(|kind| kind == "MODIFIED"), "{ends:?}");
    rolled_out(&server);
    assert_eq!(pods(&server).len(), 3, "another one took its place");
}

#[test]
fn kubectl_13_3_apply_twice_changes_nothing() {
    let server = with_web(1);
    let manifest = server.kubectl("create deployment web --image=nginx:1 --dry-run=client -o yaml").ok();
    server.kubectl_with("apply -f -", &manifest).ok();
    rolled_out(&server);
    let version = || field(&server, "deployment/web", ".metadata.resourceVersion");
    // Waits until the controllers have processed the annotation of apply.
    until(
        &server,
        "get deployment web -o 'jsonpath={.metadata.generation} {.status.observedGeneration}'",
        "observed",
        |text| {
            let numbers: Vec<&str> = text.split_whitespace().collect();
            numbers.len() == 2 && numbers[0] == numbers[1]
        },
    );
    let before = version();
    assert_eq!(server.kubectl_with("apply -f -", &manifest).ok(), "deployment.apps/web unchanged\n");
    assert_eq!(version(), before);
}

#[test]
fn kubectl_13_4_scale_set_image_undo_restart_and_history() {
    let server = with_web(2);
    assert_eq!(server.kubectl("scale deployment web --replicas=3").ok(), "deployment.apps/web scaled\n");
    rolled_out(&server);
    assert_eq!(pods(&server).len(), 3);
    server.kubectl("set image deployment/web nginx=nginx:2").ok();
    rolled_out(&server);
    let images = || field(&server, "deployment/web", ".spec.template.spec.containers[*].image");
    let revisions = || {
        let history = server.kubectl("rollout history deployment/web").ok();
        let numbers = history.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok());
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(revisions(), [1, 2]);
    let second = server.kubectl("rollout history deployment/web --revision=2").ok();
    assert!(second.contains("nginx:2"), "{second}");
    assert_eq!(server.kubectl("rollout undo deployment/web").ok(), "deployment.apps/web rolled back\n");
    rolled_out(&server);
    assert_eq!((images().as_str(), revisions()), ("nginx:1", vec![2, 3]));
    let sets = server.kubectl("get replicasets -o name").ok();
    assert_eq!(sets.lines().count(), 2, "the old one was taken again: {sets}");
    let before = names(&server.kubectl("get pods -l app=web -o name").ok());
    assert_eq!(server.kubectl("rollout restart deployment/web").ok(), "deployment.apps/web restarted\n");
    rolled_out(&server);
    let all_new = |text: &str| names(text).len() == 3 && names(text).iter().all(|name| !before.contains(name));
    until(&server, "get pods -l app=web --field-selector=status.phase=Running -o name", "all new", all_new);
    assert_eq!(revisions(), [2, 3, 4]);
    let undone = server.kubectl("rollout undo deployment/web --to-revision=2").ok();
    assert_eq!(undone, "deployment.apps/web rolled back\n");
    rolled_out(&server);
    assert_eq!((images().as_str(), revisions()), ("nginx:2", vec![3, 4, 5]));
}

#[test]
fn kubectl_13_4_a_paused_rollout_waits_until_it_is_resumed() {
    let server = with_web(1);
    server.kubectl("rollout pause deployment/web").ok();
    server.kubectl("set image deployment/web nginx=nginx:2").ok();
    let seen = "get deployment web -o 'jsonpath={.metadata.generation} {.status.observedGeneration}'";
    until(&server, seen, "seen by the controller", |text| {
        let numbers: Vec<&str> = text.split_whitespace().collect();
        numbers.len() == 2 && numbers[0] == numbers[1]
    });
    assert_eq!(server.kubectl("get replicasets -o name").ok().lines().count(), 1, "nothing is rolled out");
    server.kubectl("rollout resume deployment/web").ok();
    rolled_out(&server);
    assert_eq!(server.kubectl("get replicasets -o name").ok().lines().count(), 2);
}

#[test]
fn kubectl_13_5_delete_with_each_cascade() {
    let server = with_web(2);
    server.kubectl("delete deployment web --cascade=orphan").ok();
    server.kubectl("get deployment web").refused();
    let sets = server.kubectl("get replicasets -o name").ok();
    assert_eq!((sets.lines().count(), pods(&server).len()), (1, 2), "all but the deployment stays");
    assert_eq!(field(&server, "replicasets", ".items[*].metadata.ownerReferences"), "");
    // A new one with the same selector and template adopts them: no pod changes.
    let before = names(&server.kubectl("get pods -l app=web -o name").ok());
    server.kubectl("create deployment web --image=nginx:1 --replicas=2").ok();
    rolled_out(&server);
    assert_eq!(server.kubectl("get replicasets -o name").ok(), sets);
    assert_eq!(names(&server.kubectl("get pods -l app=web -o name").ok()), before);
    server.kubectl("delete deployment web --cascade=foreground").ok();
    assert_eq!(server.kubectl("get replicasets,pods -l app=web -o name").ok(), "", "it returns when all are gone");

    server.kubectl("create deployment web --image=nginx:1 --replicas=2").ok();
    rolled_out(&server);
    server.kubectl("delete deployment web").ok();
    server.kubectl("get deployment web").refused();
    until(&server, "get replicasets,pods -l app=web -o name", "all gone", str::is_empty);
}

#[test]
fn kubectl_13_5_delete_returns_before_the_pods_have_ended() {
    let server = server();
    // Pods that no node ever removes, so that waiting for them never ends.
    let deployment = manifest("web", 2, "annotations: {nodes.dogwatch/stop: never}", "");
    server.kubectl_with("create -f -", &deployment).ok();
    rolled_out(&server);
    assert_eq!(
        server.kubectl("delete deployment web --wait").ok(),
        "deployment.apps \"web\" deleted from default namespace\n"
    );
    server.kubectl("get deployment web").refused();
    let asked = "get pods -l app=web -o 'jsonpath={.items[*].metadata.deletionTimestamp}'";
    until(&server, asked, "asked to end", |text| text.split_whitespace().count() == 2);
    assert_eq!(pods(&server).len(), 2, "they finish later");
}

#[test]
fn kubectl_13_6_delete_of_a_pod_waits_until_it_is_gone_and_not_longer_than_its_grace() {
    let server = server();
    until(&server, "get serviceaccounts -o name", "an account for pods", |text| text.contains("default"));
    // Its grace period is an hour, and the request shortens it to three seconds.
    let slow = r#"{"metadata": {"annotations": {"nodes.dogwatch/stop-delay": "1h"}}, "spec": {"terminationGracePeriodSeconds": 3}}"#;
    server.kubectl(&format!("run slow --image=nginx --overrides='{slow}'")).ok();
    server.kubectl("wait --for=condition=Ready pod/slow --timeout=60s").ok();
    let asked = Instant::now();
    server.kubectl("delete pod slow").ok();
    // Times are whole seconds: of three at least two have passed.
    assert!(asked.elapsed() >= Duration::from_secs(2), "it blocks: {:?}", asked.elapsed());
    server.kubectl("get pod slow").refused();
}

#[test]
fn kubectl_13_7_wait_ends_with_the_condition_and_with_the_object() {
    let server = server();
    server.kubectl("create deployment web --image=nginx --replicas=2").ok();
    let available = server.kubectl("wait --for=condition=Available deployment/web --timeout=60s").ok();
    assert_eq!(available, "deployment.apps/web condition met\n");
    let (name, ..) = pods(&server).remove(0);
    let mut waiting = Process::start(server.kubectl_command(&format!("wait --for=delete pod/{name} --timeout=60s")));
    server.kubectl(&format!("delete pod {name} --wait=false")).ok();
    waiting.line_where("the end of the pod", |line| line == format!("pod/{name} condition met"));
    server.kubectl(&format!("get pod {name}")).refused();
    // Waiting for a deleted object succeeds at once.
    server.kubectl("delete deployment web").ok();
    server.kubectl("wait --for=delete deployment/web --timeout=60s").ok();
}

#[test]
fn kubectl_13_6_a_deleted_pod_and_a_deleted_replica_set_are_replaced() {
    let server = with_web(2);
    let (name, ..) = pods(&server).remove(0);
    server.kubectl(&format!("delete pod {name}")).ok();
    server.kubectl(&format!("get pod {name}")).refused();
    rolled_out(&server);
    let set = server.kubectl("get replicasets -o name").ok().trim().to_owned();
    let uid = field(&server, &set, ".metadata.uid");
    server.kubectl(&format!("delete {set}")).ok();
    until(&server, &format!("get {set} -o 'jsonpath={{.metadata.uid}}'"), "made again", |now| {
        !now.is_empty() && now != uid && !now.contains("NotFound")
    });
    rolled_out(&server);
}

#[test]
fn kubectl_13_8_cordon_and_drain_move_pods_elsewhere() {
    let server = with_web(3);
    let node = field(&server, "pods", ".items[0].spec.nodeName");
    assert_eq!(server.kubectl(&format!("cordon {node}")).ok(), format!("node/{node} cordoned\n"));
    let drained = server.kubectl(&format!("drain {node} --ignore-daemonsets --timeout=60s")).ok();
    assert!(drained.ends_with(&format!("node/{node} drained\n")), "{drained}");
    let left = format!("get pods -A --field-selector=spec.nodeName={node} -o name");
    assert_eq!(server.kubectl(&left).ok(), "");
    rolled_out(&server);
    let nodes = field(&server, "pods", ".items[*].spec.nodeName");
    assert!(!nodes.split_whitespace().any(|name| name == node), "{nodes}");
    server.kubectl(&format!("uncordon {node}")).ok();
    let ready = server.kubectl(&format!("get node {node} --no-headers")).ok();
    assert_eq!(ready.split_whitespace().nth(1), Some("Ready"), "{ready}");
}

/// A time of an object, in seconds.
fn second(text: &str) -> i64 {
    let time: jiff::Timestamp = text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"));
    time.as_second()
}

#[test]
fn kubectl_13_11_a_node_whose_agent_stops_is_noticed_and_its_pods_come_back_elsewhere() {
    let server = server();
    // Pods tolerate five minutes by default; these tolerate less.
    const HURRY: i64 = 5;
    let unreachable = "key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute";
    let hurried = format!("tolerations: [{{{unreachable}, tolerationSeconds: {HURRY}}}]");
    server.kubectl_with("create -f -", &manifest("web", 3, "", &hurried)).ok();
    server.kubectl_with("create -f -", &manifest("patient", 3, "", "")).ok();
    rolled_out(&server);
    server.kubectl("rollout status deployment/patient --timeout=60s").ok();
    let place = |app: &str| {
        let line = format!(
            "get pods -l app={app} -o 'jsonpath={{range .items[*]}}{{.metadata.name}} {{.spec.nodeName}}{{\"\\n\"}}{{end}}'"
        );
        let text = server.kubectl(&line).ok();
        let pair = |line: &str| line.split_once(' ').map(|(pod, node)| (pod.to_owned(), node.to_owned()));
        text.lines().filter_map(pair).collect::<BTreeMap<String, String>>()
    };
    // Spread over three nodes: each has one of each.
    let (webs, patients) = (place("web"), place("patient"));
    let node = webs.values().next().expect("a pod has a node").clone();
    let on = |pods: &BTreeMap<String, String>| {
        pods.iter().filter(|(_, at)| **at == node).map(|(pod, _)| pod.clone()).collect::<Vec<_>>()
    };
    let (victims, waiting) = (on(&webs), on(&patients));
    assert!(!waiting.is_empty(), "{patients:?}");

    server.kubectl(&format!("annotate node {node} nodes.dogwatch/heartbeat=stopped")).ok();
    // The client has its own timeout, longer than that of this suite for one command.
    let condition = format!("wait --for=condition=Ready=Unknown node/{node} --timeout=300s");
    let mut silence = Process::start(server.kubectl_command(&condition));
    silence.line_within(Duration::from_secs(300), "a node that is not ready", |line| line.contains("condition met"));
    let row = server.kubectl(&format!("get node {node} --no-headers")).ok();
    assert_eq!(row.split_whitespace().nth(1), Some("NotReady"), "{row}");
    let renewed =
        server.kubectl(&format!("get lease {node} -n kube-node-lease -o 'jsonpath={{.spec.renewTime}}'")).ok();
    let ready = "{.status.conditions[?(@.type==\"Ready\")].lastTransitionTime}";
    let unknown = server.kubectl(&format!("get node {node} -o 'jsonpath={ready}'")).ok();
    let silent = second(&unknown) - second(&renewed);
    assert!(silent >= 49, "after 50 s of silence, not {silent}");

    // Pods with a short toleration are evicted after it and replaced on another node.
    let taint = "{.spec.taints[?(@.effect==\"NoExecute\")].timeAdded}";
    let tainted =
        until(&server, &format!("get node {node} -o 'jsonpath={taint}'"), "to be emptied", |text| !text.is_empty());
    for victim in &victims {
        let deleted = format!("get pod {victim} -o 'jsonpath={{.metadata.deletionTimestamp}}'");
        let at = until(&server, &deleted, "evicted", |text| !text.is_empty());
        // The timestamp is the end of its grace period of 30 s.
        let after = second(&at) - 30 - second(&tainted);
        assert!(after >= HURRY - 1, "{victim} was evicted {after} s after the taint");
        let reason =
            format!("get pod {victim} -o 'jsonpath={{.status.conditions[?(@.type==\"DisruptionTarget\")].reason}}'");
        assert_eq!(server.kubectl(&reason).ok(), "DeletionByTaintManager");
    }
    rolled_out(&server);
    let mut elsewhere = place("web");
    elsewhere.retain(|pod, _| !victims.contains(pod));
    assert_eq!(elsewhere.len(), 3, "{elsewhere:?}");
    assert!(!elsewhere.values().any(|at| *at == node), "{elsewhere:?}");
    // The others have the default toleration of 300 s.
    for pod in &waiting {
        let said = "{.spec.tolerations[?(@.key==\"node.kubernetes.io/unreachable\")].tolerationSeconds} {.metadata.deletionTimestamp}";
        assert_eq!(server.kubectl(&format!("get pod {pod} -o 'jsonpath={said}'")).ok(), "300 ");
    }
    // With its agent the node is ready again, and removes its old pods.
    server.kubectl(&format!("annotate node {node} nodes.dogwatch/heartbeat-")).ok();
    server.kubectl(&format!("wait --for=condition=Ready node/{node} --timeout=55s")).ok();
    for victim in &victims {
        server.kubectl(&format!("wait --for=delete pod/{victim} --timeout=55s")).ok();
    }
}

#[test]
fn a_budget_slows_a_drain_but_does_not_break_it() {
    let server = with_web(3);
    server.kubectl("create poddisruptionbudget web --selector=app=web --min-available=2").ok();
    let allowed = "get pdb web -o 'jsonpath={.status.disruptionsAllowed}'";
    until(&server, allowed, "counted", |text| text == "1");
    let node = field(&server, "pods", ".items[0].spec.nodeName");
    server.kubectl(&format!("drain {node} --ignore-daemonsets --timeout=60s")).ok();
    rolled_out(&server);
    until(&server, allowed, "counted again", |text| text == "1");
}

#[test]
fn kubectl_13_9_describe_shows_events_in_order() {
    let server = with_web(1);
    let in_order = |text: &str, wanted: &[&str]| {
        let mut rest = text;
        wanted.iter().all(|word| {
            let found = rest.find(word);
            found.inspect(|at| rest = &rest[*at..]).is_some()
        })
    };
    until(&server, "describe deployment web", "its events", |text| {
        in_order(text, &["Available      True", "Events:", "ScalingReplicaSet", "Scaled up replica set web-"])
    });
    let (name, ..) = pods(&server).remove(0);
    let events = ["Events:", "Scheduled", "Successfully assigned default/", "Pulled", "Created", "Started"];
    until(&server, &format!("describe pod {name}"), "its events", |text| in_order(text, &events));
    until(&server, "describe replicaset", "its events", |text| {
        in_order(text, &["SuccessfulCreate", "Created pod: web-"])
    });
}

#[test]
fn kubectl_13_10_expose_and_the_endpoints_follow_the_pods() {
    let server = with_web(3);
    assert_eq!(server.kubectl("expose deployment web --port=80").ok(), "service/web exposed\n");
    let ready = "get endpointslices -l kubernetes.io/service-name=web -o 'jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].targetRef.name}'";
    let count = |text: &str| text.split_whitespace().count();
    let first = until(&server, ready, "three", |text| count(text) == 3);
    let endpoints = "get endpoints web -o 'jsonpath={.subsets[*].addresses[*].ip}'";
    until(&server, endpoints, "three", |text| text.matches("10.").count() == 3);
    // No node accepts pods: the replacement waits, and two are left.
    server.kubectl("cordon -l kubernetes.io/os=linux").ok();
    let gone = first.split_whitespace().next().unwrap_or_default().to_owned();
    server.kubectl(&format!("delete pod {gone}")).ok();
    let two = until(&server, ready, "two", |text| count(text) == 2);
    assert!(!two.contains(&gone) && two.split_whitespace().all(|name| first.contains(name)), "{two} of {first}");
    until(&server, endpoints, "two", |text| text.matches("10.").count() == 2);
    server.kubectl("uncordon -l kubernetes.io/os=linux").ok();
    let last = until(&server, ready, "three again", |text| count(text) == 3);
    assert_ne!(names(&first.replace(' ', "\n")), names(&last.replace(' ', "\n")));
    server.kubectl("delete service web").ok();
    until(&server, "get endpointslices -l kubernetes.io/service-name=web -o name", "gone", str::is_empty);
}

#[test]
fn autoscale_makes_an_autoscaler_that_says_what_it_cannot_do() {
    let server = with_web(1);
    let made = server.kubectl("autoscale deployment web --min=2 --max=4 --cpu=80%").ok();
    assert_eq!(made, "horizontalpodautoscaler.autoscaling/web autoscaled\n");
    until(&server, "get deployment web -o 'jsonpath={.spec.replicas}'", "within the bounds", |text| text == "2");
    rolled_out(&server);
    let row = server.kubectl("get hpa web --no-headers").ok();
    assert!(row.contains("<unknown>/80%") && row.contains("Deployment/web"), "{row}");
}

#[test]
fn run_and_delete_a_pod() {
    let server = server();
    assert_eq!(server.kubectl("run one --image=nginx --restart=Never").ok(), "pod/one created\n");
    server.kubectl("wait --for=condition=Ready pod/one --timeout=60s").ok();
    let volumes = field(&server, "pod/one", ".spec.volumes[*].name");
    assert!(volumes.starts_with("kube-api-access-"), "{volumes}");
    server.kubectl("delete pod one").ok();
    server.kubectl("get pod one").refused();
    // At once, without a grace period.
    server.kubectl("run two --image=nginx").ok();
    server.kubectl("wait --for=condition=Ready pod/two --timeout=60s").ok();
    server.kubectl("delete pod two --grace-period=0 --force").ok();
    server.kubectl("get pod two").refused();
}

#[test]
fn a_namespace_goes_with_all_that_is_in_it() {
    let server = server();
    server.kubectl("create namespace team").ok();
    server.kubectl("create deployment web --image=nginx --replicas=2 -n team").ok();
    server.kubectl("rollout status deployment/web -n team --timeout=60s").ok();
    server.kubectl("expose deployment web --port=80 -n team").ok();
    server.kubectl("create configmap settings --from-literal=a=b -n team").ok();
    assert_eq!(server.kubectl("delete namespace team --timeout=60s").ok(), "namespace \"team\" deleted\n");
    server.kubectl("get namespace team").refused();
    server.kubectl("create namespace team").ok();
    until(&server, "get configmaps,serviceaccounts -n team -o name", "furnished", |text| {
        text == "configmap/kube-root-ca.crt\nserviceaccount/default\n"
    });
    assert_eq!(server.kubectl("get all -n team -o name").ok(), "");
}

#[test]
fn a_job_runs_to_completion_and_is_cleaned_up() {
    let server = server();
    server.kubectl("create job once --image=busybox -- true").ok();
    server.kubectl("wait --for=condition=Complete job/once --timeout=60s").ok();
    let row = server.kubectl("get job once --no-headers").ok();
    assert!(row.contains("Complete") && row.contains("1/1"), "{row}");
    assert_eq!(field(&server, "pods", ".items[*].status.phase"), "Succeeded");
    server.kubectl("delete job once").ok();
    until(&server, "get pods -o name", "gone", str::is_empty);
    server.kubectl("create cronjob tick --image=busybox --schedule='0 0 1 1 *' -- true").ok();
    server.kubectl("create job now --from=cronjob/tick").ok();
    server.kubectl("wait --for=condition=Complete job/now --timeout=60s").ok();
}

#[test]
fn mx_2_top_shows_what_pods_and_nodes_use() {
    let server = Server::with_controllers(&["--memory", "--nodes", "1"]);
    let manifest = "apiVersion: v1
kind: Pod
metadata:
  name: busy
  labels: {app: busy}
  annotations: {nodes.dogwatch/cpu: 300m, nodes.dogwatch/memory.app: 64Mi}
spec: {containers: [{name: app, image: app}, {name: side, image: side}]}
";
    server.kubectl_with("create -f -", manifest).ok();
    server.kubectl("wait --for=condition=Ready pod/busy --timeout=60s").ok();
    let shown = server.kubectl("top pods -l app=busy").ok();
    assert_eq!(cells(shown.lines().nth(1).unwrap_or_default()), ["busy", "600m", "72Mi"], "{shown}");
    let shown = server.kubectl("top pod busy --containers --no-headers").ok();
    assert_eq!(cells(shown.lines().next().unwrap_or_default()), ["busy", "app", "300m", "64Mi"], "{shown}");
    let shown = server.kubectl("top nodes").ok();
    assert_eq!(cells(shown.lines().nth(1).unwrap_or_default()), ["node-1", "700m", "2%", "584Mi", "0%"], "{shown}");
    let table = server.kubectl("get pods.metrics.k8s.io busy --no-headers").ok();
    assert_eq!(cells(&table)[..3], ["busy", "600m", "72Mi"], "{table}");
    assert!(server.kubectl("explain podmetrics.containers.usage").ok().contains("Amounts by resource"));
}
