//! kubectl edit, set, strategic patches, taint, cordon, replace --force, and conditional changes.

use blackbox::process::Output;
use blackbox::{Server, run};

use super::{create_pods, pod};

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

fn with_web() -> Server {
    let server = Server::start();
    server.kubectl_with("create -f -", WEB).ok();
    server
}

/// A field of an object, by its JSON path.
fn field(server: &Server, object: &str, path: &str) -> String {
    server.kubectl(&format!("get {object} -o 'jsonpath={{{path}}}'")).ok()
}

/// kubectl edit with sed as the editor.
fn edit(server: &Server, line: &str, script: &str) -> Output {
    let mut command = server.kubectl_command(line);
    // kubectl leaves a copy of a refused edit in the temporary folder.
    command.env("KUBE_EDITOR", format!("sed -i {script}")).env("TMPDIR", server.folder());
    run(command, "")
}

#[test]
fn edit_sends_what_was_changed() {
    let server = Server::start();
    server.kubectl("create configmap settings --from-literal=colour=red").ok();
    let changed = edit(&server, "edit configmap settings", "s/red/green/").ok();
    assert_eq!(changed, "configmap/settings edited\n");
    assert_eq!(field(&server, "configmap/settings", ".data"), r#"{"colour":"green"}"#);
    let patch = edit(&server, "edit configmap settings --output-patch", "s/colour:/shade:/").ok();
    assert_eq!(patch, "Patch: {\"data\":{\"colour\":null,\"shade\":\"green\"}}\nconfigmap/settings edited\n");
    assert_eq!(field(&server, "configmap/settings", ".data"), r#"{"shade":"green"}"#);

    let same = edit(&server, "edit configmap settings", "s/red/green/");
    assert!(same.success && same.stderr.contains("Edit cancelled, no changes made."), "{same:?}");
    let invalid = edit(&server, "edit configmap settings", "s/shade:/no!key:/").refused();
    assert!(invalid.contains(r#"configmaps "settings" is invalid"#), "{invalid}");
    assert_eq!(field(&server, "configmap/settings", ".data"), r#"{"shade":"green"}"#);
}

#[test]
fn edit_merges_lists_by_their_keys() {
    let server = with_web();
    let changed = edit(&server, "edit deployment web", "'s/image: side/image: newer/'").ok();
    assert_eq!(changed, "deployment.apps/web edited\n");
    assert_eq!(field(&server, "deployment/web", ".spec.template.spec.containers[*].image"), "app newer");
    edit(&server, "edit deployment web --subresource=status", "'s/^status: {}/status: {replicas: 3}/'").ok();
    assert_eq!(field(&server, "deployment/web", ".status.replicas"), "3");
}

#[test]
fn patch_strategically() {
    let server = with_web();
    let patch = |containers: &str| {
        let body = format!(r#"{{"spec":{{"template":{{"spec":{{"containers":{containers}}}}}}}}}"#);
        server.kubectl(&format!("patch deployment web --type=strategic -p '{body}'")).ok()
    };
    let images = || field(&server, "deployment/web", ".spec.template.spec.containers[*].image");
    assert_eq!(patch(r#"[{"name":"side","image":"newer"}]"#), "deployment.apps/web patched\n");
    assert_eq!(images(), "app newer", "merged by name");
    assert_eq!(patch(r#"[{"name":"side","image":"newer"}]"#), "deployment.apps/web patched (no change)\n");
    patch(r#"[{"name":"side","$patch":"delete"}]"#);
    assert_eq!(images(), "app", "deleted by name");
    patch(r#"[{"name":"x","image":"x"},{"$patch":"replace"}]"#);
    assert_eq!(images(), "x", "the whole list replaced");
    let named = r#"patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"image":"y"}]}}}}'"#;
    let refused = server.kubectl(named).refused();
    assert!(refused.contains("does not contain declared merge key: name"), "{refused}");

    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b, c: d}}";
    server.kubectl_with("create -f -", map).ok();
    server.kubectl(r#"patch configmap settings -p '{"data":{"$patch":"replace","e":"f"}}'"#).ok();
    assert_eq!(field(&server, "configmap/settings", ".data"), r#"{"e":"f"}"#);
}

#[test]
fn set_changes_the_template() {
    let server = with_web();
    let set = |what: &str| server.kubectl(&format!("set {what}"));
    let container = |path: &str| field(&server, "deployment/web", &format!(".spec.template.spec.containers{path}"));
    assert_eq!(set("image deployment/web app=x side=y").ok(), "deployment.apps/web image updated\n");
    assert_eq!(container("[*].image"), "x y");
    assert_eq!(set("image deployment/web '*=z'").ok(), "deployment.apps/web image updated\n");
    assert_eq!(container("[*].image"), "z z");
    assert_eq!(set("image deployment/web none=x").refused(), "error: unable to find container named \"none\"\n");

    assert_eq!(set("env deployment/web -c app COLOUR=red SIZE=big").ok(), "deployment.apps/web env updated\n");
    let listed = "# Deployment web, container app\nCOLOUR=red\nSIZE=big\n# Deployment web, container side\n";
    assert_eq!(set("env deployment/web --list").ok(), listed);
    set("env deployment/web COLOUR- SIZE=small").ok();
    assert_eq!(container("[0].env"), r#"[{"name":"SIZE","value":"small"}]"#);

    let said = set("resources deployment/web -c side --limits=cpu=200m,memory=512Mi --requests=cpu=100m").ok();
    assert_eq!(said, "deployment.apps/web resource requirements updated\n");
    assert_eq!(container("[0].resources"), "{}");
    let wanted = r#"{"limits":{"cpu":"200m","memory":"512Mi"},"requests":{"cpu":"100m"}}"#;
    assert_eq!(container("[1].resources"), wanted);
    let less = set("resources deployment/web -c side --limits=cpu=50m").refused();
    assert!(less.contains("must be less than or equal to cpu limit of 50m"), "{less}");
    assert_eq!(container("[1].resources"), wanted);
    assert_eq!(field(&server, "deployment/web", ".metadata.generation"), "6", "each change, and none refused");
}

#[test]
fn scale_only_from_what_is_expected() {
    let server = with_web();
    let scale = |flags: &str| server.kubectl(&format!("scale deployment web --replicas=3 {flags}"));
    assert_eq!(scale("--current-replicas=2").refused(), "error: Expected replicas to be 2, was 1\n");
    let version = scale("--resource-version=1").refused();
    assert!(version.starts_with("error: Expected resource version to be 1, was "), "{version}");
    assert_eq!(field(&server, "deployment/web", ".spec.replicas"), "1");
    assert_eq!(scale("--current-replicas=1").ok(), "deployment.apps/web scaled\n");
    assert_eq!(field(&server, "deployment/web", ".spec.replicas"), "3");
    let negative =
        server.kubectl(r#"patch deployment web --subresource=scale -p '{"spec":{"replicas":-1}}'"#).refused();
    assert!(negative.contains("must be greater than or equal to 0"), "{negative}");
}

#[test]
fn replace_by_force_makes_another_object() {
    let server = Server::start();
    create_pods(&server, &["one"]);
    let uid = field(&server, "pod/one", ".metadata.uid");
    let changed = pod("one").replace("image: app", "image: app, command: [run]");
    let refused = server.kubectl_with("replace -f -", &changed).refused();
    assert!(refused.contains("pod updates may not change fields other than"), "{refused}");
    let said = server.kubectl_with("replace --force -f -", &changed).ok();
    assert!(said.starts_with(r#"pod "one" deleted"#) && said.ends_with("pod/one replaced\n"), "{said}");
    assert_eq!(field(&server, "pod/one", ".spec.containers[0].command"), r#"["run"]"#);
    assert_ne!(field(&server, "pod/one", ".metadata.uid"), uid);

    let missing = server.kubectl_with("replace -f -", &pod("two")).refused();
    assert!(missing.contains(r#"pods "two" not found"#), "{missing}");
    assert_eq!(server.kubectl_with("replace --force -f -", &pod("two")).ok(), "pod/two replaced\n");
}

#[test]
fn taint_and_cordon_a_node() {
    let server = Server::start();
    server.kubectl_with("create -f -", "{apiVersion: v1, kind: Node, metadata: {name: metal}}").ok();
    let taint = |what: &str| server.kubectl(&format!("taint node metal {what}"));
    let taints = || {
        let said = field(&server, "node/metal", "range .spec.taints[*]}{.key}={.value}:{.effect} {end");
        let mut all: Vec<String> = said.split_whitespace().map(str::to_owned).collect();
        // Every new node has this taint until it is ready.
        all.retain(|taint| taint != "node.kubernetes.io/not-ready=:NoSchedule");
        all.sort();
        all
    };
    assert_eq!(taint("dedicated=db:NoSchedule").ok(), "node/metal tainted\n");
    assert_eq!(taints(), ["dedicated=db:NoSchedule"]);
    let again = taint("dedicated=web:NoSchedule").refused();
    assert!(again.contains("already has dedicated taint(s) with same effect(s) and --overwrite is false"), "{again}");
    assert_eq!(taint("dedicated=web:NoSchedule --overwrite").ok(), "node/metal modified\n");
    taint("dedicated=web:NoExecute").ok();
    assert_eq!(taints(), ["dedicated=web:NoExecute", "dedicated=web:NoSchedule"]);
    assert_eq!(taint("dedicated:NoSchedule-").ok(), "node/metal untainted\n");
    assert_eq!(taints(), ["dedicated=web:NoExecute"]);
    taint("dedicated-").ok();
    assert!(taints().is_empty());
    assert_eq!(taint("dedicated-").refused(), "error: taint \"dedicated\" not found\n");

    assert_eq!(server.kubectl("cordon metal").ok(), "node/metal cordoned\n");
    assert_eq!(field(&server, "node/metal", ".spec.unschedulable"), "true");
    assert_eq!(server.kubectl("uncordon metal").ok(), "node/metal uncordoned\n");
    assert_eq!(field(&server, "node/metal", ".spec.unschedulable"), "");
}

#[test]
fn labels_and_annotations_only_on_the_version_meant() {
    let server = Server::start();
    server.kubectl("create configmap settings").ok();
    let old = field(&server, "configmap/settings", ".metadata.resourceVersion");
    for (verb, past, place) in [("label", "labeled", "labels"), ("annotate", "annotated", "annotations")] {
        let change = |what: &str| server.kubectl(&format!("{verb} configmap settings {what}"));
        let value = || field(&server, "configmap/settings", &format!(".metadata.{place}.app"));
        assert_eq!(change("app=web").ok(), format!("configmap/settings {past}\n"));
        let stale = change(&format!("app=db --overwrite --resource-version={old}")).refused();
        assert!(stale.contains("(Conflict)") && stale.contains("the object has been modified"), "{stale}");
        let twice = change("app=db").refused();
        assert!(twice.contains("--overwrite is false") && twice.contains("already has a value (web)"), "{twice}");
        assert_eq!(value(), "web");
        let now = field(&server, "configmap/settings", ".metadata.resourceVersion");
        change(&format!("app=db --overwrite --resource-version={now}")).ok();
        assert_eq!(value(), "db");
        change("app-").ok();
        assert_eq!(value(), "");
    }
}
