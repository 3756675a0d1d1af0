//! kubectl create, delete, label, annotate, patch, replace, scale: output, effects and refusals.

use blackbox::Server;

use super::{create_pods, pod, rows};

fn names(server: &Server) -> String {
    server.kubectl("get pods -o name").ok()
}

#[test]
fn create_from_a_file_and_from_stdin() {
    let server = Server::start();
    let file = server.folder().join("pods.yaml");
    std::fs::write(&file, format!("{}---\n{}", pod("one"), pod("two"))).expect("the folder can be written");
    assert_eq!(server.kubectl("create -f pods.yaml").ok(), "pod/one created\npod/two created\n");
    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"made-"},"spec":{"containers":[{"name":"app","image":"app"}]}}"#;
    let made = server.kubectl_with("create -f - -o name", json).ok();
    assert!(made.starts_with("pod/made-") && made.trim_end().len() == "pod/made-".len() + 5, "{made}");
    let dry = server.kubectl_with("create --dry-run=server -o name -f -", &pod("three")).ok();
    assert_eq!(dry, "pod/three\n");
    assert!(!names(&server).contains("three"), "a dry run leaves nothing");
}

/// One object of each of many kinds, with its required fields.
const MANY: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: team}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {colour: red}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {a: b}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: limits}, spec: {hard: {pods: "3"}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: app}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: app, image: app}]}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
"#;

#[test]
fn create_and_apply_a_list() {
    let server = Server::start();
    let list = "apiVersion: v1\nkind: List\nitems:\n\
                - {apiVersion: v1, kind: ConfigMap, metadata: {name: one}}\n\
                - {apiVersion: v1, kind: ConfigMap, metadata: {name: two}}\n";
    let created = server.kubectl_with("create -f -", list).ok();
    assert_eq!(created, "configmap/one created\nconfigmap/two created\n");
    server.kubectl_with("apply -f -", list).ok();
    let copy = server.kubectl("get configmaps -o yaml").ok();
    server.kubectl("delete configmaps --all").ok();
    server.kubectl_with("create -f -", &copy).ok();
    assert_eq!(server.kubectl("get configmaps -o name").ok(), "configmap/one\nconfigmap/two\n");
}

#[test]
fn create_objects_of_many_kinds() {
    let server = Server::start();
    let said = server.kubectl_with("create -f -", MANY).ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "namespace/team created",
            "configmap/settings created",
            "secret/key created",
            "serviceaccount/robot created",
            "service/web created",
            "resourcequota/limits created",
            "deployment.apps/web created",
            "job.batch/once created",
            "role.rbac.authorization.k8s.io/reader created",
        ]
    );
    assert_eq!(server.kubectl("get configmap settings -o 'jsonpath={.data.colour}'").ok(), "red");
    assert_eq!(server.kubectl("get secret key -o 'jsonpath={.data.a} {.type}'").ok(), "Yg== Opaque");
    let deployments = server.kubectl("get deployments").ok();
    assert_eq!(rows(&deployments)[0], ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]);
    assert_eq!(rows(&deployments)[1][..4], ["web", "0/2", "0", "0"]);
    let all = server.kubectl("get all -o name").ok();
    for name in ["service/web", "deployment.apps/web", "job.batch/once"] {
        assert!(all.lines().any(|line| line == name), "{name} is missing in\n{all}");
    }
}

#[test]
fn create_by_generators() {
    // These commands send protobuf; a file is sent as JSON.
    let server = Server::start();
    for (line, said) in [
        ("create namespace team", "namespace/team created\n"),
        ("create configmap settings --from-literal=colour=red", "configmap/settings created\n"),
        ("create secret generic key --from-literal=a=b", "secret/key created\n"),
        ("create serviceaccount robot", "serviceaccount/robot created\n"),
        ("create deployment web --image=app --replicas=2", "deployment.apps/web created\n"),
        ("create service clusterip web --tcp=80:8080", "service/web created\n"),
        ("create job once --image=app", "job.batch/once created\n"),
        ("create cronjob often --image=app '--schedule=*/5 * * * *'", "cronjob.batch/often created\n"),
        ("create role reader --verb=get --resource=pods", "role.rbac.authorization.k8s.io/reader created\n"),
        ("create quota limits --hard=pods=3", "resourcequota/limits created\n"),
        ("run one --image=app", "pod/one created\n"),
        ("expose deployment web --port=80 --name=other", "service/other exposed\n"),
    ] {
        assert_eq!(server.kubectl(line).ok(), said, "{line}");
    }
    assert_eq!(server.kubectl("get configmap settings -o 'jsonpath={.data.colour}'").ok(), "red");
    assert_eq!(server.kubectl("get secret key -o 'jsonpath={.data.a}'").ok(), "Yg==");
    assert_eq!(server.kubectl("get deployment web -o 'jsonpath={.spec.replicas}'").ok(), "2");
    assert_eq!(server.kubectl("get quota limits -o 'jsonpath={.spec.hard.pods}'").ok(), "3");
}

#[test]
fn what_is_refused_says_why() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    let twice = server.kubectl_with("create -f -", &pod("one")).refused();
    assert_eq!(
        twice,
        "Error from server (AlreadyExists): error when creating \"STDIN\": pods \"one\" already exists\n"
    );
    let name = server.kubectl_with("create -f -", &pod("Not_A_Name")).refused();
    assert!(name.starts_with(r#"The Pod "Not_A_Name" is invalid: metadata.name: Invalid value"#), "{name}");
    let nowhere = server.kubectl_with("create -n nowhere -f -", &pod("two")).refused();
    assert!(nowhere.contains(r#"namespaces "nowhere" not found"#), "{nowhere}");
    let field = server.kubectl_with("create -f -", &pod("two").replace("spec: {", "spec: {bogus: 1, ")).refused();
    assert!(field.contains(r#"unknown field "spec.bogus""#), "{field}");
    let empty = server.kubectl_with("create -f -", "apiVersion: v1\nkind: Pod\nmetadata: {name: two}\n").refused();
    assert!(empty.contains("spec.containers: Required value"), "{empty}");
    assert_eq!(names(&server), "pod/one\n");
}

#[test]
fn delete_one_and_by_file() {
    let server = Server::start();
    create_pods(&server, &["one", "two", "three"]);
    let said = server.kubectl("delete pod one").ok();
    assert!(said.starts_with(r#"pod "one" deleted"#), "{said}");
    server.kubectl_with("delete -f -", &pod("two")).ok();
    assert_eq!(names(&server), "pod/three\n");
    let missing = server.kubectl("delete pod one").refused();
    assert_eq!(missing, "Error from server (NotFound): pods \"one\" not found\n");
    assert_eq!(server.kubectl("delete pod one --ignore-not-found").ok(), "");
}

#[test]
fn delete_at_once_with_force() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    let output = server.kubectl("delete pod one --grace-period=0 --force");
    assert!(output.stderr.contains("Immediate deletion does not wait for confirmation"), "{}", output.stderr);
    let said = output.ok();
    assert!(said.starts_with(r#"pod "one" force deleted"#), "{said}");
    assert_eq!(names(&server), "");
}

#[test]
fn delete_a_pod_of_a_node_waits_for_its_grace_period() {
    let server = Server::start();
    let bound = pod("one").replace("spec: {", "spec: {nodeName: somewhere, ");
    server.kubectl_with("create -f -", &bound).ok();
    server.kubectl("delete pod one --wait=false").ok();
    let grace = server.kubectl("get pod one -o 'jsonpath={.metadata.deletionGracePeriodSeconds}'").ok();
    assert_eq!(grace, "30");
    assert_eq!(rows(&server.kubectl("get pod one").ok())[1][2], "Terminating");
    server.kubectl("delete pod one --grace-period=0 --force").ok();
    assert_eq!(names(&server), "");
}

#[test]
fn delete_by_label_and_all() {
    let server = Server::start();
    create_pods(&server, &["one", "two", "three", "four"]);
    server.kubectl("label pods one two app=web").ok();
    let said = server.kubectl("delete pods -l app=web").ok();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(names(&server), "pod/four\npod/three\n");
    let kept = "{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}}";
    server.kubectl_with("create -f -", kept).ok();
    server.kubectl("delete pods --all").ok();
    assert_eq!(names(&server), "");
    server.kubectl("get configmap kept").ok();
}

#[test]
fn label_and_annotate() {
    let server = Server::start();
    create_pods(&server, &["one", "two"]);
    assert_eq!(server.kubectl("label pod one app=web").ok(), "pod/one labeled\n");
    let again = server.kubectl("label pod one app=db").refused();
    assert!(again.contains("--overwrite is false"), "{again}");
    server.kubectl("label pod one app=db --overwrite").ok();
    assert_eq!(server.kubectl("get pod one -o 'jsonpath={.metadata.labels.app}'").ok(), "db");
    assert_eq!(server.kubectl("label pod one app-").ok(), "pod/one unlabeled\n");
    assert_eq!(server.kubectl("get pod one -o 'jsonpath={.metadata.labels}'").ok(), "");
    server.kubectl("label pods --all tier=x").ok();
    assert_eq!(server.kubectl("get pods -l tier=x -o name").ok(), "pod/one\npod/two\n");
    assert_eq!(server.kubectl("annotate pod one note='a b'").ok(), "pod/one annotated\n");
    assert_eq!(server.kubectl("get pod one -o 'jsonpath={.metadata.annotations.note}'").ok(), "a b");
    let bad = server.kubectl("label pod one app=-bad-").refused();
    assert!(bad.contains("-bad-"), "{bad}");
}

#[test]
fn patch_with_json_and_merge() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    let json = r#"patch pod one --type=json -p '[{"op":"add","path":"/metadata/labels","value":{"app":"web"}}]'"#;
    assert_eq!(server.kubectl(json).ok(), "pod/one patched\n");
    let failing = r#"patch pod one --type=json -p '[{"op":"test","path":"/metadata/labels/app","value":"db"}]'"#;
    let refused = server.kubectl(failing).refused();
    assert!(refused.contains("The request is invalid"), "{refused}");
    let merge = r#"patch pod one --type=merge -p '{"spec":{"containers":[{"name":"app","image":"newer"}]}}'"#;
    assert_eq!(server.kubectl(merge).ok(), "pod/one patched\n");
    assert_eq!(server.kubectl(merge).ok(), "pod/one patched (no change)\n");
    assert_eq!(server.kubectl("get pod one -o 'jsonpath={.spec.containers[0].image}'").ok(), "newer");
    let status = r#"patch pod one --subresource=status --type=merge -p '{"status":{"phase":"Running"}}'"#;
    server.kubectl(status).ok();
    assert_eq!(rows(&server.kubectl("get pods").ok())[1][2], "Running");
}

#[test]
fn replace_needs_the_current_version() {
    let server = Server::start();
    let settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {colour: red}}";
    server.kubectl_with("create -f -", settings).ok();
    let old = server.kubectl("get configmap settings -o yaml").ok();
    let said = server.kubectl_with("replace -f -", &old.replace("red", "green")).ok();
    assert_eq!(said, "configmap/settings replaced\n");
    let stale = server.kubectl_with("replace -f -", &old.replace("red", "blue")).refused();
    assert!(stale.contains("the object has been modified"), "{stale}");
    assert_eq!(server.kubectl("get configmap settings -o 'jsonpath={.data.colour}'").ok(), "green");
}

#[test]
fn scale_a_deployment() {
    let server = Server::start();
    server.kubectl_with("create -f -", MANY).ok();
    assert_eq!(server.kubectl("scale deployment web --replicas=5").ok(), "deployment.apps/web scaled\n");
    assert_eq!(server.kubectl("get deployment web -o 'jsonpath={.spec.replicas}'").ok(), "5");
}
