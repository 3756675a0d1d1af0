//! Strategic merge over the kinds, as a table: an object, a patch, the resulting field, and the `managedFields` of the
//! patcher.
//!
//! The expectations follow from the rules and from the declarations of the published kinds, not from a recording of a genuine
//! server: a list merges where its kind declares a merge key and is replaced where it does not; a patch owns the leaves that it
//! added or changed, a new item or a new map with its own `.`, an atomic part as one field, and nothing for removed parts.
//! Defaults are not set here.

use super::*;
use crate::managed::{Subject, Writer, track_update};

struct Case {
    name: &'static str,
    kind: (&'static str, &'static str),
    object: Value,
    patch: Value,
    at: &'static str,
    result: Value,
    /// `fieldsV1` of the patcher; null if it owns nothing.
    owned: Value,
}

/// Returns the fields that the manager `patcher` owns after it changed `object`, which another created, to `patched`.
fn owned_by_patcher(kind: (&str, &str), object: &Value, patched: &Value, subresource: &str) -> Value {
    let version = GroupVersion::parse(kind.0).unwrap();
    let gvk = GroupVersionKind::new(version.group, version.version, kind.1);
    let ty = Types::get().kind(&gvk).unwrap();
    let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: true, convert: None };
    let mut live = object.clone();
    decode::normalise(&ty, &mut live, None).unwrap();
    let creator = Writer { manager: "creator", subresource: "", time: "2024-01-01T00:00:01Z" };
    track_update(&subject, None, &mut live, &creator);
    live["metadata"]["uid"] = json!("u");
    let mut new = patched.clone();
    new["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
    let patcher = Writer { manager: "patcher", subresource, time: "2024-01-01T00:00:02Z" };
    track_update(&subject, Some(&live), &mut new, &patcher);
    let entries = new["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().find(|entry| entry["manager"] == "patcher").map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

/// Runs the whole table before it fails, so that all broken cases are shown at once.
#[track_caller]
fn check_table(cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for Case { name, kind, mut object, patch, at, result, owned } in cases {
        let version = GroupVersion::parse(kind.0).unwrap();
        let gvk = GroupVersionKind::new(version.group, version.version, kind.1);
        let ty = Types::get().kind(&gvk).unwrap();
        let target = Target { ty: &ty, gvk: &gvk, custom: false, version: None, validation: FieldValidation::Strict };
        object["metadata"]["name"] = json!("x");
        // An object without any owner is not tracked: the creator always owns this field.
        object["metadata"]["generateName"] = json!("x-");
        let mut current = object.clone();
        decode::normalise(&ty, &mut current, None).unwrap();
        decode::name(&mut current, &gvk);
        let patched = strategic::apply(&target, &current, patch.to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{name}: refused: {}", error.to_status().message));
        let subresource = if at.starts_with("/status") { "status" } else { "" };
        let found = (
            patched.value.pointer(at).cloned().unwrap_or(Value::Null),
            owned_by_patcher(kind, &object, &patched.value, subresource),
        );
        if found != (result, owned) {
            wrong.push(format!("{name}: {} owned as {}", found.0, found.1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const WEBHOOKS: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");

/// A webhook with its required fields.
fn webhook(name: &str, url: &str) -> Value {
    json!({"name": name, "clientConfig": {"url": url}, "sideEffects": "None", "admissionReviewVersions": ["v1"]})
}

#[test]
fn lists_with_a_merge_key() {
    check_table(vec![
        Case {
            name: "references of a service account merge by name",
            kind: ("v1", "ServiceAccount"),
            object: json!({"secrets": [{"name": "a"}]}),
            patch: json!({"secrets": [{"name": "a", "namespace": "n"}]}),
            at: "/secrets",
            result: json!([{"namespace": "n", "name": "a"}]),
            // A reference to an object is one field: its type is atomic.
            owned: json!({"f:secrets": {"k:{\"name\":\"a\"}": {}}}),
        },
        Case {
            name: "a reference of a service account goes",
            kind: ("v1", "ServiceAccount"),
            object: json!({"secrets": [{"name": "a"}, {"name": "b"}]}),
            patch: json!({"secrets": [{"name": "a", "$patch": "delete"}]}),
            at: "/secrets",
            result: json!([{"name": "b"}]),
            owned: Value::Null,
        },
        Case {
            name: "owners merge by uid",
            kind: ("v1", "Secret"),
            object: json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]}}),
            patch: json!({"metadata": {"ownerReferences": [{"uid": "1", "controller": true}]}}),
            at: "/metadata/ownerReferences",
            result: json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}]),
            // An owner is one field: its type is atomic.
            owned: json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"1\"}": {}}}}),
        },
        Case {
            name: "an owner goes",
            kind: ("v1", "Secret"),
            object: json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]}}),
            patch: json!({"metadata": {"ownerReferences": [{"uid": "1", "$patch": "delete"}]}}),
            at: "/metadata/ownerReferences",
            result: Value::Null,
            owned: Value::Null,
        },
        Case {
            name: "init containers of a daemon set merge by name",
            kind: ("apps/v1", "DaemonSet"),
            object: json!({"spec": {"template": {"spec": {"initContainers": [{"name": "i", "image": "1"}], "containers": [{"name": "c"}]}}}}),
            patch: json!({"spec": {"template": {"spec": {"initContainers": [{"name": "i", "image": "2"}]}}}}),
            at: "/spec/template/spec/initContainers/0/image",
            result: json!("2"),
            owned: json!({"f:spec": {"f:template": {"f:spec": {"f:initContainers": {"k:{\"name\":\"i\"}": {"f:image": {}}}}}}}),
        },
        Case {
            name: "pull secrets of a stateful set merge by name",
            kind: ("apps/v1", "StatefulSet"),
            object: json!({"spec": {"template": {"spec": {"imagePullSecrets": [{"name": "a"}], "containers": [{"name": "c"}]}}}}),
            patch: json!({"spec": {"template": {"spec": {"imagePullSecrets": [{"name": "b"}]}}}}),
            at: "/spec/template/spec/imagePullSecrets",
            result: json!([{"name": "b"}, {"name": "a"}]),
            // A reference to an object of the same namespace is one field.
            owned: json!({"f:spec": {"f:template": {"f:spec": {"f:imagePullSecrets": {"k:{\"name\":\"b\"}": {}}}}}}),
        },
        Case {
            name: "host names of a job merge by address",
            kind: ("batch/v1", "Job"),
            object: json!({"spec": {"template": {"spec": {"hostAliases": [{"ip": "1.1.1.1", "hostnames": ["a"]}], "containers": [{"name": "c"}]}}}}),
            patch: json!({"spec": {"template": {"spec": {"hostAliases": [{"ip": "1.1.1.1", "hostnames": ["b"]}]}}}}),
            at: "/spec/template/spec/hostAliases",
            result: json!([{"ip": "1.1.1.1", "hostnames": ["b"]}]),
            owned: json!({"f:spec": {"f:template": {"f:spec": {"f:hostAliases": {"k:{\"ip\":\"1.1.1.1\"}": {"f:hostnames": {}}}}}}}),
        },
        Case {
            name: "containers of a cron job, three levels down",
            kind: ("batch/v1", "CronJob"),
            object: json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "1"}]}}}}}}),
            patch: json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "2"}]}}}}}}),
            at: "/spec/jobTemplate/spec/template/spec/containers/0/image",
            result: json!("2"),
            owned: json!({"f:spec": {"f:jobTemplate": {"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}}}}}),
        },
        Case {
            name: "devices of a container merge by path",
            kind: ("v1", "Pod"),
            object: json!({"spec": {"containers": [{"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/d"}]}]}}),
            patch: json!({"spec": {"containers": [{"name": "c", "volumeDevices": [{"name": "w", "devicePath": "/d"}]}]}}),
            at: "/spec/containers/0/volumeDevices",
            result: json!([{"name": "w", "devicePath": "/d"}]),
            owned: json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:volumeDevices": {"k:{\"devicePath\":\"/d\"}": {"f:name": {}}}}}}}),
        },
        Case {
            name: "gates of scheduling go by name",
            kind: ("v1", "Pod"),
            object: json!({"spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": "e.io/a"}, {"name": "e.io/b"}]}}),
            patch: json!({"spec": {"schedulingGates": [{"name": "e.io/a", "$patch": "delete"}]}}),
            at: "/spec/schedulingGates",
            result: json!([{"name": "e.io/b"}]),
            owned: Value::Null,
        },
        Case {
            name: "webhooks merge by name",
            kind: WEBHOOKS,
            object: json!({"webhooks": [webhook("a.e.io", "https://1"), webhook("b.e.io", "https://2")]}),
            patch: json!({"webhooks": [{"name": "b.e.io", "clientConfig": {"url": "https://3"}}]}),
            at: "/webhooks",
            result: json!([webhook("a.e.io", "https://1"), webhook("b.e.io", "https://3")]),
            owned: json!({"f:webhooks": {"k:{\"name\":\"b.e.io\"}": {"f:clientConfig": {"f:url": {}}}}}),
        },
        Case {
            name: "a webhook goes",
            kind: WEBHOOKS,
            object: json!({"webhooks": [webhook("a.e.io", "https://1"), webhook("b.e.io", "https://2")]}),
            patch: json!({"webhooks": [{"name": "a.e.io", "$patch": "delete"}]}),
            at: "/webhooks",
            result: json!([webhook("b.e.io", "https://2")]),
            owned: Value::Null,
        },
        Case {
            name: "the webhooks are put in order",
            kind: ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
            object: json!({"webhooks": [webhook("a.e.io", "https://1"), webhook("b.e.io", "https://2")]}),
            patch: json!({"$setElementOrder/webhooks": [{"name": "b.e.io"}, {"name": "a.e.io"}], "webhooks": [{"name": "b.e.io", "timeoutSeconds": 5}]}),
            at: "/webhooks/0/timeoutSeconds",
            result: json!(5),
            owned: json!({"f:webhooks": {"k:{\"name\":\"b.e.io\"}": {"f:timeoutSeconds": {}}}}),
        },
        Case {
            name: "variables of a policy merge by name",
            kind: ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
            object: json!({"spec": {"variables": [{"name": "v", "expression": "1"}]}}),
            patch: json!({"spec": {"variables": [{"name": "v", "expression": "2"}]}}),
            at: "/spec/variables",
            result: json!([{"name": "v", "expression": "2"}]),
            // A variable is one field.
            owned: json!({"f:spec": {"f:variables": {"k:{\"name\":\"v\"}": {}}}}),
        },
    ]);
}

#[test]
fn lists_of_the_status() {
    check_table(vec![
        Case {
            name: "conditions of a namespace merge by type",
            kind: ("v1", "Namespace"),
            object: json!({"status": {"conditions": [{"type": "A", "status": "False"}]}}),
            patch: json!({"status": {"conditions": [{"type": "A", "status": "True"}]}}),
            at: "/status/conditions/0/status",
            result: json!("True"),
            owned: json!({"f:status": {"f:conditions": {"k:{\"type\":\"A\"}": {"f:status": {}}}}}),
        },
        Case {
            name: "addresses of a node merge by type",
            kind: ("v1", "Node"),
            object: json!({"status": {"addresses": [{"type": "Hostname", "address": "h"}]}}),
            patch: json!({"status": {"addresses": [{"type": "InternalIP", "address": "1.1.1.1"}]}}),
            at: "/status/addresses",
            result: json!([{"type": "InternalIP", "address": "1.1.1.1"}, {"type": "Hostname", "address": "h"}]),
            owned: json!({"f:status": {"f:addresses": {"k:{\"type\":\"InternalIP\"}": {".": {}, "f:address": {}, "f:type": {}}}}}),
        },
        Case {
            name: "the addresses of a node are replaced",
            kind: ("v1", "Node"),
            object: json!({"status": {"addresses": [{"type": "Hostname", "address": "h"}]}}),
            patch: json!({"status": {"addresses": [{"$patch": "replace"}, {"type": "Hostname", "address": "g"}]}}),
            at: "/status/addresses",
            result: json!([{"type": "Hostname", "address": "g"}]),
            owned: json!({"f:status": {"f:addresses": {"k:{\"type\":\"Hostname\"}": {"f:address": {}}}}}),
        },
        Case {
            name: "images of a node are one list",
            kind: ("v1", "Node"),
            object: json!({"status": {"images": [{"names": ["a"]}]}}),
            patch: json!({"status": {"images": [{"names": ["b"]}]}}),
            at: "/status/images",
            result: json!([{"names": ["b"]}]),
            owned: json!({"f:status": {"f:images": {}}}),
        },
        Case {
            // Patches use the merge key, ownership uses the list type: they need not agree.
            name: "conditions of a job merge by type and are owned as one",
            kind: ("batch/v1", "Job"),
            object: json!({"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B", "status": "False"}]}}),
            patch: json!({"status": {"conditions": [{"type": "B", "status": "True"}]}}),
            at: "/status/conditions/1/status",
            result: json!("True"),
            owned: json!({"f:status": {"f:conditions": {}}}),
        },
        Case {
            name: "conditions of a claim merge by type",
            kind: ("v1", "PersistentVolumeClaim"),
            object: json!({"status": {"conditions": [{"type": "Resizing", "status": "True"}]}}),
            patch: json!({"status": {"conditions": [{"type": "Resizing", "$patch": "delete"}], "phase": "Bound"}}),
            at: "/status",
            result: json!({"phase": "Bound"}),
            owned: json!({"f:status": {"f:phase": {}}}),
        },
        Case {
            name: "conditions of an autoscaler merge by type",
            kind: ("autoscaling/v2", "HorizontalPodAutoscaler"),
            object: json!({"spec": {"maxReplicas": 1}, "status": {"conditions": [{"type": "AbleToScale", "status": "False"}]}}),
            patch: json!({"status": {"conditions": [{"type": "AbleToScale", "reason": "R"}]}}),
            at: "/status/conditions/0/reason",
            result: json!("R"),
            owned: json!({"f:status": {"f:conditions": {"k:{\"type\":\"AbleToScale\"}": {"f:reason": {}}}}}),
        },
        Case {
            name: "conditions of a budget merge by type",
            kind: ("policy/v1", "PodDisruptionBudget"),
            object: json!({"status": {"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "R", "message": ""}]}}),
            patch: json!({"status": {"conditions": [{"type": "DisruptionAllowed", "status": "True"}]}}),
            at: "/status/conditions/0/status",
            result: json!("True"),
            owned: json!({"f:status": {"f:conditions": {"k:{\"type\":\"DisruptionAllowed\"}": {"f:status": {}}}}}),
        },
        Case {
            // No merge key: the patch replaces the list, though ownership is by type.
            name: "conditions of a definition are replaced",
            kind: ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            object: json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}}),
            patch: json!({"status": {"conditions": [{"type": "B", "status": "False"}]}}),
            at: "/status/conditions/0/type",
            result: json!("B"),
            owned: json!({"f:status": {"f:conditions": {"k:{\"type\":\"B\"}": {"f:status": {}}}}}),
        },
        Case {
            name: "addresses of a balancer are one list",
            kind: ("v1", "Service"),
            object: json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}),
            patch: json!({"status": {"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}]}}}),
            at: "/status/loadBalancer/ingress",
            result: json!([{"ip": "2.2.2.2"}]),
            owned: json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}}),
        },
    ]);
}

#[test]
fn lists_that_are_replaced() {
    check_table(vec![
        Case {
            name: "taints",
            kind: ("v1", "Node"),
            object: json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
            patch: json!({"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}),
            at: "/spec/taints",
            result: json!([{"key": "b", "effect": "NoSchedule"}]),
            owned: json!({"f:spec": {"f:taints": {}}}),
        },
        Case {
            name: "finalizers of the content of a namespace",
            kind: ("v1", "Namespace"),
            object: json!({"spec": {"finalizers": ["kubernetes", "e.io/a"]}}),
            patch: json!({"spec": {"finalizers": ["e.io/a"]}}),
            at: "/spec/finalizers",
            result: json!(["e.io/a"]),
            owned: json!({"f:spec": {"f:finalizers": {}}}),
        },
        Case {
            name: "pull secrets of a service account",
            kind: ("v1", "ServiceAccount"),
            object: json!({"imagePullSecrets": [{"name": "a"}]}),
            patch: json!({"imagePullSecrets": [{"name": "b"}]}),
            at: "/imagePullSecrets",
            result: json!([{"name": "b"}]),
            owned: json!({"f:imagePullSecrets": {}}),
        },
        Case {
            name: "access modes of a volume",
            kind: ("v1", "PersistentVolume"),
            object: json!({"spec": {"accessModes": ["ReadWriteOnce"]}}),
            patch: json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
            at: "/spec/accessModes",
            result: json!(["ReadOnlyMany"]),
            owned: json!({"f:spec": {"f:accessModes": {}}}),
        },
        Case {
            name: "rules of an ingress",
            kind: ("networking.k8s.io/v1", "Ingress"),
            object: json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}]}}),
            patch: json!({"spec": {"rules": [{"host": "c"}]}}),
            at: "/spec/rules",
            result: json!([{"host": "c"}]),
            owned: json!({"f:spec": {"f:rules": {}}}),
        },
        Case {
            name: "rules of a network policy",
            kind: ("networking.k8s.io/v1", "NetworkPolicy"),
            object: json!({"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}}),
            patch: json!({"spec": {"ingress": [{}]}}),
            at: "/spec/ingress",
            result: json!([{}]),
            owned: json!({"f:spec": {"f:ingress": {}}}),
        },
        Case {
            name: "metrics of an autoscaler",
            kind: ("autoscaling/v2", "HorizontalPodAutoscaler"),
            object: json!({"spec": {"maxReplicas": 1, "metrics": [{"type": "Resource"}, {"type": "Pods"}]}}),
            patch: json!({"spec": {"metrics": [{"type": "Object"}]}}),
            at: "/spec/metrics",
            result: json!([{"type": "Object"}]),
            owned: json!({"f:spec": {"f:metrics": {}}}),
        },
        Case {
            name: "limits of a range",
            kind: ("v1", "LimitRange"),
            object: json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
            patch: json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
            at: "/spec/limits",
            result: json!([{"type": "Container", "max": {"cpu": "2"}}]),
            owned: json!({"f:spec": {"f:limits": {}}}),
        },
        Case {
            name: "rules of a role",
            kind: ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            object: json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            patch: json!({"rules": [{"verbs": ["list"], "nonResourceURLs": ["/x"]}]}),
            at: "/rules",
            result: json!([{"verbs": ["list"], "nonResourceURLs": ["/x"]}]),
            owned: json!({"f:rules": {}}),
        },
        Case {
            name: "subjects of a binding",
            kind: ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            object: json!({"subjects": [{"kind": "User", "name": "a"}], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}),
            patch: json!({"subjects": [{"kind": "User", "name": "b"}]}),
            at: "/subjects",
            result: json!([{"kind": "User", "name": "b"}]),
            owned: json!({"f:subjects": {}}),
        },
        Case {
            name: "short names of a definition",
            kind: ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            object: json!({"spec": {"group": "e.io", "names": {"plural": "things", "kind": "Thing", "shortNames": ["t"]}}}),
            patch: json!({"spec": {"names": {"shortNames": ["th"]}}}),
            at: "/spec/names/shortNames",
            result: json!(["th"]),
            owned: json!({"f:spec": {"f:names": {"f:shortNames": {}}}}),
        },
        Case {
            name: "endpoints of a slice",
            kind: ("discovery.k8s.io/v1", "EndpointSlice"),
            object: json!({"addressType": "IPv4", "endpoints": [{"addresses": ["1.1.1.1"]}], "ports": [{"port": 80}]}),
            patch: json!({"endpoints": [{"addresses": ["2.2.2.2"]}]}),
            at: "/endpoints/0/addresses",
            result: json!(["2.2.2.2"]),
            owned: json!({"f:endpoints": {}}),
        },
        Case {
            name: "mount options of a storage class",
            kind: ("storage.k8s.io/v1", "StorageClass"),
            object: json!({"provisioner": "p", "mountOptions": ["a", "b"]}),
            patch: json!({"mountOptions": ["c"]}),
            at: "/mountOptions",
            result: json!(["c"]),
            owned: json!({"f:mountOptions": {}}),
        },
    ]);
}

#[test]
fn sets_maps_and_single_fields() {
    check_table(vec![
        Case {
            name: "ranges of a node are a set",
            kind: ("v1", "Node"),
            object: json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}}),
            patch: json!({"spec": {"podCIDRs": ["fd00::/64"]}}),
            at: "/spec/podCIDRs",
            result: json!(["fd00::/64", "10.0.0.0/24"]),
            owned: json!({"f:spec": {"f:podCIDRs": {"v:\"fd00::/64\"": {}}}}),
        },
        Case {
            name: "a range goes from the set",
            kind: ("v1", "Node"),
            object: json!({"spec": {"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}}),
            patch: json!({"spec": {"$deleteFromPrimitiveList/podCIDRs": ["fd00::/64"]}}),
            at: "/spec/podCIDRs",
            result: json!(["10.0.0.0/24"]),
            owned: Value::Null,
        },
        Case {
            name: "bytes of a secret merge by key",
            kind: ("v1", "Secret"),
            object: json!({"data": {"a": "AA=="}}),
            patch: json!({"data": {"b": "AQ=="}}),
            at: "/data",
            result: json!({"a": "AA==", "b": "AQ=="}),
            owned: json!({"f:data": {"f:b": {}}}),
        },
        Case {
            name: "a first label brings the map",
            kind: ("v1", "Namespace"),
            object: json!({"metadata": {"annotations": {"b": "1"}}}),
            patch: json!({"metadata": {"labels": {"a": "1"}}}),
            at: "/metadata/labels",
            result: json!({"a": "1"}),
            owned: json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}),
        },
        Case {
            name: "annotations are replaced",
            kind: ("v1", "Namespace"),
            object: json!({"metadata": {"annotations": {"a": "1", "b": "1"}}}),
            patch: json!({"metadata": {"annotations": {"$patch": "replace", "b": "2"}}}),
            at: "/metadata/annotations",
            result: json!({"b": "2"}),
            owned: json!({"f:metadata": {"f:annotations": {"f:b": {}}}}),
        },
        Case {
            name: "hard limits of a quota merge by resource",
            kind: ("v1", "ResourceQuota"),
            object: json!({"spec": {"hard": {"pods": "1", "cpu": "1"}}}),
            patch: json!({"spec": {"hard": {"pods": "2", "cpu": null}}}),
            at: "/spec/hard",
            result: json!({"pods": "2"}),
            owned: json!({"f:spec": {"f:hard": {"f:pods": {}}}}),
        },
        Case {
            name: "requests of a claim merge by resource",
            kind: ("v1", "PersistentVolumeClaim"),
            object: json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}}),
            patch: json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
            at: "/spec/resources/requests",
            result: json!({"storage": "2Gi"}),
            owned: json!({"f:spec": {"f:resources": {"f:requests": {"f:storage": {}}}}}),
        },
        Case {
            name: "a selector of a service is one field, merged by key",
            kind: ("v1", "Service"),
            object: json!({"spec": {"selector": {"a": "1"}}}),
            patch: json!({"spec": {"selector": {"b": "1"}}}),
            at: "/spec/selector",
            result: json!({"a": "1", "b": "1"}),
            owned: json!({"f:spec": {"f:selector": {}}}),
        },
        Case {
            name: "a selector of a budget is replaced",
            kind: ("policy/v1", "PodDisruptionBudget"),
            object: json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}}),
            patch: json!({"spec": {"selector": {"matchLabels": {"b": "1"}}}}),
            at: "/spec/selector",
            result: json!({"matchLabels": {"b": "1"}}),
            owned: json!({"f:spec": {"f:selector": {}}}),
        },
        Case {
            name: "a role that is referred to is one field",
            kind: ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            object: json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}}),
            patch: json!({"roleRef": {"name": "s"}}),
            at: "/roleRef/name",
            result: json!("s"),
            owned: json!({"f:roleRef": {}}),
        },
        Case {
            name: "parameters of a storage class lose a key",
            kind: ("storage.k8s.io/v1", "StorageClass"),
            object: json!({"provisioner": "p", "parameters": {"a": "1", "b": "1"}}),
            patch: json!({"parameters": {"a": null}}),
            at: "/parameters",
            result: json!({"b": "1"}),
            owned: Value::Null,
        },
        Case {
            name: "the holder of a lease",
            kind: ("coordination.k8s.io/v1", "Lease"),
            object: json!({"spec": {"holderIdentity": "a", "leaseTransitions": 1}}),
            patch: json!({"spec": {"holderIdentity": "b", "leaseTransitions": 2}}),
            at: "/spec",
            result: json!({"holderIdentity": "b", "leaseTransitions": 2}),
            owned: json!({"f:spec": {"f:holderIdentity": {}, "f:leaseTransitions": {}}}),
        },
        Case {
            name: "the count of an event",
            kind: ("v1", "Event"),
            object: json!({"involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R", "count": 1}),
            patch: json!({"count": 2}),
            at: "/count",
            result: json!(2),
            owned: json!({"f:count": {}}),
        },
        Case {
            name: "the words of a priority class",
            kind: ("scheduling.k8s.io/v1", "PriorityClass"),
            object: json!({"value": 5, "description": "a"}),
            patch: json!({"description": null, "globalDefault": true}),
            at: "/globalDefault",
            result: json!(true),
            owned: json!({"f:globalDefault": {}}),
        },
        Case {
            name: "the replicas of a replica set",
            kind: ("apps/v1", "ReplicaSet"),
            object: json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "1"}}}}),
            patch: json!({"spec": {"replicas": 0}}),
            at: "/spec/replicas",
            result: json!(0),
            owned: json!({"f:spec": {"f:replicas": {}}}),
        },
    ]);
}
