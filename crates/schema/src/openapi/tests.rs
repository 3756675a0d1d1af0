//! Content of documents in both versions.

use std::sync::LazyLock;

use bytes::Bytes;
use machinery::Revision;
use serde_json::{Value, json};

use super::{Encoding, Source};
use crate::custom::installed::install;
use crate::kinds::{self, Kinds};

fn source(kinds: &Kinds) -> Source<'_> {
    Source { kinds, version: "v1" }
}

fn v3(kinds: &Kinds, path: &str) -> Value {
    serde_json::from_slice(&source(kinds).v3(path, Encoding::Json).unwrap()).unwrap()
}

static CORE: LazyLock<Value> = LazyLock::new(|| v3(kinds::builtin(), "api/v1"));
static V2: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_slice(&source(kinds::builtin()).v2(Encoding::Json)).unwrap());

fn core(definition: &str) -> &'static Value {
    &CORE["components"]["schemas"][format!("io.k8s.api.core.v1.{definition}")]
}

fn without_text(schema: &Value) -> Value {
    let mut schema = schema.clone();
    schema.as_object_mut().unwrap().shift_remove("description");
    schema
}

#[test]
fn a_kind_says_which_kind_it_is_and_what_it_needs() {
    let pod = core("Pod");
    assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "kind": "Pod", "version": "v1"}]));
    assert_eq!(pod["type"], "object");
    assert!(pod["description"].as_str().unwrap().starts_with("Pod is"));
    let names: Vec<&String> = pod["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["apiVersion", "kind", "metadata", "spec", "status"]);
    assert_eq!(core("PodSpec")["required"], json!(["containers"]));
    assert_eq!(core("PodList")["required"], json!(["items"]));
    assert!(core("PodList")["description"].as_str().is_some());
}

#[test]
fn fields_have_types_formats_defaults_and_the_ways_they_merge() {
    let spec = &core("PodSpec")["properties"];
    assert_eq!(
        without_text(&spec["containers"]),
        json!({
            "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}], "default": {}},
            "type": "array",
            "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "name",
            "x-kubernetes-patch-strategy": "merge",
        })
    );
    assert_eq!(spec["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(without_text(&spec["terminationGracePeriodSeconds"]), json!({"type": "integer", "format": "int64"}));
    assert_eq!(core("ContainerPort")["properties"]["protocol"]["default"], "TCP");
    assert_eq!(core("ContainerPort")["properties"]["protocol"]["enum"], json!(["SCTP", "TCP", "UDP"]));
    assert!(
        core("ContainerPort")["properties"]["protocol"]["description"]
            .as_str()
            .unwrap()
            .ends_with("\n\nPossible enum values:\n - `\"SCTP\"`\n - `\"TCP\"`\n - `\"UDP\"`")
    );
    assert_eq!(core("ObjectReference")["x-kubernetes-map-type"], "atomic");
    let claim = &core("PersistentVolumeSpec")["properties"]["claimRef"];
    assert_eq!(claim["x-kubernetes-map-type"], "granular", "otherwise than its type");
    assert_eq!(claim["allOf"], json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.ObjectReference"}]));
    let limits = &core("ResourceRequirements")["properties"]["limits"];
    let quantity = "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity";
    assert_eq!(limits["additionalProperties"], json!({"$ref": quantity}));
    assert_eq!(core("Secret")["properties"]["data"]["additionalProperties"]["format"], "byte");
    let schemas = &CORE["components"]["schemas"];
    let number_or_name = &schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"];
    assert_eq!(
        without_text(number_or_name),
        json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
    );
    assert_eq!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"]["format"], "date-time");
}

#[test]
fn version_2_says_the_same_in_its_own_way() {
    let spec = &V2["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(
        without_text(&spec["containers"]),
        json!({
            "items": {"$ref": "#/definitions/io.k8s.api.core.v1.Container"},
            "type": "array",
            "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "name",
            "x-kubernetes-patch-strategy": "merge",
        })
    );
    let quantity = &V2["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(without_text(quantity), json!({"type": "string"}));
    let patch = &V2["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let parameters: Vec<&str> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shared| shared["$ref"].as_str().unwrap().strip_prefix("#/parameters/").unwrap())
        .map(|name| V2["parameters"][name]["name"].as_str().unwrap())
        .collect();
    assert_eq!(parameters, ["body", "dryRun", "fieldManager", "fieldValidation", "force"]);
    assert!(patch["consumes"].as_array().unwrap().contains(&json!("application/strategic-merge-patch+json")));
    assert_eq!(patch["responses"]["200"]["schema"]["$ref"], "#/definitions/io.k8s.api.apps.v1.Deployment");
}

#[test]
fn operations_have_the_names_that_generated_clients_use() {
    let id = |path: &str, method: &str| CORE["paths"][path][method]["operationId"].as_str().unwrap().to_owned();
    assert_eq!(id("/api/v1/pods", "get"), "listCoreV1PodForAllNamespaces");
    assert_eq!(id("/api/v1/namespaces/{namespace}/pods", "delete"), "deleteCoreV1CollectionNamespacedPod");
    assert_eq!(id("/api/v1/namespaces/{namespace}/pods/{name}/status", "put"), "replaceCoreV1NamespacedPodStatus");
    assert_eq!(id("/api/v1/namespaces/{namespace}/pods/{name}/exec", "post"), "connectCoreV1PostNamespacedPodExec");
    assert_eq!(id("/api/v1/watch/nodes/{name}", "get"), "watchCoreV1Node");
    let scale = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale";
    let patch = &V2["paths"][scale]["patch"];
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeploymentScale");
    let gvk = json!({"group": "autoscaling", "kind": "Scale", "version": "v1"});
    assert_eq!(patch["x-kubernetes-group-version-kind"], gvk);
    assert_eq!(patch["x-kubernetes-action"], "patch");
    let role = &V2["paths"]["/apis/rbac.authorization.k8s.io/v1/clusterroles"]["post"];
    assert_eq!(role["operationId"], "createRbacAuthorizationV1ClusterRole");
    assert_eq!(role["tags"], json!(["rbacAuthorization_v1"]));
}

/// Checks that all references resolve and operation names are unique.
fn is_whole(document: &Value, prefix: &str, definitions: &Value) {
    fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(document, &mut found);
    for name in found.iter().filter_map(|found| found.strip_prefix(prefix)) {
        assert!(definitions[name].is_object(), "{name} is nowhere");
    }
    let items = document["paths"].as_object().unwrap().values();
    let operations = items.flat_map(|item| item.as_object().unwrap().values());
    let mut ids: Vec<&str> = operations.filter_map(|operation| operation["operationId"].as_str()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "names of operations");
}

#[test]
fn every_document_is_whole() {
    let kinds = kinds::builtin();
    let paths = source(kinds).paths();
    assert_eq!(paths.len(), 3 + 22 + 20, "{paths:?}");
    for path in &paths {
        let document = v3(kinds, path);
        is_whole(&document, "#/components/schemas/", &document["components"]["schemas"]);
        assert!(!document["paths"].as_object().unwrap().is_empty(), "{path}");
    }
    is_whole(&V2, "#/definitions/", &V2["definitions"]);
    assert_eq!(V2["definitions"].as_object().unwrap().len(), 584);
    assert!(source(kinds).v3("apis/nope/v1", Encoding::Json).is_none());
    assert!(source(kinds).v3("apis//v1", Encoding::Json).is_none());
}

/// Only lists, for which `k8s-openapi` has one type, and types without a description there.
#[test]
fn kinds_and_fields_are_described() {
    let mut bare = Vec::new();
    let mut count = 0;
    for (name, schema) in V2["definitions"].as_object().unwrap() {
        count += 1;
        if schema["description"].is_null() {
            bare.push(name.clone());
        }
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            count += 1;
            if property["description"].is_null() {
                bare.push(format!("{name}.{field}"));
            }
        }
    }
    assert!(bare.len() * 50 < count, "{} of {count} have no text: {bare:?}", bare.len());
}

fn schema() -> Value {
    json!({
        "description": "A thing.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3},
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "note": {"type": "string", "nullable": true},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                             "x-kubernetes-preserve-unknown-fields": true},
            }},
        },
    })
}

/// Returns a stored definition with this schema and accepted names.
fn installed(schema: &Value) -> Kinds {
    let stored = json!({
        "metadata": {"name": "things.stable.example.com", "uid": "u"},
        "spec": {"group": "stable.example.com", "scope": "Namespaced", "names": {}, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
        }]},
        "status": {
            "acceptedNames": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "conditions": [{"type": "Established", "status": "True"}],
        },
    });
    let installed = install(&Bytes::from(stored.to_string()), Revision(4), None).unwrap();
    kinds::builtin().with(crate::kind::Kind::clone(&installed.kinds[0]))
}

#[test]
fn custom_kinds_join_through_their_schema() {
    let kinds = installed(&schema());
    let document = v3(&kinds, "apis/stable.example.com/v1");
    is_whole(&document, "#/components/schemas/", &document["components"]["schemas"]);
    let thing = &document["components"]["schemas"]["com.example.stable.v1.Thing"];
    assert_eq!(thing["description"], "A thing.");
    assert_eq!(
        thing["x-kubernetes-group-version-kind"],
        json!([{"group": "stable.example.com", "kind": "Thing", "version": "v1"}])
    );
    assert_eq!(thing["required"], json!(["spec"]));
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(thing["properties"]["metadata"]["allOf"], json!([{"$ref": meta}]));
    let spec = &thing["properties"]["spec"]["properties"];
    assert_eq!(spec["size"], json!({"default": 3, "minimum": 1, "type": "integer"}));
    assert_eq!(spec["template"]["required"], json!(["kind", "apiVersion"]));
    assert_eq!(spec["template"]["properties"]["metadata"]["allOf"], json!([{"$ref": meta}]));
    let list = &document["components"]["schemas"]["com.example.stable.v1.ThingList"];
    let item = "#/components/schemas/com.example.stable.v1.Thing";
    assert_eq!(list["properties"]["items"]["items"]["$ref"], item);

    let paths = document["paths"].as_object().unwrap();
    let names: Vec<&String> = paths.keys().collect();
    let own = "/apis/stable.example.com/v1/namespaces/{namespace}/things";
    assert_eq!(
        names,
        [
            own,
            &format!("{own}/{{name}}"),
            &format!("{own}/{{name}}/scale"),
            &format!("{own}/{{name}}/status"),
            "/apis/stable.example.com/v1/things",
        ]
    );
    let patch = &paths[&format!("{own}/{{name}}")]["patch"];
    assert_eq!(patch["operationId"], "patchStableExampleComV1NamespacedThing");
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_null());

    let v2: Value = serde_json::from_slice(&source(&kinds).v2(Encoding::Json)).unwrap();
    let spec = &v2["definitions"]["com.example.stable.v1.Thing"]["properties"]["spec"]["properties"];
    assert_eq!(spec["size"], json!({"default": 3, "minimum": 1, "type": "integer"}));
    assert_eq!(spec["note"], json!({}), "what may be null has no type in version 2");
    assert_eq!(spec["port"], json!({"x-kubernetes-int-or-string": true}));
    assert!(source(&kinds).v3("apis/stable.example.com", Encoding::Json).is_none(), "nothing to say about the group");
}

#[test]
fn a_schema_of_any_depth_is_shown_as_far_as_it_goes() {
    let mut schema = json!({"type": "string"});
    for _ in 0..40 {
        schema = json!({"type": "object", "properties": {"a": schema}});
    }
    let kinds = installed(&schema);
    for encoding in [Encoding::Json, Encoding::Message] {
        assert!(source(&kinds).v3("apis/stable.example.com/v1", encoding).is_some());
    }
}

#[test]
fn a_hash_follows_what_a_document_says() {
    let hash = |kinds: &Kinds| source(kinds).hash("apis/stable.example.com/v1").unwrap();
    let first = installed(&schema());
    let before = hash(&first);
    // Compiling a schema, or reading its definition again, changes no document.
    let used = first.get("stable.example.com", "v1", "things").unwrap().definition.as_ref().unwrap().version();
    assert!(used.schema.property("spec").is_some());
    assert_eq!(hash(&first), before);
    assert_eq!(hash(&installed(&schema())), before);
    let mut other = schema();
    other["description"] = "Another thing.".into();
    assert_ne!(hash(&installed(&other)), before);
    assert_eq!(source(&first).hash("api/v1"), source(kinds::builtin()).hash("api/v1"));
}
