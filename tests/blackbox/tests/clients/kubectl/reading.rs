//! kubectl get in all its forms, and information about the server.

use blackbox::Server;

use super::{create_pods, rows};

#[test]
fn get_shows_a_table() {
    let server = Server::start();
    create_pods(&server, &["one", "two"]);
    let table = server.kubectl("get pods").ok();
    let rows = rows(&table);
    assert_eq!(rows[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(rows[1][..4], ["one", "0/1", "Pending", "0"]);
    assert_eq!(rows[2][..4], ["two", "0/1", "Pending", "0"]);
    assert_eq!(rows.len(), 3);
    // The short name, one object, and both forms of naming it.
    assert_eq!(super::rows(&server.kubectl("get po one").ok())[1][0], "one");
    assert_eq!(super::rows(&server.kubectl("get pod/two --no-headers").ok())[0][0], "two");
}

#[test]
fn get_wide_and_all_namespaces() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    server.kubectl_with("create -f -", "{apiVersion: v1, kind: Namespace, metadata: {name: team}}").ok();
    server.kubectl_with("create -n team -f -", &super::pod("two")).ok();
    let table = server.kubectl("get pods -A -o wide").ok();
    let rows = rows(&table);
    let header =
        ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"];
    assert_eq!(rows[0], header);
    assert_eq!(rows[1][..5], ["default", "one", "0/1", "Pending", "0"]);
    assert_eq!(rows[1][6..], ["<none>"; 4]);
    assert_eq!(rows[2][..2], ["team", "two"]);
}

#[test]
fn get_as_yaml_json_name_jsonpath_and_columns() {
    let server = Server::start();
    create_pods(&server, &["one", "two"]);
    let yaml = server.kubectl("get pod one -o yaml").ok();
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n"), "{yaml}");
    assert!(yaml.contains("\n  restartPolicy: Always\n"), "{yaml}");
    let list = server.kubectl("get pods -A -o json").json();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][1]["kind"], "Pod");
    assert_eq!(list["items"][1]["metadata"]["name"], "two");
    assert_eq!(list["items"][1]["status"]["phase"], "Pending");
    assert_eq!(server.kubectl("get pods -o name").ok(), "pod/one\npod/two\n");
    assert_eq!(server.kubectl("get pods -o 'jsonpath={.items[*].metadata.name}'").ok(), "one two");
    let columns = server.kubectl("get pods -o custom-columns=N:.metadata.name,P:.spec.restartPolicy").ok();
    assert_eq!(rows(&columns), [["N", "P"], ["one", "Always"], ["two", "Always"]]);
}

#[test]
fn get_with_selectors_order_and_pages() {
    let server = Server::start();
    create_pods(&server, &["one", "two", "three"]);
    server.kubectl("label pod two app=web").ok();
    server.kubectl("label pod three app=db").ok();
    assert_eq!(server.kubectl("get pods -o name -l app=web").ok(), "pod/two\n");
    assert_eq!(server.kubectl("get pods -o name -l 'app in (web, db)'").ok(), "pod/three\npod/two\n");
    assert_eq!(server.kubectl("get pods -o name -l '!app'").ok(), "pod/one\n");
    assert_eq!(server.kubectl("get pods -o name --field-selector metadata.name=one").ok(), "pod/one\n");
    assert_eq!(server.kubectl("get pods -o name --field-selector status.phase!=Pending").ok(), "");
    assert_eq!(server.kubectl("get pods -o name --chunk-size=1").ok(), "pod/one\npod/three\npod/two\n");
    assert_eq!(server.kubectl("get pods -o name --sort-by=.metadata.labels.app -l app").ok(), "pod/three\npod/two\n");
    let labels = server.kubectl("get pods two --show-labels -L app").ok();
    assert_eq!(rows(&labels)[1][5..], ["web", "app=web"]);
    let refused = server.kubectl("get pods --field-selector spec.bogus=1").refused();
    assert!(refused.contains(r#"field label not supported: spec.bogus"#), "{refused}");
}

#[test]
fn get_what_is_not_there() {
    let server = Server::start();
    let nothing = server.kubectl("get pods");
    assert_eq!(nothing.stderr, "No resources found in default namespace.\n");
    assert_eq!(nothing.ok(), "");
    let missing = server.kubectl("get pod nope").refused();
    assert_eq!(missing, "Error from server (NotFound): pods \"nope\" not found\n");
    let unknown = server.kubectl("get gadgets").refused();
    assert_eq!(unknown, "error: the server doesn't have a resource type \"gadgets\"\n");
    assert_eq!(server.kubectl("get pod nope --ignore-not-found").ok(), "");
}

#[test]
fn get_namespaces_of_a_new_server() {
    let server = Server::start();
    let names = server.kubectl("get namespaces -o name").ok();
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        assert!(names.contains(&format!("namespace/{name}\n")), "{names}");
    }
    let table = server.kubectl("get ns default").ok();
    assert_eq!(rows(&table)[1][..2], ["default", "Active"]);
}

#[test]
fn get_raw() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    let list = server.kubectl("get --raw /api/v1/namespaces/default/pods").json();
    assert_eq!(list["kind"], "PodList");
    assert_eq!(list["items"][0]["metadata"]["name"], "one");
    assert!(list["metadata"]["resourceVersion"].as_str().is_some_and(|rv| rv.parse::<u64>().is_ok()), "{list}");
    assert_eq!(server.kubectl("get --raw /readyz").ok(), "ok");
    assert!(server.kubectl("get --raw '/readyz?verbose'").ok().contains("readyz check passed"));
    let refused = server.kubectl("get --raw /api/v1/namespaces/default/gadgets").refused();
    assert!(refused.contains("the server could not find the requested resource"), "{refused}");
}

#[test]
fn api_resources_and_versions() {
    let server = Server::start();
    let table = server.kubectl("api-resources").ok();
    let rows = rows(&table);
    assert_eq!(rows[0], ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]);
    for row in [
        &["pods", "po", "v1", "true", "Pod"][..],
        &["nodes", "no", "v1", "false", "Node"],
        &["secrets", "v1", "true", "Secret"],
        &["deployments", "deploy", "apps/v1", "true", "Deployment"],
        &["cronjobs", "cj", "batch/v1", "true", "CronJob"],
        &["leases", "coordination.k8s.io/v1", "true", "Lease"],
        &["clusterroles", "rbac.authorization.k8s.io/v1", "false", "ClusterRole"],
        &["customresourcedefinitions", "crd,crds", "apiextensions.k8s.io/v1", "false", "CustomResourceDefinition"],
    ] {
        assert!(rows.iter().any(|found| found == row), "{row:?} is missing in\n{table}");
    }
    let apps = server.kubectl("api-resources --api-group=apps -o name --sort-by=name").ok();
    let names = ["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"];
    assert_eq!(apps.lines().collect::<Vec<_>>(), names.map(|name| format!("{name}.apps")));

    let versions = server.kubectl("api-versions").ok();
    for version in ["v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1"] {
        assert!(versions.lines().any(|line| line == version), "{version} is missing in\n{versions}");
    }
}

#[test]
fn version_and_cluster_info() {
    let server = Server::start();
    let version = server.kubectl("version").ok();
    assert!(version.contains("Client Version: v1.36"), "{version}");
    assert!(version.contains("\nServer Version: v1.36"), "{version}");
    let info = server.kubectl("cluster-info").ok();
    assert!(info.contains("control plane") && info.contains(server.url()), "{info}");
    let who = server.kubectl("auth whoami -o 'jsonpath={.status.userInfo.groups}'").ok();
    assert!(who.contains("system:authenticated"), "{who}");
}

#[test]
fn describe_reads_an_object_and_its_events() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    let text = server.kubectl("describe pod one").ok();
    assert!(rows(&text).contains(&vec!["Status:", "Pending"]) && text.contains("\nEvents:"), "{text}");
}
