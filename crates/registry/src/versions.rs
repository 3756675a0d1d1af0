//! Kinds that are served in a version (or group) they are not stored in: events, autoscalers and custom resources.
//!
//! All have a function each way between two values. Custom resources are also pruned and defaulted again if their schema
//! changed since they were written.

mod old_metrics;

use machinery::field_error::BadValue;
use machinery::json::{Map, Value, json};
use machinery::{Revision, Status};
use schema::custom::Definition;
use schema::kind::Kind;

use crate::conversion_webhook;

/// The number of a converted form of an item: one for each served version that is not the stored one.
pub(crate) fn form_id(kind: &Kind) -> u32 {
    if let Some(definition) = &kind.definition {
        return definition.form;
    }
    match (kind.gvk.group.as_str(), kind.gvk.version.as_str()) {
        ("events.k8s.io", "v1") => 1,
        ("autoscaling", "v1") => 2,
        _ => 0,
    }
}

/// Whether an object written at `revision` is stored as it is served in `kind`.
pub(crate) fn is_shown_as_stored(kind: &Kind, revision: Revision) -> bool {
    is_storage_version(kind) && kind.definition.as_ref().is_none_or(|definition| revision > definition.since)
}

/// Called for every object of a list and every event to a watcher: allocates nothing.
fn is_storage_version(kind: &Kind) -> bool {
    kind.storage.version == kind.gvk.version && kind.storage.group == kind.gvk.group
}

/// Converts from the stored version to that of `kind`, if they differ.
pub(crate) fn show(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    if let Some(definition) = &kind.definition {
        return show_custom(kind, definition, object);
    }
    if is_storage_version(kind) { Ok(()) } else { from_storage(kind, object) }
}

/// Reads a custom resource by the schema of its stored version, then converts it to that of `kind`.
fn show_custom(kind: &Kind, definition: &Definition, object: &mut Value) -> Result<(), Status> {
    let wanted = kind.group_version().to_string();
    let is_there = object["apiVersion"] == wanted.as_str();
    let written = object["metadata"]["resourceVersion"].as_str().and_then(|revision| revision.parse::<u64>().ok());
    let by_webhook = conversion_webhook::webhook(kind).is_some();
    // An object that a webhook converted needs nothing else.
    if is_there && (by_webhook || written.is_some_and(|revision| revision > definition.since.0)) {
        return Ok(());
    }
    if by_webhook {
        return Err(Status::internal("the object was not converted by its webhook"));
    }
    let version = object["apiVersion"].as_str().and_then(|version| version.rsplit('/').next()).map(str::to_owned);
    if let Some(version) = version.and_then(|version| definition.version_named(&version)) {
        schema::custom::decode::from_storage(version, object);
    }
    if !is_there {
        object["apiVersion"] = json!(wanted);
        schema::custom::decode::converted(definition.version(), object);
    }
    Ok(())
}

/// Converts from the stored version to that of `kind`.
pub(crate) fn from_storage(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    if let Some(definition) = &kind.definition {
        return show_custom(kind, definition, object);
    }
    match (kind.gvk.group.as_str(), kind.gvk.version.as_str()) {
        ("events.k8s.io", "v1") => rename(object, EVENT, Direction::FromStorage),
        ("autoscaling", "v1") => autoscaler_to_v1(object),
        _ => {}
    }
    object["apiVersion"] = json!(kind.group_version().to_string());
    normalise(kind, object)
}

/// Converts from the version of `kind` to the stored one, unless a webhook does that.
pub(crate) fn to_storage(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    if kind.storage == kind.group_version() {
        return Ok(());
    }
    if conversion_webhook::webhook(kind).is_some() {
        return Ok(());
    }
    if let Some(definition) = &kind.definition {
        object["apiVersion"] = json!(kind.storage.to_string());
        schema::custom::decode::from_storage(definition.stored_version(), object);
        return Ok(());
    }
    match (kind.gvk.group.as_str(), kind.gvk.version.as_str()) {
        ("events.k8s.io", "v1") => rename(object, EVENT, Direction::ToStorage),
        ("autoscaling", "v1") => autoscaler_to_v2(object),
        _ => {}
    }
    object["apiVersion"] = json!(kind.storage.to_string());
    let stored = Kind {
        gvk: machinery::GroupVersionKind::new(&*kind.storage.group, &*kind.storage.version, &*kind.gvk.kind),
        ..kind.clone()
    };
    normalise(&stored, object)
}

/// Brings an object into the form of its new version.
fn normalise(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    let Some(ty) = schema::facts::Types::get().kind(&kind.gvk) else { return Ok(()) };
    schema::decode::normalise(&ty, object, None).map(|_| ()).map_err(Status::internal)
}

enum Direction {
    FromStorage,
    ToStorage,
}

/// Stored name, served name.
const EVENT: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(object: &mut Value, names: &[(&str, &str)], direction: Direction) {
    let Some(members) = object.as_object_mut() else { return };
    for (stored, served) in names {
        let (from, to) = match direction {
            Direction::FromStorage => (stored, served),
            Direction::ToStorage => (served, stored),
        };
        if let Some(value) = members.shift_remove(from) {
            members.insert((*to).to_owned(), value);
        }
    }
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// v1 has one field for the CPU target; everything else of v2 is in annotations.
fn autoscaler_to_v1(object: &mut Value) {
    let mut annotations = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let metrics = take(object, "spec", "metrics");
    let mut others = Vec::new();
    for metric in metrics.as_array().into_iter().flatten() {
        let target = &metric["resource"]["target"];
        if metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && target["type"] == "Utilization" {
            object["spec"]["targetCPUUtilizationPercentage"] = target["averageUtilization"].clone();
        } else {
            others.push(old_metrics::to_old(metric));
        }
    }
    keep_in(&mut annotations, METRICS, &json!(others));
    let behavior = take(object, "spec", "behavior");
    if let (Value::Object(_), BadValue::Text(text)) =
        (&behavior, schema::facts::internal::shown("autoscaling.HorizontalPodAutoscalerBehavior", &behavior))
    {
        annotations.insert(BEHAVIOR, text.into());
    }
    let mut current = Vec::new();
    for metric in take(object, "status", "currentMetrics").as_array().into_iter().flatten() {
        let value = &metric["resource"]["current"]["averageUtilization"];
        if metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && !value.is_null() {
            object["status"]["currentCPUUtilizationPercentage"] = value.clone();
        } else {
            current.push(old_metrics::to_old(metric));
        }
    }
    keep_in(&mut annotations, CURRENT_METRICS, &json!(current));
    keep_in(&mut annotations, CONDITIONS, &take(object, "status", "conditions"));
    if !annotations.is_empty() {
        object["metadata"]["annotations"] = Value::Object(annotations);
    }
}

fn autoscaler_to_v2(object: &mut Value) {
    let mut annotations = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let old = |annotations: &mut Map, name: &str, spec: bool| -> Vec<Value> {
        let kept = read_from(annotations, name);
        kept.as_array().into_iter().flatten().map(|metric| old_metrics::from_old(metric, spec)).collect()
    };
    let mut metrics = old(&mut annotations, METRICS, true);
    let target = take(object, "spec", "targetCPUUtilizationPercentage");
    if !target.is_null() {
        let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}});
        metrics.insert(0, json!({"type": "Resource", "resource": cpu}));
    }
    if metrics.is_empty() {
        // The default of v2, which an object has as soon as it is stored.
        let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}});
        metrics.push(json!({"type": "Resource", "resource": cpu}));
    }
    object["spec"]["metrics"] = json!(metrics);
    let behavior = read_from(&mut annotations, BEHAVIOR);
    if !behavior.is_null() {
        object["spec"]["behavior"] = old_metrics::with_small_initials(&behavior);
    }
    let mut current = old(&mut annotations, CURRENT_METRICS, false);
    let utilization = take(object, "status", "currentCPUUtilizationPercentage");
    if !utilization.is_null() {
        let cpu = json!({"name": "cpu", "current": {"averageUtilization": utilization}});
        current.insert(0, json!({"type": "Resource", "resource": cpu}));
    }
    if !current.is_empty() {
        object["status"]["currentMetrics"] = json!(current);
    }
    let conditions = read_from(&mut annotations, CONDITIONS);
    if !conditions.is_null() {
        object["status"]["conditions"] = conditions;
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if annotations.is_empty() {
            metadata.shift_remove("annotations");
        } else {
            metadata.insert("annotations", Value::Object(annotations));
        }
    }
}

fn take(object: &mut Value, part: &str, member: &str) -> Value {
    object.get_mut(part).and_then(Value::as_object_mut).and_then(|part| part.shift_remove(member)).unwrap_or_default()
}

fn keep_in(annotations: &mut Map, name: &str, value: &Value) {
    let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    if !empty {
        annotations.insert(name.to_owned(), json!(value.to_string()));
    }
}

fn read_from(annotations: &mut Map, name: &str) -> Value {
    let kept = annotations.shift_remove(name);
    kept.and_then(|text| serde_json::from_str(text.as_str()?).ok()).unwrap_or_default()
}
