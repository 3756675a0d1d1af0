//! Decoding of bodies, and errors.

use machinery::GroupVersionKind;
use machinery::json::json;

use super::*;
use crate::facts::Types;

fn gvk(version: &str, kind: &str) -> GroupVersionKind {
    let version = GroupVersion::parse(version).unwrap();
    GroupVersionKind::new(version.group, version.version, kind)
}

fn read(version: &str, kind: &str, body: &str, validation: FieldValidation) -> Result<Decoded, String> {
    let gvk = gvk(version, kind);
    let ty = Types::get().kind(&gvk).unwrap();
    let media = if body.starts_with('{') { MediaType::Json } else { MediaType::Yaml };
    decode(&ty, &gvk, body.as_bytes(), media, validation, None)
        .map_err(|error| error.to_status(kind, body.as_bytes()).message.clone())
}

fn ok(version: &str, kind: &str, body: &Value) -> Value {
    read(version, kind, &body.to_string(), FieldValidation::Strict).unwrap().value
}

fn refusal(version: &str, kind: &str, body: &Value) -> String {
    read(version, kind, &body.to_string(), FieldValidation::Warn).unwrap_err()
}

#[test]
fn fields_come_out_in_the_order_of_the_wire() {
    let pod = ok(
        "v1",
        "Pod",
        &json!({"status": {}, "spec": {"restartPolicy": "Never", "containers": [
        {"image": "i", "name": "c"}]}, "metadata": {"name": "x", "labels": {"b": "1", "a": "2"}}}),
    );
    assert_eq!(
        pod.to_string(),
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","labels":{"a":"2","b":"1"}},"spec":{"containers":[{"name":"c","image":"i","resources":{}}],"restartPolicy":"Never"},"status":{}}"#
    );
}

#[test]
fn a_normal_object_stays_as_it_is() {
    let text =
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","labels":{"a":"2","b":"1"}},"data":{"k":"v"}}"#;
    assert_eq!(ok("v1", "ConfigMap", &serde_json::from_str(text).unwrap()).to_string(), text);
}

#[test]
fn nulls_and_empty_values_disappear_and_fixed_fields_appear() {
    let pod = ok(
        "v1",
        "Pod",
        &json!({"metadata": {"name": "x", "annotations": null, "labels": {}, "finalizers": [],
        "creationTimestamp": null}, "spec": {"containers": null, "volumes": [], "nodeSelector": {}, "hostNetwork": false}}),
    );
    assert_eq!(
        pod,
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}, "spec": {"containers": null}, "status": {}})
    );
    let service = ok("v1", "Service", &json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}));
    assert_eq!(service["spec"]["ports"], json!([{"port": 1, "targetPort": 0}]));
    assert_eq!(service["status"], json!({"loadBalancer": {}}));
    let role = ok("rbac.authorization.k8s.io/v1", "Role", &json!({"metadata": {"name": "r"}, "rules": []}));
    assert_eq!(role["rules"], json!([]));
    let mut role = role;
    forget_empty(&Types::get().kind(&gvk("rbac.authorization.k8s.io/v1", "Role")).unwrap(), &mut role, None);
    assert_eq!(role["rules"], Value::Null, "storage knows no empty list");
}

#[test]
fn a_null_in_a_map_is_the_zero_value() {
    let map = ok("v1", "ConfigMap", &json!({"metadata": {"name": "x"}, "data": {"a": null, "b": "1"}}));
    assert_eq!(map["data"], json!({"a": "", "b": "1"}));
}

#[test]
fn quantities_times_and_bytes_take_their_one_form() {
    let pod = ok(
        "v1",
        "Pod",
        &json!({"metadata": {"name": "x", "creationTimestamp": "2024-01-01T02:00:00+02:00"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1024Mi", "cpu": 1}}}]}}),
    );
    assert_eq!(pod["metadata"]["creationTimestamp"], "2024-01-01T00:00:00Z");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "1", "memory": "1Gi"}));
    let secret = ok("v1", "Secret", &json!({"metadata": {"name": "x"}, "data": {"k": "YQ==\n"}}));
    assert_eq!(secret["data"]["k"], "YQ==");
}

#[test]
fn wrong_types_are_refused_in_gos_words() {
    let map = |body| refusal("v1", "ConfigMap", &body);
    let pod = |spec| refusal("v1", "Pod", &json!({"metadata": {"name": "x"}, "spec": spec}));
    let go = |kind: &str, rest: &str| format!("{kind} in version \"v1\" cannot be handled as a {kind}: {rest}");
    let unmarshal = |what: &str, field: &str, ty: &str| {
        format!("json: cannot unmarshal {what} into Go struct field {field} of type {ty}")
    };
    assert_eq!(
        map(json!({"metadata": {"labels": {"a": 1}}})),
        go("ConfigMap", &unmarshal("number", "ObjectMeta.metadata.labels", "string"))
    );
    assert_eq!(
        map(json!({"metadata": {"labels": ["a"]}})),
        go("ConfigMap", &unmarshal("array", "ObjectMeta.metadata.labels", "map[string]string"))
    );
    assert_eq!(
        map(json!({"metadata": "x"})),
        go("ConfigMap", &unmarshal("string", "ConfigMap.metadata", "v1.ObjectMeta"))
    );
    assert_eq!(
        map(json!({"binaryData": {"b": "not base64!"}})),
        go("ConfigMap", "illegal base64 data at input byte 3")
    );
    assert_eq!(
        pod(json!({"containers": "c"})),
        go("Pod", &unmarshal("string", "PodSpec.spec.containers", "[]v1.Container"))
    );
    assert_eq!(
        pod(json!({"containers": [{"command": "sh"}]})),
        go("Pod", &unmarshal("string", "Container.spec.containers.command", "[]string"))
    );
    assert_eq!(
        pod(json!({"activeDeadlineSeconds": 1.5})),
        go("Pod", &unmarshal("number 1.5", "PodSpec.spec.activeDeadlineSeconds", "int64"))
    );
    assert_eq!(
        pod(json!({"volumes": [{"hostPath": "x"}]})),
        go("Pod", &unmarshal("string", "Volume.spec.volumes.VolumeSource.hostPath", "v1.HostPathVolumeSource"))
    );
    assert_eq!(
        refusal("v1", "Secret", &json!({"type": 5})),
        go("Secret", &unmarshal("number", "Secret.type", "v1.SecretType"))
    );
    let service = refusal("v1", "Service", &json!({"spec": {"ports": [{"targetPort": true}]}}));
    assert_eq!(service, go("Service", &unmarshal("bool", "ServicePort.spec.ports.targetPort", "int32")));
    let class = refusal("scheduling.k8s.io/v1", "PriorityClass", &json!({"value": 3_000_000_000_i64}));
    assert_eq!(class, go("PriorityClass", &unmarshal("number 3000000000", "PriorityClass.value", "int32")));
}

#[test]
fn the_first_mismatch_is_told_but_a_malformed_scalar_wins() {
    let both = refusal("v1", "Pod", &json!({"metadata": {"name": 5}, "spec": {"hostNetwork": "x"}}));
    assert!(both.contains("ObjectMeta.metadata.name"), "{both}");
    let quantity = refusal(
        "v1",
        "Pod",
        &json!({"metadata": {"name": 5},
        "spec": {"containers": [{"resources": {"limits": {"cpu": "abc"}}}]}}),
    );
    assert!(quantity.contains("quantities must match the regular expression"), "{quantity}");
}

#[test]
fn unknown_and_duplicate_fields_warn_or_refuse() {
    let body = r#"{"metadata":{"name":"s"},"spec":{"containers":[{"name":"c","image":"a","image":"b","bad":1}],"restartPolicy":"Never","restartPolicy":"Always"}}"#;
    let strict = read("v1", "Pod", body, FieldValidation::Strict).unwrap_err();
    assert_eq!(
        strict,
        r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: duplicate field "spec.containers[0].image", unknown field "spec.containers[0].bad", duplicate field "spec.restartPolicy""#
    );
    let warned = read("v1", "Pod", body, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings.len(), 3);
    assert_eq!(warned.value["spec"]["restartPolicy"], "Always");
    assert!(warned.value["spec"]["containers"][0].get("bad").is_none());
    assert!(read("v1", "Pod", body, FieldValidation::Ignore).unwrap().warnings.is_empty());
    let case = read("v1", "ConfigMap", r#"{"metadata":{"Name":"a"}}"#, FieldValidation::Warn).unwrap();
    assert_eq!(case.warnings, [r#"unknown field "metadata.Name""#]);
    let yaml = read("v1", "ConfigMap", "metadata: {name: z}\ndata:\n  a: b\n  a: c\nx: 1\n", FieldValidation::Strict);
    assert_eq!(
        yaml.unwrap_err(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  line 4: key \"a\" already set in map, unknown field \"x\""
    );
}

#[test]
fn other_kinds_and_versions_are_refused() {
    assert_eq!(
        refusal("v1", "ConfigMap", &json!({"kind": "List", "apiVersion": "v1"})),
        "List in version \"v1\" cannot be handled as a ConfigMap: converting (v1.List) to (core.ConfigMap): unknown conversion"
    );
    assert_eq!(
        refusal("apps/v1", "Deployment", &json!({"kind": "Deployment", "apiVersion": "extensions/v1beta1"})),
        "the API version in the data (extensions/v1beta1) does not match the expected API version (apps/v1)"
    );
    let nothing = read("v1", "ConfigMap", "[]", FieldValidation::Warn).unwrap_err();
    assert!(nothing.ends_with("\"json:\\\"kind,omitempty\\\"\" } (5b5d)"), "{nothing}");
    let broken = read("v1", "ConfigMap", "{\"a\":}", FieldValidation::Warn).unwrap_err();
    assert_eq!(
        broken,
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character '}' looking for beginning of value ({\"a\":})"
    );
}

#[test]
fn decoding_twice_changes_nothing() {
    for gvk in Types::get().kinds() {
        let ty = Types::get().kind(&gvk).unwrap();
        let mut once = json!({});
        normalise(&ty, &mut once, None).unwrap();
        let mut twice = once.clone();
        normalise(&ty, &mut twice, None).unwrap();
        assert_eq!(once.to_string(), twice.to_string(), "{gvk}");
    }
}
