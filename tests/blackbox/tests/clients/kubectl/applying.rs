//! kubectl apply on the client's side and on the server's, diff, strategic patches, set.

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
