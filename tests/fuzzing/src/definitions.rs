//! Schemas of custom resources, and objects of them: a definition through all steps until it is served, an object through
//! all steps until it is stored.

use machinery::Revision;
use machinery::json::{Value, from_slice, json};
use schema::custom::{self, installed};
use schema::decode::{self, FieldValidation, MediaType};
use schema::facts::Types;
use schema::kind::Kind;
use schema::managed::{Subject, Writer, track_update};
use schema::{columns, defaults, kinds, strategy, validation, warnings};

/// `{"schema": …, "object": …}`, and optional parts of a version: `columns`, `fields`, `subresources`.
pub fn definition(data: &[u8]) {
    let Ok(input) = from_slice(data) else { return };
    let definition = whole(&input);
    let crds =
        kinds::builtin().get("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("a built-in kind");
    let ty = Types::get().kind(&crds.gvk).expect("a built-in kind has a type");
    let text = definition.to_string();
    let Ok(decoded) = decode::decode(&ty, &crds.gvk, text.as_bytes(), MediaType::Json, FieldValidation::Ignore, None)
    else {
        return;
    };
    let refused = validation::validate_create(crds, &decoded.value, false);
    let _ = validation::validate_update(crds, &decoded.value, &definition, &mut Vec::new());
    let _ = warnings::on_write(crds, &decoded.value, None, false);
    // A refused definition is never installed by the server, but installing it must not panic either.
    let stored = if refused.is_empty() { decoded.value.to_string() } else { text };
    let Ok(installed) = installed::install(&stored.into_bytes().into(), Revision(1), None) else { return };
    for kind in &installed.kinds {
        object(kind, &input["object"]);
    }
}

/// The JSONPath of a printer column, applied to an object.
pub fn json_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(path) = custom::jsonpath::JsonPath::parse(text) {
        let object = json!({"a": [{"b": 1, "c": "x"}, {"b": 2.5}], "d": {"e": {"f": true}}, "g": null});
        let _ = path.find(&object);
    }
}

fn whole(input: &Value) -> Value {
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": input["schema"]},
        "additionalPrinterColumns": input["columns"], "selectableFields": input["fields"],
        "subresources": input["subresources"]});
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "uid": "u"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        "status": {"acceptedNames": names, "storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]}})
}

fn object(kind: &Kind, object: &Value) {
    let Some(definition) = &kind.definition else { return };
    let version = definition.version();
    let mut text = object.clone();
    if !text.is_object() {
        text = json!({});
    }
    text["apiVersion"] = "example.com/v1".into();
    text["kind"] = "Thing".into();
    let text = text.to_string();
    let mut kept = object.clone();
    custom::decode::from_storage(version, &mut kept);
    for validation in [FieldValidation::Warn, FieldValidation::Strict] {
        let Ok(decoded) = custom::decode::decode(version, &kind.gvk, text.as_bytes(), MediaType::Json, validation)
        else {
            continue;
        };
        let mut object = decoded.value;
        defaults::apply(kind, &mut object, None);
        let writer = Writer { manager: "fuzz", subresource: "", time: "2026-01-01T00:00:00Z" };
        track_update(&Subject::new(kind, &version.ty), None, &mut object, &writer);
        strategy::prepare_for_create(kind, &mut object);
        let _ = validation::validate_create(kind, &object, false);
        let _ = validation::validate_update(kind, &object, &kept, &mut Vec::new());
        let _ = validation::validate_subresource_update(kind, "status", &object, &kept, &mut Vec::new());
        let _ = warnings::on_write(kind, &object, Some(&kept), false);
        let _ = columns::row(kind, &object, 0);
    }
}
