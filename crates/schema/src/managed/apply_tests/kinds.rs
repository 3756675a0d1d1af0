//! Apply over the kinds, as a table: the configurations that two managers apply in turn, the resulting field, and the
//! `managedFields` of both; or the conflict.
//!
//! The expectations follow from the rules and from the declarations of the published kinds, not from a recording of a genuine
//! server: the kinds declare which lists are maps (and by which keys), sets or atomic, and which maps and structs are atomic; an
//! applier owns the leaves that it states, an item of a list with its own `.`, an atomic part as one field; fields that it no
//! longer states and no other manager owns are removed; another value for a field of another manager is a conflict. Recordings
//! also show that a scale target is one field in the first version of the autoscaler and several in the second.

use super::*;

enum Wanted {
    /// The value at a path, and `fieldsV1` of the first and of the second.
    Is(&'static str, Value, Value, Value),
    /// The second apply conflicts with the first at this path.
    Conflict(String),
}
use Wanted::{Conflict, Is};

struct Case {
    name: &'static str,
    kind: (&'static str, &'static str),
    first: Value,
    second: Value,
    wanted: Wanted,
}

/// Runs each case with "a" as the first manager and `second` as the other, and the whole table before it fails.
#[track_caller]
fn check_table(second: &str, cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for case in cases {
        let name = case.name;
        let mut scenario = Scenario::new(case.kind.0, case.kind.1);
        if let Err(error) = scenario.try_apply("a", &case.first, false) {
            wrong.push(format!("{name}: first: {}", error.to_status().message));
            continue;
        }
        match (scenario.try_apply(second, &case.second, false), case.wanted) {
            (Ok(()), Is(at, value, first, other)) => {
                let found = (scenario.at(at), scenario.owns("a"), scenario.owns(second));
                if found != (value, first, other) {
                    wrong.push(format!("{name}: {} owned as {} and {}", found.0, found.1, found.2));
                }
            }
            (Err(error), Conflict(path)) => {
                let message = error.to_status().message;
                if message != format!("Apply failed with 1 conflict: conflict with \"a\": {path}") {
                    wrong.push(format!("{name}: {message}"));
                }
            }
            (Ok(()), Conflict(_)) => wrong.push(format!("{name}: accepted")),
            (Err(error), Is(..)) => wrong.push(format!("{name}: {}", error.to_status().message)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

#[test]
fn lists_that_are_maps() {
    check_table(
        "b",
        vec![
            Case {
                name: "ports of a service, by number and protocol",
                kind: ("v1", "Service"),
                first: json!({"spec": {"ports": [{"port": 53, "protocol": "UDP", "name": "u"}]}}),
                second: json!({"spec": {"ports": [{"port": 53, "protocol": "TCP", "name": "t"}]}}),
                wanted: Is(
                    "/spec/ports/1/name",
                    json!("t"),
                    json!({"f:spec": {"f:ports": {"k:{\"port\":53,\"protocol\":\"UDP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}}}}),
                    json!({"f:spec": {"f:ports": {"k:{\"port\":53,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}}}}),
                ),
            },
            Case {
                name: "a port of a service without its protocol is the one over TCP",
                kind: ("v1", "Service"),
                first: json!({"spec": {"ports": [{"port": 80, "name": "h"}]}}),
                second: json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "x"}]}}),
                wanted: Conflict(".spec.ports[port=80,protocol=\"TCP\"].name".into()),
            },
            Case {
                name: "references of a service account, by name",
                kind: ("v1", "ServiceAccount"),
                first: json!({"secrets": [{"name": "a"}]}),
                second: json!({"secrets": [{"name": "b"}]}),
                wanted: Is(
                    "/secrets",
                    json!([{"name": "a"}, {"name": "b"}]),
                    json!({"f:secrets": {"k:{\"name\":\"a\"}": {}}}),
                    json!({"f:secrets": {"k:{\"name\":\"b\"}": {}}}),
                ),
            },
            Case {
                name: "owners, by uid",
                kind: ("v1", "Secret"),
                first: json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]}}),
                second: json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "2"}]}}),
                wanted: Is(
                    "/metadata/ownerReferences/1/name",
                    json!("q"),
                    json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"1\"}": {}}}}),
                    json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"2\"}": {}}}}),
                ),
            },
            Case {
                name: "an owner is one field",
                kind: ("v1", "Secret"),
                first: json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]}}),
                second: json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}]}}),
                wanted: Conflict(".metadata.ownerReferences[uid=\"1\"]".into()),
            },
            Case {
                name: "environment of a stateful set, by name",
                kind: ("apps/v1", "StatefulSet"),
                first: json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}}}}),
                second: json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "2"}]}]}}}}),
                wanted: Conflict(".spec.template.spec.containers[name=\"c\"].env[name=\"A\"].value".into()),
            },
            Case {
                name: "mounts of a daemon set, by path",
                kind: ("apps/v1", "DaemonSet"),
                first: json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/a"}]}]}}}}),
                second: json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "volumeMounts": [{"name": "w", "mountPath": "/a"}]}]}}}}),
                wanted: Conflict(
                    ".spec.template.spec.containers[name=\"c\"].volumeMounts[mountPath=\"/a\"].name".into(),
                ),
            },
            Case {
                name: "volumes of a job, by name",
                kind: ("batch/v1", "Job"),
                first: json!({"spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}}}),
                second: json!({"spec": {"template": {"spec": {"volumes": [{"name": "w", "hostPath": {"path": "/x"}}]}}}}),
                wanted: Is(
                    "/spec/template/spec/volumes",
                    json!([{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/x"}}]),
                    json!({"f:spec": {"f:template": {"f:spec": {"f:volumes": {"k:{\"name\":\"v\"}": {".": {}, "f:emptyDir": {}, "f:name": {}}}}}}}),
                    json!({"f:spec": {"f:template": {"f:spec": {"f:volumes": {"k:{\"name\":\"w\"}": {".": {}, "f:hostPath": {"f:path": {}}, "f:name": {}}}}}}}),
                ),
            },
            Case {
                name: "containers of a cron job, by name",
                kind: ("batch/v1", "CronJob"),
                first: json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "1"}]}}}}}}),
                second: json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "2"}]}}}}}}),
                wanted: Conflict(".spec.jobTemplate.spec.template.spec.containers[name=\"c\"].image".into()),
            },
            Case {
                name: "spread of a pod, by topology and refusal",
                kind: ("v1", "Pod"),
                first: json!({"spec": {"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}]}}),
                second: json!({"spec": {"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 2}]}}),
                wanted: Is(
                    "/spec/topologySpreadConstraints/1/maxSkew",
                    json!(2),
                    json!({"f:spec": {"f:topologySpreadConstraints": {"k:{\"topologyKey\":\"z\",\"whenUnsatisfiable\":\"DoNotSchedule\"}": {".": {}, "f:maxSkew": {}, "f:topologyKey": {}, "f:whenUnsatisfiable": {}}}}}),
                    json!({"f:spec": {"f:topologySpreadConstraints": {"k:{\"topologyKey\":\"z\",\"whenUnsatisfiable\":\"ScheduleAnyway\"}": {".": {}, "f:maxSkew": {}, "f:topologyKey": {}, "f:whenUnsatisfiable": {}}}}}),
                ),
            },
            Case {
                name: "webhooks, by name",
                kind: (ADMISSION, "MutatingWebhookConfiguration"),
                first: json!({"webhooks": [{"name": "a.e.io", "timeoutSeconds": 1}]}),
                second: json!({"webhooks": [{"name": "a.e.io", "timeoutSeconds": 2}]}),
                wanted: Conflict(".webhooks[name=\"a.e.io\"].timeoutSeconds".into()),
            },
            Case {
                name: "different fields of one webhook",
                kind: (ADMISSION, "ValidatingWebhookConfiguration"),
                first: json!({"webhooks": [{"name": "a.e.io", "timeoutSeconds": 1}]}),
                second: json!({"webhooks": [{"name": "a.e.io", "failurePolicy": "Ignore"}]}),
                wanted: Is(
                    "/webhooks/0/failurePolicy",
                    json!("Ignore"),
                    json!({"f:webhooks": {"k:{\"name\":\"a.e.io\"}": {".": {}, "f:name": {}, "f:timeoutSeconds": {}}}}),
                    json!({"f:webhooks": {"k:{\"name\":\"a.e.io\"}": {".": {}, "f:failurePolicy": {}, "f:name": {}}}}),
                ),
            },
        ],
    );
}

#[test]
fn sets() {
    check_table(
        "b",
        vec![
            Case {
                name: "ranges of a node",
                kind: ("v1", "Node"),
                first: json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}}),
                second: json!({"spec": {"podCIDRs": ["fd00::/64"]}}),
                wanted: Is(
                    "/spec/podCIDRs",
                    json!(["10.0.0.0/24", "fd00::/64"]),
                    json!({"f:spec": {"f:podCIDRs": {"v:\"10.0.0.0/24\"": {}}}}),
                    json!({"f:spec": {"f:podCIDRs": {"v:\"fd00::/64\"": {}}}}),
                ),
            },
            Case {
                name: "finalizers of a claim, one in common",
                kind: ("v1", "PersistentVolumeClaim"),
                first: json!({"metadata": {"finalizers": ["e.io/a", "e.io/b"]}}),
                second: json!({"metadata": {"finalizers": ["e.io/b"]}}),
                wanted: Is(
                    "/metadata/finalizers",
                    json!(["e.io/a", "e.io/b"]),
                    json!({"f:metadata": {"f:finalizers": {"v:\"e.io/a\"": {}, "v:\"e.io/b\"": {}}}}),
                    json!({"f:metadata": {"f:finalizers": {"v:\"e.io/b\"": {}}}}),
                ),
            },
        ],
    );
}

#[test]
fn atomic_lists() {
    let cases = [
        ("taints", ("v1", "Node"), "/spec/taints", json!([{"key": "a", "effect": "NoSchedule"}]), json!([])),
        (
            "finalizers of a namespace",
            ("v1", "Namespace"),
            "/spec/finalizers",
            json!(["kubernetes"]),
            json!(["e.io/a"]),
        ),
        ("pull secrets", ("v1", "ServiceAccount"), "/imagePullSecrets", json!([{"name": "a"}]), json!([{"name": "b"}])),
        ("modes of a volume", ("v1", "PersistentVolume"), "/spec/accessModes", json!(["A"]), json!(["A", "B"])),
        ("modes of a claim", ("v1", "PersistentVolumeClaim"), "/spec/accessModes", json!(["A"]), json!(["B"])),
        ("limits", ("v1", "LimitRange"), "/spec/limits", json!([{"type": "Pod"}]), json!([{"type": "Container"}])),
        ("scopes of a quota", ("v1", "ResourceQuota"), "/spec/scopes", json!(["BestEffort"]), json!(["NotBestEffort"])),
        ("sources of a service", ("v1", "Service"), "/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"]), json!([])),
        ("tolerations", ("v1", "Pod"), "/spec/tolerations", json!([{"key": "a"}]), json!([{"key": "b"}])),
        (
            "claims of a set",
            ("apps/v1", "StatefulSet"),
            "/spec/volumeClaimTemplates",
            json!([{"metadata": {"name": "a"}}]),
            json!([]),
        ),
        (
            "ingress rules",
            ("networking.k8s.io/v1", "Ingress"),
            "/spec/rules",
            json!([{"host": "a"}]),
            json!([{"host": "b"}]),
        ),
        ("certificates", ("networking.k8s.io/v1", "Ingress"), "/spec/tls", json!([{"secretName": "a"}]), json!([])),
        ("policy rules", ("networking.k8s.io/v1", "NetworkPolicy"), "/spec/egress", json!([{}]), json!([])),
        (
            "metrics",
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
            "/spec/metrics",
            json!([{"type": "A"}]),
            json!([{"type": "B"}]),
        ),
        ("topologies", ("storage.k8s.io/v1", "StorageClass"), "/allowedTopologies", json!([{}]), json!([])),
        (
            "subjects",
            (RBAC, "RoleBinding"),
            "/subjects",
            json!([{"kind": "User", "name": "a"}]),
            json!([{"kind": "User", "name": "b"}]),
        ),
        (
            "rules of a cluster role",
            (RBAC, "ClusterRole"),
            "/rules",
            json!([{"verbs": ["get"]}]),
            json!([{"verbs": ["list"]}]),
        ),
        (
            "versions",
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            "/spec/versions",
            json!([{"name": "v1"}]),
            json!([{"name": "v2"}]),
        ),
        (
            "endpoints",
            ("discovery.k8s.io/v1", "EndpointSlice"),
            "/endpoints",
            json!([{"addresses": ["1.1.1.1"]}]),
            json!([]),
        ),
    ];
    check_table(
        "b",
        cases.into_iter().map(|(name, kind, path, first, second)| one_field(name, kind, path, first, second)).collect(),
    );
}

#[test]
fn atomic_maps() {
    let labels = |key: &str| json!({"matchLabels": {key: "1"}});
    let cases = [
        ("selector of a service", ("v1", "Service"), "/spec/selector", json!({"a": "1"}), json!({"b": "1"})),
        ("node selector", ("v1", "Pod"), "/spec/nodeSelector", json!({"a": "1"}), json!({"b": "1"})),
        ("selector of a daemon set", ("apps/v1", "DaemonSet"), "/spec/selector", labels("a"), labels("b")),
        ("selector of a replica set", ("apps/v1", "ReplicaSet"), "/spec/selector", labels("a"), labels("b")),
        ("selector of a budget", ("policy/v1", "PodDisruptionBudget"), "/spec/selector", labels("a"), labels("b")),
        (
            "selector of a policy",
            ("networking.k8s.io/v1", "NetworkPolicy"),
            "/spec/podSelector",
            labels("a"),
            labels("b"),
        ),
        ("role referred to", (RBAC, "ClusterRoleBinding"), "/roleRef", json!({"name": "a"}), json!({"name": "b"})),
        ("object of an event", ("v1", "Event"), "/involvedObject", json!({"name": "a"}), json!({"name": "b"})),
        (
            "scale target, in the old version",
            ("autoscaling/v1", "HorizontalPodAutoscaler"),
            "/spec/scaleTargetRef",
            json!({"name": "a"}),
            json!({"name": "b"}),
        ),
        // The newer version does not declare it atomic.
        (
            "scale target",
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
            "/spec/scaleTargetRef/name",
            json!("a"),
            json!("b"),
        ),
        (
            "source of a claim",
            ("v1", "PersistentVolumeClaim"),
            "/spec/dataSource",
            json!({"name": "a"}),
            json!({"name": "b"}),
        ),
    ];
    check_table(
        "b",
        cases.into_iter().map(|(name, kind, path, first, second)| one_field(name, kind, path, first, second)).collect(),
    );
}

/// Two managers that state a part otherwise conflict on the part as a whole.
fn one_field(
    name: &'static str,
    kind: (&'static str, &'static str),
    path: &'static str,
    first: Value,
    second: Value,
) -> Case {
    let at =
        |value: Value| path.rsplit('/').filter(|part| !part.is_empty()).fold(value, |value, part| json!({part: value}));
    Case { name, kind, first: at(first), second: at(second), wanted: Conflict(path.replace('/', ".")) }
}

#[test]
fn granular_maps() {
    let cases = [
        ("bytes of a secret", ("v1", "Secret"), "/data", json!("AA=="), json!("AQ==")),
        ("text of a map", ("v1", "ConfigMap"), "/data", json!("1"), json!("2")),
        ("labels", ("v1", "Namespace"), "/metadata/labels", json!("1"), json!("2")),
        ("annotations", ("scheduling.k8s.io/v1", "PriorityClass"), "/metadata/annotations", json!("1"), json!("2")),
        ("hard limits", ("v1", "ResourceQuota"), "/spec/hard", json!("1"), json!("2")),
        ("capacity of a volume", ("v1", "PersistentVolume"), "/spec/capacity", json!("1"), json!("2")),
        ("requests of a claim", ("v1", "PersistentVolumeClaim"), "/spec/resources/requests", json!("1"), json!("2")),
        ("parameters of a class", ("storage.k8s.io/v1", "StorageClass"), "/parameters", json!("1"), json!("2")),
    ];
    let at = |path: &str, leaf: Value| {
        path.rsplit('/').filter(|part| !part.is_empty()).fold(leaf, |value, part| json!({part: value}))
    };
    let fields = |path: &str, key: &str| at(&path.replace('/', "/f:"), json!({format!("f:{key}"): {}}));
    let mut table = Vec::new();
    for (name, kind, path, one, two) in cases {
        table.push(Case {
            name,
            kind,
            first: at(path, json!({"k": one})),
            second: at(path, json!({"l": two})),
            wanted: Is(path, json!({"k": one, "l": two}), fields(path, "k"), fields(path, "l")),
        });
    }
    check_table("b", table);
}

#[test]
fn an_applier_states_again() {
    check_table(
        "a",
        vec![
            Case {
                name: "a port goes, one comes",
                kind: ("v1", "Service"),
                first: json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}}),
                second: json!({"spec": {"ports": [{"port": 81, "protocol": "TCP"}]}}),
                wanted: again(
                    "/spec/ports/0/port",
                    json!(81),
                    json!({"f:spec": {"f:ports": {"k:{\"port\":81,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}}}}}),
                ),
            },
            Case {
                name: "a lease changes hands",
                kind: ("coordination.k8s.io/v1", "Lease"),
                first: json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 5}}),
                second: json!({"spec": {"holderIdentity": "b"}}),
                wanted: again("/spec", json!({"holderIdentity": "b"}), json!({"f:spec": {"f:holderIdentity": {}}})),
            },
            Case {
                name: "an atomic list changes",
                kind: (RBAC, "Role"),
                first: json!({"rules": [{"verbs": ["get"]}]}),
                second: json!({"rules": [{"verbs": ["list"]}]}),
                wanted: again("/rules", json!([{"verbs": ["list"]}]), json!({"f:rules": {}})),
            },
            Case {
                name: "an atomic map changes",
                kind: ("v1", "Service"),
                first: json!({"spec": {"selector": {"a": "1", "b": "1"}}}),
                second: json!({"spec": {"selector": {"b": "1"}}}),
                wanted: again("/spec/selector", json!({"b": "1"}), json!({"f:spec": {"f:selector": {}}})),
            },
            Case {
                name: "a set changes",
                kind: ("v1", "PersistentVolume"),
                first: json!({"metadata": {"finalizers": ["e.io/a", "e.io/b"]}}),
                second: json!({"metadata": {"finalizers": ["e.io/c", "e.io/b"]}}),
                wanted: again(
                    "/metadata/finalizers",
                    json!(["e.io/c", "e.io/b"]),
                    json!({"f:metadata": {"f:finalizers": {"v:\"e.io/b\"": {}, "v:\"e.io/c\"": {}}}}),
                ),
            },
            Case {
                name: "a granular map loses a key",
                kind: ("v1", "Secret"),
                first: json!({"data": {"a": "AA==", "b": "AA=="}}),
                second: json!({"data": {"b": "AA=="}}),
                wanted: again("/data", json!({"b": "AA=="}), json!({"f:data": {"f:b": {}}})),
            },
            Case {
                name: "a webhook goes",
                kind: (ADMISSION, "ValidatingWebhookConfiguration"),
                first: json!({"webhooks": [{"name": "a.e.io"}, {"name": "b.e.io"}]}),
                second: json!({"webhooks": [{"name": "b.e.io"}]}),
                wanted: again(
                    "/webhooks/0/name",
                    json!("b.e.io"),
                    json!({"f:webhooks": {"k:{\"name\":\"b.e.io\"}": {".": {}, "f:name": {}}}}),
                ),
            },
        ],
    );
}

/// The result of two applies of the same manager.
fn again(at: &'static str, value: Value, owned: Value) -> Wanted {
    Is(at, value, owned.clone(), owned)
}
