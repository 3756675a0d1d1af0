//! Files of KWOK's kinds: what they do, and what is refused.

use serde_json::{Value, json};

use super::stage::{Action, PatchForm, choose};
use super::*;
use crate::nodes::containers::rules::{LogContent, PortAnswer};
use crate::nodes::stages::Stages;

struct Somewhere;

impl Facts for Somewhere {
    fn now(&self) -> String {
        "2027-01-15T08:00:00Z".to_owned()
    }

    fn node_name(&self) -> String {
        "node-1".to_owned()
    }

    fn node_ip(&self, _node: &str) -> String {
        "172.16.0.1".to_owned()
    }

    fn pod_ip(&self) -> String {
        "10.0.0.7".to_owned()
    }
}

const FILE: &str = r#"
seed: 7
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {app: a}
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: NotIn, values: [Running]}
  weight: 1
  weightFrom: {expressionFrom: '.metadata.annotations["weight"]'}
  delay:
    durationMilliseconds: 1000
    durationFrom: {expressionFrom: '.metadata.annotations["delay"]'}
    jitterDurationMilliseconds: 3000
  next:
    event: {type: Normal, reason: Ready, message: it runs}
    finalizers: {add: [{value: example.com/held}]}
    statusTemplate: |
      {{ $now := Now }}
      {{- /* a comment */ -}}
      {{ $annotations := or .metadata.annotations dict }}
      phase: {{ if eq (index $annotations "fails") "yes" }}Failed{{ else }}Running{{ end }}
      podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) | Quote }}
      containerStatuses:
      {{ range $index, $item := .spec.containers }}
      - name: {{ $item.name | Quote }}
        image: {{ printf "%s-%d" $item.image $index }}
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ else }}
      - nothing
      {{ end }}
      {{ with .status.addresses }}
      addresses:
      {{ YAML . 1 }}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: gone}
spec:
  resourceRef: {kind: Pod}
  selector:
    matchExpressions:
    - jq: {key: .metadata.deletionTimestamp, operator: Exists}
  steps:
  - finalizers: {empty: true}
  - delete: true
"#;

fn pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({"metadata": {"name": "p", "labels": {"app": "a"}, "annotations": {}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]},
        "status": {"addresses": [{"a": 1}]}});
    change(&mut pod);
    pod
}

#[test]
fn kw_2_a_stage_is_chosen_delayed_and_rendered() {
    let stages = Stages::from_text(FILE).unwrap();
    assert_eq!(stages.seed, Some(7));
    let kwok = stages.kwok;
    let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let object = pod(|_| {});
    let stage = choose(kwok.of_pods(), &object, 0.5).unwrap();
    assert_eq!(stage.name, "ready");
    let delay = |object: &Value, drawn| stage.delay(object, now, drawn).as_millis();
    assert_eq!((delay(&object, 0.0), delay(&object, 0.5)), (1000, 2000));
    assert_eq!(delay(&pod(|pod| pod["metadata"]["annotations"]["delay"] = json!("5s")), 0.5), 3000, "jitter below it");
    let later = json!("2027-01-15T08:00:02Z");
    assert_eq!(delay(&pod(|pod| pod["metadata"]["annotations"]["delay"] = later), 0.0), 2000, "a time");
    let actions = stage.actions(&object, &Somewhere).unwrap();
    let event = Action::Event { kind: "Normal".into(), reason: "Ready".into(), message: "it runs".into() };
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let held = Action::Patch { subresource: String::new(), form: PatchForm::Merge, body: held };
    let started = "2027-01-15T08:00:00Z";
    let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.7",
        "containerStatuses": [
            {"name": "c", "image": "i-0", "state": {"running": {"startedAt": started}}},
            {"name": "d", "image": "j-1", "state": {"running": {"startedAt": started}}}],
        "addresses": [{"a": 1}]}});
    let patch = Action::Patch { subresource: "status".into(), form: PatchForm::Strategic, body: status };
    assert_eq!(actions, [event, held, patch]);
    for other in
        [pod(|pod| pod["metadata"]["labels"]["app"] = json!("b")), pod(|pod| pod["status"]["phase"] = json!("Running"))]
    {
        assert!(choose(kwok.of_pods(), &other, 0.5).is_none(), "{other}");
    }
    let deleted = pod(|pod| {
        pod["metadata"]["deletionTimestamp"] = json!("x");
        pod["metadata"]["finalizers"] = json!(["a"]);
    });
    let stage = choose(kwok.of_pods(), &deleted, 0.5).unwrap();
    let emptied = json!({"metadata": {"finalizers": null}});
    let emptied = Action::Patch { subresource: String::new(), form: PatchForm::Merge, body: emptied };
    assert_eq!(stage.actions(&deleted, &Somewhere).unwrap(), [emptied, Action::Delete]);
}

#[test]
fn kw_3_weights_decide_between_stages() {
    let stage = |name: &str, weight: i64| {
        json!({"apiVersion": API_VERSION, "kind": "Stage", "metadata": {"name": name}, "spec": {
            "resourceRef": {"kind": "Pod"}, "selector": {}, "weight": weight,
            "weightFrom": {"expressionFrom": format!(".metadata.annotations[\"{name}\"]")}}})
    };
    let mut kwok = Kwok::default();
    kwok.add(&stage("a", 1)).unwrap();
    kwok.add(&stage("b", 3)).unwrap();
    let chosen = |annotations: Value, drawn: f64| {
        let object = pod(|pod| pod["metadata"]["annotations"] = annotations);
        choose(kwok.of_pods(), &object, drawn).unwrap().name.clone()
    };
    assert_eq!((chosen(json!({}), 0.2), chosen(json!({}), 0.3)), ("a".into(), "b".into()));
    assert_eq!(chosen(json!({"b": "0"}), 0.99), "a");
    assert_eq!(chosen(json!({"a": "0", "b": "0"}), 0.99), "b", "all are equal where none has a weight");
}

#[test]
fn kw_4_rules_about_containers_and_usage_are_data() {
    let mut kwok = Kwok::default();
    for object in [
        json!({"kind": "ClusterLogs", "metadata": {"name": "l"}, "spec": {"selector": {"matchNamespaces": ["d"]},
            "logs": [{"containers": ["c"], "logsFile": "/tmp/log", "previousLogsFile": "/tmp/old", "follow": true}]}}),
        json!({"kind": "Attach", "metadata": {"name": "p", "namespace": "d"},
            "spec": {"attaches": [{"logsFile": "/tmp/log"}]}}),
        json!({"kind": "PortForward", "metadata": {"name": "p", "namespace": "d"},
            "spec": {"forwards": [{"ports": [80], "target": {"port": 9000, "address": "localhost"}}]}}),
        json!({"kind": "ResourceUsage", "metadata": {"name": "p", "namespace": "d"},
            "spec": {"usages": [{"usage": {"cpu": {"value": "10m"}, "memory": {"expression": "Quantity(\"1Mi\")"}}}]}}),
    ] {
        kwok.add(&object).unwrap_or_else(|why| panic!("{object}: {why}"));
    }
    let named = |namespace: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": namespace}})).unwrap()
    };
    let rules = kwok.rules_of(&named("d"));
    assert!(matches!(&rules.logs[0].log, LogContent::File { current, .. } if current.ends_with("log")));
    assert_eq!((rules.logs[0].follows, rules.attaches.len()), (true, 1));
    assert!(matches!(rules.forwards[0].answer, PortAnswer::Target(target) if target.port() == 9000));
    assert_eq!(kwok.rules_of(&named("e")), PodRules::default());
    let usage = &kwok.usages()[0];
    assert!(usage.reach.includes(&named("d")));
    assert_eq!(usage.usages[0].usage["cpu"].amount(&named("d"), "c", jiff::Timestamp::UNIX_EPOCH), Some(0.01));
}

#[test]
fn kw_5_what_is_not_simulated_is_refused_by_name() {
    let stage = |spec: &str| format!("apiVersion: {API_VERSION}\nkind: Stage\nmetadata: {{name: s}}\nspec: {spec}\n");
    let other = |kind: &str, spec: &str| {
        format!("apiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {{name: s}}\nspec: {spec}\n")
    };
    for (text, words) in [
        (
            stage("{resourceRef: {apiGroup: apps/v1, kind: Deployment}}"),
            "Stage \"s\": it is about Deployment of apps/v1",
        ),
        (stage("{resourceRef: {kind: Pod}, nex: {}}"), "nex"),
        (stage("{resourceRef: {kind: Pod}, selector: {matchExpressions: [{cel: {expression: x}}]}}"), "CEL"),
        (
            stage("{resourceRef: {kind: Pod}, selector: {matchExpressions: [{key: 'repeat(.)', operator: Exists}]}}"),
            "repeat",
        ),
        (stage("{resourceRef: {kind: Pod}, selector: {matchExpressions: [{key: .a, operator: In}]}}"), "needs values"),
        (stage("{resourceRef: {kind: Pod}, selector: {matchExpressions: [{key: .a, operator: Near}]}}"), "Near"),
        (stage("{resourceRef: {kind: Pod}, next: {statusTemplate: '{{ foo }}'}}"), "foo"),
        (stage("{resourceRef: {kind: Pod}, next: {statusTemplate: '{{ if }}'}}"), "template"),
        (stage("{resourceRef: {kind: Pod}, next: {statusTemplate: '{{ range .a }}'}}"), "end"),
        (stage("{resourceRef: {kind: Pod}, steps: [{apply: {template: x}}]}"), "apply"),
        (other("Exec", "{execs: [{local: {}}]}"), "Exec \"s\""),
        (other("PortForward", "{forwards: [{target: {port: 1, address: 10.0.0.1}}]}"), "10.0.0.1"),
        (other("PortForward", "{forwards: [{command: [socat]}]}"), "command"),
        (other("Logs", "{logs: [{logFile: x}]}"), "logFile"),
        (other("ResourceUsage", "{usages: [{usage: {cpu: {}}}]}"), "cpu"),
        (other("Metric", "{path: /metrics, metrics: []}"), "Metric \"s\": metrics of kubelets are not served"),
        (other("Thing", "{}"), "Thing"),
        ("apiVersion: apps/v1\nkind: Deployment\n".to_owned(), "Deployment of apps/v1"),
        ("seed: 1\n---\nseed: 2\n".to_owned(), "two documents"),
    ] {
        let why = Stages::from_text(&text).unwrap_err();
        assert!(why.contains(words), "{text}: {why}");
    }
}

#[test]
fn kw_4_a_custom_resource_cannot_make_the_server_read_its_own_files() {
    let mut kwok = Kwok::default();
    for (kind, field) in
        [("Logs", "logs"), ("ClusterLogs", "logs"), ("Attach", "attaches"), ("ClusterAttach", "attaches")]
    {
        let object = json!({"kind": kind, "metadata": {"name": "p", "namespace": "d"},
            "spec": {field: [{"logsFile": "/etc/shadow"}]}});
        let why = kwok.add_from_server(&object).unwrap_err();
        assert_eq!(
            why,
            format!("{kind} \"p\": files of this host are read only if the object is in the file of --stages")
        );
    }
    let forward = json!({"kind": "PortForward", "metadata": {"name": "p", "namespace": "d"},
        "spec": {"forwards": [{"ports": [80], "target": {"port": 9000, "address": "localhost"}}]}});
    kwok.add_from_server(&forward).unwrap();
}

#[test]
fn kw_8_values_of_templates_are_bounded() {
    let render = |text: &str| super::template::Template::parse(text).unwrap().render(&json!({"a": "x"}), &Somewhere);
    let repeated = |first: &str, step: &str, count: usize| format!("{{{{$x := {first}}}}}{}", step.repeat(count));
    for step in [
        "{{$x = print $x $x}}",
        "{{$x = list $x $x}}",
        "{{$x = list $x}}",
        "{{$x = dict \"a\" $x \"b\" $x}}",
        "{{$x = replace \"x\" $x $x}}",
    ] {
        assert!(render(&repeated("\"xx\"", step, 3)).is_ok(), "{step}");
        let refused = render(&repeated("\"xx\"", step, 100));
        assert!(refused.is_err() || step.contains("replace"), "{step}");
    }
    let large = "{{$x = print $x $x}}".repeat(18);
    assert!(render(&format!("{{{{$x := .a}}}}{large}{{{{print {}}}}}", "$x ".repeat(1000))).is_err());
    let declared: String = (0..1000).map(|number| format!("{{{{$y{number} := $x}}}}")).collect();
    assert!(render(&format!("{{{{$x := .a}}}}{large}{declared}")).is_err());
}
