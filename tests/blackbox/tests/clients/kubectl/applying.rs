//! kubectl apply on the client's side and on the server's, of files and folders, pruning, diff.

use std::fs;

use blackbox::Server;

fn settings(colour: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, data: {{colour: {colour}}}}}")
}

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: app}, {name: side, image: side}]}
";

fn colour(server: &Server) -> String {
    server.kubectl("get configmap settings -o 'jsonpath={.data.colour}'").ok()
}

#[test]
fn apply_creates_changes_and_leaves_alone() {
    let server = Server::start();
    let apply = |text: &str| server.kubectl_with("apply -f -", text).ok();
    assert_eq!(apply(&settings("red")), "configmap/settings created\n");
    assert_eq!(apply(&settings("red")), "configmap/settings unchanged\n");
    server.kubectl("annotate configmap settings note=mine").ok();
    assert_eq!(apply(&settings("green")), "configmap/settings configured\n");
    assert_eq!(colour(&server), "green");
    let note = server.kubectl("get configmap settings -o 'jsonpath={.metadata.annotations.note}'").ok();
    assert_eq!(note, "mine", "what others wrote stays");
    // What is no longer said goes away.
    apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}");
    assert_eq!(colour(&server), "");
}

#[test]
fn apply_merges_lists_by_their_keys() {
    let server = Server::start();
    server.kubectl_with("apply -f -", WEB).ok();
    assert_eq!(server.kubectl_with("apply -f -", WEB).ok(), "deployment.apps/web unchanged\n");
    server.kubectl_with("apply -f -", &WEB.replace("image: side", "image: newer")).ok();
    let images = "get deployment web -o 'jsonpath={.spec.template.spec.containers[*].image}'";
    assert_eq!(server.kubectl(images).ok(), "app newer");
    let strategic =
        r#"patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x"}]}}}}'"#;
    assert_eq!(server.kubectl(strategic).ok(), "deployment.apps/web patched\n");
    assert_eq!(server.kubectl(images).ok(), "x newer");
    assert_eq!(server.kubectl("set image deployment/web side=y").ok(), "deployment.apps/web image updated\n");
    assert_eq!(server.kubectl(images).ok(), "x y");
}

#[test]
fn apply_on_the_server_knows_who_owns_what() {
    let server = Server::start();
    let apply =
        |who: &str, text: &str| server.kubectl_with(&format!("apply --server-side --field-manager={who} -f -"), text);
    assert_eq!(apply("one", &settings("red")).ok(), "configmap/settings serverside-applied\n");
    let conflict = apply("two", &settings("green")).refused();
    assert!(conflict.contains(r#"conflict with "one": .data.colour"#), "{conflict}");
    assert_eq!(colour(&server), "red");
    server.kubectl_with("apply --server-side --field-manager=two --force-conflicts -f -", &settings("green")).ok();
    assert_eq!(colour(&server), "green");
}

#[test]
fn diff_shows_what_apply_would_do() {
    let server = Server::start();
    server.kubectl_with("apply -f -", &settings("red")).ok();
    assert_eq!(server.kubectl_with("diff -f -", &settings("red")).ok(), "");
    let diff = server.kubectl_with("diff -f -", &settings("green"));
    assert!(
        !diff.success && diff.stdout.contains("-  colour: red") && diff.stdout.contains("+  colour: green"),
        "{diff:?}"
    );
    assert_eq!(colour(&server), "red");
}

/// A config map or secret that belongs to the team.
fn labelled(kind: &str, name: &str) -> String {
    format!("{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}, labels: {{team: blue}}}}}}\n")
}

#[test]
fn apply_takes_files_of_many_documents_and_folders() {
    let server = Server::start();
    let deep = server.folder().join("manifests/deep");
    fs::create_dir_all(&deep).expect("the folder can be written");
    let write = |name: &str, text: &str| {
        fs::write(server.folder().join("manifests").join(name), text).expect("the folder can be written");
    };
    let documents = [&labelled("ConfigMap", "a"), "# nothing but a comment\n", &labelled("Secret", "b")].join("---\n");
    write("first.yaml", &documents);
    write("second.json", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}"#);
    write("README.md", "This is no manifest.");
    write("deep/third.yml", &labelled("ConfigMap", "d"));

    let said = server.kubectl("apply -f manifests/first.yaml").ok();
    assert_eq!(said, "configmap/a created\nsecret/b created\n");
    let said = server.kubectl("apply -f manifests").ok();
    assert_eq!(said, "configmap/a unchanged\nsecret/b unchanged\nconfigmap/c created\n");
    let said = server.kubectl("apply -R -f manifests").ok();
    assert_eq!(said, "configmap/d created\nconfigmap/a unchanged\nsecret/b unchanged\nconfigmap/c unchanged\n");
    let said = server.kubectl("apply --server-side -R -f manifests -o name").ok();
    assert_eq!(said, "configmap/d\nconfigmap/a\nsecret/b\nconfigmap/c\n");

    // One bad document does not keep the others from being applied.
    write("first.yaml", &[labelled("ConfigMap", "Not_A_Name"), labelled("ConfigMap", "e")].join("---\n"));
    let output = server.kubectl("apply -f manifests/first.yaml");
    assert_eq!(output.stdout, "configmap/e created\n");
    let refused = output.refused();
    assert!(refused.contains(r#"The ConfigMap "Not_A_Name" is invalid"#), "{refused}");
}

#[test]
fn apply_prunes_what_is_no_longer_there() {
    let server = Server::start();
    let kept = labelled("ConfigMap", "kept");
    let all = [&kept, &labelled("ConfigMap", "gone"), &labelled("Secret", "key")].map(String::as_str).join("---\n");
    server.kubectl_with("apply -f -", &all).ok();
    server.kubectl_with("apply -f -", &settings("red")).ok();
    server.kubectl_with("create -f -", &labelled("ConfigMap", "made")).ok();

    let listed = "apply --prune -l team=blue --prune-allowlist=core/v1/ConfigMap -f -";
    let dry = server.kubectl_with(&format!("{listed} --dry-run=server"), &kept).ok();
    assert_eq!(dry, "configmap/kept unchanged (server dry run)\nconfigmap/gone pruned (server dry run)\n");
    let said = server.kubectl_with(listed, &kept).ok();
    assert_eq!(said, "configmap/kept unchanged\nconfigmap/gone pruned\n", "only of the kinds listed");
    let said = server.kubectl_with("apply --prune -l team=blue -f -", &kept).ok();
    assert_eq!(said, "configmap/kept unchanged\nsecret/key pruned\n", "of all the usual kinds");
    let left = server.kubectl("get configmaps,secrets -o name").ok();
    for name in ["configmap/kept", "configmap/made", "configmap/settings"] {
        assert!(left.lines().any(|line| line == name), "not applied or not selected, so it stays: {name} in\n{left}");
    }
    assert!(!left.contains("gone") && !left.contains("key"), "{left}");
}

#[test]
fn apply_on_the_server_shares_and_takes_over() {
    let server = Server::start();
    let apply =
        |who: &str, text: &str| server.kubectl_with(&format!("apply --server-side --field-manager={who} -f -"), text);
    let owners = || {
        let lines = "get configmap settings --show-managed-fields -o 'jsonpath={range .metadata.managedFields[*]}{.manager} {.operation} {.fieldsV1}{\"\\n\"}{end}'";
        let said = server.kubectl(lines).ok();
        let owning = said.lines().filter(|line| line.contains("f:colour"));
        let mut owners: Vec<String> =
            owning.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
        owners.sort();
        owners
    };
    apply("one", &settings("red")).ok();
    apply("two", &settings("red")).ok();
    assert_eq!(owners(), ["one Apply", "two Apply"], "those who want the same share it");
    let conflict = apply("two", &settings("green")).refused();
    assert!(conflict.contains(r#"Apply failed with 1 conflict: conflict with "one": .data.colour"#), "{conflict}");
    server.kubectl_with("apply --server-side --field-manager=two --force-conflicts -f -", &settings("green")).ok();
    assert_eq!(owners(), ["two Apply"], "who is overruled no longer owns");
    // The field goes with its last owner, and only then.
    apply("one", "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").ok();
    assert_eq!(colour(&server), "green");
    apply("two", "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").ok();
    assert_eq!(colour(&server), "");
}

#[test]
fn apply_on_the_server_goes_on_from_the_clients_side() {
    let server = Server::start();
    server.kubectl_with("apply -f -", &settings("red")).ok();
    // kubectl moves what its client-side self owned to its server-side self, so this is no conflict.
    server.kubectl_with("apply --server-side -f -", &settings("green")).ok();
    assert_eq!(colour(&server), "green");
    server.kubectl("patch configmap settings --type=merge -p '{\"data\":{\"colour\":\"blue\"}}'").ok();
    let conflict = server.kubectl_with("apply --server-side -f -", &settings("green")).refused();
    assert!(conflict.contains(r#"conflict with "kubectl-patch" using v1: .data.colour"#), "{conflict}");
    assert_eq!(colour(&server), "blue");
}
