//! Tests of refused definitions, with the fields and messages of the reference.

use super::*;

fn definition(version: Value) -> Value {
    json!({"metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
                 "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                 "versions": [version]},
        "status": {"storedVersions": ["v1"]}})
}

fn version(spec: Value) -> Value {
    json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}})
}

fn refused(definition: &Value) -> Vec<String> {
    let mut errors = Errors::new();
    validate(definition, None, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

/// Returns the errors of a schema, without the common prefix of their paths.
fn schema(spec: Value) -> Vec<String> {
    const START: &str = "spec.validation.openAPIV3Schema.properties[spec].";
    refused(&definition(version(spec))).iter().map(|error| error.replace(START, "")).collect()
}

#[test]
fn a_plain_definition_is_fine() {
    assert_eq!(refused(&definition(version(json!({"a": {"type": "string", "default": "x"}})))), [""; 0]);
}

#[test]
fn schemas_must_be_structural() {
    assert_eq!(
        schema(json!({"a": {}})),
        ["properties[a].type: Required value: must not be empty for specified object fields"]
    );
    assert_eq!(schema(json!({"a": {"type": "array"}})), ["properties[a].items: Required value: must be specified"]);
    assert_eq!(
        schema(json!({"a": {"type": "string", "anyOf": [{"type": "string"}]}})),
        ["properties[a].anyOf[0].type: Forbidden: must be empty to be structural"]
    );
    assert_eq!(
        schema(json!({"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}})),
        [""; 0]
    );
    assert_eq!(schema(json!({"a": {"$ref": "x"}})), ["properties[a].$ref: Forbidden: $ref is not supported"]);
    assert_eq!(
        schema(json!({"a": {"type": "text"}})),
        [
            r#"properties[a].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#
        ]
    );
}

#[test]
fn defaults_are_held_against_their_schema() {
    assert_eq!(
        schema(json!({"a": {"type": "string", "default": 5}})),
        [r#"properties[a].default: Invalid value: "integer":  in body must be of type string: "integer""#]
    );
    let object = json!({"type": "object", "properties": {"b": {"type": "string"}}, "default": {"c": 1}});
    assert_eq!(
        schema(json!({"a": object})),
        [r#"properties[a].default: Invalid value: {"c":1}: must not have unknown fields"#]
    );
}

#[test]
fn lists_that_are_maps_have_keys_that_are_there() {
    let list = |items: Value, keys: Value| {
        schema(
            json!({"a": {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}}),
        )
    };
    let item = json!({"type": "object", "properties": {"n": {"type": "string"}}});
    assert_eq!(
        list(item.clone(), json!(["n"])),
        [
            "properties[a].items.properties[n].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        ]
    );
    assert_eq!(
        list(item, json!(["z"])),
        [
            r#"properties[a].x-kubernetes-list-map-keys: Invalid value: ["z"]: entries must all be names of item properties"#
        ]
    );
    assert_eq!(
        list(json!({"type": "string"}), json!(["n"])),
        [
            r#"properties[a].items.type: Invalid value: "string": must be object if parent array's x-kubernetes-list-type is map"#
        ]
    );
}

#[test]
fn names_versions_and_groups() {
    let mut other = definition(version(json!({})));
    other["spec"]["names"]["plural"] = "Things".into();
    let errors = refused(&other);
    assert!(errors[0].ends_with(r#"must be spec.names.plural+"."+spec.group"#), "{errors:?}");
    assert!(errors[1].starts_with(r#"spec.names.plural: Invalid value: "Things": a DNS-1035 label"#), "{errors:?}");
    let mut none = version(json!({}));
    none["storage"] = false.into();
    assert!(refused(&definition(none))[0].ends_with("must have exactly one version marked as storage version"));
    let mut protected = definition(version(json!({})));
    protected["metadata"]["name"] = "things.x.k8s.io".into();
    protected["spec"]["group"] = "x.k8s.io".into();
    assert!(refused(&protected)[0].starts_with("metadata.annotations[api-approved.kubernetes.io]: Required value"));
    protected["metadata"]["annotations"] = json!({APPROVED: "https://example.com/pull/1"});
    assert_eq!(refused(&protected), [""; 0]);
}

#[test]
fn columns_fields_and_scales_have_paths() {
    let mut paths = version(json!({"a": {"type": "string"}, "o": {"type": "object"}}));
    paths["additionalPrinterColumns"] = json!([{"name": "A", "type": "text", "jsonPath": "spec.a"}]);
    paths["selectableFields"] =
        json!([{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.o"}, {"jsonPath": ".spec.zz"}, {"jsonPath": ".spec.a"}]);
    paths["subresources"] = json!({"scale": {"specReplicasPath": ".status.n", "statusReplicasPath": ""}});
    let fields: Vec<String> =
        refused(&definition(paths)).iter().filter_map(|error| Some(error.split_once(": ")?.0.to_owned())).collect();
    assert_eq!(
        fields,
        [
            "spec.subresources.scale.specReplicasPath",
            "spec.subresources.scale.statusReplicasPath",
            "spec.additionalPrinterColumns[0].type",
            "spec.additionalPrinterColumns[0].JSONPath",
            "spec.selectableFields[1].jsonPath",
            "spec.selectableFields[2].jsonPath",
            "spec.selectableFields[3].jsonPath",
        ]
    );
}

#[test]
fn what_is_established_keeps_its_scope_and_kind() {
    let mut old = definition(version(json!({})));
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let mut new = old.clone();
    new["spec"]["scope"] = "Cluster".into();
    new["spec"]["group"] = "other.example.com".into();
    let mut errors = Errors::new();
    immutable(&new, &old, &mut errors);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
            r#"spec.group: Invalid value: "other.example.com": field is immutable"#
        ]
    );
}

#[test]
fn unknown_formats_are_reported_once() {
    let odd = definition(version(json!({"a": {"type": "string", "format": "colour"}})));
    assert_eq!(unknown_formats(&odd, None), [r#"unrecognized format "colour""#]);
    assert_eq!(unknown_formats(&odd, Some(&odd)), [""; 0]);
}

#[test]
fn odd_definitions_are_survived() {
    for odd in [
        json!(null),
        json!([]),
        json!({"spec": 5}),
        json!({"spec": {"versions": [1, null, {"schema": {"openAPIV3Schema": 5}}]}}),
    ] {
        let _ = refused(&odd);
        let _ = unknown_formats(&odd, Some(&odd));
    }
}

#[test]
fn long_names_leave_room_for_fewer_versions() {
    let mut long = definition(version(json!({})));
    long["spec"]["names"]["shortNames"] = json!(["s".repeat(1 << 20)]);
    let versions: Value = (0..100)
        .map(|n| {
            let mut version = version(json!({}));
            version["name"] = json!(format!("v{}", n + 1));
            version["storage"] = json!(n == 0);
            version
        })
        .collect();
    long["spec"]["versions"] = versions;
    let errors = refused(&long);
    assert!(
        errors.iter().any(|error| error == "spec.versions: Too many: 100: must have at most 63 items"),
        "{errors:.200?}"
    );
}
