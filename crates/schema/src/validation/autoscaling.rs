//! Validation of autoscalers, in both versions.

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::quantity::Quantity;
use machinery::{GroupVersion, names};

use super::Errors;
use super::amount;
use super::rules::{named, not_negative, optional_word, selector, word};
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");
const SOURCES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

pub(super) fn validate(version: &str, object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    let (min, max) = (spec.int("minReplicas"), spec.int("maxReplicas").unwrap_or(0));
    if let Some(min) = min.filter(|min| *min < 1) {
        errors.push(FieldError::invalid(SPEC.child("minReplicas"), min, "must be greater than or equal to 1"));
    }
    let path = SPEC.child("maxReplicas");
    match max {
        0 => errors.push(FieldError::required(path, "must be set and greater than 0")),
        ..0 => errors.push(FieldError::invalid(path, max, "must be greater than or equal to 1")),
        _ => {}
    }
    if min.is_some_and(|min| max < min) {
        errors.push(FieldError::invalid(path, max, "must be greater than or equal to `minReplicas`"));
    }
    reference(spec.at("scaleTargetRef"), true, &SPEC.child("scaleTargetRef"), errors);
    if version == "v1" {
        // The percentage is the first metric inside the server.
        if let Some(percent) = spec.int("targetCPUUtilizationPercentage").filter(|percent| *percent < 1) {
            let path = SPEC.child("metrics[0].resource.target.averageUtilization");
            errors.push(FieldError::invalid(path, percent, "must be greater than 0"));
        }
        return;
    }
    let metrics = spec.list("metrics");
    let list = SPEC.child("metrics");
    for (i, entry) in metrics.iter().enumerate() {
        metric(entry, &list.index(i), errors);
    }
    let from_outside = |metric: &Value| matches!(metric.text("type"), "Object" | "External");
    if min == Some(0) && !metrics.iter().any(from_outside) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(list, why));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.at("behavior").at(direction);
        if rules.is_object() {
            let behavior = SPEC.child("behavior");
            scaling(rules, &behavior.child(direction), errors);
        }
    }
}

fn reference(target: &Value, needs_group: bool, path: &Path<'_>, errors: &mut Errors) {
    named(errors, &path.child("kind"), target.text("kind"), names::path_segment);
    named(errors, &path.child("name"), target.text("name"), names::path_segment);
    let version = target.text("apiVersion");
    let why = match GroupVersion::parse(version) {
        None => format!("unexpected GroupVersion string: {version}"),
        // Only an absent value is refused; `v1` is the core group.
        Some(parsed)
            if needs_group
                && parsed.group.is_empty()
                && (version.is_empty() || target.text("kind") != "ReplicationController") =>
        {
            "apiVersion must specify API group".to_owned()
        }
        Some(_) => return,
    };
    errors.push(FieldError::invalid(path.child("apiVersion"), version, why));
}

fn metric(metric: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = metric.text("type");
    if kind.is_empty() {
        errors.push(FieldError::required(path.child("type"), "must specify a metric source type"));
    }
    word(errors, &path.child("type"), kind, &SOURCES);
    let fields = ["object", "external", "pods", "resource", "containerResource"];
    let present: Vec<&str> = fields.into_iter().filter(|field| metric.has(field)).collect();
    if let Some(first) = present.first() {
        source(first, metric.at(first), &path.child(first), errors);
    }
    let expected = match kind {
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "External" => "external",
        "ContainerResource" => "containerResource",
        _ => {
            word(errors, &path.child("type"), kind, &SOURCES);
            ""
        }
    };
    if !expected.is_empty() && !metric.has(expected) {
        let why = "must populate information for the given metric source";
        errors.push(FieldError::required(path.child(expected), why));
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| *field != expected) {
            errors.push(FieldError::forbidden(path.child(field), "must populate the given metric source only"));
        }
    }
}

fn source(field: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let target = source.at("target");
    let target_path = path.child("target");
    if field == "object" {
        reference(source.at("describedObject"), false, &path.child("describedObject"), errors);
    }
    match field {
        "resource" | "containerResource" => {
            if source.text("name").is_empty() {
                errors.push(FieldError::required(path.child("name"), "must specify a resource name"));
            }
            if field == "containerResource" && source.text("container").is_empty() {
                errors.push(FieldError::required(path.child("container"), "must specify a container"));
            }
        }
        _ => {
            let (name, path) = (source.text("metric.name"), path.child("metric"));
            if name.is_empty() {
                errors.push(FieldError::required(path.child("name"), "must specify a metric name"));
            } else {
                super::rules::objections(errors, &path.child("name"), name, names::path_segment(name));
            }
            selector(errors, &path.child("selector"), source.at("metric.selector"));
        }
    }
    metric_target(target, &target_path, errors);
    let (value, average, percent) = (target.has("value"), target.has("averageValue"), target.has("averageUtilization"));
    let mut need = |field: &str, why: &str| errors.push(FieldError::required(target_path.child(field), why));
    match field {
        "object" if !value && !average => need("averageValue", "must set either a target value or averageValue"),
        "external" if !value && !average => {
            need("averageValue", "must set either a target value for metric or a per-pod target");
        }
        "external" if value && average => {
            let why = "may not set both a target value for metric and a per-pod target";
            errors.push(FieldError::forbidden(target_path.child("value"), why));
        }
        "pods" if !average => need("averageValue", "must specify a positive target averageValue"),
        "resource" | "containerResource" if !percent && !average => {
            need("averageUtilization", "must set either a target raw value or a target utilization");
        }
        "resource" | "containerResource" if percent && average => {
            let why = "may not set both a target raw value and a target utilization";
            errors.push(FieldError::forbidden(target_path.child("averageValue"), why));
        }
        _ => {}
    }
}

fn metric_target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.push(FieldError::required(path.child("type"), "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(path.child("type"), kind, why));
    }
    for field in ["value", "averageValue"] {
        let value = target.at(field);
        if !value.is_null() && amount::of(value) <= Quantity::default() {
            errors.push(FieldError::invalid(path.child(field), amount::text(value), "must be positive"));
        }
    }
    if let Some(percent) = target.int("averageUtilization").filter(|percent| *percent < 1) {
        errors.push(FieldError::invalid(path.child("averageUtilization"), percent, "must be greater than 0"));
    }
}

fn scaling(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(window) = rules.int("stabilizationWindowSeconds") {
        let path = path.child("stabilizationWindowSeconds");
        if window < 0 {
            errors.push(FieldError::invalid(path, window, "must be greater than or equal to zero"));
        }
        if window > 3600 {
            errors.push(FieldError::invalid(path, window, "must be less than or equal to 3600"));
        }
    }
    optional_word(errors, &path.child("selectPolicy"), rules.at("selectPolicy"), &["Disabled", "Max", "Min"]);
    let list = path.child("policies");
    if rules.list("policies").is_empty() {
        errors.push(FieldError::required(list, "must specify at least one Policy"));
    }
    for (i, policy) in rules.list("policies").iter().enumerate() {
        let path = list.index(i);
        word(errors, &path.child("type"), policy.text("type"), &["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            let value = policy.int(field).unwrap_or(0);
            if value <= 0 {
                errors.push(FieldError::invalid(path.child(field), value, "must be greater than zero"));
            }
        }
        if let Some(period) = policy.int("periodSeconds").filter(|period| *period > 1800) {
            errors.push(FieldError::invalid(path.child("periodSeconds"), period, "must be less than or equal to 1800"));
        }
    }
    if rules.has("tolerance") {
        amount::not_negative(errors, &path.child("tolerance"), rules.at("tolerance"));
    }
}

pub(super) fn status(object: &Value, errors: &mut Errors) {
    for field in ["currentReplicas", "desiredReplicas"] {
        not_negative(errors, &Path::new("status").child(field), object.at("status").int(field));
    }
}
