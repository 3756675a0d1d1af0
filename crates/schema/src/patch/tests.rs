//! Tests as data: an object, a patch, and the expected result. The results follow from the rules; where a recording of a
//! genuine server has the case, they agree with it.

use machinery::json::{Value, json};
use machinery::{GroupVersion, GroupVersionKind};

use super::*;

mod kinds;

/// The expected result: the patched field, or code and message of the refusal.
enum Wanted {
    Is(Value),
    Refused(u16, &'static str),
}
use Wanted::{Is, Refused};

type Apply = fn(&Target<'_>, &Value, &[u8]) -> Result<Patched, PatchError>;

#[track_caller]
fn check(apply: Apply, kind: (&str, &str), object: Value, at: &str, cases: Vec<(&str, Value, Wanted)>) {
    let version = GroupVersion::parse(kind.0).unwrap();
    let gvk = GroupVersionKind::new(version.group, version.version, kind.1);
    let ty = Types::get().kind(&gvk).unwrap();
    let target = Target { ty: &ty, gvk: &gvk, custom: false, version: None, validation: FieldValidation::Warn };
    let mut current = object;
    decode::normalise(&ty, &mut current, None).unwrap();
    decode::name(&mut current, &gvk);
    for (name, patch, wanted) in cases {
        let body = patch.get("$raw").and_then(Value::as_str).map_or_else(|| patch.to_string(), str::to_owned);
        match (apply(&target, &current, body.as_bytes()), wanted) {
            (Ok(patched), Is(wanted)) => {
                let found = patched.value.pointer(at).cloned().unwrap_or(Value::Null);
                assert_eq!(found, wanted, "{name}");
            }
            (Err(error), Refused(code, words)) => {
                let status = error.to_status();
                assert_eq!((status.code, status.message.contains(words)), (code, true), "{name}: {}", status.message);
            }
            (Ok(patched), Refused(..)) => panic!("{name}: accepted as {}", patched.value),
            (Err(error), Is(_)) => panic!("{name}: refused: {}", error.to_status().message),
        }
    }
}

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const SERVICE: (&str, &str) = ("v1", "Service");
const POD: (&str, &str) = ("v1", "Pod");

fn config_map() -> Value {
    json!({"metadata": {"name": "x", "labels": {"l": "1"}, "finalizers": ["e.io/a", "e.io/b"]}, "data": {"a": "1", "b": "2"}})
}

fn containers(list: Value) -> Value {
    json!({"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": list}}}})
}

fn patch_containers(list: Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": list}}}})
}

const CONTAINERS: &str = "/spec/template/spec/containers";

/// Containers in their normal form.
fn named(list: &[(&str, &str)]) -> Wanted {
    Is(list.iter().map(|(name, image)| json!({"name": name, "image": image, "resources": {}})).collect())
}

#[test]
fn strategic_lists_merge_by_key() {
    let object = containers(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]));
    check(
        strategic::apply,
        DEPLOYMENT,
        object,
        CONTAINERS,
        vec![
            (
                "an item changes",
                patch_containers(json!([{"name": "b", "image": "x"}])),
                named(&[("a", "1"), ("b", "x")]),
            ),
            (
                "an item is added",
                patch_containers(json!([{"name": "c", "image": "3"}])),
                named(&[("c", "3"), ("a", "1"), ("b", "2")]),
            ),
            ("an item goes", patch_containers(json!([{"name": "a", "$patch": "delete"}])), named(&[("b", "2")])),
            (
                "a missing item goes",
                patch_containers(json!([{"name": "z", "$patch": "delete"}])),
                named(&[("a", "1"), ("b", "2")]),
            ),
            (
                "the list is replaced",
                patch_containers(json!([{"$patch": "replace"}, {"name": "z", "image": "9"}])),
                named(&[("z", "9")]),
            ),
            (
                "one goes, one changes",
                patch_containers(json!([{"name": "a", "$patch": "delete"}, {"name": "b", "image": "x"}])),
                named(&[("b", "x")]),
            ),
            (
                "a field of an item goes",
                patch_containers(json!([{"name": "a", "image": null}])),
                Is(json!([
            {"name": "a", "resources": {}}, {"name": "b", "image": "2", "resources": {}}])),
            ),
            (
                "the same name twice",
                patch_containers(json!([{"name": "a", "image": "x"}, {"name": "a", "image": "y"}])),
                named(&[("a", "y"), ("b", "2")]),
            ),
            ("an empty list changes nothing", patch_containers(json!([])), named(&[("a", "1"), ("b", "2")])),
            ("null takes all", patch_containers(json!(null)), Is(Value::Null)),
            (
                "no key",
                patch_containers(json!([{"image": "z"}])),
                Refused(500, "map: map[image:z] does not contain declared merge key: name"),
            ),
            (
                "delete without key",
                patch_containers(json!([{"image": "z", "$patch": "delete"}])),
                Refused(500, "does not contain declared merge key: name"),
            ),
            ("strings", patch_containers(json!(["a"])), Refused(500, "list element types are not identical: [[map[")),
            (
                "merge directive",
                patch_containers(json!([{"name": "a", "$patch": "merge"}])),
                Refused(500, "merging lists cannot yet be specified in the patch"),
            ),
            (
                "unknown directive",
                patch_containers(json!([{"name": "a", "$patch": "frob"}])),
                Refused(500, "unknown patch type: frob in map: map[$patch:frob name:a]"),
            ),
            ("a string for the list", patch_containers(json!("c")), Refused(422, "cannot restore slice from string")),
        ],
    );
}

#[test]
fn strategic_order_follows_the_patch() {
    let object =
        containers(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "3"}]));
    let ordered = |order: Value, list: Value| {
        let mut spec = json!({"$setElementOrder/containers": order});
        if !list.is_null() {
            spec["containers"] = list;
        }
        json!({"spec": {"template": {"spec": spec}}})
    };
    let name = |names: &[&str]| -> Value { names.iter().map(|n| json!({"name": n})).collect() };
    check(
        strategic::apply,
        DEPLOYMENT,
        object,
        CONTAINERS,
        vec![
            (
                "all reordered",
                ordered(name(&["c", "a", "b"]), Value::Null),
                named(&[("c", "3"), ("a", "1"), ("b", "2")]),
            ),
            ("two reordered", ordered(name(&["c", "a"]), Value::Null), named(&[("b", "2"), ("c", "3"), ("a", "1")])),
            (
                "a new one first",
                ordered(name(&["n", "a", "b", "c"]), json!([{"name": "n", "image": "0"}])),
                named(&[("n", "0"), ("a", "1"), ("b", "2"), ("c", "3")]),
            ),
            (
                "one that is nowhere",
                ordered(name(&["z", "b", "a", "c"]), Value::Null),
                named(&[("b", "2"), ("a", "1"), ("c", "3")]),
            ),
            (
                "with a deletion",
                ordered(name(&["c", "a"]), json!([{"name": "b", "$patch": "delete"}])),
                named(&[("c", "3"), ("a", "1")]),
            ),
            (
                "misses a patched one",
                ordered(name(&["a"]), json!([{"name": "b", "image": "x"}])),
                Refused(
                    500,
                    "The order in patch list:\n[map[image:x name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
                ),
            ),
            (
                "disagrees with the patch",
                ordered(name(&["a", "b"]), json!([{"name": "b", "image": "x"}, {"name": "a", "image": "y"}])),
                Refused(500, "The order in patch list"),
            ),
            (
                "no list",
                ordered(json!("a"), Value::Null),
                Refused(500, "expected a []interface {}, but received a string"),
            ),
            (
                "without a slash",
                json!({"spec": {"template": {"spec": {"$setElementOrder": []}}}}),
                Refused(400, "invalid patch format of setElementOrder list"),
            ),
        ],
    );
}

#[test]
fn strategic_sets_of_text() {
    let meta = |value: Value| json!({"metadata": value});
    check(
        strategic::apply,
        CONFIG_MAP,
        config_map(),
        "/metadata/finalizers",
        vec![
            ("one more", meta(json!({"finalizers": ["e.io/c"]})), Is(json!(["e.io/c", "e.io/a", "e.io/b"]))),
            ("one that is there", meta(json!({"finalizers": ["e.io/b"]})), Is(json!(["e.io/a", "e.io/b"]))),
            ("none", meta(json!({"finalizers": []})), Is(json!(["e.io/a", "e.io/b"]))),
            ("null", meta(json!({"finalizers": null})), Is(Value::Null)),
            ("one deleted", meta(json!({"$deleteFromPrimitiveList/finalizers": ["e.io/a"]})), Is(json!(["e.io/b"]))),
            (
                "all deleted",
                meta(json!({"$deleteFromPrimitiveList/finalizers": ["e.io/a", "e.io/b", "e.io/z"]})),
                Is(Value::Null),
            ),
            (
                "reordered",
                meta(json!({"$setElementOrder/finalizers": ["e.io/b", "e.io/a"]})),
                Is(json!(["e.io/b", "e.io/a"])),
            ),
            (
                "reordered with a new one",
                meta(json!({"$setElementOrder/finalizers": ["e.io/n", "e.io/b", "e.io/a"], "finalizers": ["e.io/n"]})),
                Is(json!(["e.io/n", "e.io/b", "e.io/a"])),
            ),
            (
                "deletion without a slash",
                meta(json!({"$deleteFromPrimitiveList": ["e.io/a"]})),
                Refused(400, "invalid patch format of primitive list"),
            ),
            (
                "deletion of an unknown field",
                json!({"$deleteFromPrimitiveList/nope": ["a"]}),
                Is(json!(["e.io/a", "e.io/b"])),
            ),
        ],
    );
}

#[test]
fn strategic_maps() {
    check(
        strategic::apply,
        CONFIG_MAP,
        config_map(),
        "/data",
        vec![
            ("a key more", json!({"data": {"c": "3"}}), Is(json!({"a": "1", "b": "2", "c": "3"}))),
            ("a key less", json!({"data": {"a": null}}), Is(json!({"b": "2"}))),
            ("a missing key less", json!({"data": {"z": null}}), Is(json!({"a": "1", "b": "2"}))),
            ("no keys", json!({"data": {}}), Is(json!({"a": "1", "b": "2"}))),
            ("null", json!({"data": null}), Is(Value::Null)),
            ("replaced", json!({"data": {"$patch": "replace", "z": "9"}}), Is(json!({"z": "9"}))),
            ("deleted", json!({"data": {"$patch": "delete"}}), Is(Value::Null)),
            ("deleted beside keys", json!({"data": {"$patch": "delete", "a": "9"}}), Is(Value::Null)),
            ("retained", json!({"data": {"$retainKeys": ["a"]}}), Is(json!({"a": "1"}))),
            (
                "retained and set",
                json!({"data": {"$retainKeys": ["a", "c"], "c": "3"}}),
                Is(json!({"a": "1", "c": "3"})),
            ),
            (
                "set but not retained",
                json!({"data": {"$retainKeys": ["a"], "c": "3"}}),
                Refused(400, "invalid patch format of retainKeys"),
            ),
            (
                "retained by a word",
                json!({"data": {"$retainKeys": "a"}}),
                Refused(400, "invalid patch format of retainKeys"),
            ),
            (
                "merge directive",
                json!({"data": {"$patch": "merge", "b": "2"}}),
                Refused(500, "unknown patch type: merge in map: map[$patch:merge b:2]"),
            ),
            (
                "a number as directive",
                json!({"data": {"$patch": 5}}),
                Refused(500, "unknown patch type: %!s(int64=5) in map: map[$patch:5]"),
            ),
            (
                "a number as value",
                json!({"data": {"a": 1}}),
                Refused(422, "Invalid value: \"map[data:map[a:1]]\": cannot convert int64 to string"),
            ),
            ("text for the map", json!({"data": "x"}), Refused(422, "cannot restore map from string")),
            ("nothing", json!({}), Is(json!({"a": "1", "b": "2"}))),
            ("null body", json!({"$raw": "null"}), Is(json!({"a": "1", "b": "2"}))),
            (
                "array body",
                json!({"$raw": "[]"}),
                Refused(400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
            ),
            ("empty body", json!({"$raw": ""}), Refused(400, "unexpected end of JSON input")),
            ("trailing text", json!({"$raw": "{} x"}), Refused(400, "invalid character 'x' after top-level value")),
        ],
    );
}

#[test]
fn strategic_kinds_have_keys_of_their_own() {
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "name": "h"}, {"port": 443, "name": "t"}], "externalIPs": ["1.1.1.1"]}});
    let ports = |list: Value| json!({"spec": {"ports": list}});
    let port = |port: i32, name: &str| json!({"name": name, "port": port, "targetPort": 0});
    check(
        strategic::apply,
        SERVICE,
        service.clone(),
        "/spec/ports",
        vec![
            ("by port", ports(json!([{"port": 443, "name": "x"}])), Is(json!([port(80, "h"), port(443, "x")]))),
            (
                "added",
                ports(json!([{"port": 8080, "name": "n"}])),
                Is(json!([port(8080, "n"), port(80, "h"), port(443, "t")])),
            ),
            ("deleted", ports(json!([{"port": 80, "$patch": "delete"}])), Is(json!([port(443, "t")]))),
        ],
    );
    check(
        strategic::apply,
        SERVICE,
        service,
        "/spec/externalIPs",
        vec![("an atomic list is replaced", json!({"spec": {"externalIPs": ["2.2.2.2"]}}), Is(json!(["2.2.2.2"])))],
    );
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [{"name": "v", "mountPath": "/a"}], "ports": [{"containerPort": 80}], "command": ["x"]}],
        "tolerations": [{"key": "k"}], "volumes": [{"name": "v", "emptyDir": {}}]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}], "podIPs": [{"ip": "1.1.1.1"}]}});
    let container = |fields: Value| {
        let mut fields = fields;
        fields["name"] = json!("c");
        json!({"spec": {"containers": [fields]}})
    };
    check(
        strategic::apply,
        POD,
        pod.clone(),
        "/spec/containers/0/env",
        vec![
            (
                "env by name",
                container(json!({"env": [{"name": "A", "value": "2"}]})),
                Is(json!([{"name": "A", "value": "2"}])),
            ),
            (
                "env to a source",
                container(
                    json!({"env": [{"name": "A", "value": null, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
                ),
                Is(json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])),
            ),
            (
                "env added",
                container(json!({"env": [{"name": "B", "value": "2"}]})),
                Is(json!([{"name": "B", "value": "2"}, {"name": "A", "value": "1"}])),
            ),
        ],
    );
    check(
        strategic::apply,
        POD,
        pod.clone(),
        "/spec/containers/0",
        vec![(
            "mounts by path, ports by number, command at once",
            container(json!({"volumeMounts": [{"name": "w", "mountPath": "/a"}],
            "ports": [{"containerPort": 80, "name": "h"}], "command": ["y", "z"]})),
            Is(json!({"name": "c", "command": ["y", "z"], "ports": [{"name": "h", "containerPort": 80}],
                "env": [{"name": "A", "value": "1"}], "resources": {}, "volumeMounts": [{"name": "w", "mountPath": "/a"}]})),
        )],
    );
    check(
        strategic::apply,
        POD,
        pod.clone(),
        "/spec/tolerations",
        vec![("tolerations at once", json!({"spec": {"tolerations": [{"key": "n"}]}}), Is(json!([{"key": "n"}])))],
    );
    check(
        strategic::apply,
        POD,
        pod.clone(),
        "/spec/volumes",
        vec![
            (
                "a source changes with retained keys",
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}),
                Is(json!([{"name": "v", "hostPath": {"path": "/x"}}])),
            ),
            (
                "a source more",
                json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}),
                Is(json!([{"name": "v", "hostPath": {"path": "/x"}, "emptyDir": {}}])),
            ),
        ],
    );
    check(
        strategic::apply,
        POD,
        pod,
        "/status",
        vec![(
            "conditions by type, addresses by ip",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "New", "status": "True"}],
            "podIPs": [{"ip": "2.2.2.2"}]}}),
            Is(
                json!({"conditions": [{"type": "Ready", "lastProbeTime": null, "lastTransitionTime": null, "status": "True"},
                {"type": "New", "lastProbeTime": null, "lastTransitionTime": null, "status": "True"}],
                "podIPs": [{"ip": "2.2.2.2"}, {"ip": "1.1.1.1"}]}),
            ),
        )],
    );
}

#[test]
fn strategic_structs_with_retained_keys() {
    let deployment = json!({"metadata": {"name": "x"}, "spec": {"replicas": 2, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    check(
        strategic::apply,
        DEPLOYMENT,
        deployment,
        "/spec/strategy",
        vec![
            (
                "retained",
                json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
                Is(json!({"type": "Recreate"})),
            ),
            (
                "merged",
                json!({"spec": {"strategy": {"type": "Recreate"}}}),
                Is(json!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})),
            ),
            ("replaced", json!({"spec": {"strategy": {"$patch": "replace"}}}), Is(json!({}))),
            ("null", json!({"spec": {"strategy": null}}), Is(json!({}))),
            ("a number as text", json!({"spec": {"replicas": "three"}}), Refused(422, "unrecognized type: int32")),
        ],
    );
}

#[test]
fn merge_patches() {
    check(
        merge::apply,
        CONFIG_MAP,
        config_map(),
        "/data",
        vec![
            ("set and delete", json!({"data": {"a": null, "c": "3"}}), Is(json!({"b": "2", "c": "3"}))),
            ("missing null", json!({"data": {"z": null}}), Is(json!({"a": "1", "b": "2"}))),
            ("whole map", json!({"data": null}), Is(Value::Null)),
            (
                "no directive",
                json!({"data": {"$patch": "delete"}}),
                Is(json!({"$patch": "delete", "a": "1", "b": "2"})),
            ),
            (
                "text for the map",
                json!({"data": "x"}),
                Refused(
                    422,
                    "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
                ),
            ),
            ("another kind", json!({"kind": "Secret"}), Refused(422, "illegal base64 data at input byte 0")),
            (
                "another version",
                json!({"apiVersion": "v9"}),
                Refused(422, "no kind \"ConfigMap\" is registered for version \"v9\""),
            ),
            (
                "array",
                json!({"$raw": "[]"}),
                Refused(
                    400,
                    "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
                ),
            ),
            ("empty", json!({"$raw": ""}), Refused(400, "error decoding patch: unexpected end of JSON input")),
            ("null body", json!({"$raw": "null"}), Refused(400, "Invalid JSON Patch")),
            (
                "yaml",
                json!({"$raw": "data: {}"}),
                Refused(400, "error decoding patch: invalid character 'd' looking for beginning of value"),
            ),
        ],
    );
    check(
        merge::apply,
        CONFIG_MAP,
        config_map(),
        "/metadata/finalizers",
        vec![
            ("lists are replaced", json!({"metadata": {"finalizers": ["e.io/c"]}}), Is(json!(["e.io/c"]))),
            ("lists are emptied", json!({"metadata": {"finalizers": []}}), Is(Value::Null)),
        ],
    );
    check(
        merge::apply,
        DEPLOYMENT,
        containers(json!([{"name": "a"}])),
        CONTAINERS,
        vec![(
            "items are not merged",
            patch_containers(json!([{"name": "b", "image": null}])),
            Is(json!([{"name": "b", "resources": {}}])),
        )],
    );
}

#[test]
fn json_patches_on_maps() {
    let op = |op: &str, path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
    check(
        json::apply,
        CONFIG_MAP,
        config_map(),
        "/data",
        vec![
            ("add", op("add", "/data/c", json!("3")), Is(json!({"a": "1", "b": "2", "c": "3"}))),
            ("add over", op("add", "/data/a", json!("3")), Is(json!({"a": "3", "b": "2"}))),
            (
                "add below nothing",
                op("add", "/binaryData/c", json!("")),
                Refused(422, "the server rejected our request due to an error in our request"),
            ),
            ("remove", op("remove", "/data/a", Value::Null), Is(json!({"b": "2"}))),
            ("remove what is missing", op("remove", "/data/z", Value::Null), Refused(422, "the server rejected")),
            ("replace", op("replace", "/data/a", json!("3")), Is(json!({"a": "3", "b": "2"}))),
            (
                "replace what is missing adds",
                op("replace", "/data/z", json!("9")),
                Is(json!({"a": "1", "b": "2", "z": "9"})),
            ),
            ("test holds", op("test", "/data/a", json!("1")), Is(json!({"a": "1", "b": "2"}))),
            ("test fails", op("test", "/data/a", json!("2")), Refused(422, "the server rejected")),
            ("test of an object", op("test", "/data", json!({"b": "2", "a": "1"})), Is(json!({"a": "1", "b": "2"}))),
            ("test of nothing", op("test", "/data/z", Value::Null), Is(json!({"a": "1", "b": "2"}))),
            ("unknown operation", op("frob", "/data/a", json!("2")), Refused(422, "the server rejected")),
            ("no operation", json!([{"path": "/data/a"}]), Refused(422, "the server rejected")),
            ("no path", json!([{"op": "add", "value": "1"}]), Refused(422, "the server rejected")),
            (
                "no value is null, which is empty text",
                json!([{"op": "add", "path": "/data/a"}]),
                Is(json!({"a": "", "b": "2"})),
            ),
            (
                "copy",
                json!([{"op": "copy", "from": "/data/a", "path": "/data/c"}]),
                Is(json!({"a": "1", "b": "2", "c": "1"})),
            ),
            ("move", json!([{"op": "move", "from": "/data/a", "path": "/data/c"}]), Is(json!({"b": "2", "c": "1"}))),
            (
                "move of nothing",
                json!([{"op": "move", "from": "/data/z", "path": "/data/c"}]),
                Refused(422, "the server rejected"),
            ),
            (
                "escapes",
                json!([{"op": "add", "path": "/data/x~1y~0z", "value": "1"}]),
                Is(json!({"a": "1", "b": "2", "x/y~z": "1"})),
            ),
            (
                "one after another",
                json!([{"op": "add", "path": "/data/c", "value": "1"}, {"op": "remove", "path": "/data/c"}]),
                Is(json!({"a": "1", "b": "2"})),
            ),
            (
                "a later failure undoes all",
                json!([{"op": "add", "path": "/data/c", "value": "1"}, {"op": "test", "path": "/data/c", "value": "2"}]),
                Refused(422, "the server rejected"),
            ),
            (
                "a list for the map",
                op("replace", "/data", json!(["x"])),
                Refused(
                    422,
                    "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
                ),
            ),
            (
                "an object for the operations",
                json!({"op": "add"}),
                Refused(
                    400,
                    "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
                ),
            ),
            (
                "words for the operations",
                json!(["add"]),
                Refused(
                    400,
                    "error decoding patch: json: cannot unmarshal string into Go value of type handlers.jsonPatchOp",
                ),
            ),
            ("null body", json!({"$raw": "null"}), Is(json!({"a": "1", "b": "2"}))),
            ("empty body", json!({"$raw": ""}), Refused(400, "error decoding patch: unexpected end of JSON input")),
        ],
    );
}

#[test]
fn json_patches_on_lists() {
    let op = |op: &str, path: &str, value: Value| json!([{"op": op, "path": format!("/metadata/finalizers/{path}"), "value": value}]);
    check(
        json::apply,
        CONFIG_MAP,
        config_map(),
        "/metadata/finalizers",
        vec![
            ("append", op("add", "-", json!("c")), Is(json!(["e.io/a", "e.io/b", "c"]))),
            ("insert", op("add", "0", json!("c")), Is(json!(["c", "e.io/a", "e.io/b"]))),
            ("insert at the end", op("add", "2", json!("c")), Is(json!(["e.io/a", "e.io/b", "c"]))),
            ("past the end", op("add", "3", json!("c")), Refused(422, "the server rejected")),
            ("from the end", op("add", "-1", json!("c")), Is(json!(["e.io/a", "e.io/b", "c"]))),
            ("no number", op("add", "x", json!("c")), Refused(422, "the server rejected")),
            ("remove", op("remove", "0", Value::Null), Is(json!(["e.io/b"]))),
            ("remove the last", op("remove", "-1", Value::Null), Is(json!(["e.io/a"]))),
            ("remove past the end", op("remove", "2", Value::Null), Refused(422, "the server rejected")),
            ("replace", op("replace", "1", json!("c")), Is(json!(["e.io/a", "c"]))),
            ("replace past the end", op("replace", "2", json!("c")), Refused(422, "the server rejected")),
        ],
    );
}

#[test]
fn huge_patches_are_refused() {
    let operations: Vec<Value> = (0..10_001).map(|_| json!({"op": "test", "path": "/data/a", "value": "1"})).collect();
    check(
        json::apply,
        CONFIG_MAP,
        config_map(),
        "",
        vec![(
            "too many",
            operations.into(),
            Refused(413, "The allowed maximum operations in a JSON patch is 10000, got 10001"),
        )],
    );
    let doubling: Vec<Value> =
        (0..64).map(|at| json!({"op": "copy", "from": "/data", "path": format!("/data/k{at}")})).collect();
    check(
        json::apply,
        CONFIG_MAP,
        config_map(),
        "",
        vec![("copies that explode", doubling.into(), Refused(422, "the server rejected"))],
    );
}

#[test]
fn unknown_fields_warn_or_refuse() {
    let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
    let ty = Types::get().kind(&gvk).unwrap();
    let mut current = config_map();
    decode::normalise(&ty, &mut current, None).unwrap();
    let run = |apply: Apply, patch: &str, validation| {
        apply(&Target { ty: &ty, gvk: &gvk, custom: false, version: None, validation }, &current, patch.as_bytes())
    };
    let patch = r#"{"nope":1,"data":{"a":"2","a":"3"}}"#;
    for apply in [strategic::apply as Apply, merge::apply] {
        let warned = run(apply, patch, FieldValidation::Warn).unwrap();
        assert_eq!(warned.warnings, ["duplicate field \"data.a\"", "unknown field \"nope\""]);
        assert!(run(apply, patch, FieldValidation::Ignore).unwrap().warnings.is_empty());
        let refused = run(apply, patch, FieldValidation::Strict).unwrap_err().to_status();
        assert_eq!(refused.code, 422);
        assert!(
            refused.message.ends_with("strict decoding error: duplicate field \"data.a\", unknown field \"nope\""),
            "{}",
            refused.message
        );
    }
    let operation = r#"[{"op":"add","path":"/data/c","value":"1","why":2}]"#;
    let warned = run(json::apply, operation, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, ["json patch unknown field \"[0].why\""]);
}

/// A JSON patch that nests a field into itself, which doubles its depth with each operation.
fn doubling_patch(times: u32) -> Vec<u8> {
    let operations = (0..times).map(|done| {
        let path = format!("/spec/a{}", "/a".repeat(1 << done));
        json!({"op": "copy", "from": "/spec/a", "path": path})
    });
    Value::from(operations.collect::<Vec<_>>()).to_string().into_bytes()
}

#[test]
fn a_json_patch_cannot_nest_deeper_than_a_body_may() {
    let gvk = GroupVersionKind::new("e.io", "v1", "Thing");
    let ty = crate::facts::Type::of_schema(None);
    let target = Target { ty: &ty, gvk: &gvk, custom: true, version: None, validation: FieldValidation::Warn };
    let current = json!({"apiVersion": "e.io/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"a": {}}});
    // 64 levels below the spec.
    let patched = json::apply(&target, &current, &doubling_patch(6)).unwrap();
    assert!(machinery::json::from_str(&patched.value.to_string()).is_ok());
    for times in [7, 8, 17] {
        let refused = json::apply(&target, &current, &doubling_patch(times)).unwrap_err();
        assert_eq!(refused, PatchError::Unprocessable, "{times}");
    }
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    for (operation, accepted) in [
        (r#"{"op": "add", "path": "/spec/a/b", "value": "#, true),
        (r#"{"op": "replace", "path": "/spec/a/b", "value": "#, true),
    ] {
        let twice = |path: &str| {
            let first = format!("{operation}{deep}}}");
            let second = first.replace("/spec/a/b", path);
            json::apply(&target, &current, format!("[{first}, {second}]").as_bytes())
        };
        assert_eq!(twice("/spec/a/c").is_ok(), accepted);
        assert_eq!(twice(&format!("/spec/a/b{}", "/0".repeat(50))).is_ok(), !accepted);
    }
}
