//! Validation of an object's `metadata`, on create and on update (spec 02 §2.1).

use std::collections::HashSet;

use crate::json::{Map, Value};

use crate::field_error::{FieldError, Path};
use crate::go_text::quote;
use crate::gvk::GroupVersion;
use crate::label_selector::validate_labels;
use crate::names::{self, NameRule};
use crate::options::validate_field_manager;

/// The annotation of the bookmark that ends the initial state of a streaming list; its value is `true`.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Most bytes of all annotations of an object together, keys and values.
pub const ANNOTATIONS_MAX: usize = 256 * 1024;
const SUBRESOURCE_MAX: usize = 256;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const METADATA: Path<'static> = Path::new("metadata");
pub const IMMUTABLE: &str = "field is immutable";

/// The rules of a kind for its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaRules {
    pub name: NameRule,
    pub namespaced: bool,
    /// A finalizer without a domain must be one of the well-known ones: the rule of built-in kinds.
    pub known_finalizers_only: bool,
}

/// Validates on create, after a name was generated.
#[must_use]
pub fn validate_object_meta(meta: &Value, rules: &MetaRules) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate_name = text(meta, "generateName");
    if !generate_name.is_empty() {
        push_objections(
            &mut errors,
            &METADATA.child("generateName"),
            generate_name,
            rules.name.check_prefix(generate_name),
        );
    }
    let name = text(meta, "name");
    if name.is_empty() {
        errors.push(FieldError::required(METADATA.child("name"), "name or generateName is required"));
    } else {
        push_objections(&mut errors, &METADATA.child("name"), name, rules.name.check(name));
    }
    let namespace = text(meta, "namespace");
    let path = METADATA.child("namespace");
    match (rules.namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(path, "")),
        (true, false) => push_objections(&mut errors, &path, namespace, names::dns1123_label(namespace)),
        (false, false) => errors.push(FieldError::forbidden(path, "not allowed on this type")),
        (false, true) => {}
    }
    let generation = generation(meta);
    if generation < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(METADATA.child("generation"), generation, detail));
    }
    errors.extend(validate_labels(meta.get("labels"), &METADATA.child("labels")));
    annotations(&mut errors, meta);
    owner_references(&mut errors, meta);
    finalizers(&mut errors, meta);
    managed_fields(&mut errors, meta);
    if rules.known_finalizers_only {
        known_finalizers(&mut errors, meta);
    }
    errors
}

/// Validates on update: what may not change, and the rules that hold for every write.
#[must_use]
pub fn validate_object_meta_update(new: &Value, old: &Value, rules: &MetaRules) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        no_new_finalizers(&mut errors, new, old);
    }
    let revision = text(new, "resourceVersion");
    if revision.is_empty() {
        let path = METADATA.child("resourceVersion");
        errors.push(FieldError::invalid(path, revision, "must be specified for an update"));
    }
    if generation(new) < generation(old) {
        errors.push(FieldError::invalid(METADATA.child("generation"), generation(new), "must not be decremented"));
    }
    for name in ["name", "namespace", "uid"] {
        if text(new, name) != text(old, name) {
            errors.push(FieldError::invalid(METADATA.child(name), text(new, name), IMMUTABLE));
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (new.get(name).unwrap_or(&Value::Null), old.get(name).unwrap_or(&Value::Null));
        if new != old {
            errors.push(FieldError::invalid(METADATA.child(name), new, IMMUTABLE));
        }
    }
    errors.extend(validate_labels(new.get("labels"), &METADATA.child("labels")));
    annotations(&mut errors, new);
    owner_references(&mut errors, new);
    managed_fields(&mut errors, new);
    if rules.known_finalizers_only {
        known_finalizers(&mut errors, new);
    }
    errors
}

fn push_objections(errors: &mut Vec<FieldError>, path: &Path<'_>, value: &str, objections: names::Objections) {
    errors.extend(objections.into_iter().map(|why| FieldError::invalid(path, value, why)));
}

fn text<'a>(parent: &'a Value, name: &str) -> &'a str {
    parent.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(parent: &'a Value, name: &str) -> &'a [Value] {
    parent.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn generation(meta: &Value) -> i64 {
    meta.get("generation").and_then(Value::as_i64).unwrap_or_default()
}

fn annotations(errors: &mut Vec<FieldError>, meta: &Value) {
    let Some(annotations) = meta.get("annotations").and_then(Value::as_object) else { return };
    let path = METADATA.child("annotations");
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.as_str().unwrap_or_default().len();
        if key.bytes().any(|b| b.is_ascii_uppercase()) || !key.is_ascii() {
            push_objections(errors, &path, key, names::qualified_name(&key.to_lowercase()));
        } else {
            push_objections(errors, &path, key, names::qualified_name(key));
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX));
    }
}

fn owner_references(errors: &mut Vec<FieldError>, meta: &Value) {
    let path = METADATA.child("ownerReferences");
    let references = list(meta, "ownerReferences");
    let mut controller: Option<String> = None;
    for reference in references {
        let api_version = text(reference, "apiVersion");
        let parsed = GroupVersion::parse(api_version).unwrap_or_default();
        if parsed.version.is_empty() {
            errors.push(FieldError::invalid(path.child("apiVersion"), api_version, "version must not be empty"));
        }
        for name in ["kind", "name", "uid"] {
            if text(reference, name).is_empty() {
                errors.push(FieldError::invalid(path.child(name), "", "must not be empty"));
            }
        }
        let kind = text(reference, "kind");
        if parsed.group.is_empty() && parsed.version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, ordered_reference(reference), detail));
        }
        if reference.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{kind}/{}", text(reference, "name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let all: Vec<Value> = references.iter().map(ordered_reference).collect();
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    errors.push(FieldError::invalid(path, Value::from(all), detail));
                }
            }
        }
    }
}

/// Returns a reference with its members in the order of its type, as messages show it.
fn ordered_reference(reference: &Value) -> Value {
    let mut ordered = Map::new();
    for name in ["apiVersion", "kind", "name", "uid"] {
        ordered.insert(name.to_owned(), text(reference, name).into());
    }
    for name in ["controller", "blockOwnerDeletion"] {
        if let Some(value) = reference.get(name).filter(|value| !value.is_null()) {
            ordered.insert(name.to_owned(), value.clone());
        }
    }
    Value::Object(ordered)
}

fn finalizer_names(meta: &Value) -> impl Iterator<Item = &str> {
    list(meta, "finalizers").iter().filter_map(Value::as_str)
}

fn finalizers(errors: &mut Vec<FieldError>, meta: &Value) {
    let path = METADATA.child("finalizers");
    for finalizer in finalizer_names(meta) {
        push_objections(errors, &path, finalizer, names::qualified_name(finalizer));
    }
    let has = |wanted| finalizer_names(meta).any(|finalizer| finalizer == wanted);
    if has(ORPHAN) && has(FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(path, Value::from(list(meta, "finalizers").to_vec()), detail));
    }
}

fn known_finalizers(errors: &mut Vec<FieldError>, meta: &Value) {
    let path = METADATA.child("finalizers");
    for (i, finalizer) in finalizer_names(meta).enumerate() {
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | ORPHAN | FOREGROUND) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(path.index(i), finalizer, detail));
        }
    }
}

fn no_new_finalizers(errors: &mut Vec<FieldError>, new: &Value, old: &Value) {
    let known: HashSet<&str> = finalizer_names(old).collect();
    let mut added: Vec<&str> = finalizer_names(new).filter(|name| !known.contains(name)).collect();
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let added: Vec<String> = added.into_iter().map(quote).collect();
        errors.push(FieldError::forbidden(
            METADATA.child("finalizers"),
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            ),
        ));
    }
}

fn managed_fields(errors: &mut Vec<FieldError>, meta: &Value) {
    let entries = METADATA.child("managedFields");
    for (i, entry) in list(meta, "managedFields").iter().enumerate() {
        let path = entries.index(i);
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            errors.push(FieldError::invalid(path.child("operation"), operation, "must be `Apply` or `Update`"));
        }
        let fields_type = text(entry, "fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.push(FieldError::invalid(path.child("fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        errors.extend(validate_field_manager(text(entry, "manager"), &path.child("manager")));
        if text(entry, "subresource").len() > SUBRESOURCE_MAX {
            errors.push(FieldError::too_long(path.child("subresource"), SUBRESOURCE_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    const RULES: MetaRules = MetaRules { name: NameRule::DnsSubdomain, namespaced: true, known_finalizers_only: true };

    #[track_caller]
    fn wrong(meta: Value, want: &[&str]) {
        let mut whole = json!({"name": "a", "namespace": "n"});
        for (key, value) in meta.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let errors: Vec<String> = validate_object_meta(&whole, &RULES).iter().map(ToString::to_string).collect();
        assert_eq!(errors, want);
    }

    #[test]
    fn names_and_namespaces() {
        wrong(json!({}), &[]);
        wrong(json!({"name": ""}), &["metadata.name: Required value: name or generateName is required"]);
        wrong(json!({"namespace": ""}), &["metadata.namespace: Required value"]);
        wrong(json!({"name": "x-abcde", "generateName": "x-"}), &[]);
        let cluster = MetaRules { namespaced: false, ..RULES };
        let errors = validate_object_meta(&json!({"name": "a", "namespace": "n"}), &cluster);
        assert_eq!(errors[0].to_string(), "metadata.namespace: Forbidden: not allowed on this type");
    }

    #[test]
    fn create_owner_references_that_are_wrong() {
        wrong(
            json!({"ownerReferences": [{}]}),
            &[
                "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
                "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ],
        );
        wrong(
            json!({"ownerReferences": [{"apiVersion": "a/b/c", "kind": "Pod", "name": "p", "uid": "u"}]}),
            &["metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty"],
        );
        wrong(
            json!({"ownerReferences": [{"uid": "u", "name": "p", "kind": "Event", "apiVersion": "v1"}]}),
            &[
                "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"p\",\"uid\":\"u\"}: /v1, Kind=Event is disallowed from being an owner",
            ],
        );
        wrong(
            json!({"ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "v", "controller": true},
            ]}),
            &[
                "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"u\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"q\",\"uid\":\"v\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/p and Pod/q",
            ],
        );
    }

    #[test]
    fn create_finalizers() {
        wrong(json!({"finalizers": ["example.com/f", "orphan", "example.com/f"]}), &[]);
        wrong(
            json!({"finalizers": ["plain"]}),
            &[
                "metadata.finalizers[0]: Invalid value: \"plain\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        );
        wrong(
            json!({"finalizers": ["orphan", "foregroundDeletion"]}),
            &[
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
            ],
        );
        let custom = MetaRules { known_finalizers_only: false, ..RULES };
        let meta = json!({"name": "a", "namespace": "n", "finalizers": ["plain"]});
        assert!(validate_object_meta(&meta, &custom).is_empty());
    }

    #[test]
    fn create_annotations_that_are_wrong() {
        wrong(json!({"annotations": {"A.com/B": "any thing"}}), &[]);
        wrong(
            json!({"annotations": {"a": "x".repeat(ANNOTATIONS_MAX)}}),
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        );
        wrong(
            json!({"annotations": {"/a": "x"}, "labels": {"k": "v".repeat(64)}}),
            &[
                &format!("metadata.labels: Invalid value: \"{}\": must be no more than 63 bytes", "v".repeat(64)),
                "metadata.annotations: Invalid value: \"/a\": prefix part must be non-empty",
            ],
        );
    }

    #[test]
    fn managed_fields_entries() {
        wrong(
            json!({"managedFields": [{"operation": "Nope", "fieldsType": "X", "manager": "m".repeat(129)}]}),
            &[
                "metadata.managedFields[0].operation: Invalid value: \"Nope\": must be `Apply` or `Update`",
                "metadata.managedFields[0].fieldsType: Invalid value: \"X\": must be `FieldsV1`",
                "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
            ],
        );
    }

    #[test]
    fn update_rules() {
        let old = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "finalizers": ["example.com/f"]});
        assert!(validate_object_meta_update(&old, &old, &RULES).is_empty());
        let new = json!({"name": "b", "namespace": "n", "uid": "v", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": null,
            "finalizers": ["example.com/g", "example.com/f", "example.com/a"]});
        let errors: Vec<String> =
            validate_object_meta_update(&new, &old, &RULES).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/a\", \"example.com/g\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"v\": field is immutable",
                "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            ]
        );
    }
}
