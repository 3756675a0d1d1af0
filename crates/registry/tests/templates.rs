//! Pods that are sent with the same spec again and again: each is stored, refused and warned about as the first was. (Debug
//! builds also compare what is skipped with what it would have given.)

use std::sync::Arc;

use bytes::Bytes;
use machinery::Status;
use machinery::json::{self, Value, json};
use machinery::media::MediaType;
use machinery::options::{CreateOptions, FieldValidation, GetOptions};
use registry::{Body, Context, Form, Registry, Settings, Target, View, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

/// How often a pod is sent: a spec is known from the third time on, and settled after that.
const TIMES: usize = 6;

struct World {
    registry: Arc<Registry>,
}

struct Made {
    pod: Result<Value, Status>,
    warnings: Vec<String>,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        World { registry: Registry::start(store, Settings::default()).await.unwrap() }
    }

    fn target(&self, plural: &str, name: Option<&str>) -> Target {
        let kind = Arc::clone(self.registry.kinds().get("", "v1", plural).expect("a served kind"));
        Target { kind, namespace: Some("default".to_owned()), name: name.map(str::to_owned), subresource: None }
    }

    async fn send(&self, plural: &str, body: String, options: &CreateOptions) -> Made {
        let ctx = Context { user_agent: "maker/1".to_owned(), ..Context::default() };
        let body = Body { bytes: Bytes::from(body), media: MediaType::Json };
        let made =
            self.registry.create(WriteRequest { target: &self.target(plural, None), options, ctx: &ctx }, &body).await;
        Made { pod: made.map(|outcome| shown(&outcome.view)), warnings: ctx.warnings.take() }
    }

    /// Sends a pod that is called `pod-<number>`.
    async fn pod(&self, number: usize, metadata: &str, spec: &str) -> Made {
        self.send("pods", body(number, metadata, spec), &CreateOptions::default()).await
    }

    async fn get(&self, number: usize) -> Value {
        let target = self.target("pods", Some(&format!("pod-{number}")));
        shown(&self.registry.get(&target, &GetOptions::default()).await.unwrap())
    }
}

fn body(number: usize, metadata: &str, spec: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{number}"{metadata}}},"spec":{spec}}}"#)
}

fn shown(view: &View) -> Value {
    let text = view.render(&Form::default(), jiff::Timestamp::UNIX_EPOCH).unwrap();
    let text: Vec<u8> = text.0.iter().flat_map(|segment| segment.to_vec()).collect();
    json::from_slice(&text).unwrap()
}

/// What pods of one spec have in common, as text: also the order of members counts.
fn common(mut pod: Value) -> String {
    let metadata = pod["metadata"].as_object_mut().unwrap();
    for own in ["name", "uid", "resourceVersion", "creationTimestamp"] {
        assert!(metadata.shift_remove(own).is_some(), "{own}");
    }
    for manager in metadata.get_mut("managedFields").unwrap().as_array_mut().unwrap() {
        manager.as_object_mut().unwrap().shift_remove("time");
    }
    for condition in pod["status"].get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        condition.as_object_mut().unwrap().shift_remove("lastTransitionTime");
    }
    pod.to_string()
}

/// Specs with all kinds of members, in the order in which a client might write them.
fn specs() -> Vec<Value> {
    let container = json!({"name": "main", "image": "registry.example/team/service:1.4.2"});
    vec![
        json!({"containers": [container], "nodeName": "node-1", "terminationGracePeriodSeconds": 5}),
        json!({
            "volumes": [{"name": "config", "configMap": {"name": "service"}}, {"name": "empty", "emptyDir": {}},
                        {"name": "secret", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}}],
            "containers": [{
                "volumeMounts": [{"name": "config", "mountPath": "/etc/service"}], "name": "main", "image": "nginx",
                "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "LEVEL", "value": "info"}, {"name": "EMPTY", "value": ""}],
                "resources": {"limits": {"memory": "0.5Gi", "cpu": "1500m"}, "requests": {"cpu": "1.5"}},
                "ports": [{"containerPort": 8080, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
                "readinessProbe": {"httpGet": {"port": 8080, "path": "/ready"}},
                "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3},
                "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}, "args": [], "command": null,
                "securityContext": {},
            }],
            "initContainers": [{"name": "first", "image": "busybox:1", "restartPolicy": "Always"}],
            "tolerations": [{"operator": "Exists", "key": "a", "effect": "NoSchedule"}],
            "imagePullSecrets": [], "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "a"}}}],
        }),
        json!({"hostNetwork": true, "restartPolicy": "Never", "priorityClassName": "system-node-critical",
               "containers": [{"name": "a", "image": "i:1", "ports": [{"containerPort": 1}]}, {"name": "b", "image": "é\u{2028}x"}]}),
        json!({"schedulingGates": [{"name": "example.com/wait"}], "serviceAccountName": "robot",
               "securityContext": {"runAsUser": 0, "sysctls": []}, "containers": [container], "overhead": {}}),
    ]
}

#[tokio::test]
async fn each_pod_of_a_spec_is_stored_as_the_first_was() {
    let world = World::new().await;
    for (which, spec) in specs().into_iter().enumerate() {
        let (spec, mut first) = (spec.to_string(), None);
        for number in which * TIMES..(which + 1) * TIMES {
            // Labels and annotations are each pod's own.
            let labels = format!(r#","labels":{{"b":"{number}","a":"x"}},"annotations":{{"note":"n{number}"}}"#);
            let made = world.pod(number, &labels, &spec).await;
            let pod = made.pod.unwrap_or_else(|status| panic!("{spec}: {status}"));
            assert_eq!(made.warnings, Vec::<String>::new());
            assert_eq!(pod["metadata"]["labels"]["b"], *number.to_string());
            assert_eq!(pod["metadata"]["annotations"], json!({"note": format!("n{number}")}));
            assert_eq!(world.get(number).await, pod);
            let alone = World::new().await.pod(number, &labels, &spec).await.pod.unwrap();
            assert_eq!(common(pod.clone()), common(alone), "what a server makes of it that never saw it");
            let mut pod = pod;
            pod["metadata"]["labels"] = Value::Null;
            pod["metadata"]["annotations"] = Value::Null;
            let common = common(pod);
            assert_eq!(*first.get_or_insert(common.clone()), common);
        }
    }
}

#[tokio::test]
async fn warnings_are_given_each_time() {
    let world = World::new().await;
    let negative =
        r#"{"terminationGracePeriodSeconds":-1,"containers":[{"name":"main","image":"registry.example/a:1"}]}"#;
    let unknown = r#"{"colour":"red","containers":[{"name":"main","image":"registry.example/team/service:1.4.2"}]}"#;
    let twice = r#"{"nodeName":"a","nodeName":"b","containers":[{"name":"main","image":"registry.example/team/a:1"}]}"#;
    let plain = r#"{"nodeName":"b","containers":[{"name":"main","image":"registry.example/team/service:1.4.2"}]}"#;
    // This spec has no warnings, until it is in a pod that has one.
    for number in 1000..1000 + TIMES {
        assert_eq!(world.pod(number, "", plain).await.warnings, Vec::<String>::new());
    }
    let dead = r#","annotations":{"security.alpha.kubernetes.io/sysctls":"x"}"#;
    for (which, (metadata, spec, about)) in [
        ("", negative, "spec.terminationGracePeriodSeconds"),
        ("", unknown, r#"unknown field "spec.colour""#),
        ("", twice, r#"duplicate field "spec.nodeName""#),
        (dead, plain, "security.alpha.kubernetes.io/sysctls"),
        (r#","colour":"red""#, plain, r#"unknown field "metadata.colour""#),
    ]
    .into_iter()
    .enumerate()
    {
        for number in which * TIMES..(which + 1) * TIMES {
            let made = world.pod(number, metadata, spec).await;
            assert!(made.pod.is_ok(), "{spec}");
            assert!(matches!(&*made.warnings, [one] if one.contains(about)), "{about}: {:?}", made.warnings);
        }
    }
}

#[tokio::test]
async fn refusals_are_given_each_time_and_to_the_pod_they_concern() {
    let world = World::new().await;
    let plain = r#"{"nodeName":"b","containers":[{"name":"main","image":"registry.example/team/service:1.4.2"}]}"#;
    let invalid = r#"{"nodeName":"b","containers":[{"name":"Main","image":"registry.example/team/service:1.4.2"}]}"#;
    for number in 0..TIMES {
        assert!(world.pod(number, "", plain).await.pod.is_ok());
        let refused = world.pod(number, "", plain).await.pod.unwrap_err();
        assert_eq!(refused.reason.as_deref(), Some("AlreadyExists"));
        let refused = world.pod(100 + number, r#","labels":{"a":"/"}"#, plain).await.pod.unwrap_err();
        assert!(refused.message.contains("metadata.labels"), "{refused}");
        let refused = world.pod(100 + number, "", invalid).await.pod.unwrap_err();
        assert!(refused.message.contains("spec.containers[0].name"), "{refused}");
        let mirror = r#","annotations":{"controller.kubernetes.io/pod-deletion-cost":"much"}"#;
        let refused = world.pod(100 + number, mirror, plain).await.pod.unwrap_err();
        assert!(refused.message.contains("pod-deletion-cost"), "{refused}");
        let strict = CreateOptions { field_validation: FieldValidation::Strict, ..CreateOptions::default() };
        let refused = world.send("pods", body(100 + number, r#","colour":1"#, plain), &strict).await.pod.unwrap_err();
        assert!(refused.message.contains("strict decoding error"), "{refused}");
        for broken in [plain.replace('}', ""), format!("{plain}}}"), format!("{plain},\"x\":")] {
            let refused = world.pod(100 + number, "", &broken).await.pod.unwrap_err();
            assert_eq!(refused.code, 400, "{broken}");
        }
    }
}

#[tokio::test]
async fn a_body_with_two_specs_is_read_as_the_last_says() {
    let world = World::new().await;
    let spec = |node: &str| {
        format!(r#"{{"nodeName":"{node}","containers":[{{"name":"main","image":"registry.example/team/service:1"}}]}}"#)
    };
    for number in 0..TIMES {
        assert!(world.pod(number, "", &spec("a")).await.pod.is_ok());
        // The second is written with an escape.
        let two = format!(r#"{},"sp\u0065c":{}"#, spec("a"), spec("b"));
        let made = world.pod(100 + number, "", &two).await;
        assert_eq!(made.pod.unwrap()["spec"]["nodeName"], "b");
        assert_eq!(made.warnings, [r#"duplicate field "spec""#]);
        let two = format!(
            r#"{{"kind":"Pod","sp\u0065c":{},"spec":{},"metadata":{{"name":"pod-2{number:02}"}}}}"#,
            spec("b"),
            spec("a")
        );
        let made = world.send("pods", two, &CreateOptions::default()).await;
        assert_eq!(made.pod.unwrap()["spec"]["nodeName"], "a");
        assert_eq!(made.warnings, [r#"duplicate field "spec""#]);
    }
}

#[tokio::test]
async fn a_claim_that_is_called_after_its_pod_is_judged_for_each_pod() {
    let world = World::new().await;
    let claim = r#"{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#;
    let volumes = format!(
        r#"[{{"name":"data","ephemeral":{{"volumeClaimTemplate":{claim}}}}},
            {{"name":"other","persistentVolumeClaim":{{"claimName":"pod-3-data"}}}}]"#
    );
    let spec = format!(r#"{{"volumes":{volumes},"containers":[{{"name":"main","image":"registry.example/a:1"}}]}}"#);
    for number in (4..4 + TIMES).chain([3]) {
        let made = world.pod(number, "", &spec).await;
        assert_eq!(made.pod.is_ok(), number != 3, "{:?}", made.pod);
    }
}

#[tokio::test]
async fn what_admission_adds_is_what_it_adds_now() {
    let world = World::new().await;
    let spec = r#"{"nodeName":"a","containers":[{"name":"main","image":"registry.example/team/service:1.4.2"}]}"#;
    for number in 0..TIMES {
        let pod = world.pod(number, "", spec).await.pod.unwrap();
        assert_eq!(pod["spec"]["containers"][0]["resources"], json!({}));
    }
    let limits = json!([{"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "2"}}]);
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": limits}}).to_string();
    assert!(world.send("limitranges", range, &CreateOptions::default()).await.pod.is_ok());
    for number in TIMES..2 * TIMES {
        let pod = world.pod(number, "", spec).await.pod.unwrap();
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "2"}));
        assert_eq!(pod["status"]["qosClass"], "Burstable");
    }
}

#[tokio::test]
async fn what_is_only_dry_run_is_not_stored_and_a_name_can_be_generated() {
    let world = World::new().await;
    let spec = r#"{"nodeName":"a","containers":[{"name":"main","image":"registry.example/team/service:1.4.2"}]}"#;
    let dry_run = CreateOptions { dry_run: true, ..CreateOptions::default() };
    for _ in 0..TIMES {
        let pod = world.send("pods", body(1, "", spec), &dry_run).await.pod.unwrap();
        assert_eq!(pod["spec"]["schedulerName"], "default-scheduler");
    }
    let generated = body(1, "", spec).replace(r#""name":"pod-1""#, r#""generateName":"web-""#);
    for _ in 0..TIMES {
        let pod = world.send("pods", generated.clone(), &CreateOptions::default()).await.pod.unwrap();
        assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("web-"));
    }
}
