//! Tests of field ownership through sequences of writes.

use machinery::GroupVersionKind;
use machinery::json::{Value, json};

use super::*;
use crate::decode::normalise;
use crate::facts::Types;

/// Writes `new` over `live` as a manager, and returns the stored object.
fn write(
    kind: (&str, &str, &str),
    live: Option<&Value>,
    mut new: Value,
    manager: &str,
    subresource: &str,
    time: &str,
) -> Value {
    let gvk = GroupVersionKind::new(kind.0, kind.1, kind.2);
    let ty = Types::get().kind(&gvk).unwrap();
    normalise(&ty, &mut new, None).unwrap();
    let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: false, convert: None };
    let writer = Writer { manager, subresource, time };
    track_update(&subject, live, &mut new, &writer);
    new["metadata"]["uid"] = json!("u");
    new
}

const CONFIG_MAP: (&str, &str, &str) = ("", "v1", "ConfigMap");
const DEPLOYMENT: (&str, &str, &str) = ("apps", "v1", "Deployment");

fn managers(object: &Value) -> Vec<(String, Value)> {
    let list = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    list.iter().map(|e| (e["manager"].as_str().unwrap().to_owned(), e["fieldsV1"].clone())).collect()
}

#[test]
fn a_create_owns_what_it_sets() {
    let map = write(
        CONFIG_MAP,
        None,
        json!({"metadata": {"name": "x", "labels": {"l": "1"}}, "data": {"a": "1"}}),
        "one",
        "",
        "2024-01-01T00:00:01Z",
    );
    assert_eq!(
        map["metadata"]["managedFields"],
        json!([{"manager": "one", "operation": "Update", "apiVersion": "v1", "time": "2024-01-01T00:00:01Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}}])
    );
    let bare = write(CONFIG_MAP, None, json!({"metadata": {"name": "x"}}), "one", "", "2024-01-01T00:00:01Z");
    assert!(bare["metadata"].get("managedFields").is_none());
}

/// `fieldsV1` written directly from the object equals that of a comparison with an empty one: [`track_update`] asserts it in
/// debug builds, so these objects need only be diverse.
#[test]
fn the_maker_of_an_object_owns_the_same_however_it_is_found_out() {
    let ports = json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"},
        {"containerPort": 9, "protocol": "UDP"}]);
    let container = json!({"name": "b", "image": "i", "ports": ports, "args": [], "env": [{"name": "\"<é", "value": "1"}],
        "securityContext": {}, "resources": {"limits": {"cpu": "1"}}});
    let pod = json!({"metadata": {"name": "x", "finalizers": ["b", "a"], "annotations": {"a.b/c": "\u{1}", "": "x"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}]},
        "spec": {"containers": [container, {"name": "a"}], "volumes": null, "hostNetwork": false, "nodeSelector": {}},
        "status": {"phase": "Running"}});
    for (kind, object) in [
        (("", "v1", "Pod"), pod.clone()),
        (("", "v1", "Pod"), json!({"metadata": {}, "spec": {"containers": []}})),
        (("", "v1", "Namespace"), json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}})),
        (("", "v1", "Service"), json!({"metadata": {}, "spec": {"ports": [{"port": 1}, {"port": 1}]}, "status": {}})),
        (("", "v1", "Secret"), json!({"metadata": {"name": "s"}, "data": {"k": ""}, "immutable": false})),
        (
            DEPLOYMENT,
            json!({"metadata": {}, "spec": {"replicas": 0, "selector": {}, "template": {"spec": pod["spec"]}}}),
        ),
        (("rbac.authorization.k8s.io", "v1", "Role"), json!({"metadata": {}, "rules": []})),
        (
            ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
            json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"request": "", "signerName": "s", "usages": ["any"]}}),
        ),
        (("apps", "v1", "ControllerRevision"), json!({"metadata": {}, "revision": 0, "data": {"free": {"a": [1]}}})),
    ] {
        let written = write(kind, None, object, "one", "", "2024-01-01T00:00:01Z");
        let owned = managers(&written);
        assert!(owned.len() <= 1 && owned.iter().all(|(_, fields)| fields.get("f:status").is_none()), "{owned:?}");
    }
}

#[test]
fn an_update_takes_what_it_changes_and_keeps_the_rest() {
    let first = write(
        CONFIG_MAP,
        None,
        json!({"metadata": {"name": "x"}, "data": {"a": "1", "b": "1"}}),
        "one",
        "",
        "2024-01-01T00:00:01Z",
    );
    let second = write(
        CONFIG_MAP,
        Some(&first),
        json!({"metadata": {"name": "x"}, "data": {"a": "2", "b": "1", "c": "1"}}),
        "two",
        "",
        "2024-01-01T00:00:02Z",
    );
    assert_eq!(
        managers(&second),
        [
            ("one".into(), json!({"f:data": {".": {}, "f:b": {}}})),
            ("two".into(), json!({"f:data": {"f:a": {}, "f:c": {}}}))
        ]
    );
    let third = write(
        CONFIG_MAP,
        Some(&second),
        json!({"metadata": {"name": "x"}, "data": {"a": "2"}}),
        "three",
        "",
        "2024-01-01T00:00:03Z",
    );
    assert_eq!(
        managers(&third),
        [("one".into(), json!({"f:data": {}})), ("two".into(), json!({"f:data": {"f:a": {}}}))]
    );
}

#[test]
fn a_write_that_changes_nothing_leaves_the_times() {
    let first = write(
        CONFIG_MAP,
        None,
        json!({"metadata": {"name": "x"}, "data": {"a": "1"}}),
        "one",
        "",
        "2024-01-01T00:00:01Z",
    );
    let same = write(
        CONFIG_MAP,
        Some(&first),
        json!({"metadata": {"name": "x"}, "data": {"a": "1"}}),
        "one",
        "",
        "2024-01-01T00:00:02Z",
    );
    assert_eq!(same["metadata"]["managedFields"], first["metadata"]["managedFields"]);
}

#[test]
fn list_items_are_owned_by_their_keys() {
    let deployment = write(
        DEPLOYMENT,
        None,
        json!({"metadata": {"name": "x"}, "spec": {"selector": {"matchLabels": {"app": "x"}},
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}}}),
        "one",
        "",
        "2024-01-01T00:00:01Z",
    );
    assert_eq!(
        managers(&deployment)[0].1,
        json!({"f:spec": {"f:selector": {}, "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {},
            "f:image": {}, "f:name": {}, "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {},
            "f:containerPort": {}}}, "f:resources": {}}}}}}})
    );
}

#[test]
fn status_is_owned_through_its_subresource_only() {
    let created = write(
        DEPLOYMENT,
        None,
        json!({"metadata": {"name": "x"}, "spec": {"replicas": 1}, "status": {"replicas": 3}}),
        "one",
        "",
        "2024-01-01T00:00:01Z",
    );
    assert_eq!(managers(&created), [("one".into(), json!({"f:spec": {"f:replicas": {}}}))]);
    let mut changed = created.clone();
    changed["spec"]["replicas"] = json!(5);
    changed["status"]["replicas"] = json!(4);
    let status = write(DEPLOYMENT, Some(&created), changed, "ctl", "status", "2024-01-01T00:00:02Z");
    assert_eq!(managers(&status)[1], ("ctl".into(), json!({"f:status": {"f:replicas": {}}})));
    assert_eq!(status["metadata"]["managedFields"][1]["subresource"], "status");
}

#[test]
fn ownership_can_be_forgotten_and_stays_so() {
    let first = write(
        CONFIG_MAP,
        None,
        json!({"metadata": {"name": "x"}, "data": {"a": "1"}}),
        "one",
        "",
        "2024-01-01T00:00:01Z",
    );
    for reset in [json!([]), json!([{}])] {
        let forgotten = write(
            CONFIG_MAP,
            Some(&first),
            json!({"metadata": {"name": "x", "managedFields": reset}, "data": {"a": "2"}}),
            "two",
            "",
            "2024-01-01T00:00:02Z",
        );
        assert!(managers(&forgotten).is_empty());
        let later = write(
            CONFIG_MAP,
            Some(&forgotten),
            json!({"metadata": {"name": "x"}, "data": {"a": "3"}}),
            "two",
            "",
            "2024-01-01T00:00:03Z",
        );
        assert!(managers(&later).is_empty());
    }
}

#[test]
fn malformed_entries_are_ignored() {
    let first = write(
        CONFIG_MAP,
        None,
        json!({"metadata": {"name": "x"}, "data": {"a": "1"}}),
        "one",
        "",
        "2024-01-01T00:00:01Z",
    );
    for (key, value) in [("operation", json!("Frob")), ("fieldsType", json!("V9")), ("fieldsV1", json!({"x": {}}))] {
        let mut entry = json!({"manager": "hand", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}});
        entry[key] = value;
        let put = write(
            CONFIG_MAP,
            Some(&first),
            json!({"metadata": {"name": "x", "managedFields": [entry]}, "data": {"a": "1"}}),
            "z",
            "",
            "2024-01-01T00:00:02Z",
        );
        assert_eq!(put["metadata"]["managedFields"], first["metadata"]["managedFields"], "{key}");
    }
}

#[test]
fn too_many_updaters_are_folded() {
    let mut object = write(
        CONFIG_MAP,
        None,
        json!({"metadata": {"name": "x"}, "data": {"m01": "1"}}),
        "m01",
        "",
        "2024-01-01T00:00:01Z",
    );
    for at in 2..=12 {
        let name = format!("m{at:02}");
        let mut next = object.clone();
        next["data"][&name] = json!("1");
        object = write(CONFIG_MAP, Some(&object), next, &name, "", &format!("2024-01-01T00:00:{at:02}Z"));
    }
    let managers = managers(&object);
    assert_eq!(managers.len(), 10);
    assert_eq!(
        managers[0],
        ("ancient-changes".into(), json!({"f:data": {".": {}, "f:m01": {}, "f:m02": {}, "f:m03": {}}}))
    );
    assert_eq!(object["metadata"]["managedFields"][0]["time"], "2024-01-01T00:00:03Z");
    assert_eq!(managers[1].0, "m04");
}

#[test]
fn times_alone_are_no_change() {
    let old =
        json!({"metadata": {"managedFields": [{"manager": "a", "time": "2024-01-01T00:00:01Z"}]}, "data": {"a": "1"}});
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2024-01-01T00:00:02Z");
    keep_times_if_unchanged(&old, &mut new);
    assert_eq!(new, old);
    new["metadata"]["managedFields"][0]["time"] = json!("2024-01-01T00:00:02Z");
    new["data"]["a"] = json!("2");
    let changed = new.clone();
    keep_times_if_unchanged(&old, &mut new);
    assert_eq!(new, changed);
}
