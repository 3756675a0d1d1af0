//! Validation of roles and role bindings.

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::labels::Selector;
use machinery::names;

use super::Errors;
use super::rules::{named, objections, required, selector, word};
use crate::facts::internal;
use crate::walk::Walk as _;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn validate(kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let namespaced = !kind.starts_with("Cluster");
    if kind.ends_with("Binding") {
        binding(object, namespaced, errors);
        let (new, before) = (object.at("roleRef"), old.map(|old| old.at("roleRef")));
        if before.is_some_and(|before| ["apiGroup", "kind", "name"].iter().any(|f| new.text(f) != before.text(f))) {
            let shown = internal::shown("rbac.RoleRef", new);
            errors.push(FieldError::invalid("roleRef", shown, "cannot change roleRef"));
        }
        return;
    }
    let list = Path::new("rules");
    for (i, rule) in object.list("rules").iter().enumerate() {
        policy_rule(rule, namespaced, &list.index(i), errors);
    }
    let aggregation = object.at("aggregationRule");
    if aggregation.is_object() {
        let list = Path::new("aggregationRule.clusterRoleSelectors");
        let selectors = aggregation.list("clusterRoleSelectors");
        if selectors.is_empty() {
            let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.push(FieldError::required(list, why));
        }
        for (i, value) in selectors.iter().enumerate() {
            selector(errors, &list.index(i), value);
            if Selector::from_label_selector(value).is_err() {
                errors.push(FieldError::invalid(list.index(i), Value::Null, "invalid label selector."));
            }
        }
    }
}

fn policy_rule(rule: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    if rule.list("verbs").is_empty() {
        errors.push(FieldError::required(path.child("verbs"), "verbs must contain at least one value"));
    }
    if !rule.list("nonResourceURLs").is_empty() {
        let (path, urls) = (path.child("nonResourceURLs"), rule.at("nonResourceURLs"));
        if namespaced {
            errors.push(FieldError::invalid(path, urls, "namespaced rules cannot apply to non-resource URLs"));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.list(field).is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(path, urls, why));
        }
        return;
    }
    for (field, word) in [("apiGroups", "api group"), ("resources", "resource")] {
        if rule.list(field).is_empty() {
            let why = format!("resource rules must supply at least one {word}");
            errors.push(FieldError::required(path.child(field), why));
        }
    }
}

fn binding(object: &Value, namespaced: bool, errors: &mut Errors) {
    let role = object.at("roleRef");
    let path = Path::new("roleRef");
    word(errors, &path.child("apiGroup"), role.text("apiGroup"), &[GROUP]);
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    word(errors, &path.child("kind"), role.text("kind"), kinds);
    named(errors, &path.child("name"), role.text("name"), names::path_segment);
    let list = Path::new("subjects");
    for (i, subject) in object.list("subjects").iter().enumerate() {
        let path = list.index(i);
        let (name, group) = (subject.text("name"), subject.text("apiGroup"));
        if name.is_empty() {
            required(errors, &path.child("name"));
        }
        match subject.text("kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    objections(errors, &path.child("name"), name, names::dns1123_subdomain(name));
                }
                word(errors, &path.child("apiGroup"), group, &[""]);
                if !namespaced && subject.text("namespace").is_empty() {
                    required(errors, &path.child("namespace"));
                }
            }
            "User" | "Group" => word(errors, &path.child("apiGroup"), group, &[GROUP]),
            other => word(errors, &path.child("kind"), other, &["ServiceAccount", "User", "Group"]),
        }
    }
}
