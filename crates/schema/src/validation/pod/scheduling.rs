//! Validation of scheduling rules: affinity, tolerations, spreading, gates.

use std::collections::{HashMap, HashSet};

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;

use super::super::Errors;
use super::super::rules::{objections, optional_word, positive, selector, word};
use crate::facts::internal;
use crate::walk::Walk as _;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    let nodes = affinity.at("nodeAffinity");
    let node_path = path.child("nodeAffinity");
    if nodes.has(REQUIRED) {
        node_selector(nodes.at(REQUIRED), &node_path.child(REQUIRED), errors);
    }
    let list = node_path.child(PREFERRED);
    for (i, term) in nodes.list(PREFERRED).iter().enumerate() {
        let path = list.index(i);
        weight(term, &path, errors);
        node_term(term.at("preference"), false, &path.child("preference"), errors);
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.at(field);
        let path = path.child(field);
        let list = path.child(REQUIRED);
        for (i, term) in pods.list(REQUIRED).iter().enumerate() {
            pod_term(term, &list.index(i), errors);
        }
        let list = path.child(PREFERRED);
        for (i, weighted) in pods.list(PREFERRED).iter().enumerate() {
            let path = list.index(i);
            weight(weighted, &path, errors);
            pod_term(weighted.at("podAffinityTerm"), &path.child("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = term.int("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(path.child("weight"), weight, "must be in the range 1-100"));
    }
}

/// Checks a selector of nodes: terms of which one must match.
pub(in super::super) fn node_selector(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let terms = value.list("nodeSelectorTerms");
    let list = path.child("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(list, "must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        node_term(term, true, &list.index(i), errors);
    }
}

fn node_term(term: &Value, check_values: bool, path: &Path<'_>, errors: &mut Errors) {
    let list = path.child("matchExpressions");
    for (i, requirement) in term.list("matchExpressions").iter().enumerate() {
        let path = list.index(i);
        let values = requirement.list("values");
        let value_path = path.child("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(value_path, why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(value_path, why));
            }
            "Gt" | "Lt" if values.len() != 1 => {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(FieldError::required(value_path, why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.push(FieldError::invalid(path.child("operator"), other, "not a valid selector operator")),
        }
        let key = requirement.text("key");
        objections(errors, &path.child("key"), key, names::qualified_name(key));
        if check_values {
            for (j, value) in values.iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                objections(errors, &value_path.index(j), value, names::label_value(value));
            }
        }
    }
    let list = path.child("matchFields");
    for (i, requirement) in term.list("matchFields").iter().enumerate() {
        let path = list.index(i);
        let values = requirement.list("values");
        let value_path = path.child("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.len() != 1 => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(FieldError::required(value_path, why));
            }
            "In" | "NotIn" => {}
            other => errors.push(FieldError::invalid(path.child("operator"), other, "not a valid selector operator")),
        }
        if requirement.text("key") == "metadata.name" {
            for (j, value) in values.iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                objections(errors, &value_path.index(j), value, names::dns1123_subdomain(value));
            }
        } else {
            let key = requirement.text("key");
            errors.push(FieldError::invalid(path.child("key"), key, "not a valid field selector key"));
        }
    }
}

fn pod_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    selector(errors, &path.child("labelSelector"), term.at("labelSelector"));
    selector(errors, &path.child("namespaceSelector"), term.at("namespaceSelector"));
    for name in term.list("namespaces") {
        let name = name.as_str().unwrap_or_default();
        objections(errors, &path.child("namespace"), name, names::dns1123_label(name));
    }
    label_keys(term, path, errors);
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(path.child("topologyKey"), "can not be empty"));
    }
    objections(errors, &path.child("topologyKey"), key, names::qualified_name(key));
}

/// Checks keys whose values are those of the pod itself: they need a selector.
fn label_keys(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = term.list(field);
        let list = path.child(field);
        if !keys.is_empty() && !term.has("labelSelector") {
            errors.push(FieldError::forbidden(list, "must not be specified when labelSelector is not set"));
        }
        for (i, key) in keys.iter().enumerate() {
            let key = key.as_str().unwrap_or_default();
            objections(errors, &list.index(i), key, names::qualified_name(key));
        }
    }
}

pub(in super::super) fn tolerations(list: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, toleration) in list.iter().enumerate() {
        let path = path.index(i);
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        let (value, effect) = (toleration.text("value"), toleration.text("effect"));
        if !key.is_empty() {
            objections(errors, &path.child("key"), key, names::qualified_name(key));
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(path.child("operator"), operator, why));
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(path.child("effect"), effect, why));
        }
        match operator {
            "Equal" | "" => {
                let why = names::label_value(value);
                if !why.is_empty() {
                    errors.push(FieldError::invalid(path.child("operator"), value, why.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let why = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(path.child("operator"), value, why));
                }
            }
            // Comparisons are a disabled feature, but the message lists them.
            "Lt" | "Gt" => {
                let words = ["Equal", "Exists", "Lt", "Gt"];
                errors.push(FieldError::not_supported(path.child("operator"), operator, words));
            }
            other => word(errors, &path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            word(errors, &path.child("effect"), effect, &EFFECTS);
        }
    }
}

/// Checks the taints of a node.
pub(in super::super) fn taints(list: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (i, taint) in list.iter().enumerate() {
        let path = path.index(i);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        objections(errors, &path.child("key"), key, names::qualified_name(key));
        let why = names::label_value(value);
        if !why.is_empty() {
            errors.push(FieldError::invalid(path.child("value"), value, why.join(";")));
        }
        super::super::rules::one_of(errors, &path.child("effect"), effect, &EFFECTS);
        if !seen.insert((key, effect)) {
            let mut duplicate = FieldError::duplicate(path, internal::shown("core.Taint", taint));
            duplicate.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(duplicate);
        }
    }
}

pub(super) fn gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.child("readinessGates");
    for (i, gate) in spec.list("readinessGates").iter().enumerate() {
        let condition = gate.text("conditionType");
        objections(errors, &list.index(i).child("conditionType"), condition, names::qualified_name(condition));
    }
    let list = path.child("schedulingGates");
    let mut seen = HashSet::new();
    for (i, gate) in spec.list("schedulingGates").iter().enumerate() {
        let (path, name) = (list.index(i), gate.text("name"));
        objections(errors, &path, name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path, name));
        }
    }
}

pub(super) fn spreading(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let constraints = spec.list("topologySpreadConstraints");
    let mut later: HashMap<(&str, &str), usize> = HashMap::new();
    for constraint in constraints {
        *later.entry((constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"))).or_default() += 1;
    }
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        positive(errors, &path.child("maxSkew"), Some(constraint.int("maxSkew").unwrap_or(0)));
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        if key.is_empty() {
            errors.push(FieldError::required(path.child("topologyKey"), "can not be empty"));
        }
        word(errors, &path.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        let repeated = later.entry((key, action)).or_default();
        *repeated = repeated.saturating_sub(1);
        if *repeated > 0 {
            let path = path.child("{topologyKey, whenUnsatisfiable}");
            errors.push(FieldError::duplicate(path, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = constraint.int("minDomains") {
            let path = path.child("minDomains");
            positive(errors, &path, Some(domains));
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(FieldError::invalid(path, domains, why));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            optional_word(errors, &path.child(field), constraint.at(field), &["Honor", "Ignore"]);
        }
        label_keys(constraint, &path, errors);
        selector(errors, &path.child("labelSelector"), constraint.at("labelSelector"));
    }
}
